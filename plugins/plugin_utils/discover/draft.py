# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The text of a draft: a cluster.yml that is valid for the majority of machines."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import yaml

from ...module_utils.core.text import counted
from ..answers import sentence, shown
from ..fabric.systems import SYSTEMS
from ..model import PLUGIN, Cluster, compile_model
from ..model import read as read_model
from ..model.addresses import SubnetPerRail
from ..model.schema import HOST_NAME
from ..model.source import DRAFT
from ..qos.contract import needed_ip_mtu
from .differences import leaf_sets, own_set
from .machines import DiscoveredMachine, Lane, Shape, majority, shape_of
from .plan import (
    DraftAddresses,
    DraftNames,
    NoDraftError,
    Spare,
    addressed,
    addresses_of,
    names_of,
    subnet_of,
)

CHECK = "# CHECK:"
"""Prefix of comments on values that no machine reported."""
SPEED_GBPS, LEAF_PORTS, LARGEST_PATH_MTU = 800, 64, 4096
"""Default for rails without a link, and for leaves."""
SECTIONS = {
    *("plugin", "name", "management", "nodes", "gpus", "rails", "addresses", "leaves"),
    *("launcher", "storage"),
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
        compute = {node.host for node in self.nodes}
        self.others = [machine for machine in machines if machine.host not in compute]
        self._launchers = set(groups.get("launcher", ()))
        self.names: DraftNames = names_of(self.nodes)
        self.subnet = subnet_of(machines)
        self._networks = {item.address.network for item in machines if item.address}
        taken = [int(machine.address.ip) for machine in machines if machine.address]
        self._spare = Spare(self.subnet, taken)
        sets = self._leaf_sets()
        self._sets, self._firsts = list(sets.values()), list(sets)
        self._ports, self._nodes_per_set = self._set_size()
        self.addresses: DraftAddresses = addresses_of(
            self.nodes, self.names.places, shape, self._nodes_per_set, self.subnet
        )
        self.text = "\n".join([*map(_plain, self._lines()), ""])
        if set(yaml.safe_load(self.text)) - SECTIONS:
            raise NoDraftError("a value from a machine became a key of the draft")
        self.cluster: Cluster = compile_model(read_model("the draft", self.text))

    def _leaf_sets(self) -> dict[int, dict[Lane, str]]:
        """Leaf sets by the index of their first node, if a model can express them.

        LLDP must report each set completely, and the nodes must fill the sets one by one.
        """
        sets, places = leaf_sets(self.nodes, self.shape), self.names.places
        taken = {*self.names.by_host.values(), *(item.name for item in self.others)}
        names = [leaf for item in sets for leaf in item.values()]
        if any(not re.fullmatch(HOST_NAME.form, name) or name in taken for name in names):
            return {}
        if any(len(item) < len(self.shape.lanes) for item in sets):
            return {}
        by_place: dict[int, dict[Lane, str]] = {}
        of_nodes = {places[node.host]: dict(own_set(node, self.shape, sets)) for node in self.nodes}
        for place, own in sorted(of_nodes.items()):
            if own and own not in by_place.values():
                by_place[place] = own
        firsts = list(by_place)
        size = firsts[1] if len(firsts) > 1 else max(places.values()) + 1
        regular = firsts == [number * size for number in range(len(firsts))]
        filled = all(
            own in ({}, by_place.get(place - place % size)) for place, own in of_nodes.items()
        )
        return by_place if regular and filled else {}

    def _set_size(self) -> tuple[int, int]:
        """Number of ports per leaf, and of nodes per set."""
        mapping, ports = self._rail_to_leaf(), LEAF_PORTS
        per_leaf = max(map(mapping.count, mapping))
        places = max(self.names.places.values()) + 1
        # The second set starts when the first is full.
        size = next(iter(self._firsts[1:]), places if self._firsts else 1)
        while ports < size * per_leaf:
            ports *= 2
        return ports, size if len(self._sets) > 1 else ports // per_leaf

    def _rail_to_leaf(self) -> list[int]:
        """The leaf of each lane within a set: one each, unless LLDP reports otherwise."""
        if not self._sets:
            return list(range(len(self.shape.lanes)))
        order = list(dict.fromkeys(self._sets[0].values()))
        return [order.index(leaf) for leaf in self._sets[0].values()]

    def addressed(self) -> dict[str, dict[Lane, str]]:
        """Rail addresses by host, if the machines follow an address plan."""
        if not self.addresses.found:
            return {}
        rails = {node.name: node.rails for node in self.cluster.nodes}
        return {
            host: {(rail.rail, rail.plane): f"{rail.address}/{rail.prefix}" for rail in rails[name]}
            for host, name in self.names.by_host.items()
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
            *self._nodes_section(),
            *self._gpus(),
            *self._rails(),
            *self._addresses(),
            *self._leaves(),
            *self._hosts(),
            *self._software(),
        ]

    def _management(self) -> list[str]:
        interface, share = majority(machine.interface for machine in [*self.nodes, *self.others])
        here = {machine.interface for machine in [*self.nodes, *self.others]}
        wide = (
            ""
            if self.subnet in self._networks
            else f" {CHECK} contains the networks of all machines"
        )
        lines = ["", "management:", f"  subnet: {self.subnet}{wide}"]
        if len(here) == 1 and interface:
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
            lines += [f"  count: {names.count}", f"  name: {_flow(names.pattern)}"]
            lines += [f"  start: {names.start}"] * (names.start != 1)
            lines += [f"  management_first: {first}"]
            lines += [f"  absent: [{', '.join(map(_flow, names.absent))}]"] * bool(names.absent)
        else:
            lines.append("  list:")
            for node in sorted(self.nodes, key=lambda node: names.places[node.host]):
                name, management = _host(node, "")
                lines.append(f"    - {{{name}, {management}}}")
        if not self.shape.gpus:
            lines.append(
                f"  slots: {self.shape.rails} {CHECK} no GPU was found; a rank for each rail"
            )
        if overrides:
            lines.append("  overrides:")
            for name, values in overrides.items():
                lines.append(f"    {_flow(name)}:")
                lines += [f"      {key}: {_flow(value)}" for key, value in values.items()]
        return [*lines, f"  # nodes_per_rack: 4 {CHECK} racks; by default one for all nodes"]

    def _overrides(self) -> dict[str, dict[str, Any]]:
        """PCI addresses of nodes on which all rails or GPUs differ from the majority."""
        found: dict[str, dict[str, Any]] = {}
        for node in self.nodes:
            name = self.names.by_host[node.host]
            if self.shape.own(node) != self.shape.lanes:
                found.setdefault(name, {})["pci"] = _per_rail(self.shape.own(node), self.shape)
            if len(node.gpus) == len(self.shape.gpus) and node.gpus != self.shape.gpus:
                found.setdefault(name, {})["gpu_pci"] = list(node.gpus)
        return found

    def _gpus(self) -> list[str]:
        shape = self.shape
        if not shape.gpus:
            return []
        lines = ["", "gpus:", f"  count: {len(shape.gpus)}"]
        lines += [f"  numa: {_flow(list(shape.numa))}"] * bool(shape.numa)
        return [*lines, "  pci:", *(f"    - {_flow(pci)}" for pci in shape.gpus)]

    def _rails(self) -> list[str]:
        shape = self.shape
        nics = [
            nic
            for node in self.nodes
            for place in shape.own(node).values()
            if (nic := node.at(place)) is not None
        ]
        speed, _share = majority(nic.speed_gbps for nic in nics)
        mtu, _share = majority(nic.mtu for nic in nics)
        lines = ["", "rails:", f"  count: {shape.rails}"]
        lines += [f"  planes: {shape.planes}"] * (shape.planes > 1)
        if speed:
            lines.append(f"  speed_gbps: {speed:g}")
        else:
            guess = SPEED_GBPS // shape.planes
            lines.append(f"  speed_gbps: {guess} {CHECK} no rail reported a speed")
        if mtu and mtu >= needed_ip_mtu(LARGEST_PATH_MTU):
            lines.append(f"  mtu: {mtu}")
        else:
            lines.append(f"  # mtu: found {mtu}, too small for RoCE packets of 4096 bytes")
        if shape.interfaces not in ("", "rail"):
            lines.append(f"  interface: {_flow(shape.interfaces + '{rail}')}")
        if shape.by_pci:
            lines.append("  pci:")
            lines += [f"    - {_flow(item)}" for item in _per_rail(shape.lanes, shape)]
        else:
            lines.append("  # pci: the interfaces have no PCI device, and already have these names")
        return lines

    def _addresses(self) -> list[str]:
        plan, reason = self.addresses.plan, ""
        if not self.addresses.found:
            reason = f" {CHECK} the rails have no addresses, or follow no plan"
        lines = ["", "addresses:"]
        if not isinstance(plan, SubnetPerRail):
            return [*lines, "  plan: point_to_point", f"  pool: {plan.pool}"]
        lines += [f"  pool: {plan.pool}{reason}", f"  prefix: {plan.prefix}"]
        return [*lines, f"  first_host: {plan.first_host}"]

    def _leaves(self) -> list[str]:
        mapping, sets = self._rail_to_leaf(), len(self._sets)
        places = max(self.names.places.values()) + 1
        sets = max(sets, -(-places // self._nodes_per_set))
        count = sets * (max(mapping) + 1)
        names = [name for item in self._sets for name in dict.fromkeys(item.values())]
        known = len(names) == count
        lines = [
            "",
            "leaves:",
            f"  count: {count}" + ("" if known else f" {CHECK} one for each rail"),
        ]
        if known:
            lines += [f"  name: [{', '.join(map(_flow, names))}] # by LLDP"]
        first = self._leaf_addresses(names) if known else None
        if first:
            lines.append(f"  management_first: {first} # by LLDP")
        else:
            first = self._spare.take(count)
            lines.append(f"  management_first: {first} {CHECK} the first of free addresses")
        lines.append(f"  ports: {self._ports} {CHECK} ports of each leaf")
        if mapping != list(range(len(mapping))):
            lines.append(f"  rail_to_leaf: {_flow(mapping)}")
        if sets > 1:
            lines.append(
                f"  nodes_per_set: {self._nodes_per_set} {CHECK} nodes fill one set after the other"
            )
        heard = sorted({text for node in self.nodes for text in _described(node)})
        lines += [f"  # LLDP heard: {sentence(text)}" for text in heard[:4]]
        systems = " or ".join(SYSTEMS)
        lines.append(f"  # system: {systems} {CHECK} with asic; unset, the switch is skipped")
        return [*lines, f"# spines: {CHECK} not visible to machines"]

    def _leaf_addresses(self, names: Sequence[str]) -> Optional[ipaddress.IPv4Address]:
        """The first management address of leaves, if they are consecutive in this network."""
        found: dict[str, str] = {}
        for node in self.nodes:
            for nic in node.nics:
                if nic.neighbour and nic.neighbour["address"]:
                    found[nic.leaf] = nic.neighbour["address"]
        texts = [found.get(name) for name in names]
        addresses = [ipaddress.IPv4Address(text) for text in texts if text]
        if len(addresses) < len(names) or any(item not in self.subnet for item in addresses):
            return None
        follow = all(item == addresses[0] + place for place, item in enumerate(addresses))
        return addresses[0] if follow else None

    def _hosts(self) -> list[str]:
        others = sorted(self.others, key=lambda item: item.host not in self._launchers)
        lines = ["", "launcher:"]
        if others:
            first, *others = others
            lines += _host(first, "  ")
            if first.host not in self._launchers:
                lines.append(f"  {CHECK} it is the first machine without rails")
        else:
            address = self._spare.take(1)
            lines += [f"  name: launcher01 {CHECK} no machine without rails was read"]
            lines += [f"  management: {address} {CHECK} a free address"]
        if others:
            lines += ["", "storage:"]
            for item in others:
                name, management = _host(item, "")
                lines.append(f"  - {{{name}, {management}}}")
        return [*lines, f"# filesystems: {CHECK} shared file systems"]

    def _software(self) -> list[str]:
        """Installed software, as a comment: the software set is a decision."""
        kernel, _share = majority(node.system["kernel"] for node in self.nodes)
        rdma, _share = majority(node.software for node in self.nodes)
        driver, _share = majority(node.system["gpu_driver"] for node in self.nodes)
        what = f"kernel {kernel}, RDMA packages {rdma}, NVIDIA driver {driver or 'none'}"
        return ["", f"# software: {CHECK} most nodes have: {sentence(what)}"]


def _nodes(
    machines: Sequence[DiscoveredMachine], shape: Shape, groups: Mapping[str, Sequence[str]]
) -> list[DiscoveredMachine]:
    """Machines with a rail or GPU, in the group `compute`, or named like machines with rails."""

    def has_rails(machine: DiscoveredMachine) -> bool:
        return bool(machine.gpus) or any(machine.at(item) for item in shape.own(machine).values())

    beside = {host for group in ("launcher", "storage") for host in groups.get(group, ())}

    def stem(machine: DiscoveredMachine) -> str:
        return machine.name.rstrip("0123456789")

    rails = {item.host for item in machines if has_rails(item)}
    stems = {stem(item) for item in machines if item.host in rails - beside}
    compute = set(groups.get("compute", ())) | rails
    return [
        item
        for item in machines
        if item.host not in beside and (item.host in compute or stem(item) in stems)
    ]


def _per_rail(lanes: Mapping[Lane, str], shape: Shape) -> list[Any]:
    """The key `pci`: one address per rail, or a list with one per plane."""
    rails: list[Any] = [
        [lanes[rail, plane] for plane in range(shape.planes)] for rail in range(shape.rails)
    ]
    return rails if shape.planes > 1 else [item[0] for item in rails]


def _host(machine: DiscoveredMachine, indent: str) -> list[str]:
    address = machine.address.ip if machine.address else ""
    return [f"{indent}name: {_flow(machine.name)}", f"{indent}management: {address}"]


def _described(node: DiscoveredMachine) -> Iterable[str]:
    return (nic.neighbour["description"] for nic in node.nics if nic.neighbour)


def _flow(value: Any) -> str:
    """A value as one line of YAML. Raises NoDraftError if it could be a template."""
    text = str(yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False))
    return _plain(text.removesuffix("...\n").removesuffix("\n"))


def _plain(text: str) -> str:
    """One line and never a template, as the draft becomes Ansible variables."""
    if not text.isprintable() or re.search(r"{[{%#]", text):
        raise NoDraftError(f"{shown(text)} is not a valid value: find out where it comes from")
    return text
