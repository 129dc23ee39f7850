# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Network layout: leaves and ports for rails, and their addresses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ...module_utils.core.text import counted
from ..schema.findings import Findings
from .addresses import AddressPlan, point_to_point
from .nodes import NodeSpec
from .schema import SUBNET_PER_RAIL
from .wiring import TIERS, Place, Rule, Tier, connect, place_groups


@dataclass(frozen=True)
class Lane:
    """One plane of one rail, and its position on a leaf of the set."""

    rail: int
    plane: int
    leaf: int
    place: int
    """Index among the lanes of a node on this leaf."""


@dataclass
class Topology:
    """Leaf ports of the lanes of all nodes, and links between leaves and spines."""

    lanes: tuple[Lane, ...]
    leaves: int
    leaves_per_set: int
    leaf_ports: int
    """Number of ports of each leaf."""
    tiers: dict[str, Tier]
    """By key of the model."""
    rules: list[Rule]
    several: frozenset[str]
    """Attributes of places that differ between leaves, and that the model speaks of."""
    nodes_per_set: int = 1

    def place(self, section: str, number: int) -> Place:
        """Where a switch belongs; None for what all leaves have in common."""
        place = self.tiers[section].places[number]
        return Place(**{name: getattr(place, name) for name in self.several})

    @property
    def groups(self) -> list[str]:
        """Every group of the inventory that only switches and their nodes form."""
        found = {
            group: None
            for section, tier in self.tiers.items()
            for number in range(len(tier.places))
            for group in place_groups(TIERS[section], self.place(section, number))
        }
        return list(found)

    def lanes_on(self, leaf: int) -> int:
        """Number of lanes of one node on this leaf of the set."""
        return sum(lane.leaf == leaf for lane in self.lanes)

    def free_ports(self, leaf: int, nodes: int) -> tuple[int, int]:
        """The range of a leaf's ports that nodes and spines leave free."""
        leaf_set, of_set = divmod(leaf, self.leaves_per_set)
        here = min(max(0, nodes - leaf_set * self.nodes_per_set), self.nodes_per_set)
        return here * self.lanes_on(of_set), self.leaf_ports - self.tiers["leaves"].reserved


def lay_out(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> Optional[Topology]:
    """The topology; None if lanes have no leaf, or cables no port."""
    rails, leaves = model["rails"], model["leaves"]
    planes, count = rails["planes"], leaves["count"]
    wanted, what = rails["count"] * planes, "rail" if planes == 1 else "plane"
    mapping = leaves["rail_to_leaf"]
    if mapping is None:
        mapping = list(range(wanted))
        if count < wanted:
            problem = f"{counted(count, 'leaf', 'leaves')} for {counted(wanted, what)}"
            remedy = f"Have {wanted} leaves, or let rails share them by leaves.rail_to_leaf"
            path = ("leaves", "count")
            findings.add("model.rail_without_leaf", path, problem, remedy, (count, wanted))
            return None
    per_set = max(mapping, default=0) + 1
    if len(mapping) != wanted or set(mapping) != set(range(per_set)):
        problem = f"{counted(len(mapping), 'number')} for {counted(wanted, what)}, or a leaf of "
        problem += "the set without a rail"
        remedy = f"Write {wanted}, one per rail and plane, using all numbers from 0"
        path, value = ("leaves", "rail_to_leaf"), (len(mapping), wanted)
        findings.add("model.rail_to_leaf", path, problem, remedy, value)
        return None
    if count % per_set:
        problem = f"{count} leaves do not form sets of {per_set}"
        path, remedy, value = ("leaves", "count"), f"Use a multiple of {per_set}", (count, per_set)
        findings.add("model.leaves_no_whole_sets", path, problem, remedy, value)
        return None
    lanes = tuple(
        Lane(number // planes, number % planes, leaf, mapping[:number].count(leaf))
        for number, leaf in enumerate(mapping)
    )
    places = _places_of_leaves(leaves, lanes, per_set)
    tiers = {"leaves": Tier(("leaves",), places, leaves["uplink_ports"])}
    rules = _connect(model, tiers, findings)
    if rules is None:
        return None
    several = {
        name for name in Place.__annotations__ if len({vars(one)[name] for one in places}) > 1
    }
    if leaves["sets_per_unit"] is None and not any("unit" in rule.divided_by for rule in rules):
        several.discard("unit")
    topology = Topology(lanes, count, per_set, leaves["ports"], tiers, rules, frozenset(several))
    return topology if _check_capacity(model, topology, specs, findings) else None


def _places_of_leaves(leaves: dict[str, Any], lanes: Sequence[Lane], per_set: int) -> list[Place]:
    planes = [{lane.plane for lane in lanes if lane.leaf == leaf} for leaf in range(per_set)]
    plane_of = [found.pop() if len(found) == 1 else None for found in planes]
    return [
        Place(number // (leaves["sets_per_unit"] or 1), plane_of[leaf], leaf_set=number)
        for number in range(leaves["count"] // per_set)
        for leaf in range(per_set)
    ]


def _connect(
    model: dict[str, Any], tiers: dict[str, Tier], findings: Findings
) -> Optional[list[Rule]]:
    """The rules of all tiers, which are added to `tiers`; None if one is unclear."""
    rules, lower = [], "leaves"
    speed = model["rails"]["speed_gbps"]
    for section, links in (("spines", "links_per_leaf"), ("super_spines", "links_per_spine")):
        keys = model[section]
        if not keys:
            continue
        if lower not in tiers:
            return None
        if section == "super_spines" and lower == "leaves":
            problem, remedy = "there are no spines to connect", "Write spines, or call these spines"
            findings.add("model.tier_missing", (section,), problem, remedy)
            return None
        speed = keys["speed_gbps"] or speed
        rule = connect(tiers[lower], (section,), keys, keys[links], speed, findings)
        if rule is None:
            return None
        rules.append(rule)
        tiers[section], lower = rule.upper, section
    return rules


def _check_capacity(
    model: dict[str, Any], topology: Topology, specs: list[NodeSpec], findings: Findings
) -> bool:
    """Set the number of nodes per leaf set; return whether all cables have a port."""
    leaves = model["leaves"]
    before = len(findings.found)
    for section, tier in topology.tiers.items():
        pinned, used = tier.uplink_ports, max(tier.uplinks)
        if pinned is not None and used > pinned:
            problem = f"{pinned} ports for {counted(used, 'uplink')}"
            path, remedy = (section, "uplink_ports"), "Reserve more, or use fewer links"
            findings.add("model.uplink_ports", path, problem, remedy, (pinned, used))
    reserved = topology.tiers["leaves"].reserved
    most_lanes = max(topology.lanes_on(leaf) for leaf in range(topology.leaves_per_set))
    capacity = (leaves["ports"] - reserved) // most_lanes
    per_set = leaves["nodes_per_set"] or capacity
    if capacity < 1 or per_set > capacity:
        problem = f"leaves with {counted(leaves['ports'], 'port')}, {reserved} of them "
        problem += f"uplinks, hold only {max(capacity, 0)} nodes at {most_lanes} each"
        remedy = "Use more ports, fewer links to spines (spines.divided_by), or fewer nodes_per_set"
        path = ("leaves", "ports" if capacity < 1 else "nodes_per_set")
        findings.add("model.leaf_ports", path, problem, remedy, (per_set, capacity))
        return False
    topology.nodes_per_set = per_set
    for rule in topology.rules:
        section, tier = rule.upper.name, rule.upper
        links, there = max(tier.downlinks), model[section]["ports"]
        if links + tier.reserved > there:
            problem = f"{links // rule.links} {rule.lower.name} need {counted(links, 'port')} on "
            problem += f"every switch of {section}, which has {there}"
            problem += f", {tier.reserved} of them uplinks" if tier.reserved else ""
            path, remedy = (section, "ports"), "Use more ports, or fewer links of each"
            findings.add("model.spine_ports", path, problem, remedy, (links, there))
    sets = topology.leaves // topology.leaves_per_set
    positions = specs[-1].index + 1 if specs else 0
    if positions > sets * per_set:
        problem = f"{counted(positions, 'node')}, but the leaves have ports for {sets * per_set} "
        problem += f"({counted(sets, 'set')} for {per_set} each)"
        remedy = f"Use {-(-positions // per_set) * topology.leaves_per_set} leaves, leaves with "
        remedy += "more ports, or fewer nodes"
        path, value = ("leaves", "count"), (positions, sets * per_set)
        findings.add("model.more_nodes_than_ports", path, problem, remedy, value)
    return len(findings.found) == before


def interface_name(rails: dict[str, Any], rail: int, plane: int) -> str:
    pattern = rails["interface"] or ("rail{rail}" if rails["planes"] == 1 else "rail{rail}p{plane}")
    return str(pattern.format(rail=rail, plane=plane))


def interface_names(rails: dict[str, Any]) -> list[str]:
    """The interface of every lane of a node, in order."""
    planes = rails["planes"]
    return [interface_name(rails, *divmod(n, planes)) for n in range(rails["count"] * planes)]


def plan_addresses(
    model: dict[str, Any], specs: list[NodeSpec], topology: Optional[Topology], findings: Findings
) -> Optional[AddressPlan]:
    """The address plan; None without a topology."""
    addresses, management = model["addresses"], model["management"]["subnet"]
    pool, path = addresses["pool"], ("addresses", "pool")
    if pool.overlaps(management):
        problem = f"{pool} overlaps the management subnet {management}"
        remedy = "Use separate networks for rails and management"
        findings.add("model.pool_in_management", path, problem, remedy, str(pool))
    if topology is None or not specs:
        return None
    lanes, per_set = len(topology.lanes), topology.nodes_per_set
    plan = point_to_point(pool, lanes)
    if addresses["plan"] == SUBNET_PER_RAIL:
        plan = AddressPlan(pool, lanes, per_set, addresses["prefix"], addresses["first_host"])
    plan.check_capacity(specs[-1].index + 1, findings, path)
    return plan
