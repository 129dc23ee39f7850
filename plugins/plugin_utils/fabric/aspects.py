# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The aspects in which both ends of a link must match the contract, and their values as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from ...module_utils.core.text import ranges, runs

PORT = "port"
UP = "up"
SPEED = "speed"
MTU = "mtu"
TRUST = "trust"
DSCP_MAP = "dscp_map"
PFC = "pfc"
LOSSLESS = "lossless"
QUEUES = "queues"
WEIGHTS = "weights"
ECN = "ecn"
CABLE = "cable"
HEADROOM = "headroom"
WATCHDOG = "watchdog"
SETTINGS = "settings"
"""All settings of a NIC, if it reports none of them."""

THERE, IS_UP, NOT_SET_UP = "there", "up", "not set up"

FIELDS = {
    UP: "up",
    SPEED: "speed_gbps",
    MTU: "mtu_ip",
    TRUST: "trust",
    DSCP_MAP: "dscp_to_traffic_class",
    PFC: "pfc_priorities",
    LOSSLESS: "lossless_priorities",
    QUEUES: "strict_queues",
    WEIGHTS: "weights",
    ECN: "ecn",
    CABLE: "cable_metres",
    HEADROOM: "headroom_bytes",
    WATCHDOG: "watchdog",
}
"""The field of a PortReport from which each aspect is read."""

ALWAYS = (UP, MTU, DSCP_MAP, PFC, QUEUES, ECN)
"""Aspects that every switch system reports."""

FORCED = "traffic_class"
"""If no value is forced, the default (cma_roce_tos) applies."""
NIC_SETTINGS = (
    TRUST,
    PFC,
    "dscp_to_priority",
    "priority_to_tc",
    "ets",
    "cma_roce_tos",
    FORCED,
    "cnp_dscp",
    "cnp_priority",
    "ecn_np",
    "ecn_rp",
)
"""Aspects of a NIC, named as in the result of roce_rails."""


@dataclass(frozen=True)
class Unread:
    """An aspect that an end does not report."""

    reason: str
    fault: bool = False
    """The end should report it, so this counts as a mismatch."""


Reading = Mapping[str, Any]
"""Value or `Unread` by aspect. Aspects that do not exist at an end (the headroom of a NIC) are
absent.
"""

MAX_RANGES = 6


def show(aspect: str, value: Any) -> str:
    if isinstance(value, Unread):
        return value.reason
    return value if isinstance(value, str) else _TEXTS.get(aspect, _plain)(value)


def _plain(value: Any) -> str:
    return (_numbers(value) or "none") if isinstance(value, tuple) else str(value)


def _numbers(values: Iterable[object]) -> str:
    found = [str(value) for value in values]
    return " and ".join(found) if len(found) < 3 else ", ".join(found)


def _dscp_text(pairs: tuple[tuple[int, int], ...]) -> str:
    """`DSCP 26 to TC 3, DSCP 24-31, 40 to TC 1`"""
    classes: dict[int, list[int]] = {}
    for dscp, traffic_class in sorted(pairs, key=lambda pair: (pair[1], pair[0])):
        classes.setdefault(traffic_class, []).append(dscp)
    return ", ".join(f"DSCP {ranges(dscps, ', ')} to TC {tc}" for tc, dscps in classes.items())


def _queues_text(value: tuple[int, bool, tuple[tuple[int, str], ...]]) -> str:
    cnp, strict, others = value
    text = f"TC {cnp} (CNP) {'strict' if strict else 'not strict'}"
    also = _numbers(f"TC {number} ({name})" for number, name in others)
    return text + (f", {also} strict too" if also else "")


def _ecn_text(values: tuple[tuple[Optional[int], ...], ...]) -> str:
    return ", ".join(map(_marking_text, values))


def _marking_text(value: tuple[Optional[int], ...]) -> str:
    if len(value) == 1:
        return f"TC {value[0]} does not mark"
    if None in value:
        return f"TC {value[0]} marks, at thresholds that are not in bytes"
    return "TC {} marks from {} to {} bytes, {} %".format(*value)


def _watchdog_text(value: tuple[Any, ...]) -> str:
    if not value:
        return "off"
    action, detection_ms, restoration_ms, *slow = value
    text = f"{action} after {detection_ms} ms, back after {restoration_ms} ms"
    return text + (", and polls every {} ms instead of {} ms".format(*slow) if slow else "")


_TEXTS: dict[str, Callable[[Any], str]] = {
    SPEED: lambda gbps: f"{gbps:g} Gb/s",
    MTU: lambda size: f"IP packets of {size} bytes",
    DSCP_MAP: _dscp_text,
    PFC: lambda found: f"PFC on {_numbers(found)}" if found else "PFC off",
    LOSSLESS: lambda found: (
        f"a lossless buffer for priority {_numbers(found)}" if found else "no lossless buffer"
    ),
    QUEUES: _queues_text,
    WEIGHTS: lambda pairs: ", ".join(f"TC {queue} has {weight} %" for queue, weight in pairs),
    ECN: _ecn_text,
    CABLE: lambda metres: f"{metres} m",
    HEADROOM: lambda room: f"{room} bytes",
    WATCHDOG: _watchdog_text,
}


def ports_text(ports: Sequence[str], every: Sequence[str]) -> str:
    """`Ethernet0-Ethernet504 (64 ports)`: a dash spans neighbours among all ports in use."""
    index = {name: number for number, name in enumerate(every)}
    texts = [
        every[first] if first == last else f"{every[first]}-{every[last]}"
        for first, last in runs(index[port] for port in ports)
    ]
    if len(texts) > MAX_RANGES:
        texts = [*texts[:MAX_RANGES], "..."]
    text = ", ".join(texts)
    return text if len(ports) == 1 else f"{text} ({len(ports)} ports)"
