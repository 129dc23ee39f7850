# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the kernel has: links, addresses, routes and rules, by three programs for all rails.

And the ARP settings that keep several interfaces of one host apart: Linux answers ARP for any of
its addresses on any interface, and drops what returns by another interface than it would send by.
With several rails, one of them would get the traffic of all.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from ..core.files import FilePlan
from ..core.part import NAME, Node
from .plan import MAIN_TABLE, Route, Rule


@dataclass(frozen=True)
class Link:
    """One network interface as it runs."""

    name: str
    index: int
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
class State:
    """The network of this host at one moment."""

    links: Mapping[str, Link] = field(default_factory=dict)
    routes: Mapping[str, tuple[Route, ...]] = field(default_factory=dict)
    """Per interface, unicast, without those that the kernel makes of an address."""
    rules: tuple[Rule, ...] = ()
    """Those that choose by an IPv4 source and look up a table."""

    @property
    def in_use(self) -> frozenset[str]:
        """Interfaces that a route or another interface depends on."""
        lowers = {link.lower for link in self.links.values() if link.lower}
        return frozenset(lowers | {device for device, routes in self.routes.items() if routes})


def read_state(run: Runner) -> State:
    """Ask the kernel. Raises CommandError when it cannot be asked."""
    links = _json(run, ("ip", "-N", "-j", "address", "show"))
    routes = _json(run, ("ip", "-4", "-N", "-j", "route", "show", "table", "all"))
    rules = _json(run, ("ip", "-4", "-N", "-j", "rule", "show"))
    return State(parse_links(links), parse_routes(routes), parse_rules(rules))


def _json(run: Runner, argv: tuple[str, ...]) -> list[dict[str, Any]]:
    text = run(argv).stdout
    try:
        answer: list[dict[str, Any]] = json.loads(text or "[]")
    except ValueError as error:
        raise CommandError(f"{' '.join(argv)}: printed no JSON: {error}") from error
    return answer


def parse_links(answer: list[dict[str, Any]]) -> dict[str, Link]:
    """The links of `ip -j address show`, by name."""
    links = {}
    for entry in answer:
        if "ifname" not in entry:
            continue
        flags = entry.get("flags", [])
        link = Link(
            name=entry["ifname"],
            index=entry["ifindex"],
            mtu=entry["mtu"],
            up="UP" in flags,
            carrier="LOWER_UP" in flags,
            mac=entry.get("address", ""),
            addresses=tuple(_addresses(entry.get("addr_info", []))),
            master=entry.get("master"),
            lower=entry.get("link"),
        )
        links[link.name] = link
    return links


def _addresses(infos: list[dict[str, Any]]) -> list[str]:
    found = []
    for info in infos:
        local = info.get("local")
        # IPv6 link-local addresses come from the kernel; IPv4 ones (169.254) from a failed DHCP.
        if local is None or (
            info["family"] == "inet6" and ipaddress.ip_address(local).is_link_local
        ):
            continue
        found.append(f"{local}/{info['prefixlen']}")
    return found


def parse_routes(answer: list[dict[str, Any]]) -> dict[str, tuple[Route, ...]]:
    """The routes of `ip -4 -N -j route show table all` by interface, sorted."""
    routes: dict[str, list[Route]] = {}
    for entry in answer:
        table = int(entry.get("table", MAIN_TABLE))
        if entry.get("type", "1") not in ("1", "unicast") or entry.get("protocol") in (
            "2",
            "kernel",
        ):
            continue
        for hop in entry.get("nexthops", [entry]):
            if "dev" not in hop:
                continue
            route = Route(
                table=table,
                destination=_destination(entry["dst"]),
                gateway=hop.get("gateway"),
                # The metric distinguishes routes of the main table; in a rail's own table the
                # network service chooses it.
                metric=entry.get("metric", 0) if table == MAIN_TABLE else None,
            )
            routes.setdefault(hop["dev"], []).append(route)
    return {device: tuple(sorted(found, key=str)) for device, found in routes.items()}


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
        if source == "all" or not table.isdigit():
            continue
        length = entry.get("srclen", 32)
        rules.append(
            Rule(entry["priority"], source if length == 32 else f"{source}/{length}", int(table))
        )
    return tuple(sorted(rules))


ARP_DEFAULTS: Mapping[str, int] = {
    "arp_ignore": 1,  # answer only for addresses of the interface that was asked
    "arp_announce": 2,  # ask with the best local address of that interface
    "rp_filter": 2,  # loose: the source must be reachable, by whatever interface
}
ARP_SETTINGS = tuple(ARP_DEFAULTS)
ARP_FILE = f"etc/sysctl.d/60-{NAME}-rails.conf"


def read_arp(interface: str, root: Path) -> dict[str, Optional[int]]:
    """The values of one interface as they run; None where the kernel has none."""
    values: dict[str, Optional[int]] = {}
    for name in ARP_SETTINGS:
        try:
            values[name] = int(_arp_path(interface, name, root).read_text(encoding="ascii"))
        except (OSError, ValueError):
            values[name] = None
    return values


def arp_writable(interface: str, root: Path) -> bool:
    """Whether the settings are there and may be changed; an ordinary container may not."""
    return all(os.access(_arp_path(interface, name, root), os.W_OK) for name in ARP_SETTINGS)


def write_arp(interface: str, wanted: Mapping[str, int], root: Path) -> str:
    """Set what differs. Returns why it could not, or nothing."""
    found = read_arp(interface, root)
    for name, value in wanted.items():
        if found.get(name) != value:
            try:
                _arp_path(interface, name, root).write_text(f"{value}\n", encoding="ascii")
            except OSError as error:
                return f"net.ipv4.conf.{interface}.{name}: {error.strerror}"
    return ""


def plan_arp_file(interfaces: Iterable[str], wanted: Mapping[str, int], node: Node) -> FilePlan:
    """The file that udev and systemd-sysctl apply at boot, as each interface appears."""
    lines = [
        f"net.ipv4.conf.{interface}.{name} = {value}\n"
        for interface in interfaces
        for name, value in wanted.items()
    ]
    return node.file(ARP_FILE, "".join(lines) or None)


def _arp_path(interface: str, name: str, root: Path) -> Path:
    return root / "proc/sys/net/ipv4/conf" / interface / name
