# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the figures of an acceptance show: figures of each rail and class of path, the worst pairs,
outliers, and checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ...module_utils.core.text import bits_text, columns, counted, some
from . import outliers
from .figures import (
    ACROSS,
    CABLE,
    LOSSY,
    NODE,
    NOT_REPRODUCED,
    SAME_LEAF,
    SPINE,
    Figure,
    Topology,
    Verdict,
    by_rail,
)
from .figures import RAIL as OF_NODE
from .measured import LOW

WORST = 10
MAX_GROUPS = 48
"""Most rows of a matrix of pairs."""
WORSE: Mapping[str, Callable[[Sequence[float]], float]] = {"gbits_s": min, "latency_us": max}
MAX_LISTED = 8
RAIL, PART = "acceptance_rail", "acceptance_part"
KINDS = {NODE, OF_NODE, CABLE, SPINE}
"""Of verdicts that name a part."""


@dataclass
class Evaluation:
    figures: list[dict[str, Any]]
    """Of each rail and class of path."""
    worst: list[dict[str, Any]]
    bandwidth: outliers.Analysis
    latency: outliers.Analysis
    verdicts: list[Verdict] = field(default_factory=list)
    """Of the search; empty if nothing was suspect, or there was no time for it."""
    checks: list[Check] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {
            "figures": self.figures,
            "worst": self.worst,
            "outliers": [_outlier(each, "gbits_s") for each in self.bandwidth.outliers]
            + [_outlier(each, "latency_us") for each in self.latency.outliers],
            "verdicts": [
                {**asdict(verdict), "text": verdict.sentence()} for verdict in self.verdicts
            ],
        }


def _outlier(outlier: outliers.Outlier, what: str) -> dict[str, Any]:
    return {
        "kind": outlier.kind,
        "subject": outlier.subject,
        "figure": what,
        "found": outlier.found,
        "median": outlier.median,
        "pairs": outlier.pairs,
    }


def evaluate(
    figures: Sequence[Figure],
    topology: Topology,
    *,
    verdicts: Sequence[Verdict] = (),
    min_share: Optional[float] = None,
    max_latency_us: Optional[float] = None,
    virtual: bool = False,
) -> Evaluation:
    timed = [figure for figure in figures if figure.latency_us]
    found = Evaluation(
        list(_summaries(figures, topology)),
        _worst(figures, topology),
        outliers.analyse(figures, topology),
        outliers.analyse(timed, topology, outliers.LATENCY_FLOOR, latency=True),
        list(verdicts),
    )
    for rail, own in by_rail(figures).items():
        found.checks += _of_rail(rail, own, topology, min_share, max_latency_us, virtual)
    found.checks += _parts(found, virtual)
    return found


def lower_across(figures: Sequence[Figure], topology: Topology) -> bool:
    """Whether a pair across spines is slower than pairs on one leaf: a cable is slow, or flows
    share one. Pairs of one class of path do not show it, if most of them are affected."""
    for own in by_rail(figures).values():
        paths: dict[str, list[float]] = {}
        for figure in own:
            paths.setdefault(topology.path(figure), []).append(figure.gbits_s or 0.0)
        near, across = paths.get(SAME_LEAF), paths.get(ACROSS)
        if near and across and min(across) < LOW[ACROSS] * median(near):
            return True
    return False


def matrices(figures: Sequence[Figure], topology: Topology) -> dict[str, Any]:
    """By rail, the lowest rate and the highest latency from each group of nodes (row) to each other
    (column), None where nothing was measured, and 0 for a pair without a figure. A group is a node,
    or several consecutive ones in a large cluster."""
    nodes = topology.nodes
    size = -(-len(nodes) // MAX_GROUPS) or 1
    at = {node: place // size for place, node in enumerate(nodes)}
    count = -(-len(nodes) // size)
    rails: dict[str, dict[str, list[list[Optional[float]]]]] = {}
    for figure in figures:
        if figure.far_rail != figure.rail:
            continue
        if figure.rail not in rails:
            shape = range(count)
            rails[figure.rail] = {what: [[None for _ in shape] for _ in shape] for what in WORSE}
        values = {"gbits_s": figure.gbits_s or 0.0, "latency_us": figure.latency_us}
        for what, worst in WORSE.items():
            value = values[what]
            row, column = rails[figure.rail][what][at[figure.first]], at[figure.second]
            known = [each for each in (row[column], value) if each is not None]
            row[column] = float(f"{worst(known):.4g}") if known else None
    groups = [list(nodes[first : first + size]) for first in range(0, len(nodes), size)]
    return {"groups": groups, "rails": rails}


def _classes(
    figures: Iterable[Figure], topology: Topology
) -> dict[tuple[str, str, str], list[Figure]]:
    found: dict[tuple[str, str, str], list[Figure]] = {}
    for figure in figures:
        key = figure.rail, figure.far_rail, topology.path(figure)
        found.setdefault(key, []).append(figure)
    return found


def _summaries(figures: Sequence[Figure], topology: Topology) -> Iterable[dict[str, Any]]:
    for (rail, far_rail, path), own in _classes(figures, topology).items():
        yield {
            "rail": rail,
            **({"far_rail": far_rail} if far_rail != rail else {}),
            "path": path,
            "pairs": len(own),
            "errors": sum(bool(figure.error) for figure in own),
            "line_rate_gbits_s": max(map(topology.line_rate, own)),
            "gbits_s": _spread([figure.gbits_s for figure in own], min),
            "latency_us": _spread([figure.latency_us for figure in own], max),
        }


def _spread(
    given: Sequence[Optional[float]], worst: Callable[[Sequence[float]], float]
) -> Optional[dict[str, float]]:
    values = [value for value in given if value]
    if not values:
        return None
    middle = median(values)
    mad = median(abs(value - middle) for value in values)
    found = {"median": middle, "mad": mad, worst.__name__: worst(values)}
    return {name: float(f"{value:.5g}") for name, value in found.items()}


def _worst(figures: Sequence[Figure], topology: Topology) -> list[dict[str, Any]]:
    """The slowest pairs relative to the median of their rail and path; failed ones first."""
    found = []
    for own in _classes(figures, topology).values():
        values = [figure.gbits_s for figure in own if figure.gbits_s]
        middle = median(values) if values else 0.0
        for figure in own:
            share = (figure.gbits_s or 0.0) / middle if middle else 0.0
            found.append((round(share, 4), figure))
    found.sort(key=lambda each: each[0])
    return [
        {
            "pair": name_of(figure),
            "gbits_s": figure.gbits_s,
            "latency_us": figure.latency_us,
            "share_of_median": share,
            **({"error": figure.error} if figure.error else {}),
        }
        for share, figure in found[:WORST]
    ]


def name_of(figure: Figure) -> str:
    return f"{figure.first} {figure.rail} - {figure.second} {figure.far_rail}"


def _of_rail(
    rail: str,
    figures: Sequence[Figure],
    topology: Topology,
    min_share: Optional[float],
    max_latency_us: Optional[float],
    virtual: bool,
) -> Iterable[Check]:
    """All pairs of a rail in one check: a large cluster has thousands."""
    failed = [figure for figure in figures if figure.error]
    if failed:
        listed = some([f"{name_of(figure)}: {figure.error}" for figure in failed], MAX_LISTED)
        found = f"{counted(len(failed), 'pair')} without a figure"
        # Another subject than that of the thresholds: reports have one check of each.
        yield Check(RAIL, "all pairs measured", found, FAILED, f"{rail} pairs", listed)
    rates = [figure.gbits_s for figure in figures if figure.gbits_s]
    if not rates:
        return
    lowest = f"lowest {bits_text(min(rates))}"
    if virtual or min_share is None:
        reason = "virtual nodes: line rate is nominal" if virtual else "no threshold set"
        yield Check(RAIL, "measured", lowest, NOT_APPLICABLE, rail, reason)
    else:
        below = outliers.below(figures, topology, min_share)
        yield _compared(rail, f"{min_share:.0%} of the line rate", lowest, below)
    latencies = [figure.latency_us for figure in figures if figure.latency_us]
    if max_latency_us is not None and latencies and not virtual:
        above = [figure for figure in figures if (figure.latency_us or 0) > max_latency_us]
        highest = f"highest {max(latencies):.4g} us"
        yield _compared(rail, f"at most {max_latency_us:g} us", highest, above)


def _compared(rail: str, wanted: str, found: str, beyond: Sequence[Figure]) -> Check:
    listed = some([name_of(figure) for figure in beyond], MAX_LISTED)
    reason = f"{counted(len(beyond), 'pair')}: {listed}" if beyond else ""
    return Check(RAIL, wanted, found, FAILED if beyond else OK, rail, reason)


def _parts(found: Evaluation, virtual: bool) -> list[Check]:
    """Parts that are slower than the others: those that the search named, or else outliers. The
    search measures bandwidth, so outliers of latency remain."""
    named = [
        Check(
            PART,
            "like the others",
            f"slow {verdict.kind}" if verdict.subject and verdict.kind in KINDS else verdict.kind,
            OK if verdict.kind in (NOT_REPRODUCED, LOSSY) else FAILED,
            verdict.subject,
            "; ".join([*_more(verdict), *verdict.evidence]),
        )
        for verdict in found.verdicts
    ]
    known = {verdict.subject for verdict in found.verdicts}
    # Ranks of virtual nodes share cores, which delays single messages.
    slow = [each for each in found.latency.outliers if not virtual and each.subject not in known]
    slow = [*([] if named else found.bandwidth.outliers), *slow]
    return named + [
        Check(
            PART,
            f"about {outlier.median:.4g}",
            None if outlier.found is None else float(f"{outlier.found:.4g}"),
            FAILED,
            outlier.subject,
            f"outlier among {counted(outlier.pairs, 'figure')}",
        )
        for outlier in slow
    ]


def _more(verdict: Verdict) -> list[str]:
    """What kind and subject do not say."""
    plain = verdict.subject and verdict.kind in KINDS and not verdict.candidates
    return [] if plain else [verdict.sentence()]


def lines(found: Evaluation, verdict: str, missing: Sequence[Mapping[str, Any]]) -> list[str]:
    """Figures as a table, and a line for each slow part."""
    rows = [("rail", "path", "pairs", "median", "MAD", "min Gb/s", "us", "MAD", "max us")]
    for each in found.figures:
        rate, latency = each["gbits_s"] or {}, each["latency_us"] or {}
        cells = [*(rate.get(key) for key in ("median", "mad", "min"))]
        cells += [*(latency.get(key) for key in ("median", "mad", "max"))]
        rails = " - ".join([each["rail"], *([each["far_rail"]] if "far_rail" in each else [])])
        head = (rails, each["path"], str(each["pairs"]))
        rows.append((*head, *("-" if cell is None else f"{cell:.4g}" for cell in cells)))
    parts = [check.line() for check in found.checks if check.name == PART]
    return [
        *columns(rows, left=(0, 1)),
        *(f"acceptance: {line}" for line in parts[:WORST]),
        *(f"acceptance: not measured: {each['what']}: {each['why']}" for each in missing),
        f"acceptance: {verdict}",
    ]
