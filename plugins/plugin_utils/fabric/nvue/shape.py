# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Answers that cannot be: another thing where an object belongs, a name where a number does.

They are told with the switch and the place. Believed, they would look as if nothing were set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..system import SwitchError
from .spelling import COLLECTIONS
from .tree import Path, Tree, words

_ADVICE = "NVUE does not answer so: look whether its service is well (nv show system, its log)"
_SETTINGS = ("roce", "pfc-watchdog")
"""Branches of qos without profiles."""


def an_object(asked: str, value: Any, place: Path = ()) -> Tree:
    """The object, empty where nothing is said. `asked` names the switch and what it was asked."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    # Not the value itself: an answer may hold what was sent, credentials included.
    kind = {list: "a list", str: "text", bool: "true or false"}.get(type(value), "a number")
    what = words(place) or "the answer"
    raise SwitchError(f"{asked}: {what} is {kind}, and an object belongs there. {_ADVICE}.")


def check_qos(asked: str, qos: Tree, place: Path = ("qos",)) -> None:
    """`qos` as configuration has it."""
    for branch in _SETTINGS:
        an_object(asked, qos.get(branch), (*place, branch))
    for branch, collection in COLLECTIONS:
        profiles = an_object(asked, qos.get(branch), (*place, branch))
        for name, profile in profiles.items():
            whole = an_object(asked, profile, (*place, branch, str(name)))
            where = (*place, branch, str(name), collection)
            for key, held in an_object(asked, whole.get(collection), where).items():
                an_object(asked, held, (*where, str(key)))


def check_numbers(asked: str, qos: Tree, place: Path = ("qos",)) -> None:
    """Of a `qos` that is in the form of those that are wanted: ranges are taken apart."""
    for branch, collection in COLLECTIONS:
        for name, profile in (qos.get(branch) or {}).items():
            for key in (profile or {}).get(collection) or {}:
                if not (key.isascii() and key.isdecimal()):
                    path = words((*place, branch, str(name), collection))
                    raise SwitchError(
                        f"{asked}: {path} names {key!r}, and a number belongs there. {_ADVICE}."
                    )


def check_ports(asked: str, ports: Tree) -> None:
    for name, port in ports.items():
        said = an_object(asked, port, ("interface", str(name)))
        for part in ("link", "qos"):
            an_object(asked, said.get(part), ("interface", str(name), part))
