# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a model file to a compiled cluster, or to every reason why not."""

from __future__ import annotations

from ...module_utils.schema.findings import Findings
from ...module_utils.schema.kinds import check
from . import rules
from .build import build
from .cluster import Cluster
from .errors import ModelError
from .filesystems import read_filesystems
from .layout import lay_out, plan_addresses
from .nodes import specify
from .schema import MODEL
from .source import Source
from .storage import check_storage
from .switches import read_switches


def compile_model(source: Source) -> Cluster:
    """The cluster that `source` describes. Raises ModelError with everything that is wrong."""
    findings = Findings(source.line, source.text)
    model = check(MODEL, source.data, findings)
    if model is None:
        raise ModelError(source.name, findings.found)
    specs = specify(model, findings)
    topology = lay_out(model, specs, findings)
    plan = plan_addresses(model, specs, topology, findings)
    switches = rules.switch_names(model, findings)
    kinds = read_switches(model, findings)
    rules.check_names(model, specs, switches, findings)
    rules.check_management(model, specs, switches, findings)
    rules.check_devices(model, specs, findings)
    rules.check_group_vars(model, specs, findings)
    check_storage(model, specs, topology, switches["leaves"], kinds["leaves"], findings)
    contract = rules.read_roce_qos(model, findings)
    software = rules.read_software(model, findings)
    filesystems = read_filesystems(model, specs, topology, plan, findings)
    if findings or specs is None or topology is None or plan is None:
        raise ModelError(source.name, findings.found)
    if contract is None or software is None or filesystems is None:
        raise ModelError(source.name, findings.found)
    return build(model, specs, topology, plan, switches, kinds, contract, software, filesystems)
