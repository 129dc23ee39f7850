# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One NVUE switch over its REST interface: revisions are created, filled, applied and confirmed.

An apply with `state-controls.confirm` waits in state `confirm` for that time; unless it is answered
with `confirm_yes`, the switch applies the previous configuration. NVIDIA's own client waits for
state `ays` instead (nv-config-manager, 0f569b0f, cumulus.py): if the change is in force already,
that is answered only after the change is verified.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional
from urllib.parse import quote

from ..base import SystemDriver
from ..counters import PortCounters
from ..https import Https, HttpsService, HttpsSwitch, Lost, Refused, where
from ..system import Applied, Difference, Saved, SwitchError
from ..underlay import Underlay
from .objects import difference, wanted
from .reading import ROOT, Present, read, report
from .state import read_counters, read_underlay
from .tree import Tree, at, objects_at

SERVICE = HttpsService(
    "NVUE REST API",
    8765,
    "On the switch, nv show system api shows whether it is on and where it listens.",
)
CONFIRM = "confirm"
"""It is in force and waits for confirmation."""
UNCONFIRMED = "confirm_fail"
"""It was in force until the switch undid it."""
SURE = "ays"
"""It asks for confirmation although `auto-prompt` was sent."""
YES = {SURE: "ays_yes"}

FIRST_LOOK_S, LONGEST_PAUSE_S, BACKOFF = 0.1, 5.0, 1.6
REACHABLE_AGAIN_S = 20
"""Time within which a switch that reloads its web server answers again."""
APPLY_LIMIT_S = 180
SAVE_LIMIT_S = 60
NEWEST = 3
"""Number of earlier revisions to compare with the applied configuration."""
ATTEMPTS = 3
"""To confirm a change if the answer is lost. Repeating the request is harmless."""


def in_force(state: str) -> bool:
    return state.startswith("applied")


def saved(state: str) -> bool:
    return "saved" in state


def failed(state: str) -> bool:
    return state in ("invalid", "detached", "inactive") or state.endswith(("_fail", "_error"))


class NvueSwitch(HttpsSwitch):
    """Every call opens a connection, since an apply can restart the web server."""

    own = ""
    """The revision that this run applied."""
    _before: Optional[Tree] = None
    """The configuration applied before it."""
    _confirms_by_ays = False

    @property
    def where(self) -> str:
        return where(self._login, SERVICE)

    def connected(self) -> Https:
        return Https(self._login, SERVICE, self._transport)

    def _ask(self, method: str, path: str, query: Any = None, body: Any = None) -> Any:
        with self.connected() as https:
            return https.request(method, f"{ROOT}{path}", query, body)

    def read(self) -> Present:
        waiting = self._refuse_waiting()
        with self.connected() as https:
            return read(https, unconfirmed=self.own in waiting)

    def _refuse_waiting(self) -> set[str]:
        """Revisions that wait for confirmation. Raises SwitchError for one of somebody else."""
        asked = (CONFIRM, SURE)
        waiting = {
            name: details for name, details in self._all().items() if at(details, "state") in asked
        }
        for revision, details in waiting.items():
            if revision != self.own:
                issues = _issues(details)
                raise SwitchError(
                    f"{self._login.address}: revision {revision} waits to be confirmed"
                    f"{' (' + issues + ')' if issues else ''}: the change of an earlier run, or "
                    "of another user. The switch will undo it (nv config apply --confirm-status "
                    "shows when). Run again then."
                )
        return set(waiting)

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        self._refuse_waiting()  # again, as time has passed since the switch was read
        if not difference.steps:
            self.save()
            return Saved()
        self._confirms_by_ays = False
        earlier = self._earlier()
        made = self._ask("POST", "revision")
        if not isinstance(made, Mapping) or not made:
            raise SwitchError(f"{self.where}: POST revision: the answer names no revision.")
        revision = str(next(iter(made)))
        applied = NvueApplied(self, revision, earlier)
        self.own = revision
        try:
            self._fill(revision, difference.steps)
        except BaseException:
            self._discard(revision)
            raise
        lost = ""
        try:
            self.patch(revision, {"state": "apply", "state-controls": {"confirm": confirm_s}})
        except Lost as error:
            lost = str(error)  # the switch may have acted
        except Refused:
            self._discard(revision)
            raise
        state, message = self._applied(revision, confirm_s)
        if not failed(state):
            return applied
        self.own = ""
        if state == UNCONFIRMED:
            raise SwitchError(
                f"{self.where}: revision {revision} was in force, but the switch could not be "
                f"reached for the {confirm_s} s after which it undoes a change, and it did so. "
                "Does the change interrupt its network? Otherwise raise switch_qos_confirm_s."
            )
        reason = message or lost or "the switch gives no reason"
        problem = f"{self.where}: revision {revision} was not applied ({state}): {reason}"
        if state == "invalid":
            self._discard(revision)
            raise SwitchError(f"{problem}. Nothing of it is in force.")
        try:
            applied.go_back()
        except SwitchError as error:
            raise SwitchError(f"{problem}. Part of it may be in force: {error}") from None
        raise SwitchError(f"{problem}. Revision {earlier}, the former one, was applied again.")

    def _fill(self, revision: str, steps: Tree) -> None:
        try:
            self._ask("PATCH", "", {"rev": revision}, steps)
        except Refused as error:
            # Only a switch with RoCE enabled shows whether the release has this key.
            roce = {**objects_at(steps, "qos", "roce")}
            if error.status not in (400, 422) or roce.pop("cable-length", None) is None:
                raise
            less = {**steps, "qos": {**steps["qos"], "roce": roce}}
            self._ask("PATCH", "", {"rev": revision}, less)

    def _discard(self, revision: str) -> None:
        self.own = ""
        with contextlib.suppress(SwitchError):  # the relevant fault is already raised
            self._ask("DELETE", _of(revision))

    def _applied(self, revision: str, confirm_s: int) -> tuple[str, str]:
        try:
            return self.wait(
                revision,
                lambda state: state == CONFIRM or in_force(state),
                APPLY_LIMIT_S + confirm_s,
            )
        except Lost as error:
            raise SwitchError(
                f"{error}. The connection was lost while revision {revision} was being applied. "
                f"The switch undoes it {confirm_s} s after it came into force."
            ) from None

    def _all(self) -> Tree:
        return objects_at(self._ask("GET", "revision"))

    def applied(self) -> list[str]:
        """Revisions that are in force, or were until another was applied."""
        return [
            name for name, details in self._all().items() if in_force(str(at(details, "state")))
        ]

    def _earlier(self) -> str:
        """The revision with the configuration applied now: applying it again undoes a change."""
        written = {"filled": "false"}
        applied = self._before = self._ask("GET", "", {"rev": "applied", **written})
        held = self.applied()
        for name in (*sorted(held, key=_age, reverse=True)[:NEWEST], "startup"):
            with contextlib.suppress(Refused):
                if self._ask("GET", "", {"rev": name, **written}) == applied:
                    return name
        raise SwitchError(
            f"{self.where}: no earlier revision has the applied configuration, so a change could "
            "not be undone. On the switch, save its configuration (nv config save), then run "
            "again."
        )

    def patch(self, revision: str, body: Tree) -> None:
        prompts = {"auto-prompt": {**YES, **body.pop("auto-prompt", {})}}
        self._ask("PATCH", _of(revision), body={**body, **prompts})

    def answer(self, revision: str, word: str) -> None:
        """Answer an apply that waits for confirmation, as the release expects."""
        if self._confirms_by_ays:
            word = word.replace(CONFIRM, SURE)
            self.patch(revision, {"state": "apply", "auto-prompt": {SURE: word}})
            return
        try:
            self._ask("PATCH", _of(revision), body={"state": word})
        except Refused as error:
            if error.status not in (400, 422):
                raise
            self.patch(revision, {"state": "apply", "auto-prompt": {"confirm": word}})

    def state(self, revision: str) -> tuple[str, str]:
        found = self._ask("GET", _of(revision))
        # Some answers nest the revision under its number.
        found = objects_at(found, revision) or objects_at(found)
        state = str(found.get("state", ""))
        if state == SURE and revision == self.own and self._is_in_force():
            state = CONFIRM
        return state, _issues(found)

    def _is_in_force(self) -> bool:
        """Whether a revision that asks is in force, so that it asks for confirmation."""
        if not self._confirms_by_ays:
            query = {"rev": "applied", "filled": "false"}
            self._confirms_by_ays = self._ask("GET", "", query) != self._before
        return self._confirms_by_ays

    def wait(self, revision: str, until: Callable[[str], bool], limit_s: float) -> tuple[str, str]:
        """Return state and message when `until` holds for the state, or it has failed. Raises Lost
        if the switch is cut off, and SwitchError after `limit_s`."""
        begun, pause = self._clock(), FIRST_LOOK_S
        heard = begun
        while True:
            try:
                state, message = self.state(revision)
                heard = self._clock()
                if until(state) or failed(state):
                    return state, message
                if state == SURE:
                    self._ask("PATCH", _of(revision), body={"state": "ays_yes"})
                if heard - begun >= limit_s:
                    break
            except Lost:
                if self._clock() - heard >= REACHABLE_AGAIN_S:
                    raise
            self._sleep(pause)
            pause = min(pause * BACKOFF, LONGEST_PAUSE_S)
        raise SwitchError(
            f"{self.where}: revision {revision} is in state {state!r} after {limit_s:g} s"
            f"{': ' + message if message else ''}. See nv config revision."
        )

    def save(self) -> None:
        self.patch("applied", {"state": "save"})
        state, message = self.wait("applied", saved, SAVE_LIMIT_S)
        if not saved(state):
            raise SwitchError(
                f"{self.where}: the applied configuration could not be saved ({state})"
                f"{': ' + message if message else ''}. A restart would lose it. Check the free "
                "space of the switch."
            )


class NvueApplied:
    def __init__(self, switch: NvueSwitch, revision: str, earlier: str) -> None:
        self._switch = switch
        self._revision = revision
        self._earlier = earlier
        self._by_hand = f"nv config apply {shlex.quote(earlier)}"
        self._saved = False

    def confirm(self) -> None:
        state, message = self._keep()
        if not in_force(state):
            raise SwitchError(
                f"{self._switch.where}: revision {self._revision} is {state!r} and not kept"
                f"{': ' + message if message else ''}. The switch has undone it."
            )
        self._save(state)

    def _keep(self) -> tuple[str, str]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                state, message = self._switch.state(self._revision)
                if state != CONFIRM:
                    break
                self._switch.answer(self._revision, "confirm_yes")
                return self._switch.wait(self._revision, in_force, APPLY_LIMIT_S)
            except Lost:
                if attempt == ATTEMPTS:
                    raise
        return state, message

    def _save(self, state: str) -> None:
        if not saved(state):
            self._saved = True
            self._switch.save()

    def rollback(self) -> None:
        state = self._switch.state(self._revision)[0]
        if state == CONFIRM:
            self._switch.answer(self._revision, "confirm_no")
            over = self._switch.wait(
                self._revision, lambda now: now not in (CONFIRM, "confirm_no"), APPLY_LIMIT_S
            )
            state = over[0]
        if not failed(state):
            self._refuse_newer()
            self.go_back()
        self._switch.own = ""

    def _refuse_newer(self) -> None:
        """Raise SwitchError if going back would undo someone else's later change."""
        newer = [name for name in self._switch.applied() if _age(name) > _age(self._revision)]
        if newer:
            raise SwitchError(
                f"{self._switch.where}: revision {', '.join(newer)} was applied after "
                f"{self._revision}, and would be undone with it. Nothing was undone. On the "
                f"switch: {self._by_hand}, then apply the later change again."
            )

    def go_back(self) -> None:
        self._switch.patch(self._earlier, {"state": "apply"})
        name = "applied" if self._earlier == "startup" else self._earlier
        state, message = self._switch.wait(name, in_force, APPLY_LIMIT_S)
        if not in_force(state):
            raise SwitchError(
                f"{self._switch.where}: the earlier revision {self._earlier} was not applied again "
                f"({state}){': ' + message if message else ''}. On the switch: {self._by_hand}."
            )
        if self._saved:
            self._save(state)


def _of(revision: str) -> str:
    return f"revision/{quote(revision, safe='')}"


def _age(name: str) -> tuple[int, str]:
    """Sort key: numbers increase; names in older releases end with their time of creation."""
    return (int(name), "") if name.isdecimal() else (-1, name.rpartition("/")[2])


def _issues(revision: Any) -> str:
    transition = objects_at(revision, "transition")
    issues = objects_at(transition, "issue").values()
    texts = [at(issue, "message") or at(issue, "code") for issue in issues]
    lines = (str(text or "").strip() for text in (transition.get("progress"), *texts))
    return "; ".join(filter(None, lines))


def underlay(switch: NvueSwitch) -> Underlay:
    with switch.connected() as https:
        return read_underlay(https)


def counters(switch: NvueSwitch, ports: Sequence[str]) -> dict[str, PortCounters]:
    with switch.connected() as https:
        return read_counters(https, ports)


DRIVER = SystemDriver(wanted, difference, report, NvueSwitch, underlay, counters)
