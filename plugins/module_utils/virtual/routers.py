# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The routers of a routed fabric: what FRR is told on each leaf and spine.

BGP without addresses between the switches (neighbours are found by IPv6 router advertisements), one
autonomous system for all spines and one for each leaf, and every path of equal length is used. A
leaf announces the networks that its ports have: what the address plan says, and nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..fabric.intent import DOWNLINK, UPLINK
from .inventory import Node, VirtualNetworkError
from .names import router_namespace, short_name

Switches = Mapping[str, Sequence[Mapping[str, Any]]]
"""Leaves and spines by name: the variable `cluster_ports` of each."""

SPINES_AS = 65000
FIRST_LEAF_AS = 65001
PATHS = 64


@dataclass(frozen=True)
class Router:
    name: str
    namespace: str
    autonomous_system: int
    router_id: str
    neighbours: tuple[str, ...]
    """Its interfaces towards the other tier."""

    @property
    def spine(self) -> bool:
        return self.autonomous_system == SPINES_AS

    @property
    def configuration(self) -> str:
        lines = [
            f"hostname {self.name}",
            f"router bgp {self.autonomous_system}",
            f" bgp router-id {self.router_id}",
            " no bgp ebgp-requires-policy",
            " bgp bestpath as-path multipath-relax",
            " timers bgp 1 3",
            " neighbor FABRIC peer-group",
            " neighbor FABRIC remote-as external",
            " neighbor FABRIC timers connect 1",
            " neighbor FABRIC advertisement-interval 0",
            *(f" neighbor {name} interface peer-group FABRIC" for name in self.neighbours),
            " address-family ipv4 unicast",
            "  redistribute connected",
            f"  maximum-paths {PATHS}",
            " exit-address-family",
        ]
        return "".join(f"{line}\n" for line in lines)


def routers_of(cluster: str, switches: Switches, nodes: Sequence[Node]) -> tuple[Router, ...]:
    """None where no switches are given: leaves are bridges then."""
    if not switches:
        return ()
    _check(switches, nodes)
    routers = []
    leaves = 0
    for number, (name, groups) in enumerate(switches.items(), start=1):
        spine = any(group["kind"] == DOWNLINK for group in groups)
        autonomous_system = SPINES_AS if spine else FIRST_LEAF_AS + leaves
        leaves += not spine
        neighbours = tuple(
            interface_of(port)
            for group in groups
            if group["kind"] in (UPLINK, DOWNLINK)
            for port in group["peers"]
        )
        # Any number that no other has: it is nobody's address.
        router_id = str(ipaddress.IPv4Address(number))
        namespace = router_namespace(cluster, name)
        routers.append(Router(name, namespace, autonomous_system, router_id, neighbours))
    return tuple(routers)


def interface_of(port: str) -> str:
    """A port's name as Linux takes it: without `/`, and of at most 15 characters."""
    return short_name(port.replace("/", "-"))


def _check(switches: Switches, nodes: Sequence[Node]) -> None:
    machines = [node.name for node in nodes if node.machine]
    if machines:
        raise VirtualNetworkError(
            f"{machines[0]} is a machine, whose cables end in one namespace for all leaves: a "
            "routed fabric has containers only (virtual_nodes_kind), or leave virtual_nodes_fabric "
            "at bridges."
        )
    missing = {rail.leaf for node in nodes for rail in node.rails} - switches.keys()
    missing |= {
        spine
        for groups in switches.values()
        for group in groups
        if group["kind"] == UPLINK
        for spine in group["peers"].values()
    } - switches.keys()
    if missing:
        raise VirtualNetworkError(
            f"a routed fabric needs the ports of every leaf and spine, and the inventory has none "
            f"of {', '.join(sorted(missing))}. Describe them in cluster.yml (leaves, spines)."
        )
