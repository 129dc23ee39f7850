# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wanted configuration of a switch: data in, written by pyavd.

pyavd is Arista's own library and needs no switch. Its schema knows which values EOS takes: tests
hold the data of any contract against it. A run does not, which would take half of its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Optional

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
"""Its traffic class and queue belong together on every platform: there is no line for it."""
TIMER_STEP_MS = 10
"""The watchdog's timers are written in hundredths of a second."""
LONGEST_TIMER_MS = 60_000

ACTIONS = {"drop": "drop", "alert": "notify-only"}
"""The contract's word, and EOS's. EOS has none for `forward`."""

_MMU_CHIPS = ("tomahawk", "trident")
_ANY_PORT = "Ethernet1/1"


@dataclass(frozen=True)
class Wanted:
    text: str
    """As EOS would show it, for golden files and eyes."""
    settings: Settings
    ports: tuple[str, ...]
    """Names of the interfaces that the model has."""


def wanted(intent: SwitchIntent) -> Wanted:
    """WantedError where EOS cannot keep the contract, with every reason at once."""
    findings = _findings(intent)
    if findings:
        raise WantedError(findings.found)
    return with_queue(intent, intent.asic.options.get(QUEUE) or QUEUES[0])


def with_queue(intent: SwitchIntent, word: str, mapped: str = "") -> Wanted:
    """How the switch calls its queues, and as targets of traffic classes; empty: the same."""
    counts, words = bool(intent.asic.options.get(ECN_COUNT)), (word, mapped or word)
    top, interface = _rendered(intent.fabric, words, _headroom_bytes(intent), counts)
    blocks = [interface.replace(_ANY_PORT, port.name) for port in intent.ports]
    text = top.replace(interface, "!\n".join(blocks))
    return Wanted(text, read_settings(text), tuple(port.name for port in intent.ports))


def _findings(intent: SwitchIntent) -> Findings:
    fabric, place = intent.fabric, (intent.name,)
    found = Findings()
    check_lossless_class(intent, "EOS knows a lossless class by one number", found)
    _check_queues(fabric, place, found)
    check_mtu(intent, found)
    _check_watchdog(fabric, place, found)
    return found


def _check_queues(fabric: FabricIntent, place: Path, found: Findings) -> None:
    shared = [queue.traffic_class for queue in fabric.queues if not queue.strict]
    for queue in fabric.queues:
        if queue.strict and shared and queue.traffic_class < max(shared):
            found.add(
                "eos.strict_below_shared",
                place,
                f"class {queue.name}: EOS serves every queue below a shared one in turn as well: "
                f"queue {queue.traffic_class} cannot be strict below queue {max(shared)}",
                "Give it a higher traffic class",
                (queue.traffic_class, max(shared)),
            )
        if queue.traffic_class == CONTROL_CLASS and not queue.strict:
            found.add(
                "eos.control_queue",
                place,
                f"class {queue.name}: queue {CONTROL_CLASS} is EOS's own for control traffic",
                "Give the class a lower traffic class",
                queue.name,
            )


def _check_watchdog(fabric: FabricIntent, place: Path, found: Findings) -> None:
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
                place,
                f"roce_qos.pfc.watchdog.{key}: {value} ms: EOS counts in steps of {TIMER_STEP_MS} "
                f"ms up to {LONGEST_TIMER_MS}",
                f"Write a multiple of {TIMER_STEP_MS}",
                value,
            )
    if watchdog.action not in ACTIONS:
        found.add(
            "eos.watchdog_action",
            place,
            f"roce_qos.pfc.watchdog.action: EOS cannot {watchdog.action} what waits in a stuck "
            "queue",
            f"Write {' or '.join(ACTIONS)}",
            watchdog.action,
        )


def _headroom_bytes(intent: SwitchIntent) -> Optional[int]:
    """The most that any port needs: EOS has one figure for the switch. None: EOS's own.

    Set only where the inventory gives values for this chip; else it is left to EOS. Rows
    for other speeds and lengths, such as SONiC's of 5, 40 and 300 m, are for other switches.
    """
    if not intent.asic.name.startswith(_MMU_CHIPS):
        return None
    rows = [intent.asic.values.get((p.speed_gbps, p.cable_metres)) for p in intent.ports]
    given = [row.xoff_bytes for row in rows if row is not None]
    return max(given) if given and len(given) == len(rows) else None


@lru_cache(maxsize=64)
def _rendered(
    fabric: FabricIntent, words: tuple[str, str], headroom_bytes: Optional[int], counts: bool
) -> tuple[str, str]:
    """Everything with one interface, and the block of this interface: all ports have the same.

    A fabric has few sorts of switches: pyavd writes each once.
    """
    text = render(structured(fabric, *words, headroom_bytes, counts))
    start = text.index(f"{INTERFACE}{_ANY_PORT}\n")
    return text, text[start : text.index("!\n", start)]


def render(data: dict[str, Any]) -> str:
    """Structured data, as the schema of pyavd takes it, as EOS configuration."""
    if PYAVD_MISSING is not None:
        problem = "pyavd is not installed on the controller, which writes the configuration of EOS"
        remedy = "Install requirements/controller.txt"
        raise WantedError([Finding("eos.no_pyavd", (), f"{problem} with it", remedy)])
    return str(pyavd.get_device_config(data))


def structured(
    fabric: FabricIntent,
    word: str,
    mapped: str,
    headroom_bytes: Optional[int] = None,
    counts: bool = False,
) -> dict[str, Any]:
    """The contract as pyavd's structured configuration, with one interface for all."""
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
                "priority_flow_control": {
                    "enabled": True,
                    "priorities": [
                        {"priority": priority, "no_drop": True}
                        for priority in fabric.pfc_priorities
                    ],
                },
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
