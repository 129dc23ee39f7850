# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The page of a certificate of acceptance: pairs as heat maps, sweeps, cables, outliers, and what
was not measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any, Optional

from ...module_utils.core.checks import FAILED
from ...module_utils.core.text import bits_text, counted, some
from ..answers import checks as checks_of
from ..answers import mapping, sequence
from ..report.preflight import ranges
from .bench import charts_of, figures_of, sweeps_of
from .cards import MAX_LISTED, Row, card, figure, heading, listed, more, number, verdict
from .figures import Fabric, Fault, chart, fabric, shown, tiles
from .html import Markup, section, table, tag

CLASSES = {"passed": "ok", "failed": "bad", "incomplete": "warn"}
MAX_GROUPS, MAX_RAILS, MAX_CARDS = 64, 64, 50
MAX_TABLE = 16
"""A matrix of more groups is a list of its slowest cells."""
UNITS = {"gbits_s": ("Gb/s", "bandwidth"), "latency_us": ("us", "latency")}
Matrix = list[list[Optional[float]]]


def page(report: Row) -> tuple[str, list[Markup], dict[str, Any]]:
    cluster, word = str(report.get("cluster")), str(report.get("verdict"))
    class_ = CLASSES.get(word, "warn")
    checks = checks_of(list(sequence(report.get("checks"))))
    failed = [check for check in checks if check["status"] == FAILED]
    missing = [
        (str(row.get("what")), str(row.get("why")), "in part" if row.get("partial") else "all")
        for row in map(mapping, sequence(report.get("not_measured")))
    ]
    sentence = _sentence(report, failed, missing)
    charts: list[dict[str, Any]] = []
    figures, sections = _figures(report), [*_pairs(report, charts), *_sweeps(report, charts)]
    body = [
        heading(cluster, "acceptance", report),
        verdict(class_, word.capitalize(), sentence),
        tiles(_tiles(report, figures)),
        *_findings(failed),
        *sections,
        *_cables(report, failed),
        *_outliers(report),
        *_rest(report, missing),
    ]
    summary = {
        "kind": "acceptance certificate",
        "class": class_,
        "word": word.capitalize(),
        "sentence": sentence,
        "started": str(report.get("made") or ""),
        "figures": figures,
        "charts": charts,
    }
    return f"{cluster}: acceptance", body, summary


def _sentence(report: Row, failed: list[Any], missing: list[tuple[str, str, str]]) -> str:
    coverage = mapping(report.get("coverage"))
    nodes, rails = (sequence(coverage.get(key)) for key in ("nodes", "rails"))
    pairs = f"{number(coverage.get('pairs')):.0f} of {number(coverage.get('possible_pairs')):.0f}"
    said = f"{pairs} pairs of {counted(len(nodes), 'node')} on {counted(len(rails), 'rail')}"
    verdicts = [str(row.get("text")) for row in map(mapping, sequence(report.get("verdicts")))]
    if verdicts:
        said = f"{some(verdicts, 3)}. {said}"
    if failed:
        said += f", {counted(len(failed), 'check')} failed"
    left = [what for what, _why, part in missing if part == "all"]
    said += f"; not measured: {some(left, 4)}" if left else ""
    return f"{said[0].upper()}{said[1:]}."


def _figures(report: Row) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    for row in map(mapping, sequence(report.get("figures"))[: 2 * MAX_RAILS]):
        rails = " to ".join(str(row[key]) for key in ("rail", "far_rail") if row.get(key))
        name = f"{rails} {row.get('path')}"[:80]
        lowest, latency = mapping(row.get("gbits_s")), mapping(row.get("latency_us"))
        if lowest:
            found[f"{name}, lowest"] = (number(lowest.get("min")), "Gb/s")
        if latency:
            found[f"{name}, latency"] = (number(latency.get("median")), "us")
    for program, result in mapping(report.get("sweeps")).items():
        for name, best in figures_of(sweeps_of(mapping(result))).items():
            found[f"{program} {name}"[:120]] = best
    return found


def _tiles(report: Row, figures: Mapping[str, tuple[float, str]]) -> dict[str, tuple[float, str]]:
    coverage = mapping(report.get("coverage"))
    rates = [mapping(row.get("gbits_s")) for row in map(mapping, sequence(report.get("figures")))]
    late = [mapping(row.get("latency_us")) for row in map(mapping, sequence(report.get("figures")))]
    found = {
        "nodes": (float(len(sequence(coverage.get("nodes")))), ""),
        "pairs measured": (number(coverage.get("pairs")), ""),
        "lowest bandwidth": (
            min((number(row["min"]) for row in rates if "min" in row), default=0.0),
            "Gb/s",
        ),
        "highest latency": (
            max((number(row["max"]) for row in late if "max" in row), default=0.0),
            "us",
        ),
    }
    sweeps = {name: each for name, each in figures.items() if each[1] == "GB/s"}
    return {**found, **dict(list(sweeps.items())[:4])}


def _findings(failed: list[Any]) -> Iterator[Markup]:
    by_name: dict[str, list[tuple[str, Row]]] = {}
    for check in failed:
        by_name.setdefault(str(check["name"]), []).append(("", check))
    cards = [card(FAILED, "acceptance", name, rows) for name, rows in by_name.items()]
    if cards:
        yield section("Findings", *cards[:MAX_CARDS], more(len(cards) - MAX_CARDS))


def _pairs(report: Row, charts: list[dict[str, Any]]) -> Iterator[Markup]:
    found = mapping(report.get("pairs"))
    groups = [sequence(group) for group in sequence(found.get("groups"))[:MAX_GROUPS]]
    names = [ranges(map(str, group))[:80] for group in groups]
    line = {
        str(row.get("rail")): number(row.get("line_rate_gbits_s"))
        for row in map(mapping, sequence(report.get("figures")))
    }
    places = []
    for rail, maps in list(mapping(found.get("rails")).items())[:MAX_RAILS]:
        for what, (unit, means) in UNITS.items():
            matrix = _matrix(mapping(maps).get(what), len(names))
            values = [each for row in matrix for each in row if each]
            if not values:
                continue
            title = f"{rail}: {means} of pairs"
            per = "pair" if len(names) == sum(map(len, groups)) else "pair of groups, the worst"
            note = f"A cell per {per}, from the row's node to the column's; "
            note += f"{shown(min(values), unit)} to {shown(max(values), unit)}"
            rate = line.get(str(rail), 0.0)
            if what == "gbits_s" and rate:
                note += f"; line rate {rate:g} Gb/s"
                note += " (nominal)" if report.get("virtual") else ""
            if any(each == 0 for row in matrix for each in row):
                note += "; ✕ without a figure"
            places.append(chart(len(charts), title, note, _table(title, what, names, matrix), True))
            charts.append(_heat(names, matrix, unit, what == "latency_us"))
    if places:
        yield section("Pairs by rail", tag("div", *places, class_="charts"))


def _matrix(found: Any, count: int) -> Matrix:
    """Rows of numbers, None where there is none."""
    rows = [list(sequence(row))[:count] for row in sequence(found)[:count]]
    return [[figure(each) for each in row] for row in rows]


def _heat(names: list[str], matrix: Matrix, unit: str, late: bool) -> dict[str, Any]:
    if unit == "Gb/s" and max(each or 0.0 for row in matrix for each in row) < 1:
        matrix = [[each and float(f"{each * 1000:.4g}") for each in row] for row in matrix]
        unit = "Mb/s"
    values = [each for row in matrix for each in row if each]
    cells = [
        [column, row, each]
        for row, line in enumerate(matrix)
        for column, each in enumerate(line)
        if each is not None
    ]
    axis = {"type": "category", "data": names, "axisTick": {"show": False}}
    # Ordinary scatter has one colour: the scale reaches well beyond the median.
    middle = median(values)
    low, high = min([*values, 0.8 * middle]), max([*values, 1.05 * middle])
    if late:
        low, high = min(values), max([*values, 1.6 * middle])
    series = {"type": "heatmap", "data": [cell for cell in cells if cell[2]]}
    lost = {
        "type": "scatter",
        "symbol": "path://M2 0L5 3L8 0L10 2L7 5L10 8L8 10L5 7L2 10L0 8L3 5L0 2Z",
        "symbolSize": 14,
        "data": [cell[:2] for cell in cells if not cell[2]],
    }
    return {
        "heat": "late" if late else "rate",
        "unit": unit,
        "grid": {"left": 8, "right": 12, "top": 12, "bottom": 76, "containLabel": True},
        "tooltip": {},
        "xAxis": {**axis, "axisLabel": {"rotate": 45 if len(names) > 6 else 0}},
        "yAxis": {**axis, "inverse": True},
        "visualMap": {
            "min": float(f"{low:.4g}"),
            "max": float(f"{high:.4g}"),
            "calculable": True,
            "formatter": f"{{value}} {unit}",
            "precision": min(9, max(0, 2 - math.floor(math.log10(high)))),
            "orient": "horizontal",
            "left": "center",
            "bottom": 0,
            "itemHeight": 180,
            "seriesIndex": 0,
        },
        "series": [series, lost],
    }


def _table(title: str, what: str, names: list[str], matrix: Matrix) -> Markup:
    unit, means = UNITS[what]
    if len(names) <= MAX_TABLE:
        rows = [(name, *(_cell(each, unit) for each in row)) for name, row in zip(names, matrix)]
        return table(f"{title}: from the row to the column", ("from", *names), rows)
    cells = [
        (each, names[row], names[column])
        for row, line in enumerate(matrix)
        for column, each in enumerate(line)
        if each is not None
    ]
    cells.sort(key=lambda cell: cell[0], reverse=unit == "us")
    worst = [(first, second, _cell(each, unit)) for each, first, second in cells[:MAX_LISTED]]
    return table(f"{title}: the worst of {len(cells)}", ("from", "to", means), worst)


def _cell(each: Optional[float], unit: str) -> str:
    if each is None:
        return "-"
    return shown(each, unit) if each else "✕ none"


def _sweeps(report: Row, charts: list[dict[str, Any]]) -> Iterator[Markup]:
    drawn: list[Markup] = []
    for program, result in list(mapping(report.get("sweeps")).items())[:8]:
        sweeps = sweeps_of(mapping(result))
        options, places = charts_of(
            sweeps, bool(report.get("virtual")), len(charts), f"{program} "[:40]
        )
        charts += options
        drawn += places
    if drawn:
        yield section("By message size", *drawn)


def _cables(report: Row, failed: list[Any]) -> Iterator[Markup]:
    rows = [
        (str(row.get("cable")), str(row.get("kind")), str(row.get("evidence")))
        for row in map(mapping, sequence(report.get("cables")))
    ]
    drawn = Fabric(mapping(report.get("topology")))
    outliers = map(mapping, sequence(report.get("outliers")))
    pairs = {str(row.get("subject")) for row in outliers if row.get("kind") == "pair"}
    drawn.blame(
        Fault("", str(check["subject"]), f"{check['found']}: {check['reason']}")
        for check in failed
        if check["name"] in ("acceptance_part", "acceptance_cable")
        and check["subject"] not in pairs  # a pair does not say which of its cables
    )
    picture = fabric(drawn)
    others = listed("Cables that are not like the others", ("cable", "kind", "evidence"), rows)
    if rows or picture:
        yield section("Leaf-spine cables", picture, others if rows else "")


def _outliers(report: Row) -> Iterator[Markup]:
    rows = [
        (
            str(row.get("subject")),
            str(row.get("kind")),
            shown(number(row.get("found")), _unit(row)) if row.get("found") else "no figure",
            shown(number(row.get("median")), _unit(row)),
        )
        for row in map(mapping, sequence(report.get("outliers")))
    ]
    worst = [
        (
            str(row.get("pair")),
            bits_text(number(row["gbits_s"]))
            if row.get("gbits_s")
            else str(row.get("error") or "-"),
            shown(number(row["latency_us"]), "us") if row.get("latency_us") else "-",
            f"{number(row.get('share_of_median')):.1%}",
        )
        for row in map(mapping, sequence(report.get("worst")))
    ]
    tables = []
    if rows:
        head = ("part", "kind", "found", "median of the others")
        tables.append(listed("Outliers", head, rows))
    if worst:
        head = ("pair", "bandwidth", "latency", "of the median")
        tables.append(listed("The slowest pairs", head, worst))
    if tables:
        yield section("Outliers", *tables)


def _unit(row: Row) -> str:
    return "us" if row.get("figure") == "latency_us" else "Gb/s"


def _rest(report: Row, missing: list[tuple[str, str, str]]) -> Iterator[Markup]:
    summaries = [
        (
            f"{row.get('rail')} {row.get('path')}",
            int(number(row.get("pairs"))),
            *(
                shown(number(mapping(row.get("gbits_s")).get(key)), "Gb/s")
                for key in ("median", "min")
            ),
            *(
                shown(number(mapping(row.get("latency_us")).get(key)), "us")
                for key in ("median", "max")
            ),
        )
        for row in map(mapping, sequence(report.get("figures")))
    ]
    if summaries:
        head = ("rail and path", "pairs", "median", "lowest", "latency", "highest")
        yield section("Figures", listed("Figures by rail and path", head, summaries))
    if missing:
        yield section(
            "Not measured",
            listed("What was not measured", ("what", "why", "extent"), missing),
        )
    versions = [
        (str(what), str(version), ranges(map(str, sequence(nodes))))
        for what, found in mapping(report.get("versions")).items()
        for version, nodes in mapping(found).items()
    ]
    signature = report.get("signature")
    signed = (
        f"Signed by {mapping(signature).get('by')}."
        if isinstance(signature, dict)
        else (f"Unsigned: {report.get('unsigned_because') or 'no signature'}.")
    )
    inside = [
        tag("p", signed, " This page is not signed; its JSON report is (docs/acceptance.md).")
    ]
    if versions:
        inside.append(listed("Versions", ("what", "version", "nodes"), versions))
    yield section("Certificate", *inside)
