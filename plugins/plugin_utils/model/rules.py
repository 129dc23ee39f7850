# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules across keys of the model: unique and valid names, addresses, ports and devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...module_utils.core.text import counted, nearest, shortened, some
from ...module_utils.names import is_host_name, rail_name
from ..fabric.asics import asic_named
from ..schema.findings import Findings, Path
from ..schema.kinds import foreign
from .addresses import Subnets, dotted_quad, misplaced, shown_hosts
from .cluster import ROLES, kind_group, rack_group
from .layout import Topology, interface_names
from .networks import check_networks
from .node_kinds import DEFAULT, Kinds, NodeKind
from .nodes import NodeSpec, launchers
from .schema import HOST_NAME, INTERFACE, POINT_TO_POINT, RACK, SUBNET_PER_RAIL
from .switches import PEERS, Switches
from .wiring import Fabric

GROUPS = ("all", *ROLES, "ungrouped")
"""Groups of every inventory, in addition to one per rack."""
_LOOPBACK = ("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback")
"""Names in /etc/hosts on every machine."""
_HOSTFILE_WORDS = (
    *("boards", "cores", "count", "cpu", "port", "rank", "slot", "slots", "sockets", "username"),
)
"""Keywords of Open MPI's hostfile, which names nodes and launchers."""
_IN_HOSTFILE = ("nodes", "launcher", "launchers")
BySection = Mapping[str, Switches]
"""Switches by group."""


def groups_of(specs: list[NodeSpec]) -> list[str]:
    """Every group of the inventory."""
    of_kinds = {kind_group(spec.kind.name) for spec in specs} - {""}
    return [*GROUPS, *sorted({rack_group(spec.rack) for spec in specs}), *sorted(of_kinds)]


def groups_without_rails(specs: list[NodeSpec]) -> frozenset[str]:
    """Groups with a node without rails."""
    without = [spec for spec in specs if not spec.kind.rails["count"]]
    groups = (("compute", kind_group(spec.kind.name), rack_group(spec.rack)) for spec in without)
    return frozenset(group for of in groups for group in of)


def _other_hosts(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Launchers and storage hosts with their paths."""
    storage = [(("storage", index), host) for index, host in enumerate(model["storage"])]
    return [*launchers(model), *storage]


def _named(
    model: dict[str, Any], specs: list[NodeSpec], fabric: Fabric, switches: BySection
) -> Iterator[tuple[str, Path]]:
    """Every host with the key that defines its name."""
    for spec in specs:
        yield spec.name, spec.path
    for section, found in switches.items():
        path = (*fabric.groups[section].path, "name")
        listed = bool(found.names) and isinstance(fabric.groups[section].keys["name"], list)
        for index, name in enumerate(found.names):
            yield name, (*path, index) if listed else path
    for path, host in _other_hosts(model):
        yield host["name"], (*path, "name")


def _interfaces(kinds: Kinds) -> list[str]:
    return list(
        dict.fromkeys(name for kind in kinds.values() for name in interface_names(kind.rails))
    )


def check_names(
    kinds: Kinds,
    model: dict[str, Any],
    specs: list[NodeSpec],
    fabric: Fabric,
    switches: BySection,
    findings: Findings,
) -> None:
    """Check that each name is a valid, unique host name, and not the name of a group or a rail."""
    reported: set[tuple[str, Path, Path]] = set()

    def _add(code: str, name: str, path: Path, problem: str, remedy: str, other: Path = ()) -> None:
        """Once per key: a pattern that is wrong for one host is wrong for all."""
        if (code, path, other) not in reported:
            reported.add((code, path, other))
            findings.add(code, path, problem, remedy, name)

    interfaces, nodes = _interfaces(kinds), [spec.name for spec in specs]
    rails = {rail_name(node, interface): node for node in nodes for interface in interfaces}
    tiers = [group.tier for group in fabric.groups.values()]
    reserved, owners = {*_LOOPBACK, *groups_of(specs), *tiers}, dict[str, Path]()
    for name, path in _named(model, specs, fabric, switches):
        if name in owners:
            problem = f"the name {name!r} is taken by {findings.place(owners[name])}"
            _add("model.name_taken", name, path, problem, "Rename one of them", owners[name])
            continue
        owners[name] = path
        number = name.isdigit() and path[0] not in ("switches", *switches)
        if number or not re.fullmatch(HOST_NAME.form, name):
            problem = f"{name!r} is {'a number, ' if number else ''}not {HOST_NAME.wanted}"
            remedy = "Change the name or pattern"
            label, dot, domain = name.lower().partition(".")
            if not number and re.fullmatch(HOST_NAME.form, label):
                remedy += f": {label}" + (f", with domain: {domain} at the top" if dot else "")
            _add("model.host_name", name, path, problem, remedy + foreign(name))
        elif name in reserved or (name in _HOSTFILE_WORDS and path[0] in _IN_HOSTFILE):
            problem = f"{name!r} is also a group of Ansible, a keyword of Open MPI's hostfile, or "
            problem += "a name of the loopback address"
            _add("model.name_reserved", name, path, problem, f"Name the host {name}01, for example")
        elif name in rails:
            problem = f"{name!r} is also the name of a rail of {rails[name]}, in /etc/hosts"
            _add("model.name_of_rail", name, path, problem, "Rename the host")
    longest = max(filter(is_host_name, nodes), key=len, default="node")
    for name in (rail_name(longest, interface) for interface in interfaces):
        if not is_host_name(name):
            problem = f"a rail of {longest} would be {name!r} in /etc/hosts, not a host name"
            remedy = "Use letters, digits and inner hyphens, at most 63 with the name of the node"
            _add("model.rail_name", name, ("rails", "interface"), problem, remedy)


def check_management(
    model: dict[str, Any],
    specs: list[NodeSpec],
    fabric: Fabric,
    switches: BySection,
    findings: Findings,
) -> None:
    """Check that each management address is in the subnet and unique."""
    subnets: Subnets = model["management"]["subnet"]
    owner: dict[int, str] = {}
    outside, taken = misplaced(_management(model, specs, fabric, switches), subnets, owner)
    for path, hosts in outside.items():
        problem = f"not a host address of the management subnet {subnets}: {shown_hosts(hosts)}"
        remedy, value = "Choose others, or a larger management.subnet", dotted_quad(hosts[0][1])
        findings.add("model.outside_management", path, problem, remedy, (value, len(hosts)))
    for path, hosts in taken.items():
        others = [owner[address] for _name, address in hosts]
        problem = f"{shown_hosts(hosts)}: taken by {some(others, 3)}"
        remedy, value = "Give each host another management address", dotted_quad(hosts[0][1])
        shown = (value, len(hosts), others[0])
        findings.add("model.management_address_twice", path, problem, remedy, shown)
    check_networks(model, specs, fabric, switches, owner, findings)


def _management(
    model: dict[str, Any], specs: list[NodeSpec], fabric: Fabric, switches: BySection
) -> Iterator[tuple[str, int, Path]]:
    for path, host in _other_hosts(model):
        yield host["name"], host["management"], (*path, "management")
    for spec in specs:
        if spec.management is not None:
            yield spec.name, spec.management, spec.management_path
    for section, found in switches.items():
        path = (*fabric.groups[section].path, "management_first")
        group = fabric.groups[section]
        listed = isinstance(group.keys["management_first"], list)
        for index, (name, address) in enumerate(zip(found.names, group.management)):
            yield name, address, (*path, index) if listed else path


def check_devices(
    model: dict[str, Any], kinds: Kinds, specs: list[NodeSpec], findings: Findings
) -> None:
    """Check that lists per rail and GPU have the right length, and list no device twice."""

    def count(values: Any, wanted: int, what: str, path: Path) -> None:
        if values is not None and len(values) != wanted:
            key = {"rail": "rails.count", "plane": "rails.planes", "GPU": "gpus.count"}[what]
            problem = f"{counted(len(values), 'value')} for {counted(wanted, what)}"
            remedy = f"Write {wanted}, or correct {key}" if wanted else f"Remove it: {key} is 0"
            findings.add("model.values_for_devices", path, problem, remedy, len(values))

    for kind in kinds.values():
        rails, gpus = kind.rails, kind.gpus
        if "gpus" in kind.own:
            count(gpus["numa"], gpus["count"], "GPU", kind.place("gpus", "numa"))
        if "rails" not in kind.own:
            continue
        if rails["bonded"] and rails["planes"] == 1:
            problem, remedy = "a bond needs several planes", "Write planes: 2, or bonded: false"
            where = kind.place("rails", "planes")
            findings.add("model.bonded_planes", where, problem, remedy, 1)
        path = kind.place("rails", "gpu")
        count(rails["gpu"], rails["count"], "rail", path)
        count(rails["numa"], rails["count"], "rail", kind.place("rails", "numa"))
        for index, gpu in enumerate(rails["gpu"] or []):
            if gpu is not None and gpu >= gpus["count"]:
                problem = f"GPU {gpu} not found: a node has {gpus['count']}"
                remedy = "Count GPUs from 0, or write null"
                findings.add("model.no_gpu", (*path, index), problem, remedy, gpu)
    if model["rails"]["bonded"] and model["addresses"]["plan"] == POINT_TO_POINT:
        problem = f"addresses.plan {POINT_TO_POINT} has an address for each port, and not for bonds"
        path, remedy = ("rails", "bonded"), f"Write plan: {SUBNET_PER_RAIL}"
        findings.add("model.bonded_routed", path, problem, remedy)
    common = kinds[DEFAULT]
    for kind in kinds.values():
        if kind is common or kind.rails["planes"] != common.rails["planes"]:
            _check_interfaces(kind, model["management"]["interface"], findings)
    lanes = model["rails"]["count"]
    lanes *= 1 if model["rails"]["bonded"] else model["rails"]["planes"]
    if isinstance(model["rails"]["vlan"], list):
        count(model["rails"]["vlan"], lanes, "rail", ("rails", "vlan"))
    seen: set[tuple[int, int, int]] = set()
    for spec in specs:
        lists = (id(spec.pci), id(spec.gpu_pci), id(spec.kind))
        if lists in seen:
            continue
        seen.add(lists)
        rails, gpus = spec.kind.rails, spec.kind.gpus
        count(spec.pci, rails["count"], "rail", spec.pci_path)
        count(spec.gpu_pci, gpus["count"], "GPU", spec.gpu_pci_path)
        devices: list[tuple[Path, str]] = []
        for rail, entry in enumerate(spec.pci or []):
            path = (*spec.pci_path, rail)
            planes = entry if isinstance(entry, list) else [entry]
            count(planes, rails["planes"], "plane", path)
            devices += [(path, pci) for pci in planes]
        devices += [((*spec.gpu_pci_path, i), pci) for i, pci in enumerate(spec.gpu_pci or [])]
        first: dict[str, Path] = {}
        for path, pci in devices:
            if pci in first:
                problem = f"the PCI address {pci} is also used by {findings.place(first[pci])}"
                remedy = "Write the address of each device once"
                findings.add("model.device_twice", path, problem, remedy, pci)
            first.setdefault(pci, path)


def _check_interfaces(kind: NodeKind, management: str, findings: Findings) -> None:
    """Check that rails have distinct interfaces, and that none is the management interface."""
    rails = kind.rails
    names, form = interface_names(rails), rf"(?=.{{1,{INTERFACE.most}}}$){INTERFACE.form}"
    wrong = [name for name in names if not re.fullmatch(form, name)]
    if wrong or len(set(names)) != len(names):
        name = (wrong or names)[0]
        problem = f"{name!r} is not {INTERFACE.wanted}, or is used by several planes"
        remedy = "Change the pattern; with several planes apart it must contain {plane}"
        findings.add("model.interface_name", ("rails", "interface"), problem, remedy, name)
    if management in names:
        problem = f"{management!r} is also the interface of a rail"
        path, remedy = ("management", "interface"), "Name another one, or change rails.interface"
        findings.add("model.management_on_rail", path, problem, remedy, management)


def check_racks(specs: list[NodeSpec], findings: Findings) -> None:
    """Check that racks have valid names, which are also those of files, and that no two have the
    same group: `r-1` and `r_1` are both `rack_r_1`."""
    racks: dict[str, NodeSpec] = {}
    for spec in specs:
        racks.setdefault(spec.rack, spec)
    wrong = [rack for rack in racks if len(rack) > RACK.most or not re.fullmatch(RACK.form, rack)]
    if wrong:
        problem = f"{shortened(wrong[0], 80)!r} is not {RACK.wanted}"
        path, remedy = racks[wrong[0]].rack_path, "Write a pattern such as r{:02d}"
        findings.add("model.rack_name", path, problem, remedy, wrong[0])
    first: dict[str, NodeSpec] = {}
    for spec in racks.values():
        other = first.setdefault(rack_group(spec.rack), spec)
        if other.rack != spec.rack:
            problem = f"the group {rack_group(spec.rack)} is also that of rack {other.rack!r} "
            problem += f"({findings.place(other.rack_path)})"
            remedy, value = "Rename one of them", (spec.rack, other.rack)
            findings.add("model.racks_of_one_group", spec.rack_path, problem, remedy, value)


def check_group_vars(
    model: dict[str, Any], specs: list[NodeSpec], more: Sequence[str], findings: Findings
) -> None:
    """`more`: groups of switches, in addition to those by role."""
    known = [*(group for group in groups_of(specs) if group != "ungrouped"), *more]
    hosts = {spec.name for spec in specs}
    for group in model["vars"]:
        if group not in known:
            problem, remedy = f"group {group!r} not found", nearest(group, known)
            if group in hosts:
                remedy = f"Variables of one node are vars under nodes.overrides.{group}"
            findings.add("model.unknown_group", ("vars", group), problem, remedy, group)


def check_channels(fabric: Fabric, findings: Findings) -> None:
    """Check that the ends of port channels over pairs of switches are pairs."""
    for rule in fabric.rules:
        groups = [fabric.groups[name] for name in (*rule.lowers, rule.upper)]
        problem, remedy = "", "Write port_channel: true, or remove it"
        if rule.mlag and rule.port_channel is None:
            problem = "has no effect without port_channel"
        elif rule.mlag and not any(group.names.get(PEERS) for group in groups):
            problem = f"neither {some(rule.lowers)} nor {rule.upper} has ports to the other switch "
            problem += "of a pair"
            remedy = "Write ports by purpose, with peers"
        if problem:
            findings.add("model.mlag", (*rule.path, "mlag"), problem, remedy)


def _check_bonds(
    path: Path, links: list[dict[str, Any]], interfaces: list[str], findings: Findings
) -> None:
    first: dict[str, dict[str, Any]] = {}
    with_address: dict[str, int] = {}
    for number, link in enumerate(links):
        bond = link["bond"]
        if bond is None:
            continue
        if bond in interfaces:
            problem, remedy = f"{bond!r} is the interface of a link", "Name the bond, such as bond0"
            findings.add("model.bond_name", (*path, number, "bond"), problem, remedy, bond)
        other = first.setdefault(bond, link)["speed_gbps"]
        if other != link["speed_gbps"]:
            # docs.nvidia.com/networking-ethernet-software/cumulus-linux/Layer-2/
            # Bonding-Link-Aggregation: all ports of a bond have the same speed.
            problem = f"links of {bond} have different speeds"
            where = (*path, number, "speed_gbps")
            findings.add("model.bond_speeds", where, problem, "Write one for all", bond)
        if link["address"] is not None and with_address.setdefault(bond, number) != number:
            problem, remedy = f"{bond} has an address at another link", "Write it at one link"
            findings.add("model.bond_address", (*path, number, "address"), problem, remedy, bond)


def check_storage_links(
    model: dict[str, Any], topology: Topology, nodes: int, leaves: Switches, findings: Findings
) -> None:
    """Check that cables of storage hosts end at free leaf ports. `nodes` includes absent ones."""
    kinds = dict(zip(leaves.names, enumerate(leaves.kinds)))
    taken: dict[tuple[str, str], Path] = {}
    for index, host in enumerate(model["storage"]):
        interfaces = [link["interface"] for link in host["links"]]
        _check_bonds(("storage", index, "links"), host["links"], interfaces, findings)
        for number, link in enumerate(host["links"]):
            path: Path = ("storage", index, "links", number)
            if (twice := link["interface"]) in interfaces[:number]:
                problem, remedy = f"{twice!r} has two cables", "Write one cable per interface"
                findings.add("model.cable_twice", (*path, "interface"), problem, remedy, twice)
            leaf, port = link["leaf"], link["port"]
            if leaf not in kinds:
                problem, remedy = f"leaf {leaf!r} not found", nearest(leaf, kinds)
                findings.add("model.unknown_leaf", (*path, "leaf"), problem, remedy, leaf)
                continue
            position, kind = kinds[leaf]
            first, end = topology.free_ports(position, nodes)
            ports = kind.ports_for("storage") or kind.ports[first:end]
            if port not in ports:
                problem = f"{port!r} of {leaf} is not a free port"
                free = " to ".join(dict.fromkeys((ports[0], ports[-1]))) if ports else "none"
                remedy = f"Free ports: {free}"
                if not kind.purposes:
                    remedy += "; nodes use the lower ones, spines the upper ones"
                findings.add(
                    "model.port_taken", (*path, "port"), problem, remedy, (port, first, end)
                )
            chip, speed = asic_named(kind.asic, model["asics"]), link["speed_gbps"]
            if speed and chip and chip.name and not chip.has_port(speed):
                problem = f"{chip.name}, the chip of {leaf}, has no ports of {speed}G"
                remedy, value = "Correct the speed, or the name of the chip", (chip.name, speed)
                findings.add("model.storage_speed", (*path, "speed_gbps"), problem, remedy, value)
            other = taken.setdefault((leaf, port), path)
            if other != path:
                problem = f"{port!r} of {leaf} is also used by {findings.place(other)}"
                remedy = "Choose another port"
                findings.add("model.port_twice", (*path, "port"), problem, remedy, port)
