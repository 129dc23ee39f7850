# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Revisions of a switch over its REST interface: made, filled, applied, confirmed, taken back.

An apply with `state-controls.confirm` waits in state `confirm` for so many seconds; unless it is
answered `confirm_yes`, the switch applies what was there before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import quote

from ..https import Https, Lost, Refused, Service, where
from ..system import Applied, Difference, Login, Saved, SwitchError
from .reading import ROOT, Present, read
from .tree import Tree, at, objects_at

CONFIRM = "confirm"
"""In force, and waiting to be kept."""
UNCONFIRMED = "confirm_fail"
"""Was in force, and the switch has taken it back."""
SURE = "ays"
"""Asks for confirmation although `auto-prompt` was sent."""
YES = {"ays": "ays_yes"}

FIRST_LOOK_S, LONGEST_PAUSE_S, BACKOFF = 0.1, 5.0, 1.6
REACHABLE_AGAIN_S = 20
"""A switch that reloads its web server answers again within that; longer, and it is cut off."""
NEWEST = 3
"""Earlier revisions that are compared with what is applied."""


def in_force(state: str) -> bool:
    return state.startswith("applied")


def saved(state: str) -> bool:
    return "saved" in state


def failed(state: str) -> bool:
    return state in ("invalid", "detached", "inactive") or state.endswith(("_fail", "_error"))


class Revisions:
    """Every call makes its own connection, since an apply can restart the web server."""

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
        """State, and the switch's own message."""
        with self._connect() as https:
            return self._state(https, revision)

    @staticmethod
    def _state(https: Https, revision: str) -> tuple[str, str]:
        found = https.get(f"{ROOT}{_of(revision)}")
        # Some answers have the number around what they say of it.
        found = objects_at(found, revision) or objects_at(found)
        return str(found.get("state", "")), _issues(found)

    def patch(self, revision: str, body: Tree) -> None:
        self._ask("PATCH", _of(revision), body=body)

    def apply(self, revision: str, confirm_s: int = 0) -> None:
        controls: Tree = {"state-controls": {"confirm": confirm_s}} if confirm_s else {}
        self.patch(revision, {"state": "apply", "auto-prompt": YES, **controls})

    def answer(self, revision: str, yes: bool) -> None:
        """To an apply that waits to be confirmed."""
        word = "confirm_yes" if yes else "confirm_no"
        refused: Optional[Refused] = None
        try:
            self.patch(revision, {"state": word})
        except Refused as error:
            refused = error
        if refused is not None:
            if refused.status not in (400, 422):
                raise refused
            self.patch(revision, {"state": "apply", "auto-prompt": {**YES, "confirm": word}})

    def wait(
        self, revision: str, until: Callable[[str], bool], limit_s: float, reach_s: float
    ) -> tuple[str, str]:
        """State and message once `until` holds of the state, or it has failed.

        `Lost` when it could not be asked for `reach_s`; SwitchError when `limit_s` are over.
        """
        begun, pause = self._clock(), FIRST_LOOK_S
        heard = begun
        state, message = "", ""
        while True:
            lost: Optional[Lost] = None
            try:
                with self._connect() as https:
                    while True:
                        state, message = self._state(https, revision)
                        heard = self._clock()
                        if until(state) or failed(state):
                            return state, message
                        if state == SURE:
                            self.patch(revision, {"state": "ays_yes"})
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
            f"{': ' + message if message else ''}. Look at it with nv config revision."
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
        """Revisions that wait to be confirmed, with the switch's message."""
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
    """The switch's message on a transition, in one line."""
    transition = objects_at(revision, "transition")
    said = [
        str(at(issue, "message") or at(issue, "code") or "").strip()
        for issue in objects_at(transition, "issue").values()
    ]
    progress = str(transition.get("progress") or "").strip()
    return "; ".join(part for part in (progress, *said) if part)


if TYPE_CHECKING:
    import httpx

SERVICE = Service(
    "NVUE REST API",
    8765,
    "On the switch, nv show system api says whether it is on and where it listens.",
)
APPLY_LIMIT_S = 180
"""Longest time of an apply until it is in force."""
SAVE_LIMIT_S = 60
ATTEMPTS = 3
"""To keep a change whose answer got lost: the question is repeated, it does no harm twice."""


class NvueSwitch:
    """See `fabric.system.Switch`."""

    undone_within_s = 0

    def __init__(
        self,
        login: Login,
        transport: Optional[httpx.BaseTransport] = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login
        self._transport = transport
        self._revisions = Revisions(self._connect, where(login, SERVICE), sleep, clock)
        self._own = ""
        """The revision that this run put in force."""

    def _connect(self) -> Https:
        return Https(self._login, SERVICE, self._transport)

    def read(self) -> Present:
        waiting = self._revisions.waiting()
        self._refuse_waiting(waiting)
        with self._connect() as https:
            return read(https, unconfirmed=self._own in waiting)

    def _refuse_waiting(self, waiting: dict[str, str]) -> None:
        for revision, message in waiting.items():
            if revision != self._own:
                raise SwitchError(
                    f"{self._login.address}: revision {revision} waits to be confirmed"
                    f"{' (' + message + ')' if message else ''}: the change of an earlier run, or "
                    "of another user. The switch takes it back by itself (nv config apply "
                    "--confirm-status says when). Run again then."
                )

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        revisions = self._revisions
        self._refuse_waiting(revisions.waiting())  # since it was read
        if not difference.steps:
            save(revisions)
            return Saved()
        earlier = revisions.earlier()
        revision = revisions.create()
        applied = NvueApplied(self, revisions, revision, earlier)
        staged = False
        try:
            revisions.fill(revision, difference.steps)
            staged = True
        finally:
            if not staged:
                _try(lambda: revisions.discard(revision))
        self._own = revision
        asked: Optional[SwitchError] = None
        try:
            revisions.apply(revision, confirm_s)
        except Lost as error:
            asked = error  # the switch may have acted all the same
        except Refused:
            self._own = ""
            _try(lambda: revisions.discard(revision))
            raise
        state, message = self._in_force(applied, confirm_s)
        if not failed(state):
            return applied
        self._own = ""
        why = message or (str(asked) if asked else "the switch does not say why")
        problem = f"{revisions.where}: revision {revision} was not applied ({state}): {why}"
        if state == UNCONFIRMED:
            raise SwitchError(
                f"{revisions.where}: revision {revision} was in force, but the switch could not be "
                f"reached for the {confirm_s} s after which it takes a change back by itself: it "
                "has done so. Look whether the change cuts its management network off, or raise "
                "switch_qos_confirm_s."
            )
        if state == "invalid":
            _try(lambda: revisions.discard(revision))
            raise SwitchError(f"{problem}. Nothing of it is in force.")
        raise SwitchError(f"{problem}. {applied.restore()}")

    def _in_force(self, applied: NvueApplied, confirm_s: int) -> tuple[str, str]:
        """The state once the change is in force or has failed."""
        lost: Optional[Lost] = None
        try:
            return self._revisions.wait(
                applied.revision,
                lambda state: state == CONFIRM or in_force(state),
                APPLY_LIMIT_S + confirm_s,
                REACHABLE_AGAIN_S,
            )
        except Lost as error:
            lost = error
        raise SwitchError(
            f"{lost}. The connection went while revision {applied.revision} was being applied. The "
            f"switch takes it back by itself {confirm_s} s after it came into force."
        )

    def forget(self) -> None:
        """No change of this run is in force any more."""
        self._own = ""


class NvueApplied:
    """See `fabric.system.Applied`."""

    def __init__(
        self, switch: NvueSwitch, revisions: Revisions, revision: str, earlier: str
    ) -> None:
        self._switch = switch
        self._revisions = revisions
        self.revision = revision
        self.earlier = earlier
        self._saved_by_us = False
        self._gone_back = False

    def confirm(self) -> None:
        state, message = self._keep()
        if not in_force(state):
            raise SwitchError(
                f"{self._revisions.where}: revision {self.revision} is {state!r} and not kept"
                f"{': ' + message if message else ''}. The switch has taken it back."
            )
        self._save(state)

    def _keep(self) -> tuple[str, str]:
        lost: Optional[Lost] = None
        for _attempt in range(ATTEMPTS):
            try:
                state, message = self._revisions.state(self.revision)
                if state == CONFIRM:
                    self._revisions.answer(self.revision, yes=True)
                    return self._wait(in_force)
                return state, message
            except Lost as error:
                lost = error
        raise lost or SwitchError(f"{self._revisions.where}: not confirmed.")

    def _wait(self, until: Callable[[str], bool]) -> tuple[str, str]:
        return self._revisions.wait(self.revision, until, APPLY_LIMIT_S, REACHABLE_AGAIN_S)

    def _save(self, state: str) -> None:
        """So that it survives a restart; most switches have saved it by themselves."""
        if not saved(state):
            self._saved_by_us = True
            save(self._revisions)

    def rollback(self) -> None:
        """The saved configuration goes back too, where this run saved. Twice does no harm."""
        state = self._revisions.state(self.revision)[0]
        if state == CONFIRM:
            self._revisions.answer(self.revision, yes=False)
            state = self._wait(lambda now: now not in (CONFIRM, "confirm_no"))[0]
        if not self._gone_back and (in_force(state) or not failed(state)):
            self._refuse_newer()
            self._go_back()
        self._switch.forget()

    def _refuse_newer(self) -> None:
        """Going back to the earlier revision would undo what was applied after ours."""
        newer = self._revisions.newer(self.revision)
        if newer:
            raise SwitchError(
                f"{self._revisions.where}: revision {', '.join(newer)} was applied "
                f"after {self.revision}, and would be undone with it. Nothing was undone. On "
                f"the switch: nv config apply {self.earlier}, then again what the other one sets."
            )

    def _go_back(self) -> None:
        revisions = self._revisions
        revisions.apply(self.earlier)
        name = "applied" if self.earlier == "startup" else self.earlier
        state, message = revisions.wait(name, in_force, APPLY_LIMIT_S, REACHABLE_AGAIN_S)
        if not in_force(state):
            raise SwitchError(
                f"{revisions.where}: the earlier revision {self.earlier} was not applied again "
                f"({state}){': ' + message if message else ''}. On the switch: nv config apply "
                f"{self.earlier}."
            )
        if self._saved_by_us:
            self._save(state)
        self._gone_back = True

    def restore(self) -> str:
        """After an apply that failed half way: what is in force now, as a sentence."""
        try:
            self._go_back()
        except SwitchError as error:
            return f"Part of it may be in force: {error}"
        return f"Revision {self.earlier}, what was there before, was applied again."


def save(revisions: Revisions) -> None:
    """Saves all that is applied, an operator's changes too: NVUE has no other way."""
    revisions.patch("applied", {"state": "save", "auto-prompt": {"ays": "ays_yes"}})
    state, message = revisions.wait("applied", saved, SAVE_LIMIT_S, REACHABLE_AGAIN_S)
    if not saved(state):
        raise SwitchError(
            f"{revisions.where}: what is applied could not be saved ({state})"
            f"{': ' + message if message else ''}. It would be gone after a restart. Look at the "
            "free space of the switch."
        )


def _try(what: Callable[[], None]) -> None:
    """Only tidying up: a fault that matters is raised already."""
    try:
        what()
    except SwitchError:
        return
