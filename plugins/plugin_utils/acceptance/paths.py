# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which cable or spine explains slow flows between leaves.

The pairs of a probe are traced by the bytes of cables: where a leaf has one pair of the probe, the
directions with bytes are those of the pair, and the other end follows from the spines. A fast pair
shows that its directions and spines are good. Of a slow pair, what no fast pair has used remains
suspect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Optional

from ...module_utils.core.text import bits_text
from .figures import CABLE, RAIL, SPINE, Direction, Figure, Probe, Topology, Uplink, Verdict

USED = 0.08
"""Part of the bytes of the busiest direction of a leaf that shows a flow: acknowledgements and
routing take a few percent."""
CLEARLY_LOST = 3.0
"""Multiple of drops by which one direction is told from others on the same flow."""
LEAST_LOST = 3
OVERLOAD = 1.05
"""Load of a cable, relative to its line rate, from which its flows slow each other."""
ENOUGH = 3
"""Slow flows over a spine, of different cables, that show that the spine is slow."""

Hops = tuple[frozenset[Direction], ...]


@dataclass
class Flow:
    """A pair with its queue pairs."""

    figure: Figure
    hops: Hops
    """Directions that it may have used, by hop."""
    used: frozenset[Direction]
    """Those that it has used."""
    drops: Mapping[Direction, int] = field(default_factory=dict)
    """Packets lost during its probe."""
    shared: bool = False
    """Others of the probe may have taken a part of its bandwidth."""
    slow: bool = False

    @cached_property
    def directions(self) -> set[Direction]:
        return {direction for hop in self.hops for direction in hop}

    @cached_property
    def spines(self) -> set[str]:
        """Switches between the leaves that it may have used."""
        return {direction.ends[1] for hop in self.hops[:-1] for direction in hop}

    @cached_property
    def used_spines(self) -> set[str]:
        return {end for each in self.used for end in each.ends} & self.spines

    def text(self) -> str:
        figure = self.figure
        found = figure.error or bits_text(figure.gbits_s or 0.0)
        return f"{figure.first} {figure.rail} to {figure.second} {figure.far_rail}: {found}"


@dataclass
class Suspicion:
    """What may explain one slow flow."""

    flow: Flow
    cables: set[Uplink]
    spines: set[str]
    ends: set[str]
    """Rails of nodes of which no measurement was fast."""

    def names(self) -> set[str]:
        return {*map(str, self.cables), *self.spines, *self.ends}


@dataclass
class Paths:
    topology: Topology
    good_ends: Collection[tuple[str, str]] = ()
    """Rails of nodes that are fast on their leaf."""
    flows: list[Flow] = field(default_factory=list)
    blind: bool = False
    """Whether counters of a probe were not read."""

    def add(self, probe: Probe, figures: Sequence[Figure]) -> None:
        """Trace the flows of a probe with counters. Pairs measured both ways are two flows, one
        after another."""
        self.blind |= figures[0].cables is None
        asked = set(probe.pairs)
        forward = [one for one in figures if one.pair in asked]
        back = [one for one in figures if one.pair not in asked]
        for part in (forward, back):
            self.flows += self._traced(part, figures[0], max(1, probe.queue_pairs))

    def _traced(self, figures: Sequence[Figure], counted: Figure, queues: int) -> list[Flow]:
        leaf = self.topology.leaf
        ends = [(leaf(one.first, one.rail), leaf(one.second, one.far_rail)) for one in figures]
        senders = Counter(near for near, _far in ends)
        receivers = Counter(far for _near, far in ends)
        found = []
        for figure, (near, far) in zip(figures, ends):
            hops = list(self.topology.hops(near, far))
            if not hops:
                continue
            used: set[Direction] = set()
            if counted.cables is not None:
                only = [senders[near] == 1, *[False] * (len(hops) - 2), receivers[far] == 1]
                hops, used = _followed(hops, counted.cables, only)
            found.append(Flow(figure, tuple(hops), frozenset(used), counted.drops or {}))
        load: dict[Direction, float] = {}
        for flow in found:
            for hop in flow.hops:
                for direction in hop:
                    # All queue pairs but one on each of the other directions.
                    most = max(1, queues - len(hop) + 1) / queues if flow.used else 1.0
                    rate = self.topology.line_rate(flow.figure) * most
                    load[direction] = load.get(direction, 0.0) + rate
        for flow in found:
            flow.shared = any(
                load[each] > OVERLOAD * self.topology.speeds.get(each.cable, 0.0)
                for each in flow.directions
            )
        return found

    def mark(self, share: float) -> None:
        """Flows below this share of the line rate are slow."""
        for flow in self.flows:
            flow.slow = (flow.figure.gbits_s or 0.0) < share * self.topology.line_rate(flow.figure)

    def good(self) -> tuple[set[Direction], set[str]]:
        """Directions and spines that a fast flow has used."""
        fast = [flow for flow in self.flows if not flow.slow]
        directions = {direction for flow in fast for direction in flow.used}
        return directions, {spine for flow in fast for spine in flow.used_spines}

    def tested(self, named: Iterable[Verdict]) -> set[Direction]:
        """Directions of which a flow was fast, or slow without another one and without a slow spine
        on its way."""
        slow = {verdict.subject for verdict in named if verdict.kind == SPINE}
        return {
            direction
            for flow in self.flows
            if not (flow.slow and (flow.shared or flow.spines & slow))
            for direction in flow.used
        }

    def suspicions(self) -> list[Suspicion]:
        good, good_spines = self.good()
        fast = {end for flow in self.flows if not flow.slow for end in _ends(flow)}
        good_ends = fast | {*self.good_ends}
        found = [
            Suspicion(
                flow,
                {direction.cable for direction in flow.directions - good},
                flow.spines - good_spines,
                {" ".join(end) for end in _ends(flow) if end not in good_ends},
            )
            for flow in self.flows
            if flow.slow and not flow.shared
        ]
        return [each for each in found if each.cables]  # else it was slow by chance

    def explained(self) -> tuple[list[Verdict], list[Suspicion]]:
        """Verdicts, and slow flows that still have several explanations."""
        left = self.suspicions()
        found: list[Verdict] = []
        for spine in sorted({spine for each in left for spine in each.spines}):
            own = [each for each in left if each.spines == {spine} and not each.ends]
            if len(own) >= ENOUGH and _spread(own) > 1:
                found.append(_verdict(SPINE, spine, own))
                left = [each for each in left if each not in own]
        while left:
            sole = next(filter(None, (self._repeated(each, left) for each in left)), None)
            cable = sole or next(filter(None, map(_lost_on, left)), None)
            if cable is None:
                break
            own = [each for each in left if cable in each.cables]
            found.append(_verdict(CABLE, str(cable), own))
            left = [each for each in left if each not in own]
        return _gathered(found), left

    def _repeated(self, suspicion: Suspicion, left: Sequence[Suspicion]) -> Optional[Uplink]:
        """The only cable that explains it, if another slow flow with other nodes may have used it
        too: one flow may be slow by chance, or by one of its nodes. The only node of a leaf is in
        every flow of its cables."""
        if len(suspicion.cables) > 1 or suspicion.spines or suspicion.ends:
            return None
        cable = next(iter(suspicion.cables))
        nodes = {end[0] for end in _ends(suspicion.flow) if end not in self._single}
        alike = [each for each in left if cable in each.cables and each is not suspicion]
        return cable if any(not nodes & {*each.flow.figure.pair} for each in alike) else None

    @cached_property
    def _single(self) -> set[tuple[str, str]]:
        """Rails of nodes without another node on their leaf."""
        found: dict[tuple[str, str], list[str]] = {}
        for node, rails in self.topology.ports.items():
            for rail, port in rails.items():
                found.setdefault((rail, port.leaf), []).append(node)
        return {(nodes[0], rail) for (rail, _leaf), nodes in found.items() if len(nodes) == 1}

    def unexplained(self, left: Sequence[Suspicion]) -> list[Verdict]:
        """The smallest sets of candidates of flows that are still not explained: what all of them
        have in common, or else of each group of them."""
        found = []
        rest = list(left)
        while rest:
            common = rest[0].names()
            own = []
            for each in rest:
                if common & each.names():
                    common &= each.names()
                    own.append(each)
            cables = {str(cable) for each in own for cable in each.cables}
            spines = {spine for each in own for spine in each.spines}
            kind = CABLE if common & cables else SPINE if common & spines else RAIL
            names = tuple(sorted(common))
            if names and len(own) > 1:
                verdict = _verdict(kind, ", ".join(names), own)
                found.append(Verdict(kind, verdict.subject, verdict.evidence, 0, names))
            rest = [each for each in rest if each not in own]
        return found


def _gathered(found: Sequence[Verdict]) -> list[Verdict]:
    """Several slow cables of one spine are a slow spine: some of its flows are fast if they leave
    it enough bandwidth."""
    cables: dict[str, list[Verdict]] = {}
    for each in found:
        if each.kind == CABLE:
            cables.setdefault(each.subject.split(" - ")[1].split(" ")[0], []).append(each)
    rest = [each for each in found if each.kind != CABLE]
    known = {each.subject for each in rest}
    for spine, own in cables.items():
        if len(own) <= ENOUGH:
            rest += own
        elif spine not in known:
            rest.append(
                Verdict(SPINE, spine, tuple(text for each in own for text in each.evidence[:1]))
            )
    return rest


def _ends(flow: Flow) -> tuple[tuple[str, str], tuple[str, str]]:
    figure = flow.figure
    return (figure.first, figure.rail), (figure.second, figure.far_rail)


def _followed(
    hops: Sequence[frozenset[Direction]], bytes_: Mapping[Direction, int], only: Sequence[bool]
) -> tuple[list[frozenset[Direction]], set[Direction]]:
    """Directions of a pair by hop, and those that it certainly used. `only`: of hops, whether no
    other pair of the probe uses their directions."""
    found = [
        _busy(hop, bytes_) if single else frozenset(each for each in hop if bytes_.get(each))
        for hop, single in zip(hops, only)
    ]
    found = [kept or hop for kept, hop in zip(found, hops)]
    found = _connected(found)
    used = {each for hop, single in zip(found, only) if single for each in hop if bytes_.get(each)}
    switches = {end for each in used for end in each.ends}
    for hop in (found[0], found[-1]):
        by_spine: dict[str, list[Direction]] = {}
        for each in hop:
            by_spine.setdefault(each.cable.upper, []).append(each)
        used |= {own[0] for spine, own in by_spine.items() if len(own) == 1 and spine in switches}
    for hop in found:
        used |= hop if len(hop) == 1 and used else set()
    return found, used


def _busy(hop: frozenset[Direction], bytes_: Mapping[Direction, int]) -> frozenset[Direction]:
    least = USED * max(bytes_.get(each, 0) for each in hop)
    return frozenset(each for each in hop if least and bytes_.get(each, 0) >= least)


def _connected(hops: Sequence[frozenset[Direction]]) -> list[frozenset[Direction]]:
    """Without directions that no path uses."""
    found = list(hops)
    for index in range(1, len(found)):
        known = {each.ends[1] for each in found[index - 1]}
        found[index] = frozenset(each for each in found[index] if each.ends[0] in known)
    for index in range(len(found) - 2, -1, -1):
        known = {each.ends[0] for each in found[index + 1]}
        found[index] = frozenset(each for each in found[index] if each.ends[1] in known)
    return found if all(found) else list(hops)


def _spread(own: Sequence[Suspicion]) -> int:
    """Number of flows without a common cable, at least."""
    used: set[Uplink] = set()
    count = 0
    for each in own:
        if not each.cables & used:
            used |= each.cables
            count += 1
    return count


def _lost_on(suspicion: Suspicion) -> Optional[Uplink]:
    """The cable that lost packets, if the others of the flow did not, or clearly fewer."""
    drops = suspicion.flow.drops
    if not drops or suspicion.ends:
        return None
    lost = {
        direction: drops.get(direction, 0)
        for direction in suspicion.flow.directions
        if direction.cable in suspicion.cables
    }
    ordered = sorted(lost, key=lambda direction: lost[direction], reverse=True)
    if not ordered or lost[ordered[0]] < LEAST_LOST:
        return None
    if len(ordered) > 1 and lost[ordered[0]] < CLEARLY_LOST * lost[ordered[1]]:
        return None
    return ordered[0].cable


def _verdict(kind: str, subject: str, own: Sequence[Suspicion]) -> Verdict:
    return Verdict(kind, subject, tuple(each.flow.text() for each in own[:3]))
