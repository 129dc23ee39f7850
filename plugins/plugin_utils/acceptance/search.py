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

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ...module_utils.core.text import bits_text
from ..answers import AnswerError, amount, form_of, whole
from .ends import Ends
from .figures import (
    ALIKE,
    LOSSY,
    NOT_REPRODUCED,
    UNFINISHED,
    Figure,
    Pair,
    Probe,
    Topology,
    Uplink,
    Verdict,
    as_json,
    of_json,
)
from .measured import Measured, Steps, measured, screening
from .outliers import Analysis, analyse
from .traces import Traces

SCHEMA = 1
MOST_RUNS = 100_000


class StateError(ValueError):
    """A saved state is not one of this search; the message says why."""


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
    lossy: Collection[Uplink] = ()
    """Cables that lose packets, which explain slow pairs."""

    def __post_init__(self) -> None:
        self.runs = 0
        self._taken: list[list[Figure]] = []
        self._parts: list[Measured] = []
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
        found = [replace(verdict, runs=self.runs) for part in self._parts for verdict in part.found]
        suspects = {name for part in self._parts for name in part.suspects}
        if self._expired and (suspects or not found):
            left = tuple(sorted(suspects)) or ("everything",)
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
        kind = ALIKE if below else LOSSY if self.lossy else NOT_REPRODUCED
        return Verdict(kind, "", tuple(below[:3]), self.runs)

    def state(self) -> dict[str, Any]:
        """As JSON: the figures taken, and options."""
        return {
            "schema": SCHEMA,
            "options": [self.max_runs, self.least, self.both],
            "given": [as_json(one) for one in self.given],
            "taken": [[as_json(one) for one in figures] for figures in self._taken],
        }

    @classmethod
    def resumed(cls, topology: Topology, state: Any) -> Search:
        """The search that a state belongs to. Raises StateError for any other value."""
        try:
            with form_of("the state of the search"):
                if state["schema"] != SCHEMA:
                    raise ValueError(f"schema {state['schema']}")
                max_runs, least, both = state["options"]
                given = [of_json(row, topology) for row in state["given"]]
                runs = whole(max_runs, "max_runs", MOST_RUNS)
                search = cls(topology, runs, given, float(amount(least, 1.0) or 0), both is True)
                for rows in state["taken"]:
                    figures = [of_json(row, topology) for row in rows]
                    if not search.next() or len(figures) < len(search._asked_pairs()):
                        raise ValueError("figures of other probes")
                    if not search._asked_pairs() <= {one.pair for one in figures}:
                        raise ValueError("figures of other pairs")
                    search.take(figures)
        except AnswerError as error:
            raise StateError(str(error)) from error
        return search

    def _asked_pairs(self) -> set[Pair]:
        return {pair for probe in self._asked for pair in probe.pairs}

    # Steps.

    def _search(self) -> Steps:
        figures: Sequence[Figure] = self.given
        if not figures:
            figures = yield from measured(screening(self.topology, self.both))
        self._analysis = analyse(figures, self.topology)
        ends = Ends(self.topology, self._analysis, figures)
        self._parts.append(ends)
        yield from ends.steps()
        traces = Traces(
            self.topology, self._analysis, figures, slow_ends=ends.slow, lossy=self.lossy
        )
        self._parts.append(traces)
        yield from traces.steps()
