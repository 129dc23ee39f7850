# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS contract of both ends of every link, with the kinds, defaults and help of `roce_qos`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional, Union

from ...module_utils.qos import IP_MTU_LIMITS, ROCE, SPECTRUM_X
from ..schema import meant
from ..schema.kinds import (
    Boolean,
    Integer,
    Invalid,
    ListOf,
    OneOf,
    OrNull,
    Text,
    build,
    key,
    section_of,
)

VARIABLE = "roce_qos"

ECT0 = 0b10
"""ECN-capable transport: without it, switches drop packets instead of marking them."""

ROCE_DSCP = {ROCE: 26, SPECTRUM_X: 24}
"""Default DSCP by mode. Spectrum-X: TOS 96, DSCP 24 without ECT, as NVIDIA's operator set it for
RA2.0 (Mellanox/nic-configuration-operator 7df40d52, 2025-10-31, bindata/spectrum-x/RA2.0.yaml).
"""

LOSSLESS_POOL_PERCENT = {SPECTRUM_X: 90}
"""Default share by mode, as in NVIDIA's template for a SuperPOD with Spectrum-X and Cumulus Linux
5.16.1 (NVIDIA/nv-config-manager 50d4d776, qos.j2)."""

TRUST = "dscp"
"""How NICs and switches classify packets: routed links have no VLAN tag with a priority."""

PRIORITIES = 8
DSCPS = 64

FRAME, IP = "frame", "ip"
FRAME_OVERHEAD = 18
"""Ethernet header (14) and checksum (4) around an IP packet; routed links carry no VLAN tag."""

ROCE_OVERHEAD = 96
"""Bytes that the kernel reserves around RoCE payload in every IP packet: IPv6 (40), UDP (8), base
transport (12), XRC (4) and atomic (28) headers, checksum (4)."""

PATH_MTUS = (256, 512, 1024, 2048, 4096)

_LOSSLESS = "PFC is a property of a class: write roce.lossless, or lossless in one of classes"
_OF_PAUSES = tuple((name, _LOSSLESS) for name in ("enabled", "enable", "priorities", "priority"))
_OF_CLASSES = (
    *((name, "Write lossless: true or false") for name in ("pfc", "no_drop", "lossy")),
    ("ecn", "Write roce_qos.ecn: RoCE data and lossless classes have it"),
)
_OF_MODES = (
    ("lossy", "Write roce: {lossless: false}"),
    ("lossless", "Leave it out: RoCE data is lossless by default"),
)


@dataclass(frozen=True)
class _Dscp(Integer):
    def convert(self, value: Any) -> Any:
        try:
            return super().convert(value)
        except Invalid as error:
            if number := meant.dscp(value):
                what = "a TOS byte, not a DSCP"
                what = what if isinstance(value, int) else "the name of a DSCP, not its number"
                problem = f"{value!r} is {what}"
                raise Invalid("qos.dscp_number", problem, f"Write {number}") from error
            raise


_DSCP = _Dscp(1, DSCPS - 1)  # 0 is the DSCP of all unmarked packets
_PRIORITY = Integer(0, PRIORITIES - 1)
_SHARE = Integer(1, 100, "percent")
_BYTES = Integer(1024, 1 << 30, "bytes")
_METRES = Integer(1, 2000, "metres")


def _traffic_class() -> Any:
    return key(
        Integer(0, 7),
        "Queue of a port that serves it (802.1Q traffic class, not the byte of the IP header).",
        default_text="the number of its priority",
    )


@dataclass(frozen=True)
class RoceClass:
    """RoCE data, with ECN marking."""

    dscp: int = key(
        _DSCP,
        "DSCP of RoCE data.",
        default_text=f"`{ROCE_DSCP[ROCE]}`, Spectrum-X `{ROCE_DSCP[SPECTRUM_X]}`",
    )
    also_dscps: tuple[int, ...] = key(
        ListOf(_DSCP, "DSCPs"),
        "Further DSCPs of the same class, with which nothing is sent: the previous or the next one "
        "during a [change](qos-contract.md#another-dscp).",
        [],
    )
    priority: int = key(_PRIORITY, "802.1p priority of RoCE; PFC is enabled on it.", 3)
    traffic_class: int = _traffic_class()
    bandwidth_percent: int = key(_SHARE, "Share of a congested port.", 50)
    lossless: bool = key(
        Boolean(), "False: without PFC ([lossy RoCE](qos-contract.md#lossless-classes)).", True
    )


@dataclass(frozen=True)
class CnpClass:
    """Congestion notification packets, which slow senders down: lossy, and strict, so that they
    never wait behind the queue that they report."""

    dscp: int = key(_DSCP, "DSCP of CNP.", 48)
    priority: int = key(_PRIORITY, "802.1p priority of CNP.", 6)
    traffic_class: int = _traffic_class()


@dataclass(frozen=True)
class BestEffort:
    """Packets with a DSCP of no class, and packets without a DSCP."""

    priority: int = key(_PRIORITY, "802.1p priority of best effort.", 0)
    traffic_class: int = _traffic_class()
    bandwidth_percent: int = key(_SHARE, "Share of a congested port.", default_text="the remainder")


@dataclass(frozen=True)
class FurtherClass:
    """A further class, for example for storage."""

    name: str = key(
        Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "storage", 20),
        "Name of the class.",
        required=True,
    )
    dscps: tuple[int, ...] = key(
        ListOf(_DSCP, "DSCPs", least=1), "DSCPs of the class.", required=True
    )
    priority: int = key(_PRIORITY, "802.1p priority of the class.", required=True)
    traffic_class: int = _traffic_class()
    bandwidth_percent: int = key(_SHARE, "Share of a congested port.", required=True)
    lossless: bool = key(
        Boolean(),
        "[PFC and ECN marking](qos-contract.md#lossless-classes) as for RoCE data.",
        False,
    )


@dataclass(frozen=True)
class Ecn:
    """ECN marking of RoCE data: queue lengths, and the share of packets at the upper one."""

    # Defaults of Cumulus Linux for lossless RoCE. No vendor has published a rule for 800G.
    minimum_bytes: int = key(_BYTES, "Queue length at which marking begins.", 150_000)
    maximum_bytes: int = key(
        _BYTES,
        "Queue length from which every packet is marked. Must be below the PFC point.",
        1_500_000,
    )
    probability_percent: int = key(_SHARE, "Share of packets marked just below the maximum.", 100)


@dataclass(frozen=True)
class Watchdog:
    """Action of a switch for a queue that pause frames block for too long."""

    enabled: bool = key(Boolean(), "Whether the watchdog is enabled.", True)
    detection_ms: int = key(
        Integer(200, 5000, "milliseconds"), "Time after which a blocked queue counts as stuck.", 200
    )
    restoration_ms: int = key(
        Integer(200, 60_000, "milliseconds"),
        "Time without pauses after which a stuck queue is served again.",
        400,
    )
    action: str = key(
        OneOf(("drop", "forward", "alert")),
        "What happens to packets of a stuck queue; `alert` only reports it.",
        "drop",
    )


@dataclass(frozen=True)
class Pfc:
    """Pauses of lossless classes, the last resort if marking is not enough."""

    xoff_bytes: Optional[int] = key(
        OrNull(_BYTES),
        "Queue length at which a switch sends a pause; ECN thresholds must be lower. Null: the "
        "switch decides by its free buffer.",
    )
    pool_percent: Optional[int] = key(
        OrNull(Integer(1, 99, "percent")),
        "Share of the buffer for lossless classes, on switches that divide it into pools; other "
        "traffic gets the rest. Null: the default of the switch.",
        default_text=f"null; Spectrum-X `{LOSSLESS_POOL_PERCENT[SPECTRUM_X]}`",
    )
    watchdog: Watchdog = key(section_of(Watchdog, "roce_qos.pfc.watchdog"), "Stuck queues.")


@dataclass(frozen=True)
class Mtu:
    """Sizes of packets. The layer defines what the fabric's MTU counts."""

    fabric: int = key(
        Integer(IP_MTU_LIMITS[0] + FRAME_OVERHEAD, 10_240, "bytes"),
        "MTU of every switch port.",
        9216,
    )
    fabric_layer: str = key(
        OneOf((FRAME, IP)),
        "`frame`: the whole Ethernet frame, 18 bytes more than the IP packet in it. `ip`: the IP "
        "packet, as `rails.mtu` counts.",
        FRAME,
    )
    roce_path: int = key(
        OneOf(PATH_MTUS),
        "RoCE payload of one packet, in bytes. An IP packet is up to 96 bytes larger.",
        default_text=f"`{PATH_MTUS[-1]}`, or the largest that rails and fabric carry",
    )

    @property
    def fabric_ip(self) -> int:
        return self.fabric if self.fabric_layer == IP else self.fabric - FRAME_OVERHEAD

    @property
    def fabric_frame(self) -> int:
        return self.fabric_ip + FRAME_OVERHEAD


@dataclass(frozen=True)
class Cables:
    """The longest cables, which determine the buffer for packets in flight after a pause."""

    # A guess on the long side: too long a value costs buffer, too short a value loses packets.
    to_nodes: int = key(_METRES, "From a leaf to a node.", 50)
    between_switches: int = key(_METRES, "From a leaf to a spine.", 100)


@dataclass(frozen=True)
class CongestionControl:
    """DCQCN in the NICs, on the RoCE priority. Set both to false if another algorithm runs."""

    notification_point: bool = key(
        Boolean(), "The receiver answers a marked packet with a CNP.", True
    )
    reaction_point: bool = key(Boolean(), "The sender slows down on a CNP.", True)


@dataclass(frozen=True)
class Contract:
    """The QoS contract of RoCE traffic, for NICs, MPI and switches alike:
    [qos-contract.md](qos-contract.md)."""

    fabric_mode: str = key(
        OneOf((ROCE, SPECTRUM_X), _OF_MODES),
        "DCQCN, or [Spectrum-X](qos-contract.md#spectrum-x) without `ecn` and "
        "`congestion_control`.",
        ROCE,
    )
    roce: RoceClass = key(section_of(RoceClass, "roce_qos.roce", _OF_CLASSES), "RoCE data.")
    cnp: CnpClass = key(section_of(CnpClass, "roce_qos.cnp"), "Congestion notification packets.")
    best_effort: BestEffort = key(
        section_of(BestEffort, "roce_qos.best_effort"), "Everything else."
    )
    classes: tuple[FurtherClass, ...] = key(
        ListOf(section_of(FurtherClass, "roce_qos.classes", _OF_CLASSES)), "Further classes.", []
    )
    ecn: Ecn = key(section_of(Ecn, "roce_qos.ecn"), "Marking in switches.")
    pfc: Pfc = key(section_of(Pfc, "roce_qos.pfc", _OF_PAUSES), "Pauses, and their watchdog.")
    mtu: Mtu = key(section_of(Mtu, "roce_qos.mtu"), "Sizes of packets.")
    cable_metres: Cables = key(section_of(Cables, "roce_qos.cable_metres"), "Lengths of cables.")
    congestion_control: CongestionControl = key(
        section_of(CongestionControl, "roce_qos.congestion_control"), "DCQCN."
    )

    def as_variable(self) -> dict[str, Any]:
        """The complete value of `roce_qos`, from which `contract_of` rebuilds the contract."""
        value = asdict(self)
        value["roce"]["also_dscps"] = list(self.roce.also_dscps)
        value["classes"] = [{**entry, "dscps": list(entry["dscps"])} for entry in value["classes"]]
        for entry, usual in ((value["roce"], True), *((each, False) for each in value["classes"])):
            if entry["lossless"] is usual:
                del entry["lossless"]  # a model without the key compiles to the same as before it
        return value

    @property
    def lossless_classes(self) -> tuple[Union[RoceClass, FurtherClass], ...]:
        entries: tuple[Union[RoceClass, FurtherClass], ...] = (self.roce, *self.classes)
        return tuple(entry for entry in entries if entry.lossless)

    @property
    def roce_dscps(self) -> tuple[int, ...]:
        """Sorted, so that moving between DSCPs changes nothing on switches."""
        return tuple(sorted({self.roce.dscp, *self.roce.also_dscps}))

    @property
    def dcqcn(self) -> bool:
        return self.fabric_mode == ROCE

    @property
    def traffic_class_byte(self) -> int:
        return self.roce.dscp << 2 | (ECT0 if self.dcqcn else 0)


CONTRACT = section_of(Contract, VARIABLE)


def contract_of(value: Mapping[str, Any]) -> Contract:
    """For a complete, trusted value, such as the compiled variable `roce_qos`."""
    contract: Contract = build(CONTRACT, value)
    return contract


def needed_ip_mtu(path_mtu: int) -> int:
    return path_mtu + ROCE_OVERHEAD


def largest_path_mtu(ip_mtu: int) -> int:
    return max(size for size in PATH_MTUS if needed_ip_mtu(size) <= ip_mtu)
