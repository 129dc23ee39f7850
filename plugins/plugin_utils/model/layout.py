# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The layout of the network: leaves for rails, ports for cables, addresses for both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from ...module_utils.core.text import counted
from ..schema.findings import Findings
from .address_plan import AddressPlan, Exhausted, PointToPoint, SubnetPerRail
from .addresses import Network
from .nodes import NodeSpec
from .schema import SUBNET_PER_RAIL
from .topology import Topology, lay_lanes


def lay_out(
    model: dict[str, Any], specs: Optional[list[NodeSpec]], findings: Findings
) -> Optional[Topology]:
    if not findings.clean(("rails",), ("leaves",), ("spines",)):
        return None
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
                value=(leaves["count"], wanted),
            )
            return None
    elif len(mapping) < wanted:
        findings.add(
            "model.rail_to_leaf_short",
            ("leaves", "rail_to_leaf"),
            f"{_lane_name(len(mapping), rails['planes'])} has no leaf: "
            f"{counted(len(mapping), 'number')} for {counted(wanted, what)}",
            f"Write {counted(wanted, 'number')}, one per rail and plane",
            value=(len(mapping), wanted),
        )
        return None
    elif len(mapping) > wanted:
        findings.add(
            "model.rail_to_leaf_long",
            ("leaves", "rail_to_leaf"),
            f"{counted(len(mapping), 'number')} for {counted(wanted, what)}",
            f"Write {counted(wanted, 'number')}, one per rail and plane",
            value=(len(mapping), wanted),
        )
        return None
    per_set = max(mapping) + 1
    idle = sorted(set(range(per_set)) - set(mapping))
    if idle:
        findings.add(
            "model.leaf_without_rail",
            ("leaves", "rail_to_leaf"),
            f"leaf {idle[0]} of the set has no rail",
            f"Use every number from 0 to {per_set - 1}",
            value=idle[0],
        )
        return None
    if leaves["count"] % per_set:
        findings.add(
            "model.leaves_no_whole_sets",
            ("leaves", "count"),
            f"{leaves['count']} leaves are no whole number of sets of {per_set}, "
            "so that rails of the last set have no leaf",
            f"Have a multiple of {per_set}",
            value=(leaves["count"], per_set),
        )
        return None
    topology = Topology(
        lanes=lay_lanes(rails["count"], rails["planes"], mapping),
        leaves=leaves["count"],
        leaves_per_set=per_set,
        leaf_ports=leaves["ports"],
        nodes_per_set=1,
        spines=spines["count"] if spines else 0,
        links_per_leaf=spines["links_per_leaf"] if spines else 0,
    )
    return _with_room(model, topology, specs, findings)


def _with_room(
    model: dict[str, Any],
    topology: Topology,
    specs: Optional[list[NodeSpec]],
    findings: Findings,
) -> Optional[Topology]:
    leaves, spines = model["leaves"], model["spines"]
    most_lanes = max(topology.lanes_on(leaf) for leaf in range(topology.leaves_per_set))
    room = (leaves["ports"] - topology.uplinks) // most_lanes
    if room < 1:
        findings.add(
            "model.leaf_without_ports",
            ("leaves", "ports"),
            f"{counted(leaves['ports'], 'port')} leave none for a node beside "
            f"{counted(topology.uplinks, 'uplink')}",
            "Have more ports, or fewer links to spines",
            value=(leaves["ports"], topology.uplinks),
        )
        return None
    per_set = leaves["nodes_per_set"] or room
    if per_set > room:
        findings.add(
            "model.nodes_per_set",
            ("leaves", "nodes_per_set"),
            f"{per_set} nodes do not fit on leaves with {counted(leaves['ports'], 'port')}, "
            f"{topology.uplinks} of them uplinks, at {counted(most_lanes, 'port')} for each node",
            f"Write at most {room}, or have more ports",
            value=(per_set, room),
        )
        return None
    if spines and topology.leaves * topology.links_per_leaf > spines["ports"]:
        findings.add(
            "model.spine_ports",
            ("spines", "ports"),
            f"{counted(topology.leaves, 'leaf', 'leaves')} with "
            f"{counted(topology.links_per_leaf, 'link')} each need "
            f"{counted(topology.leaves * topology.links_per_leaf, 'port')} on every spine, "
            f"it has {spines['ports']}",
            "Have more ports, or fewer links_per_leaf",
            value=(topology.leaves * topology.links_per_leaf, spines["ports"]),
        )
    sized = replace(topology, nodes_per_set=per_set)
    places = specs[-1].index + 1 if specs else 0
    if places > sized.room:
        sets = -(-places // per_set)
        findings.add(
            "model.more_nodes_than_ports",
            ("leaves", "count"),
            f"{counted(places, 'node')}, but the leaves have ports for {sized.room} "
            f"({counted(sized.sets, 'set')} for {per_set} each)",
            f"Have {sets * topology.leaves_per_set} leaves, leaves with more ports, or fewer nodes",
            value=(places, sized.room),
        )
    return sized


def _lane_name(number: int, planes: int) -> str:
    rail, plane = divmod(number, planes)
    return f"rail {rail}" if planes == 1 else f"rail {rail} plane {plane}"


def interface_name(rails: dict[str, Any], rail: int, plane: int) -> str:
    pattern = rails["interface"] or ("rail{rail}" if rails["planes"] == 1 else "rail{rail}p{plane}")
    return str(pattern.format(rail=rail, plane=plane))


def plan_addresses(
    model: dict[str, Any],
    specs: Optional[list[NodeSpec]],
    topology: Optional[Topology],
    findings: Findings,
) -> Optional[AddressPlan]:
    if not findings.clean(("addresses",)):
        return None
    addresses = model["addresses"]
    pool: Network = addresses["pool"]
    if findings.clean(("management",)) and pool.overlaps(model["management"]["subnet"]):
        findings.add(
            "model.pool_in_management",
            ("addresses", "pool"),
            f"{pool} overlaps the management subnet {model['management']['subnet']}",
            "Give rails and management networks of their own",
            value=str(pool),
        )
    if specs is None or topology is None:
        return None
    plan: AddressPlan
    if addresses["plan"] == SUBNET_PER_RAIL:
        plan = SubnetPerRail(
            pool=pool,
            lanes=len(topology.lanes),
            nodes_per_set=topology.nodes_per_set,
            subnet_prefix=addresses["prefix"],
            first_host=addresses["first_host"],
        )
        remedy = "Take a larger pool, or another prefix"
    else:
        plan = PointToPoint(pool=pool, lanes=len(topology.lanes))
        remedy = "Take a larger pool"
    try:
        plan.require_room(specs[-1].index + 1)
    except Exhausted as exhausted:
        findings.add(exhausted.code, ("addresses", "pool"), str(exhausted), remedy, exhausted.value)
    return plan
