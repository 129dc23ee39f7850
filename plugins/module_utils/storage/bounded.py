# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work on a file system that may never answer, in a process that can be left behind.

A process that waits for a dead server is in uninterruptible sleep: no signal ends it before the
server answers or the mount is forced away. So its parent waits for a limited time, and it holds
nothing of its parent: no pipe that would keep a connection open, no directory.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, Optional

from ..core.dataclass import dataclass

REAP_S = 2.0
"""Seconds that a killed process has to go; one that waits for a dead server may not."""
LEFT_BEHIND = Path("/run/baremetal-mpi-roce/storage")
PROC = Path("/proc")

Work = Callable[[Callable[[dict[str, Any]], None]], None]


@dataclass(frozen=True)
class Answer:
    """What the work reported until it ended, or until time was up."""

    found: dict[str, Any] = field(default_factory=dict)
    """Everything reported, but for the steps."""
    step: str = ""
    """What it was doing last."""
    answered: bool = False
    """It came to an end by itself, well or not."""
    left_behind: int = 0
    """Its process id where it could not be ended; 0 where it could."""
    earlier: bool = False
    """It was not started: the process of an earlier look is waiting still."""


def within(
    limit_s: float,
    work: Work,
    *,
    become: Optional[Callable[[], None]] = None,
    record: Optional[Path] = None,
    kill: Callable[[int, int], None] = os.kill,
) -> Answer:
    """Do `work` in a child process for at most `limit_s`. `record` names a process that
    was left behind: while it waits, another one would only wait beside it, and is not started."""
    waiting = still_waiting(record)
    if waiting:
        return Answer(left_behind=waiting, earlier=True)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(writing, work, become)
    os.close(writing)
    try:
        found, step, ended = _listen(reading, time.monotonic() + limit_s)
        left = 0
        if not ended:
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        if not _reaped(child, REAP_S):
            left = child
            remember(record, child)
    finally:
        os.close(reading)
    return Answer(found, step, ended, left)


def _be_the_child(writing: int, work: Work, become: Optional[Callable[[], None]]) -> None:
    """Never returns. Closes all handles of its parent: a reader that waits for the end of a pipe
    must not wait for this process."""
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        pipe = os.dup2(writing, 3) if writing != 3 else 3
        os.closerange(4, _most_handles())
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


def _most_handles() -> int:
    return max((int(each.name) for each in (PROC / "self/fd").iterdir()), default=1024) + 1


def _listen(reading: int, until: float) -> tuple[dict[str, Any], str, bool]:
    """What is reported until the other end is closed; False where time was up before."""
    found: dict[str, Any] = {}
    step, text = "", b""
    while True:
        ready, _writable, _broken = select.select(
            [reading], [], [], max(0.0, until - time.monotonic())
        )
        if not ready:
            return found, step, False
        data = os.read(reading, 65536)
        if not data:
            return found, step, True
        *lines, text = (text + data).split(b"\n")
        for line in lines:
            result = json.loads(line)
            step = result.pop("step", step)
            found.update(result)


def _reaped(child: int, patience_s: float) -> bool:
    until = time.monotonic() + patience_s
    while True:
        try:
            if os.waitpid(child, os.WNOHANG)[0] == child:
                return True
        except OSError as error:
            return error.errno == errno.ECHILD
        if time.monotonic() > until:
            return False
        time.sleep(0.01)


def born(pid: int, proc: Path = PROC) -> str:
    """When a process began, in ticks since boot: its number alone may be another's by now."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def remember(record: Optional[Path], pid: int) -> None:
    if record is None:
        return
    with suppress(OSError):  # only a second one would be begun
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(f"{pid} {born(pid)}\n", encoding="ascii")


def still_waiting(record: Optional[Path]) -> int:
    """The process that an earlier look left behind, while it is there; else 0."""
    if record is None:
        return 0
    try:
        pid, began = record.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0
    if pid.isdigit() and born(int(pid)) == began:
        return int(pid)
    with suppress(OSError):
        record.unlink()
    return 0
