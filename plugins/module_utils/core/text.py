# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Text that messages share: lists of bounded length, numbers with nouns, did-you-mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


def nearest(word: str, known: Iterable[str]) -> str:
    """`Did you mean 'rails'? Known here: ...`, for a misspelt name."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known here: {some(names)}"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 leaf`, `2 leaves`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def some(names: Sequence[Any], most: int = 20) -> str:
    """`a, b, c and 7 more`: a list of bounded length."""
    listed = ", ".join(str(name) for name in names[:most])
    return f"{listed} and {len(names) - most} more" if len(names) > most else listed or "none"
