# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Search for the slow part of a cluster: a state machine that asks for probes and takes figures.

Groups are leaf sets: all pairs of all sets are measured simultaneously, and each has its figure, so
the slow pairs of a group are known without halving it. Where every set passes, probes across sets
follow. The ends of a slow pair are separated with known-good partners, both ends simultaneously;
slow paths are traced to a cable or a spine (paths.py). Several faults are found together.

The steps are a generator. Its state is the figures taken so far: a search continues by replaying
them, and a state of another cluster or another version does not fit the probes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import median
from typing import Any, Optional

from ...module_utils.core.text import bits_text
from .figures import (
    ACROSS,
    ALIKE,
    NODE,
    NOT_REPRODUCED,
    RAIL,
    SAME_LEAF,
    SPINE,
    UNFINISHED,
    Direction,
    Figure,
    Pair,
    Probe,
    Topology,
    Verdict,
)
from .outliers import FLOOR, PAIR, Analysis, End, analyse, spread_of
from .paths import Paths
from .rounds import by_leaf, crossing, inside, reaches

BEST_OF = 3
"""Measurements of a suspect; the best one counts."""
CLEARLY = 0.85
"""Below this part of the limit, three measurements are enough; nearer to it, six are taken."""
SPREADS = 1.75
"""A suspect is slow if its best is this number of standard deviations below the usual value: the
best of 3 of a healthy one is with a probability of 6e-5, if noise is log-normal."""
LEAST_PART = 0.64
"""Below this part of the usual value, the best of 3 is slow, whatever the spread: if half of a
small cluster is slow, the spread says nothing."""
TRACED_SPREADS = 3.5
"""As above for a single flow between leaves, which is measured once."""
TRACED_LEAST = 0.5
"""A single flow below this part of the usual one is slow in any case: traced flows share no cable,
and noise of a busy machine is smaller."""
RAILS_OF_NODE = 2
"""Rails on which a slow node is confirmed."""
SMALL_SET = 8
"""Nodes of a leaf up to which screening measures all pairs of it, as few pairs tell less."""
MAX_TRACES = 12
"""Probes from one leaf. Of 32 uplinks, 12 probes of 28 flows (7 other leaves) leave each without a
flow with a probability of 2e-5; of 4 uplinks, 12 single flows 3 %."""
MANY_UPLINKS = 16
"""From this number of uplinks, 4 queue pairs are traced together: one on a cable at a tenth of its
rate still takes a fifth of the bandwidth of the pair."""
FOCI = 4
"""Leaves that are traced together."""
CONTROLS = 4
"""Pairs of known-good nodes that are measured next to suspects, under the same conditions."""
LEAST_CONTROLS = 6
"""Figures of known-good pairs from which the noise is estimated; with fewer, a suspect must reach
LEAST_PART only."""
MAX_SUSPECTS = 64
"""Suspect ends of one rail that are confirmed: with more, the cause is common."""

Steps = Generator[list[Probe], list[Figure], None]
Measuring = Generator[list[Probe], list[Figure], list[Figure]]


class StateError(ValueError):
    """A saved state is not one of this search; the message says why."""


@dataclass
class _Suspect:
    """A rail of a node that is measured with known-good partners, in each direction."""

    node: str
    rail: str
    best: dict[bool, float] = field(default_factory=dict)
    """Best Gb/s by direction: True if the node sends."""
    tries: Counter[bool] = field(default_factory=Counter)
    passed: set[bool] = field(default_factory=set)
    """Directions in which it is not slow."""
    usual: float = 0.0
    slow: Optional[bool] = None
    partners: list[str] = field(default_factory=list)

    def sends(self) -> bool:
        """Direction of the next measurement: sending, until that has passed."""
        return True not in self.passed

    def take(self, figure: Figure) -> None:
        sends = figure.first == self.node
        self.tries[sends] += 1
        self.best[sends] = max(self.best.get(sends, 0.0), figure.gbits_s or 0.0)

    def decide(self, cut: float, usual: float) -> None:
        self.usual = usual
        self.passed = {sends for sends, best in self.best.items() if best >= cut}
        if len(self.passed) == 2:
            self.slow = False
        else:
            self.slow = (
                any(
                    self.tries[way] >= (BEST_OF if best < CLEARLY * cut else 2 * BEST_OF)
                    for way, best in self.best.items()
                    if way not in self.passed
                )
                or None
            )

    def text(self) -> str:
        sends = min(self.best, key=lambda each: self.best[each])
        way = "sends" if sends else "receives"
        return (
            f"{self.rail}: {way} {bits_text(self.best[sends])} at best, with "
            f"{' and '.join(dict.fromkeys(self.partners))}; usual: {bits_text(self.usual)}"
        )


@dataclass
class Search:
    """`given`: figures of rounds measured before, which replace the screening. `least`: expected
    share of the line rate, or 0."""

    topology: Topology
    max_runs: int
    """Budget: number of probes (budget.py)."""
    given: Sequence[Figure] = ()
    least: float = 0.0
    both: bool = True
    """Whether pairs are also measured from the second node to the first."""

    def __post_init__(self) -> None:
        self.runs = 0
        self._taken: list[list[Figure]] = []
        self._found: list[Verdict] = []
        self._suspects: set[str] = set()
        self._figures: list[Figure] = []
        self._slow_ends: set[End] = set()
        self._measured: set[str] = set()
        """Nodes of all suspects."""
        self._control: dict[str, list[float]] = {}
        """Gb/s of known-good pairs by rail, measured with suspects."""
        self._expired = False
        self._analysis = Analysis((), ())
        self._steps = self._search()
        self._asked: list[Probe] = []
        self._advance(None)

    def _advance(self, figures: Optional[list[Figure]]) -> None:
        try:
            self._asked = self._steps.send(figures) if figures is not None else next(self._steps)
        except StopIteration:
            self._asked = []
        if self._asked and self.runs + len(self._asked) > self.max_runs:
            self.expire()

    def next(self) -> list[Probe]:
        """Probes to measure now; those of one list use different nodes, so they may be measured
        simultaneously. Empty at the end."""
        return list(self._asked)

    def expire(self) -> None:
        """The time is over: suspects remain suspects."""
        self._expired = bool(self._asked)
        self._asked = []

    def take(self, figures: Iterable[Figure]) -> None:
        """Figures of the probes of `next`. A pair without a figure has failed; a pair may also be
        measured from its second node to its first."""
        known = {(one.rail, one.far_rail, one.pair): one for one in figures}
        found = []
        for probe in self._asked:
            for first, second in probe.pairs:
                there = known.pop((probe.rail, probe.far_rail, (first, second)), None)
                missing = Figure(probe.rail, first, second, None, None, "no figure")
                found.append(there or replace(missing, second_rail=probe.second_rail))
                back = known.pop((probe.far_rail, probe.rail, (second, first)), None)
                found += [back] if back else []
        self.runs += len(self._asked)
        self._taken.append(found)
        self._advance(found)

    def verdicts(self) -> list[Verdict]:
        """All faults found so far, or the one reason why there is none."""
        found = [replace(verdict, runs=self.runs) for verdict in self._found]
        if self._expired and (self._suspects or not found):
            left = tuple(sorted(self._suspects)) or ("everything",)
            found.append(Verdict(UNFINISHED, ", ".join(left), (), self.runs, left))
        return found or [self._nothing()]

    def verdict(self) -> Verdict:
        return self.verdicts()[0]

    def _nothing(self) -> Verdict:
        below = [
            f"{cohort.key.rail}, {cohort.key.path}: {bits_text(cohort.median)}, expected "
            f"{bits_text(self.least * cohort.key.rate)}"
            for cohort in self._analysis.cohorts
            if cohort.median < self.least * cohort.key.rate
        ]
        kind = ALIKE if below else NOT_REPRODUCED
        return Verdict(kind, "", tuple(below[:3]), self.runs)

    # Steps.

    def _search(self) -> Steps:
        figures = list(self.given)
        if not figures:
            figures = yield from self._screen()
        self._figures = figures
        self._analysis = analyse(figures, self.topology)
        yield from self._confirm_ends()
        yield from self._trace_paths()

    def _measure(self, probes: Iterable[Probe]) -> Measuring:
        """Probes with different nodes together, others one after another."""
        found: list[Figure] = []
        batch: list[Probe] = []
        used: set[str] = set()
        for probe in probes:
            nodes = {node for pair in probe.pairs for node in pair}
            if used & nodes:
                found += yield batch
                batch, used = [], set()
            batch.append(probe)
            used |= nodes
        if batch:
            found += yield batch
        return found

    def _screen(self) -> Measuring:
        """Every set, all of them simultaneously; then pairs of different sets."""
        found: list[Figure] = []
        for rail in self.topology.rails:
            groups = by_leaf(self.topology, rail)
            small = max(map(len, groups)) <= SMALL_SET
            near = inside(groups, None if small else 1)
            found += yield from self._measure(Probe(rail, turn) for turn in near if turn)
        for rail in self.topology.rails:
            groups = by_leaf(self.topology, rail)
            if len(groups) < 2:
                continue
            size = max(map(len, groups))
            uplinks = _uplinks(self.topology, rail)
            queues = max(1, min(4, uplinks // 4))
            turns = max(1, min(SMALL_SET, math.ceil(FLOWS * uplinks / (size * queues))))
            rounds = list(islice(crossing(groups), turns))
            if not self.both:
                rounds += [tuple((b, a) for a, b in turn) for turn in rounds]
            found += yield from self._measure(
                Probe(rail, turn, queue_pairs=queues) for turn in rounds
            )
        return found

    def _confirm_ends(self) -> Steps:
        """Suspect rails of nodes, each with known-good partners."""
        whole: set[str] = set()
        suspects: dict[End, _Suspect] = {}
        for outlier in self._analysis.outliers:
            rails = [outlier.rail, outlier.far_rail or outlier.rail]
            if outlier.kind == NODE:
                whole |= {*outlier.nodes}
                rails = list(self.topology.ports[outlier.nodes[0]])[:RAILS_OF_NODE]
                ends = [(outlier.nodes[0], rail) for rail in rails]
            elif outlier.kind == RAIL and not outlier.nodes:
                yield from self._confirm_rail(outlier.rail)
                ends = []
            else:
                ends = list(zip(outlier.nodes, rails))
                if outlier.kind == PAIR and not self._near(outlier.nodes, rails[0], rails[1]):
                    ends = []
            suspects.update({end: _Suspect(*end) for end in ends if end not in suspects})
        if not self._analysis.outliers or len(self.topology.nodes) <= SMALL_SET:
            suspects = {end: _Suspect(*end) for end in [*suspects, *self._lowest()]}
        for node in {each.node for each in suspects.values()}:
            rails = list(self.topology.ports[node])
            if all((node, rail) in suspects for rail in rails):
                whole.add(node)
                for rail in rails[RAILS_OF_NODE:]:
                    del suspects[node, rail]
        yield from self._confirm(list(suspects.values()))
        for most in (RAILS_OF_NODE, len(self.topology.rails)):
            # Other rails of the node: are all of them slow?
            more = [
                _Suspect(node, rail)
                for node in self._doubtful(suspects, whole, most)
                for rail in [
                    rail for rail in self.topology.ports[node] if (node, rail) not in suspects
                ][:most]
            ]
            suspects.update({(each.node, each.rail): each for each in more})
            yield from self._confirm(more)
        self._name_ends(suspects, whole)

    @staticmethod
    def _doubtful(suspects: Mapping[End, _Suspect], whole: set[str], most: int) -> list[str]:
        """Nodes with a slow rail, of which it is not known whether others are slow. With many,
        only those of which some are slow and some are not."""
        states: dict[str, list[Optional[bool]]] = {}
        for each in suspects.values():
            states.setdefault(each.node, []).append(each.slow)
        return [
            node
            for node, found in states.items()
            if True in found
            and (node not in whole or False in found)
            and (most == RAILS_OF_NODE or (found.count(True) > 1 and False in found))
        ]

    def _confirm_rail(self, rail: str) -> Steps:
        """A rail that is slow on every node, next to another one."""
        slow = {outlier.rail for outlier in self._analysis.outliers if not outlier.nodes}
        other = next((each for each in self.topology.rails if each not in slow), rail)
        best = {rail: 0.0, other: 0.0}
        pairs = {each: inside(by_leaf(self.topology, each), 1)[0] for each in best}
        for _turn in range(BEST_OF):
            figures = yield from self._measure(Probe(each, pairs[each]) for each in best)
            for each in best:
                found = median(one.gbits_s or 0.0 for one in figures if one.rail == each)
                best[each] = max(best[each], found)
        spread, _usual = self._usual(other)
        if best[rail] < best[other] * _part(max(spread / math.sqrt(len(pairs[rail])), 2 * FLOOR)):
            text = f"{bits_text(best[rail])} at best, {other}: {bits_text(best[other])}"
            self._found.append(Verdict(RAIL, rail, (text,)))

    def _good_ends(self) -> set[End]:
        """Rails of nodes with a figure on their leaf that is not low."""
        usual: dict[str, float] = {}
        for cohort in self._analysis.cohorts:
            if cohort.key.path == SAME_LEAF:
                usual[cohort.key.rail] = max(usual.get(cohort.key.rail, 0.0), cohort.median)
        return {
            end
            for one in self._figures
            if self.topology.path(one) == SAME_LEAF
            and (one.gbits_s or 0.0) >= LOW[SAME_LEAF] * usual[one.rail]
            for end in ((one.first, one.rail), (one.second, one.far_rail))
        }

    def _near(self, nodes: Sequence[str], rail: str, far_rail: str) -> bool:
        first, second = nodes
        return self.topology.leaf(first, rail) == self.topology.leaf(second, far_rail)

    def _lowest(self, path: str = SAME_LEAF) -> list[End]:
        """Where nothing stands out: the ends of the slowest pairs, if these are clearly below the
        usual value. Of four nodes, one that is slow makes half of the pairs slow."""
        usual = max(
            (cohort.median for cohort in self._analysis.cohorts if cohort.key.path == path),
            default=0.0,
        )
        slow = [
            one
            for one in self._figures
            if self.topology.path(one) == path and (one.gbits_s or 0) < LOW[path] * usual
        ]
        slow.sort(key=lambda one: one.gbits_s or 0)
        ends = [end for one in slow for end in ((one.first, one.rail), (one.second, one.far_rail))]
        return ends[: 2 * FOCI]

    def _confirm(self, suspects: Sequence[_Suspect]) -> Steps:
        by_rail: dict[str, list[_Suspect]] = {}
        for each in suspects:
            by_rail.setdefault(each.rail, []).append(each)
            self._suspects.add(f"{each.node} {each.rail}")
        taken = {
            end
            for each in self._analysis.outliers
            if each.kind != PAIR
            for end in self._ends_of(each.nodes, each)
        }
        taken |= {(each.node, each.rail) for each in suspects}
        for turn in range(2 * BEST_OF + 2):
            probes = []
            for rail, own in by_rail.items():
                left = [each for each in own[:MAX_SUSPECTS] if each.slow is None]
                pairs = self._with_partners(left, rail, taken, turn) if left else ()
                probes += [Probe(rail, pairs)] if pairs else []
            if not probes:
                break
            figures = yield from self._measure(probes)
            for rail, own in by_rail.items():
                self._decide([each for each in own if each.slow is None], figures, rail)

    @staticmethod
    def _ends_of(nodes: Sequence[str], outlier: Any) -> list[End]:
        rails = (outlier.rail, outlier.far_rail or outlier.rail)
        return list(zip(nodes, rails))

    def _with_partners(
        self, suspects: Sequence[_Suspect], rail: str, taken: set[End], turn: int
    ) -> tuple[Pair, ...]:
        """Each suspect with another good node of its leaf, or else of another leaf; and some pairs
        of good nodes."""
        good: dict[str, list[str]] = {}
        for node in self.topology.on(rail):
            if (node, rail) not in taken and not self._is_slow(node, rail):
                good.setdefault(self.topology.leaf(node, rail), []).append(node)
        for nodes in good.values():
            nodes[:] = nodes[turn % len(nodes) :] + nodes[: turn % len(nodes)]
        pairs: list[Pair] = []
        paired: list[_Suspect] = []
        for each in suspects:
            own = good.get(self.topology.leaf(each.node, rail)) or next(
                filter(None, good.values()), []
            )
            if each in paired:
                continue
            partner = own.pop(0) if own else ""
            if not partner:
                # No other node is known to be good: another suspect, a different one each turn.
                others = [one for one in suspects if one not in paired and one is not each]
                if not others:
                    continue
                other = others[turn % len(others)]
                paired += [other]
                other.partners.append(each.node)
                partner = other.node
            paired += [each]
            each.partners.append(partner)
            sends = each.sends()
            pairs.append((each.node, partner) if sends else (partner, each.node))
        if pairs:
            free = [pair for nodes in good.values() for pair in zip(nodes[::2], nodes[1::2])]
            pairs += free[:CONTROLS]
        return tuple(pairs)

    def _is_slow(self, node: str, rail: str) -> bool:
        return (node, rail) in self._slow_ends

    def _decide(self, suspects: Sequence[_Suspect], figures: Sequence[Figure], rail: str) -> None:
        nodes = {each.node: each for each in suspects}
        self._measured |= {*nodes}
        control: list[float] = []
        for figure in figures:
            if figure.rail != rail:
                continue
            own = [nodes[node] for node in figure.pair if node in nodes]
            for each in own:
                each.take(figure)
            if figure.gbits_s and not own and not {*figure.pair} & self._measured:
                control.append(figure.gbits_s)
        self._control.setdefault(rail, []).extend(control)
        _spread, usual = self._usual(rail)
        if len(self._control[rail]) >= LEAST_CONTROLS:
            usual = max(usual, median(self._control[rail]))
        cut = usual * self._part()
        for each in suspects:
            if each.tries:
                each.decide(cut, usual)

    def _part(self) -> float:
        """Part of the usual value that a suspect must reach, by the noise of known-good pairs."""
        noise = [
            math.log(value / median(values))
            for values in self._control.values()
            for value in values
        ]
        spread = spread_of(noise) if len(noise) >= LEAST_CONTROLS else math.inf
        return _part(SPREADS * spread)

    def _usual(self, rail: str) -> tuple[float, float]:
        """Spread and Gb/s of pairs on one leaf; of other rails or across spines if there are
        none."""
        cohorts = sorted(
            self._analysis.cohorts,
            key=lambda each: (each.key.path != SAME_LEAF, each.key.rail != rail),
        )
        return (cohorts[0].spread, cohorts[0].median) if cohorts else (0.0, 0.0)

    def _name_ends(self, suspects: Mapping[End, _Suspect], whole: set[str]) -> None:
        slow: dict[str, list[_Suspect]] = {}
        for names in self._inseparable(suspects):
            self._found.append(Verdict(RAIL, ", ".join(names), (), 0, tuple(names)))
        for each in suspects.values():
            if each.slow:
                slow.setdefault(each.node, []).append(each)
        for node, own in slow.items():
            rails = self.topology.ports[node]
            measured = [each for each in suspects.values() if each.node == node]
            enough = RAILS_OF_NODE + (node not in whole)
            every = len(own) == len(measured) >= min(enough, len(rails))
            texts = tuple(each.text() for each in own)
            if every:
                self._found.append(Verdict(NODE, node, texts))
                self._slow_ends |= {(node, rail) for rail in rails}
                continue
            for each, text in zip(own, texts):
                self._found.append(Verdict(RAIL, f"{node} {each.rail}", (text,)))
                self._slow_ends.add((node, each.rail))
        for each in suspects.values():
            self._suspects.discard(f"{each.node} {each.rail}")

    @staticmethod
    def _inseparable(suspects: Mapping[End, _Suspect]) -> Iterator[list[str]]:
        """Slow rails that had no partner but one another, as with two nodes."""
        for each in suspects.values():
            partners = {*each.partners}
            if not each.slow or len(partners) != 1:
                continue
            other = suspects.get((partners.pop(), each.rail))
            if other and other.slow and {*other.partners} == {each.node}:
                each.slow = other.slow = False
                yield [f"{each.node} {each.rail}", f"{other.node} {other.rail}"]

    # Paths between leaves.

    def _trace_paths(self) -> Steps:
        slow = [
            (outlier.nodes, outlier.rail)
            for outlier in self._analysis.outliers
            if outlier.kind == PAIR
            and not self._near(outlier.nodes, outlier.rail, outlier.far_rail or outlier.rail)
            and not any(end in self._slow_ends for end in self._ends_of(outlier.nodes, outlier))
        ]
        if not self._analysis.outliers and not self._found:
            lowest = self._lowest(ACROSS)
            slow = [
                ((first, second), rail)
                for (first, rail), (second, _rail) in zip(lowest[::2], lowest[1::2])
            ]
        paths = Paths(self.topology, self._good_ends())
        spine_named = False
        for rail in self.topology.rails:
            own = [nodes for nodes, of_rail in slow if of_rail == rail]
            left = Counter(leaf for pair in own for leaf in self._leaves(pair, rail))
            counts = Counter(
                leaf
                for one in self._figures
                if one.rail == rail and self.topology.path(one) == ACROSS
                for leaf in self._leaves(one.pair, rail)
            )
            if spine_named:
                left = _excess(left, counts)
            while left:
                foci = self._foci(left, own, rail)
                for focus in foci:
                    left.pop(focus, None)
                self._suspects |= {leaf for leaf, _sends in foci}
                yield from self._trace(rail, foci, paths)
                self._suspects -= {leaf for leaf, _sends in foci}
                named, _rest = paths.explained()
                spine_named = any(verdict.kind == SPINE for verdict in named)
                left = _excess(left, counts) if spine_named else left
                covered = {*foci}
                own = [pair for pair in own if not covered & {*self._leaves(pair, rail)}]
                alive = {leaf for pair in own for leaf in self._leaves(pair, rail)}
                left = Counter({leaf: count for leaf, count in left.items() if leaf in alive})
        named, rest = paths.explained()
        self._found += [*named, *paths.unexplained(rest)]

    def _leaves(self, pair: Sequence[str], rail: str) -> tuple[tuple[str, bool], ...]:
        """The leaf that sends, and the one that receives."""
        first, second = pair
        return (self.topology.leaf(first, rail), True), (self.topology.leaf(second, rail), False)

    def _foci(
        self, left: Counter[tuple[str, bool]], own: Sequence[Sequence[str]], rail: str
    ) -> list[tuple[str, bool]]:
        """The leaves and directions that most slow pairs have in common."""
        found: list[tuple[str, bool]] = []
        pairs = list(own)
        while pairs and len(found) < FOCI:
            counts = Counter(leaf for pair in pairs for leaf in self._leaves(pair, rail))
            leaf = max(counts, key=lambda each: (counts[each], left[each], each))
            # Both ends of the same pairs: their cables are separated by flows to others.
            same = [each for each in counts if counts[each] == counts[leaf]]
            found += [each for each in [leaf, *same] if each not in found][: FOCI - len(found)]
            pairs = [pair for pair in pairs if not {*found} & {*self._leaves(pair, rail)}]
        return found or [max(left, key=lambda each: left[each])]

    def _trace(self, rail: str, foci: Sequence[tuple[str, bool]], paths: Paths) -> Steps:
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
            open_ = [focus for focus in foci if not self._covered(focus, tested, named)]
            open_ += sorted(ends - {*open_})
            for probe in self._stars(rail, open_[:FOCI], turn, paths) if open_ else ():
                figures = yield [probe]
                paths.add(probe, figures)
                paths.mark(self._flow_cut(paths))

    def _covered(
        self, focus: tuple[str, bool], tested: set[Direction], named: Sequence[Verdict]
    ) -> bool:
        """Every cable of the leaf was used, or a slow spine explains its slow pairs."""
        leaf, _up = focus
        kinds = {verdict.kind for verdict in named}
        own = any(verdict.subject.startswith(f"{leaf} ") for verdict in named)
        return self._cables(focus) <= tested or (SPINE in kinds and not own)

    def _cables(self, focus: tuple[str, bool]) -> set[Direction]:
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

    def _stars(
        self, rail: str, foci: Sequence[tuple[str, bool]], turn: int, paths: Paths
    ) -> list[Probe]:
        """Flows between each of these leaves and others, of which each has one flow only, so that
        its counters show the way of it. Without counters, one flow per probe."""
        blind = any(flow.figure.cables is None for flow in paths.flows)
        queues = 4 if _uplinks(self.topology, rail) >= MANY_UPLINKS else 1
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
                if offset >= len(here) or (blind and pairs):
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
        key = rail, len(self._slow_ends)
        if key not in self._cache:
            found: dict[str, list[str]] = {}
            for node in self.topology.on(rail):
                if not self._is_slow(node, rail):
                    found.setdefault(self.topology.leaf(node, rail), []).append(node)
            self._cache[key] = found
        return self._cache[key]

    _cache: dict[tuple[str, int], dict[str, list[str]]] = field(default_factory=dict, repr=False)


LOW = {SAME_LEAF: 0.8, ACROSS: 0.4}
"""Part of the usual value below which pairs are measured again where nothing stands out."""
FLOWS = 8
"""Flows per uplink in screening: each direction is missed with a probability of e^-8, 0.03 %."""


def _part(deviation: float) -> float:
    """Part of the usual value that a suspect must reach."""
    return max(LEAST_PART, math.exp(-max(deviation, -math.log1p(-FLOOR))))


def _uplinks(topology: Topology, rail: str) -> int:
    leaves = {topology.leaf(node, rail) for node in topology.on(rail)}
    return max(
        Counter(each.lower for each in topology.cables if each.lower in leaves).values(), default=1
    )


def _disjoint(pairs: Iterable[Pair]) -> list[Pair]:
    used: set[str] = set()
    found = []
    for pair in pairs:
        if not used & {*pair}:
            found.append(pair)
            used |= {*pair}
    return found


def _excess(
    slow: Counter[tuple[str, bool]], counts: Mapping[tuple[str, bool], int]
) -> Counter[tuple[str, bool]]:
    """Leaves with clearly more slow pairs than others: a slow spine slows pairs of all leaves."""
    shares = [slow[leaf] / count for leaf, count in counts.items() if count]
    share = median(shares) if shares else 0.0
    return Counter(
        {
            leaf: count
            for leaf, count in slow.items()
            if count > share * counts[leaf] + 4 * math.sqrt(share * counts[leaf]) + 1
        }
    )
