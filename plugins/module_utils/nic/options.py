# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an operator may choose per NIC, beyond the QoS contract."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Optional

from ..core.dataclass import dataclass
from .pci_config import SIZES

MAX_READ_REQUEST_BYTES = 4096
ADAPTIVE_ROUTING = "adaptive_routing_forced_en"

_KEYS = (
    "max_read_request_bytes",
    "rings",
    "adaptive_routing",
    "accelerations",
    "congestion_control",
)


class OptionsError(Exception):
    """The options make no sense; one line per finding."""


@dataclass(frozen=True)
class NicOptions:
    """Options of the NICs of one host. What is None or empty is left as the NIC has it."""

    max_read_request_bytes: Optional[int] = MAX_READ_REQUEST_BYTES
    rings: Mapping[str, int] = field(default_factory=dict)
    """`rx` and `tx`, in entries. RoCE does not pass through them."""
    accelerations: Mapping[str, int] = field(default_factory=dict)
    """Fields of the firmware's register ROCE_ACCL; adaptive routing is one of them."""
    congestion_control: Mapping[str, int] = field(default_factory=dict)
    """`roce_rp/rpg_ai_rate` and the like, by their names in DOCA-OFED's sysfs."""


def read_options(given: Mapping[str, Any]) -> NicOptions:
    """Raises OptionsError naming every fault."""
    faults = [
        f"nic.{key} is not known; known are {', '.join(_KEYS)}" for key in given if key not in _KEYS
    ]
    size = given.get("max_read_request_bytes", MAX_READ_REQUEST_BYTES)
    if size is not None and size not in SIZES:
        faults.append(
            f"nic.max_read_request_bytes is {size!r}; it must be one of "
            f"{', '.join(map(str, SIZES))}, or null to leave it alone"
        )
    rings = _numbers(given.get("rings"), "rings", 1, faults)
    faults += [f"nic.rings.{key}: only rx and tx are known" for key in rings.keys() - {"rx", "tx"}]
    accelerations = _numbers(given.get("accelerations"), "accelerations", 0, faults)
    adaptive = given.get("adaptive_routing")
    if adaptive is not None and not isinstance(adaptive, bool):
        faults.append(f"nic.adaptive_routing is {adaptive!r}; it must be true, false or null")
    elif adaptive is not None:
        if accelerations.get(ADAPTIVE_ROUTING, int(adaptive)) != int(adaptive):
            faults.append(
                f"nic.adaptive_routing is {adaptive} and nic.accelerations.{ADAPTIVE_ROUTING} says "
                "the opposite; leave one of them out"
            )
        accelerations[ADAPTIVE_ROUTING] = int(adaptive)
    control = {}
    points = given.get("congestion_control") or {}
    if not isinstance(points, Mapping) or set(points) - {"roce_np", "roce_rp"}:
        faults.append(
            "nic.congestion_control has roce_np and roce_rp, each a mapping of parameter to number"
        )
    else:
        for point, values in points.items():
            for name, value in _numbers(values, f"congestion_control.{point}", 0, faults).items():
                control[f"{point}/{name}"] = value
    if faults:
        raise OptionsError("\n  ".join(["the options of the NICs cannot be used:", *faults]))
    return NicOptions(size, rings, accelerations, control)


def _numbers(given: Any, name: str, least: int, faults: list[str]) -> dict[str, int]:
    """The numbers of a mapping; None leaves one out."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        faults.append(f"nic.{name} is {given!r}; it must be a mapping of name to number")
        return {}
    found = {}
    for key, value in given.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            faults.append(f"nic.{name}.{key} is {value!r}; it must be a number from {least} on")
        else:
            found[str(key)] = value
    return found
