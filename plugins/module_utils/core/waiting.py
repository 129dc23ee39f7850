# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Poll a condition until it holds or a deadline passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    condition: Callable[[], T],
    limit_s: float,
    every_s: float = 0.5,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The first true value of `condition`, or its last value after `limit_s` seconds.

    It is evaluated once more when the deadline has passed, so that a process that got no time is
    not mistaken for one whose condition never held.
    """
    deadline = clock() + limit_s
    while True:
        late = clock() >= deadline
        value = condition()
        if value or late:
            return value
        sleep(min(every_s, max(0.0, deadline - clock())))
