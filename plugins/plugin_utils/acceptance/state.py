# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""State of a run of acceptance on the controller, saved after each step, so that the same command
continues an interrupted run.

A state belongs to one model and one set of options: figures of others cannot be compared.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from ..answers import AnswerError, amount, finite, form_of, sequence
from ..report.reports import save
from .figures import MOST, Figure, Topology, Uplink, Verdict, of_json
from .plan import BURN, INCASTS, STORAGE

NAME = "acceptance-state.json"
SCHEMA = 1
MAX_BYTES = 256 << 20
MEASURED = "measured"
"""Step that is kept when everything is measured."""
VERDICTS, VIRTUAL = "verdicts", "virtual"
READING, LAST, LAUNCH, SUSPECT, RUN = "reading", "last", "launch", "suspect", "run"
"""First reading of counters, end of the last job (time), seconds to start a job, and whether the
search has a reason other than lower figures across spines; the ansible-playbook (`process`), its
start (time) and the seconds of earlier ones."""
LOAD, COUNTED = "load", "counted"
"""When the load of GPUs began (time), and the last reading of counters."""
LEFT_OUT = "left out"
"""What later plays do not measure, as there is no time (plan.py)."""
LOST = "lost"
"""Cables that lost packets until the search read counters for the first time."""
PAIRS, SWEEPS, SEARCH = "pairs ", "sweeps ", "search "
"""Beginnings of steps."""


class StateError(Exception):
    """The state cannot be read or written; the message names the file and the remedy."""


def key_of(digest: str, options: Mapping[str, Any]) -> str:
    text = json.dumps([digest, options], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class State:
    path: Path
    key: str
    began: float
    """Time of the first start, in seconds since 1970."""
    steps: dict[str, Any] = field(default_factory=dict)
    """Results by step, in the order in which they were finished."""
    seconds: float = 0.0
    """Time that the finished steps took, of all runs together."""
    resumed: bool = False

    def keep(self, step: str, result: Any, seconds: float) -> None:
        """Add the result of a step, and save."""
        self.steps[step] = result
        self.seconds += seconds
        self.save()

    def of(self, step: str) -> dict[str, Any]:
        """The result of a step; empty if it is not finished."""
        found: dict[str, Any] = self.steps.get(step) or {}
        return found

    def save(self) -> None:
        found = {
            "schema": SCHEMA,
            "key": self.key,
            "began": self.began,
            "seconds": round(self.seconds, 1),
            "steps": self.steps,
        }
        try:
            save(self.path, json.dumps(finite(found)) + "\n")
        except OSError as error:
            raise StateError(
                f"{self.path}: {error}: make the directory writable, or set"
                " acceptance_report_directory"
            ) from error

    def readable(self, topology: Topology) -> bool:
        """Whether each step has the form in which it was saved."""
        try:
            with form_of("the state"):
                rows = [row for step in self._named(SEARCH) for row in step["figures"]]
                for row in rows:
                    of_json(row, topology)
                figures_of(self, topology)
                for each in self.steps.get(VERDICTS, ()):
                    Verdict(**each)
                if not {Uplink(*each) for each in self.steps.get(LOST, ())} <= {*topology.cables}:
                    return False
                numbers = [self.seconds, *self.steps.get(RUN, ["", 0])[1:]]
                numbers += [self.steps.get(name, 0) for name in (LAST, LAUNCH)]
                numbers.append(self.of(LOAD).get("began", 0))
                kept = [*self._named(SWEEPS)]
                if not {*self.steps.get(LEFT_OUT, ())} <= {BURN, STORAGE, *INCASTS}:
                    return False
                kept += [self.of(name) for name in (READING, MEASURED, LOAD, COUNTED)]
        except AnswerError:
            return False
        known = all(amount(each, MOST) is not None for each in numbers)
        return known and all(isinstance(each, dict) for each in kept)

    @property
    def elapsed_s(self) -> float:
        """Seconds of this run, and of those that it continues."""
        start, before = self.steps[RUN][1:]
        return float(before + max(0.0, time.time() - start))

    def _named(self, beginning: str) -> list[dict[str, Any]]:
        return [self.of(step) for step in self.steps if step.startswith(beginning)]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)


def opened(
    directory: Path, key: str, *, resume: bool, clock: Callable[[], float] = time.time
) -> tuple[State, str]:
    """The state to continue, or a new one; and why an existing one is not continued."""
    path = directory / NAME
    new = State(path, key, clock())
    if not path.exists():
        return new, ""
    if not resume:
        return new, "acceptance_resume is never"
    known = read(path)
    if known is None:
        return new, f"{path} is damaged"
    if known.key != key:
        return new, "the model, its nodes in this run or options differ"
    known.resumed = True
    return known, ""


def read(path: Path) -> Optional[State]:
    """The state in a file; None if the file is no complete state."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["schema"] != SCHEMA:
            return None
        steps = {str(name): result for name, result in found["steps"].items()}
        return State(path, str(found["key"]), float(found["began"]), steps, float(found["seconds"]))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def process(number: int) -> list[int]:
    """A process, and its start in ticks (proc(5), field 22 of stat): in containers, each
    ansible-playbook may have the same number. Without a start if there is no such process."""
    try:
        text = Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace")
        return [number, int(text.rpartition(")")[2].split()[19])]
    except (OSError, IndexError, ValueError):
        return [number]


def other_run(path: Path, this: list[int]) -> int:
    """The process of another run that has this state and still runs; 0 if there is none."""
    known = read(path)
    run = sequence(known.steps.get(RUN)) if known else ()
    saved = list(sequence(run[0])) if run else []
    running = len(saved) == 2 and isinstance(saved[0], int) and process(saved[0]) == saved
    return int(saved[0]) if running and saved != this else 0


def figures_of(found: State, topology: Topology) -> list[Figure]:
    """Figures of the rounds, without those of the search."""
    steps = [rows for step, rows in found.steps.items() if step.startswith(PAIRS)]
    return [of_json(row, topology) for rows in steps for row in rows]
