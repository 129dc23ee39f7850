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
"""Numbers of rtnetlink."""


@dataclass(frozen=True, order=True)
class Route:
    """One route out of a rail. Without gateway it is the directly connected network."""

    table: int
    destination: str
    gateway: Optional[str] = None
    metric: Optional[int] = None
    kind: str = ""
    """`blackhole` or the like: packets go nowhere. Empty for others."""
    device: str = ""
    """Only of a route that leads a rail's network elsewhere."""

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
class Rule:
    """One rule of source routing: packets from `source` use `table`."""

    priority: int
    source: str
    table: int

    def __str__(self) -> str:
        return f"{self.priority}: from {self.source} lookup {self.table}"


@dataclass(frozen=True)
class IpLink:
    """One network interface as it runs."""

    name: str
    mtu: int
    up: bool
    carrier: bool
    mac: str
    addresses: tuple[str, ...]
    """IPv4 and IPv6 with prefix length, without the IPv6 link-local ones that the kernel makes."""
    master: Optional[str] = None
    """The bond or bridge it is a port of."""
    lower: Optional[str] = None
    """The interface it is stacked on, as a VLAN is."""


@dataclass(frozen=True)
class NetworkState:
    """The network of this host at one moment."""

    links: Mapping[str, IpLink] = field(default_factory=dict)
    routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    """Per interface, without those that the kernel makes of an address; those that lead nowhere
    under NOWHERE."""
    rules: tuple[Rule, ...] = ()
    """Those that choose by an IPv4 source and look up a table."""

    @property
    def in_use(self) -> frozenset[str]:
        """Interfaces that a route or another interface depends on."""
        lowers = {link.lower for link in self.links.values() if link.lower}
        routed = {device for device, routes in self.routes.items() if device and routes}
        return frozenset(lowers | routed)

    def detours(self, network: str, table: Optional[int], rails: Collection[str]) -> list[Route]:
        """What leads a rail's network, or a part of it, elsewhere than to a rail.

        MPI and UCX connect without a source address, so the main table chooses.
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
    """Ask the kernel, by three programs for all rails. Raises CommandError."""

    def ask(*words: str) -> list[dict[str, Any]]:
        answer: list[dict[str, Any]] = json.loads(run(("ip", *words)).stdout or "[]")
        return answer

    return NetworkState(
        parse_links(ask("-N", "-j", "address", "show")),
        parse_routes(ask("-4", "-N", "-j", "route", "show", "table", "all")),
        parse_rules(ask("-4", "-N", "-j", "rule", "show")),
    )


def parse_links(answer: list[dict[str, Any]]) -> dict[str, IpLink]:
    """The links of `ip -j address show`, by name."""
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
    """The routes of `ip -4 -N -j route show table all` by interface, sorted."""
    routes: dict[str, list[Route]] = {}
    for entry in answer:
        table = int(entry.get("table", MAIN_TABLE))
        type_ = str(entry.get("type", "1"))
        kind = KINDS.get(type_, type_ if type_ in KINDS.values() else "")
        by_kernel = entry.get("protocol") in ("2", "kernel")
        if by_kernel or (not kind and type_ not in ("1", "unicast")):
            continue
        # The metric distinguishes routes of the main table; in a rail's own table the network
        # service chooses it.
        metric = entry.get("metric", 0) if table == MAIN_TABLE else None
        if kind:
            lost = Route(table, _destination(entry["dst"]), None, metric, kind)
            routes.setdefault(NOWHERE, []).append(lost)
            continue
        for hop in entry.get("nexthops", [entry]):
            if "dev" in hop:
                route = Route(table, _destination(entry["dst"]), hop.get("gateway"), metric)
                routes.setdefault(hop["dev"], []).append(route)
    return {device: tuple(sorted(found, key=str)) for device, found in routes.items()}


def read_neighbours(run: Runner) -> dict[str, list[str]]:
    """Static neighbour entries by interface, as `ip neigh` takes them: what ARP cannot correct."""
    answer = json.loads(run(("ip", "-j", "neigh", "show", "nud", "permanent")).stdout or "[]")
    found: dict[str, list[str]] = {}
    for entry in answer:
        text = f"{entry['dst']} lladdr {entry.get('lladdr', 'none')}"
        found.setdefault(entry["dev"], []).append(text)
    return found


def _destination(text: str) -> str:
    """`ip` leaves the prefix length of a single address out."""
    if text == "default" or "/" in text:
        return "default" if text == "0.0.0.0/0" else text
    return f"{text}/32"


def parse_rules(answer: list[dict[str, Any]]) -> tuple[Rule, ...]:
    """The source rules of `ip -4 -N -j rule show`."""
    rules = []
    for entry in answer:
        source, table = entry.get("src", "all"), str(entry.get("table", ""))
        if source != "all" and table.isdigit():
            length = entry.get("srclen", 32)
            source = source if length == 32 else f"{source}/{length}"
            rules.append(Rule(entry["priority"], source, int(table)))
    return tuple(sorted(rules))
