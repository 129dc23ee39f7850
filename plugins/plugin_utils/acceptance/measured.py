# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figures of a whole cluster, from which the steps of the search start."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from .figures import ACROSS, SAME_LEAF, Figure, Probe, Topology, Verdict
from .outliers import FEW_ENDS, MANY_ENDS, Analysis, Cohort, End, Outlier, key_of, upper
from .rounds import by_leaf, crossing, inside

SMALL_SET = 8
"""Nodes of a leaf up to which screening measures all pairs of it, as few pairs tell less."""
FOCI = 4
"""Leaves that are traced together."""
LOW = {SAME_LEAF: 0.8, ACROSS: 0.4}
"""Part of the usual value below which pairs are measured again where nothing stands out."""
FLOWS = 8
"""Flows per uplink in screening: each direction is missed with a probability of e^-8, 0.03 %."""
MANY_UPLINKS = 16
"""From this number of uplinks, cables are compared by their bytes in rounds of all nodes, and 4
queue pairs are traced together: one on a cable at a tenth of its rate still takes a fifth of the
bandwidth of the pair."""

Steps = Generator[list[Probe], list[Figure], None]
Measuring = Generator[list[Probe], list[Figure], list[Figure]]


def measured(probes: Iterable[Probe]) -> Measuring:
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


def screening(topology: Topology, both: bool) -> list[Probe]:
    """Every set, all of them simultaneously; then pairs of different sets. `both`: pairs are also
    measured from the second node to the first."""
    found: list[Probe] = []
    for rail in topology.rails:
        groups = by_leaf(topology, rail)
        small = max(map(len, groups)) <= SMALL_SET
        near = inside(groups, None if small else 1)
        found += [Probe(rail, turn) for turn in near if turn]
    for rail in topology.rails:
        groups = by_leaf(topology, rail)
        if len(groups) < 2:
            continue
        size = max(map(len, groups))
        count = uplinks(topology, rail)
        queues = max(1, min(4, count // 4))
        turns = max(1, min(SMALL_SET, math.ceil(FLOWS * count / (size * queues))))
        rounds = list(islice(crossing(groups), turns))
        if not both:
            rounds += [tuple((b, a) for a, b in turn) for turn in rounds]
        many = count >= MANY_UPLINKS
        found += [Probe(rail, turn, queue_pairs=queues, counters=many) for turn in rounds if turn]
    return found


def uplinks(topology: Topology, rail: str) -> int:
    leaves = {topology.leaf(node, rail) for node in topology.on(rail)}
    return max(
        Counter(each.lower for each in topology.cables if each.lower in leaves).values(), default=1
    )


@dataclass
class Measured:
    topology: Topology
    analysis: Analysis
    figures: Sequence[Figure]
    found: list[Verdict] = field(default_factory=list)
    suspects: set[str] = field(default_factory=set)
    """Names of the present suspects."""

    def good_ends(self) -> set[End]:
        """Rails of nodes with a figure on their leaf that is not low."""
        usual: dict[str, float] = {}
        for cohort in self.analysis.cohorts:
            if cohort.key.path == SAME_LEAF:
                usual[cohort.key.rail] = max(usual.get(cohort.key.rail, 0.0), cohort.median)
        return {
            end
            for one in self.figures
            if self.topology.path(one) == SAME_LEAF
            and (one.gbits_s or 0.0) >= LOW[SAME_LEAF] * usual[one.rail]
            for end in ((one.first, one.rail), (one.second, one.far_rail))
        }

    def low(self, path: str) -> list[Figure]:
        """Figures that are outliers among those of their kind, whatever explains them."""
        cuts = {each.key: each.cut for each in self.analysis.cohorts}
        return [
            one
            for one in self.figures
            if self.topology.path(one) == path
            and (one.gbits_s or 0.0) < cuts[key_of(one, self.topology)]
        ]

    def near(self, nodes: Sequence[str], rail: str, far_rail: str) -> bool:
        first, second = nodes
        return self.topology.leaf(first, rail) == self.topology.leaf(second, far_rail)

    def lowest(self, path: str = SAME_LEAF) -> list[End]:
        """Where nothing stands out: the ends of the slowest pairs, if these are clearly below the
        usual value. Of four nodes, one that is slow makes half of the pairs slow; of two spines,
        one that is slow almost all pairs across spines, which are compared with those on leaves."""
        usual, near = (
            max((each.median for each in self.analysis.cohorts if each.key.path == one), default=0)
            for one in (path, SAME_LEAF)
        )
        if usual < LOW[path] * near:
            usual = near
        slow = [
            one
            for one in self.figures
            if self.topology.path(one) == path and (one.gbits_s or 0) < LOW[path] * usual
        ]
        slow.sort(key=lambda one: one.gbits_s or 0)
        ends = [end for one in slow for end in ((one.first, one.rail), (one.second, one.far_rail))]
        return ends[: 2 * FOCI]

    def usual(self, rail: str) -> tuple[float, float]:
        """Spread and Gb/s of pairs on one leaf; of other rails or across spines if there are none.
        Of few nodes, the upper quartile, as a slow one may be in most pairs. If pairs across spines
        are faster, theirs: then most pairs on one leaf have a slow end."""
        cohorts = sorted(
            self.analysis.cohorts,
            key=lambda each: (each.key.path != SAME_LEAF, each.key.rail != rail),
        )
        if not cohorts:
            return 0.0, 0.0
        found = [
            (self._usual(each), each.spread)
            for each in cohorts
            if each.key[:2] == cohorts[0].key[:2]
        ]
        usual, spread = max(found)
        return spread, usual

    def _usual(self, cohort: Cohort) -> float:
        if cohort.pairs >= MANY_ENDS:
            return cohort.median
        own = [one for one in self.figures if key_of(one, self.topology) == cohort.key]
        if len({end for one in own for end in one.pair}) > FEW_ENDS:
            return cohort.median
        return max(cohort.median, upper(one.gbits_s or 0.0 for one in own))


def ends_of(outlier: Outlier) -> list[End]:
    rails = outlier.rail, outlier.far_rail or outlier.rail
    return list(zip(outlier.nodes, rails))
