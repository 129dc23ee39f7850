# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Find the smallest failing set of nodes by bisection.

One node or pair among n takes about 2 log2(n) runs instead of n(n-1)/2. The only assumption is that
a set fails if it contains a failing set. A node is named only after the others have passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ...core.text import some

NODE, PAIR, GROUP, COMMON = "node", "pair", "group", "common"
NOT_REPRODUCED, UNFINISHED = "not_reproduced", "unfinished"

MAX_NAMES = 12
"""Maximum number of names in a sentence; the rest are counted."""

Fails = Callable[[Sequence[str]], bool]
"""Whether a run on these nodes fails."""


class NoMoreRuns(Exception):
    """The limit on runs or time is reached."""


@dataclass(frozen=True)
class Culprit:
    """`kind` describes `nodes`: nodes that fail without others, a pair, a larger group, all nodes
    (a common cause), or the remaining suspects of an unfinished search."""

    kind: str
    nodes: tuple[str, ...]
    runs: int

    def sentence(self) -> str:
        names = some(self.nodes, MAX_NAMES)
        text = {
            NODE: f"faulty: {names}; runs with it fail, all others pass",
            PAIR: f"the pair {names} fails together, and each passes without the other",
            GROUP: f"{len(self.nodes)} nodes fail together: {names}",
            COMMON: (
                "every node fails without the others: the cause is common, or short "
                "runs exceed mpi_smoke_bisect_limit_s"
            ),
            NOT_REPRODUCED: "a short run on all nodes passed: the fault is intermittent",
            UNFINISHED: f"the search is incomplete; remaining suspects: {names}",
        }
        return f"{text[self.kind]} ({self.runs} short runs)"


def find(names: Sequence[str], fails: Fails, max_runs: int) -> Culprit:
    """The smallest failing set of `names`, within `max_runs` runs."""
    search = _Search(names, fails, max_runs)
    try:
        return search.run()
    except NoMoreRuns:
        return search.finding(UNFINISHED, search.suspects)


class _Search:
    def __init__(self, names: Sequence[str], fails: Fails, max_runs: int) -> None:
        self.names = list(names)
        self.fails_on = fails
        self.max_runs = max_runs
        self.known: dict[frozenset[str], bool] = {}
        self.suspects: set[str] = set(names)

    def fails(self, names: Sequence[str]) -> bool:
        key = frozenset(names)
        if key and key not in self.known:
            if len(self.known) >= self.max_runs:
                raise NoMoreRuns
            self.known[key] = self.fails_on([name for name in self.names if name in key])
        return bool(key) and self.known[key]

    def run(self) -> Culprit:
        if not self.fails(self.names):
            return self.finding(NOT_REPRODUCED, ())
        bad: list[str] = []
        rest = self.names
        while rest and self.fails(rest):
            self.suspects = {*bad, *rest}
            culprits = self.minimal([], rest, False)
            self.suspects = {*bad, *culprits}
            if len(culprits) == 2:
                culprits = self.one_of_two(culprits, rest)
            if len(culprits) > 1:
                # Several nodes fail together: other faults only show once these are repaired.
                return self.finding(PAIR if len(culprits) == 2 else GROUP, culprits)
            bad += culprits
            rest = [name for name in rest if name not in bad]
        everyone = len(bad) == len(self.names) and len(bad) > 1
        return self.finding(COMMON if everyone else NODE, bad)

    def finding(self, kind: str, nodes: Iterable[str]) -> Culprit:
        found = set(nodes)
        return Culprit(kind, tuple(name for name in self.names if name in found), len(self.known))

    def minimal(self, given: list[str], among: list[str], grown: bool) -> list[str]:
        """The fewest of `among` that fail together with `given` (QuickXplain)."""
        if grown and given and self.fails(given):
            return []
        if len(among) == 1:
            return among
        middle = len(among) // 2
        left, right = among[:middle], among[middle:]
        if not given:
            # If one half fails without the other, the other half passes.
            for half in (left, right):
                if self.fails(half):
                    self.suspects = set(half)
                    return self.minimal([], half, False)
        from_right = self.minimal(given + left, right, True)
        from_left = self.minimal(given + from_right, left, bool(from_right))
        return from_left + from_right

    def one_of_two(self, pair: list[str], among: list[str]) -> list[str]:
        """A node whose links are down passes as the only node, and fails with any other node."""
        first, second = pair
        others = [name for name in among if name not in pair]
        # Use a witness that passes with at least one of the two.
        for other in others[:3]:
            with_first = self.fails([first, other])
            with_second = self.fails([second, other])
            if with_first != with_second:
                return [first] if with_first else [second]
            if not with_first:
                break
        return pair
