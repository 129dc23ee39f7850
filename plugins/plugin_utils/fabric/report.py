# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch says of itself, in the terms of the contract and of no system."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ..qos.compiled import PfcWatchdog


@dataclass(frozen=True)
class Neighbour:
    """What LLDP heard on a port."""

    system: str
    """Host name; empty where the sender does not say one, as a NIC's firmware does not."""
    port: str
    """Port id: an interface name, or a MAC address in lower case with colons."""


@dataclass(frozen=True)
class EcnReport:
    minimum_bytes: int
    maximum_bytes: int
    probability_percent: int


@dataclass(frozen=True)
class PortReport:
    """One port. None means that the switch does not say: that is not the same as off."""

    name: str
    present: bool
    """False: the switch has no such port, and nothing else here is known."""
    up: Optional[bool] = None
    speed_gbps: Optional[int] = None
    mtu_ip: Optional[int] = None
    """Largest IP packet, however the system counts."""
    trust: Optional[str] = None
    """`dscp`, `pcp` or `none`."""
    dscp_to_traffic_class: Optional[tuple[int, ...]] = None
    """Place = DSCP, 64 of them."""
    pfc_priorities: Optional[tuple[int, ...]] = None
    lossless_priorities: Optional[tuple[int, ...]] = None
    """Those with a buffer that is lossless: PFC without one drops."""
    strict_queues: Optional[tuple[int, ...]] = None
    weights: Optional[dict[int, int]] = None
    """Per cent or weight of each queue that is not strict."""
    ecn: Optional[dict[int, EcnReport]] = None
    """By queue; a queue that is not in it does not mark."""
    cable_metres: Optional[int] = None
    headroom_bytes: Optional[int] = None
    """Room after XOFF (xoff) of the lossless priority group."""
    watchdog: Optional[PfcWatchdog] = None
    neighbour: Optional[Neighbour] = None
    alias: str = ""
    """Another name by which it announces itself to neighbours (LLDP), where there is one."""


@dataclass(frozen=True)
class SwitchReport:
    switch: str
    system: str
    version: str
    """As the switch says it; holds the word `simulation` where it is one."""
    ports: tuple[PortReport, ...]
    lldp: bool
    """Whether neighbours could be read at all."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form, as the module returns it."""
        return asdict(self)
