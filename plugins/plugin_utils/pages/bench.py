# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page of a benchmark, and charts of sweeps over message sizes for the page of acceptance."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ...module_utils.core.checks import FAILED
from ...module_utils.core.text import bytes_text, counted
from ..answers import checks as checks_of
from ..answers import mapping, sequence
from ..report.bench import WHAT
from .cards import Row, card, heading, number, verdict
from .figures import chart, shown, tiles
from .html import Markup, section, table

MAX_SWEEPS, MAX_SIZES, MAX_NAME = 64, 64, 80
NOMINAL_FACTOR = 10
"""A line rate that is so far above all values, as that of virtual nodes, is not drawn."""


def page(report: Row) -> tuple[str, list[Markup], dict[str, Any]]:
    virtual, sweeps = bool(report.get("virtual")), sweeps_of(report)
    checks = checks_of(list(sequence(report.get("checks"))))
    failed = [("", check) for check in checks if check["status"] == FAILED]
    nominal = " Virtual nodes: line rates are nominal." if virtual else ""
    said = f"{counted(len(sweeps), 'sweep')} by {report.get('program')} over "
    said += f"{report.get('transport')}.{nominal}"
    if failed:
        said = f"{len(failed)} of {said}"
    word, class_ = ("Below a threshold", "bad") if failed else ("Measured", "ok")
    best = figures_of(sweeps)
    charts, drawn = charts_of(sweeps, virtual, 0)
    cluster = str(report.get("cluster") or "")
    title = f"{cluster}: benchmark" if cluster else "Benchmark"
    body = [
        heading(cluster or "benchmark", "MPI latency and bandwidth", report),
        verdict(class_, word, said),
        tiles(best),
        *([section("Findings", card(FAILED, "bench", "sweep", failed))] if failed else []),
        section("By message size", *drawn),
    ]
    summary = {
        "kind": f"bench {report.get('program')}"[:MAX_NAME],
        "class": class_,
        "word": word,
        "sentence": said,
        "started": str(report.get("started") or report.get("made") or ""),
        "figures": best,
        "charts": charts,
    }
    return title, body, summary


def sweeps_of(report: Row) -> list[dict[str, Any]]:
    """Sweeps of a report, with rows of bytes, microseconds and GB/s."""
    found = []
    for sweep in map(mapping, sequence(report.get("sweeps"))[:MAX_SWEEPS]):
        rows = [
            tuple(number(row.get(key)) for key in ("bytes", "latency_us", "gbytes_s"))
            for row in map(mapping, sequence(sweep.get("by_size"))[:MAX_SIZES])
        ]
        names = {key: str(sweep.get(key))[:MAX_NAME] for key in ("benchmark", "where")}
        keys = ("line_rate_gbytes_s", "threshold", "best")
        found.append({**names, **{key: number(sweep.get(key)) for key in keys}, "rows": rows})
    return found


def figures_of(sweeps: Iterable[Row]) -> dict[str, tuple[float, str]]:
    return {
        f"{sweep['benchmark']}, {sweep['where']}": (
            sweep["best"],
            "us" if sweep["benchmark"] == "latency" else "GB/s",
        )
        for sweep in sweeps
        if sweep["best"]
    }


def charts_of(
    sweeps: Iterable[dict[str, Any]], virtual: bool, first: int, prefix: str = ""
) -> tuple[list[dict[str, Any]], list[Markup]]:
    """A chart per benchmark: options of ECharts from number `first`, and their places."""
    by_benchmark: dict[str, list[dict[str, Any]]] = {}
    for sweep in sweeps:
        by_benchmark.setdefault(sweep["benchmark"], []).append(sweep)
    options: list[dict[str, Any]] = []
    places: list[Markup] = []
    for benchmark, own in by_benchmark.items():
        option, note = _option(benchmark, own, virtual)
        options.append(option)
        what = WHAT.get(benchmark, "bus bandwidth")
        title = f"{prefix}{benchmark}" + ("" if what == benchmark else f": {what}")
        places.append(chart(first + len(places), title, note, _numbers(title, benchmark, own)))
    return options, places


def _option(benchmark: str, own: list[dict[str, Any]], virtual: bool) -> tuple[dict[str, Any], str]:
    late = benchmark == "latency"
    unit, at = ("us", 1) if late else ("GB/s", 2)
    sizes = sorted({row[0] for sweep in own for row in sweep["rows"]})
    top = max((row[at] for sweep in own for row in sweep["rows"]), default=0.0)
    marks, notes = _marks(own, late, virtual, top)
    series: list[dict[str, Any]] = []
    for sweep in own:
        values = {row[0]: row[at] for row in sweep["rows"] if row[at]}
        series.append(
            {
                "type": "line",
                "name": sweep["where"],
                "data": [values.get(size) for size in sizes],
                "connectNulls": True,
                "symbolSize": 6,
            }
        )
    if series and marks:
        series[0]["markLine"] = {"symbol": "none", "data": marks}
    highest = max([top, *(mark["yAxis"] for mark in marks)])
    option = {
        "grid": {"left": 12, "right": 16, "top": 40, "bottom": 56, "containLabel": True},
        "legend": {"type": "scroll", "bottom": 0},
        "unit": unit,
        "tooltip": {"trigger": "axis"},
        "xAxis": {
            "type": "category",
            "name": "message size",
            "nameLocation": "middle",
            "nameGap": 30,
            "data": [bytes_text(int(size)) for size in sizes],
        },
        "yAxis": {"type": "log"} if late else {"type": "value", "max": _round_up(highest)},
        "series": series,
    }
    option["yAxis"] = {**mapping(option["yAxis"]), "name": unit, "nameLocation": "end"}
    return option, "; ".join(notes)


def _marks(
    own: list[dict[str, Any]], late: bool, virtual: bool, top: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Lines of line rates and thresholds, and the same as a note."""
    marks, notes = [], []
    rates = sorted({sweep["line_rate_gbytes_s"] for sweep in own} - {0.0})
    for rate in rates if not late else ():
        said = f"line rate {rate:.4g} GB/s" + (" (nominal)" if virtual else "")
        notes.append(said)
        if rate <= NOMINAL_FACTOR * top:
            style = {"lineStyle": {"type": "dashed"}}
            marks.append({"yAxis": rate, "name": said, "label": _label(said, late), **style})
        else:
            notes[-1] += ", above the drawing"
    unit = "us, up to 8 B" if late else "GB/s"
    for limit in sorted({sweep["threshold"] for sweep in own} - {0.0}):
        said = f"threshold {limit:.4g} {unit}"
        notes.append(said)
        marks.append({"yAxis": limit, "name": said, "label": _label(said, late), "bad": True})
    return marks, notes


def _label(said: str, late: bool) -> dict[str, Any]:
    # No curve is there: rates are low on the left, latencies high on the right.
    return {"formatter": said, "position": "insideEndBottom" if late else "insideStartTop"}


def _round_up(highest: float) -> float:
    """The end of an axis, a round number slightly above the highest value."""
    if highest <= 0:
        return 1.0
    scale = 10.0 ** math.floor(math.log10(highest))
    steps = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
    fits = [step * scale for step in steps if step * scale >= highest * 1.02]
    return float(f"{min(fits, default=10 * scale):.6g}")


def _numbers(title: str, benchmark: str, own: list[dict[str, Any]]) -> Markup:
    late = benchmark == "latency"
    sizes = sorted({row[0] for sweep in own for row in sweep["rows"]})
    at, unit = (1, "us") if late else (2, "GB/s")
    found: list[Mapping[float, float]] = [{row[0]: row[at] for row in s["rows"]} for s in own]
    rows = [
        (
            bytes_text(int(size)),
            *(shown(values[size], unit) if values.get(size) else "-" for values in found),
        )
        for size in sizes
    ]
    return table(title, ("message size", *(sweep["where"] for sweep in own)), rows)
