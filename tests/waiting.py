# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Waiting in tests: for a condition, with a deadline that scales with the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

VARIABLE = "TEST_MACHINE_FACTOR"
"""Where one run keeps its factor: for pytest's workers, for stages, for what tests start."""
REFERENCE_S = 0.25
"""What the job takes on two idle cores of the machine that the seconds in tests are meant for."""


def factor() -> float:
    """How many times slower than that machine this one is: measured once in a run, 1 at least."""
    if VARIABLE not in os.environ:
        began = time.monotonic()
        _job()
        os.environ[VARIABLE] = f"{max(1.0, (time.monotonic() - began) / REFERENCE_S):.2f}"
    return float(os.environ[VARIABLE])


def _job() -> None:
    """What tests do: some Python, and another Python started."""
    total = 0
    for number in range(1_000_000):
        total += number * number % 7
    for _ in range(2):
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)


def deadline(seconds: float) -> float:
    """As many seconds as this machine needs for what takes `seconds` on the reference."""
    return seconds * factor()


def until(condition: Callable[[], T], what: str, seconds: float = 60, every: float = 0.1) -> T:
    """What `condition` returns as soon as it is true; after the deadline the test has failed.

    It is asked once more past the deadline: a test that got no time itself is no failure.
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
