# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The text of a draft: a cluster.yml that is valid for the majority of machines."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import yaml

from ...module_utils.core.text import counted
from ..answers import sentence, shown
from ..fabric.systems import SYSTEMS
from ..model import PLUGIN, compile_model
from ..model import read as read_model
from ..model.node_kinds import ALL, DEFAULT
from ..model.schema import HOST_NAME
from ..model.source import DRAFT
from ..qos.contract import needed_ip_mtu
from .differences import leaf_sets, own_set
from .machines import CPU, DiscoveredMachine, Lane, Shape, majority, shape_of, speed_of
from .plan import NoDraftError, addressed, addresses_of, names_of, subnet_of, take

CHECK = "# CHECK:"
"""Prefix of comments on values that no machine reported."""
SPEED_GBPS, LEAF_PORTS, LARGEST_PATH_MTU = 800, 64, 4096
"""Default for rails without a link, and for leaves."""
SECTIONS = {
    *("plugin", "name", "management", "kinds", "nodes", "gpus", "rails", "addresses", "leaves"),
    *("launcher", "launchers", "storage"),
}


class Draft:
    """A draft from machines. Raises NoDraftError, or ModelError if it does not compile."""

    def __init__(
        self, machines: Sequence[DiscoveredMachine], groups: Mapping[str, Sequence[str]]
    ) -> None:
        shape = shape_of(machines)
        if shape is None:
            raise NoDraftError(
                "no rails were found: no machine has a NIC that shares a PCIe switch with a GPU, "
                "or interfaces numbered from 0 (rail0, rail1, ...). Load the NICs' driver, or "
                "write the model by hand (docs/cluster-model.md)"
            )
        self.shape = shape
        self.nodes = _nodes(machines, shape, groups)
        if not self.nodes:
            raise NoDraftError("no compute node was read: name more hosts, or omit --limit")
        self.others = [machine for machine in machines if machine not in self.nodes]
        self._launchers = groups.get("launcher", ())
        self._kind_names = _named(shape.groups(self.nodes)[1:])
        self.names = names_of(self.nodes)
        self._places = self.names.places
        self._count = max(self._places.values()) + 1
        self._subnet = subnet_of(machines)
        self._taken = {int(machine.address.ip) for machine in machines if machine.address}
        self._set_size = 1
        self._sets = self._leaf_sets()
        order = list(dict.fromkeys(self._sets[0].values())) if self._sets else []
        self._rail_to_leaf = (
            [order.index(leaf) for leaf in self._sets[0].values()]
            if self._sets
            else list(range(len(shape.lanes)))
        )
        per_leaf = max(map(self._rail_to_leaf.count, self._rail_to_leaf))
        self._ports = LEAF_PORTS
        while self._ports < self._set_size * per_leaf:
            self._ports *= 2
        if len(self._sets) < 2:
            self._set_size = self._ports // per_leaf
        self._plan, self._addressed = addresses_of(
            self.nodes, self._places, shape, self._set_size, self._subnet
        )
        self.text = "\n".join([*map(_plain, self._lines()), ""])
        if set(yaml.safe_load(self.text)) - SECTIONS:
            raise NoDraftError("a value from a machine became a key of the draft")
        self.cluster = compile_model(read_model("the draft", self.text))

    def _leaf_sets(self) -> list[dict[Lane, str]]:
        """Leaf sets in the order of their nodes, if a model can express them; sets their size.

        LLDP must report each set completely, and the nodes must fill the sets one by one.
        """
        sets = leaf_sets(self.nodes, self.shape)
        taken = {*self.names.by_host.values(), *(item.name for item in self.others)}
        names = [leaf for item in sets for leaf in item.values()]
        if any(not re.fullmatch(HOST_NAME.form, name) or name in taken for name in names):
            return []
        if any(len(item) < len(self.shape.lanes) for item in sets):
            return []
        first: dict[int, dict[Lane, str]] = {}
        own = {
            self._places[node.host]: dict(own_set(node, self.shape, sets)) for node in self.nodes
        }
        for place, leaves in sorted(own.items()):
            if leaves and leaves not in first.values():
                first[place] = leaves
        size = [*first, self._count][1] if first else 1
        filled = (own[place] in ({}, first.get(place - place % size)) for place in own)
        if not all(filled):
            return []
        self._set_size = size
        return list(first.values())

    def addressed(self) -> dict[str, dict[Lane, str]]:
        """Rail addresses by host, if the machines follow an address plan."""
        rails = {node.name: node.rails for node in self.cluster.nodes}
        return {
            host: {(rail.rail, rail.plane): f"{rail.address}/{rail.prefix}" for rail in rails[name]}
            for host, name in self.names.by_host.items()
            if self._addressed
        }

    def _lines(self) -> list[str]:
        return [
            f"{DRAFT}, read off {counted(len(self.nodes), 'node')} and "
            f"{counted(len(self.others), 'other machine')} by playbooks/discover.yml.",
            f"# Lines with {CHECK[2:-1]} have values that no machine reported.",
            "# Every key: docs/cluster-model.md.",
            f"plugin: {PLUGIN}",
            f"name: cluster {CHECK} names reports and state",
            *self._management(),
            *self._kinds(),
            *self._nodes_section(),
            *self._gpus(),
            *self._rails(),
            *self._addresses(),
            *self._leaves(),
            *self._hosts(),
            *self._software(),
        ]

    def _management(self) -> list[str]:
        machines = [*self.nodes, *self.others]
        interface, share = majority(machine.interface for machine in machines)
        networks = {machine.address.network for machine in machines if machine.address}
        wide = f" {CHECK} contains the networks of all machines"
        lines = ["", "management:"]
        lines.append(f"  subnet: {self._subnet}{'' if self._subnet in networks else wide}")
        if interface and len({machine.interface for machine in machines}) == 1:
            return [*lines, f"  interface: {_flow(interface)}"]
        return [*lines, f"  # interface: it differs, {interface} on {share}"]

    def _nodes_section(self) -> list[str]:
        names, lines = self.names, ["", "nodes:"]
        if names.made:
            lines.append(f"  {CHECK} host names follow no pattern: site.yml sets these")
        overrides = self._overrides()
        if names.pattern:
            first, moved = addressed(names, self.nodes)
            for name, address in moved.items():
                overrides[name] = {"management": str(address), **overrides.get(name, {})}
            absent = [name for name in names.every if name not in names.by_host.values()]
            lines += [f"  count: {len(names.every)}", f"  name: {_flow(names.pattern)}"]
            lines += [f"  start: {names.start}"] * (names.start != 1)
            lines += [f"  management_first: {first}"]
            lines += [f"  absent: [{', '.join(map(_flow, absent))}]"] * bool(absent)
        else:
            ordered = sorted(self.nodes, key=lambda node: self._places[node.host])
            lines += ["  list:", *(f"    - {{{', '.join(_host(node))}}}" for node in ordered)]
        if not self.shape.gpus:
            lines.append(
                f"  slots: {self.shape.rails} {CHECK} no GPU was found; a rank for each rail"
            )
        lines += [f"  cpu: {each}" for each in _cpu(self.shape.groups(self.nodes)[0])]
        lines += ["  overrides:"] * bool(overrides)
        for name, values in overrides.items():
            lines.append(f"    {_flow(name)}:")
            lines += [f"      {key}: {_flow(value)}" for key, value in values.items()]
        return [*lines, f"  # nodes_per_rack: 4 {CHECK} racks; by default one for all nodes"]

    def _overrides(self) -> dict[str, dict[str, Any]]:
        """PCI addresses of nodes on which all rails or GPUs differ from the majority."""
        found: dict[str, dict[str, Any]] = {}
        for node in self.nodes:
            values, shape = found.setdefault(self.names.by_host[node.host], {}), self.shape.of(node)
            if node.host in self._kind_names:
                values["kind"] = self._kind_names[node.host]
            if self.shape.own(node) != shape.lanes:
                values["pci"] = _per_rail(self.shape.own(node), shape)
            if len(node.gpus) == len(shape.gpus) and node.gpus != shape.gpus:
                values["gpu_pci"] = list(node.gpus)
        return {name: values for name, values in found.items() if values}

    def _kinds(self) -> list[str]:
        """Nodes with other GPUs and rails. Those of the first kind are at the top level."""
        lines = ["", f"kinds: {CHECK} names of kinds"] * bool(self._kind_names)
        for group in self.shape.groups(self.nodes)[1:]:
            shape, speed = self.shape.of(group[0]), speed_of(group)
            lines += [f"  {self._kind_names[group[0].host]}:"]
            lines += [f"    cpu: {each}" for each in _cpu(group)]
            lines.append("    gpus:")
            lines += [f"      count: {len(shape.gpus)}", f"      pci: {_flow(list(shape.gpus))}"]
            lines += [f"      numa: {_flow(list(shape.numa))}"] * bool(shape.numa)
            lines += ["    rails:", f"      count: {shape.rails}"]
            lines += [f"      speed_gbps: {speed or 0:g}"] * bool(speed)
            lines += [f"      pci: {_flow(_per_rail(shape.lanes, shape))}"]
        return lines

    def _gpus(self) -> list[str]:
        shape = self.shape
        if not shape.gpus:
            return []
        lines = ["", "gpus:", f"  count: {len(shape.gpus)}"]
        lines += [f"  numa: {_flow(list(shape.numa))}"] * bool(shape.numa)
        return [*lines, "  pci:", *(f"    - {_flow(pci)}" for pci in shape.gpus)]

    def _rails(self) -> list[str]:
        shape = self.shape
        nodes = shape.groups(self.nodes)[0]
        places = [(node, place) for node in nodes for place in shape.own(node).values()]
        nics = [nic for node, place in places if (nic := node.at(place)) is not None]
        speed, _share = majority(nic.speed_gbps for nic in nics)
        mtu, _share = majority(nic.mtu for nic in nics)
        guess = f"{SPEED_GBPS // shape.planes} {CHECK} no rail reported a speed"
        lines = ["", "rails:", f"  count: {shape.rails}"]
        lines += [f"  planes: {shape.planes}"] * (shape.planes > 1)
        lines.append(f"  speed_gbps: {f'{speed:g}' if speed else guess}")
        if mtu and mtu >= needed_ip_mtu(LARGEST_PATH_MTU):
            lines.append(f"  mtu: {mtu}")
        else:
            lines.append(f"  # mtu: found {mtu}, too small for RoCE packets of 4096 bytes")
        if shape.interfaces not in ("", "rail"):
            lines.append(f"  interface: {_flow(shape.interfaces + '{rail}')}")
        if not shape.by_pci:
            lines.append("  # pci: the interfaces have no PCI device, and already have these names")
            return lines
        return [
            *lines,
            "  pci:",
            *(f"    - {_flow(item)}" for item in _per_rail(shape.lanes, shape)),
        ]

    def _addresses(self) -> list[str]:
        plan, lines = self._plan, ["", "addresses:"]
        if plan.prefix == 31:
            return [*lines, "  plan: point_to_point", f"  pool: {plan.pool}"]
        reason = f" {CHECK} the rails have no addresses, or follow no plan"
        lines.append(f"  pool: {plan.pool}{'' if self._addressed else reason}")
        return [*lines, f"  prefix: {plan.prefix}", f"  first_host: {plan.first_host}"]

    def _leaves(self) -> list[str]:
        mapping = self._rail_to_leaf
        sets = max(len(self._sets), -(-self._count // self._set_size))
        count = sets * (max(mapping) + 1)
        names = [name for item in self._sets for name in dict.fromkeys(item.values())]
        known = len(names) == count
        first = self._leaf_addresses(names) if known else None
        lines = ["", "leaves:", f"  count: {count}{'' if known else f' {CHECK} one for each rail'}"]
        lines += [f"  name: [{', '.join(map(_flow, names))}] # by LLDP"] * known
        lines.append(
            f"  management_first: {first} # by LLDP"
            if first
            else f"  management_first: {take(self._subnet, self._taken, count)} {CHECK} the first "
            "of free addresses"
        )
        lines.append(f"  ports: {self._ports} {CHECK} ports of each leaf")
        if mapping != list(range(len(mapping))):
            lines.append(f"  rail_to_leaf: {_flow(mapping)}")
        if sets > 1:
            text = "nodes fill one set after the other"
            lines.append(f"  nodes_per_set: {self._set_size} {CHECK} {text}")
        heard = {nic.neighbour["description"] for nic in self._nics() if nic.neighbour}
        lines += [f"  # LLDP heard: {sentence(text)}" for text in sorted(heard)[:4]]
        systems = " or ".join(SYSTEMS)
        lines.append(f"  # system: {systems} {CHECK} with asic; unset, the switch is skipped")
        return [*lines, f"# spines: {CHECK} not visible to machines"]

    def _nics(self) -> list[Any]:
        return [nic for node in self.nodes for nic in node.nics]

    def _leaf_addresses(self, names: Sequence[str]) -> Optional[ipaddress.IPv4Address]:
        """The first management address of leaves, if they are consecutive in this network."""
        known = [(nic.leaf, nic.neighbour["address"]) for nic in self._nics() if nic.neighbour]
        heard = {leaf: ipaddress.IPv4Address(text) for leaf, text in known if text}
        found = [heard[name] for name in names if name in heard]
        firsts = {int(item) - place for place, item in enumerate(found)}
        follow = len(found) == len(names) and len(firsts) == 1
        return found[0] if follow and all(item in self._subnet for item in found) else None

    def _hosts(self) -> list[str]:
        others = sorted(self.others, key=lambda item: item.host not in self._launchers)
        launchers = [item for item in others if item.host in self._launchers]
        lines = ["", "launchers:" if launchers[1:] else "launcher:"]
        if launchers[1:]:
            lines += [f"  - {{{', '.join(_host(item))}}}" for item in launchers]
        elif others:
            lines += [f"  {line}" for line in _host(others[0])]
            if others[0].host not in self._launchers:
                lines.append(f"  {CHECK} it is the first machine without rails")
        else:
            address = take(self._subnet, self._taken, 1)
            lines += [f"  name: launcher01 {CHECK} no machine without rails was read"]
            lines += [f"  management: {address} {CHECK} a free address"]
        rest = others[max(1, len(launchers)) :]
        lines += ["", "storage:"] * bool(rest)
        lines += [f"  - {{{', '.join(_host(item))}}}" for item in rest]
        return [*lines, f"# filesystems: {CHECK} shared file systems"]

    def _software(self) -> list[str]:
        """Installed software, as a comment: the software set is a decision."""
        kernel, _share = majority(node.system["kernel"] for node in self.nodes)
        rdma, _share = majority(node.software for node in self.nodes)
        driver, _share = majority(node.system["gpu_driver"] for node in self.nodes)
        what = f"kernel {kernel}, RDMA packages {rdma}, NVIDIA driver {driver or 'none'}"
        return ["", f"# software: {CHECK} most nodes have: {sentence(what)}"]


def _named(kinds: Sequence[Sequence[DiscoveredMachine]]) -> dict[str, str]:
    """The kind of each host: the names of most of its machines without their numbers."""
    found: dict[str, str] = {}
    for number, machines in enumerate(kinds, 2):
        stem, _share = majority(machine.name.rstrip("0123456789") for machine in machines)
        name = re.sub(r"[^a-z0-9]+", "_", stem or "")[:40].strip("_")
        usable = re.fullmatch(r"[a-z]\w*", name) and name not in {DEFAULT, ALL, *found.values()}
        name = name if usable else f"kind{number}"
        found.update(dict.fromkeys((machine.host for machine in machines), name))
    return found


def _nodes(
    machines: Sequence[DiscoveredMachine], shape: Shape, groups: Mapping[str, Sequence[str]]
) -> list[DiscoveredMachine]:
    """Machines with a rail or GPU, in the group `compute`, or named like machines with rails."""

    def stem(machine: DiscoveredMachine) -> str:
        return machine.name.rstrip("0123456789")

    others = {host for group in ("launcher", "storage") for host in groups.get(group, ())}
    candidates = [item for item in machines if item.host not in others]
    rails = [
        item for item in candidates if item.gpus or any(map(item.at, shape.own(item).values()))
    ]
    stems = {stem(item) for item in rails}
    compute = {*groups.get("compute", ()), *(item.host for item in rails)}
    return [item for item in candidates if item.host in compute or stem(item) in stems]


def _per_rail(lanes: Mapping[Lane, str], shape: Shape) -> list[Any]:
    """The key `pci`: one address per rail, or a list with one per plane."""
    rails: list[Any] = [
        [lanes[rail, plane] for plane in range(shape.planes)] for rail in range(shape.rails)
    ]
    return rails if shape.planes > 1 else [item[0] for item in rails]


SYSTEM_PERCENT = 2
"""Memory that a draft leaves to the system: a node with less than the model says is drained."""


def _cpu(nodes: Sequence[DiscoveredMachine]) -> list[str]:
    """The value of `cpu` for these nodes, if their processors are known."""
    shape, _share = majority(
        tuple(node.cpu[key] for key in CPU[:-1]) if node.cpu else None for node in nodes
    )
    if shape is None:
        return []
    same = [
        node for node in nodes if node.cpu and tuple(node.cpu[key] for key in CPU[:-1]) == shape
    ]
    least = min(node.cpu["memory_mb"] for node in same)
    sockets, cores, threads, numa = shape
    values = {"sockets": sockets, "cores": cores, "threads": threads}
    values["memory_mb"] = least * (100 - SYSTEM_PERCENT) // 100
    if numa not in (0, sockets):
        values["numa_nodes"] = numa
    return [_flow(values)]


def _host(machine: DiscoveredMachine) -> list[str]:
    address = machine.address.ip if machine.address else ""
    return [f"name: {_flow(machine.name)}", f"management: {address}"]


def _flow(value: Any) -> str:
    """A value as one line of YAML. Raises NoDraftError if it could be a template."""
    text = str(yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False))
    return _plain(text.removesuffix("...\n").removesuffix("\n"))


def _plain(text: str) -> str:
    """One line and never a template, as the draft becomes Ansible variables."""
    if not text.isprintable() or re.search(r"{[{%#]", text):
        raise NoDraftError(f"{shown(text)} is not a valid value: find out where it comes from")
    return text
