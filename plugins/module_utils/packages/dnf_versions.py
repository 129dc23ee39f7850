# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Versions of rpm packages, `[epoch:]version-release`, and rpm's order of them."""

from __future__ import annotations

import re

from ..dataclass import dataclass

_NOT_PART = re.compile(r"^[^A-Za-z0-9~^]+")
_DIGITS = re.compile(r"^[0-9]+")
_LETTERS = re.compile(r"^[A-Za-z]+")


@dataclass(frozen=True)
class Evr:
    """Epoch, version and release. Without an epoch it is 0."""

    epoch: str
    version: str
    release: str

    def __str__(self) -> str:
        """As dnf and rpm write it: an epoch of 0 is left out."""
        prefix = "" if self.epoch == "0" else f"{self.epoch}:"
        return f"{prefix}{self.version}" + (f"-{self.release}" if self.release else "")


def parse(text: str) -> Evr:
    """`3:580.95.05-1.el9`; a text without release is a version alone."""
    epoch, colon, rest = text.partition(":")
    if not colon or not epoch.isdigit():
        epoch, rest = "0", text
    version, dash, release = rest.rpartition("-")
    if not dash:
        version, release = rest, ""
    return Evr(str(int(epoch)), version, release)


def compare(one: str, other: str) -> int:
    """-1, 0 or 1 by epoch, then version, then release; a release that one lacks is not compared."""
    left, right = parse(one), parse(other)
    if int(left.epoch) != int(right.epoch):
        return -1 if int(left.epoch) < int(right.epoch) else 1
    by_version = compare_part(left.version, right.version)
    if by_version or not (left.release and right.release):
        return by_version
    return compare_part(left.release, right.release)


def compare_part(one: str, other: str) -> int:
    """rpm's comparison of two versions or two releases.

    Runs of digits compare as numbers, runs of letters as text, a number beats letters. `~` sorts
    before everything, also the end (`1~rc1` < `1`); `^` after the end, before anything else
    (`1` < `1^git1` < `1.1`).
    """
    if one == other:
        return 0
    left, right = one, other
    while left or right:
        left, right = _NOT_PART.sub("", left), _NOT_PART.sub("", right)
        if left.startswith("~") or right.startswith("~"):
            if not left.startswith("~"):
                return 1
            if not right.startswith("~"):
                return -1
            left, right = left[1:], right[1:]
            continue
        if left.startswith("^") or right.startswith("^"):
            if not left or not right:
                return 1 if right == "" else -1
            if not left.startswith("^"):
                return 1
            if not right.startswith("^"):
                return -1
            left, right = left[1:], right[1:]
            continue
        if not left or not right:
            break
        run = _DIGITS if left[0].isdigit() else _LETTERS
        ours, theirs = run.match(left), run.match(right)
        if ours is None or theirs is None:
            return 1 if run is _DIGITS else -1
        by_run = _compare_run(ours.group(), theirs.group(), numbers=run is _DIGITS)
        if by_run:
            return by_run
        left, right = left[ours.end() :], right[theirs.end() :]
    return (left > "") - (right > "")


def _compare_run(one: str, other: str, *, numbers: bool) -> int:
    if numbers:
        one, other = one.lstrip("0"), other.lstrip("0")
        if len(one) != len(other):
            return -1 if len(one) < len(other) else 1
    return (one > other) - (one < other)
