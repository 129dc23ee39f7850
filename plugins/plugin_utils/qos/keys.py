# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every key of `roce_qos`. Validation, messages and the pages under docs/ come from here."""

from __future__ import annotations

from typing import Any

from ...module_utils.qos import IP_MTU_LIMITS
from ..schema.kinds import Boolean, Integer, Key, ListOf, OneOf, OrNull, Section, Text, Wrong
from .contract import FRAME_OVERHEAD

# The contract of a site that writes none. The only place where these numbers stand: a unit test
# searches the rest of the code for them.

ROCE_DSCP = 26
ROCE_PRIORITY = 3
ROCE_BANDWIDTH_PERCENT = 50

CNP_DSCP = 48
CNP_PRIORITY = 6

BEST_EFFORT_PRIORITY = 0

# What Cumulus Linux sets for lossless RoCE. No vendor has published a rule for 800G.
ECN_MINIMUM_BYTES = 150_000
ECN_MAXIMUM_BYTES = 1_500_000
ECN_PROBABILITY_PERCENT = 100

WATCHDOG_DETECTION_MS = 200
WATCHDOG_RESTORATION_MS = 400
WATCHDOG_ACTION = "drop"

FABRIC_MTU = 9216
FABRIC_MTU_LAYER = "frame"
ROCE_PATH_MTU = 4096

# Too long a cable costs buffer, too short a one loses packets: rather long.
CABLE_METRES_TO_NODES = 50
CABLE_METRES_BETWEEN_SWITCHES = 100

VARIABLE = "roce_qos"
RESERVED_NAMES = ("roce", "cnp", "best_effort")
FRAME = "frame"
IP = "ip"


class _Dscp(Integer):
    def convert(self, value: Any) -> int:
        if isinstance(value, int) and self.high < value <= 255:
            raise Wrong(
                "qos.dscp_is_byte",
                f"{value} is no DSCP",
                f"Write one from 0 to 63; as the byte of the IP header it is DSCP {value >> 2}",
            )
        return super().convert(value)


class _TrafficClass(Integer):
    def convert(self, value: Any) -> int:
        if isinstance(value, int) and self.high < value <= 255:
            raise Wrong(
                "qos.traffic_class_is_byte",
                f"{value} is no traffic class of a port",
                "Write one from 0 to 7; the byte of the IP header is computed from the DSCP",
            )
        return super().convert(value)


_DSCP = _Dscp(0, 63)
_PRIORITY = Integer(0, 7)
_TRAFFIC_CLASS = _TrafficClass(0, 7)
_SHARE = Integer(1, 100, "percent")
_BYTES = Integer(1024, 1 << 30, "bytes")
_ONE_LOSSLESS = "Leave it out: PFC is on for RoCE data alone, since a pause can spread"
_TC_OF_PRIORITY = "the number of its priority"
_TC_HELP = "Queue of a port that serves it (802.1Q traffic class, not the byte of the IP header)."

ROCE = Section(
    "roce_qos.roce",
    "RoCE data: lossless, marked by ECN. The only class with PFC.",
    (
        Key("dscp", _DSCP, "Its DSCP.", default=ROCE_DSCP),
        Key("priority", _PRIORITY, "Its priority; PFC is on here.", default=ROCE_PRIORITY),
        Key("traffic_class", _TRAFFIC_CLASS, _TC_HELP, default_text=_TC_OF_PRIORITY),
        Key(
            "bandwidth_percent",
            _SHARE,
            "Its share of a full port.",
            default=ROCE_BANDWIDTH_PERCENT,
        ),
    ),
    dict.fromkeys(("tos", "tclass"), "Write dscp; the byte of the IP header is computed from it")
    | dict.fromkeys(("pfc", "lossless"), "Leave it out: RoCE data is lossless, and nothing else")
    | {"ecn": f"Write it under {VARIABLE}.ecn"},
)

CNP = Section(
    "roce_qos.cnp",
    "Congestion notification packets, which tell a sender to slow down: lossy and strict, so that "
    "they never wait behind the queue that they are about.",
    (
        Key("dscp", _DSCP, "Their DSCP.", default=CNP_DSCP),
        Key("priority", _PRIORITY, "Their priority.", default=CNP_PRIORITY),
        Key("traffic_class", _TRAFFIC_CLASS, _TC_HELP, default_text=_TC_OF_PRIORITY),
        Key("strict", Boolean(), "Served before every other class; never false.", default=True),
    ),
    {"bandwidth_percent": "Leave it out: what is strict takes no share"}
    | dict.fromkeys(("pfc", "lossless"), _ONE_LOSSLESS),
)

BEST_EFFORT = Section(
    "roce_qos.best_effort",
    "Every packet whose DSCP no class names, and what has no DSCP.",
    (
        Key("priority", _PRIORITY, "Its priority.", default=BEST_EFFORT_PRIORITY),
        Key("traffic_class", _TRAFFIC_CLASS, _TC_HELP, default_text=_TC_OF_PRIORITY),
        Key("bandwidth_percent", _SHARE, "Its share.", default_text="what the others leave"),
    ),
)

CLASS = Section(
    "roce_qos.classes",
    "One further class, for storage say. Lossy, as everything but RoCE data is.",
    (
        Key(
            "name",
            Text(r"[a-z][a-z0-9_-]*", "a name of a to z, 0 to 9, - and _", "storage", 20),
            "Its name.",
            required=True,
        ),
        Key("dscps", ListOf(_DSCP, "DSCPs"), "Its DSCPs.", required=True),
        Key("priority", _PRIORITY, "Its priority.", required=True),
        Key("traffic_class", _TRAFFIC_CLASS, _TC_HELP, default_text=_TC_OF_PRIORITY),
        Key("bandwidth_percent", _SHARE, "Its share of a full port.", required=True),
    ),
    {"dscp": "Write dscps, a list"} | dict.fromkeys(("pfc", "lossless"), _ONE_LOSSLESS),
)

ECN = Section(
    "roce_qos.ecn",
    "Where switches mark RoCE data: queue lengths, and how many packets at the upper one.",
    (
        Key("minimum_bytes", _BYTES, "Marking begins.", default=ECN_MINIMUM_BYTES),
        Key(
            "maximum_bytes",
            _BYTES,
            "From here on every packet is marked. Below the PFC point.",
            default=ECN_MAXIMUM_BYTES,
        ),
        Key(
            "probability_percent",
            _SHARE,
            "Share of packets marked just below the maximum.",
            default=ECN_PROBABILITY_PERCENT,
        ),
    ),
    dict.fromkeys(("kmin", "min"), "Write minimum_bytes")
    | dict.fromkeys(("kmax", "max"), "Write maximum_bytes")
    | dict.fromkeys(("pmax", "probability"), "Write probability_percent"),
)

WATCHDOG = Section(
    "roce_qos.pfc.watchdog",
    "What a switch does about a queue that pause frames hold for too long.",
    (
        Key("enabled", Boolean(), "Whether it watches.", default=True),
        Key(
            "detection_ms",
            Integer(200, 5000, "milliseconds"),
            "Held for so long, a queue is taken for stuck.",
            default=WATCHDOG_DETECTION_MS,
        ),
        Key(
            "restoration_ms",
            Integer(200, 60_000, "milliseconds"),
            "Not held for so long, it is served again.",
            default=WATCHDOG_RESTORATION_MS,
        ),
        Key(
            "action",
            OneOf(("drop", "forward", "alert")),
            "What happens to packets of a stuck queue; `alert` only says so.",
            default=WATCHDOG_ACTION,
        ),
    ),
)

PFC = Section(
    "roce_qos.pfc",
    "Pauses of the RoCE class, the last resort when marking was not enough.",
    (
        Key(
            "xoff_bytes",
            OrNull(_BYTES),
            "Queue length at which a switch sends a pause. Null where the switch decides from "
            "the buffer that is free; say it where it is known, and ECN is checked against it.",
        ),
        Key("watchdog", WATCHDOG, "Stuck queues.", default=WATCHDOG.defaults()),
    ),
    dict.fromkeys(
        ("priority", "priorities", "enabled"),
        f"PFC is on for the priority of RoCE data alone, {VARIABLE}.roce.priority",
    ),
)

MTU = Section(
    "roce_qos.mtu",
    "How large packets are. The layer says what the fabric's number counts.",
    (
        Key(
            "fabric",
            Integer(IP_MTU_LIMITS[0] + FRAME_OVERHEAD, 10_240, "bytes"),
            "What every switch port carries.",
            default=FABRIC_MTU,
        ),
        Key(
            "fabric_layer",
            OneOf((FRAME, IP)),
            "`frame`: the whole Ethernet frame, 18 bytes more than the IP packet in it. `ip`: the "
            "IP packet, as `rails.mtu` counts.",
            default=FABRIC_MTU_LAYER,
        ),
        Key(
            "roce_path",
            Integer(256, 4096, "bytes"),
            "RoCE payload of one packet: 256, 512, 1024, 2048 or 4096. An IP packet is up to 96 "
            "bytes larger.",
            default_text=f"`{ROCE_PATH_MTU}`, or the largest that rails and fabric carry",
        ),
    ),
)

_METRES = Integer(1, 2000, "metres")
CABLES = Section(
    "roce_qos.cable_metres",
    "The longest cables: what is under way on them has to find room after a pause.",
    (
        Key(
            "to_nodes",
            _METRES,
            "From a leaf to a node.",
            default=CABLE_METRES_TO_NODES,
        ),
        Key(
            "between_switches",
            _METRES,
            "From a leaf to a spine.",
            default=CABLE_METRES_BETWEEN_SWITCHES,
        ),
    ),
)

CONGESTION_CONTROL = Section(
    "roce_qos.congestion_control",
    "DCQCN in the NICs, on the RoCE priority. Both on, or both off where another one runs.",
    (
        Key(
            "notification_point",
            Boolean(),
            "The receiver answers a marked packet with a CNP.",
            default=True,
        ),
        Key("reaction_point", Boolean(), "The sender slows down on a CNP.", default=True),
    ),
)

CONTRACT = Section(
    "roce_qos",
    "The QoS contract of RoCE traffic, for NICs, MPI and switches alike: "
    "[qos-contract.md](qos-contract.md).",
    (
        Key("roce", ROCE, "RoCE data.", default=ROCE.defaults()),
        Key("cnp", CNP, "Congestion notification packets.", default=CNP.defaults()),
        Key("best_effort", BEST_EFFORT, "Everything else.", default=BEST_EFFORT.defaults()),
        Key("classes", ListOf(CLASS), "Further classes, for storage say.", default=[]),
        Key("ecn", ECN, "Marking in switches.", default=ECN.defaults()),
        Key("pfc", PFC, "Pauses, and their watchdog.", default=PFC.defaults()),
        Key("mtu", MTU, "Sizes of packets.", default=MTU.defaults()),
        Key("cable_metres", CABLES, "Lengths of cables.", default=CABLES.defaults()),
        Key(
            "congestion_control",
            CONGESTION_CONTROL,
            "DCQCN.",
            default=CONGESTION_CONTROL.defaults(),
        ),
    ),
    dict.fromkeys(("dscp", "priority", "traffic_class"), f"Write it under {VARIABLE}.roce")
    | {"cable_length": "Write cable_metres", "watchdog": f"Write it under {VARIABLE}.pfc"},
)
