# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Network layout: leaves and ports for rails, and their addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

from ...module_utils.core.text import counted, nearest, some
from ..schema.findings import Findings, Path
from .addresses import AddressPlan, Subnet, point_to_point
from .node_kinds import DEFAULT, Kinds
from .nodes import NodeSpec, places_with_rails
from .schema import BY_NODE, BY_PLANE, SUBNET_PER_RAIL
from .wiring import LEAF, MAX_LINKS, Fabric, Place, SwitchGroup, connect, place_groups


@dataclass(frozen=True)
class Lane:
    """One plane of one rail, and its position on a leaf of the set."""

    rail: int
    plane: int
    leaf: int
    place: int
    """Index among the lanes of a node on this leaf."""


@dataclass
class LeafSets:
    """The leaf sets that one group of leaves forms, and the nodes that fill them in order."""

    group: SwitchGroup
    lanes: tuple[Lane, ...]
    leaves_per_set: int
    first_leaf: int
    """Number of leaves of preceding groups."""
    rails: dict[str, Any]
    """Of the nodes."""
    nodes_per_set: int = 1
    first_node: int = 0
    nodes: int = 0
    """Number of nodes, present or not, for which it is reserved."""

    @property
    def count(self) -> int:
        return len(self.group.places) // self.leaves_per_set

    def nodes_in(self, leaf_set: int, nodes: int) -> int:
        """Number of nodes of this set, if there are `nodes` in all."""
        return min(max(0, nodes - leaf_set * self.nodes_per_set), self.nodes_per_set)

    @property
    def networks(self) -> tuple[int, ...]:
        """The number of the network of each lane, among those of a set: planes of a bond share
        one."""
        if self.rails["bonded"]:
            return tuple(lane.rail for lane in self.lanes)
        return tuple(range(len(self.lanes)))

    def lanes_on(self, leaf: int) -> int:
        """Number of lanes of one node on this leaf of the set."""
        return sum(lane.leaf == leaf for lane in self.lanes)


@dataclass
class Topology:
    """Leaf sets with the lanes of all nodes, and links between switches."""

    fabric: Fabric
    sets: list[LeafSets]
    several: frozenset[str]
    """Attributes of places that differ between leaves, and that the model speaks of."""

    def place(self, group: SwitchGroup, number: int) -> Place:
        """Where a switch belongs; None for what all leaves have in common."""
        place = group.places[number]
        return Place(**{name: getattr(place, name) for name in self.several})

    @property
    def groups(self) -> list[str]:
        """Every group of the inventory that only switches and their nodes form."""
        found = {
            name: None
            for group in self.fabric.groups.values()
            for number in range(len(group.places))
            for name in place_groups(group.tier, self.place(group, number))
        }
        return list(found)

    def of_leaf(self, leaf: int) -> tuple[LeafSets, int]:
        """The sets of a leaf, by its number among all leaves, and its number within its group."""
        found = next(sets for sets in reversed(self.sets) if sets.first_leaf <= leaf)
        return found, leaf - found.first_leaf

    def node_ports(self, leaf: int) -> int:
        """Number of ports of this leaf that are reserved for nodes."""
        sets, number = self.of_leaf(leaf)
        leaf_set, of_set = divmod(number, sets.leaves_per_set)
        return sets.lanes_on(of_set) * sets.nodes_in(leaf_set, sets.nodes)

    def speed(self, leaf: int) -> int:
        """Gb/s of a leaf's ports to nodes."""
        speed: int = self.of_leaf(leaf)[0].rails["speed_gbps"]
        return speed

    def free_ports(self, leaf: int, nodes: int) -> tuple[int, int]:
        """The range of a leaf's ports that nodes and spines leave free."""
        sets, number = self.of_leaf(leaf)
        leaf_set, of_set = divmod(number, sets.leaves_per_set)
        here = sets.nodes_in(leaf_set, min(nodes - sets.first_node, sets.nodes))
        return here * sets.lanes_on(of_set), sets.group.lower_ports


def lay_out(
    kinds: Kinds, fabric: Fabric, specs: list[NodeSpec], findings: Findings
) -> Optional[Topology]:
    """The topology; None if lanes have no leaf, or cables no port."""
    found: list[LeafSets] = []
    before, units, first_leaf, leaf_set = len(findings.found), 0, 0, 0
    for group in fabric.leaves:
        kind = kinds.get(group.kind or DEFAULT)
        if kind is None:
            problem, remedy = f"{group.kind!r} is not in kinds", nearest(group.kind, kinds)
            findings.add("model.kind_not_found", (*group.path, "kind"), problem, remedy, group.kind)
            continue
        if not kind.rails["count"]:
            problem, remedy = "nodes of this kind have no rails, and need no leaves", "Remove it"
            path, value = (*group.path, "kind"), kind.name
            findings.add("model.leaves_without_rails", path, problem, remedy, value)
            continue
        sets = _form_sets(kind.rails, group, first_leaf, findings)
        if sets is None:
            continue
        planes = [
            {lane.plane for lane in sets.lanes if lane.leaf == leaf}
            for leaf in range(sets.leaves_per_set)
        ]
        plane_of = [here.pop() if len(here) == 1 else None for here in planes]
        per_unit = group.keys["sets_per_unit"] or 1
        group.places = [
            Place(units + number // per_unit, plane_of[leaf], leaf_set=leaf_set + number)
            for number in range(group.keys["count"] // sets.leaves_per_set)
            for leaf in range(sets.leaves_per_set)
        ]
        units += -(-sets.count // per_unit)
        leaf_set += sets.count
        first_leaf += len(group.places)
        found.append(sets)
    for rule in fabric.rules:
        if len(findings.found) == before:
            connect(fabric, rule, findings)
    if len(findings.found) > before:
        return None
    places = [place for sets in found for place in sets.group.places]
    several = {
        name for name in Place.__annotations__ if len({vars(one)[name] for one in places}) > 1
    }
    written = any("unit" in group.fixed for group in fabric.groups.values())
    written |= any("unit" in (rule.divided_by or ()) for rule in fabric.rules)
    if not written and all(sets.group.keys["sets_per_unit"] is None for sets in found):
        several.discard("unit")
    topology = Topology(fabric, found, frozenset(several))
    return topology if _check_capacity(topology, specs, findings) else None


def _form_sets(
    rails: dict[str, Any], group: SwitchGroup, first_leaf: int, findings: Findings
) -> Optional[LeafSets]:
    planes, count, mapping = rails["planes"], group.keys["count"], group.keys["rail_to_leaf"]
    wanted, what = rails["count"] * planes, "rail" if planes == 1 else "plane"
    if mapping is None:
        mapping = list(range(wanted))
        if count < wanted:
            problem = f"{counted(count, 'leaf', 'leaves')} for {counted(wanted, what)}"
            remedy = f"Have {wanted} leaves, or let rails share them by {group.name}.rail_to_leaf"
            path = (*group.path, "count")
            findings.add("model.rail_without_leaf", path, problem, remedy, (count, wanted))
            return None
    per_set = max(mapping, default=0) + 1
    if len(mapping) != wanted or set(mapping) != set(range(per_set)):
        problem = f"{counted(len(mapping), 'number')} for {counted(wanted, what)}, or a leaf of "
        problem += "the set without a rail"
        remedy = f"Write {wanted}, one per rail and plane, using all numbers from 0"
        if len(mapping) == wanted and set(mapping) == set(range(1, per_set)):
            remedy = f"Count leaves from 0: {[number - 1 for number in mapping]}"
        path, value = (*group.path, "rail_to_leaf"), (len(mapping), wanted)
        findings.add("model.rail_to_leaf", path, problem, remedy, value)
        return None
    if count % per_set:
        problem = f"{count} leaves do not form sets of {per_set}"
        path, remedy = (*group.path, "count"), f"Use a multiple of {per_set}"
        findings.add("model.leaves_no_whole_sets", path, problem, remedy, (count, per_set))
        return None
    lanes = tuple(
        Lane(number // planes, number % planes, leaf, mapping[:number].count(leaf))
        for number, leaf in enumerate(mapping)
    )
    return LeafSets(group, lanes, per_set, first_leaf, rails)


def _check_capacity(topology: Topology, specs: list[NodeSpec], findings: Findings) -> bool:
    """Distribute the nodes to the leaf sets; return whether all cables have a port."""
    before, groups = len(findings.found), topology.fabric.groups
    for group in groups.values():
        pinned, used = group.uplink_ports, max(group.uplinks)
        if pinned is not None and used > pinned:
            problem = f"{counted(pinned, 'port')} for {counted(used, 'uplink')}"
            remedy = "Reserve more, or use fewer links"
            key = ("ports", "uplinks") if group.names else ("uplink_ports",)
            path = (*group.path, *key)
            findings.add("model.uplink_ports", path, problem, remedy, (pinned, used))
    first_node = 0
    for sets in topology.sets:
        _fill(sets, first_node, findings)
        first_node += sets.nodes
        _check_kinds(topology, sets, specs, findings)
    if any(not sets.nodes for sets in topology.sets):
        return False
    for group in groups.values():
        if group.tier == LEAF:
            continue
        links, there = max(group.downlinks), group.keys["ports"]
        if links > group.lower_ports:
            problem = f"{counted(links, 'port')} needed on every switch for the tier below, of "
            problem += f"{there}" + (
                f", {group.reserved} of them uplinks" if group.reserved else ""
            )
            path, remedy = (*group.path, "ports"), "Use more ports, or fewer links of each"
            findings.add("model.spine_ports", path, problem, remedy, (links, there))
    links = sum(rule.links * rule.each * len(rule.ends) for rule in topology.fabric.rules)
    if links > MAX_LINKS:
        problem, remedy = f"{links} links between switches", f"Write up to {MAX_LINKS}"
        path = topology.fabric.rules[0].path
        findings.add("model.too_many_links", path, problem, remedy, links)
    positions = places_with_rails(specs)
    if positions > first_node:
        sets = topology.sets[-1]
        count = sum(each.count for each in topology.sets)
        problem = f"{counted(positions, 'node')}, but the leaves have ports for {first_node} "
        problem += f"({counted(count, 'set')} for {sets.nodes_per_set} each)"
        remedy = "Use leaves with more ports, or fewer nodes"
        if len(topology.sets) == 1:
            leaves = -(-positions // sets.nodes_per_set) * sets.leaves_per_set
            remedy = f"Use {leaves} leaves, leaves with more ports, or fewer nodes"
        path, value = (*sets.group.path, "count"), (positions, first_node)
        findings.add("model.more_nodes_than_ports", path, problem, remedy, value)
    return len(findings.found) == before


def _check_kinds(
    topology: Topology, sets: LeafSets, specs: list[NodeSpec], findings: Findings
) -> None:
    """Check that leaves for a kind have nodes of that kind, and only they have them."""
    apart = {group.kind for group in topology.fabric.leaves if group.kind}
    if not apart:
        return
    end, kind = sets.first_node + sets.nodes, sets.group.kind
    here = [spec for spec in specs if sets.first_node <= spec.index < end]
    here = [spec for spec in here if spec.kind.rails["count"]]
    wrong = [spec for spec in here if (spec.kind.name != kind if kind else spec.kind.name in apart)]
    if wrong:
        first = wrong[0]
        problem = f"{some([spec.name for spec in wrong], 1)}: of kind {first.kind.name}, on leaves "
        problem += f"for {kind or 'other kinds'}"
        remedy = "Nodes fill the groups in order: correct `nodes` here, or the order of nodes"
        path, value = (*sets.group.path, "nodes"), (first.name, len(wrong))
        findings.add("model.kind_of_leaves", path, problem, remedy, value)


def _fill(sets: LeafSets, first_node: int, findings: Findings) -> None:
    """Set the number of nodes of each set; 0 in all if no leaf has the ports."""
    keys, reserved, path = sets.group.keys, sets.group.reserved, sets.group.path
    most_lanes = max(sets.lanes_on(leaf) for leaf in range(sets.leaves_per_set))
    capacity = sets.group.lower_ports // most_lanes
    per_set = keys["nodes_per_set"] or capacity
    if capacity < 1 or per_set > capacity:
        problem = f"leaves with {counted(keys['ports'], 'port')}, {reserved} of them uplinks, hold "
        problem += f"only {max(capacity, 0)} nodes at {most_lanes} each"
        remedy = "Use more ports, fewer links to spines (spines.divided_by), or fewer nodes_per_set"
        key = "ports" if capacity < 1 else "nodes_per_set"
        findings.add("model.leaf_ports", (*path, key), problem, remedy, (per_set, capacity))
        return
    sets.first_node, sets.nodes_per_set = first_node, per_set
    most = sets.count * per_set
    sets.nodes = keys.get("nodes") or most
    if sets.nodes > most:
        problem = f"{sets.nodes} nodes, but the leaves have ports for {most}"
        remedy = "Use more leaves, or move some nodes to another group of leaves"
        findings.add("model.nodes_of_leaves", (*path, "nodes"), problem, remedy, (sets.nodes, most))


def interface_name(rails: dict[str, Any], rail: int, plane: int) -> str:
    """The interface of a lane, which is a member of a bond if rails are bonded."""
    if rails["bonded"]:
        return f"{bond_name(rails, rail)}p{plane}"
    pattern = rails["interface"] or ("rail{rail}" if rails["planes"] == 1 else "rail{rail}p{plane}")
    return str(pattern.format(rail=rail, plane=plane))


def bond_name(rails: dict[str, Any], rail: int) -> str:
    return str((rails["interface"] or "rail{rail}").format(rail=rail, plane=""))


def interface_names(rails: dict[str, Any]) -> list[str]:
    """The bonds of a node, if rails are bonded, and the interface of every lane, in order."""
    planes, bonds = rails["planes"], range(rails["count"] if rails["bonded"] else 0)
    lanes = (divmod(n, planes) for n in range(rails["count"] * planes))
    names = [interface_name(rails, *lane) for lane in lanes]
    return [*(bond_name(rails, rail) for rail in bonds), *names]


def plan_addresses(
    model: dict[str, Any], specs: list[NodeSpec], topology: Optional[Topology], findings: Findings
) -> Optional[list[AddressPlan]]:
    """An address plan for each group of leaves; None without a topology."""
    addresses = model["addresses"]
    common: tuple[Path, Subnet] = (("addresses", "pool"), addresses["pool"])
    own: dict[str, tuple[Path, Subnet]] = {
        sets.group.name: ((*sets.group.path, "pool"), sets.group.keys["pool"])
        for sets in (topology.sets if topology else ())
        if sets.group.keys.get("pool")
    }
    management = model["management"]["subnet"].each
    taken = [(subnet, "the management subnet") for subnet in management]
    bmc = model["management"]["bmc_subnet"] or model["management"]["subnet"]
    taken += [(subnet, "the BMC subnet") for subnet in bmc.each if subnet not in management]
    for number, (path, pool) in enumerate([common, *own.values()]):
        for other, what in taken:
            if pool.overlaps(other):
                problem = f"{pool} overlaps {what} {other}"
                remedy = "Use separate networks for rails and management"
                findings.add("model.pool_in_management", path, problem, remedy, str(pool))
        # Only a network of which addresses are taken: parts of it may be pools of all leaves.
        if number or not topology or len(own) < len(topology.sets):
            taken.append((pool, "the pool"))
    if topology is None or not specs:
        return None
    plans, used = [], dict[Subnet, int]()
    by_rail = addresses["order"] != BY_NODE
    by_plane = addresses["order"] == BY_PLANE
    lanes_of = [len({*sets.networks}) for sets in topology.sets]
    planes_of = [
        sets.rails["planes"] if by_plane and not sets.rails["bonded"] else 1
        for sets in topology.sets
    ]
    # Powers of two, so that each rail or plane has one prefix: 8 rails in a /12 have a /15 each.
    bits = max(
        (lanes // planes - 1).bit_length() + (planes - 1).bit_length()
        for lanes, planes in zip(lanes_of, planes_of)
    )
    for sets, lanes, planes in zip(topology.sets, lanes_of, planes_of):
        path, pool = own.get(sets.group.name, common)
        plan = point_to_point(pool, lanes)
        if addresses["plan"] == SUBNET_PER_RAIL:
            prefix, first_host = addresses["prefix"], addresses["first_host"]
            plan = AddressPlan(pool, lanes, sets.nodes_per_set, prefix, first_host)
        span = max(1, (pool.size // plan.size) >> bits) if by_rail else 0
        plan = replace(
            plan,
            first_node=sets.first_node,
            end=sets.first_node + sets.nodes,
            first_network=used.get(pool, 0),
            lane_span=span,
            planes=planes,
        )
        plan.check_capacity(places_with_rails(specs), findings, path)
        number = -(-sets.nodes // plan.nodes_per_set)
        used[pool] = plan.first_network + number * (1 if by_rail else lanes)
        plans.append(plan)
    return plans
