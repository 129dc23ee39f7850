# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Access a file system that may never respond, from a child process.

No signal terminates a process that waits for a dead server. The parent waits for a limited time,
and the child holds no pipe that would keep a connection open, and no directory.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from .waiting import until

Report = Callable[[dict[str, Any]], None]
"""Sends values to the parent immediately; `{"step": ...}` precedes each step that may hang."""


REAP_S = 2.0
"""Seconds to wait for a killed process, which may be waiting for a dead server."""


@dataclass(frozen=True)
class WorkResult:
    """What the work reported until it finished or its time limit expired."""

    found: dict[str, Any] = field(default_factory=dict)
    """All reported values except the steps."""
    step: str = ""
    """The last reported step."""
    answered: bool = False
    """Whether it finished in time, successfully or not."""
    left_behind: int = 0
    """Process id of a child that could not be killed, else 0."""
    programs: tuple[int, ...] = ()
    """Process ids of programs that the child started and that could not be killed."""


def within(
    limit_s: float,
    work: Callable[[Report], None],
    *,
    become: Optional[Callable[[], None]] = None,
    kill: Callable[[int, int], None] = os.kill,
) -> WorkResult:
    """Run `work` in a child process for at most `limit_s`. `become` drops its privileges first."""
    return all_within(limit_s, {"": work}, become=become, kill=kill)[""]


def all_within(
    limit_s: float,
    works: Mapping[str, Callable[[Report], None]],
    *,
    become: Optional[Callable[[], None]] = None,
    kill: Callable[[int, int], None] = os.kill,
    reap_s: Optional[float] = None,
) -> dict[str, WorkResult]:
    """Run all `works` at the same time, each in a child process, for at most `limit_s` together.

    A child that takes longer is killed, with the programs that it waits for.
    """
    children: dict[str, _Child] = {}
    try:
        for name, work in works.items():
            children[name] = _begun(work, become)
        _listen(children.values(), time.monotonic() + limit_s)
        late = [child for child in children.values() if not child.finished]
        programs = {child.pid: _programs(child.pid) for child in late}
        for pid in [*programs, *(each for of_child in programs.values() for each in of_child)]:
            with suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        patience_s = REAP_S if reap_s is None else reap_s
        until(lambda: all(list(map(_Child.reaped, children.values()))), patience_s, 0.01)
        return {
            name: WorkResult(
                child.found,
                child.step,
                child.finished,
                0 if child.gone else child.pid,
                tuple(filter(_runs, programs.get(child.pid, ()))),
            )
            for name, child in children.items()
        }
    finally:
        for child in children.values():
            os.close(child.reading)


@dataclass
class _Child:
    pid: int
    reading: int
    found: dict[str, Any] = field(default_factory=dict)
    step: str = ""
    text: bytes = b""
    finished: bool = False
    gone: bool = False

    def take(self) -> None:
        """Read what it reported; it has finished once it closes its end."""
        data = os.read(self.reading, 65536)
        self.finished = not data
        *lines, self.text = (self.text + data).split(b"\n")
        for line in lines:
            result = json.loads(line)
            self.step = result.pop("step", self.step)
            self.found.update(result)

    def reaped(self) -> bool:
        if not self.gone:
            try:
                self.gone = os.waitpid(self.pid, os.WNOHANG)[0] == self.pid
            except ChildProcessError:
                self.gone = True
        return self.gone


def _begun(work: Callable[[Report], None], become: Optional[Callable[[], None]]) -> _Child:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_the_child(writing, work, become)
    os.close(writing)
    return _Child(pid, reading)


def _listen(children: Iterable[_Child], deadline: float) -> None:
    waiting = {child.reading: child for child in children}
    while waiting:
        left_s = max(0.0, deadline - time.monotonic())
        ready = select.select(list(waiting), [], [], left_s)[0]
        if not ready:
            return
        for handle in ready:
            waiting[handle].take()
            if waiting[handle].finished:
                del waiting[handle]


def _programs(pid: int) -> list[int]:
    """The child processes of a process; empty if this kernel does not list them."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (OSError, ValueError):
        return []


def _runs(pid: int) -> bool:
    """Whether a killed program is still there, other than as a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] != ["Z"]


def _be_the_child(
    writing: int, work: Callable[[Report], None], become: Optional[Callable[[], None]]
) -> None:
    """Run the work and exit, with no inherited file descriptor, whose readers would wait."""
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        pipe = os.dup2(writing, 3) if writing != 3 else 3
        os.closerange(4, max(int(handle.name) for handle in Path("/proc/self/fd").iterdir()) + 1)
        os.chdir("/")

        def report(result: dict[str, Any]) -> None:
            os.write(pipe, (json.dumps(result) + "\n").encode())

        try:
            if become is not None:
                become()
            os.umask(0o027)
            work(report)
            status = 0
        except BaseException as error:
            number = getattr(error, "errno", None) or 0
            report({"error": {"number": number, "text": str(error) or type(error).__name__}})
    finally:
        os._exit(status)
