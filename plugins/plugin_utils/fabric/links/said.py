# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What both kinds of ends say, in the same words, so that they can be compared as text.

A text is what an operator reads. Where what an end has is as good as what is wanted (a threshold
rounded by hardware, a larger headroom), its text is the wanted one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Union

from ....module_utils.core.dataclass import dataclass
from ...qos.compiled import FabricIntent, PfcWatchdog, Queue

PORT = "port"
UP = "up"
SPEED = "speed"
MTU = "mtu"
TRUST = "trust"
ROCE_DSCP = "roce_dscp"
CNP_DSCP = "cnp_dscp"
OTHER_DSCPS = "other_dscps"
PRIORITY = "priority"
PFC = "pfc"
LOSSLESS = "lossless"
QUEUES = "queues"
WEIGHTS = "weights"
ECN = "ecn"
CABLE = "cable"
HEADROOM = "headroom"
WATCHDOG = "watchdog"
MARKING = "marking"
CNP_MARKING = "cnp_marking"
ECN_POINTS = "ecn_points"

NOT_SET_UP = "not set up"
"""A rail that nobody has told to be up."""


@dataclass(frozen=True)
class Unsaid:
    """An end does not say something."""

    reason: str
    fault: bool = False
    """It should: then that is a mismatch by itself."""


Said = Mapping[str, Union[str, Unsaid]]
"""By aspect. What an aspect is no question for (the headroom of a NIC) is not in it."""


def numbers(values: Iterable[object]) -> str:
    found = [str(value) for value in values]
    return " and ".join(found) if len(found) < 3 else ", ".join(found)


class DscpTexts:
    """How a table of 64 traffic classes sorts RoCE, CNP, and everything else.

    A fabric of a hundred thousand ports has a handful of tables: each is looked at once.
    """

    def __init__(self, intent: FabricIntent) -> None:
        self._intent = intent
        self._known: dict[tuple[object, ...], dict[str, str]] = {}

    def of(self, classes: tuple[object, ...]) -> dict[str, str]:
        if classes not in self._known:
            self._known[classes] = self._texts(tuple(str(each) for each in classes))
        return self._known[classes]

    def _texts(self, classes: tuple[str, ...]) -> dict[str, str]:
        intent = self._intent
        roce, cnp = intent.queue("roce"), intent.queue("cnp")
        special = {*roce.dscps, *cnp.dscps}
        others = [
            (dscp, classes[dscp])
            for dscp, wanted in enumerate(intent.dscp_to_traffic_class)
            if dscp not in special and classes[dscp] != str(wanted)
        ]
        return {
            ROCE_DSCP: _class_text(roce, classes),
            CNP_DSCP: _class_text(cnp, classes),
            OTHER_DSCPS: _others(others),
        }


def _class_text(queue: Queue, classes: tuple[str, ...]) -> str:
    """Where its DSCP goes; and where that is wrong, which go there instead."""
    (dscp,) = queue.dscps
    text, wanted = f"DSCP {dscp} to TC {classes[dscp]}", str(queue.traffic_class)
    instead = [other for other, found in enumerate(classes) if found == wanted]
    if classes[dscp] == wanted or not instead:
        return text
    return f"{text}, {dscp_list(instead)} to TC {wanted}"


def _others(wrong: Sequence[tuple[int, object]]) -> str:
    if not wrong:
        return "as the contract"
    classes: dict[str, list[int]] = {}
    for dscp, traffic_class in wrong:
        classes.setdefault(str(traffic_class), []).append(dscp)
    return ", ".join(f"{dscp_list(dscps)} to TC {tc}" for tc, dscps in classes.items())


def dscp_list(dscps: Sequence[int]) -> str:
    """`DSCP 24-31, 40`"""
    runs: list[list[int]] = []
    for dscp in dscps:
        if runs and runs[-1][1] == dscp - 1:
            runs[-1][1] = dscp
        else:
            runs.append([dscp, dscp])
    return "DSCP " + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def queues_text(strict: Iterable[int], intent: FabricIntent) -> str:
    """Whether CNP come first, and nothing else does."""
    there = set(strict)
    cnp = intent.queue("cnp").traffic_class
    text = f"TC {cnp} (CNP) {'strict' if cnp in there else 'not strict'}"
    others = [
        f"TC {queue.traffic_class} ({queue.name})"
        for queue in intent.queues
        if not queue.strict and queue.traffic_class in there
    ]
    return text + (f", {numbers(others)} strict as well" if others else "")


def pfc_text(priorities: Iterable[int]) -> str:
    found = sorted(priorities)
    return f"PFC on {numbers(found)}" if found else "PFC off"


def mtu_text(size: int) -> str:
    return f"IP packets of {size} bytes"


def speed_text(gbps: float) -> str:
    return f"{gbps:g} Gb/s"


def lossless_text(priorities: Iterable[int]) -> str:
    found = sorted(priorities)
    return f"a lossless buffer for priority {numbers(found)}" if found else "no lossless buffer"


def ecn_text(traffic_class: int, minimum: int, maximum: int, percent: int) -> str:
    return f"TC {traffic_class} marks from {minimum} to {maximum} bytes, {percent} %"


def weights_text(weights: Mapping[int, int]) -> str:
    return ", ".join(f"TC {queue} has {weight} %" for queue, weight in weights.items())


def watchdog_text(watchdog: Union[PfcWatchdog, Mapping[str, object]]) -> str:
    values = vars(watchdog) if isinstance(watchdog, PfcWatchdog) else watchdog
    if not values["enabled"]:
        return "off"
    return (
        f"{values['action']} after {values['detection_ms']} ms, "
        f"back after {values['restoration_ms']} ms"
    )
