# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The desired configuration of a switch, rendered by pyavd, Arista's library.

Tests validate the data of any contract against its schema; a run does not, as that takes as long.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

from ....module_utils.core.text import some
from ...qos.compiled import FabricIntent, Queue
from ...schema.findings import Finding, Findings, Path
from ..asics import WantedError
from ..system import OWNED, SwitchIntent, check_lossless_class, check_mtu
from . import ECN_COUNT, QUEUE, QUEUES
from .settings import INTERFACE, Settings, read_settings

try:
    import pyavd  # type: ignore[import-untyped]
except ImportError as error:
    PYAVD_MISSING: Optional[ImportError] = error
else:
    PYAVD_MISSING = None

CONTROL_CLASS = 7
"""Traffic class and queue of control traffic, which no line changes on any platform."""
TIMER_STEP_MS = 10
"""The watchdog's timers have a resolution of a hundredth of a second."""
LONGEST_TIMER_MS = 60_000

ACTIONS = {"drop": "drop", "alert": "notify-only"}
"""EOS keyword by action of the contract. EOS does not support `forward`."""

_MMU_CHIPS = ("tomahawk", "trident")
_ANY_PORT = "Ethernet1/1"


@dataclass(frozen=True)
class EosConfiguration:
    text: str
    settings: Settings
    ports: tuple[str, ...]


def wanted(intent: SwitchIntent) -> EosConfiguration:
    findings = _findings(intent)
    if findings:
        raise WantedError(findings.found)
    return with_queue(intent, intent.asic.options.get(QUEUE) or QUEUES[0])


def with_queue(intent: SwitchIntent, word: str, mapped: str = "") -> EosConfiguration:
    """The configuration with the switch's keywords for queues, below a port and in the map."""
    counts, words = bool(intent.asic.options.get(ECN_COUNT)), (word, mapped or word)
    top, interface = _rendered(intent.fabric, words, _headroom_bytes(intent), counts)
    blocks = [interface.replace(_ANY_PORT, port.name) for port in intent.ports]
    text = top.replace(interface, "!\n".join(blocks))
    return EosConfiguration(text, read_settings(text), tuple(port.name for port in intent.ports))


def _findings(intent: SwitchIntent) -> Findings:
    fabric, path = intent.fabric, (intent.name,)
    found = Findings()
    check_lossless_class(intent, "EOS has one number for a lossless class", found)
    _check_queues(fabric, path, found)
    check_mtu(intent, found)
    _check_watchdog(fabric, path, found)
    members = [port.name for port in intent.ports if port.channel]
    if members:
        found.add(
            "eos.port_channel",
            path,
            f"{some(members, 4)}: no public source says which QoS settings of a member EOS applies "
            "in a port channel, so the layer fabric does not configure EOS switches with them",
            "Configure its QoS by hand, and remove its system from the model (leaves.system, "
            "spines.system)",
            len(members),
        )
    return found


def _check_queues(fabric: FabricIntent, path: Path, found: Findings) -> None:
    shared = [queue.traffic_class for queue in fabric.queues if not queue.strict]
    for queue in fabric.queues:
        if queue.strict and shared and queue.traffic_class < max(shared):
            found.add(
                "eos.strict_below_shared",
                path,
                f"class {queue.name}: EOS serves every queue below a shared one in turn, so "
                f"queue {queue.traffic_class} cannot be strict below queue {max(shared)}",
                "Give it a higher traffic class",
                (queue.traffic_class, max(shared)),
            )
        if queue.traffic_class == CONTROL_CLASS and not queue.strict:
            found.add(
                "eos.control_queue",
                path,
                f"class {queue.name}: EOS reserves queue {CONTROL_CLASS} for control traffic",
                "Give the class a lower traffic class",
                queue.name,
            )


def _check_watchdog(fabric: FabricIntent, path: Path, found: Findings) -> None:
    watchdog = fabric.watchdog
    if not watchdog.enabled:
        return
    for key, value in (
        ("detection_ms", watchdog.detection_ms),
        ("restoration_ms", watchdog.restoration_ms),
    ):
        if value % TIMER_STEP_MS or value > LONGEST_TIMER_MS:
            found.add(
                "eos.watchdog_step",
                path,
                f"roce_qos.pfc.watchdog.{key}: {value} ms: EOS counts in steps of {TIMER_STEP_MS} "
                f"ms up to {LONGEST_TIMER_MS}",
                f"Write a multiple of {TIMER_STEP_MS}",
                value,
            )
    if watchdog.action not in ACTIONS:
        found.add(
            "eos.watchdog_action",
            path,
            f"roce_qos.pfc.watchdog.action: EOS cannot {watchdog.action} the packets of a stuck "
            "queue",
            f"Write {' or '.join(ACTIONS)}",
            watchdog.action,
        )


def _headroom_bytes(intent: SwitchIntent) -> Optional[int]:
    """The largest headroom of any port, since EOS has one value per switch; None, which leaves it
    to EOS, unless the inventory has rows for all ports."""
    if not intent.asic.name.startswith(_MMU_CHIPS) or not intent.fabric.pfc_priorities:
        return None
    rows = [intent.asic.values.get((p.speed_gbps, p.cable_metres)) for p in intent.ports]
    given = [row.xoff_bytes for row in rows if row is not None]
    return max(given) if given and len(given) == len(rows) else None


@lru_cache(maxsize=64)
def _rendered(
    fabric: FabricIntent, words: tuple[str, str], headroom_bytes: Optional[int], counts: bool
) -> tuple[str, str]:
    """The configuration with one interface, and the block of that interface, which is the same for
    all ports."""
    text = render(structured(fabric, *words, headroom_bytes, counts))
    start = text.index(f"{INTERFACE}{_ANY_PORT}\n")
    return text, text[start : text.index("!\n", start)]


def render(data: dict[str, Any]) -> str:
    if PYAVD_MISSING is not None:
        problem = "pyavd, which renders EOS configuration, is not installed on the controller"
        remedy = "Install requirements/controller.txt"
        raise WantedError([Finding("eos.no_pyavd", (), problem, remedy)])
    return str(pyavd.get_device_config(data))


def structured(
    fabric: FabricIntent,
    word: str,
    mapped: str,
    headroom_bytes: Optional[int] = None,
    counts: bool = False,
) -> dict[str, Any]:
    """The contract as structured configuration of pyavd, with one interface."""
    pauses = {
        "enabled": True,
        "priorities": [
            {"priority": priority, "no_drop": True} for priority in fabric.pfc_priorities
        ],
    }
    data: dict[str, Any] = {
        "qos": {
            "map": {
                "dscp": [
                    f"{' '.join(map(str, queue.dscps))} to traffic-class {queue.traffic_class}"
                    for queue in fabric.queues
                ],
                "traffic_class": [
                    f"{queue.traffic_class} to {mapped} {queue.traffic_class}"
                    for queue in fabric.queues
                    if queue.traffic_class != CONTROL_CLASS
                ],
            }
        },
        "qos_profiles": [
            {
                "name": OWNED,
                "trust": fabric.trust,
                **({"priority_flow_control": pauses} if fabric.pfc_priorities else {}),
                word.replace("-", "_") + "s": [_queue(queue, counts) for queue in fabric.queues],
            }
        ],
        "ethernet_interfaces": [
            {"name": _ANY_PORT, "mtu": fabric.mtu_ip, "service_profile": OWNED}
        ],
    }
    if fabric.watchdog.enabled:
        data["priority_flow_control"] = {"watchdog": _watchdog(fabric)}
    if headroom_bytes is not None:
        profile = {
            "name": OWNED,
            "ingress": {"headroom": {"unit": "bytes", "memory": headroom_bytes}},
        }
        data["platform"] = {
            "trident": {"mmu": {"queue_profiles": [profile], "active_profile": OWNED}}
        }
    return data


def _queue(queue: Queue, counts: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"id": queue.traffic_class}
    if queue.strict:
        data["priority"] = "priority strict"
    else:
        data.update(priority="no priority", bandwidth_percent=queue.weight_percent)
    if queue.ecn is not None:
        threshold = {
            "units": "bytes",
            "min": queue.ecn.minimum_bytes,
            "max": queue.ecn.maximum_bytes,
            "max_probability": queue.ecn.probability_percent,
        }
        data["random_detect"] = {"ecn": {"threshold": threshold, "count": counts}}
    return data


def _watchdog(fabric: FabricIntent) -> dict[str, str]:
    watchdog = fabric.watchdog
    return {
        "timeout": _seconds(watchdog.detection_ms),
        "recovery_time": _seconds(watchdog.restoration_ms),
        "polling_interval": _seconds(watchdog.poll_ms),
        "action": ACTIONS.get(watchdog.action, watchdog.action),
    }


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g}"
