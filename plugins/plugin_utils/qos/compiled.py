# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract compiled for switch ports and NICs, independent of vendors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from ...module_utils.qos import QUEUE_PAIRS, ROCE, HostSettings, TrafficClass
from .contract import (
    DSCPS,
    PRIORITIES,
    TRUST,
    BestEffort,
    Cables,
    CnpClass,
    Contract,
    Ecn,
    FurtherClass,
    RoceClass,
)

LOSSY_PRIORITY_GROUP = 0


@dataclass(frozen=True)
class Queue:
    """A class of the contract as an egress queue, whose number is its traffic class."""

    name: str
    """`roce`, `cnp`, `best_effort`, or the name of a further class."""
    traffic_class: int
    priority: int
    priority_group: int
    """Ingress buffer. A lossless class has a separate one, numbered as its priority."""
    dscps: tuple[int, ...]
    lossless: bool
    strict: bool
    weight_percent: int
    ecn: Optional[Ecn]


@dataclass(frozen=True)
class PfcWatchdog:
    enabled: bool
    poll_ms: int
    """Half of `detection_ms`: some systems refuse longer intervals."""
    detection_ms: int
    restoration_ms: int
    action: str


@dataclass(frozen=True)
class FabricIntent:
    fabric_mode: str
    trust: str
    queues: tuple[Queue, ...]
    dscp_to_traffic_class: tuple[int, ...]
    pfc_priorities: tuple[int, ...]
    xoff_bytes: Optional[int]
    """None if the switch decides by its free buffer."""
    pool_percent: Optional[int]
    """None for the switch's default."""
    watchdog: PfcWatchdog
    mtu_ip: int
    mtu_frame: int
    """Of an Ethernet frame, with header and checksum, without VLAN tag."""
    cable_metres: Cables

    def queue(self, name: str) -> Queue:
        return next(queue for queue in self.queues if queue.name == name)


def fabric_intent(contract: Contract) -> FabricIntent:
    queues = _queues(contract)
    to_class = {dscp: queue.traffic_class for queue in queues for dscp in queue.dscps}
    watchdog, paused = contract.pfc.watchdog, _paused(contract)
    return FabricIntent(
        fabric_mode=contract.fabric_mode,
        trust=TRUST,
        queues=queues,
        dscp_to_traffic_class=tuple(to_class[dscp] for dscp in range(DSCPS)),
        pfc_priorities=paused,
        xoff_bytes=contract.pfc.xoff_bytes,
        pool_percent=contract.pfc.pool_percent,
        watchdog=PfcWatchdog(
            poll_ms=watchdog.detection_ms // 2,
            # Without pauses, no queue can be blocked by them.
            **{**vars(watchdog), "enabled": watchdog.enabled and bool(paused)},
        ),
        mtu_ip=contract.mtu.fabric_ip,
        mtu_frame=contract.mtu.fabric_frame,
        cable_metres=contract.cable_metres,
    )


def _paused(contract: Contract) -> tuple[int, ...]:
    return tuple(sorted(entry.priority for entry in contract.lossless_classes))


def _queues(contract: Contract) -> tuple[Queue, ...]:
    roce, cnp, further = contract.roce, contract.cnp, contract.classes
    ecn = contract.ecn if contract.dcqcn else None
    marked = {*contract.roce_dscps, cnp.dscp, *(dscp for entry in further for dscp in entry.dscps)}
    unmarked = tuple(dscp for dscp in range(DSCPS) if dscp not in marked)
    queues = [
        _queue(
            "roce",
            roce,
            contract.roce_dscps,
            roce.bandwidth_percent,
            lossless=roce.lossless,
            ecn=ecn,
        ),
        _queue("cnp", cnp, (cnp.dscp,), 0),
        _queue(
            "best_effort", contract.best_effort, unmarked, contract.best_effort.bandwidth_percent
        ),
        *(
            _queue(
                each.name,
                each,
                each.dscps,
                each.bandwidth_percent,
                lossless=each.lossless,
                ecn=ecn if each.lossless else None,
            )
            for each in further
        ),
    ]
    return tuple(sorted(queues, key=lambda queue: queue.traffic_class))


def _queue(
    name: str,
    entry: Union[RoceClass, CnpClass, BestEffort, FurtherClass],
    dscps: tuple[int, ...],
    share: int,
    *,
    lossless: bool = False,
    ecn: Optional[Ecn] = None,
) -> Queue:
    """A class without a share is strict."""
    return Queue(
        name=name,
        traffic_class=entry.traffic_class,
        priority=entry.priority,
        priority_group=entry.priority if lossless else LOSSY_PRIORITY_GROUP,
        dscps=dscps,
        lossless=lossless,
        strict=share == 0,
        weight_percent=share,
        ecn=ecn,
    )


def host_settings(contract: Contract, leaf_sets: int = 1) -> HostSettings:
    """`leaf_sets`: number of leaf sets of the fabric, between which packets cross spines."""
    dscp_to_priority = {}
    # Priorities without a class, which only a VLAN tag can carry, are best effort.
    priority_to_tc = [contract.best_effort.traffic_class] * PRIORITIES
    ets = [TrafficClass("ets", 0)] * PRIORITIES
    for queue in _queues(contract):
        dscp_to_priority.update(dict.fromkeys(queue.dscps, queue.priority))
        priority_to_tc[queue.priority] = queue.traffic_class
        tsa = "strict" if queue.strict else "ets"
        ets[queue.traffic_class] = TrafficClass(tsa, queue.weight_percent)
    congestion_control = contract.dcqcn and contract.congestion_control.reaction_point
    marked = tuple(sorted({contract.roce.priority, *_paused(contract)}))
    return HostSettings(
        fabric_mode=contract.fabric_mode,
        trust=TRUST,
        dscp_to_priority=dict(sorted(dscp_to_priority.items())),
        priority_to_tc=tuple(priority_to_tc),
        ets=tuple(ets),
        pfc_priorities=_paused(contract),
        traffic_class=contract.traffic_class_byte,
        service_level=contract.roce.priority,
        cnp_dscp=contract.cnp.dscp,
        cnp_priority=contract.cnp.priority,
        ecn_priorities=marked if congestion_control else (),
        roce_mtu=contract.mtu.roce_path,
        cable_metres=contract.cable_metres.to_nodes,
        # Adaptive routing of Spectrum-X distributes the packets of each queue pair.
        queue_pairs=QUEUE_PAIRS if leaf_sets > 1 and contract.fabric_mode == ROCE else 1,
    )
