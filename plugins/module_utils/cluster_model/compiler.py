# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a model file to a compiled cluster, or to every reason why not."""

from __future__ import annotations

from . import rules
from .build import build
from .cluster import Cluster
from .findings import Findings, ModelError
from .kinds import check
from .layout import lay_out, plan_addresses
from .nodes import specify
from .schema import MODEL
from .source import Source


def compile_model(source: Source) -> Cluster:
    """The cluster that `source` describes. Raises ModelError with everything that is wrong."""
    findings = Findings(source.line)
    model = check(MODEL, source.data, source, findings)
    if model is None:
        raise ModelError(source.name, findings.found)
    specs = specify(model, findings)
    topology = lay_out(model, specs, findings)
    plan = plan_addresses(model, specs, topology, findings)
    switches = rules.switch_names(model, findings)
    rules.check_names(model, specs, switches, findings)
    rules.check_management(model, specs, switches, findings)
    rules.check_devices(model, specs, findings)
    rules.check_group_vars(model, specs, findings)
    if findings or specs is None or topology is None or plan is None:
        raise ModelError(source.name, findings.found)
    return build(model, specs, topology, plan, switches)
