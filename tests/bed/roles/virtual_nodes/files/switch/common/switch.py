# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a simulated switch is: its name, chip, ports, and what is plugged into them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .state import Faults


def natural(text: str) -> list[Any]:
    """Ethernet2/1 before Ethernet10/1."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)
    ]


@dataclass(frozen=True)
class Port:
    name: str
    speed_gbps: int
    peer: str
    """Host name at the other end; empty: nothing is plugged in, and the link is down."""
    peer_interface: str
    peer_mac: Optional[str]
    """Set where the other end announces its MAC address by LLDP, as the firmware of a NIC does."""


@dataclass(frozen=True)
class Heard:
    """What LLDP hears on a port."""

    system: str
    port: str
    is_mac: bool


@dataclass(frozen=True)
class Hardware:
    name: str
    system: str
    asic: str
    release: str
    """Of the software; empty: the newest that the simulation knows."""
    ports: tuple[Port, ...]
    step_s: float = 0.04
    """How long each of the steps takes that an apply consists of."""

    overlays: bool = False
    """NVUE: whether queues that are listed add to those of the vendor. It is documented for no
    releases, so both can be tried."""
    ranges: bool = False
    """NVUE: whether a configuration that is read names like objects in one key, as `nv config show`
    does. No document shows a REST answer with several, so both can be tried."""

    queue: str = "tx-queue"
    """EOS: what its chip calls a unicast queue."""

    def port(self, name: str) -> Optional[Port]:
        return next((port for port in self.ports if port.name == name), None)

    def neighbours(self, faults: Faults) -> dict[str, Heard]:
        """By port, with the swapped cables that the faults ask for."""
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
            )
            for port in given["ports"]
        ),
        step_s=float(given.get("step_s", Hardware.step_s)),
        overlays=bool(given.get("overlays", Hardware.overlays)),
        ranges=bool(given.get("ranges", Hardware.ranges)),
        queue=str(given.get("queue", Hardware.queue)),
    )
