# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration as NVUE has it: objects within objects, with plain values at the ends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Union

Tree = dict[str, Any]
Path = tuple[str, ...]


def at(tree: Any, *path: str) -> Any:
    """What stands there; None where there is nothing."""
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def objects_at(tree: Any, *path: str) -> Tree:
    """The object there; an empty one where there is none."""
    found = at(tree, *path)
    return dict(found) if isinstance(found, Mapping) else {}


def put(tree: Tree, path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def ends(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value with its path. An empty object is a value: it says that it is there."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from ends(value, (*path, str(key)))
    elif path:
        yield path, tree


def natural(path: Path) -> tuple[tuple[Union[int, str], ...], ...]:
    """Sorts swp2 before swp10."""
    return tuple(
        tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", key) if part)
        for key in path
    )


def words(path: Path, value: Any = None) -> str:
    """As it follows `nv set`."""
    return " ".join(path if value is None or value == {} else (*path, str(value)))


# Keys that stand for several: newer releases answer `swp1-4,swp6` where older ones name each.

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
