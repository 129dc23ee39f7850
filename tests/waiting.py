# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Wait for conditions in tests, with deadlines that scale with the speed of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "TEST_MACHINE_FACTOR"
"""Passes the factor of a run to pytest's workers, stages and subprocesses."""
REFERENCE_S = 0.25
"""Duration of the job on two idle cores of the machine to which seconds in tests refer."""


def factor() -> float:
    """Return the slowdown of this machine: measured once per run, at least 1."""
    if VARIABLE not in os.environ:
        began = time.monotonic()
        _job()
        os.environ[VARIABLE] = f"{max(1.0, (time.monotonic() - began) / REFERENCE_S):.2f}"
    return float(os.environ[VARIABLE])


def _job() -> None:
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    for _ in range(2):
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)


def deadline(seconds: float) -> float:
    """Convert seconds on the reference machine to seconds on this machine."""
    return seconds * factor()


def until(condition: Callable[[], T], what: str, seconds: float = 60, every: float = 0.1) -> T:
    """Return the first true value of `condition`. Raises AssertionError after the deadline.

    The condition is tried once more after the deadline, in case the test itself got no CPU time.
    """
    limit = deadline(seconds)
    began = time.monotonic()
    while True:
        late = time.monotonic() - began >= limit
        result = condition()
        if result:
            return result
        if late:
            waited = time.monotonic() - began
            raise AssertionError(
                f"waited {waited:.1f} s for {what} ({seconds:g} s x machine factor {factor():g})"
                f"; last answer: {result!r}"
            )
        time.sleep(every)
