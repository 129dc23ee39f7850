# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Traffic, routes and BGP sessions of a switch whose ports are interfaces of its container.

In a fabric with BGP everything is read from the kernel and from FRR. In others no traffic passes
the switch, and its system reports none of it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .switch import Hardware

SHOWN = ("ip", "-s", "-json", "address", "show")
SAVED = ("iptables-save", "-c", "-t", "raw")
LOST = re.compile(r"^\[(\d+):\d+\] -A PREROUTING -i (\S+) .*-j DROP$", re.MULTILINE)
"""Frames that a rule of `iptables` drops on arrival stand for those with a wrong checksum."""


def run(command: Sequence[str]) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
    return done.stdout


@dataclass(frozen=True)
class Link:
    name: str
    """Of the port; of a routed interface that is no port, the kernel's."""
    is_port: bool
    up: bool
    mtu: int
    addresses: tuple[str, ...]
    """IPv4, with the length of the prefix."""
    received: dict[str, int]
    """bytes, packets, errors, dropped"""
    sent: dict[str, int]


@dataclass(frozen=True)
class Peer:
    address: str
    asn: int
    state: str
    """As in RFC 4271, section 8.2.2: Idle, Connect, Active, OpenSent, OpenConfirm, Established."""


@dataclass(frozen=True)
class Traffic:
    hardware: Hardware
    run: Callable[[Sequence[str]], str] = run

    def __bool__(self) -> bool:
        return any(port.device for port in self.hardware.ports)

    def links(self) -> list[Link]:
        """The ports, and other interfaces with an address."""
        lost = {name: int(count) for count, name in LOST.findall(self.run(SAVED))}
        ports = {port.device: port.name for port in self.hardware.ports}
        found = []
        for entry in json.loads(self.run(SHOWN)):
            device = entry["ifname"]
            addresses = tuple(
                f"{one['local']}/{one['prefixlen']}"
                for one in entry["addr_info"]
                if one["family"] == "inet"
            )
            if device == "lo" or (device not in ports and not addresses):
                continue
            stats = entry["stats64"]
            received = dict(stats["rx"])
            received["errors"] += lost.get(device, 0)
            up = entry["operstate"] == "UP"
            name = ports.get(device, device)
            found.append(
                Link(name, device in ports, up, entry["mtu"], addresses, received, stats["tx"])
            )
        return found

    def peers(self) -> list[Peer]:
        summary = self._frr("show bgp summary json").get("ipv4Unicast", {})
        return [
            Peer(address, int(peer["remoteAs"]), str(peer["state"]).split(" ")[0])
            for address, peer in summary.get("peers", {}).items()
        ]

    def asn(self) -> int:
        return int(self._frr("show bgp summary json").get("ipv4Unicast", {}).get("as", 0))

    def routes(self) -> dict[str, list[tuple[str, str]]]:
        """Gateways and ports of the routes that BGP installed, by network."""
        names = {port.device: port.name for port in self.hardware.ports}
        found: dict[str, list[tuple[str, str]]] = {}
        for network, routes in self._frr("show ip route bgp json").items():
            for route in routes:
                for hop in route["nexthops"] if route.get("selected") else ():
                    if hop.get("fib"):
                        device = hop["interfaceName"]
                        found.setdefault(network, []).append((hop["ip"], names.get(device, device)))
        return found

    def _frr(self, command: str) -> dict[str, Any]:
        answer = json.loads(self.run(["vtysh", "-c", command]) or "{}")
        return dict(answer)
