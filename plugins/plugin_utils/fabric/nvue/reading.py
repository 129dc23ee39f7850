# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch says of itself: what is written, what defaults make of it, what its ports do."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, Optional

from ....module_utils.core.dataclass import dataclass
from ..https_errors import Refused
from .spelling import uniform
from .tree import Tree, at, expanded

if TYPE_CHECKING:
    from ..https import Https
from collections.abc import Mapping

from ..system import SwitchError
from .spelling import COLLECTIONS
from .tree import Path, words

# Answers that cannot be: another thing where an object belongs, a name where a number does.
#
# They are told with the switch and the place. Believed, they would look as if nothing were set.

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


ROOT = "/nvue_v1/"
_FILLED = {"rev": "applied", "filled": "true"}
_NO_SUCH_REVISION = (400, 404)
_OF_PORTS = (
    "type",
    "link/state",
    "link/oper-status",
    "link/mtu",
    "link/speed",
    "lldp/neighbor",
    "qos/congestion-control",
    "qos/pfc-watchdog/state",
)
"""Of the interfaces, whose whole answer has counters and more for every port."""


@dataclass(frozen=True)
class Present:
    version: str
    explicit: Tree
    """`qos` and `interface` as they are written; ranges of ports are taken apart."""
    filled_qos: Tree
    """`qos` with all defaults, in the switch's own spelling."""
    running_qos: Tree = field(default_factory=dict)
    """`qos` as the chip has it. A part that is not said there is not known to be otherwise."""
    ports: Tree = field(default_factory=dict)
    """What interfaces do now, by name."""
    startup: Optional[Tree] = None
    """As `explicit`, of what the switch comes up with after a restart. None: it does not say, or a
    change of our own is in force and cannot be saved yet."""

    @property
    def release(self) -> tuple[int, ...]:
        """(5, 12, 1) of `Cumulus Linux 5.12.1`; empty where it is not known."""
        match = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", self.version)
        return tuple(int(part) for part in match.groups() if part) if match else ()


def read(https: Https, unconfirmed: bool = False) -> Present:
    """`unconfirmed`: a change of our own waits to be kept, so that it cannot be saved yet."""
    system = _get(https, f"{ROOT}system")
    filled = _get(https, f"{ROOT}qos", _FILLED)
    check_qos(_asked(https, f"{ROOT}qos"), filled)
    return Present(
        version=_version(system),
        explicit=_written(https, "applied"),
        filled_qos=filled,
        running_qos=_uniform(_asked(https, f"{ROOT}qos"), _running(https)),
        ports=_ports(https),
        startup=None if unconfirmed else _startup(https),
    )


def _asked(https: Https, path: str) -> str:
    """Names the switch and what it was asked, in messages."""
    return f"{https.where}: GET {path}"


def _get(https: Https, path: str, query: Optional[dict[str, str]] = None) -> Tree:
    return an_object(_asked(https, path), https.get(path, query))


def _uniform(asked: str, qos: Tree) -> Tree:
    result = uniform(qos)
    check_numbers(asked, result)
    return result


def _written(https: Https, revision: str) -> Tree:
    asked = f"{_asked(https, ROOT)} of revision {revision}"
    written = an_object(asked, https.get(ROOT, {"rev": revision, "filled": "false"}))
    qos = an_object(asked, written.get("qos"), ("qos",))
    check_qos(asked, qos)
    ports = expanded(an_object(asked, written.get("interface"), ("interface",)))
    check_ports(asked, ports)
    return {"qos": _uniform(asked, qos), "interface": ports}


def _startup(https: Https) -> Optional[Tree]:
    try:
        return _written(https, "startup")
    except Refused as error:
        if error.status not in _NO_SUCH_REVISION:
            raise
    return None


def _running(https: Https) -> Tree:
    try:
        return _get(https, f"{ROOT}qos")
    except Refused as error:
        if error.status != 404:
            raise
    return {}


def _ports(https: Https) -> Tree:
    path = f"{ROOT}interface"
    try:
        found = https.get(path, {"include": ",".join(f"/*/{what}" for what in _OF_PORTS)})
    except Refused as error:
        if error.status != 400:
            raise
        found = None  # a release that does not know how to leave something out
    asked = _asked(https, path)
    ports = expanded(an_object(asked, https.get(path) if found is None else found))
    check_ports(asked, ports)
    return ports


def _version(system: Any) -> str:
    release = at(system, "product-release") or at(system, "version", "product-release") or ""
    said = at(system, "build") or at(system, "version", "image") or ""
    if str(release) in str(said):
        return str(said)
    return f"{said} {release}".strip()
