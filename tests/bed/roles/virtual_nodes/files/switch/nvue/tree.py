# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration as NVUE stores it: nested objects, with values as leaves."""

from __future__ import annotations

import copy
import fnmatch
import re
from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
KeyPath = tuple[str, ...]


def merged(base: Tree, patch: Tree) -> Tree:
    """Apply a PATCH: null unsets, everything else is added or replaced."""
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


def under(path: KeyPath, value: Any) -> Tree:
    """Wrap the value in objects along the path."""
    for word in reversed(path):
        value = {word: value}
    return value if isinstance(value, dict) else {}


def at(tree: Any, path: KeyPath) -> Any:
    """Return the value at this path. Raises KeyError if there is none."""
    for word in path:
        if not isinstance(tree, dict):
            raise KeyError(word)
        tree = tree[word]
    return tree


def difference(tree: Any, other: Any) -> Tree:
    """Return what `tree` has and `other` lacks or has with another value; null for what only
    `other` has."""
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


def ends(tree: Tree, before: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield every leaf with its path. An empty object is a leaf."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from ends(value, (*before, key))
        else:
            yield (*before, key), value


def chosen(tree: Any, include: str) -> Any:
    """Select what matches the patterns `/*/link/mtu,/swp1/qos`, relative to the requested path."""
    wanted = [tuple(part.strip("/").split("/")) for part in include.split(",") if part.strip("/")]
    if not wanted or not isinstance(tree, dict):
        return tree
    result: Tree = {}
    for path, value in ends(tree):
        if any(_leads(part, path) for part in wanted):
            below = result
            for word in path[:-1]:
                below = below.setdefault(word, {})
            below[path[-1]] = value
    return result


def _leads(pattern: KeyPath, path: KeyPath) -> bool:
    return len(pattern) <= len(path) and all(
        fnmatch.fnmatchcase(word, part) for part, word in zip(pattern, path)
    )


def in_ranges(tree: Any) -> Any:
    """Combine like objects in one key, as the vendor prints them: `lo,swp51-54,vlan10,20,30`
    (demos of Cumulus Linux 5.1, `nv config show`), `swp1-2s0-1`."""
    if not isinstance(tree, dict):
        return tree
    alike: dict[str, tuple[list[str], Any]] = {}
    for key, value in tree.items():
        below = in_ranges(value)
        numbered = isinstance(below, dict) and NUMBERED.fullmatch(key)
        alike.setdefault(repr(below) if numbered else f"only {key}", ([], below))[0].append(key)
    return {together(keys): below for keys, below in alike.values()}


NUMBERED = re.compile(r"(?P<stem>[a-z]*)(?P<first>0|[1-9]\d*)(?:s(?P<second>\d))?")


def together(names: list[str]) -> str:
    """Combine names with numbers to ranges. A single name is unchanged."""
    parts: dict[str, list[int]] = {}
    halves: dict[tuple[str, int], list[int]] = {}
    if len(names) == 1:
        return names[0]
    for match in filter(None, map(NUMBERED.fullmatch, names)):
        if match["second"]:
            halves.setdefault((match["stem"], int(match["first"])), []).append(int(match["second"]))
        else:
            parts.setdefault(match["stem"], []).append(int(match["first"]))
    result = [f"{stem}{','.join(runs(numbers))}" for stem, numbers in parts.items()]
    cages: dict[tuple[str, str], list[int]] = {}
    for (stem, cage), seconds in halves.items():
        for run in runs(seconds):
            cages.setdefault((stem, run), []).append(cage)
    for (stem, run), numbers in cages.items():
        result += [f"{stem}{part}s{run}" for part in runs(numbers)]
    return ",".join(result)


def runs(numbers: list[int]) -> list[str]:
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in found]
