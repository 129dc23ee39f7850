# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Network layout: leaves and ports for rails, and their addresses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ...module_utils.core.text import counted
from ..schema.findings import Findings
from .addresses import AddressPlan, point_to_point
from .nodes import NodeSpec
from .schema import SUBNET_PER_RAIL


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
    spines: int
    links_per_leaf: int
    nodes_per_set: int = 1

    @property
    def uplinks(self) -> int:
        """Number of a leaf's ports to spines, which are its last ones."""
        return self.spines * self.links_per_leaf

    def lanes_on(self, leaf: int) -> int:
        """Number of lanes of one node on this leaf of the set."""
        return sum(lane.leaf == leaf for lane in self.lanes)

    def uplink_port(self, spine: int, link: int) -> int:
        """Port index of this link on every leaf."""
        return self.leaf_ports - self.uplinks + spine * self.links_per_leaf + link

    def spine_port(self, leaf: int, link: int) -> int:
        """Port index of this link on every spine."""
        return leaf * self.links_per_leaf + link

    def free_ports(self, leaf: int, nodes: int) -> tuple[int, int]:
        """The range of a leaf's ports that nodes and spines leave free."""
        leaf_set, of_set = divmod(leaf, self.leaves_per_set)
        here = min(max(0, nodes - leaf_set * self.nodes_per_set), self.nodes_per_set)
        return here * self.lanes_on(of_set), self.leaf_ports - self.uplinks


def lay_out(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> Optional[Topology]:
    """The topology; None if lanes have no leaf, or cables no port."""
    rails, leaves, spines = model["rails"], model["leaves"], model["spines"]
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
    topology = Topology(
        lanes=tuple(
            Lane(number // planes, number % planes, leaf, mapping[:number].count(leaf))
            for number, leaf in enumerate(mapping)
        ),
        leaves=count,
        leaves_per_set=per_set,
        leaf_ports=leaves["ports"],
        spines=spines["count"] if spines else 0,
        links_per_leaf=spines["links_per_leaf"] if spines else 0,
    )
    return topology if _check_capacity(model, topology, specs, findings) else None


def _check_capacity(
    model: dict[str, Any], topology: Topology, specs: list[NodeSpec], findings: Findings
) -> bool:
    """Set the number of nodes per leaf set; return whether all cables have a port."""
    leaves, spines = model["leaves"], model["spines"]
    before = len(findings.found)
    most_lanes = max(topology.lanes_on(leaf) for leaf in range(topology.leaves_per_set))
    capacity = (leaves["ports"] - topology.uplinks) // most_lanes
    per_set = leaves["nodes_per_set"] or capacity
    if capacity < 1 or per_set > capacity:
        problem = f"leaves with {counted(leaves['ports'], 'port')}, {topology.uplinks} of them "
        problem += f"uplinks, hold only {max(capacity, 0)} nodes at {most_lanes} each"
        remedy = "Use more ports, fewer links to spines, or fewer nodes_per_set"
        path = ("leaves", "ports" if capacity < 1 else "nodes_per_set")
        findings.add("model.leaf_ports", path, problem, remedy, (per_set, capacity))
        return False
    topology.nodes_per_set = per_set
    links = topology.leaves * topology.links_per_leaf
    if spines and links > spines["ports"]:
        problem = f"{topology.leaves} leaves need {counted(links, 'port')} on every spine, which "
        problem += f"has {spines['ports']}"
        path, remedy = ("spines", "ports"), "Use more ports, or fewer links_per_leaf"
        findings.add("model.spine_ports", path, problem, remedy, (links, spines["ports"]))
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
