# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Debian's versions of packages, and their order."""

from __future__ import annotations

import re

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")


def debian_upstream(version: str) -> str:
    """Without epoch and revision."""
    without = version.partition(":")[2] or version
    return without.rpartition("-")[0] or without


def debian_compare(one: str, other: str) -> int:
    """-1, 0 or 1, as `dpkg --compare-versions` orders them; without starting it each time."""
    for mine, theirs in zip(_split(one), _split(other)):
        order = _compare_part(mine, theirs)
        if order:
            return order
    return 0


def _split(version: str) -> tuple[str, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (epoch, upstream, revision) if dash else (epoch, rest, "")


def _compare_part(one: str, other: str) -> int:
    """Letters and numbers in turn: what is no number by `_weight`, numbers as numbers."""
    mine, theirs = _PARTS.findall(one), _PARTS.findall(other)
    empty = ("", "")
    for index in range(max(len(mine), len(theirs))):
        text, number = mine[index] if index < len(mine) else empty
        other_text, other_number = theirs[index] if index < len(theirs) else empty
        left = ([_weight(char) for char in text] + [0], int(number or 0))
        right = ([_weight(char) for char in other_text] + [0], int(other_number or 0))
        if left != right:
            return -1 if left < right else 1
    return 0


def _weight(char: str) -> int:
    """`~` before the end of the text (0), then letters, then everything else."""
    if char == "~":
        return -1
    return ord(char) if char.isalpha() else ord(char) + 256
