# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How often links go down, and how many errors they count, per hour and day, over boots.

A counter begins again at zero with each boot and each time its port is created. What it counted
while links were set up after a boot is no fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check
from ..hardware import tree
from ..nic.health import UNCORRECTED
from ..nic.port_settings import Ethtool

LINK_DOWNS, ERRORS = "node_link_downs", "node_symbol_errors"
HOUR_S, DAY_S = 3600.0, 86400.0
GRACE_S = 1800.0
"""Seconds after a boot in which links are still set up: the 30 minutes of OCI's health checks."""
MOST_EVENTS = 400
DOWNS_OF_PORT = "link_down_events_phy"
SYMBOLS = ("rx_symbol_err_phy", UNCORRECTED)
DOWNS_OF_KERNEL = "carrier_down_count"


@dataclass(frozen=True)
class Series:
    """One counter: its last value, in which boot, and by how much it grew when."""

    boot: str
    value: int
    total: int = 0
    """Growth since the series began, over boots."""
    events: Sequence[tuple[float, int]] = ()
    """Time (UNIX) and growth, oldest first, of the last day."""

    def within(self, now: float, window_s: float) -> int:
        return sum(growth for at, growth in self.events if at > now - window_s)

    def as_list(self) -> list[Any]:
        return [self.boot, self.value, self.total, [list(event) for event in self.events]]


def parsed(given: Any) -> Optional[Series]:
    """A series of the state; None for anything else."""
    try:
        boot, value, total, events = given
        pairs = [(float(at), int(growth)) for at, growth in events]
        return Series(str(boot), int(value), int(total), pairs[-MOST_EVENTS:])
    except (TypeError, ValueError, OverflowError):
        return None


def advance(
    series: Optional[Series], boot: str, value: int, now: float, uptime_s: float, *, reset: int = 0
) -> Series:
    """The series after one more reading. `reset`: what it counts as that the counter began again
    within a boot, as its port was created again."""
    if series is None:
        return Series(boot, value)
    growth = value - series.value
    if boot != series.boot or uptime_s < GRACE_S:
        growth = 0
    elif growth < 0:
        growth = value + reset
    # The clock may have been set back: no event is in the future.
    events = [(min(at, now), count) for at, count in series.events if at > now - DAY_S]
    if growth:
        events.append((now, growth))
    if len(events) > MOST_EVENTS:
        (_first, lost), (at, count), *events = events
        events.insert(0, (at, count + lost))
    return Series(boot, value, series.total + growth, events)


def read(root: Path, interface: str, ethtool: Ethtool) -> dict[str, int]:
    """Counters of a port by check; the kernel's own where its driver has none."""
    counters: Mapping[str, int] = {}
    with contextlib.suppress(OSError):
        counters = ethtool.statistics(interface)
    found = {}
    downs = counters.get(DOWNS_OF_PORT)
    if downs is None:
        downs = tree.number(root / "sys/class/net" / interface / DOWNS_OF_KERNEL)
    if downs is not None:
        found[LINK_DOWNS] = downs
    if any(name in counters for name in SYMBOLS):
        found[ERRORS] = sum(counters.get(name, 0) for name in SYMBOLS)
    return found


def judge(
    rail: str, name: str, series: Series, now: float, per_hour: float, per_day: Optional[float]
) -> Check:
    hour, day = series.within(now, HOUR_S), series.within(now, DAY_S)
    wanted = {"per_hour": per_hour, **({} if per_day is None else {"per_day": per_day})}
    found = {"per_hour": hour, "per_day": day, "in_all": series.total}
    if hour <= per_hour and (per_day is None or day <= per_day):
        return Check(name, wanted, found, OK, rail)
    many = f"{hour} in the last hour, {day} in the last day"
    what = "its link went down too often" if name == LINK_DOWNS else "too many symbol errors"
    reason = f"{what}: {many}. Clean or replace cable and transceivers, here and at the leaf"
    return Check(name, wanted, found, FAILED, rail, reason)


def evaluated(
    known: Mapping[str, Any],
    readings: Mapping[str, Mapping[str, int]],
    limits: Mapping[str, tuple[float, Optional[float]]],
    boot: str,
    now: float,
    uptime_s: float,
) -> Iterator[tuple[str, list[Any], Check]]:
    """Yield for each counter of each rail its key, its series for the state, and its check.

    `known`: the state, `readings`: counters by rail and check, `limits`: per hour and day by check.
    """
    for rail, counters in readings.items():
        for name, value in counters.items():
            key = f"{rail} {name}"
            reset = int(name == LINK_DOWNS)
            before = parsed(known.get(key))
            series = advance(before, boot, value, now, uptime_s, reset=reset)
            yield key, series.as_list(), judge(rail, name, series, now, *limits[name])
