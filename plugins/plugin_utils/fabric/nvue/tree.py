# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVUE configuration: nested objects with plain values as leaves."""

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
    for key in path:
        if not isinstance(tree, Mapping):
            return None
        tree = tree.get(key)
    return tree


def objects_at(tree: Any, *path: str) -> Tree:
    found = at(tree, *path)
    return dict(found) if isinstance(found, Mapping) else {}


def put(tree: Tree, path: Path, value: Any) -> None:
    for key in path[:-1]:
        tree = tree.setdefault(key, {})
    tree[path[-1]] = value


def ends(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value with its path. An empty object counts as a value."""
    if isinstance(tree, Mapping) and tree:
        for key, value in tree.items():
            yield from ends(value, (*path, str(key)))
    elif path:
        yield path, tree


def natural_path(path: Path) -> tuple[Any, ...]:
    return tuple(map(natural, path))


def words(path: Path, value: Any = None) -> str:
    """Path and value as arguments of `nv set`."""
    return " ".join(path if value is None or value == {} else (*path, str(value)))


_MAX_RANGE = 4096
"""A longer range is part of one name, such as vx-10-4000010."""
_MAX_NAMES = 1 << 18
"""In one collection, since a few bytes can denote thousands."""
_MAX_PART = 64
"""Maximum length of a part with ranges; NVUE's numbered objects have shorter names."""
_NUMBERS = re.compile(r"([0-9]+(?:-[0-9]+)*)")


def names(key: str) -> list[str]:
    """Every name that a key denotes. NVUE prints `lo,swp51-54,vlan10,20,30` (CumulusNetworks, demos
    of Cumulus Linux 5.1) and accepts `swp1-64s0-1`. A number continues the previous name."""
    found: list[str] = []
    before = ""
    for part in map(str.strip, key.split(",")):
        before = _stem(before, part) + part if part[:1].isdigit() else part
        found += _expanded_part(before)
        if len(found) > _MAX_NAMES:
            break
    return found


def _stem(before: str, part: str) -> str:
    """The prefix before as many numbers as `part` has: swp1 and 61-64, swp1s0 and 2s0-1."""
    if len(before) > _MAX_PART:
        return ""
    places = [match.start() for match in _NUMBERS.finditer(before)]
    return before[: places[-len(_NUMBERS.findall(part)) :][0]] if places else ""


def _expanded_part(part: str) -> list[str]:
    if len(part) > _MAX_PART:
        return [part]
    choices = [_choices(text) for text in _NUMBERS.split(part)]
    if prod(map(len, choices)) > _MAX_RANGE:
        return [part]
    return ["".join(map(str, pieces)) for pieces in product(*choices)]


def _choices(text: str) -> Sequence[object]:
    """Numbers of a range, created lazily; or the text itself."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdecimal() or not last.isdecimal() or str(int(first)) != first:
        return (text,)
    if not int(first) <= int(last) < int(first) + _MAX_RANGE:
        return (text,)
    return range(int(first), int(last) + 1)


def expanded(tree: Any) -> Tree:
    """One level of objects by name; settings of a name under several keys are merged."""
    result: Tree = {}
    count = 0
    for key, value in objects_at(tree).items():
        denoted = names(str(key))
        count += len(denoted)
        if count > _MAX_NAMES:
            raise SwitchError(f"the answer's keys name more than {_MAX_NAMES} objects")
        for name in denoted:
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

HAS_STATE = (5, 15)
"""First release with `qos roce state enabled` instead of `qos roce enable on`."""

COLLECTIONS = (
    ("mapping", "dscp"),
    ("egress-queue-mapping", "switch-priority"),
    ("egress-scheduler", "traffic-class"),
    ("congestion-control", "traffic-class"),
    ("pfc", "switch-priority"),
    ("traffic-pool", "switch-priority"),
)


def same(leaf: str, one: Any, other: Any) -> bool:
    """Whether two values are equivalent, like 3 and "3", or on and enabled."""
    return bool(_plain(leaf, one) == _plain(leaf, other))


def is_on(value: Any) -> bool:
    return str(value).lower() in _ON


def is_switch(leaf: str, value: Any) -> bool:
    return leaf in _SWITCHES and str(value).lower() in (*_ON, *_OFF)


def number(value: Any) -> Optional[int]:
    """The number in a value, with or without a unit (`150000 B`)."""
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
    def __init__(
        self, filled_qos: Any, interfaces: Iterable[Any], release: tuple[int, ...]
    ) -> None:
        roce, new = objects_at(filled_qos, "roce"), release >= HAS_STATE
        self._has_state = "state" in roce or ("enable" not in roce and new)
        # Every release enables ECN for traffic class 0 by default.
        ecn = ends(objects_at(filled_qos, "congestion-control"))
        self._renamed = {
            "ecn": _renamed((value for path, value in ecn if path[-1] == "ecn"), new),
            # Published configurations have the old spelling together with `roce state enabled`.
            "state": _renamed(
                (at(port, "qos", "pfc-watchdog", "state") for port in interfaces), False
            ),
        }

    def of(self, path: Path, value: Any) -> tuple[Path, Any]:
        if path == ("qos", "roce", "enable") and self._has_state:
            return ("qos", "roce", "state"), "enabled" if is_on(value) else "disabled"
        if path[-1] in self._renamed and value is not None:
            word = "enable" if is_on(value) else "disable"
            return path, f"{word}d" if self._renamed[path[-1]] else word
        return path, value

    def tree(self, values: dict[Path, Any]) -> Tree:
        """The object to send: null removes a key."""
        result: Tree = {}
        for path, value in values.items():
            put(result, *self.of(path, value))
        return result


_NEW_WORDS = {"enable": False, "disable": False, "enabled": True, "disabled": True}


def _renamed(values: Iterable[Any], otherwise: bool) -> bool:
    shown = (_NEW_WORDS[value] for value in map(str, values) if value in _NEW_WORDS)
    return next(shown, otherwise)
