# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a NIC is set to so that it keeps the contract."""

from __future__ import annotations

from ..core.dataclass import dataclass
from .contract import PRIORITIES, TRUST, Contract


@dataclass(frozen=True)
class TrafficClass:
    """How one traffic class (0..7) of a port is served."""

    tsa: str
    """`strict` or `ets`, as IEEE 802.1Qaz names it."""
    percent: int
    """Share of the port's bandwidth; 0 for `strict`, and for classes that nothing is mapped to."""


@dataclass(frozen=True)
class HostSettings:
    trust: str
    """`dscp`: packets are sorted by DSCP and not by VLAN tag."""
    dscp_to_priority: dict[int, int]
    """All 64."""
    priority_to_tc: tuple[int, ...]
    """Place = priority, 8 of them."""
    ets: tuple[TrafficClass, ...]
    """Place = traffic class, 8 of them; percents sum to 100."""
    pfc_priorities: tuple[int, ...]
    traffic_class: int
    """The byte of the IP header (TOS), 0..255: DSCP << 2 | ECT(0)."""
    cnp_dscp: int
    cnp_priority: int
    ecn_priorities: tuple[int, ...]
    """Priorities on which NICs send notifications and react to them; empty: on none."""
    roce_mtu: int
    """The path MTU: what `active_mtu` of every RDMA port has to be."""


def host_settings(contract: Contract) -> HostSettings:
    dscp_to_priority = {}
    # Priorities that no class has, which only a VLAN tag could name, are best effort.
    priority_to_tc = [contract.best_effort.traffic_class] * PRIORITIES
    ets = [TrafficClass("ets", 0)] * PRIORITIES
    for entry in contract.forwarding:
        dscp_to_priority.update(dict.fromkeys(entry.dscps, entry.priority))
        priority_to_tc[entry.priority] = entry.traffic_class
        share = entry.bandwidth_percent
        ets[entry.traffic_class] = TrafficClass("strict" if share is None else "ets", share or 0)
    return HostSettings(
        trust=TRUST,
        dscp_to_priority=dict(sorted(dscp_to_priority.items())),
        priority_to_tc=tuple(priority_to_tc),
        ets=tuple(ets),
        pfc_priorities=tuple(entry.priority for entry in contract.forwarding if entry.lossless),
        traffic_class=contract.traffic_class_byte,
        cnp_dscp=contract.cnp.dscp,
        cnp_priority=contract.cnp.priority,
        ecn_priorities=(contract.roce.priority,) if contract.congestion_control.on else (),
        roce_mtu=contract.mtu.roce_path,
    )
