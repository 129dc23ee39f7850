# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A service of the distribution that runs with our arguments, by a drop-in of systemd; and who
listens on its port before that."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Optional

from ..core import systemd
from ..core.checks import Check, compare
from ..core.files import FilePlan
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict

RUNNING = "enabled, active"
ANY = ("00000000", "0" * 32)
"""All addresses, in /proc/net/tcp and tcp6."""
LISTENS = "0A"
_START = re.compile(r"^ExecStart=[-@:+!|]*(/\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Service:
    """`files` are read at its start, `reloaded` on SIGHUP; `answers` reads it back."""

    check: str
    unit: str
    arguments: Sequence[str]
    answers: Callable[[Node], Check]
    files: Sequence[FilePlan] = ()
    reloaded: Sequence[FilePlan] = ()
    probe: Optional[Sequence[str]] = None
    """A program that refuses files with faults, before the service reads them."""

    def plan(self, node: Node) -> Plan:
        drop_in = node.file(drop_in_of(self.unit), self._text(node))
        at_start = [drop_in, *self.files]
        steps = []
        state = systemd.state(node, self.unit)
        if state != RUNNING or self._stale(node, at_start, "ActiveEnterTimestamp"):
            steps.append(self._step(node, state, "restart"))
        elif self._stale(node, self.reloaded, "StateChangeTimestamp"):
            steps.append(self._step(node, f"{state}, older than its files", "reload"))
        return Plan([*at_start, *self.reloaded], steps)

    def _text(self, node: Node) -> str:
        program = program_of(node, self.unit)
        # A specifier of systemd is %, a variable $.
        words = [word.replace("%", "%%").replace("$", "$$") for word in self.arguments]
        return "[Service]\nExecStart=\nExecStart=" + " \\\n  ".join([program, *words]) + "\n"

    def _step(self, node: Node, before: str, verb: str) -> Step:
        return Step(self.unit, before, RUNNING, partial(self._act, node, verb))

    def _act(self, node: Node, verb: str) -> None:
        if self.probe:
            node.run(self.probe)
        systemd.control(node, "daemon-reload")
        systemd.control(node, "enable", self.unit)
        systemd.control(node, verb, self.unit)

    def _stale(self, node: Node, files: Sequence[FilePlan], key: str) -> bool:
        """Whether files change, or changed in an earlier run after it had read them."""
        if any(each.changed for each in files):
            return True
        times = [each.path.stat().st_mtime for each in files if each.path.exists()]
        since = systemd.since(node, self.unit, key)
        return since is not None and any(int(time) > since for time in times)

    def verify(self, node: Node) -> Verdict:
        state = systemd.state(node, self.unit)
        checks = [
            compare(self.check, RUNNING, state, subject=self.unit, check_mode=node.check_mode)
        ]
        if state == RUNNING:
            checks.append(self.answers(node))
        return Verdict(checks)


def drop_in_of(unit: str) -> str:
    return f"etc/systemd/system/{unit}.d/90-{NAME}.conf"


def ours(node: Node, unit: Optional[str]) -> bool:
    """Whether the service runs with our arguments: others stay as they are."""
    return unit is not None and node.path(drop_in_of(unit)).exists()


def program_of(node: Node, unit: str) -> str:
    """The program that the unit's own file starts. Raises PlanError."""
    for directory in systemd.DIRECTORIES:
        match = _START.search(node.read(f"{directory}/{unit}") or "")
        if match:
            return match[1]
    raise PlanError(f"{unit} starts no program: reinstall its package")


def listener(node: Node, port: int) -> Optional[list[str]]:
    """The command line of the process that listens on a port; None if none does."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        for line in (node.read(f"proc/net/{name}") or "").splitlines()[1:]:
            words = line.split()
            if len(words) > 9 and words[3] == LISTENS and words[1].endswith(f":{port:04X}"):
                inodes.add(f"socket:[{words[9]}]")
    if not inodes:
        return None
    for process in node.path("proc").glob("[0-9]*"):
        if inodes & set(_descriptors(process / "fd")):
            text = node.read(f"proc/{process.name}/cmdline") or ""
            return text.rstrip("\0").split("\0")
    return []


def _descriptors(folder: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # the process is gone
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append(str(entry.readlink()))
    return found
