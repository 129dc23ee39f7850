# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slow paths between leaves: pairs from and to the leaves that slow pairs have in common are traced
until one cable or spine explains them (paths.py)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from .figures import ACROSS, SPINE, Direction, Pair, Probe, Verdict
from .measured import FOCI, SMALL_SET, Measured, Steps, ends_of, uplinks
from .outliers import FLOOR, PAIR, End, spread_of
from .paths import Paths
from .rounds import reaches

TRACED_SPREADS = 3.5
"""As above for a single flow between leaves, which is measured once."""
TRACED_LEAST = 0.5
"""A single flow below this part of the usual one is slow in any case: traced flows share no cable,
and noise of a busy machine is smaller."""
MAX_TRACES = 12
"""Probes from one leaf. Of 32 uplinks, 12 probes of 28 flows (7 other leaves) leave each without a
flow with a probability of 2e-5; of 4 uplinks, 12 single flows 3 %."""
MANY_UPLINKS = 16
"""From this number of uplinks, 4 queue pairs are traced together: one on a cable at a tenth of its
rate still takes a fifth of the bandwidth of the pair."""

Focus = tuple[str, bool]
"""A leaf, and whether it sends."""


@dataclass
class Traces(Measured):
    slow_ends: set[End] = field(default_factory=set)
    _good: dict[str, dict[str, list[str]]] = field(default_factory=dict)

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
        paths = Paths(self.topology, self.good_ends())
        spine_named = False
        for rail in self.topology.rails:
            own = [nodes for nodes, of_rail in slow if of_rail == rail]
            left = Counter(leaf for pair in own for leaf in self._leaves(pair, rail))
            counts = Counter(
                leaf
                for one in self.figures
                if one.rail == rail and self.topology.path(one) == ACROSS
                for leaf in self._leaves(one.pair, rail)
            )
            every = Counter(left)
            if spine_named:
                left = _excess(every, counts)
            while left:
                worst = sorted(left, key=lambda each: (-left[each], each))
                foci = worst[:FOCI] if spine_named else self._foci(left, own, rail)
                self.suspects |= {leaf for leaf, _sends in foci}
                yield from self._trace(rail, foci, paths, spine_named)
                self.suspects -= {leaf for leaf, _sends in foci}
                if not spine_named and any(v.kind == SPINE for v in paths.explained()[0]):
                    # Of these leaves too, cables may be slow in addition.
                    spine_named, left = True, _excess(every, counts)
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
        self.found += [*named, *paths.unexplained(rest)]

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

    def _trace(self, rail: str, foci: Sequence[Focus], paths: Paths, whole: bool) -> Steps:
        """Single flows from and to these leaves until every cable of them is covered and every slow
        flow explained."""
        for turn in range(MAX_TRACES):
            named, left = paths.explained()
            ends = {
                focus
                for each in left
                for focus in (
                    (self.topology.leaf(each.flow.figure.first, each.flow.figure.rail), True),
                    (self.topology.leaf(each.flow.figure.second, each.flow.figure.far_rail), False),
                )
            }
            tested = paths.tested()
            open_ = [
                focus for focus in foci if not self._covered(focus, tested, [] if whole else named)
            ]
            open_ += sorted(ends - {*open_})
            if not open_:
                return
            for probe in self._stars(rail, open_[:FOCI], turn, paths):
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
        return {Direction(each, up) for each in self.topology.cables if each.lower == leaf}

    def _flow_cut(self, paths: Paths) -> float:
        """Share of the line rate below which a single flow is slow."""
        values = sorted(
            (flow.figure.gbits_s or 0.0) / (self.topology.line_rate(flow.figure) or 1.0)
            for flow in paths.flows
        )
        usual = values[len(values) * 3 // 4] or 1.0
        upper = [math.log(value / usual) for value in values if value >= usual * TRACED_LEAST]
        if len(upper) < SMALL_SET:
            return usual * TRACED_LEAST
        spread = TRACED_SPREADS * spread_of(upper)
        return usual * max(TRACED_LEAST, math.exp(-max(spread, 2 * -math.log1p(-FLOOR))))

    def _stars(self, rail: str, foci: Sequence[Focus], turn: int, paths: Paths) -> list[Probe]:
        """Flows between each of these leaves and others, of which each has one flow only, so that
        its counters show the way of it. Without counters, one flow per probe."""
        blind = any(flow.figure.cables is None for flow in paths.flows)
        queues = 4 if uplinks(self.topology, rail) >= MANY_UPLINKS else 1
        most = max(1, uplinks(self.topology, rail) // queues)
        found = []
        for index, (leaf, up) in enumerate(foci):
            pairs: list[Pair] = []
            near_rail, far_rail = self._rails_between(leaf, rail, turn)
            here = self._good_on(leaf, near_rail)
            others = [
                nodes
                for name, nodes in self._good_by_leaf(far_rail).items()
                if name != leaf and nodes
            ]
            shift = (turn + index) % max(1, len(others))
            for offset, nodes in enumerate([*others[shift:], *others[:shift]]):
                if offset >= min(len(here), most) or (blind and pairs):
                    break
                near = here[(turn + offset) % len(here)]
                far = next(
                    (node for node in nodes[turn % len(nodes) :] + nodes if node != near), ""
                )
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


def _disjoint(pairs: Iterable[Pair]) -> list[Pair]:
    used: set[str] = set()
    found = []
    for pair in pairs:
        if not used & {*pair}:
            found.append(pair)
            used |= {*pair}
    return found


def _excess(slow: Counter[Focus], counts: Mapping[Focus, int]) -> Counter[Focus]:
    """Leaves with clearly more slow pairs than others: a slow spine slows pairs of all leaves."""
    shares = [slow[leaf] / count for leaf, count in counts.items() if count]
    share = median(shares) if shares else 0.0
    return Counter(
        {
            leaf: count
            for leaf, count in slow.items()
            if count > share * counts[leaf] + 2.5 * math.sqrt(share * counts[leaf]) + 1
        }
    )
