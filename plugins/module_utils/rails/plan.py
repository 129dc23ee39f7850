# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is wanted of each rail: pure computation on the cluster model's `cluster_rails`."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..qos import IP_MTU_LIMITS

SOURCE = "source"
"""Each rail has a routing table of its own, looked up by its source address."""
ARP = "arp"
"""No tables: one flat network, kept apart by the ARP settings alone."""
ROUTINGS = (SOURCE, ARP)

MAIN_TABLE = 254
FIRST_METRIC = 1000
"""Metric of routes in the main table: after any route of the management network."""

INTERFACE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,14}")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RESERVED_TABLES = (0, 253, 254, 255)
_MAIN_RULE = 32766
_PLANES_PER_RAIL = 10


class PlanError(Exception):
    """The model's rails cannot be configured; the text has one line per finding."""


@dataclass(frozen=True, order=True)
class Route:
    """One route out of a rail. Without gateway it is the directly connected network."""

    table: int
    destination: str
    gateway: Optional[str] = None
    metric: Optional[int] = None

    def __str__(self) -> str:
        via = f" via {self.gateway}" if self.gateway else ""
        where = "main" if self.table == MAIN_TABLE else str(self.table)
        return f"{self.destination}{via} table {where}"


@dataclass(frozen=True, order=True)
class Rule:
    """One rule of source routing: packets from `source` use `table`."""

    priority: int
    source: str
    table: int

    def __str__(self) -> str:
        return f"{self.priority}: from {self.source} lookup {self.table}"


@dataclass(frozen=True)
class RailPlan:
    """Everything one rail shall be."""

    interface: str
    pci: Optional[str]
    address: str
    prefix: int
    gateway: Optional[str]
    mtu: int
    routes: tuple[Route, ...]
    rule: Optional[Rule]

    @property
    def cidr(self) -> str:
        return f"{self.address}/{self.prefix}"


@dataclass(frozen=True)
class Numbers:
    """Where the rails' routing tables and rules are numbered from."""

    table_base: int = 1000
    priority_base: int = 10000

    @staticmethod
    def offset(rail: int, plane: int) -> int:
        """Ten numbers per rail: rail 3 is 30, its plane 1 is 31. They never move."""
        return rail * _PLANES_PER_RAIL + plane


def plan_rails(
    rails: Sequence[Mapping[str, Any]],
    *,
    routing: str = SOURCE,
    numbers: Numbers = Numbers(),
    networks: Sequence[str] = (),
    management: Optional[Mapping[str, Any]] = None,
) -> list[RailPlan]:
    """The plan of every rail of one host. `networks` lie behind the rails' gateways.

    Raises PlanError naming every fault found, before anything is touched.
    """
    faults: list[str] = []
    if routing not in ROUTINGS:
        faults.append(f"routing is {routing!r}; it must be one of {', '.join(ROUTINGS)}")
    far = _networks(networks, faults)
    plans = []
    for place, rail in enumerate(rails):
        name = str(rail.get("interface") or f"entry {place}")
        own: list[str] = []
        plan = _plan_rail(rail, routing, numbers, far, own)
        faults += [f"{name}: {fault}" for fault in own]
        if plan is not None:
            plans.append(plan)
    faults += _duplicates(plans)
    faults += _management_faults(plans, management or {})
    if faults:
        raise PlanError("\n  ".join(["the rails cannot be configured as they are given:", *faults]))
    return plans


def _plan_rail(
    rail: Mapping[str, Any],
    routing: str,
    numbers: Numbers,
    far: Sequence[str],
    faults: list[str],
) -> Optional[RailPlan]:
    interface = str(rail.get("interface", ""))
    if not INTERFACE.fullmatch(interface):
        faults.append(
            f"interface {interface!r} is no usable name: a letter, then letters, digits, - or _, "
            "15 characters at most"
        )
    pci = rail.get("pci")
    if pci is not None:
        pci = str(pci).lower()
        if not _PCI.fullmatch(pci):
            faults.append(f"pci {rail['pci']!r} is no PCI address like 0000:5d:00.0")
    mtu = rail.get("mtu")
    if not isinstance(mtu, int) or not IP_MTU_LIMITS[0] <= mtu <= IP_MTU_LIMITS[1]:
        faults.append(f"mtu {mtu!r} is not a number from {IP_MTU_LIMITS[0]} to {IP_MTU_LIMITS[1]}")
    offset = _offset(rail, faults)
    network = _network(rail, faults)
    gateway = _gateway(rail, network, faults)
    if gateway and routing == ARP:
        faults.append(
            f"gateway {gateway} has no place with routing 'arp'; use routing 'source', or leave "
            "the gateway out"
        )
    table, priority = numbers.table_base + offset, numbers.priority_base + offset
    if routing == SOURCE:
        if table <= 0 or table in _RESERVED_TABLES or table > 0xFFFFFFFF:
            faults.append(f"routing table {table} is reserved; choose another table base")
        if not 0 < priority < _MAIN_RULE:
            faults.append(
                f"rule priority {priority} is not between 0 and {_MAIN_RULE}, the main table's; "
                "choose another priority base"
            )
    if faults or network is None:
        return None
    address = str(rail["address"])
    routes, rule = _routes(network, gateway, routing, table, far, offset)
    return RailPlan(
        interface=interface,
        pci=pci,
        address=address,
        prefix=network.prefixlen,
        gateway=gateway,
        mtu=int(mtu or 0),
        routes=routes,
        rule=Rule(priority, address, table) if rule else None,
    )


def _routes(
    network: ipaddress.IPv4Network,
    gateway: Optional[str],
    routing: str,
    table: int,
    far: Sequence[str],
    offset: int,
) -> tuple[tuple[Route, ...], bool]:
    if routing == ARP:
        return (), False
    routes = [Route(table, str(network))]
    if gateway:
        routes.append(Route(table, "default", gateway))
        # Traffic that is not bound to a rail finds the others too; the first rail is preferred.
        routes += [
            Route(MAIN_TABLE, destination, gateway, FIRST_METRIC + offset) for destination in far
        ]
    return tuple(routes), True


def _offset(rail: Mapping[str, Any], faults: list[str]) -> int:
    number, plane = rail.get("rail"), rail.get("plane", 0)
    if not isinstance(number, int) or number < 0:
        faults.append(f"rail {number!r} is no number from 0")
        return 0
    if not isinstance(plane, int) or not 0 <= plane < _PLANES_PER_RAIL:
        faults.append(f"plane {plane!r} is no number from 0 to {_PLANES_PER_RAIL - 1}")
        return 0
    return Numbers.offset(number, plane)


def _network(rail: Mapping[str, Any], faults: list[str]) -> Optional[ipaddress.IPv4Network]:
    address, prefix = rail.get("address"), rail.get("prefix")
    try:
        interface = ipaddress.IPv4Interface(f"{address}/{prefix}")
    except ValueError:
        faults.append(f"address {address!r} with prefix {prefix!r} is no IPv4 address")
        return None
    network = interface.network
    given = rail.get("network")
    if given and str(given) != str(network):
        faults.append(f"network {given} is not that of its address {interface}, {network}")
    if (
        prefix is not None
        and int(prefix) < 31
        and interface.ip
        in (
            network.network_address,
            network.broadcast_address,
        )
    ):
        faults.append(f"address {interface} is the network's own or its broadcast address")
    return network


def _gateway(
    rail: Mapping[str, Any], network: Optional[ipaddress.IPv4Network], faults: list[str]
) -> Optional[str]:
    given = rail.get("gateway")
    if not given or network is None:
        return None
    try:
        gateway = ipaddress.IPv4Address(str(given))
    except ValueError:
        faults.append(f"gateway {given!r} is no IPv4 address")
        return None
    if gateway not in network:
        faults.append(f"gateway {gateway} is not in the rail's network {network}")
    if str(gateway) == str(rail.get("address")):
        faults.append(f"gateway {gateway} is the rail's own address")
    return str(gateway)


def _networks(given: Sequence[str], faults: list[str]) -> list[str]:
    networks = []
    for text in given:
        try:
            networks.append(str(ipaddress.IPv4Network(text)))
        except ValueError as error:
            faults.append(f"network {text!r}: {error}")
    return networks


def _duplicates(plans: Sequence[RailPlan]) -> list[str]:
    faults = []
    seen: dict[tuple[str, str], RailPlan] = {}
    for plan in plans:
        for what, value in (
            ("interface", plan.interface),
            ("PCI address", plan.pci),
            ("address", plan.address),
            ("routing table", str(plan.rule.table) if plan.rule else None),
        ):
            if value is None:
                continue
            first = seen.setdefault((what, value), plan)
            if first is not plan:
                faults.append(
                    f"{plan.interface}: {what} {value} is given twice, to {first.interface} "
                    f"({first.cidr}) and {plan.interface} ({plan.cidr})"
                )
    return faults


def _management_faults(plans: Iterable[RailPlan], management: Mapping[str, Any]) -> list[str]:
    interface, address = management.get("interface"), management.get("address")
    network = None
    with contextlib.suppress(ValueError):
        network = ipaddress.IPv4Interface(f"{address}/{management.get('prefix')}").network
    faults = []
    for plan in plans:
        if interface and plan.interface == interface:
            faults.append(
                f"{plan.interface}: this is the management interface; it cannot be a rail"
            )
        if address and plan.address == address:
            faults.append(f"{plan.interface}: {address} is the management address of this host")
        elif network and ipaddress.IPv4Address(plan.address) in network:
            faults.append(
                f"{plan.interface}: {plan.address} is in the management network {network}; rails "
                "need networks of their own"
            )
    return faults
