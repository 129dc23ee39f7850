# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The aspects in which both ends of a link must match the contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
