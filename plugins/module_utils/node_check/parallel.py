# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Looks that run at the same time, each in a child process, with one deadline for all.

A program gets half of the time that is left, so that a look at which every program hangs still
reports all its checks. What hangs so that no signal ends it is remembered: that look does not start
again before it is gone.
"""

from __future__ import annotations

import errno
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core.bounded import Report, all_within
from ..core.checks import FAILED, STATUSES, Check, as_dicts
from ..core.commands import NoAnswerError, Result, Runner, run
from ..core.text import one_line, shortened

LOOK = "node_look"
"""The check of a look that gave no answer, if it names none."""
UNREAD = "node_look_error"
"""The check of a look that failed, as a program is missing or refuses its arguments."""
BROKEN = frozenset([errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
"""Errors of a file system or its device, as serious as no answer."""
ANSWERS = "answers in time"
SHORTEST_S = 0.05
LEFT = "left.json"
Clock = Callable[[], float]


@dataclass(frozen=True)
class Look:
    """`act` returns checks, and what the next run must know. `hangs`: the check, and its subject,
    that fails if there is no answer."""

    name: str
    act: Callable[[Runner], tuple[Sequence[Check], Mapping[str, Any]]]
    hangs: str = LOOK
    subject: str = ""


@dataclass(frozen=True)
class Seen:
    checks: Sequence[Check] = ()
    state: Mapping[str, Any] = field(default_factory=dict)
    left: Sequence[int] = ()
    """Process ids that no signal could end."""
    late: bool = False
    """It gave no answer in time, and a signal ends it: it hangs, or the node is busy."""


def bounded_runner(
    until_s: float, report: Report, ask: Callable[..., Result] = run, clock: Clock = time.monotonic
) -> Runner:
    """Run programs until a time of the clock; one that hangs is not asked again."""
    hung: set[str] = set()

    def bounded(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        program = Path(argv[0]).name
        limit_s = round((until_s - clock()) / 2, 2)
        if program in hung or limit_s < SHORTEST_S:
            raise NoAnswerError(f"{program}, not asked (again)", max(0.0, limit_s))
        report({"step": shortened(one_line(" ".join(argv)), 120)})
        try:
            return ask(argv, check=check, stdin=stdin, timeout_s=limit_s)
        except NoAnswerError:
            hung.add(program)
            raise

    return bounded


def look_all(looks: Sequence[Look], limit_s: float, hanging: Mapping[str, str]) -> dict[str, Seen]:
    """Run the looks, except those of which an earlier run's process still hangs (`hanging`)."""
    begin = time.monotonic()
    able = {look.name: look for look in looks if look.name not in hanging}
    works = {name: partial(_work, look, begin + limit_s * 0.95) for name, look in able.items()}
    results = all_within(limit_s, works, reap_s=0.1)
    seen = {}
    for look in looks:
        if look.name in hanging:
            seen[look.name] = Seen([_silent(look, f"{hanging[look.name]}, since an earlier run")])
            continue
        result = results[look.name]
        error = result.found.get("error")
        if not result.answered:
            left = [pid for pid in (result.left_behind, *result.programs) if stuck(pid)]
            why = f"it hangs at: {result.step or 'its start'} ({limit_s:g} s)"
            seen[look.name] = Seen([_silent(look, why)], left=left, late=not left)
        elif error is not None or "checks" not in result.found:
            why = one_line(str((error or {}).get("text", "it gave no result")))
            broken = (error or {}).get("number") in BROKEN
            seen[look.name] = Seen([_silent(look, why)], late=not broken)
        else:
            checks = [Check(**each) for each in result.found["checks"]]
            seen[look.name] = Seen(checks, result.found["state"])
    return seen


def _work(look: Look, until_s: float, report: Report) -> None:
    try:
        checks, state = look.act(bounded_runner(until_s, report))
    except NoAnswerError:
        raise
    except Exception as error:  # it says nothing about the node, and may be the same on all
        if isinstance(error, OSError) and error.errno in BROKEN:
            raise
        why = one_line(str(error)) or type(error).__name__
        checks, state = [Check(UNREAD, "reads the node", "error", FAILED, look.name, why)], {}
    report({"checks": as_dicts(checks), "state": dict(state)})


def _silent(look: Look, why: str) -> Check:
    subject = look.subject or (look.name if look.hangs == LOOK else "")
    return Check(look.hangs, ANSWERS, "no answer", FAILED, subject, why)


# What an earlier run could not end, by look: process id and its start, as ids are used again.


def hanging(directory: Path, proc: Path = Path("/proc")) -> dict[str, str]:
    """Looks of which a process still hangs, with a sentence that names it."""
    found = {}
    for name, pairs in load(directory / LEFT).items():
        try:
            alive = [pid for pid, start in pairs if started(int(pid), proc) == start]
        except (TypeError, ValueError, OverflowError):
            continue
        if alive:
            found[name] = f"process {alive[0]} hangs, and no signal ends it"
    return found


def leftovers(seen: Mapping[str, Seen], proc: Path = Path("/proc")) -> dict[str, Any]:
    """The content of LEFT for these looks."""
    return {
        name: [[pid, started(pid, proc)] for pid in each.left]
        for name, each in seen.items()
        if each.left
    }


def started(pid: int, proc: Path) -> str:
    """When a process started, in the kernel's ticks; empty if it is gone."""
    state, *fields = _stat(pid, proc)
    return "" if state == "Z" or len(fields) < 19 else fields[18]


def stuck(pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether a killed process waits in the kernel. One that may run ends as soon as a busy node
    gives it a CPU."""
    return _stat(pid, proc)[0] not in ("", "R", "X", "Z")


def _stat(pid: int, proc: Path) -> list[str]:
    """State and further fields of a process; one empty field if it is gone."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return [""]
    return text.rpartition(")")[2].split() or [""]


def load(path: Path) -> dict[str, Any]:
    """A file of the state; empty if there is none that can be read."""
    try:
        with path.open(encoding="utf-8") as stream:
            found = json.loads(stream.read(1 << 22))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def checks_of(rows: Any) -> list[Check]:
    """Checks of the state; rows of another form are left out."""
    found = []
    for row in rows if isinstance(rows, list) else ():
        try:
            if row["status"] in STATUSES:
                found.append(Check(**row))
        except (TypeError, KeyError, ValueError):
            continue
    return found
