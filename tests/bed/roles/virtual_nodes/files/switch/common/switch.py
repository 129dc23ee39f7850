# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hardware of a simulated switch: its name, ASIC, ports, and the peers of the ports."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .state import Faults


def natural(text: str) -> list[Any]:
    """Sort key that puts Ethernet2/1 before Ethernet10/1."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)
    ]


@dataclass(frozen=True)
class Port:
    name: str
    speed_gbps: int
    peer: str
    """Host name of the peer. Empty: nothing is plugged in, and the link is down."""
    peer_interface: str
    peer_mac: Optional[str]
    """Set if the peer announces its MAC address by LLDP, as the firmware of a NIC does."""
    device: str = ""
    """Interface of the container that carries the port's traffic, if there is one."""


@dataclass(frozen=True)
class Heard:
    """LLDP neighbour of a port."""

    system: str
    port: str
    is_mac: bool


@dataclass(frozen=True)
class Hardware:
    name: str
    system: str
    asic: str
    release: str
    """Software release. Empty: the newest that the simulation supports."""
    ports: tuple[Port, ...]
    step_s: float = 0.04
    """Duration of each step of an apply."""

    overlays: bool = False
    """NVUE: whether configured queues are added to the vendor's. No release documents this, so
    both variants can be tested."""
    ranges: bool = False
    """NVUE: whether reading a configuration combines like objects in one key, as `nv config
    show` does. No documented REST response has several such objects, so both variants can be
    tested."""

    queue: str = "tx-queue"
    """EOS: keyword for a unicast queue, which depends on the ASIC."""

    def port(self, name: str) -> Optional[Port]:
        return next((port for port in self.ports if port.name == name), None)

    def neighbours(self, faults: Faults) -> dict[str, Heard]:
        """Neighbours by port, including the swapped cables of the faults."""
        heard = {}
        swapped = faults.lldp
        for port in self.ports:
            other = swapped.get(port.name)
            if other is not None:
                name = str(other.get("port", ""))
                if name:
                    heard[port.name] = Heard(str(other.get("system", "")), name, ":" in name)
            elif port.peer_mac:
                heard[port.name] = Heard("", port.peer_mac.lower(), True)
            elif port.peer:
                heard[port.name] = Heard(port.peer, port.peer_interface, False)
        return heard


def read(path: Path) -> Hardware:
    given: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return Hardware(
        name=given["name"],
        system=given["system"],
        asic=given.get("asic") or "",
        release=str(given.get("release") or ""),
        ports=tuple(
            Port(
                name=port["name"],
                speed_gbps=int(port["speed_gbps"]),
                peer=port.get("peer") or "",
                peer_interface=port.get("peer_interface") or "",
                peer_mac=port.get("peer_mac"),
                device=port.get("device") or "",
            )
            for port in given["ports"]
        ),
        step_s=float(given.get("step_s", Hardware.step_s)),
        overlays=bool(given.get("overlays", Hardware.overlays)),
        ranges=bool(given.get("ranges", Hardware.ranges)),
        queue=str(given.get("queue", Hardware.queue)),
    )
