# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules across keys of the model: unique and valid names, addresses, ports and devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Network
from typing import Any

from ...module_utils.core.text import counted, nearest, some
from ...module_utils.names import is_host_name, rail_name
from ..schema.findings import Finding, Findings, Path
from .addresses import Subnet, text
from .cluster import ROLES, rack_group
from .layout import Topology, interface_names
from .nodes import NodeSpec
from .schema import HOST_NAME, INTERFACE, PRIVATE
from .switches import SwitchKind

GROUPS = ("all", *ROLES, "ungrouped")
"""Groups of every inventory, in addition to one per rack."""
_HOSTFILE_WORDS = frozenset(
    ["boards", "cores", "count", "cpu", "port", "rank", "slot", "slots", "sockets", "username"]
)
_LOOPBACK = frozenset(["localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"])
"""Names in /etc/hosts on every machine."""


def groups_of(specs: list[NodeSpec]) -> list[str]:
    """Every group of the inventory."""
    return [*GROUPS, *sorted({rack_group(spec.rack) for spec in specs})]


def switch_names(model: dict[str, Any], findings: Findings) -> dict[str, list[str]]:
    """Names of `leaves` and `spines`."""
    names: dict[str, list[str]] = {"leaves": [], "spines": []}
    for kind in names:
        switch = model[kind]
        if not switch:
            continue
        if isinstance(switch["name"], str):
            names[kind] = [switch["name"].format(number + 1) for number in range(switch["count"])]
            continue
        names[kind] = switch["name"]
        if len(names[kind]) != switch["count"]:
            number, remedy = len(names[kind]), "Write as many names as there are switches"
            problem = f"{counted(number, 'name')} for {switch['count']} {kind}"
            findings.add("model.names_of_switches", (kind, "name"), problem, remedy, number)
    return names


def _other_hosts(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Launcher and storage hosts with their paths."""
    storage = [(("storage", index), host) for index, host in enumerate(model["storage"])]
    return [(("launcher",), model["launcher"]), *storage]


class NameRegistry:
    """Names of hosts and switches, each taken once."""

    def __init__(self, reserved: frozenset[str], findings: Findings) -> None:
        self.owners: dict[str, Path] = {}
        self._reserved = reserved
        self._findings = findings
        self._reported: set[tuple[str, Path, Path]] = set()

    def take(self, name: str, path: Path) -> None:
        """Register a name; `path` is the key that defines it."""
        if name in self.owners:
            first = self.owners[name]
            problem = f"the name {name!r} is taken by {self._findings.place(first)}"
            self.report("model.name_taken", name, path, problem, "Rename one of them", first)
            return
        self.owners[name] = path
        is_switch = path[0] in ("leaves", "spines")
        number = name.isdigit() and not is_switch
        keyword = name in _HOSTFILE_WORDS and path[0] in ("nodes", "launcher")
        if number or not re.fullmatch(HOST_NAME.form, name):
            problem = f"{name!r} is {'a number, ' if number else ''}not {HOST_NAME.wanted}"
            self.report("model.host_name", name, path, problem, "Change the name or pattern", path)
        elif name in self._reserved or keyword:
            problem = f"{name!r} is also a group of Ansible, a keyword of Open MPI's hostfile, or "
            problem += "a name of every machine's loopback address"
            remedy = f"Name the host {name}01, for example"
            self.report("model.name_reserved", name, path, problem, remedy, path)

    def report(
        self, code: str, name: str, path: Path, problem: str, remedy: str, other: Path = ()
    ) -> None:
        """Add a finding, only once per key: a pattern that is wrong for one host is wrong for
        all.
        """
        if (code, path, other) not in self._reported:
            self._reported.add((code, path, other))
            self._findings.add(code, path, problem, remedy, name)


def check_names(
    model: dict[str, Any], specs: list[NodeSpec], switches: dict[str, list[str]], findings: Findings
) -> None:
    """Check that each name is a valid, unique host name, and not the name of a group or a rail."""
    names = NameRegistry(_LOOPBACK.union(groups_of(specs)), findings)
    for spec in specs:
        names.take(spec.name, spec.path)
    for kind, switch_list in switches.items():
        listed = isinstance(model[kind]["name"], list) if model[kind] else False
        for index, name in enumerate(switch_list):
            names.take(name, (kind, "name", index) if listed else (kind, "name"))
    for path, host in _other_hosts(model):
        names.take(host["name"], (*path, "name"))
    _check_rail_names(names, [spec.name for spec in specs], interface_names(model["rails"]))


def _check_rail_names(names: NameRegistry, nodes: list[str], interfaces: list[str]) -> None:
    """Check that the rails' names in /etc/hosts are valid, and that no host has one of them."""
    longest = max(filter(is_host_name, nodes), key=len, default="node")
    for name in (rail_name(longest, interface) for interface in interfaces):
        if not is_host_name(name):
            problem = f"a rail of {longest} would be {name!r} in /etc/hosts, not a host name"
            remedy = "Use letters, digits and inner hyphens, at most 63 with the name of the node"
            names.report("model.rail_name", name, ("rails", "interface"), problem, remedy)
    suffixes = tuple(f"-{interface}" for interface in interfaces)
    for name in [name for name in names.owners if name.endswith(suffixes)]:
        stems = {name[: -len(suffix)] for suffix in suffixes if name.endswith(suffix)}
        for node in stems.intersection(nodes):
            problem = f"{name!r} is also the name of a rail of {node}, in /etc/hosts"
            path = names.owners[name]
            names.report("model.name_of_rail", name, path, problem, "Rename the host")


def check_management(
    model: dict[str, Any], specs: list[NodeSpec], switches: dict[str, list[str]], findings: Findings
) -> None:
    """Check that each management address is in the subnet and unique."""
    subnet: Subnet = model["management"]["subnet"]
    owner: dict[int, str] = {}
    outside: dict[Path, list[tuple[str, int]]] = {}
    taken: dict[Path, list[tuple[str, int]]] = {}
    for name, address, path in _management(model, specs, switches):
        if not subnet.first < address < subnet.last:
            outside.setdefault(path, []).append((name, address))
        if owner.setdefault(address, name) != name:
            taken.setdefault(path, []).append((name, address))
    for path, hosts in outside.items():
        findings.add(
            "model.outside_management",
            path,
            f"not a host address of the management subnet {subnet}: {_shown(hosts)}",
            "Choose others, or a larger management.subnet",
            (text(hosts[0][1]), len(hosts)),
        )
    for path, hosts in taken.items():
        others = [owner[address] for _name, address in hosts]
        findings.add(
            "model.management_address_twice",
            path,
            f"{_shown(hosts)}: taken by {some(others, 3)}",
            "Give each host another management address",
            (text(hosts[0][1]), len(hosts), others[0]),
        )


def _shown(hosts: list[tuple[str, int]]) -> str:
    return some([f"{text(address)} ({name})" for name, address in hosts], 1)


def _management(
    model: dict[str, Any], specs: list[NodeSpec], switches: dict[str, list[str]]
) -> Iterable[tuple[str, int, Path]]:
    for path, host in _other_hosts(model):
        yield host["name"], host["management"], (*path, "management")
    for spec in specs:
        if spec.management is not None:
            yield spec.name, spec.management, spec.management_path
    for kind, names in switches.items():
        for index, name in enumerate(names):
            yield name, model[kind]["management_first"] + index, (kind, "management_first")


def check_devices(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> None:
    """Check that lists per rail and GPU have the right length, and that no device of a node is
    listed twice.
    """
    rails, gpus = model["rails"], model["gpus"]

    def count(values: Any, wanted: int, what: str, path: Path) -> None:
        if values is not None and len(values) != wanted:
            write = f"Write {counted(wanted, 'value')}" if wanted else "Leave it out"
            key = {"rail": "rails.count", "plane": "rails.planes", "GPU": "gpus.count"}[what]
            problem = f"{counted(len(values), 'value')} for {counted(wanted, what)}"
            remedy = f"{write}, or correct {key}"
            findings.add("model.values_for_devices", path, problem, remedy, len(values))

    count(rails["gpu"], rails["count"], "rail", ("rails", "gpu"))
    count(rails["numa"], rails["count"], "rail", ("rails", "numa"))
    count(gpus["numa"], gpus["count"], "GPU", ("gpus", "numa"))
    for index, gpu in enumerate(rails["gpu"] or []):
        if gpu is not None and gpu >= gpus["count"]:
            problem = f"GPU {gpu} not found: a node has {gpus['count']}"
            remedy = "Count GPUs from 0, or write null"
            findings.add("model.no_gpu", ("rails", "gpu", index), problem, remedy, gpu)
    _check_interfaces(model, findings)
    seen: set[tuple[int, int]] = set()
    for spec in specs:
        lists = (id(spec.pci), id(spec.gpu_pci))
        if lists in seen:
            continue
        seen.add(lists)
        count(spec.pci, rails["count"], "rail", spec.pci_path)
        count(spec.gpu_pci, gpus["count"], "GPU", spec.gpu_pci_path)
        devices: list[tuple[Path, str]] = []
        for rail, entry in enumerate(spec.pci or []):
            path = (*spec.pci_path, rail)
            planes = entry if isinstance(entry, list) else [entry]
            count(planes, rails["planes"], "plane", path)
            devices += [(path, pci) for pci in planes]
        devices += [((*spec.gpu_pci_path, i), pci) for i, pci in enumerate(spec.gpu_pci or [])]
        _check_devices_once(devices, findings)


def _check_devices_once(devices: list[tuple[Path, str]], findings: Findings) -> None:
    first: dict[str, Path] = {}
    for path, pci in devices:
        if pci in first:
            problem = f"the PCI address {pci} is also used by {findings.place(first[pci])}"
            findings.add(
                "model.device_twice", path, problem, "Write the address of each device once", pci
            )
        first.setdefault(pci, path)


def _check_interfaces(model: dict[str, Any], findings: Findings) -> None:
    """Check that rails have distinct interfaces, and that none is the management interface."""
    rails, management = model["rails"], model["management"]["interface"]
    names = interface_names(rails)
    wrong = [
        name
        for name in names
        if not re.fullmatch(INTERFACE.form, name) or len(name) > INTERFACE.most
    ]
    if wrong or len(set(names)) != len(names):
        findings.add(
            "model.interface_name",
            ("rails", "interface"),
            f"{(wrong or names)[0]!r} is not {INTERFACE.wanted}, or is used by several planes",
            "Change the pattern; with several planes it must contain {plane}",
            (wrong or names)[0],
        )
    if management in names:
        problem = f"{management!r} is also the interface of a rail"
        path, remedy = ("management", "interface"), "Name another one, or change rails.interface"
        findings.add("model.management_on_rail", path, problem, remedy, management)


def check_group_vars(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> None:
    known = [group for group in groups_of(specs) if group != "ungrouped"]
    for group in model["vars"]:
        if group not in known:
            problem = f"group {group!r} not found"
            findings.add(
                "model.unknown_group", ("vars", group), problem, nearest(group, known), group
            )


def doubts(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> tuple[Finding, ...]:
    """Valid settings that are probably mistakes."""
    pool, path = str(model["addresses"]["pool"]), ("addresses", "pool")
    if IPv4Network(pool).is_global:
        problem = f"{pool} contains public addresses, which makes hosts of the Internet unreachable"
        remedy = f"Choose one in {PRIVATE}, unless they are yours"
        findings.add("model.public_pool", path, problem, remedy, pool)
    if all(spec.drained for spec in specs):
        problem = "every node is drained, but the layers hostfile and smoke need one rank or more"
        remedy, path = "Keep one in service", ("nodes", "drained")
        findings.add("model.all_drained", path, problem, remedy, len(specs))
    return tuple(findings.found)


def check_storage_links(
    model: dict[str, Any],
    topology: Topology,
    nodes: int,
    leaves: list[str],
    kinds: list[SwitchKind],
    findings: Findings,
) -> None:
    """Check that cables of storage hosts end at free leaf ports. `nodes` includes absent ones."""
    taken: dict[tuple[str, str], Path] = {}
    for index, host in enumerate(model["storage"]):
        interfaces = [link["interface"] for link in host["links"]]
        for number, link in enumerate(host["links"]):
            path: Path = ("storage", index, "links", number)
            if link["interface"] in interfaces[:number]:
                twice, remedy = link["interface"], "Write one cable per interface"
                problem = f"{twice!r} of {host['name']} has two cables"
                findings.add("model.cable_twice", (*path, "interface"), problem, remedy, twice)
            if link["leaf"] not in leaves:
                problem = f"leaf {link['leaf']!r} not found"
                remedy = nearest(link["leaf"], leaves)
                findings.add("model.unknown_leaf", (*path, "leaf"), problem, remedy, link["leaf"])
                continue
            index_of_leaf = leaves.index(link["leaf"])
            names = kinds[index_of_leaf].ports.names()
            first, end = _free_ports(index_of_leaf, topology, nodes)
            if link["port"] not in names[first:end]:
                free = f"{names[first]} to {names[end - 1]}" if first < end else "none"
                findings.add(
                    "model.port_taken",
                    (*path, "port"),
                    f"{link['port']!r} of {link['leaf']} is not a free port",
                    f"Free ports: {free}; nodes use the lower ones, spines the upper ones",
                    (link["port"], first, end),
                )
            first_path = taken.setdefault((link["leaf"], link["port"]), path)
            if first_path != path:
                findings.add(
                    "model.port_twice",
                    (*path, "port"),
                    f"{link['port']!r} of {link['leaf']} is also used by "
                    + findings.place(first_path),
                    "Choose another port",
                    link["port"],
                )


def _free_ports(leaf: int, topology: Topology, nodes: int) -> tuple[int, int]:
    """The range of a leaf's ports that nodes and spines leave free."""
    leaf_set, of_set = divmod(leaf, topology.leaves_per_set)
    here = min(max(0, nodes - leaf_set * topology.nodes_per_set), topology.nodes_per_set)
    return here * topology.lanes_on(of_set), topology.leaf_ports - topology.uplinks
