# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Times to figures, in the field's terms: algorithm bandwidth and bus bandwidth."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional


def quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of an ordered sequence: always a time that was measured."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def median(ordered: Sequence[float]) -> float:
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def figure(size: int, times_us: Sequence[float], ranks: int) -> dict[str, Any]:
    """The figures of one size. Bandwidths are in 10^9 bytes per second, from the median time.

    Bus bandwidth is what each rank's link has to carry, whatever the algorithm: an allreduce moves
    2(n-1)/n times the buffer in and out of every rank.
    """
    ordered = sorted(times_us)
    middle = median(ordered)
    algbw = size / middle / 1000 if middle > 0 else 0.0
    return {
        "bytes": size,
        "iterations": len(ordered),
        "min_us": ordered[0],
        "median_us": round(middle, 2),
        "p99_us": quantile(ordered, 0.99),
        "algbw_gbytes_s": round(algbw, 9),
        "busbw_gbytes_s": round(algbw * 2 * (ranks - 1) / ranks, 9),
    }


def figures(records: Iterable[Mapping[str, Any]], ranks: int) -> list[dict[str, Any]]:
    return [
        figure(record["bytes"], record["times_us"], ranks)
        for record in records
        if record["kind"] == "size" and record["times_us"]
    ]


def best_busbw(found: Iterable[Mapping[str, Any]]) -> Optional[Mapping[str, Any]]:
    """The size that did best: the one a threshold is about."""
    return max(found, key=lambda one: float(one["busbw_gbytes_s"]), default=None)
