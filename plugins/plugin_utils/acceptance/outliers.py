# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Robust outliers by median and MAD: slow nodes, slow rails of nodes, and slow pairs.

Rates are compared as natural logarithms, since noise and shared links multiply. A pair is as fast
as its slower end, so an end (a rail of a node) is measured by its better figures: the upper
quartile over its partners, the best of up to three. A slow partner does not make it slow. Pairs
that no slow end explains remain as pairs: their path is suspect.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median
from typing import NamedTuple, Optional

from .figures import ACROSS, NODE, RAIL, SAME_LEAF, Figure, Topology

PAIR = "pair"
Z = 3.5
"""Modified z-score of an outlier: Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993."""
FALSE_ALARMS = 0.01
"""Expected number of healthy figures below the cut in one analysis, if noise is log-normal: with
more than 43 figures, the cut is beyond 3.5 (Bonferroni)."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution, as a multiple of its MAD."""
FLOOR = 0.05
"""Relative difference that is never an outlier, however small the MAD: the variance criterion of
https://microsoft.github.io/superbenchmark/docs/user-tutorial/data-diagnosis."""
LATENCY_FLOOR = 0.25
"""For latency, whose medians depend on a few hundred nanoseconds of cable and switch. A guess."""
SMALL = 1.5
"""The MAD of n values is increased by this / sqrt(n): its standard error is 1.16 / sqrt(n) for a
normal distribution (efficiency 37 %: https://en.wikipedia.org/wiki/Median_absolute_deviation), so
that a few values that are alike by chance do not make an outlier of the next."""
MANY_ENDS = 30
"""With fewer ends, the MAD of one rail is uncertain, and all rails together set the spread."""
FEW_ENDS = 4
"""With fewer ends, the median may be that of the slow ones, and all rails together set it."""
MOST = 0.75
"""Share of slow figures in one direction that makes an end slow."""

End = tuple[str, str]
"""Node and rail."""


class Key(NamedTuple):
    """Figures are compared within a group of these."""

    rail: str
    far_rail: str
    path: str
    rate: float
    """Line rate in Gb/s, or 0."""

    @property
    def pool(self) -> tuple[str, bool, float]:
        return self.path, self.rail == self.far_rail, self.rate


@dataclass(frozen=True)
class Cohort:
    key: Key
    median: float
    """Gb/s of pairs without slow ends, or microseconds for latency."""
    spread: float
    """Standard deviation of the logarithm of figures, from their MAD."""
    cut: float
    """A pair beyond it is an outlier."""
    pairs: int
    noise: float = 0.0
    """Standard deviation of figures of the same ends."""


@dataclass(frozen=True)
class Outlier:
    kind: str
    """NODE, RAIL (of a node; of every node if there is no node) or PAIR (first sends)."""
    nodes: tuple[str, ...]
    rail: str
    found: Optional[float]
    """Gb/s or microseconds: of an end, its upper quartile; None if every measurement failed."""
    median: float
    pairs: int
    """Number of its partners, or of figures."""
    far_rail: str = ""

    @property
    def subject(self) -> str:
        if self.kind == PAIR:
            first, second = self.nodes
            return f"{first} {self.rail} - {second} {self.far_rail or self.rail}"
        return " ".join((*self.nodes, *([] if self.kind == NODE else [self.rail])))

    @property
    def ratio(self) -> float:
        """Found / median; 0 if every measurement failed."""
        return (self.found or 0.0) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Analysis:
    cohorts: tuple[Cohort, ...]
    outliers: tuple[Outlier, ...]

    def of_kind(self, kind: str) -> list[Outlier]:
        return [outlier for outlier in self.outliers if outlier.kind == kind]


@dataclass
class _Group:
    """Logarithms of the figures of one key, relative to the line rate; -inf if failed."""

    key: Key
    values: list[tuple[End, End, float]] = field(default_factory=list)
    ends: dict[End, float] = field(default_factory=dict)
    partners: dict[End, set[End]] = field(default_factory=dict)
    leaves: dict[End, str] = field(default_factory=dict)
    center: float = 0.0
    spread: float = 0.0
    """Of ends."""
    noise: float = 0.0
    """Of pairs."""
    slow: set[End] = field(default_factory=set)

    def level(self) -> None:
        found: dict[End, list[float]] = {}
        for first, second, value in self.values:
            for end, other in ((first, second), (second, first)):
                found.setdefault(end, []).append(value)
                self.partners.setdefault(end, set()).add(other)
        self.ends = {end: upper(values) for end, values in found.items()}
        self.center = center_of(self.ends.values())

    def residuals(self) -> list[float]:
        """Noise of pairs: each relative to its slower end, of which it may be the only figure."""
        return [
            value - min(self.center, self.ends[first], self.ends[second])
            for first, second, value in self.values
            if value > -math.inf
        ]


def analyse(
    figures: Iterable[Figure],
    topology: Topology,
    floor: float = FLOOR,
    *,
    latency: bool = False,
) -> Analysis:
    """Outliers of all figures of a run. Failed pairs are the slowest."""
    groups: dict[Key, _Group] = {}
    for figure in figures:
        key = key_of(figure, topology)
        key = key._replace(rate=0.0) if latency else key
        first, second = (figure.first, figure.rail), (figure.second, figure.far_rail)
        value = _value(figure, key.rate, latency)
        group = groups.setdefault(key, _Group(key))
        group.values.append((first, second, value))
        if key.path == ACROSS:
            group.leaves.update({end: topology.leaf(*end) for end in (first, second)})
    pools: dict[tuple[str, bool, float], list[_Group]] = {}
    for group in groups.values():
        group.level()
        pools.setdefault(group.key.pool, []).append(group)
    least = -math.log1p(-floor)
    for pool in pools.values():
        _slow_ends(pool, least)
    ends = _by_end(groups.values())
    outliers = _nodes_and_rails(ends, topology)
    whole = [outlier for pool in pools.values() for outlier in _whole_rails(pool, least)]
    slow = {end for end, found in ends.items() if found.slow}
    z = z_of(sum(len(group.values) for group in groups.values()))
    cohorts, pairs = [], []
    for pool in pools.values():
        pairs += _leaves(pool, slow, least)
        for group in pool:
            cohort, found = _pairs(group, pool, slow, z, least)
            cohorts.append(cohort)
            pairs += found
    if latency:
        outliers, whole, pairs = (list(map(_inverse, each)) for each in (outliers, whole, pairs))
        cohorts = [
            Cohort(each.key, 1 / each.median, each.spread, 1 / each.cut, each.pairs)
            for each in cohorts
        ]
    return Analysis(tuple(cohorts), tuple(dict.fromkeys((*outliers, *whole, *pairs))))


def key_of(figure: Figure, topology: Topology) -> Key:
    rate = topology.line_rate(figure)
    return Key(figure.rail, figure.far_rail, topology.path(figure), rate)


def below(figures: Iterable[Figure], topology: Topology, share: float) -> list[Figure]:
    """Figures that failed, or are under the threshold: a share of the line rate."""
    return [
        figure for figure in figures if (figure.gbits_s or 0) < share * topology.line_rate(figure)
    ]


def upper(values: Iterable[float]) -> float:
    """Upper quartile; the best of up to three."""
    ordered = sorted(values, reverse=True)
    return ordered[len(ordered) // 4]


def center_of(ends: Collection[float]) -> float:
    """The usual value. Of few ends, half may be slow or have a slow partner."""
    return median(ends) if len(ends) >= MANY_ENDS else upper(ends)


def z_of(count: int) -> float:
    """Cut in standard deviations for this number of figures."""
    return max(Z, -NormalDist().inv_cdf(FALSE_ALARMS / max(1, count)))


def spread_of(values: Sequence[float]) -> float:
    finite = [value for value in values if value > -math.inf]
    if not finite:
        return 0.0
    middle = median(finite)
    small = 1 + SMALL / math.sqrt(len(finite))
    return small * NORMAL * median(abs(value - middle) for value in finite)


def _value(figure: Figure, rate: float, latency: bool) -> float:
    found = figure.latency_us if latency else figure.gbits_s
    # The latency of a pair that is too slow for its bandwidth was measured.
    if (figure.error and not latency) or not found or found <= 0:
        return -math.inf
    if latency:
        return -math.log(found)
    return math.log(found / (rate or 1.0))


def _slow_ends(pool: Sequence[_Group], least: float) -> None:
    every = [value for group in pool for value in group.ends.values()]
    common = center_of(every)
    for group in pool:
        if len(group.ends) < FEW_ENDS or group.center == -math.inf:
            group.center = common
    deviations = [value - group.center for group in pool for value in group.ends.values()]
    noise = [value for group in pool for value in group.residuals()]
    z = z_of(len(every))
    for group in pool:
        if len(group.ends) >= MANY_ENDS:
            group.spread = spread_of([value - group.center for value in group.ends.values()])
        else:
            group.spread = max(spread_of(noise), spread_of(deviations))
        cut = group.center - max(z * group.spread, least)
        group.slow = {end for end, value in group.ends.items() if value < cut}


@dataclass
class _End:
    """What the groups of an end show."""

    near: list[tuple[_Group, float, bool]] = field(default_factory=list)
    """On its leaf: upper quartile, and whether it is slow."""
    far: list[tuple[_Group, float, bool]] = field(default_factory=list)
    slow: bool = False


def _by_end(groups: Iterable[_Group]) -> dict[End, _End]:
    """An end that is slow with several partners on its leaf is slow. One that is slow only across
    spines may have a slow cable above its leaf, and one with a single partner a slow partner: their
    pairs are suspect instead."""
    found: dict[End, _End] = {}
    for group in groups:
        one_way = _one_way(group)
        for end, value in group.ends.items():
            own = found.setdefault(end, _End())
            slow = end in group.slow or end in one_way
            near = group.key.path == SAME_LEAF
            (own.near if near else own.far).append((group, value, slow))
    for end, own in found.items():
        slow_near = [group for group, _value, slow in own.near if slow]
        far = all(slow for _group, _value, slow in own.far) and bool(own.far)
        several = any(len(group.partners[end]) > 1 for group in slow_near)
        own.slow = (several or far) if slow_near else (far and not own.near)
    return found


def _one_way(group: _Group) -> set[End]:
    """Ends of which almost all figures in one direction are slow, so that the other end is not."""
    cut = group.center - max(z_of(len(group.values)) * _noise(group), -math.log1p(-FLOOR))
    counts: dict[tuple[End, int], list[bool]] = {}
    for *ends, value in group.values:
        first, second = ends
        if first in group.slow or second in group.slow:
            continue
        for side, end in enumerate((first, second)):
            counts.setdefault((end, side), []).append(value < cut)
    return {
        end
        for (end, _side), slow in counts.items()
        if len(slow) >= 3 and sum(slow) >= MOST * len(slow)
    }


def _noise(group: _Group) -> float:
    return max(group.spread, spread_of(group.residuals()))


def _nodes_and_rails(ends: Mapping[End, _End], topology: Topology) -> list[Outlier]:
    found: list[Outlier] = []
    for node in topology.nodes:
        own = {end: ends[end] for rail in topology.ports[node] if (end := (node, rail)) in ends}
        slow = {end: each for end, each in own.items() if each.slow}
        whole = slow and len(slow) == len(own) == len(topology.ports[node])
        rails = [_of_end(end, each) for end, each in slow.items()]
        if whole:
            worst = min(rails, key=lambda outlier: outlier.ratio)
            pairs = sum(outlier.pairs for outlier in rails)
            rails = [Outlier(NODE, (node,), worst.rail, worst.found, worst.median, pairs)]
        found += rails
    return found


def _of_end(end: End, own: _End) -> Outlier:
    groups = own.near or own.far
    group, value, _slow = min(groups, key=lambda each: each[1] - each[0].center)
    pairs = sum(len(each.partners[end]) for each, _value, _slow in groups)
    return Outlier(
        RAIL, end[:1], end[1], _gbits(group, value), _gbits(group, group.center) or 0, pairs
    )


def _whole_rails(pool: Sequence[_Group], least: float) -> list[Outlier]:
    """Rails on which every node is slower than on other rails."""
    centers = [group.center for group in pool if len(group.ends) >= FEW_ENDS]
    if len(centers) < 3 or pool[0].key.path != SAME_LEAF:
        return []  # the load of spines differs from rail to rail by chance
    middle = median(centers)
    found = []
    for group in pool:
        least_here = max(Z * group.spread, Z * spread_of(centers), 2 * least)
        if len(group.ends) >= FEW_ENDS and group.center < middle - least_here:
            usual = _gbits(group, middle) or 0.0
            own = _gbits(group, group.center)
            found.append(Outlier(RAIL, (), group.key.rail, own, usual, len(group.values)))
    return found


def _collisions(group: _Group) -> float:
    """Logarithm of the least share of a cable that a healthy pair gets if every other node of its
    leaf sends over the same cable, halved for noise. In small clusters this is above the cut by
    MAD, as hashing makes figures either whole or half."""
    leaves = Counter(group.leaves.values())
    return -math.log(2 * max(leaves.values())) if group.key.path == ACROSS else -math.inf


def _pairs(
    group: _Group, pool: Sequence[_Group], slow: set[End], z: float, least: float
) -> tuple[Cohort, list[Outlier]]:
    """Slow pairs of which neither end is slow."""
    own, middle = _explained(group, slow, group.center)
    others = own
    if len(own) < MANY_ENDS:
        others = [value for each in pool for value in _explained(each, slow, middle)[0]]
    # Without the pairs of suspect ends, noise would seem smaller.
    noise = spread_of([value for each in pool for value in each.residuals()])
    spread = max(spread_of(others), noise)
    cut = max(middle - max(z * spread, least), group.center + _collisions(group))
    key = group.key
    if key.path == ACROSS and key.rate and len(own) < MANY_ENDS:
        cut = min(cut, middle - math.log(2))  # two flows that share a cable get half of it each
    usual = _gbits(group, middle) or 0.0
    found = [
        Outlier(PAIR, (first[0], second[0]), key.rail, _gbits(group, value), usual, 1, second[1])
        for first, second, value in group.values
        if value < cut and first not in slow and second not in slow
    ]
    return Cohort(key, usual, spread, _gbits(group, cut) or 0.0, len(group.values), noise), found


def _leaves(pool: Sequence[_Group], slow: set[End], least: float) -> list[Outlier]:
    """Slow pairs from or to a leaf of which most are slow, so that the MAD of all pairs does not
    show it: of few uplinks, one that is slow carries a part of most pairs."""
    found: dict[tuple[int, str, int], list[tuple[float, End, End]]] = {}
    for index, group in enumerate(pool):
        for first, second, value in group.values:
            if group.leaves and first not in slow and second not in slow:
                for side, end in enumerate((first, second)):
                    key = index, group.leaves[end], side
                    found.setdefault(key, []).append((value - group.center, first, second))
    usual = {key: median(value for value, *_ends in own) for key, own in found.items()}
    if len(usual) < FEW_ENDS:
        return []
    middle = center_of(usual.values())
    cut = middle - max(Z * spread_of(list(usual.values())), 2 * least, math.log(2))
    outliers = []
    for (index, leaf, side), level in usual.items():
        group = pool[index]
        center = _gbits(group, group.center) or 0.0
        for value, first, second in found[index, leaf, side] if level < cut else ():
            if value <= level:
                rate = _gbits(group, value + group.center)
                ends = (first[0], second[0])
                outliers.append(Outlier(PAIR, ends, first[1], rate, center, 1, second[1]))
    return outliers


def _explained(group: _Group, slow: set[End], center: float) -> tuple[list[float], float]:
    """Values of pairs without slow ends, relative to their median, and the median."""
    values = [
        value
        for first, second, value in group.values
        if first not in slow and second not in slow and value > -math.inf
    ]
    middle = median(values) if len(values) >= FEW_ENDS else center
    return [value - middle for value in values], middle


def _gbits(group: _Group, value: float) -> Optional[float]:
    return math.exp(value) * (group.key.rate or 1.0) if value > -math.inf else None


def _inverse(outlier: Outlier) -> Outlier:
    """Of latency, whose logarithms are negative, so that slow is low."""
    found = 1 / outlier.found if outlier.found else None
    usual = 1 / outlier.median if outlier.median else 0.0
    return Outlier(
        outlier.kind, outlier.nodes, outlier.rail, found, usual, outlier.pairs, outlier.far_rail
    )
