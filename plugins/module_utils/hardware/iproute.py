# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links, addresses, routes and rules of the running kernel, as `ip` of iproute2 prints them."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ..core.commands import Runner

MAIN_TABLE = 254
NOWHERE = ""
"""Key of routes without an interface."""
KINDS = {"6": "blackhole", "7": "unreachable", "8": "prohibit", "9": "throw"}


@dataclass(frozen=True, order=True)
class Route:
    """A route. Without a gateway, its destination is directly connected."""

    table: int
    destination: str
    gateway: Optional[str] = None
    metric: Optional[int] = None
    kind: str = ""
    """`blackhole`, `unreachable` and so on; empty for unicast."""
    device: str = ""
    """Set only for a detour: a route of a rail's network that leaves by another interface."""

    @property
    def cidr(self) -> str:
        return "0.0.0.0/0" if self.destination == "default" else self.destination

    def __str__(self) -> str:
        via = f" via {self.gateway}" if self.gateway else ""
        dev = f" dev {self.device}" if self.device else ""
        where = "main" if self.table == MAIN_TABLE else str(self.table)
        kind = f"{self.kind} " if self.kind else ""
        return f"{kind}{self.destination}{via}{dev} table {where}"


@dataclass(frozen=True, order=True)
class SourceRule:
    """A rule of source routing: packets from `source` use `table`."""

    priority: int
    source: str
    table: int

    def __str__(self) -> str:
        return f"{self.priority}: from {self.source} lookup {self.table}"


@dataclass(frozen=True)
class IpLink:
    name: str
    mtu: int
    up: bool
    carrier: bool
    mac: str
    addresses: tuple[str, ...]
    """IPv4 and IPv6 with prefix length, without IPv6 link-local addresses."""
    master: Optional[str] = None
    """Bond or bridge that this interface is a port of."""
    lower: Optional[str] = None
    """Its lower interface, for example that of a VLAN."""


@dataclass(frozen=True)
class NetworkState:
    links: Mapping[str, IpLink] = field(default_factory=dict)
    routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    """By interface, except those that the kernel derives from addresses; those that discard packets
    are under NOWHERE."""
    rules: tuple[SourceRule, ...] = ()

    @property
    def in_use(self) -> frozenset[str]:
        """Interfaces that a route or another interface depends on."""
        lowers = {link.lower for link in self.links.values() if link.lower}
        routed = {device for device, routes in self.routes.items() if device and routes}
        return frozenset(lowers | routed)

    def detours(self, network: str, table: Optional[int], rails: Collection[str]) -> list[Route]:
        """Return the routes to a rail's network, or to a part of it, that do not leave by a rail.

        MPI and UCX connect without a source address, so the main table decides.
        """
        inside = ipaddress.IPv4Network(network, strict=False)
        return [
            replace(route, device=device)
            for device, routes in self.routes.items()
            if device not in rails
            for route in routes
            if route.table in (MAIN_TABLE, table)
            and route.destination != "default"
            and ipaddress.IPv4Network(route.destination).subnet_of(inside)
        ]


def read_state(run: Runner) -> NetworkState:
    """Read the network by three calls of `ip`. Raises CommandError."""

    def ask(*arguments: str) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = json.loads(run(("ip", *arguments)).stdout or "[]")
        return answer

    return NetworkState(
        parse_links(ask("-N", "-j", "address", "show")),
        parse_routes(ask("-4", "-N", "-j", "route", "show", "table", "all")),
        parse_rules(ask("-4", "-N", "-j", "rule", "show")),
    )


def parse_links(answer: list[dict[str, Any]]) -> dict[str, IpLink]:
    return {
        entry["ifname"]: IpLink(
            name=entry["ifname"],
            mtu=entry["mtu"],
            up="UP" in entry.get("flags", []),
            carrier="LOWER_UP" in entry.get("flags", []),
            mac=entry.get("address", ""),
            addresses=tuple(_addresses(entry.get("addr_info", []))),
            master=entry.get("master"),
            lower=entry.get("link"),
        )
        for entry in answer
        if "ifname" in entry
    }


def _addresses(infos: list[dict[str, Any]]) -> list[str]:
    # IPv6 link-local addresses come from the kernel; IPv4 ones (169.254) from a failed DHCP.
    return [
        f"{info['local']}/{info['prefixlen']}"
        for info in infos
        if "local" in info
        and not (info["family"] == "inet6" and ipaddress.ip_address(info["local"]).is_link_local)
    ]


def parse_routes(answer: list[dict[str, Any]]) -> dict[str, tuple[Route, ...]]:
    """Parse `ip -4 -N -j route show table all` into sorted routes by interface."""
    routes: dict[str, list[Route]] = {}
    for entry in answer:
        table = int(entry.get("table", MAIN_TABLE))
        type_ = str(entry.get("type", "1"))
        kind = KINDS.get(type_, type_ if type_ in KINDS.values() else "")
        by_kernel = entry.get("protocol") in ("2", "kernel")
        if by_kernel or (not kind and type_ not in ("1", "unicast")):
            continue
        # The metric distinguishes routes of the main table; in a rail's table the network service
        # sets it.
        metric = entry.get("metric", 0) if table == MAIN_TABLE else None
        for hop in [{"dev": NOWHERE}] if kind else entry.get("nexthops", [entry]):
            if "dev" in hop:
                route = Route(table, _destination(entry["dst"]), hop.get("gateway"), metric, kind)
                routes.setdefault(hop["dev"], []).append(route)
    return {device: tuple(sorted(found, key=str)) for device, found in routes.items()}


def read_neighbours(run: Runner) -> dict[str, list[str]]:
    """Return static neighbour entries, which ARP cannot correct, as arguments of `ip`."""
    answer = json.loads(run(("ip", "-j", "neigh", "show", "nud", "permanent")).stdout or "[]")
    found: dict[str, list[str]] = {}
    for entry in answer:
        text = f"{entry['dst']} lladdr {entry.get('lladdr', 'none')}"
        found.setdefault(entry["dev"], []).append(text)
    return found


def _destination(text: str) -> str:
    """Add the prefix length of a single address, which `ip` omits."""
    if text == "default" or "/" in text:
        return "default" if text == "0.0.0.0/0" else text
    return f"{text}/32"


def parse_rules(answer: list[dict[str, Any]]) -> tuple[SourceRule, ...]:
    """Parse `ip -4 -N -j rule show` into the rules that select by source."""
    rules = []
    for entry in answer:
        source, table = entry.get("src", "all"), str(entry.get("table", ""))
        if source != "all" and table.isdigit():
            length = entry.get("srclen", 32)
            source = source if length == 32 else f"{source}/{length}"
            rules.append(SourceRule(entry["priority"], source, int(table)))
    return tuple(sorted(rules))
