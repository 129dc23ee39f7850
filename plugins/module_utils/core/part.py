# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every subject of a layer has in common.

A part holds what is wanted. `plan` reads the node and returns which files and running values
have to change; `verify` reads the node again and judges. Nothing is written while planning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional, Protocol

from .checks import FAILED, REBOOT, Check
from .commands import Runner
from .files import FilePlan, diff, plan_file, with_header
from .machine import IN_CONTAINER
from .reboots import Reason, outlived

NAME = "baremetal-mpi-roce"
"""Part of the name of every file and unit that belongs to the collection."""


class PlanError(Exception):
    """What is wanted cannot be: the text has what, where and the remedy, one line per finding.

    `checks` are findings that have a row in the summary.
    """

    def __init__(self, text: str, checks: Sequence[Check] = ()) -> None:
        super().__init__(text)
        self.checks = list(checks)


class StepError(Exception):
    """A step could not be done; the text has what, why and the remedy."""


@dataclass(frozen=True)
class Node:
    """The node as the parts see it: a root directory, a way to run programs, and what it is."""

    layer: str
    root: Path
    run: Runner
    container: Optional[str]
    boot_id: str
    check_mode: bool = False
    uid: int = 0
    gid: int = 0
    rebooted_for: tuple[Reason, ...] = ()
    """Reasons already recorded, to distinguish a reboot that is due from one that did not help."""
    looks: Optional[Runner] = None
    """Runs what only looks, where `run` has more time than that should take; else `run` does."""

    @property
    def look(self) -> Runner:
        return self.looks or self.run

    def doing(self, *argv: str) -> Callable[[], None]:
        """The act of a step that runs one program."""

        def act() -> None:
            self.run(argv)

        return act

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def file(self, name: str, body: Optional[str]) -> FilePlan:
        """A file that belongs to the collection; `None` for one that must not be there."""
        text = None if body is None else with_header(body)
        return plan_file(self.path(name), text, uid=self.uid, gid=self.gid)

    def record(self, name: str, text: Optional[str], *, mode: int = 0o644) -> FilePlan:
        """A file that programs read: no header."""
        return plan_file(self.path(name), text, mode=mode, uid=self.uid, gid=self.gid)

    def edited(self, name: str, text: str) -> FilePlan:
        """A file of another owner with our lines in it: its mode and owner stay as they are."""
        now = plan_file(self.path(name), text, uid=self.uid, gid=self.gid)
        if now.mode_before is None or now.owner_before is None:
            return now
        uid, gid = now.owner_before
        return plan_file(now.path, text, mode=now.mode_before, uid=uid, gid=gid)

    def read(self, name: str) -> Optional[str]:
        """A small text file, or None when it is not there."""
        try:
            with self.path(name).open(
                encoding="utf-8", errors="surrogateescape", newline=""
            ) as stream:
                return stream.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def reboot_due(self, reason: Reason, remedy: str = "") -> tuple[str, str]:
        """Status and reason of a check that waits for a reboot; `failed` if one did not help."""
        earlier = outlived(reason, self.rebooted_for, self.boot_id)
        if earlier is None:
            return REBOOT, reason.reason
        why = f"not in effect although the node was rebooted for it (boot {earlier})"
        return FAILED, f"{why}: {remedy}" if remedy else why

    def not_here(self, why: str) -> str:
        """The reason of a check that cannot hold in this container."""
        return f"{IN_CONTAINER} ({self.container}): {why}"


@dataclass(frozen=True)
class Step:
    """A change of the running system, shown as a diff of what runs and what will.

    `shown` are the diffs of a step that changes many things, instead of `before` and `after`.
    When one that is `essential` fails, or a file cannot be written, no later file or step of any
    part is tried, except steps that `restore` what an earlier one took away (a service that was
    stopped).
    """

    what: str
    before: str
    after: str
    act: Callable[[], None]
    essential: bool = False
    restores: bool = False
    shown: Sequence[Mapping[str, str]] = ()

    def diffs(self) -> list[dict[str, str]]:
        return [dict(each) for each in self.shown] or [self.diff()]

    def diff(self) -> dict[str, str]:
        return diff(f"{self.what} (running)", f"{self.before}\n", f"{self.after}\n")


@dataclass(frozen=True)
class Plan:
    """Files first, then the steps, in order."""

    files: list[FilePlan] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """What was read back, and what waits for a reboot."""

    checks: list[Check] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)


class Part(Protocol):
    def plan(self, node: Node) -> Plan: ...

    def verify(self, node: Node) -> Verdict: ...
