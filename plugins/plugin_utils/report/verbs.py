# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The figures of all pairs as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ...module_utils.verbs import endpoints
from .smoke import time_text

SHOWN = 40
"""So many pairs stand in the table; the report has all of them."""
HEADINGS = ("pair", "write_bw", "of line", "write_lat", "p99", "send_bw", "ucx", "on the wire")


def _row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    head = f"{pair['rail']} {pair['host']} -> {pair['peer']}"
    if pair.get("lost") or pair.get("problem"):
        return (head, *["-"] * (len(HEADINGS) - 2), "peer lost" if pair.get("lost") else "FAILED")
    rate, bandwidth = pair.get("line_rate_gbits_s"), _figure(pair, "write_bw", "gbits_s")
    share = f"{bandwidth / rate:.1%}" if bandwidth and rate else "-"
    return (
        head,
        _rate(bandwidth),
        share,
        _time(_figure(pair, "write_lat", "median_us")),
        _time(_figure(pair, "write_lat", "p99_us")),
        _rate(_figure(pair, "send_bw", "gbits_s")),
        _rate(_figure(pair, "ucx", "gbits_s")),
        _wire(pair),
    )


def _figure(pair: Mapping[str, Any], name: str, key: str) -> Any:
    return (pair.get("exchanges", {}).get(name) or {}).get(key)


def _rate(gbits_s: Any) -> str:
    if gbits_s is None:
        return "-"
    return f"{gbits_s:.1f} Gb/s" if gbits_s >= 1 else f"{gbits_s * 1000:.1f} Mb/s"


def _time(microseconds: Any) -> str:
    return "-" if microseconds is None else time_text(microseconds)


def _wire(pair: Mapping[str, Any]) -> str:
    """What was seen of the packets that left."""
    results = list(pair.get("exchanges", {}).values())
    if any(result.get("problem") for result in results):
        return "FAILED"
    seen = [result["wire"]["out"] for result in results if result.get("wire")]
    if not seen:
        return "not seen"
    packets, wrong = sum(one["packets"] for one in seen), sum(one["wrong"] for one in seen)
    values = sorted({value for one in seen for value in one["tos_seen"]})
    return f"{packets} packets, TOS {' '.join(map(str, values))}" + (
        f", {wrong} WRONG" if wrong else ""
    )


def lines(
    pairs: Sequence[Mapping[str, Any]], contract: str, planned: Optional[int] = None
) -> list[str]:
    """The table, what it is held against, and what the NICs counted of trouble."""
    count = f"{len(pairs)} of {planned}" if planned not in (None, len(pairs)) else f"{len(pairs)}"
    # The slowest first: that is the one to look at.
    ordered = sorted(pairs, key=lambda pair: _figure(pair, "write_bw", "gbits_s") or 0.0)
    shown = [HEADINGS, *map(_row, ordered[:SHOWN])]
    widths = [max(map(len, column)) for column in zip(*shown)]
    told = [f"verbs: {count} pairs of rails; contract: {contract}"]
    for row in shown:
        cells = [
            cell.ljust(width) if place in (0, len(row) - 1) else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ]
        told.append("  " + "  ".join(cells).rstrip())
    if len(pairs) > SHOWN:
        told.append(f"  the slowest {SHOWN} of {len(pairs)}; the report has all of them")
    rates = sorted({pair["line_rate_gbits_s"] for pair in pairs if pair.get("line_rate_gbits_s")})
    nominal = any(pair.get("software") for pair in pairs)
    if rates:
        text = f"  line rate {', '.join(f'{rate:g}' for rate in rates)} Gbit/s a rail"
        told.append(text + (" is nominal: Soft-RoCE, only correctness counts" if nominal else ""))
    counted: Counter[str] = Counter()
    for pair in pairs:
        for result in pair.get("exchanges", {}).values():
            counted.update(endpoints.events(result.get("growth") or {}))
    trouble = ", ".join(f"{name} {count}" for name, count in sorted(counted.items()))
    told.append(f"  counted meanwhile: {trouble or 'no errors, no pauses, no CNP'}")
    return told
