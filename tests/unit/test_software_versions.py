# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions are compared as vendors number them, and matched where a number ends."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.software.combinations import (
    key,
    matches,
    older,
)
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.lists(st.integers(0, 999), min_size=1, max_size=4)
ENDS = st.sampled_from(["", "-1", "-0ubuntu1", ".1-1.el9", "-1+cuda13.0", "+dfsg-2"])


def version(numbers: list[int]) -> str:
    return ".".join(map(str, numbers))


@given(NUMBERS, NUMBERS)
def test_one_is_older_or_the_other_or_they_are_equal(one: list[int], other: list[int]) -> None:
    first, second = version(one), version(other)
    equal = key(first) == key(second)
    assert [older(first, second), older(second, first), equal].count(True) == 1


@given(NUMBERS, NUMBERS, NUMBERS)
def test_older_is_an_order(one: list[int], two: list[int], three: list[int]) -> None:
    a, b, c = sorted(map(version, (one, two, three)), key=key)
    assert not older(b, a) and not older(c, b) and not older(c, a)


@given(NUMBERS, st.integers(0, 3))
def test_a_later_number_is_newer_whatever_follows(numbers: list[int], place: int) -> None:
    place %= len(numbers)
    later = [*numbers[:place], numbers[place] + 1]
    assert older(version(numbers), version(later))


@given(NUMBERS, st.integers(1, 3))
def test_zeros_at_the_end_say_nothing(numbers: list[int], zeros: int) -> None:
    assert key(version(numbers)) == key(version(numbers + [0] * zeros))


@pytest.mark.parametrize(
    ("one", "other"),
    [("580.95.05", "580.105.08"), ("9", "10"), ("12.9", "12.10"), ("570.211.01", "580.65.06")],
)
def test_numbers_are_not_text(one: str, other: str) -> None:
    assert older(one, other)
    assert not older(other, one)


@given(NUMBERS, ENDS, st.sampled_from(["", "1:", "3:"]))
def test_a_version_means_itself_with_epoch_and_revision(
    numbers: list[int], end: str, epoch: str
) -> None:
    assert matches(f"{epoch}{version(numbers)}{end}", version(numbers))


@given(NUMBERS, st.integers(0, 9), ENDS)
def test_a_number_is_never_cut(numbers: list[int], digit: int, end: str) -> None:
    assert not matches(f"{version(numbers)}{digit}{end}", version(numbers))


@given(NUMBERS, NUMBERS, ENDS)
def test_what_it_means_has_its_numbers(wanted: list[int], full: list[int], end: str) -> None:
    assert matches(version(full) + end, version(wanted)) == (
        full[: len(wanted)] == wanted
        or (len(full) < len(wanted) and (version(full) + end).startswith(version(wanted)))
    )


@pytest.mark.parametrize(
    ("full", "wanted", "means"),
    [
        ("3:580.95.05-1.el9", "580.95.05", True),
        ("580.95.05-0ubuntu1", "580.95.05", True),
        ("580.95.051-1", "580.95.05", False),
        ("13.0.2-1", "13.0", True),
        ("13.01-1", "13.0", False),
        ("13.0~rc1-1", "13.0", False),
        ("13.0rc1-1", "13.0", False),
        ("2.28.3-1+cuda13.0", "2.28.3-1+cuda13", True),
        ("2.28.3-1+cuda12.9", "2.28.3-1+cuda13", False),
        ("2.28.3-1+cuda130.0", "2.28.3-1+cuda13", False),
        ("5.14.0-570.12.1.el9_6", "5.14.0-570.12.1.el9_6", True),
        ("5.14.0-570.12.1.el9_60", "5.14.0-570.12.1.el9_6", False),
        ("1:4.4.1-1", "4.4.1", True),
        ("4.4.1", "", True),
    ],
)
def test_of_real_packages(full: str, wanted: str, means: bool) -> None:
    assert matches(full, wanted) is means
