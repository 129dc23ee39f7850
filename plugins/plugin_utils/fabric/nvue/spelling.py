# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""On and off are spelled differently by releases: `enable: on`, `state: enabled`, `ecn: enable`.

Wanted objects use the spelling of releases before 5.15. What is sent has the spelling that the
switch itself uses, and what it answers is compared without regard to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Optional

from .tree import Path, Tree, at, expanded, objects_at, put

_ON = ("on", "enable", "enabled", "true")
_OFF = ("off", "disable", "disabled", "false")
_SWITCHES = ("enable", "state", "ecn", "red", "rx", "tx")
"""Leaves that are on or off."""

SAYS_STATE = (5, 15)
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
    """Whether it says on or off, in any spelling."""
    return leaf in _SWITCHES and str(value).lower() in (*_ON, *_OFF)


def number(value: Any) -> Optional[int]:
    """Of a number, or of one that an answer writes with its unit (`150000 B`)."""
    match = re.match(r"^\s*(\d+)\s*(B|Bytes)?\s*$", str(value))
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
    """How one switch spells it, as its own answer shows."""

    def __init__(self, filled_qos: Any, release: tuple[int, ...]) -> None:
        roce = objects_at(filled_qos, "roce")
        new = release >= SAYS_STATE if release else False
        self._says_state = "state" in roce or ("enable" not in roce and new)
        self._ecn = self._shown(filled_qos) or ("enabled" if new else "enable")

    @staticmethod
    def _shown(filled_qos: Any) -> str:
        """Of ECN, which every release has on for traffic class 0 from the factory."""
        for profile in objects_at(filled_qos, "congestion-control").values():
            for settings in objects_at(profile, "traffic-class").values():
                for leaf in ("ecn", "red"):
                    word = str(at(settings, leaf)).lower()
                    if word in ("enabled", "disabled"):
                        return "enabled"
                    if word in ("enable", "disable"):
                        return "enable"
        return ""

    def of(self, path: Path, value: Any) -> tuple[Path, Any]:
        """Where and how this switch takes a wanted value."""
        if path == ("qos", "roce", "enable") and self._says_state:
            return ("qos", "roce", "state"), self._able(value, "enabled")
        if path[-1] in ("ecn", "state"):
            return path, self._able(value, self._ecn)
        return path, value

    @staticmethod
    def _able(value: Any, on: str) -> Any:
        if value is None:
            return None
        off = {"enabled": "disabled", "enable": "disable"}[on]
        return on if is_on(value) else off

    def tree(self, values: dict[Path, Any]) -> Tree:
        """What is sent: one object to be merged, in which null takes something away."""
        result: Tree = {}
        for path, value in values.items():
            put(result, *self.of(path, value))
        return result
