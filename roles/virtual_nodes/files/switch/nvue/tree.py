# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration as NVUE keeps it: objects within objects, values at the ends."""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
Place = tuple[str, ...]


def merged(base: Tree, patch: Tree) -> Tree:
    """What a PATCH makes of it: null unsets, everything else is added or replaces."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


def under(place: Place, value: Any) -> Tree:
    """The value wrapped in what leads to it."""
    for word in reversed(place):
        value = {word: value}
    return value if isinstance(value, dict) else {}


def at(tree: Any, place: Place) -> Any:
    """What stands there; KeyError where nothing does."""
    for word in place:
        if not isinstance(tree, dict):
            raise KeyError(word)
        tree = tree[word]
    return tree


def difference(tree: Any, other: Any) -> Tree:
    """Of `tree` what `other` has not, or has otherwise; null where only `other` has something."""
    result: Tree = {}
    for key in [*tree, *(key for key in other if key not in tree)]:
        if key not in tree:
            result[key] = None
        elif key not in other:
            result[key] = copy.deepcopy(tree[key])
        elif isinstance(tree[key], dict) and isinstance(other[key], dict):
            below = difference(tree[key], other[key])
            if below:
                result[key] = below
        elif tree[key] != other[key]:
            result[key] = copy.deepcopy(tree[key])
    return result


def ends(tree: Tree, before: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every end with the way to it; an empty object is an end."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from ends(value, (*before, key))
        else:
            yield (*before, key), value


def chosen(tree: Any, include: str) -> Any:
    """What the patterns `/*/link/mtu,/swp1/qos` leave, relative to what was asked for."""
    wanted = [tuple(one.strip("/").split("/")) for one in include.split(",") if one.strip("/")]
    if not wanted or not isinstance(tree, dict):
        return tree
    result: Tree = {}
    for place, value in ends(tree):
        if any(_leads(one, place) for one in wanted):
            below = result
            for word in place[:-1]:
                below = below.setdefault(word, {})
            below[place[-1]] = value
    return result


def _leads(pattern: Place, place: Place) -> bool:
    return len(pattern) <= len(place) and all(
        fnmatch.fnmatchcase(word, one) for one, word in zip(pattern, place)
    )
