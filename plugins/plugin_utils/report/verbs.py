# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The figures of all pairs as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from ...module_utils.core.text import bits_text, columns, counted
from ...module_utils.verbs import endpoints
from .units import time_text

SHOWN = 40
"""Maximum number of pairs in the table; the report has all of them."""
HEADINGS = (
    *("pair", "write_bw", "of line", "write_lat", "p99", "send_bw", "ucx", "gpu_write_bw"),
    "on the wire",
)
FIGURES = (
    *(("write_bw", "gbits_s"), ("write_lat", "median_us"), ("write_lat", "p99_us")),
    *(("send_bw", "gbits_s"), ("ucx", "gbits_s"), ("gpu_write_bw", "gbits_s")),
)


def _row(pair: Mapping[str, Any]) -> tuple[str, ...]:
    head = f"{pair['rail']} {pair['host']} -> {pair['peer']}"
    for key, word in (("lost", "peer lost"), ("shared", "shared"), ("problem", "FAILED")):
        if pair.get(key):
            return (head, *["-"] * (len(HEADINGS) - 2), word)
    rate, bandwidth = pair.get("line_rate_gbits_s"), _figure(pair, "write_bw", "gbits_s")
    first, *rest = (_shown(key, _figure(pair, name, key)) for name, key in FIGURES)
    share = f"{bandwidth / rate:.1%}" if bandwidth and rate else "-"
    return (head, first, share, *rest, _wire(pair))


def _figure(pair: Mapping[str, Any], name: str, key: str) -> Any:
    return (pair.get("exchanges", {}).get(name) or {}).get(key)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    return bits_text(value) if key == "gbits_s" else time_text(value)


def _wire(pair: Mapping[str, Any]) -> str:
    """Captured properties of outgoing packets."""
    results = list(pair.get("exchanges", {}).values())
    if any(result.get("problem") for result in results):
        return "FAILED"
    seen = [result["wire"]["out"] for result in results if result.get("wire")]
    if not seen:
        return "not seen"
    packets, wrong = sum(item["packets"] for item in seen), sum(item["wrong"] for item in seen)
    values = sorted({value for item in seen for value in item["tos_seen"]})
    return f"{packets} packets, TOS {' '.join(map(str, values))}" + (
        f", {wrong} WRONG" if wrong else ""
    )


def lines(
    pairs: Sequence[Mapping[str, Any]], contract: str, planned: Optional[int] = None
) -> list[str]:
    """The table, reference values, and error counters of NICs."""
    count = f"{len(pairs)} of {planned}" if planned not in (None, len(pairs)) else f"{len(pairs)}"
    # The slowest first.
    ordered = sorted(pairs, key=lambda pair: _figure(pair, "write_bw", "gbits_s") or 0.0)
    shown = columns([HEADINGS, *map(_row, ordered[:SHOWN])], left=(0, len(HEADINGS) - 1))
    if len(pairs) > SHOWN:
        shown.append(f"the slowest {SHOWN} of {len(pairs)}; the report has all of them")
    rates = sorted({pair["line_rate_gbits_s"] for pair in pairs if pair.get("line_rate_gbits_s")})
    nominal = any(pair.get("software") for pair in pairs)
    if rates:
        text = f"line rate {', '.join(f'{rate:g}' for rate in rates)} Gb/s a rail"
        shown.append(
            text
            + (" is nominal: with Soft-RoCE, only correctness is meaningful" if nominal else "")
        )
    shown.append(_counted(pairs))
    head = f"verbs: {count} pairs of rails; contract: {contract}"
    return [head, *(f"  {line}" for line in shown)]


def _counted(pairs: Iterable[Mapping[str, Any]]) -> str:
    found: Counter[str] = Counter()
    for pair in pairs:
        for result in pair.get("exchanges", {}).values():
            found.update(endpoints.events(result.get("growth") or {}))
    trouble = ", ".join(f"{name} {count}" for name, count in sorted(found.items()))
    return f"counted meanwhile: {trouble or 'no errors, no pauses, no CNP'}"


INCAST = ("receiver", "senders", "together", "of line", "slowest", "fastest", "marked", "CNPs")


def incasts(pairs: Sequence[Mapping[str, Any]], title: str) -> list[str]:
    """The table of incasts, and error counters of the receivers' NICs."""
    by_receiver: dict[str, list[Mapping[str, Any]]] = {}
    for pair in pairs:
        by_receiver.setdefault(f"{pair['rail']} {pair['host']}", []).append(pair)
    rows = [_incast(name, those) for name, those in by_receiver.items()]
    shown = columns([INCAST, *rows[:SHOWN]], left=(0,))
    if len(rows) > SHOWN:
        shown.append(f"{SHOWN} of {len(rows)}; the report has all of them")
    shown.append(_counted(pairs))
    return [f"{title}: {counted(len(rows), 'receiver')}", *(f"  {line}" for line in shown)]


def _incast(name: str, pairs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    rates = [_figure(pair, "incast", "gbits_s") or 0.0 for pair in pairs]
    line = max((pair.get("line_rate_gbits_s") or 0.0 for pair in pairs), default=0.0)
    growth: Counter[str] = Counter()
    for pair in pairs:
        growth.update(_figure(pair, "incast", "growth") or {})
    return (
        *(name, f"{sum(rate > 0 for rate in rates)} of {len(rates)}", bits_text(sum(rates))),
        f"{sum(rates) / line:.1%}" if line else "-",
        *(bits_text(min(rates)), bits_text(max(rates))),
        *(str(growth[key]) for key in ("np_ecn_marked_roce_packets", "np_cnp_sent")),
    )
