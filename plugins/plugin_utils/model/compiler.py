# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From a model file to a compiled cluster, or to every reason why not."""

from __future__ import annotations

from typing import Any, Optional

from ...module_utils.hostfile import rail_name
from ...module_utils.schema.findings import Findings
from ...module_utils.schema.kinds import check
from ...module_utils.storage.file_system import FileSystem
from ...module_utils.storage.keys import KEY
from ...module_utils.storage.reading import finish
from ...module_utils.storage.rules import Site
from . import rules
from .address_plan import AddressPlan
from .addresses import text
from .build import build
from .cluster import Cluster, rack_group
from .errors import ModelError
from .layout import interface_name, lay_out, plan_addresses
from .nodes import NodeSpec, specify
from .rules import GROUPS, check_storage
from .schema import MODEL
from .source import Source
from .switches import read_switches
from .topology import Topology

# Shared file systems of a model: read beside the hosts, groups and addresses that it gives.


def read_filesystems(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    topology: Optional[Topology],
    plan: Optional[AddressPlan],
    findings: Findings,
) -> Optional[tuple[FileSystem, ...]]:
    """The file systems, with the groups that mount them and the hosts that serve them."""
    site = None
    beside = findings.clean(("launcher",), ("storage",), ("domain",))
    if specs is not None and topology is not None and plan is not None and beside:
        site = _site(model, specs, topology, plan)
    return finish(model[KEY], findings, (KEY,), site)


def _site(
    model: dict[str, Any], specs: list[NodeSpec], topology: Topology, plan: AddressPlan
) -> Site:
    nodes = {spec.name: spec for spec in specs}
    others = {host["name"]: host["management"] for host in (model["launcher"], *model["storage"])}
    lanes = [interface_name(model["rails"], lane.rail, lane.plane) for lane in topology.lanes]

    def names(host: str) -> frozenset[str]:
        """As /etc/hosts has them, and the addresses themselves."""
        spec = nodes.get(host)
        management = others.get(host) if spec is None else spec.management
        found = {host} if management is None else {host, text(management)}
        if model["domain"]:
            found.add(f"{host}.{model['domain']}")
        if spec is not None:
            for number, interface in enumerate(lanes):
                found |= {rail_name(host, interface), text(plan.address(spec.index, number))}
        return frozenset(found)

    return Site(
        groups=(*GROUPS, *sorted({rack_group(spec.rack) for spec in specs})),
        hosts={**nodes, **others}.keys(),
        names=names,
        more=frozenset(host["name"] for host in model["storage"]),
    )


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
