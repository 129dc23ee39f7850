# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slow paths between leaves: pairs from and to the leaves that slow pairs have in common are traced
until one cable or spine explains them (paths.py)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean, median
from typing import Optional

from .figures import (
    ACROSS,
    CABLE,
    NODE,
    RAIL,
    SPINE,
    Direction,
    Figure,
    Pair,
    Probe,
    Topology,
    Uplink,
    Verdict,
)
from .measured import FOCI, MANY_UPLINKS, SMALL_SET, Measured, Steps, ends_of, uplinks
from .outliers import FLOOR, PAIR, End, spread_of, z_of
from .paths import Paths, Suspicion
from .rounds import crossing, reaches

TRACED_SPREADS = 3.5
"""As above for a single flow between leaves, which is measured once."""
TRACED_LEAST = 0.5
"""A single flow below this part of the usual one is slow in any case: traced flows share no cable,
and noise of a busy machine is smaller."""
MAX_TRACES = 12
"""Probes from one leaf. Of 32 uplinks, 12 probes of 28 flows (7 other leaves) leave each without a
flow with a probability of 2e-5; of 4 uplinks, 12 single flows 3 %."""
FEW_UPLINKS = 4
"""Up to this number of uplinks, flows are traced one at a time: two often share a cable."""
LOADS = 3
"""Rounds of all nodes by which cables are compared: of 32 uplinks, 40 nodes with 4 queue pairs, one
is without a flow in all of them with a probability of 2e-7."""
LEAST = 1e-3
"""Share of the line rate of a pair that failed, in a mean of logarithms."""

Focus = tuple[str, bool]
"""A leaf, and whether it sends."""

Loading = Generator[list[Probe], list[Figure], Optional[set[Direction]]]


@dataclass
class Traces(Measured):
    slow_ends: set[End] = field(default_factory=set)
    lossy: Collection[Uplink] = ()
    """Cables that lose packets: pairs that may use them are not traced."""
    _good: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    _low: Optional[set[Direction]] = None

    def steps(self) -> Steps:
        slow = [
            (outlier.nodes, outlier.rail)
            for outlier in self.analysis.outliers
            if outlier.kind == PAIR
            and not self.near(outlier.nodes, outlier.rail, outlier.far_rail or outlier.rail)
            and not any(end in self.slow_ends for end in ends_of(outlier))
        ]
        if not slow:
            lowest = self.lowest(ACROSS)
            slow = [
                ((first[0], second[0]), first[1])
                for first, second in zip(lowest[::2], lowest[1::2])
                if not {first, second} & self.slow_ends
            ]
        slow = [(nodes, rail) for nodes, rail in slow if not self._explained(nodes, rail)]
        paths = Paths(self.topology, self.good_ends())
        self._low = yield from self._loaded([rail for _nodes, rail in slow])
        slower = self._slower_leaves() if self._low is None else _by_rail(self._low, self.topology)
        spine_named = False
        for rail in self.topology.rails:
            own = [nodes for nodes, of_rail in slow if of_rail == rail]
            left = Counter(leaf for pair in own for leaf in self._leaves(pair, rail))
            left += Counter(slower.get(rail, ()))
            every = Counter(left)
            if spine_named:
                left = self._besides_spines(every, slower, rail)
            while left:
                worst = sorted(left, key=lambda each: (-left[each], each))
                foci = worst[:FOCI] if spine_named else self._foci(left, own, rail)
                self.suspects |= {leaf for leaf, _sends in foci}
                yield from self._trace(rail, foci, paths, spine_named, own)
                self.suspects -= {leaf for leaf, _sends in foci}
                if not spine_named and any(v.kind == SPINE for v in paths.explained()[0]):
                    # Of these leaves too, cables may be slow in addition.
                    spine_named = True
                    left = self._besides_spines(every, slower, rail)
                    continue
                covered = {*foci}
                own = [pair for pair in own if not covered & {*self._leaves(pair, rail)}]
                alive = {leaf for pair in own for leaf in self._leaves(pair, rail)}
                left = Counter(
                    {
                        leaf: count
                        for leaf, count in left.items()
                        if leaf not in covered and (spine_named or leaf in alive)
                    }
                )
        named, rest = paths.explained()
        self.found += [*self._single(named), *paths.unexplained(rest)]

    def _single(self, named: Sequence[Verdict]) -> list[Verdict]:
        """If all cables above the leaf of a single node are slow, its node is the cause, as that is
        one fault and not several."""
        found = list(named)
        users: dict[str, set[str]] = {}
        for node in self.topology.nodes:
            for rail in self.topology.ports[node]:
                users.setdefault(self.topology.leaf(node, rail), set()).add(node)
        for leaf, nodes in users.items():
            cables = {str(each) for each in self.topology.cables if each.lower == leaf}
            own = [each for each in found if each.kind == CABLE and each.subject in cables]
            if len(nodes) > 1 or len(cables) < 2 or len(own) < len(cables):
                continue
            (node,) = nodes
            evidence = tuple(text for each in own for text in each.evidence[:1])
            rails = [*self.topology.ports[node]]
            here = [rail for rail in rails if self.topology.leaf(node, rail) == leaf]
            subjects = [node] if here == rails else [f"{node} {rail}" for rail in here]
            found = [each for each in found if each not in own]
            found += [Verdict(NODE if here == rails else RAIL, each, evidence) for each in subjects]
        return found

    def _explained(self, nodes: Sequence[str], rail: str) -> bool:
        first, second = (self.topology.leaf(node, rail) for node in nodes)
        hops = self.topology.hops(first, second) if self.lossy else ()
        return any(each.cable in self.lossy for hop in hops for each in hop)

    def _loaded(self, rails: Sequence[str]) -> Loading:
        """Directions of leaves that carry clearly less than others in every round: all nodes send,
        so that each cable has several flows. None if no counters were read, or for few uplinks,
        whose flows are traced soon."""
        most: dict[Direction, float] = {}
        for rail in dict.fromkeys(rails):
            if uplinks(self.topology, rail) < MANY_UPLINKS:
                return None
            read = [one.cables for one in self.figures if one.rail == rail and one.cables]
            good = self._good_by_leaf(rail)
            own = [
                Direction(cable, up)
                for cable in self.topology.cables
                if cable.lower in good
                for up in (True, False)
            ]
            for turn in islice(crossing(list(good.values())), max(0, LOADS - len(read))):
                figures = yield [Probe(rail, turn, "", 4, True)]
                if not figures[0].cables:
                    return None
                read.append(figures[0].cables)
            for carried in read:
                middle = median(carried.get(each, 0) for each in own) or 1
                for each in own:
                    most[each] = max(most.get(each, 0.0), carried.get(each, 0) / middle)
        # The variance of the square root of a number of flows is constant.
        roots = {each: math.sqrt(share) for each, share in most.items()}
        if not roots:
            return None
        spread = z_of(len(roots)) * spread_of(list(roots.values()))
        usual = median(roots.values())
        low = {each for each, root in roots.items() if root < min(usual - spread, usual / 2**0.5)}
        every = Counter(each.cable.upper for each in roots)
        spines = Counter(each.cable.upper for each in low)
        return {each for each in low if 2 * spines[each.cable.upper] < every[each.cable.upper]}

    def _slower_leaves(self) -> dict[str, list[Focus]]:
        """By rail, leaves whose pairs are slower than those of other leaves: of few cables, one
        slows a part of the pairs of its leaf, a spine the same part of all pairs."""
        values: dict[str, dict[Focus, list[float]]] = {}
        for one in self.figures:
            ends = (one.first, one.rail), (one.second, one.far_rail)
            other = self.slow_ends & {*ends} or self._explained(one.pair, one.rail)
            if self.topology.path(one) == ACROSS and not other:
                value = math.log(max((one.gbits_s or 0.0) / self.topology.line_rate(one), LEAST))
                for leaf in self._leaves(one.pair, one.rail):
                    values.setdefault(one.rail, {}).setdefault(leaf, []).append(value)
        found: dict[tuple[str, Focus], float] = {}
        for rail, own in values.items():
            middle = median(map(fmean, own.values()))
            for leaf, each in own.items():
                found[rail, leaf] = (fmean(each) - middle) * math.sqrt(len(each))
        cut = -z_of(len(found)) * spread_of(list(found.values()))
        slower: dict[str, list[Focus]] = {rail: [] for rail in values}
        for (rail, leaf), deviation in found.items():
            if deviation < cut:
                slower[rail].append(leaf)
        return slower

    @staticmethod
    def _besides_spines(
        every: Counter[Focus], slower: Mapping[str, Sequence[Focus]], rail: str
    ) -> Counter[Focus]:
        """Leaves with a slow cable in addition to a slow spine, which slows pairs of all leaves."""
        return Counter({leaf: every[leaf] for leaf in slower.get(rail, ())})

    def _leaves(self, pair: Sequence[str], rail: str) -> tuple[Focus, ...]:
        """The leaf that sends, and the one that receives."""
        first, second = pair
        return (self.topology.leaf(first, rail), True), (self.topology.leaf(second, rail), False)

    def _foci(self, left: Counter[Focus], own: Sequence[Sequence[str]], rail: str) -> list[Focus]:
        """The leaves and directions that most slow pairs have in common."""
        found: list[Focus] = []
        pairs = list(own)
        while pairs and len(found) < FOCI:
            counts = Counter(leaf for pair in pairs for leaf in self._leaves(pair, rail))
            leaf = max(counts, key=lambda each: (counts[each], left[each], each))
            # Both ends of the same pairs: their cables are separated by flows to others.
            same = [each for each in counts if counts[each] == counts[leaf]]
            found += [each for each in [leaf, *same] if each not in found][: FOCI - len(found)]
            pairs = [pair for pair in pairs if not {*found} & {*self._leaves(pair, rail)}]
        return found or [max(left, key=lambda each: left[each])]

    def _trace(
        self,
        rail: str,
        foci: Sequence[Focus],
        paths: Paths,
        whole: bool,
        slow: Sequence[Sequence[str]],
    ) -> Steps:
        """Single flows from and to these leaves until every cable of them is covered and every slow
        flow explained. `slow`: pairs that led to these leaves."""
        pairs = [self._leaves(pair, rail) for pair in slow]
        few = uplinks(self.topology, rail) <= FEW_UPLINKS
        for turn in range(MAX_TRACES * (FOCI if few else 1)):
            named, left = paths.explained()
            ends = {
                focus
                for each in left
                for focus in (
                    (self.topology.leaf(each.flow.figure.first, each.flow.figure.rail), True),
                    (self.topology.leaf(each.flow.figure.second, each.flow.figure.far_rail), False),
                )
            }
            tested = paths.tested(named)
            open_ = [
                focus
                for focus in foci
                if not self._covered(focus, tested, [] if whole else named)
                and not _elsewhere(focus, pairs, named)
            ]
            open_ += sorted(ends - {*open_})
            if not open_:
                return
            suspect = _suspect(left) if few else ""
            open_.sort(key=lambda focus: focus[0] == suspect)
            for probe in self._stars(rail, open_[: 1 if few else FOCI], turn, paths, suspect):
                figures = yield [probe]
                paths.add(probe, figures)
                paths.mark(self._flow_cut(paths))

    def _covered(self, focus: Focus, tested: set[Direction], named: Sequence[Verdict]) -> bool:
        """Every cable of the leaf was used, or a slow spine explains its slow pairs."""
        leaf, _up = focus
        kinds = {verdict.kind for verdict in named}
        own = any(verdict.subject.startswith(f"{leaf} ") for verdict in named)
        return self._cables(focus) <= tested or (SPINE in kinds and not own)

    def _cables(self, focus: Focus) -> set[Direction]:
        leaf, up = focus
        every = {Direction(each, up) for each in self.topology.cables if each.lower == leaf}
        return every & (self._low or every) or every

    def _flow_cut(self, paths: Paths) -> float:
        """Share of the line rate below which a single flow is slow."""
        values = sorted(
            (flow.figure.gbits_s or 0.0) / (self.topology.line_rate(flow.figure) or 1.0)
            for flow in paths.flows
        )
        # The first flows may all be slow, but share their way with none: as fast as others were.
        known = (
            each.median / each.key.rate
            for each in self.analysis.cohorts
            if each.key.path == ACROSS and each.key.rate
        )
        usual = max(values[len(values) * 3 // 4], *known, 0.0) or 1.0
        upper = [math.log(value / usual) for value in values if value >= usual * TRACED_LEAST]
        few = all(uplinks(self.topology, rail) <= FEW_UPLINKS for rail in self.topology.rails)
        if few or len(upper) < SMALL_SET:
            return usual * TRACED_LEAST  # as for pairs: of few, the spread shows no rare delay
        spread = TRACED_SPREADS * spread_of(upper)
        return usual * max(TRACED_LEAST, math.exp(-max(spread, 2 * -math.log1p(-FLOOR))))

    def _stars(
        self, rail: str, foci: Sequence[Focus], turn: int, paths: Paths, suspect: str
    ) -> list[Probe]:
        """Flows between each of these leaves and others, of which each has one flow only, so that
        its counters show the way of it. Without counters, one flow per probe. `suspect`: a leaf to
        avoid if there are others."""
        queues = 4 if uplinks(self.topology, rail) >= MANY_UPLINKS else 1
        count = uplinks(self.topology, rail)
        most = max(1, count // queues) if count > FEW_UPLINKS else 1
        # A cable is named by slow flows of different nodes.
        used = Counter(
            {
                node: sum(1 + 100 * flow.slow for flow in paths.flows if node in flow.figure.pair)
                for node in self.topology.nodes
            }
        )
        found = []
        for index, (leaf, up) in enumerate(foci):
            pairs: list[Pair] = []
            near_rail, far_rail = self._rails_between(leaf, rail, turn)
            here = self._good_on(leaf, near_rail)
            named = {
                name: nodes
                for name, nodes in self._good_by_leaf(far_rail).items()
                if name != leaf and nodes
            }
            others = [nodes for name, nodes in named.items() if name != suspect]
            others = others or [*named.values()]
            shift = (turn + index) % max(1, len(others))
            for offset, nodes in enumerate([*others[shift:], *others[:shift]]):
                if offset >= min(len(here), most) or (paths.blind and pairs):
                    break
                near = here[(turn + offset) % len(here)]
                if most == 1:
                    near, nodes = (
                        min(here, key=used.__getitem__),
                        sorted(nodes, key=used.__getitem__),
                    )
                start = turn % len(nodes) if most > 1 else 0
                far = next((node for node in nodes[start:] + nodes if node != near), "")
                pair, rails = ((near, far), (near_rail, far_rail))
                if far and reaches(self.topology, pair, *rails):
                    pairs.append(pair if up else (far, near))
            pairs = _disjoint(pairs)
            if pairs:
                first, second = (near_rail, far_rail) if up else (far_rail, near_rail)
                other = second if second != first else ""
                found.append(Probe(first, tuple(pairs), other, queues, True))
        return found

    def _rails_between(self, leaf: str, rail: str, turn: int) -> tuple[str, str]:
        """The rail at this leaf, and one at other leaves: where fewer than two other leaves have
        the same rail, also others, as flows between two leaves cannot separate the cables of
        both."""
        near = rail if self._good_on(leaf, rail) else ""
        near = near or next(
            (each for each in self.topology.rails if self._good_on(leaf, each)), rail
        )
        if len(self._good_by_leaf(near)) > 2:
            return near, near
        mine = self._good_by_leaf(near)
        more = [
            other
            for other in self.topology.rails
            if {*self._good_by_leaf(other)} - {*mine} and self._linked(leaf, other)
        ]
        choices = [near, *more]
        return near, choices[turn % len(choices)]

    def _linked(self, leaf: str, other: str) -> bool:
        return any(self.topology.hops(leaf, there) for there in self._good_by_leaf(other))

    def _good_on(self, leaf: str, rail: str) -> list[str]:
        return self._good_by_leaf(rail).get(leaf, [])

    def _good_by_leaf(self, rail: str) -> dict[str, list[str]]:
        if rail not in self._good:
            found: dict[str, list[str]] = {}
            for node in self.topology.on(rail):
                if (node, rail) not in self.slow_ends:
                    found.setdefault(self.topology.leaf(node, rail), []).append(node)
            self._good[rail] = found
        return self._good[rail]


def _suspect(left: Sequence[Suspicion]) -> str:
    """The leaf of the only cable that all slow flows have in common. Flows between others show
    whether the rest of their paths is good."""
    common = set.intersection(*(each.cables for each in left)) if len(left) > 1 else ()
    if len(common) != 1:
        return ""
    leaf = next(iter(common)).lower
    others = {cable.lower for each in left for cable in each.cables} - {leaf}
    return leaf if others or any(each.spines for each in left) else ""


def _elsewhere(focus: Focus, pairs: Iterable[tuple[Focus, ...]], named: Iterable[Verdict]) -> bool:
    """Whether slow cables of other leaves explain all slow pairs of a leaf."""
    leaves = {each.subject.split()[0] for each in named if each.kind == CABLE} - {focus[0]}
    own = [{leaf for leaf, _sends in ends} for ends in pairs if focus in ends]
    return bool(own) and all(leaves & ends for ends in own)


def _by_rail(low: Iterable[Direction], topology: Topology) -> dict[str, list[Focus]]:
    rails = {port.leaf: rail for own in topology.ports.values() for rail, port in own.items()}
    found: dict[str, list[Focus]] = {}
    for each in sorted(low):
        focus = each.cable.lower, each.up
        own = found.setdefault(rails[each.cable.lower], [])
        own += [] if focus in own else [focus]
    return found


def _disjoint(pairs: Iterable[Pair]) -> list[Pair]:
    used: set[str] = set()
    found = []
    for pair in pairs:
        if not used & {*pair}:
            found.append(pair)
            used |= {*pair}
    return found
