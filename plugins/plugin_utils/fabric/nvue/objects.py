# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""An intent in NVUE's objects, in full: no default of a release is relied on.

None: the key must be absent. Spelled as releases before 5.15 do (`spelling.py`).
"""

from __future__ import annotations

from ...qos.compiled import FabricIntent
from ...qos.contract import DSCPS, PRIORITIES
from ...schema.findings import Findings
from ..asics import WantedError
from ..system import SwitchIntent
from .tree import Tree

PROFILE = "default-global"
"""Applies to every port that is bound to no profile of its own."""
LOSSLESS_POOL, LOSSY_POOL = "roce-lossless", "default-lossy"
MODE = "lossless"
TRUST_DSCP = "l3"
ACTION = "drop"
"""All that NVUE's PFC watchdog does to a queue that is stuck."""

_SHARED_BY_ROCE = {0, 3}
"""Traffic classes with half of the bandwidth each, and with ECN, as soon as RoCE is on, unless set
otherwise."""

BINDINGS = ("mapping", "remark", "egress-scheduler", "congestion-control", "pfc", "link-pause")
"""Profiles that a port can be bound to, and that would make it another one than the contract's."""


def wanted(intent: SwitchIntent) -> Tree:
    """The intent as one object. WantedError with everything that NVUE cannot keep."""
    _check(intent)
    return {
        "qos": _qos(intent),
        "interface": {port.name: _port(intent.fabric) for port in intent.ports},
    }


def cable_metres(intent: SwitchIntent) -> int:
    """RoCE of NVUE has one length for the whole switch: the longest, which no port can lose by."""
    return max(port.cable_metres for port in intent.ports)


def _qos(intent: SwitchIntent) -> Tree:
    fabric, metres = intent.fabric, cable_metres(intent)
    to_class = {queue.priority: queue.traffic_class for queue in fabric.queues}
    to_priority = {queue.traffic_class: queue.priority for queue in fabric.queues}
    # Priorities without a class lead where unmarked packets go.
    others = fabric.dscp_to_traffic_class[0]
    lossless = {str(priority) for priority in fabric.pfc_priorities}
    watchdog = fabric.watchdog
    return {
        "roce": {"enable": "on", "mode": MODE, "cable-length": metres},
        "mapping": {
            PROFILE: {
                "trust": TRUST_DSCP,
                "dscp": {
                    str(dscp): {"switch-priority": to_priority[fabric.dscp_to_traffic_class[dscp]]}
                    for dscp in range(DSCPS)
                },
            }
        },
        # Packets leave with the DSCP that they came with: the next switch sorts by it as well.
        "remark": {PROFILE: {"rewrite": None}},
        "egress-queue-mapping": {
            PROFILE: {
                "switch-priority": {
                    str(priority): {"traffic-class": to_class.get(priority, others)}
                    for priority in range(PRIORITIES)
                }
            }
        },
        "egress-scheduler": {PROFILE: {"traffic-class": _shares(fabric)}},
        "congestion-control": {PROFILE: {"traffic-class": _marking(fabric)}},
        "pfc": {
            PROFILE: {
                "switch-priority": {priority: {} for priority in sorted(lossless)},
                "cable-length": metres,
                "rx": None,
                "tx": None,
            }
        },
        "traffic-pool": {
            LOSSLESS_POOL: {"switch-priority": {priority: {} for priority in sorted(lossless)}},
            LOSSY_POOL: {
                "switch-priority": {
                    str(priority): {}
                    for priority in range(PRIORITIES)
                    if str(priority) not in lossless
                }
            },
        },
        "pfc-watchdog": {
            "polling-interval": watchdog.poll_ms,
            "robustness": -(-watchdog.detection_ms // watchdog.poll_ms),
        },
    }


def _shares(fabric: FabricIntent) -> Tree:
    """bw-percent is taken away from strict ones: NVUE has it for DWRR alone.

    A queue that RoCE gives a share to and the contract leads nothing to is strict as well: so it
    has none, and the others can have all of it.
    """
    idle = _SHARED_BY_ROCE - {queue.traffic_class for queue in fabric.queues}
    shares: Tree = {str(queue): {"mode": "strict", "bw-percent": None} for queue in sorted(idle)}
    for queue in fabric.queues:
        shares[str(queue.traffic_class)] = (
            {"mode": "strict", "bw-percent": None}
            if queue.strict
            else {"mode": "dwrr", "bw-percent": queue.weight_percent}
        )
    return shares


def _marking(fabric: FabricIntent) -> Tree:
    """A switch marks class 0 from the factory, and 3 by RoCE: other classes are disabled.

    Also where nothing leads to it now: it may have been the contract's until its priority moved.
    """
    idle = _SHARED_BY_ROCE - {queue.traffic_class for queue in fabric.queues}
    result: Tree = {str(number): {"ecn": "disable"} for number in sorted(idle)}
    for queue in fabric.queues:
        if queue.ecn is None:
            result[str(queue.traffic_class)] = {"ecn": "disable"}
        else:
            result[str(queue.traffic_class)] = {
                "ecn": "enable",
                "red": None,
                "min-threshold": queue.ecn.minimum_bytes,
                "max-threshold": queue.ecn.maximum_bytes,
                "probability": queue.ecn.probability_percent,
            }
    return result


def _port(fabric: FabricIntent) -> Tree:
    return {
        "link": {"mtu": fabric.mtu_ip},
        "qos": {
            **{branch: {"profile": None} for branch in BINDINGS},
            "pfc-watchdog": {"state": "enable" if fabric.watchdog.enabled else "disable"},
        },
    }


def _check(intent: SwitchIntent) -> None:
    fabric, name = intent.fabric, intent.name
    findings = Findings()
    if len(fabric.pfc_priorities) != 1:
        priorities = ", ".join(map(str, fabric.pfc_priorities)) or "none"
        findings.add(
            "nvue.lossless_priorities",
            (name,),
            f"NVUE's RoCE has one lossless priority, and the contract has {priorities}",
            "",
            fabric.pfc_priorities,
        )
    if fabric.watchdog.enabled and fabric.watchdog.action != ACTION:
        findings.add(
            "nvue.watchdog_action",
            (name,),
            "roce_qos.pfc.watchdog.action: NVUE's PFC watchdog drops the packets of a stuck queue "
            f"and can do nothing else, and the contract has {fabric.watchdog.action!r}",
            f"Write {ACTION}, or enabled: false",
            fabric.watchdog.action,
        )
    if findings:
        raise WantedError(findings.found)
