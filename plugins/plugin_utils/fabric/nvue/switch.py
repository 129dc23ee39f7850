# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One switch over its REST interface: read, apply with the switch's own timer, keep, take back."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Optional

from ..https import Https, Service, where
from ..https_errors import Lost, Refused
from ..system import Applied, Difference, Login, SwitchError
from .reading import Present, read
from .revisions import (
    CONFIRM,
    REACHABLE_AGAIN_S,
    UNCONFIRMED,
    Revisions,
    failed,
    in_force,
    saved,
)

if TYPE_CHECKING:
    import httpx

SERVICE = Service(
    "NVUE REST API",
    8765,
    "On the switch, nv show system api says whether it is on and where it listens.",
)
APPLY_LIMIT_S = 180
"""How long an apply may take until it is in force, beyond which nobody waits."""
SAVE_LIMIT_S = 60
ATTEMPTS = 3
"""To keep a change whose answer got lost: the question is repeated, it does no harm twice."""


class NvueSwitch:
    """See `fabric.system.Switch`."""

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
        """The revision that this run has put in force."""

    def _connect(self) -> Https:
        return Https(self._login, SERVICE, self._transport)

    def read(self) -> Present:
        waiting = self._revisions.waiting()
        self._nobody_else(waiting)
        with self._connect() as https:
            return read(https, unconfirmed=self._own in waiting)

    def _nobody_else(self, waiting: dict[str, str]) -> None:
        for revision, told in waiting.items():
            if revision != self._own:
                raise SwitchError(
                    f"{self._login.address}: revision {revision} waits to be confirmed"
                    f"{' (' + told + ')' if told else ''}: the change of an earlier run, or "
                    "somebody else's. The switch takes it back by itself (nv config apply "
                    "--confirm-status says when). Run again then."
                )

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        revisions = self._revisions
        self._nobody_else(revisions.waiting())  # since it was read
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
            asked = error  # it may have been heard all the same
        except Refused:
            self._own = ""
            _try(lambda: revisions.discard(revision))
            raise
        state, told = self._in_force(applied, confirm_s)
        if not failed(state):
            return applied
        self._own = ""
        why = told or (str(asked) if asked else "the switch does not say why")
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
        """Nothing of ours is in force any more."""
        self._own = ""


class Saved:
    """All was in force, and is saved now: there is nothing to keep, and nothing to take back."""

    def confirm(self) -> None:
        return

    def rollback(self) -> None:
        return


class NvueApplied:
    """See `fabric.system.Applied`."""

    def __init__(
        self, switch: NvueSwitch, revisions: Revisions, revision: str, earlier: str
    ) -> None:
        self._switch = switch
        self._revisions = revisions
        self.revision = revision
        self.earlier = earlier
        self._told_to_save = False
        self._gone_back = False

    def confirm(self) -> None:
        state, told = self._keep()
        if not in_force(state):
            raise SwitchError(
                f"{self._revisions.where}: revision {self.revision} is {state!r} and not kept"
                f"{': ' + told if told else ''}. The switch has taken it back."
            )
        self._save(state)

    def _keep(self) -> tuple[str, str]:
        lost: Optional[Lost] = None
        for _attempt in range(ATTEMPTS):
            try:
                state, told = self._revisions.state(self.revision)
                if state == CONFIRM:
                    self._revisions.answer(self.revision, yes=True)
                    return self._wait(in_force)
                return state, told
            except Lost as error:
                lost = error
        raise lost or SwitchError(f"{self._revisions.where}: not confirmed.")

    def _wait(self, until: Callable[[str], bool]) -> tuple[str, str]:
        return self._revisions.wait(self.revision, until, APPLY_LIMIT_S, REACHABLE_AGAIN_S)

    def _save(self, state: str) -> None:
        """So that it survives a restart. Most switches have done it by themselves by now."""
        if not saved(state):
            self._told_to_save = True
            save(self._revisions)

    def rollback(self) -> None:
        """Also what is saved goes back, where it had been told to save. Twice does no harm."""
        state = self._revisions.state(self.revision)[0]
        if state == CONFIRM:
            self._revisions.answer(self.revision, yes=False)
            state = self._wait(lambda now: now not in (CONFIRM, "confirm_no"))[0]
        if not self._gone_back and (in_force(state) or not failed(state)):
            self._nobody_since()
            self._go_back()
        self._switch.forget()

    def _nobody_since(self) -> None:
        """To go back to the earlier revision would take along what was applied after ours."""
        newer = self._revisions.newer(self.revision)
        if newer:
            raise SwitchError(
                f"{self._revisions.where}: revision {', '.join(newer)} was applied by somebody "
                f"else after {self.revision}, and would be undone with it. It is left as it is. On "
                f"the switch: nv config apply {self.earlier}, then again what the other one sets."
            )

    def _go_back(self) -> None:
        revisions = self._revisions
        revisions.apply(self.earlier)
        name = "applied" if self.earlier == "startup" else self.earlier
        state, told = revisions.wait(name, in_force, APPLY_LIMIT_S, REACHABLE_AGAIN_S)
        if not in_force(state):
            raise SwitchError(
                f"{revisions.where}: the earlier revision {self.earlier} was not applied again "
                f"({state}){': ' + told if told else ''}. On the switch: nv config apply "
                f"{self.earlier}."
            )
        if self._told_to_save:
            self._save(state)
        self._gone_back = True

    def restore(self) -> str:
        """After an apply that failed half way: a sentence that says what is in force now."""
        try:
            self._go_back()
        except SwitchError as error:
            return f"Part of it may be in force: {error}"
        return f"Revision {self.earlier}, what was there before, was applied again."


def save(revisions: Revisions) -> None:
    """All that is applied, as NVUE knows no other way: an operator's changes as well."""
    revisions.tell("applied", {"state": "save", "auto-prompt": {"ays": "ays_yes"}})
    state, told = revisions.wait("applied", saved, SAVE_LIMIT_S, REACHABLE_AGAIN_S)
    if not saved(state):
        raise SwitchError(
            f"{revisions.where}: what is applied could not be saved ({state})"
            f"{': ' + told if told else ''}. It would be gone after a restart. Look at the "
            "free space of the switch."
        )


def _try(what: Callable[[], None]) -> None:
    """What is only tidying: a fault that matters is on its way already."""
    try:
        what()
    except SwitchError:
        return
