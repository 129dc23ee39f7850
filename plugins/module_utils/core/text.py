# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Text that messages and reports share: bounded lists, numbers with nouns or units, tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from .messages import Message

BLANKS = dict.fromkeys(map(ord, "\n\t\xa0\u202f\u3000"))
"""Spaces that are safe on a terminal, including those used in French and Japanese."""
MAX_DEPTH = 40
"""Maximum depth of nesting in a host's answer."""


def printable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Escape characters in a host's answer that control a terminal's cursor or text direction, as
    in Python (`\\x1b`)."""
    if isinstance(value, Message):
        value = str(value)  # ansible-core 2.19 stores no variable of another type
    if isinstance(value, str):
        if value.isprintable() or value.translate(BLANKS).isprintable():
            return value
        return "".join(
            character
            if character.isprintable() or ord(character) in BLANKS
            else character.encode("unicode_escape").decode()
            for character in value.replace("\r\n", "\n")
        )
    if not isinstance(value, (dict, list, tuple)):
        return value
    if not depth:
        return f"{type(value).__name__} in more than {MAX_DEPTH} levels"
    if isinstance(value, dict):
        return {printable(key): printable(item, depth - 1) for key, item in value.items()}
    return [printable(item, depth - 1) for item in value]


def one_line(text: str) -> str:
    return " ".join(str(printable(text)).split())


def shortened(text: str, most: int) -> str:
    left = len(text) - most
    return f"{text[:most]} ... and {left} characters more" if left > 0 else text


def nearest(word: str, known: Iterable[str]) -> str:
    """Return `Did you mean 'rails'? Known here: ...` for a misspelt name."""
    names = list(known)
    import difflib

    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    close.sort(key=lambda name: sorted(name) != sorted(word))  # cpn is cnp with letters swapped
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known here: {some(names)}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 leaf` or `2 leaves`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def some(names: Sequence[Any], most: int = 20) -> str:
    """Return a list of bounded length: `a, b, c and 7 more`."""
    listed = ", ".join(str(name) for name in names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed or "none"


def bytes_text(count: int) -> str:
    """Return a size as text: `4 B`, `64 KiB`, `1.50 MiB`."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.2f}".removesuffix(".00") + f" {unit}"
    return f"{count} B"


def bits_text(gbits_s: float) -> str:
    """Return a rate in Gb/s as text: `781.2 Gb/s`, `93.75 Mb/s`."""
    return f"{gbits_s:.4g} Gb/s" if gbits_s >= 1 else f"{gbits_s * 1000:.4g} Mb/s"


def columns(rows: Sequence[Sequence[str]], left: Collection[int] = ()) -> list[str]:
    """Format rows of cells as lines with columns aligned right, or left for those in `left`."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key that compares digits as numbers, before letters: `eth2` before `eth10`."""
    pieces = filter(None, re.split(r"([0-9]{1,18})", name))
    return tuple((0, int(each), "") if "0" <= each[0] <= "9" else (1, 0, each) for each in pieces)


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as pairs (first, last), sorted: 1 2 3 7 give (1, 3), (7, 7)."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def ranges(numbers: Iterable[int], separator: str = ",") -> str:
    """`0-25,27`: consecutive numbers as `first-last`."""
    return separator.join(
        str(first) if first == last else f"{first}-{last}" for first, last in runs(numbers)
    )
