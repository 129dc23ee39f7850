# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Share of the directions of cables between switches that carry a test, by model.

A queue pair has one UDP source port, so all its packets take the path that switches choose by hash.
The model: at each switch, each of the cables on shortest paths is equally probable, independently
for each queue pair. A cable that is one of k carries none of q queue pairs with the probability
(1 - 1/k)^q: with as many pairs as cables (no blocking) and 4 queue pairs each, 1.8 % of the
directions carry nothing, with 8 0.03 %, whatever the size of the cluster.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..fabric.cabling import SwitchEntry, cables_of
from ..fabric.system import UPLINK

Link = tuple[str, str]
"""A switch and the next one: one direction of the cables between them."""


@dataclass(frozen=True)
class Coverage:
    pairs: int
    crossing: int
    """Pairs whose ends are on different leaves."""
    queue_pairs: int
    """Of each pair."""
    directions: int
    """Two for each cable between switches."""
    expected: float
    """Expected number of directions that carry a test."""

    def sentence(self) -> str:
        share = self.expected / self.directions if self.directions else 0.0
        return (
            f"between leaves: {self.crossing} of {self.pairs} pairs; with {self.queue_pairs} queue "
            f"pairs each, hashed independently, {share:.2%} of the {self.directions} directions of "
            "cables between switches are expected to carry a test"
        )


@dataclass(frozen=True)
class Fabric:
    adjacent: Mapping[str, Mapping[str, int]]
    """Number of cables by switch and adjacent switch."""

    @classmethod
    def of(cls, cables: Iterable[Link]) -> Fabric:
        """From the two switches of each cable, in any order."""
        adjacent: dict[str, Counter[str]] = defaultdict(Counter)
        for one, other in cables:
            adjacent[one][other] += 1
            adjacent[other][one] += 1
        return cls(adjacent)

    @classmethod
    def of_switches(cls, switches: Mapping[str, Mapping[str, Any]]) -> Fabric:
        """From the variables of all leaves and spines."""
        cables = cables_of(
            SwitchEntry(name, own["cluster_ports"]) for name, own in switches.items()
        )
        return cls.of(
            (cable.first.host, cable.second.host) for cable in cables if cable.kind == UPLINK
        )

    def coverage(self, pairs: Mapping[Link, int], queue_pairs: int) -> Coverage:
        """Expected coverage of tests between leaves, by the number of pairs that send from one to
        another."""
        untested: dict[Link, float] = defaultdict(lambda: 1.0)
        for (near, far), shares in self._shares(pairs):
            for link, share in shares.items():
                untested[link] *= (1 - share) ** (pairs[near, far] * queue_pairs)
        expected = sum(
            self.adjacent[here][there] * (1 - none) for (here, there), none in untested.items()
        )
        return Coverage(
            sum(pairs.values()),
            sum(count for (near, far), count in pairs.items() if near != far),
            queue_pairs,
            sum(count for own in self.adjacent.values() for count in own.values()),
            expected,
        )

    def _shares(self, pairs: Iterable[Link]) -> Iterator[tuple[Link, dict[Link, float]]]:
        """For each two leaves, the probability that one queue pair takes one cable of a link."""
        senders: dict[str, set[str]] = defaultdict(set)
        for near, far in pairs:
            senders[far].add(near)
        for far, leaves in senders.items():
            # Switches by their number of hops to the receiving leaf.
            hops: list[set[str]] = [{far}]
            seen = {far}
            while hops[-1] and not leaves <= seen:
                beyond = seen.union(*(self.adjacent.get(one, ()) for one in hops[-1])) - seen
                hops.append(beyond)
                seen |= beyond
            for leaf in leaves & seen:
                distance = next(number for number, those in enumerate(hops) if leaf in those)
                yield (leaf, far), self._spread(leaf, hops[:distance])

    def _spread(self, leaf: str, hops: list[set[str]]) -> dict[Link, float]:
        shares: dict[Link, float] = {}
        reached = {leaf: 1.0}
        for closer in reversed(hops):
            onward: dict[str, float] = defaultdict(float)
            for here, probability in reached.items():
                ways = {
                    one: self.adjacent[here][one] for one in self.adjacent[here] if one in closer
                }
                each = probability / sum(ways.values())
                for there, cables in ways.items():
                    shares[here, there] = each
                    onward[there] += each * cables
            reached = onward
        return shares
