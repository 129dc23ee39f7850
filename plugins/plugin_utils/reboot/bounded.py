# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A limit for what is done over a connection, on the controller.

The timeout of ssh ends with the login. A host whose disk is dead takes the login, and then says
nothing for ever: its kernel still answers, so that no keep-alive notices.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Optional


class NoAnswerError(Exception):
    """What was done took too long, and was ended with every program that it had started."""


class _Alarm(BaseException):
    """No Exception: a connection takes those for its own, and tries again."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raises NoAnswerError after so many seconds. An earlier alarm of Ansible's own stays."""
    pending = signal.getitimer(signal.ITIMER_REAL)[0]
    if threading.current_thread() is not threading.main_thread() or 0 < pending <= seconds:
        yield
        return
    before, began = _children(), time.monotonic()

    def rings(_number: int, _frame: Optional[FrameType]) -> None:
        raise _Alarm

    former = signal.signal(signal.SIGALRM, rings)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _Alarm:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for child in _children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        raise NoAnswerError(f"it took the connection, and no answer within {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        if pending:
            left = pending - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left))


def _children() -> set[int]:
    """Ids of the processes that this one started and that have not ended."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            if int(words[1]) == os.getpid() and words[0] != "Z":
                found.add(int(path.parent.name))
    return found
