# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Revisions of a switch over its REST interface: made, filled, applied, confirmed, taken back.

An apply with `state-controls.confirm` waits in state `confirm` for so many seconds; unless it is
answered `confirm_yes`, the switch applies what was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Optional
from urllib.parse import quote

from ..https import Https
from ..https_errors import Lost, Refused
from ..system import SwitchError
from .reading import ROOT
from .tree import Tree, at, objects_at

CONFIRM = "confirm"
"""In force, and waiting to be kept."""
UNCONFIRMED = "confirm_fail"
"""Was in force, and the switch has taken it back."""
SURE = "ays"
"""Asks whether somebody is sure, although it was told so."""
YES = {"ays": "ays_yes"}

FIRST_LOOK_S, LONGEST_PAUSE_S, BACKOFF = 0.1, 5.0, 1.6
REACHABLE_AGAIN_S = 20
"""A switch that reloads its web server answers again within that; longer, and it is cut off."""
NEWEST = 3
"""So many earlier revisions are compared with what is applied before nobody knows which it is."""


def in_force(state: str) -> bool:
    return state.startswith("applied")


def saved(state: str) -> bool:
    return "saved" in state


def failed(state: str) -> bool:
    return state in ("invalid", "detached", "inactive") or state.endswith(("_fail", "_error"))


class Revisions:
    """Every call makes its own connection: the one before may have been to a switch before it."""

    def __init__(
        self,
        connect: Callable[[], Https],
        where: str,
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self._connect = connect
        self.where = where
        self._sleep = sleep
        self._clock = clock

    def _ask(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        with self._connect() as https:
            return https.request(method, f"{ROOT}{path}", query, body)

    def all(self) -> Tree:
        return objects_at(self._ask("GET", "revision"))

    def create(self) -> str:
        made = self._ask("POST", "revision")
        if not isinstance(made, Mapping) or not next(iter(made), ""):
            raise SwitchError(f"{self.where}: POST revision: the answer names no revision.")
        return str(next(iter(made)))

    def fill(self, revision: str, steps: Tree) -> None:
        self._ask("PATCH", "", {"rev": revision}, steps)

    def discard(self, revision: str) -> None:
        self._ask("DELETE", _of(revision))

    def state(self, revision: str) -> tuple[str, str]:
        """State, and what the switch says of it."""
        with self._connect() as https:
            return self._state(https, revision)

    @staticmethod
    def _state(https: Https, revision: str) -> tuple[str, str]:
        found = https.get(f"{ROOT}{_of(revision)}")
        # Some answers have the number around what they say of it.
        found = objects_at(found, revision) or objects_at(found)
        return str(found.get("state", "")), _issues(found)

    def tell(self, revision: str, body: Tree) -> None:
        self._ask("PATCH", _of(revision), body=body)

    def apply(self, revision: str, confirm_s: int = 0) -> None:
        controls: Tree = {"state-controls": {"confirm": confirm_s}} if confirm_s else {}
        self.tell(revision, {"state": "apply", "auto-prompt": YES, **controls})

    def answer(self, revision: str, yes: bool) -> None:
        """To an apply that waits to be confirmed."""
        word = "confirm_yes" if yes else "confirm_no"
        refused: Optional[Refused] = None
        try:
            self.tell(revision, {"state": word})
        except Refused as error:
            refused = error
        if refused is not None:
            if refused.status not in (400, 422):
                raise refused
            self.tell(revision, {"state": "apply", "auto-prompt": {**YES, "confirm": word}})

    def wait(
        self, revision: str, until: Callable[[str], bool], limit_s: float, reach_s: float
    ) -> tuple[str, str]:
        """State and words of the switch once `until` holds of the state, or it has failed.

        `Lost` when it could not be asked for `reach_s`; SwitchError when `limit_s` are over.
        """
        begun, pause = self._clock(), FIRST_LOOK_S
        heard = begun
        state, told = "", ""
        while True:
            lost: Optional[Lost] = None
            try:
                with self._connect() as https:
                    while True:
                        state, told = self._state(https, revision)
                        heard = self._clock()
                        if until(state) or failed(state):
                            return state, told
                        if state == SURE:
                            self.tell(revision, {"state": "ays_yes"})
                        if heard - begun >= limit_s:
                            break
                        self._sleep(pause)
                        pause = min(pause * BACKOFF, LONGEST_PAUSE_S)
            except Lost as error:
                lost = error
            if lost is None:
                break
            if self._clock() - heard >= reach_s:
                raise lost
            self._sleep(pause)
            pause = min(pause * BACKOFF, LONGEST_PAUSE_S)
        raise SwitchError(
            f"{self.where}: revision {revision} is in state {state!r} after {limit_s:g} s"
            f"{': ' + told if told else ''}. Look at it with nv config revision."
        )

    def earlier(self) -> str:
        """The revision that holds what is applied now: to apply it again is to go back to it."""
        written = {"filled": "false"}
        applied = self._ask("GET", "", {"rev": "applied", **written})
        held = [name for name, one in self.all().items() if in_force(str(at(one, "state")))]
        for name in (*sorted(held, key=_age, reverse=True)[:NEWEST], "startup"):
            try:
                if self._ask("GET", "", {"rev": name, **written}) == applied:
                    return name
            except Refused:
                continue
        raise SwitchError(
            f"{self.where}: no earlier revision holds what is applied, so there would be nothing "
            "to go back to. On the switch, save what it has (nv config save), then run again."
        )

    def newer(self, revision: str) -> list[str]:
        """Revisions that were applied after this one."""
        return [
            name
            for name, one in self.all().items()
            if in_force(str(at(one, "state"))) and _age(name) > _age(revision)
        ]

    def waiting(self) -> dict[str, str]:
        """Revisions that wait to be confirmed, with what the switch says of them."""
        return {
            name: _issues(one)
            for name, one in self.all().items()
            if str(at(one, "state")) == CONFIRM
        }


def _of(revision: str) -> str:
    return f"revision/{quote(revision, safe='')}"


def _age(name: str) -> tuple[int, str]:
    """Numbers grow; the names of older releases end in the time they were made at."""
    return (int(name), "") if name.isdecimal() else (-1, name.rpartition("/")[2])


def _issues(revision: Any) -> str:
    """What the switch says of a transition, in one line."""
    transition = objects_at(revision, "transition")
    said = [
        str(at(issue, "message") or at(issue, "code") or "").strip()
        for issue in objects_at(transition, "issue").values()
    ]
    progress = str(transition.get("progress") or "").strip()
    return "; ".join(part for part in (progress, *said) if part)
