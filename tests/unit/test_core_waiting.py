# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Polling, natural order and ranges: the helpers that every package shares."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import (
    natural,
    ranges,
    runs,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.waiting import until
from hypothesis import given
from hypothesis import strategies as st


class Clock:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    ("values", "expected", "slept"),
    [
        ([7], 7, []),
        ([0, 0, 7], 7, [2, 2]),
        ([0] * 9, 0, [2, 2, 1]),  # the last sleep ends at the deadline; one more evaluation
    ],
)
def test_until(values: list[int], expected: int, slept: list[float]) -> None:
    clock = Clock()
    left = iter(values)
    assert until(lambda: next(left), 5, 2, clock=clock, sleep=clock.sleep) == expected
    assert clock.slept == slept


def test_natural_order() -> None:
    names = ["eth10", "eth2", "eth", "10", "9", "a1b2", "a1b10"]
    assert sorted(names, key=natural) == ["9", "10", "a1b2", "a1b10", "eth", "eth2", "eth10"]


@given(st.sets(st.integers(0, 80)))
def test_runs_cover_exactly_the_numbers(numbers: set[int]) -> None:
    pairs = runs(numbers)
    assert {n for first, last in pairs for n in range(first, last + 1)} == numbers
    assert all(after[0] > before[1] + 1 for before, after in zip(pairs, pairs[1:]))


def test_ranges() -> None:
    assert ranges([5, 1, 2, 3, 3]) == "1-3,5"
    assert ranges([], " ") == ""
