# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The desired state of each rail, computed from `cluster_rails` of the cluster model."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ..core.part import PlanError
from ..hardware.iproute import MAIN_TABLE, Route, SourceRule

SOURCE = "source"
"""Each rail has a routing table, looked up by source address."""
ARP = "arp"
"""No tables: one flat network, in which only ARP settings separate the rails."""

FIRST_METRIC = 1000
"""Metric of routes in the main table, higher than that of any management route."""

_RESERVED_TABLES = (0, 253, 254, 255)
_MAIN_RULE = 32766
_PLANES_PER_RAIL = 10


@dataclass(frozen=True)
class RailPlan:
    """The desired state of one rail."""

    interface: str
    pci: Optional[str]
    address: str
    prefix: int
    gateway: Optional[str]
    mtu: int
    routes: tuple[Route, ...]
    rule: Optional[SourceRule]

    @property
    def cidr(self) -> str:
        return f"{self.address}/{self.prefix}"


def plan_rails(
    rails: Sequence[Mapping[str, Any]],
    *,
    routing: str = SOURCE,
    table_base: int = 1000,
    priority_base: int = 10000,
    networks: Sequence[str] = (),
) -> list[RailPlan]:
    """Plan every rail of one host; `networks` are behind the rails' gateways, for rails without
    `networks` in their entry (planes apart).

    Rail R, plane P has the numbers `base + 10R + P`. Raises PlanError if one of them would change
    tables of the kernel, or if traffic between rails would not use the rails.
    """
    try:
        behind = [
            [str(ipaddress.IPv4Network(network)) for network in rail.get("networks", networks)]
            for rail in rails
        ]
    except ValueError as error:
        raise PlanError(f"roce_rails_networks: {error}. Write networks as 10.0.0.0/16") from error
    return [
        _plan(rail, routing, table_base, priority_base, far) for rail, far in zip(rails, behind)
    ]


def _plan(
    rail: Mapping[str, Any],
    routing: str,
    table_base: int,
    priority_base: int,
    networks: Sequence[str],
) -> RailPlan:
    name, address, gateway = rail["interface"], rail["address"], rail.get("gateway")
    offset = rail["rail"] * _PLANES_PER_RAIL + rail.get("plane", 0)
    table, priority = table_base + offset, priority_base + offset
    routes: list[Route] = []
    if routing == ARP and gateway:
        raise PlanError(
            f"{name}: gateway {gateway} is not used with roce_rails_routing: {ARP}. Set "
            f"roce_rails_routing: {SOURCE}, or remove the gateway"
        )
    if routing == SOURCE:
        if table in _RESERVED_TABLES or not 0 < priority < _MAIN_RULE:
            raise PlanError(
                f"{name}: routing table {table} with a rule of priority {priority}: tables "
                f"{', '.join(map(str, _RESERVED_TABLES))} belong to the kernel, and the rule must "
                f"come before {_MAIN_RULE} (roce_rails_table_base, roce_rails_priority_base)"
            )
        network = ipaddress.ip_interface(f"{address}/{rail['prefix']}").network
        routes.append(Route(table, str(network)))
        if gateway:
            routes.append(Route(table, "default", gateway))
            # Traffic that is not bound to a rail also reaches the other rails' networks, preferably
            # by the first rail.
            routes += [Route(MAIN_TABLE, far, gateway, FIRST_METRIC + offset) for far in networks]
    return RailPlan(
        interface=name,
        pci=rail["pci"].lower() if rail.get("pci") else None,
        address=address,
        prefix=rail["prefix"],
        gateway=gateway,
        mtu=rail["mtu"],
        routes=tuple(routes),
        rule=SourceRule(priority, address, table) if routing == SOURCE else None,
    )
