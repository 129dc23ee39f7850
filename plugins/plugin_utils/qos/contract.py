# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QoS contract that both ends of every link keep: how packets are marked, which are lossless.

Fields are the keys of `roce_qos`: their kinds, defaults and help serve validation, messages and the
docs. The defaults are the contract of a site that writes none, and stand only here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Optional

from ...module_utils.qos import IP_MTU_LIMITS, ROCE, SPECTRUM_X
from ..schema.kinds import Boolean, Integer, ListOf, OneOf, OrNull, Text, build, key, section_of

VARIABLE = "roce_qos"

ECT0 = 0b10
"""ECN-capable transport: without it switches drop a packet where they would have marked it."""

ROCE_DSCP = {ROCE: 26, SPECTRUM_X: 24}
"""By mode. Spectrum-X: TOS 96, DSCP 24 without ECT, as NVIDIA's operator set it for RA2.0
(Mellanox/nic-configuration-operator 7df40d52, 2025-10-31, bindata/spectrum-x/RA2.0.yaml)."""

LOSSLESS_POOL_PERCENT = {SPECTRUM_X: 90}
"""By mode, as NVIDIA's template for a SuperPOD with Spectrum-X and Cumulus Linux 5.16.1 has it:
roce-lossless 90, default-lossy 10 (NVIDIA/nv-config-manager 50d4d776, qos.j2). Without a setting
`qos roce` divides the buffer by half."""

TRUST = "dscp"
"""What NICs and switches sort packets by: routed links have no VLAN tag that carries a priority."""

PRIORITIES = 8
DSCPS = 64

FRAME, IP = "frame", "ip"
FRAME_OVERHEAD = 18
"""Ethernet header (14) and checksum (4) around an IP packet; routed links carry no VLAN tag."""

ROCE_OVERHEAD = 96
"""What the kernel reserves in an IP packet around RoCE payload, whatever the packet: IPv6 (40), UDP
(8), base transport (12), XRC (4) and atomic (28) headers, checksum (4). So a netdev has the path
MTU 4096 from 4192 bytes on."""

PATH_MTUS = (256, 512, 1024, 2048, 4096)

_DSCP = Integer(1, DSCPS - 1)  # 0 is the DSCP of every unmarked packet
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
    """RoCE data: lossless, marked by ECN. The only class with PFC."""

    dscp: int = key(
        _DSCP,
        "Its DSCP.",
        default_text=f"`{ROCE_DSCP[ROCE]}`, Spectrum-X `{ROCE_DSCP[SPECTRUM_X]}`",
    )
    also_dscps: tuple[int, ...] = key(
        ListOf(_DSCP, "DSCPs"),
        "DSCPs that switches and NICs put into the same class, and that nothing is sent with: the "
        "former or the next one while it [changes](qos-contract.md#another-dscp).",
        [],
    )
    priority: int = key(_PRIORITY, "Its priority; PFC is on here.", 3)
    traffic_class: int = _traffic_class()
    bandwidth_percent: int = key(_SHARE, "Its share of a full port.", 50)


@dataclass(frozen=True)
class CnpClass:
    """Congestion notification packets, which slow senders down: lossy, and strict, so that they
    never wait behind the queue that they are about."""

    dscp: int = key(_DSCP, "Their DSCP.", 48)
    priority: int = key(_PRIORITY, "Their priority.", 6)
    traffic_class: int = _traffic_class()


@dataclass(frozen=True)
class BestEffort:
    """Every packet whose DSCP no class names, and what has no DSCP."""

    priority: int = key(_PRIORITY, "Its priority.", 0)
    traffic_class: int = _traffic_class()
    bandwidth_percent: int = key(_SHARE, "Its share.", default_text="what the others leave")


@dataclass(frozen=True)
class FurtherClass:
    """One further class, for storage for example. Lossy, as everything but RoCE data is."""

    name: str = key(
        Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "storage", 20),
        "Its name.",
        required=True,
    )
    dscps: tuple[int, ...] = key(ListOf(_DSCP, "DSCPs", least=1), "Its DSCPs.", required=True)
    priority: int = key(_PRIORITY, "Its priority.", required=True)
    traffic_class: int = _traffic_class()
    bandwidth_percent: int = key(_SHARE, "Its share of a full port.", required=True)


@dataclass(frozen=True)
class Ecn:
    """Where switches mark RoCE data: queue lengths, and how many packets at the upper one."""

    # What Cumulus Linux sets for lossless RoCE. No vendor has published a rule for 800G.
    minimum_bytes: int = key(_BYTES, "Marking begins.", 150_000)
    maximum_bytes: int = key(
        _BYTES, "From here on every packet is marked. Below the PFC point.", 1_500_000
    )
    probability_percent: int = key(_SHARE, "Share of packets marked just below the maximum.", 100)


@dataclass(frozen=True)
class Watchdog:
    """What a switch does about a queue that pause frames hold for too long."""

    enabled: bool = key(Boolean(), "Whether it watches.", True)
    detection_ms: int = key(
        Integer(200, 5000, "milliseconds"), "Held for so long, a queue is taken for stuck.", 200
    )
    restoration_ms: int = key(
        Integer(200, 60_000, "milliseconds"), "Not held for so long, it is served again.", 400
    )
    action: str = key(
        OneOf(("drop", "forward", "alert")),
        "What happens to packets of a stuck queue; `alert` only reports it.",
        "drop",
    )


@dataclass(frozen=True)
class Pfc:
    """Pauses of the RoCE class, the last resort when marking was not enough."""

    xoff_bytes: Optional[int] = key(
        OrNull(_BYTES),
        "Queue length at which a switch sends a pause; ECN is checked against it. Null where the "
        "switch decides from its free buffer.",
    )
    pool_percent: Optional[int] = key(
        OrNull(Integer(1, 99, "percent")),
        "Share of the buffer for RoCE data, on switches that divide it into pools; other traffic "
        "gets the rest. Null: what the switch has.",
        default_text=f"null; Spectrum-X `{LOSSLESS_POOL_PERCENT[SPECTRUM_X]}`",
    )
    watchdog: Watchdog = key(section_of(Watchdog, "roce_qos.pfc.watchdog"), "Stuck queues.")


@dataclass(frozen=True)
class Mtu:
    """How large packets are. The layer defines what the fabric's number counts."""

    fabric: int = key(
        Integer(IP_MTU_LIMITS[0] + FRAME_OVERHEAD, 10_240, "bytes"),
        "What every switch port carries.",
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
        """The largest IP packet that the fabric carries."""
        return self.fabric if self.fabric_layer == IP else self.fabric - FRAME_OVERHEAD

    @property
    def fabric_frame(self) -> int:
        """The same packet as an Ethernet frame."""
        return self.fabric_ip + FRAME_OVERHEAD


@dataclass(frozen=True)
class Cables:
    """The longest cables: packets under way on them need buffer after a pause."""

    # A guess: too long a cable costs buffer, too short a one loses packets, so rather long.
    to_nodes: int = key(_METRES, "From a leaf to a node.", 50)
    between_switches: int = key(_METRES, "From a leaf to a spine.", 100)


@dataclass(frozen=True)
class CongestionControl:
    """DCQCN in the NICs, on the RoCE priority. Both on, or both off where another one runs."""

    notification_point: bool = key(
        Boolean(), "The receiver answers a marked packet with a CNP.", True
    )
    reaction_point: bool = key(Boolean(), "The sender slows down on a CNP.", True)


@dataclass(frozen=True)
class Contract:
    """The QoS contract of RoCE traffic, for NICs, MPI and switches alike:
    [qos-contract.md](qos-contract.md)."""

    fabric_mode: str = key(
        OneOf((ROCE, SPECTRUM_X)),
        "DCQCN, or [Spectrum-X](qos-contract.md#spectrum-x) without `ecn` and "
        "`congestion_control`.",
        ROCE,
    )
    roce: RoceClass = key(section_of(RoceClass, "roce_qos.roce"), "RoCE data.")
    cnp: CnpClass = key(section_of(CnpClass, "roce_qos.cnp"), "Congestion notification packets.")
    best_effort: BestEffort = key(
        section_of(BestEffort, "roce_qos.best_effort"), "Everything else."
    )
    classes: tuple[FurtherClass, ...] = key(
        ListOf(section_of(FurtherClass, "roce_qos.classes")), "Further classes.", []
    )
    ecn: Ecn = key(section_of(Ecn, "roce_qos.ecn"), "Marking in switches.")
    pfc: Pfc = key(section_of(Pfc, "roce_qos.pfc"), "Pauses, and their watchdog.")
    mtu: Mtu = key(section_of(Mtu, "roce_qos.mtu"), "Sizes of packets.")
    cable_metres: Cables = key(section_of(Cables, "roce_qos.cable_metres"), "Lengths of cables.")
    congestion_control: CongestionControl = key(
        section_of(CongestionControl, "roce_qos.congestion_control"), "DCQCN."
    )

    def as_variable(self) -> dict[str, Any]:
        """The value of `roce_qos` with nothing left out; reading it gives this contract again."""
        value = asdict(self)
        value["roce"]["also_dscps"] = list(self.roce.also_dscps)
        value["classes"] = [{**entry, "dscps": list(entry["dscps"])} for entry in value["classes"]]
        return value

    @property
    def roce_dscps(self) -> tuple[int, ...]:
        """All that lead to the class of RoCE data. The same however it is written: while its DSCP
        changes, nothing changes on switches."""
        return tuple(sorted({self.roce.dscp, *self.roce.also_dscps}))

    @property
    def dcqcn(self) -> bool:
        """Whether switches mark RoCE data and NICs react to it."""
        return self.fabric_mode == ROCE

    @property
    def traffic_class_byte(self) -> int:
        """The byte of the IP header (TOS) of RoCE data: ECN-capable where switches mark."""
        return self.roce.dscp << 2 | (ECT0 if self.dcqcn else 0)


CONTRACT = section_of(Contract, VARIABLE)


def contract_of(value: Mapping[str, Any]) -> Contract:
    """The contract of a complete value, such as the compiled variable `roce_qos`: trusted."""
    contract: Contract = build(CONTRACT, value)
    return contract


def needed_ip_mtu(path_mtu: int) -> int:
    """The smallest IP MTU that carries RoCE packets of this path MTU."""
    return path_mtu + ROCE_OVERHEAD


def largest_path_mtu(ip_mtu: int) -> int:
    """The path MTU of links that carry IP packets of `ip_mtu`."""
    return max(size for size in PATH_MTUS if needed_ip_mtu(size) <= ip_mtu)
