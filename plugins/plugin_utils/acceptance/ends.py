# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slow nodes and rails of nodes: suspects are measured with known-good partners, next to pairs that
are known to be good, and the second best of several measurements counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Optional

from ...module_utils.core.text import bits_text
from .figures import NODE, RAIL, SAME_LEAF, Figure, Pair, Probe, Verdict
from .measured import LOW, SMALL_SET, Measured, Steps, ends_of, measured
from .outliers import FLOOR, PAIR, End, spread_of
from .rounds import by_leaf, inside

MEASUREMENTS = 3
"""Of a suspect in each direction if it is slow by three times the deviation of the limit, and twice
this number nearer to it; the second best counts."""
SPREADS = 2.5
"""A suspect is slow if its second best is this number of standard deviations below the usual value.
That of few pairs is an upper quartile, 0.67 above the median: the second best of 6 of a healthy one
is 1.83 below the median with a probability of 3e-7, if noise is log-normal."""
LEAST_PART = 0.64
"""Below this part of the usual value, a suspect is slow, whatever the spread: if half of a small
cluster is slow, the spread says nothing."""
MORE_FAR = 1
"""Additional measurements of a suspect without a partner on its leaf, as a cable may be slow."""
RAILS_OF_NODE = 2
"""Rails on which a slow node is confirmed."""
MOST_RAILS = 0.85
"""Share of a node's measured rails that are slow if the node is: of 8, one may pass by chance."""
CONTROLS = 4
"""Pairs of known-good nodes that are measured next to suspects, under the same conditions."""
LEAST_CONTROLS = 6
"""Figures of known-good pairs from which the noise is estimated; with fewer, a suspect must reach
LEAST_PART only."""
MAX_SUSPECTS = 64
"""Suspect ends of one rail that are confirmed: with more, the cause is common."""


@dataclass
class _Suspect:
    """A rail of a node that is measured with known-good partners, in each direction."""

    node: str
    rail: str
    found: dict[bool, list[tuple[bool, float]]] = field(default_factory=dict)
    """Whether the partner is on the same leaf, and Gb/s; by direction: True if the node sends."""
    known: set[bool] = field(default_factory=set)
    """Directions in which earlier figures show that it is not slow."""
    passed: set[bool] = field(default_factory=set)
    """Directions in which it is not slow."""
    usual: float = 0.0
    slow: Optional[bool] = None
    partners: list[str] = field(default_factory=list)

    def sends(self) -> bool:
        """Direction of the next measurement: sending, until that has passed."""
        return True not in self.passed

    @property
    def tries(self) -> int:
        return sum(map(len, self.found.values()))

    def take(self, figure: Figure, near: bool) -> None:
        sends = figure.first == self.node
        self.found.setdefault(sends, []).append((near, figure.gbits_s or 0.0))

    def near(self, sends: bool) -> list[float]:
        return [value for near, value in self.found[sends] if near]

    def usable(self, sends: bool) -> float:
        """The second best on the leaf: the best may be too high by chance, and several too low. The
        best across spines, where flows share cables."""
        near = sorted(self.near(sends))
        far = [value for near, value in self.found[sends] if not near]
        return max([*near[-2:-1], *far], default=0.0)

    def decide(self, cut: float, usual: float) -> None:
        self.usual = usual
        self.passed = self.known | {sends for sends in self.found if self.usable(sends) >= cut}
        if len(self.passed) == 2:
            self.slow = False
            return
        for sends in self.found.keys() - self.passed:
            clearly = self.usable(sends) < cut * (cut / usual) ** 2
            near = sum(near for near, _value in self.found[sends])
            tries = near or len(self.found[sends]) - MORE_FAR
            if tries >= (MEASUREMENTS if clearly else 2 * MEASUREMENTS):
                self.slow = True

    def text(self) -> str:
        sends = min(self.found, key=self.usable)
        way = "sends" if sends else "receives"
        best = max(value for _near, value in self.found[sends])
        return (
            f"{way} {bits_text(best)} at best, with "
            f"{' and '.join(dict.fromkeys(self.partners))}; usual: {bits_text(self.usual)}"
        )


@dataclass
class Ends(Measured):
    slow: set[End] = field(default_factory=set)
    _control: dict[str, list[float]] = field(default_factory=dict)
    """Gb/s of known-good pairs by rail, measured with suspects."""
    _all: dict[End, _Suspect] = field(default_factory=dict)
    _repeated: list[list[float]] = field(default_factory=list)
    """Gb/s of suspects on their leaves, by suspect and direction."""
    _measured: set[str] = field(default_factory=set)
    """Nodes of all suspects."""
    _passed: set[End] = field(default_factory=set)
    """Suspects that are not slow, and thus partners of others."""

    def steps(self) -> Steps:
        """Suspect rails of nodes, each with known-good partners."""
        whole: set[str] = set()
        suspects: dict[End, _Suspect] = {}
        for outlier in self.analysis.outliers:
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
                if outlier.kind == PAIR and not self.near(outlier.nodes, rails[0], rails[1]):
                    ends = []
            suspects.update({end: _Suspect(*end) for end in ends if end not in suspects})
        if not self.analysis.outliers or len(self.topology.nodes) <= SMALL_SET:
            suspects = {end: _Suspect(*end) for end in [*suspects, *self.lowest()]}
        self._clear(suspects.values())
        for node in {each.node for each in suspects.values()}:
            rails = list(self.topology.ports[node])
            if all((node, rail) in suspects.keys() - self._passed for rail in rails):
                whole.add(node)
                for rail in rails[RAILS_OF_NODE:]:
                    del suspects[node, rail]
        yield from self._confirm(list(suspects.values()))
        while more := self._unexplained(suspects, whole):
            suspects.update({(each.node, each.rail): each for each in more})
            yield from self._confirm(more)
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

    def _clear(self, suspects: Iterable[_Suspect]) -> None:
        """Of the two ends of a slow pair, one has other figures, which are not slow."""
        outliers = self._outliers()
        rates: dict[tuple[End, bool], list[float]] = {}
        for one in self.figures:
            for end, sends in (((one.first, one.rail), True), ((one.second, one.far_rail), False)):
                rates.setdefault((end, sends), []).append(one.gbits_s or 0.0)
        for each in suspects:
            end = each.node, each.rail
            _spread, usual = self.usual(each.rail)
            leaf = self.topology.leaf(*end)
            single = [self.topology.leaf(node, each.rail) for node in self.topology.on(each.rail)]
            count = 1 if single.count(leaf) == 1 else 2 if end not in outliers else math.inf
            for sends in (True, False):
                good = [x for x in rates.get((end, sends), ()) if x >= LOW[SAME_LEAF] * usual]
                if len(good) >= count:
                    each.known.add(sends)
            if len(each.known) == 2:
                each.slow = False
                self._passed.add(end)

    def _outliers(self) -> set[End]:
        """Rails of nodes that are slow with several partners."""
        found = {end for each in self.analysis.of_kind(RAIL) for end in ends_of(each)}
        for each in self.analysis.of_kind(NODE):
            found |= {(each.nodes[0], rail) for rail in self.topology.rails}
        return found

    def _unexplained(self, suspects: Mapping[End, _Suspect], whole: set[str]) -> list[_Suspect]:
        """The other end of each low figure on one leaf of which the suspect end has passed."""
        slow = {end for end, each in suspects.items() if each.slow}
        nodes = {node for node, _rail in slow} & whole
        found: dict[End, _Suspect] = {}
        for one in self.low(SAME_LEAF):
            ends = (one.first, one.rail), (one.second, one.far_rail)
            if not slow & {*ends} and not nodes & {*one.pair}:
                found.update({end: _Suspect(*end) for end in ends if end not in suspects})
        return list(found.values())

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
        slow = {outlier.rail for outlier in self.analysis.outliers if not outlier.nodes}
        other = next((each for each in self.topology.rails if each not in slow), rail)
        best = {rail: 0.0, other: 0.0}
        pairs = {each: inside(by_leaf(self.topology, each), 1)[0] for each in best}
        for _turn in range(MEASUREMENTS):
            figures = yield from measured(Probe(each, pairs[each]) for each in best)
            for each in best:
                found = median(one.gbits_s or 0.0 for one in figures if one.rail == each)
                best[each] = max(best[each], found)
        spread, _usual = self.usual(other)
        if best[rail] < best[other] * _part(max(spread / math.sqrt(len(pairs[rail])), 2 * FLOOR)):
            text = f"{bits_text(best[rail])} at best, {other}: {bits_text(best[other])}"
            self.found.append(Verdict(RAIL, rail, (text,)))

    def _confirm(self, suspects: Sequence[_Suspect]) -> Steps:
        by_rail: dict[str, list[_Suspect]] = {}
        for each in suspects:
            by_rail.setdefault(each.rail, []).append(each)
            self.suspects.add(f"{each.node} {each.rail}")
        taken = self._outliers() | {(each.node, each.rail) for each in suspects}
        self._all.update({(each.node, each.rail): each for each in suspects})
        for turn in range(4 * MEASUREMENTS):
            probes = []
            for rail, own in by_rail.items():
                left = [each for each in own[:MAX_SUSPECTS] if each.slow is None]
                pairs = self._with_partners(left, rail, taken, turn) if left else ()
                probes += [Probe(rail, pairs)] if pairs else []
            if not probes:
                break
            figures = yield from measured(probes)
            for rail, own in by_rail.items():
                self._decide([each for each in own if each.slow is None], figures, rail)

    def _with_partners(
        self, suspects: Sequence[_Suspect], rail: str, taken: set[End], turn: int
    ) -> tuple[Pair, ...]:
        """Each suspect with another good node of its leaf, or else of another leaf; and some pairs
        of good nodes."""
        good: dict[str, list[str]] = {}
        suspect = (taken - self._passed) | self.slow
        for node in self.topology.on(rail):
            if (node, rail) not in suspect:
                good.setdefault(self.topology.leaf(node, rail), []).append(node)
        for nodes in good.values():
            nodes[:] = nodes[turn % len(nodes) :] + nodes[: turn % len(nodes)]
        pairs: list[Pair] = []
        paired: list[_Suspect] = []
        crossing: set[str] = set()
        for each in sorted(suspects, key=lambda one: (one.tries, -len(one.known))):
            leaf = self.topology.leaf(each.node, rail)
            own = good.get(leaf) or next(filter(None, good.values()), [])
            # Two suspects of a leaf might share a cable.
            if each in paired or (not good.get(leaf) and leaf in crossing):
                continue
            partner = own.pop(0) if own else ""
            if partner and self.topology.leaf(partner, rail) != leaf:
                crossing.add(leaf)
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

    def _decide(self, suspects: Sequence[_Suspect], figures: Sequence[Figure], rail: str) -> None:
        nodes = {each.node: each for each in suspects}
        self._measured |= {*nodes}
        control: list[float] = []
        for figure in figures:
            if figure.rail != rail:
                continue
            own = [nodes[node] for node in figure.pair if node in nodes]
            for each in own:
                each.take(figure, self.topology.path(figure) == SAME_LEAF)
            if figure.gbits_s and not own and not {*figure.pair} & self._measured:
                control.append(figure.gbits_s)
        self._control.setdefault(rail, []).extend(control)
        _spread, usual = self.usual(rail)
        if len(self._control[rail]) >= LEAST_CONTROLS:
            usual = max(usual, median(self._control[rail]))
        self._repeated = [each.near(way) for each in self._all.values() for way in each.found]
        cut = usual * self._part()
        for each in suspects:
            if each.found:
                each.decide(cut, usual)
            if each.slow is False:
                self._passed.add((each.node, each.rail))

    def _part(self) -> float:
        """Part of the usual value that a suspect must reach, by the noise of known-good pairs."""
        control = _residuals(self._control.values())
        if len(control) < LEAST_CONTROLS:
            return LEAST_PART
        near = (each for each in self.analysis.cohorts if each.key.path == SAME_LEAF)
        repeated = spread_of([*control, *_residuals(self._repeated)])
        return _part(SPREADS * max([repeated, *(each.noise for each in near)]))

    def _name_ends(self, suspects: Mapping[End, _Suspect], whole: set[str]) -> None:
        slow: dict[str, list[_Suspect]] = {}
        for names in self._inseparable(suspects):
            self.found.append(Verdict(RAIL, ", ".join(names), (), 0, tuple(names)))
        for each in suspects.values():
            if each.slow:
                slow.setdefault(each.node, []).append(each)
        for node, own in slow.items():
            rails = self.topology.ports[node]
            measured = [each for each in suspects.values() if each.node == node]
            enough = RAILS_OF_NODE + (node not in whole)
            least = min(enough, len(rails))
            every = len(measured) >= least and len(own) >= MOST_RAILS * len(measured)
            if every:
                texts = tuple(f"{each.rail}: {each.text()}" for each in own)
                self.found.append(Verdict(NODE, node, texts))
                self.slow |= {(node, rail) for rail in rails}
                continue
            for each in own:
                self.found.append(Verdict(RAIL, f"{node} {each.rail}", (each.text(),)))
                self.slow.add((node, each.rail))
        for each in suspects.values():
            self.suspects.discard(f"{each.node} {each.rail}")

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


def _residuals(groups: Iterable[Sequence[float]]) -> list[float]:
    """Logarithms relative to the median of each group; of few figures, they would be too small."""
    return [
        math.log(value / median(values))
        for values in groups
        if len(values) > 4 and min(values) > 0
        for value in values
    ]


def _part(deviation: float) -> float:
    """Part of the usual value that a suspect must reach."""
    return max(LEAST_PART, math.exp(-max(deviation, -math.log1p(-FLOOR))))
