# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work on a file system that may never answer, in a process that can be left behind.

A process that waits for a dead server may be in uninterruptible sleep: no signal ends it before the
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from .probe import Report

REAP_S = 2.0
"""Seconds that a killed process has to end; one that waits for a dead server may not."""


@dataclass(frozen=True)
class Answer:
    """What the work reported until it ended, or until time was up."""

    found: dict[str, Any] = field(default_factory=dict)
    """Everything reported, but for the steps."""
    step: str = ""
    """What it was doing last."""
    answered: bool = False
    """It ended by itself, well or not."""
    left_behind: int = 0
    """Its process id where it could not be ended; 0 where it could."""


def within(
    limit_s: float,
    work: Callable[[Report], None],
    *,
    become: Optional[Callable[[], None]] = None,
    kill: Callable[[int, int], None] = os.kill,
) -> Answer:
    """Do `work` in a child process for at most `limit_s`, with the rights that `become` leaves."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(writing, work, become)
    os.close(writing)
    try:
        found, step, ended = _listen(reading, time.monotonic() + limit_s)
        if not ended:
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        return Answer(found, step, ended, 0 if _reaped(child, REAP_S) else child)
    finally:
        os.close(reading)


def _be_the_child(
    writing: int, work: Callable[[Report], None], become: Optional[Callable[[], None]]
) -> None:
    """Never returns. Closes all handles of its parent: a reader that waits for the end of a pipe
    must not wait for this process."""
    status = 1
    try:
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nothing, standard)
        pipe = os.dup2(writing, 3) if writing != 3 else 3
        os.closerange(4, max(int(each.name) for each in Path("/proc/self/fd").iterdir()) + 1)
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


def _listen(reading: int, until: float) -> tuple[dict[str, Any], str, bool]:
    """What is reported until the other end is closed; False where time was up before."""
    found: dict[str, Any] = {}
    step, text = "", b""
    while True:
        left_s = max(0.0, until - time.monotonic())
        if not select.select([reading], [], [], left_s)[0]:
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
