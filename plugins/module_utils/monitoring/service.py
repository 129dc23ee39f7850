# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A service of the distribution that runs with our arguments, by a drop-in of systemd; the site's
service in its place, which stays; and the removal of ours."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Optional

from ..core import systemd
from ..core.checks import Check, compare
from ..core.files import FilePlan
from ..core.part import NAME, Node, Plan, PlanError, Step, Verdict

RUNNING, STOPPED = "enabled, active", "disabled, inactive"
HELD = "[Unit]\nConditionPathExists=!/\n"
"""A drop-in of a package that is not installed yet: whatever happens meanwhile, its service does
not start without our arguments, and is not taken for the site's."""
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
        words = map(_quoted, self.arguments)
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
        """Whether files change, or changed in an earlier run after it had read them. Times in the
        future are of a clock that was set back since, and would restart it in every run."""
        if any(each.changed for each in files):
            return True
        times = [each.path.stat().st_mtime for each in files if each.path.exists()]
        since, now = systemd.since(node, self.unit, key), time.time()
        return since is not None and any(since < int(each) <= now for each in times)

    def verify(self, node: Node) -> Verdict:
        state = systemd.state(node, self.unit)
        checks = [
            compare(self.check, RUNNING, state, subject=self.unit, check_mode=node.check_mode)
        ]
        if state == RUNNING:
            checks.append(self.answers(node))
        return Verdict(checks)


def _quoted(word: str) -> str:
    """An argument in a unit: a specifier of systemd is %, a variable $."""
    escaped = word.replace("%", "%%").replace("$", "$$")
    if not re.search(r"[\s\"'\\]", word):
        return escaped
    return '"' + escaped.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True)
class Stopped:
    """Our services that are no longer wanted. They stop before their drop-in is removed: without
    it, they would answer everyone after the next boot."""

    units: Mapping[str, str]
    """The check of each."""

    def plan(self, node: Node) -> Plan:
        steps = []
        for unit in self._installed(node):
            state = systemd.state(node, unit)
            if state != STOPPED:
                stop = partial(_stop, node, unit)
                steps.append(Step(unit, state, STOPPED, stop, essential=True))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        checks = []
        for unit in self._installed(node):
            found = systemd.state(node, unit)
            name, mode = self.units[unit], node.check_mode
            checks.append(compare(name, STOPPED, found, subject=unit, check_mode=mode))
        return Verdict(checks)

    def _installed(self, node: Node) -> list[str]:
        return [unit for unit in self.units if systemd.installed(node, [unit])]


def _stop(node: Node, unit: str) -> None:
    systemd.control(node, "disable", "--now", unit)
    node.run(["systemctl", "reset-failed", unit], check=False)


@dataclass(frozen=True)
class Removed:
    """Files of the layer that are no longer wanted, and their directories once they are empty."""

    names: Sequence[str]

    def plan(self, node: Node) -> Plan:
        files = [replace(node.record(name, None), secret=True) for name in self.names]
        tidy = Step("directories", "", "", partial(self._tidy, node), silent=True)
        return Plan(files, [tidy] if files else [])

    def _tidy(self, node: Node) -> None:
        systemd.control(node, "daemon-reload")
        for directory in {node.path(name).parent for name in self.names}:
            with contextlib.suppress(OSError):  # it has files of others
                directory.rmdir()

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def drop_in_of(unit: str) -> str:
    return f"etc/systemd/system/{unit}.d/90-{NAME}.conf"


def ours(node: Node, unit: Optional[str]) -> bool:
    """Whether the service runs with our arguments: others stay as they are."""
    return unit is not None and node.path(drop_in_of(unit)).exists()


def of_site(node: Node, units: Sequence[str], port: int) -> Optional[list[str]]:
    """The command line of a service that the site runs, by one of these units or on the port; None
    if there is none, or if it is ours."""
    if any(ours(node, unit) for unit in units):
        return None
    unit = systemd.installed(node, units)
    if unit and systemd.active(node, unit):
        return _command(node, systemd.show(node, unit, ["MainPID"]).get("MainPID") or "0")
    return listener(node, port)


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
            return _command(node, process.name)
    return []


def _command(node: Node, process: str) -> list[str]:
    return (node.read(f"proc/{process}/cmdline") or "").rstrip("\0").split("\0")


def _descriptors(folder: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):  # the process is gone
        for entry in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append(str(entry.readlink()))
    return found
