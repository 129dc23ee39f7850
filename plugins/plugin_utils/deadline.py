# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A time limit for code that may block, such as a connection plugin."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Optional


class TimeIsUpError(BaseException):
    """The time limit expired. Not an Exception, because connection plugins catch those and
    retry.
    """


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeIsUpError after `seconds`, by SIGALRM. Without effect outside the main thread.

    Limits can be nested: an enclosing limit that expires first (the `timeout` of a task) stays in
    force; otherwise it is re-armed afterwards with its remaining time.
    """

    def expire(_number: int, _frame: Optional[FrameType]) -> None:
        raise TimeIsUpError

    left, _interval = signal.getitimer(signal.ITIMER_REAL)
    if threading.current_thread() is not threading.main_thread() or 0 < left <= seconds:
        yield
        return
    former, began = signal.signal(signal.SIGALRM, expire), time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - began)))
