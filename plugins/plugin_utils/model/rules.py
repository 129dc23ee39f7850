# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What no cluster can have: names, addresses and devices that are there twice or do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Optional

from ...module_utils.core.text import counted, nearest, some
from ...module_utils.software.software_set import SoftwareSet
from ..qos import Contract
from ..qos.rules import check_rail, finish
from ..schema.findings import Findings, Path
from .addresses import Network, text
from .cluster import rack_group
from .kinds import HOST_NAME, INTERFACE
from .layout import interface_name
from .nodes import NodeSpec
from .software import finish as finish_software
from .software import refuse
from .software_keys import KEY as SOFTWARE
from .switches import SwitchKind
from .topology import Topology

HOSTFILE_WORDS = frozenset(
    ["boards", "cores", "count", "cpu", "port", "rank", "slot", "slots", "sockets", "username"]
)

# Cables of storage hosts: each into a port of a leaf that is there and free.


def check_storage(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    topology: Optional[Topology],
    leaves: list[str],
    kinds: list[SwitchKind],
    findings: Findings,
) -> None:
    if specs is None or topology is None or len(leaves) != len(kinds):
        return
    taken: dict[tuple[str, str], Path] = {}
    for index, host in enumerate(model["storage"] or []):
        if not findings.clean(("storage", index)):
            continue
        interfaces: set[str] = set()
        for number, link in enumerate(host["links"]):
            path: Path = ("storage", index, "links", number)
            if link["interface"] in interfaces:
                findings.add(
                    "model.cable_twice",
                    (*path, "interface"),
                    f"{link['interface']!r} of {host['name']} is there twice",
                    "Give each cable its own",
                    value=link["interface"],
                )
            interfaces.add(link["interface"])
            if link["leaf"] not in leaves:
                findings.add(
                    "model.unknown_leaf",
                    (*path, "leaf"),
                    f"there is no leaf {link['leaf']!r}",
                    nearest(link["leaf"], leaves),
                    value=link["leaf"],
                )
                continue
            place = leaves.index(link["leaf"])
            _check_port(link, place, kinds[place], topology, specs, path, findings)
            key = (link["leaf"], link["port"])
            if taken.setdefault(key, path) != path:
                findings.add(
                    "model.port_twice",
                    (*path, "port"),
                    f"{link['port']!r} of {link['leaf']} is also that of "
                    + findings.place(taken[key]),
                    "Give each cable its own",
                    value=link["port"],
                )


def _check_port(
    link: dict[str, Any],
    place: int,
    kind: SwitchKind,
    topology: Topology,
    specs: list[NodeSpec],
    path: Path,
    findings: Findings,
) -> None:
    names = kind.ports.names()
    port, leaf = link["port"], link["leaf"]
    if port not in names:
        findings.add(
            "model.no_such_port",
            (*path, "port"),
            f"{leaf} has no port {port!r}",
            f"Its ports are {names[0]} to {names[-1]}",
            value=port,
        )
        return
    free, end = _free_ports(place, topology, specs[-1].index + 1)
    if not free <= names.index(port) < end:
        whose = "a node" if names.index(port) < free else "a spine"
        way_out = f"Free are {names[free]} to {names[end - 1]}" if free < end else "None is free"
        findings.add(
            "model.port_taken",
            (*path, "port"),
            f"{port!r} of {leaf} goes to {whose}",
            way_out,
            value=(port, whose, free, end),
        )


def _free_ports(leaf: int, topology: Topology, nodes: int) -> tuple[int, int]:
    """From which port of a leaf on, and up to which, there is no cable of a node or a spine."""
    leaf_set, of_set = divmod(leaf, topology.leaves_per_set)
    here = min(max(0, nodes - leaf_set * topology.nodes_per_set), topology.nodes_per_set)
    return here * topology.lanes_on(of_set), topology.leaf_ports - topology.uplinks


GROUPS = ("all", "compute", "launcher", "storage", "leaf", "spine", "ungrouped")
"""Groups that are there in every inventory, besides one per rack."""


def switch_names(model: dict[str, Any], findings: Findings) -> dict[str, list[str]]:
    """Names of `leaves` and `spines`; empty where there are none or they are not clear."""
    names: dict[str, list[str]] = {"leaves": [], "spines": []}
    for kind in names:
        switch = model[kind]
        if not switch or not findings.clean((kind,)):
            continue
        if isinstance(switch["name"], str):
            names[kind] = [switch["name"].format(number + 1) for number in range(switch["count"])]
            continue
        names[kind] = switch["name"]
        if len(names[kind]) != switch["count"]:
            findings.add(
                "model.names_of_switches",
                (kind, "name"),
                f"{counted(len(names[kind]), 'name')} for {switch['count']} {kind}",
                "Write as many names as there are switches",
                value=len(names[kind]),
            )
    return names


def _hosts_beside(model: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Launcher and storage hosts with their places, as far as they can be read."""
    hosts: list[tuple[Path, dict[str, Any]]] = []
    if model["launcher"]:
        hosts.append((("launcher",), model["launcher"]))
    for index, host in enumerate(model["storage"] or []):
        if host:
            hosts.append((("storage", index), host))
    return hosts


def check_names(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    switches: dict[str, list[str]],
    findings: Findings,
) -> None:
    """Each name is a host name, is there once, and is not that of a group."""
    where: dict[str, Path] = {}
    racks = {rack_group(spec.rack) for spec in specs or []}

    told: set[tuple[Path, Path]] = set()

    def tell(code: str, name: str, path: Path, other: Path, problem: str, remedy: str) -> None:
        # A pattern that is wrong once is wrong for every number: say it once.
        if (path, other) not in told:
            findings.add(code, path, problem, remedy, name)
        told.add((path, other))

    def take(name: str, path: Path) -> None:
        if name in where:
            first = where[name]
            problem = f"the name {name!r} is taken by {findings.place(first)}"
            tell("model.name_taken", name, path, first, problem, "Rename one of them")
            return
        where[name] = path
        if not re.fullmatch(HOST_NAME.form, name):
            tell(
                "model.host_name",
                name,
                path,
                path,
                f"{name!r} is not {HOST_NAME.wanted}",
                "Change the pattern",
            )
        elif name in GROUPS or name in racks:
            tell(
                "model.name_of_group",
                name,
                path,
                path,
                f"{name!r} is also the name of a group, and Ansible cannot tell them apart",
                f"Name the host {name}01, for example",
            )
        elif name in HOSTFILE_WORDS and path[0] in ("nodes", "launcher"):
            problem = f"{name!r} is a keyword of Open MPI's hostfile"
            tell("model.name_of_keyword", name, path, path, problem, f"Name the host {name}01")

    for spec in specs or []:
        take(spec.name, spec.path if len(spec.path) > 1 else ("nodes", "name"))
    for kind, names in switches.items():
        for index, name in enumerate(names):
            listed = isinstance(model[kind]["name"], list)
            take(name, (kind, "name", index) if listed else (kind, "name"))
    for path, host in _hosts_beside(model):
        if host["name"] is not None:
            take(host["name"], (*path, "name"))


def check_management(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    switches: dict[str, list[str]],
    findings: Findings,
) -> None:
    """Each management address lies in the subnet and is there once."""
    if not findings.clean(("management",)):
        return
    subnet: Network = model["management"]["subnet"]
    owner: dict[int, str] = {}
    outside: dict[Path, list[tuple[str, int]]] = {}
    taken: dict[Path, list[tuple[str, int]]] = {}
    for name, address, path in _management(model, specs, switches):
        if not subnet.first < address < subnet.last:
            outside.setdefault(path, []).append((name, address))
        if address in owner:
            taken.setdefault(path, []).append((name, address))
        else:
            owner[address] = name
    for path, hosts in outside.items():
        findings.add(
            "model.outside_management",
            path,
            f"{_and_more(hosts)} {'is' if len(hosts) == 1 else 'are'} no host address of the "
            f"management subnet {subnet}",
            "Choose others, or a larger management.subnet",
            value=(text(hosts[0][1]), len(hosts)),
        )
    for path, hosts in taken.items():
        others = [owner[address] for _name, address in hosts]
        findings.add(
            "model.management_address_twice",
            path,
            f"{_and_more(hosts)}: taken by {some(others, 3)}",
            "Give each host a management address of its own",
            value=(text(hosts[0][1]), len(hosts), others[0]),
        )


def _and_more(hosts: list[tuple[str, int]]) -> str:
    name, address = hosts[0]
    more = f" and {len(hosts) - 1} more" if len(hosts) > 1 else ""
    return f"{text(address)} ({name}){more}"


def _management(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], switches: dict[str, list[str]]
) -> Iterable[tuple[str, int, Path]]:
    for path, host in _hosts_beside(model):
        if host["management"] is not None:
            yield host["name"] or "unnamed", host["management"], (*path, "management")
    for spec in specs or []:
        if spec.management is not None:
            yield spec.name, spec.management, spec.management_path
    for kind, names in switches.items():
        for index, name in enumerate(names):
            yield name, model[kind]["management_first"] + index, (kind, "management_first")


def check_devices(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], findings: Findings
) -> None:
    """Lists per rail and GPU have their length, and no device is named twice in a node."""
    if not findings.clean(("rails",), ("gpus",)):
        return
    rails, gpus = model["rails"], model["gpus"]
    for section, key, count, what in (
        ("rails", "gpu", rails["count"], "rail"),
        ("rails", "numa", rails["count"], "rail"),
        ("gpus", "numa", gpus["count"], "GPU"),
    ):
        values = model[section][key]
        if values is not None and len(values) != count:
            findings.add(
                "model.values_for_devices",
                (section, key),
                f"{counted(len(values), 'value')} for {counted(count, what)}",
                f"Write {counted(count, 'value')}",
                value=len(values),
            )
    for index, gpu in enumerate(rails["gpu"] or []):
        if gpu is not None and gpu >= gpus["count"]:
            findings.add(
                "model.no_gpu",
                ("rails", "gpu", index),
                f"there is no GPU {gpu}: a node has {gpus['count']}",
                "Count GPUs from 0, or write null",
                value=gpu,
            )
    if rails["planes"] > 1 and "{plane}" not in (rails["interface"] or "{plane}"):
        findings.add(
            "model.planes_share_interface",
            ("rails", "interface"),
            f"{rails['interface']!r} gives the planes of a rail the same name",
            "Put {plane} into it",
            value=rails["interface"],
        )
    longest = interface_name(rails, rails["count"] - 1, rails["planes"] - 1)
    if not re.fullmatch(INTERFACE.form, longest) or len(longest) > INTERFACE.most:
        findings.add(
            "model.interface_name",
            ("rails", "interface"),
            f"{longest!r} is not {INTERFACE.wanted}",
            "Change the pattern",
            value=longest,
        )
    _check_interfaces(model, findings)
    seen: set[tuple[int, int]] = set()
    for spec in specs or []:
        if (id(spec.pci), id(spec.gpu_pci)) in seen:
            continue
        seen.add((id(spec.pci), id(spec.gpu_pci)))
        _check_pci(spec, rails["count"], rails["planes"], gpus["count"], findings)


def _check_interfaces(model: dict[str, Any], findings: Findings) -> None:
    """No rail is the interface that SSH comes in by: it would get the rail's address."""
    if not findings.clean(("management",)):
        return
    rails, management = model["rails"], model["management"]["interface"]
    for rail in range(rails["count"]):
        for plane in range(rails["planes"]):
            if interface_name(rails, rail, plane) == management:
                findings.add(
                    "model.management_on_rail",
                    ("management", "interface"),
                    f"{management!r} is also the interface of rail {rail}",
                    "Name another one, or change rails.interface",
                    value=management,
                )
                return


def _check_pci(spec: NodeSpec, rails: int, planes: int, gpus: int, findings: Findings) -> None:
    first: dict[str, str] = {}
    if spec.pci is not None:
        if len(spec.pci) != rails:
            findings.add(
                "model.pci_for_rails",
                spec.pci_path,
                f"{counted(len(spec.pci), 'entry', 'entries')} for {counted(rails, 'rail')}",
                f"Write {rails}",
                value=len(spec.pci),
            )
        for rail, entry in enumerate(spec.pci):
            devices = entry if isinstance(entry, list) else [entry]
            if len(devices) != planes:
                findings.add(
                    "model.pci_for_planes",
                    (*spec.pci_path, rail),
                    f"{counted(len(devices), 'PCI address', 'PCI addresses')} "
                    f"for {counted(planes, 'plane')} of rail {rail}",
                    f"Write {planes}" + (" as a list" if planes > 1 else ""),
                    value=len(devices),
                )
            for pci in devices:
                _take_device(pci, f"rail {rail}", (*spec.pci_path, rail), first, findings)
    if spec.gpu_pci is not None:
        if len(spec.gpu_pci) != gpus:
            findings.add(
                "model.pci_for_gpus",
                spec.gpu_pci_path,
                f"{counted(len(spec.gpu_pci), 'entry', 'entries')} for {counted(gpus, 'GPU')}",
                f"Write {gpus}",
                value=len(spec.gpu_pci),
            )
        for index, pci in enumerate(spec.gpu_pci):
            _take_device(pci, f"GPU {index}", (*spec.gpu_pci_path, index), first, findings)


def _take_device(
    pci: str, what: str, path: Path, first: dict[str, str], findings: Findings
) -> None:
    if pci in first:
        findings.add(
            "model.device_twice",
            path,
            f"the PCI address {pci} of {what} is also that of {first[pci]}",
            "Give each device its own",
            value=(pci, first[pci]),
        )
    else:
        first[pci] = what


def check_group_vars(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], findings: Findings
) -> None:
    if specs is None or not findings.clean(("vars",)):
        return
    known = [*GROUPS[:-1], *sorted({rack_group(spec.rack) for spec in specs})]
    for group in model["vars"]:
        if group not in known:
            findings.add(
                "model.unknown_group",
                ("vars", group),
                f"there is no group {group!r}",
                nearest(group, known),
                value=group,
            )


def read_roce_qos(model: dict[str, Any], findings: Findings) -> Optional[Contract]:
    """The QoS contract, kept by the rails; a path MTU that nobody wrote is what they carry."""
    path = ("roce_qos",)
    mtu = model["rails"]["mtu"] if findings.clean(("rails", "mtu")) else None
    contract = finish(model["roce_qos"], findings, path, mtu)
    if contract is not None and mtu is not None:
        check_rail(contract, mtu, findings, ("rails", "mtu"), path)
    return contract


def read_software(model: dict[str, Any], findings: Findings) -> Optional[SoftwareSet]:
    """The set, without versions that are known not to go together."""
    path = (SOFTWARE,)
    software = finish_software(model[SOFTWARE], findings, path)
    if software is not None:
        refuse(software, findings, path)
    return software
