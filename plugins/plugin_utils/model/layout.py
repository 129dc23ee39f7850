# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The layout of the network: leaves for rails, ports for cables, addresses for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ...module_utils.core.text import counted
from ..schema.findings import Findings
from .addresses import AddressPlan, Exhausted, PointToPoint, SubnetPerRail
from .nodes import NodeSpec
from .schema import SUBNET_PER_RAIL


@dataclass(frozen=True)
class Lane:
    """One plane of one rail, and its place on a leaf of the set."""

    rail: int
    plane: int
    leaf: int
    place: int
    """Among the lanes of a node that share this leaf."""


@dataclass
class Topology:
    """Which lane of which node has which port of which leaf, and how leaves reach the spines."""

    lanes: tuple[Lane, ...]
    leaves: int
    leaves_per_set: int
    leaf_ports: int
    """Of each leaf."""
    spines: int = 0
    links_per_leaf: int = 0
    nodes_per_set: int = 1

    @property
    def uplinks(self) -> int:
        """Ports of a leaf that go to spines: its last ones."""
        return self.spines * self.links_per_leaf

    def lanes_on(self, leaf: int) -> int:
        """Lanes of one node on this leaf of the set."""
        return sum(lane.leaf == leaf for lane in self.lanes)

    def uplink_port(self, spine: int, link: int) -> int:
        """The port of every leaf that carries this link to this spine."""
        return self.leaf_ports - self.uplinks + spine * self.links_per_leaf + link

    def spine_port(self, leaf: int, link: int) -> int:
        """The port of every spine that carries this link to this leaf."""
        return leaf * self.links_per_leaf + link


def lay_out(model: dict[str, Any], specs: list[NodeSpec], findings: Findings) -> Optional[Topology]:
    """The topology; None where lanes have no leaf."""
    rails, leaves, spines = model["rails"], model["leaves"], model["spines"]
    wanted = rails["count"] * rails["planes"]
    what = "rail" if rails["planes"] == 1 else "plane"
    mapping = leaves["rail_to_leaf"]
    if mapping is None:
        mapping = list(range(wanted))
        if leaves["count"] < wanted:
            findings.add(
                "model.rail_without_leaf",
                ("leaves", "count"),
                f"{_lane_name(leaves['count'], rails['planes'])} has no leaf: "
                f"{counted(leaves['count'], 'leaf', 'leaves')} for {counted(wanted, what)}",
                f"Have {wanted} leaves, or let rails share them by leaves.rail_to_leaf",
                (leaves["count"], wanted),
            )
            return None
    per_set = max(mapping, default=0) + 1
    if len(mapping) != wanted or set(mapping) != set(range(per_set)):
        findings.add(
            "model.rail_to_leaf",
            ("leaves", "rail_to_leaf"),
            f"{counted(len(mapping), 'number')} for {counted(wanted, what)}, or a leaf of the set "
            "without a rail",
            f"Write {counted(wanted, 'number')}, one per rail and plane, and use all from 0 on",
            (len(mapping), wanted),
        )
        return None
    if leaves["count"] % per_set:
        findings.add(
            "model.leaves_no_whole_sets",
            ("leaves", "count"),
            f"{leaves['count']} leaves do not make whole sets of {per_set}: rails of the last set "
            "have no leaf",
            f"Have a multiple of {per_set}",
            (leaves["count"], per_set),
        )
        return None
    topology = Topology(
        lanes=lay_lanes(rails["planes"], mapping),
        leaves=leaves["count"],
        leaves_per_set=per_set,
        leaf_ports=leaves["ports"],
        spines=spines["count"] if spines else 0,
        links_per_leaf=spines["links_per_leaf"] if spines else 0,
    )
    return topology if _take_room(model, topology, specs, findings) else None


def _take_room(
    model: dict[str, Any], topology: Topology, specs: list[NodeSpec], findings: Findings
) -> bool:
    """Set the nodes of a set of leaves; whether all cables have a port."""
    leaves, spines = model["leaves"], model["spines"]
    before = len(findings.found)
    most_lanes = max(topology.lanes_on(leaf) for leaf in range(topology.leaves_per_set))
    room = (leaves["ports"] - topology.uplinks) // most_lanes
    per_set = leaves["nodes_per_set"] or room
    if room < 1 or per_set > room:
        findings.add(
            "model.leaf_ports",
            ("leaves", "ports" if room < 1 else "nodes_per_set"),
            f"leaves with {counted(leaves['ports'], 'port')}, {topology.uplinks} of them uplinks, "
            f"have room for {max(room, 0)} nodes at {counted(most_lanes, 'port')} each",
            "Have more ports, fewer links to spines, or fewer nodes_per_set",
            (per_set, room),
        )
        return False
    topology.nodes_per_set = per_set
    links = topology.leaves * topology.links_per_leaf
    if spines and links > spines["ports"]:
        findings.add(
            "model.spine_ports",
            ("spines", "ports"),
            f"{counted(topology.leaves, 'leaf', 'leaves')} with "
            f"{counted(topology.links_per_leaf, 'link')} each need {counted(links, 'port')} on "
            f"every spine, it has {spines['ports']}",
            "Have more ports, or fewer links_per_leaf",
            (links, spines["ports"]),
        )
    sets = topology.leaves // topology.leaves_per_set
    places = specs[-1].index + 1 if specs else 0
    if places > sets * per_set:
        findings.add(
            "model.more_nodes_than_ports",
            ("leaves", "count"),
            f"{counted(places, 'node')}, but the leaves have ports for {sets * per_set} "
            f"({counted(sets, 'set')} for {per_set} each)",
            f"Have {-(-places // per_set) * topology.leaves_per_set} leaves, leaves with more "
            "ports, or fewer nodes",
            (places, sets * per_set),
        )
    return len(findings.found) == before


def lay_lanes(planes: int, rail_to_leaf: Sequence[int]) -> tuple[Lane, ...]:
    """The lanes of a node in order, each with its leaf and its place there."""
    return tuple(
        Lane(*divmod(number, planes), leaf, rail_to_leaf[:number].count(leaf))
        for number, leaf in enumerate(rail_to_leaf)
    )


def _lane_name(number: int, planes: int) -> str:
    rail, plane = divmod(number, planes)
    return f"rail {rail}" if planes == 1 else f"rail {rail} plane {plane}"


def interface_name(rails: dict[str, Any], rail: int, plane: int) -> str:
    pattern = rails["interface"] or ("rail{rail}" if rails["planes"] == 1 else "rail{rail}p{plane}")
    return str(pattern.format(rail=rail, plane=plane))


def interface_names(rails: dict[str, Any]) -> list[str]:
    """Of every lane of a node, in order."""
    lanes = (divmod(lane, rails["planes"]) for lane in range(rails["count"] * rails["planes"]))
    return [interface_name(rails, *lane) for lane in lanes]


def plan_addresses(
    model: dict[str, Any], specs: list[NodeSpec], topology: Optional[Topology], findings: Findings
) -> Optional[AddressPlan]:
    """The plan; None where no topology is known."""
    addresses, management = model["addresses"], model["management"]["subnet"]
    pool, path = addresses["pool"], ("addresses", "pool")
    if pool.overlaps(management):
        findings.add(
            "model.pool_in_management",
            path,
            f"{pool} overlaps the management subnet {management}",
            "Give rails and management networks of their own",
            str(pool),
        )
    if topology is None or not specs:
        return None
    lanes = len(topology.lanes)
    plan: AddressPlan
    if addresses["plan"] == SUBNET_PER_RAIL:
        plan = SubnetPerRail(
            pool, lanes, topology.nodes_per_set, addresses["prefix"], addresses["first_host"]
        )
    else:
        plan = PointToPoint(pool, lanes)
    try:
        plan.require_room(specs[-1].index + 1)
    except Exhausted as exhausted:
        remedy = "Take a larger pool, or another addresses.prefix"
        findings.add(exhausted.code, path, str(exhausted), remedy, exhausted.value)
    return plan
