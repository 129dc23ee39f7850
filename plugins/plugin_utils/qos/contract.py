# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS contract that both ends of every link keep: how packets are marked, which are lossless.

`rules.read_contract` validates what an operator wrote; `contract_of` trusts what the model made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Optional, Union

from ...module_utils.core.dataclass import dataclass

ECT0 = 0b10
"""ECN-capable transport: without it switches drop a packet where they would have marked it."""

TRUST = "dscp"
"""What NICs and switches sort packets by: routed links have no VLAN tag that carries a priority."""

PRIORITIES = 8
DSCPS = 64


FRAME_OVERHEAD = 18
"""Ethernet header (14) and checksum (4) around an IP packet; routed links carry no VLAN tag."""

ROCE_OVERHEAD = 96
"""What the kernel reserves in an IP packet around RoCE payload, whatever the packet: IPv6 (40), UDP
(8), base transport (12), XRC (4) and atomic (28) headers, checksum (4). So a netdev has the path
MTU 4096 from 4192 bytes on."""

PATH_MTUS = (256, 512, 1024, 2048, 4096)


def needed_ip_mtu(path_mtu: int) -> int:
    """The smallest IP MTU that carries RoCE packets of this path MTU."""
    return path_mtu + ROCE_OVERHEAD


def traffic_class_of(dscp: int) -> int:
    """The byte of the IP header (TOS, traffic class) of an ECN-capable packet with this DSCP."""
    return dscp << 2 | ECT0


@dataclass(frozen=True)
class RoceClass:
    """RoCE data: the lossless class, the only one with PFC."""

    dscp: int
    priority: int
    traffic_class: int
    """0..7, the queue of a port. The byte of the IP header is `Contract.traffic_class_byte`."""
    bandwidth_percent: int


@dataclass(frozen=True)
class CnpClass:
    """Congestion notification packets: lossy, strict, ahead of what they slow down."""

    dscp: int
    priority: int
    traffic_class: int
    strict: bool = True


@dataclass(frozen=True)
class BestEffort:
    """Every packet whose DSCP no class names."""

    priority: int
    traffic_class: int
    bandwidth_percent: int


@dataclass(frozen=True)
class FurtherClass:
    """A lossy class of the site's own, for storage say."""

    name: str
    dscps: tuple[int, ...]
    priority: int
    traffic_class: int
    bandwidth_percent: int


@dataclass(frozen=True)
class ForwardingClass:
    """Any of the classes above, as a port sees it: which packets, which queue, how served."""

    name: str
    """`roce`, `cnp`, `best_effort`, or that of a further class."""
    dscps: tuple[int, ...]
    priority: int
    traffic_class: int
    bandwidth_percent: Optional[int]
    """None: strict, served before all that have a share."""
    lossless: bool


def _forwarding(
    name: str,
    entry: Union[RoceClass, CnpClass, BestEffort, FurtherClass],
    dscps: Iterable[int],
    share: Optional[int],
    lossless: bool = False,
) -> ForwardingClass:
    return ForwardingClass(name, tuple(dscps), entry.priority, entry.traffic_class, share, lossless)


@dataclass(frozen=True)
class Ecn:
    """Queue lengths of the RoCE class between which a switch marks, and the share it marks."""

    minimum_bytes: int
    maximum_bytes: int
    probability_percent: int


@dataclass(frozen=True)
class Watchdog:
    """What a switch does about a queue that PFC holds for too long."""

    enabled: bool
    detection_ms: int
    restoration_ms: int
    action: str


@dataclass(frozen=True)
class Pfc:
    xoff_bytes: Optional[int]
    """Queue length at which a switch sends a pause; None where the buffer decides as it fills."""
    watchdog: Watchdog


@dataclass(frozen=True)
class Mtu:
    fabric: int
    fabric_layer: str
    """`frame`: `fabric` counts the Ethernet frame. `ip`: it counts the IP packet."""
    roce_path: int

    @property
    def fabric_ip(self) -> int:
        """The largest IP packet that the fabric carries."""
        return self.fabric if self.fabric_layer == "ip" else self.fabric - FRAME_OVERHEAD

    @property
    def fabric_frame(self) -> int:
        """The same packet as an Ethernet frame."""
        return self.fabric_ip + FRAME_OVERHEAD


@dataclass(frozen=True)
class Cables:
    """The longest cable of each kind, in metres: its content needs room after a pause."""

    to_nodes: int
    between_switches: int


@dataclass(frozen=True)
class CongestionControl:
    """DCQCN in the NICs: the receiver notifies the sender of marks, the sender reacts."""

    notification_point: bool
    reaction_point: bool

    @property
    def on(self) -> bool:
        return self.notification_point and self.reaction_point


@dataclass(frozen=True)
class Contract:
    roce: RoceClass
    cnp: CnpClass
    best_effort: BestEffort
    classes: tuple[FurtherClass, ...]
    ecn: Ecn
    pfc: Pfc
    mtu: Mtu
    cable_metres: Cables
    congestion_control: CongestionControl

    @property
    def forwarding(self) -> tuple[ForwardingClass, ...]:
        """Every class, in the order of traffic classes, as NICs and switches sort packets."""
        roce, cnp, best_effort = self.roce, self.cnp, self.best_effort
        rest = set(range(DSCPS)) - {roce.dscp, cnp.dscp}
        rest -= {dscp for entry in self.classes for dscp in entry.dscps}
        classes = [
            _forwarding("roce", roce, (roce.dscp,), roce.bandwidth_percent, lossless=True),
            _forwarding("cnp", cnp, (cnp.dscp,), None),
            _forwarding("best_effort", best_effort, sorted(rest), best_effort.bandwidth_percent),
        ]
        for entry in self.classes:
            classes.append(_forwarding(entry.name, entry, entry.dscps, entry.bandwidth_percent))
        return tuple(sorted(classes, key=lambda entry: entry.traffic_class))

    def as_variable(self) -> dict[str, Any]:
        """The value of `roce_qos` with nothing left out; reading it gives this contract again."""
        value = asdict(self)
        value["classes"] = [{**entry, "dscps": list(entry["dscps"])} for entry in value["classes"]]
        return value

    @property
    def traffic_class_byte(self) -> int:
        """The byte of the IP header that RoCE data carries."""
        return traffic_class_of(self.roce.dscp)


def contract_of(value: Mapping[str, Any]) -> Contract:
    """The contract of a complete value, such as the compiled variable `roce_qos`: trusted."""
    pfc = value["pfc"]
    return Contract(
        roce=RoceClass(**value["roce"]),
        cnp=CnpClass(**value["cnp"]),
        best_effort=BestEffort(**value["best_effort"]),
        classes=tuple(
            FurtherClass(**{**entry, "dscps": tuple(entry["dscps"])}) for entry in value["classes"]
        ),
        ecn=Ecn(**value["ecn"]),
        pfc=Pfc(pfc["xoff_bytes"], Watchdog(**pfc["watchdog"])),
        mtu=Mtu(**value["mtu"]),
        cable_metres=Cables(**value["cable_metres"]),
        congestion_control=CongestionControl(**value["congestion_control"]),
    )
