# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Times of all hosts to figures: each host by itself, and all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Optional

from ...allreduce.figures import median
from ...dataclass import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """10^9 bytes per second. Slowest and fastest with the host's name."""

    slowest: float
    slowest_host: str
    median: float
    fastest: float
    fastest_host: str
    together: float
    nodes: int
    """Hosts that measured something: one that serves the file system is not among them."""
    at_once: int
    """Hosts that were at it at the same time, at most."""
    seconds: float
    """During which at least one host was at it."""
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """How long at least one of them lasted: gaps in which nobody did anything do not count."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def most_at_once(intervals: Sequence[Interval]) -> int:
    """One that begins as another ends is not beside it."""
    moments = [(begin, 1) for begin, _end in intervals] + [(end, -1) for _begin, end in intervals]
    now = most = 0
    for _moment, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def figure(measured: Mapping[str, Mapping[str, Any]]) -> Optional[Figure]:
    """Of what each host measured. None where nobody measured anything.

    `together` is all bytes over the time in which anybody was at it, by the hosts' wall clocks,
    which the layer os keeps together. It is never more than what all of them had by themselves:
    clocks that differ would otherwise make it so.
    """
    rates = {
        host: each["bytes"] / each["seconds"] / 1e9
        for host, each in measured.items()
        if each["bytes"] and each["seconds"] > 0
    }
    if not rates:
        return None
    intervals = [
        (measured[host]["ended"] - measured[host]["seconds"], measured[host]["ended"])
        for host in rates
    ]
    ordered = sorted(rates, key=lambda host: rates[host])
    volume = sum(int(measured[host]["bytes"]) for host in rates)
    seconds = busy_seconds(intervals)
    return Figure(
        slowest=rates[ordered[0]],
        slowest_host=ordered[0],
        median=median([rates[host] for host in ordered]),
        fastest=rates[ordered[-1]],
        fastest_host=ordered[-1],
        together=min(volume / seconds / 1e9, sum(rates.values())),
        nodes=len(rates),
        at_once=most_at_once(intervals),
        seconds=seconds,
        bytes=volume,
    )
