# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A part holds the desired state of one subject (files, a service, all rails of a host). `plan`
reads the node and returns the changes (files and Steps), without writing; `verify` reads it again
and returns checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Protocol

from .checks import FAILED, REBOOT, Check
from .commands import CommandError, Runner
from .files import FilePlan, diff, plan_file, with_header
from .machine import IN_CONTAINER
from .reboots import Reason, outlived

NAME = "baremetal-mpi-roce"
"""Part of the name of every file and unit that belongs to the collection."""


class PlanError(Exception):
    """The desired state is refused: one line per finding, with location, value and remedy. `checks`
    are the findings that have a row in the summary."""

    def __init__(self, text: str, checks: Sequence[Check] = ()) -> None:
        super().__init__(text)
        self.checks = list(checks)


class StepError(Exception):
    """A step failed; the text gives the step, the cause and the remedy."""


@dataclass(frozen=True)
class Node:
    """A node as parts see it: root directory, runner of programs, and properties of the machine."""

    layer: str
    root: Path
    run: Runner
    container: Optional[str]
    boot_id: str
    check_mode: bool = False
    uid: int = 0
    gid: int = 0
    rebooted_for: tuple[Reason, ...] = ()
    """Recorded reasons; they distinguish a reboot that is due from one that did not help."""
    looks: Optional[Runner] = None
    """Runs programs that only read, if they have a shorter time limit than `run`."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    @property
    def look(self) -> Runner:
        return self.looks or self.run

    def doing(self, *argv: str) -> Callable[[], None]:

        def act() -> None:
            self.run(argv)

        return act

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def file(self, name: str, body: Optional[str]) -> FilePlan:
        """Plan a file that belongs to the collection; a body of None removes it."""
        text = None if body is None else with_header(body)
        return plan_file(self.path(name), text, uid=self.uid, gid=self.gid)

    def record(self, name: str, text: Optional[str], *, mode: int = 0o644) -> FilePlan:
        """Plan a file that programs read, without a header; a text of None removes it."""
        return plan_file(self.path(name), text, mode=mode, uid=self.uid, gid=self.gid)

    def edited(self, name: str, text: str) -> FilePlan:
        """Plan a system file that contains managed lines; its mode and owner are preserved."""
        now = plan_file(self.path(name), text, uid=self.uid, gid=self.gid)
        if now.mode_before is None or now.owner_before is None:
            return now
        uid, gid = now.owner_before
        return plan_file(now.path, text, mode=now.mode_before, uid=uid, gid=gid)

    def read(self, name: str) -> Optional[str]:
        """Return the content of a small text file, or None if there is none."""
        try:
            with self.path(name).open(
                encoding="utf-8", errors="surrogateescape", newline=""
            ) as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def reboot_due(self, reason: Reason, remedy: str = "") -> tuple[str, str]:
        """Return status and reason of a check that needs a reboot; `failed` if one did not help."""
        earlier = outlived(reason, self.rebooted_for, self.boot_id)
        if earlier is None:
            return REBOOT, reason.reason
        text = f"not in effect although the node was rebooted for it (boot {earlier})"
        return FAILED, f"{text}: {remedy}" if remedy else text

    def not_here(self, reason: str) -> str:
        """Return the reason of a check that does not apply in this container."""
        return f"{IN_CONTAINER} ({self.container}): {reason}"


@dataclass(frozen=True)
class Step:
    """A change of the running system, shown as a diff of its state before and after.

    `shown` replaces `before` and `after` where one step changes many objects; a `silent` step
    belongs to a change that another step shows. After a failed step that is `essential`, and after
    a file that cannot be written, no later file or step of any part is tried, except steps that
    `restore` what an earlier one took away (a stopped service).
    """

    what: str
    before: str
    after: str
    act: Callable[[], None]
    essential: bool = False
    restores: bool = False
    shown: Sequence[Mapping[str, str]] = ()
    silent: bool = False
    holds: Optional[Callable[[], bool]] = None
    """Read back whether `act` took effect; polled until true, for at most `wait_s` seconds."""
    wait_s: float = 0.0
    undo: Optional[Callable[[], str]] = None
    """Revert the step, if `act` or `holds` raised or `holds` is still false after the wait. Return
    a sentence for the error of this step, or nothing."""

    def diffs(self) -> list[dict[str, str]]:
        if self.silent:
            return []
        return [dict(entry) for entry in self.shown] or [self.diff()]

    def diff(self) -> dict[str, str]:
        return diff(f"{self.what} (running)", f"{self.before}\n", f"{self.after}\n")


@dataclass(frozen=True)
class Plan:
    files: list[FilePlan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """The checks of a part after its changes, the reasons for a reboot, and files that it writes
    in steps, to be recorded (core/written.py)."""

    checks: list[Check] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    files: list[FilePlan] = field(default_factory=list)


class Part(Protocol):
    def plan(self, node: Node) -> Plan: ...

    def verify(self, node: Node) -> Verdict: ...


FAULTS = (CommandError, OSError, ValueError, LookupError, TypeError)
"""Errors of a device or a program that fail one change, while the others continue."""


def fault_text(error: Exception) -> str:
    return str(error) if isinstance(error, (CommandError, OSError)) else f"bad answer: {error!r}"


class Change(Protocol):
    """A member of a `core/engine.Group`. Changes of one `unit` take effect together or not at all,
    except those that are `optional`. `write` and `restore` may raise FAULTS; `missing` says why the
    change was not in effect when last read; `failed` is told what was done about a failure.
    """

    name: str

    @property
    def unit(self) -> str: ...

    @property
    def optional(self) -> bool: ...

    def write(self) -> None: ...

    def restore(self) -> None: ...

    def missing(self) -> str: ...

    def failed(self, reason: str) -> None: ...
