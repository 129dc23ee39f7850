# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm's expressions for many names: `node[01-64,70]`.

Names keep their order, because Slurm pairs the names and the addresses of a line by position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

MOST_NAMES = 100_000
"""Limit of an expression read from a daemon or from an operator's file."""

MOST_RANGES = 16
"""Limit of the brackets of a name."""

_NUMBERED = re.compile(r"(.*?)([0-9]{1,9})", re.DOTALL)
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def compress(names: Iterable[str]) -> str:
    """The expression for these names. Numbers must be last: Slurm reads no `node[1-2]-ib`."""
    pieces: list[tuple[str, list[list[str]]]] = []
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, digits = match.groups() if match else (name, "")
        if not digits or not pieces or pieces[-1][0] != prefix or not pieces[-1][1]:
            pieces.append((prefix, [[digits, digits]] if digits else []))
            continue
        last = pieces[-1][1][-1]
        # Slurm pads numbers of a range to the width of its first one.
        if digits == str(int(last[1]) + 1).zfill(len(last[0])):
            last[1] = digits
        else:
            pieces[-1][1].append([digits, digits])
    return ",".join(_text(prefix, ranges) for prefix, ranges in pieces)


def _text(prefix: str, ranges: list[list[str]]) -> str:
    texts = [first if first == last else f"{first}-{last}" for first, last in ranges]
    if not texts:
        return prefix
    single = len(texts) == 1 and "-" not in texts[0]
    return prefix + (texts[0] if single else f"[{','.join(texts)}]")


def expand(expression: str, most: int = MOST_NAMES) -> list[str]:
    """The names of an expression. Raises ValueError for bad syntax, or more than `most` names."""
    found: list[str] = []
    for word in _words(expression):
        for name in _expanded(word):
            if len(found) == most:
                raise ValueError(f"more than {most} names")
            found.append(name)
    return found


def _words(expression: str) -> Iterator[str]:
    """Split at commas outside brackets."""
    yield from re.findall(r"(?:\[[^\[\]]*\]|[^,\[\]]|[\[\]])+", expression)


def _expanded(word: str) -> Iterator[str]:
    if word.count("[") > MOST_RANGES:
        raise ValueError(f"{word[:80]!r} has more than {MOST_RANGES} ranges")
    head, bracket, rest = word.partition("[")
    if not bracket:
        if "]" in word:
            raise ValueError(f"{word[:80]!r} has a bracket without its other one")
        yield word
        return
    inner, closed, tail = rest.partition("]")
    if not closed:
        raise ValueError(f"{word[:80]!r} has a bracket without its other one")
    for part in inner.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{part[:80]!r} is not a range of numbers")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part!r} is not a range of numbers")
        for number in range(first, last + 1):
            for end in _expanded(tail):
                yield f"{head}{str(number).zfill(len(match[1]))}{end}"
