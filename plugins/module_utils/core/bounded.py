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
from collections.abc import Callable
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


def within(
    limit_s: float,
    work: Callable[[Report], None],
    *,
    become: Optional[Callable[[], None]] = None,
    kill: Callable[[int, int], None] = os.kill,
) -> WorkResult:
    """Run `work` in a child process for at most `limit_s`. `become` drops its privileges first."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_child(writing, work, become)
    os.close(writing)
    try:
        found, step, finished = _listen(reading, time.monotonic() + limit_s)
        if not finished:
            with suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        return WorkResult(found, step, finished, 0 if _reaped(child, REAP_S) else child)
    finally:
        os.close(reading)


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


def _listen(reading: int, deadline: float) -> tuple[dict[str, Any], str, bool]:
    """Reported values, last step, and whether the child closed its end in time."""
    found: dict[str, Any] = {}
    step, text = "", b""
    while True:
        left_s = max(0.0, deadline - time.monotonic())
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


def _reaped(child: int, limit_s: float) -> bool:
    def gone() -> bool:
        try:
            return os.waitpid(child, os.WNOHANG)[0] == child
        except ChildProcessError:
            return True

    return until(gone, limit_s, 0.01)
