# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Keys that stand for several: newer releases answer `swp1-4,swp6` where older ones name each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .tree import Tree

MOST = 4096
"""Names that one key may stand for: no switch has so many ports, and no answer makes us wait."""

_RANGE = re.compile(r"^(?P<stem>.*?)(?P<first>\d+)-(?P<last>\d+)$")


def names(key: str) -> list[str]:
    """Every name that a key stands for: itself, where it is no range."""
    found: list[str] = []
    for part in key.split(","):
        match = _RANGE.match(part.strip())
        first, last = (int(match["first"]), int(match["last"])) if match else (0, -1)
        if match is None or not first <= last < first + MOST:
            found.append(part.strip())
        else:
            found += [f"{match['stem']}{number}" for number in range(first, last + 1)]
    return found


def expanded(tree: Any) -> Tree:
    """One level of objects by name; what is said of a name in several places comes together."""
    result: Tree = {}
    for key, value in (tree or {}).items():
        for name in names(str(key)):
            result[name] = _merged(result[name], value) if name in result else value
    return result


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return other
    result = dict(one)
    for key, value in other.items():
        result[key] = _merged(result[key], value) if key in result else value
    return result
