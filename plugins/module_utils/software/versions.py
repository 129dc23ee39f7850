# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions as vendors number them: which one is older, and which full one a short one means."""

from __future__ import annotations

import re


def key(version: str) -> tuple[int, ...]:
    """Sorts versions of numbers and dots: `580.95.05` before `580.105.08`, `13` as `13.0`."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def older(one: str, other: str) -> bool:
    return key(one) < key(other)


def matches(full: str, wanted: str) -> bool:
    """Whether `wanted` is the full version without its epoch, or a beginning of it.

    A beginning ends where a number ends: `13.1` means `13.1.0-1`, not `13.10.0-1` or `13.1rc1-1`.
    """
    _epoch, colon, rest = full.partition(":")
    bare = rest if colon else full
    if not bare.startswith(wanted):
        return False
    after = bare[len(wanted) : len(wanted) + 1]
    return not wanted or not (after.isalnum() or after == "~")
