# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Configuration as NVUE has it: objects within objects, with plain values at the ends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, Optional

from ....module_utils.core.text import natural
from ..system import SwitchError

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
    """Every value with its path. An empty object is a value: that it is there."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from ends(value, (*path, str(key)))
    elif path:
        yield path, tree


def natural_path(path: Path) -> tuple[Any, ...]:
    """Sort key that puts swp2 before swp10."""
    return tuple(map(natural, path))


def words(path: Path, value: Any = None) -> str:
    """As it follows `nv set`."""
    return " ".join(path if value is None or value == {} else (*path, str(value)))


# Keys that stand for several. NVIDIA prints `lo,swp51-54,vlan10,20,30` (CumulusNetworks, demos of
# Cumulus Linux 5.1, `nv config show`) and takes `swp1-64s0-1` (Cumulus Linux 5.x, NVUE CLI): a part
# that begins with a number continues the name before it.

_MOST = 4096
"""More are the numbers of one name, such as vx-10-4000010."""
_MOST_NAMES = 1 << 18
"""Of one collection: a few bytes name thousands."""
_LONGEST = 64
"""Of a part with ranges; nothing that NVUE numbers has a longer name."""
_NUMBERS = re.compile(r"([0-9]+(?:-[0-9]+)*)")


def names(key: str) -> list[str]:
    """Every name that a key stands for: itself, where it is no range."""
    found: list[str] = []
    before = ""
    for part in map(str.strip, key.split(",")):
        before = _stem(before, part) + part if part[:1].isdigit() else part
        found += _each(before)
        if len(found) > _MOST_NAMES:
            break
    return found


def _stem(before: str, part: str) -> str:
    """What stands before as many numbers as `part` has: swp1 and 61-64, swp1s0 and 2s0-1."""
    if len(before) > _LONGEST:
        return ""
    places = [match.start() for match in _NUMBERS.finditer(before)]
    return before[: places[-len(_NUMBERS.findall(part)) :][0]] if places else ""


def _each(part: str) -> list[str]:
    """Every name of a part with ranges in it, such as swp1-4s0-1."""
    if len(part) > _LONGEST:
        return [part]
    choices = [_choices(text) for text in _NUMBERS.split(part)]
    if prod(map(len, choices)) > _MOST:
        return [part]
    return ["".join(map(str, one)) for one in product(*choices)]


def _choices(text: str) -> Sequence[object]:
    """Numbers of a range, not made before it is known how many they are; else the text itself."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal() or str(int(first)) != first:
        return (text,)
    if not int(first) <= int(last) < int(first) + _MOST:
        return (text,)
    return range(int(first), int(last) + 1)


def expanded(tree: Any) -> Tree:
    """One level of objects by name; what several keys have of a name comes together."""
    result: Tree = {}
    count = 0
    for key, value in objects_at(tree).items():
        every = names(str(key))
        count += len(every)
        if count > _MOST_NAMES:
            raise SwitchError(f"the answer's keys name more than {_MOST_NAMES} objects")
        for name in every:
            result[name] = _merged(result[name], value) if name in result else value
    return result


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, Mapping) or not isinstance(other, Mapping):
        return other
    result = dict(one)
    for key, value in other.items():
        result[key] = _merged(result[key], value) if key in result else value
    return result


_ON = ("on", "enable", "enabled", "true")
_OFF = ("off", "disable", "disabled", "false")
_SWITCHES = ("enable", "state", "ecn", "red", "rx", "tx")
"""Leaves that are on or off."""

HAS_STATE = (5, 15)
"""From this release on it is `qos roce state enabled`, not `qos roce enable on`."""

COLLECTIONS = (
    ("mapping", "dscp"),
    ("egress-queue-mapping", "switch-priority"),
    ("egress-scheduler", "traffic-class"),
    ("congestion-control", "traffic-class"),
    ("pfc", "switch-priority"),
    ("traffic-pool", "switch-priority"),
)
"""In profiles of qos: numbered objects, of which an answer may name several in one key."""


def same(leaf: str, one: Any, other: Any) -> bool:
    """Whether two values mean the same: 3 and "3" do, and so do on and enabled."""
    return bool(_plain(leaf, one) == _plain(leaf, other))


def is_on(value: Any) -> bool:
    return str(value).lower() in _ON


def is_switch(leaf: str, value: Any) -> bool:
    """Whether it is on or off, in any spelling."""
    return leaf in _SWITCHES and str(value).lower() in (*_ON, *_OFF)


def number(value: Any) -> Optional[int]:
    """Of a number, or of one that an answer writes with its unit (`150000 B`)."""
    match = re.match(r"^\s*([0-9]{1,18})\s*(B|Bytes)?\s*$", str(value))
    return int(match[1]) if match and not isinstance(value, bool) else None


def _plain(leaf: str, value: Any) -> Any:
    if isinstance(value, dict):
        return value or "there"
    if is_switch(leaf, value):
        return is_on(value)
    text = str(value).lower()
    plain = number(value)
    return text if plain is None else plain


def uniform(qos: Any) -> Tree:
    """A `qos` object as an answer has it, in the form of those that are wanted."""
    result = objects_at(qos)
    roce = objects_at(result, "roce")
    if "state" in roce:
        roce["enable"] = roce.pop("state")
    if roce:
        result["roce"] = roce
    for branch, collection in COLLECTIONS:
        profiles = {}
        for name in objects_at(result, branch):
            whole = objects_at(result, branch, name)
            if isinstance(whole.get(collection), Mapping):
                whole[collection] = expanded(whole[collection])
            profiles[name] = whole
        if profiles:
            result[branch] = profiles
    return result


class Spelling:
    """How one switch spells it, key by key, as its own answers show."""

    def __init__(
        self, filled_qos: Any, interfaces: Iterable[Any], release: tuple[int, ...]
    ) -> None:
        roce, new = objects_at(filled_qos, "roce"), release >= HAS_STATE
        self._has_state = "state" in roce or ("enable" not in roce and new)
        # Every release has ECN on for traffic class 0 from the factory.
        ecn = ends(objects_at(filled_qos, "congestion-control"))
        self._renamed = {
            "ecn": _renamed((value for path, value in ecn if path[-1] == "ecn"), new),
            # Configurations in public have it as before, beside `roce state enabled`.
            "state": _renamed(
                (at(one, "qos", "pfc-watchdog", "state") for one in interfaces), False
            ),
        }

    def of(self, path: Path, value: Any) -> tuple[Path, Any]:
        """Where and how this switch takes a wanted value."""
        if path == ("qos", "roce", "enable") and self._has_state:
            return ("qos", "roce", "state"), "enabled" if is_on(value) else "disabled"
        if path[-1] in self._renamed and value is not None:
            word = "enable" if is_on(value) else "disable"
            return path, f"{word}d" if self._renamed[path[-1]] else word
        return path, value

    def tree(self, values: dict[Path, Any]) -> Tree:
        """What is sent: one object to be merged, in which null takes something away."""
        result: Tree = {}
        for path, value in values.items():
            put(result, *self.of(path, value))
        return result


_NEW_WORDS = {"enable": False, "disable": False, "enabled": True, "disabled": True}


def _renamed(values: Iterable[Any], otherwise: bool) -> bool:
    """Whether a switch says `enabled` and not `enable`, by the first that it says of these."""
    shown = (_NEW_WORDS[value] for value in map(str, values) if value in _NEW_WORDS)
    return next(shown, otherwise)
