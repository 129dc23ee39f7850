# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One EOS switch over eAPI (JSON-RPC over HTTPS): read, and changed in a configuration session.

`commit timer` puts a session in force; a second `commit` of it keeps that. Otherwise EOS undoes it
when the timer ends, and `abort` does so at once. Neither touches startup-config, which is saved by
a command of its own.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional, TypeVar

from ..https import Https, Lost, Service
from ..system import Applied, Difference, Login, Saved, SwitchError
from .difference import Steps
from .reading import SESSION_PREFIX, Present, abandoned_sessions, session_with_timer
from .reading import sessions as named
from .settings import read_settings

SERVICE = Service(
    "EOS eAPI", 443, "`management api http-commands`, `no shutdown` on the switch turns it on."
)
PATH = "/command-api"

SESSION_TIMEOUT_S = 120
"""To type and commit a session of some hundred lines, or to save: seconds on a busy switch."""


class CommandError(SwitchError):
    """EOS refused a command. `said`: its own words."""

    def __init__(self, where: str, command: str, said: str) -> None:
        super().__init__(f"{where}: EOS refuses `{command}`: {said.rstrip('. ')}.")
        self.command = command
        self.said = said


class Eapi:
    """One connection, open while in use as a context manager. `transport` is for tests."""

    def __init__(self, login: Login, transport: Any = None) -> None:
        self._https = Https(login, SERVICE, transport)
        self.where = self._https.where

    def __enter__(self) -> Eapi:
        self._https.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self._https.__exit__(*details)

    def texts(self, commands: Sequence[str], timeout_s: Optional[float] = None) -> list[str]:
        """What each command prints."""
        return [str(answer.get("output", "")) for answer in self._run(commands, "text", timeout_s)]

    def objects(self, commands: Sequence[str]) -> list[dict[str, Any]]:
        return self._run(commands, "json", None)

    def _run(
        self, commands: Sequence[str], form: str, timeout_s: Optional[float]
    ) -> list[dict[str, Any]]:
        typed = ["enable", *commands]
        body = {
            "jsonrpc": "2.0",
            "method": "runCmds",
            "params": {"version": 1, "cmds": typed, "format": form},
            "id": "baremetal",
        }
        answer = self._https.request("POST", PATH, body=body, timeout_s=timeout_s)
        if not isinstance(answer, dict):
            raise SwitchError(f"{self.where}: {PATH} answers no JSON-RPC. Is this port the eAPI?")
        if answer.get("error"):
            raise self._refused(typed, answer["error"])
        results: list[dict[str, Any]] = answer.get("result") or []
        if len(results) != len(typed):
            raise SwitchError(
                f"{self.where}: {len(typed)} commands were sent, {len(results)} answers came"
            )
        return results[1:]

    def _refused(self, typed: Sequence[str], error: dict[str, Any]) -> SwitchError:
        """`data` has one entry for each command that ran, the refused one last."""
        data = error.get("data") or []
        errors = data[-1].get("errors") or [] if data else []
        said = "; ".join(map(str, errors)) or str(error.get("message", "no reason given"))
        if not data:
            return SwitchError(f"{self.where}: EOS refuses the commands: {said.rstrip('. ')}.")
        if len(data) == 1:
            said += ". The user needs privileged mode without a further password (`privilege 15`)"
        return CommandError(self.where, typed[len(data) - 1], said)


SESSIONS = "show configuration sessions detail"
STATUS, NEIGHBOURS = "show interfaces status", "show lldp neighbors"
RUNNING = "show running-config"
SAVE = "copy running-config startup-config"

RETRY_S = 3
PATIENCE_S = 90
"""So long a switch that does not answer is asked again to undo a change."""

Answer = TypeVar("Answer")


class EosSwitch:
    undone_within_s = 0

    def __init__(
        self,
        login: Login,
        transport: Any = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._login = login
        self._transport = transport
        self._sleep = sleep
        self._clock = clock
        self._session = ""
        """The one that this object put in force."""

    def __repr__(self) -> str:
        return f"EosSwitch({self._login.address})"

    def read(self) -> Present:
        with self.connected() as eapi:
            version, interfaces, detail = eapi.objects(["show version", STATUS, SESSIONS])
            waiting = session_with_timer(detail)
            if waiting.startswith(SESSION_PREFIX) and waiting != self._session:
                raise SwitchError(
                    f"{eapi.where}: a change of an earlier run still waits to be confirmed "
                    f"(session {waiting}). EOS undoes it by itself when its timer ends: run again "
                    f"then, or undo it now with `configure session {waiting} abort`."
                )
            (running,) = eapi.texts([RUNNING])
            startup = _saved(eapi)
            neighbours = _neighbours(eapi)
        return Present(
            version=f"{version.get('modelName', '')} {version.get('version', '')}".strip(),
            running=running,
            startup=startup,
            interfaces=interfaces.get("interfaceStatuses") or {},
            neighbours=neighbours,
            unconfirmed=bool(waiting) and waiting == self._session,
        )

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        steps: Steps = difference.steps
        with self.connected() as eapi:
            self._make_way(eapi)
            if not steps.lines:
                save(eapi)
                return Saved()
            saved = _saved(eapi)
            name = self._session = SESSION_PREFIX + secrets.token_hex(4)
            failure: Optional[SwitchError] = None
            try:
                eapi.texts(
                    [
                        f"configure session {name}",
                        *steps.lines,
                        "show session-config diffs",
                        f"commit timer {_clock_time(confirm_s)}",
                    ],
                    timeout_s=max(self._login.timeout_s, SESSION_TIMEOUT_S),
                )
            except SwitchError as error:
                failure = error
        if failure is not None:
            raise SwitchError(f"{failure} {self._after(name, confirm_s)}")
        return EosApplied(self, name, steps, saved)

    def _make_way(self, eapi: Eapi) -> None:
        """Abort open sessions of earlier runs; never those of others."""
        (sessions,) = eapi.objects([SESSIONS])
        waiting = session_with_timer(sessions)
        if waiting:
            raise SwitchError(
                f"{eapi.where}: session {waiting} is in force and waits to be confirmed. Have it "
                "committed or aborted by whom it belongs to, and run again."
            )
        for name in abandoned_sessions(sessions):
            eapi.texts([f"configure session {name} abort"])

    def _after(self, name: str, confirm_s: int) -> str:
        """What is left of a session that failed, as a sentence."""
        try:
            self.undo_session(name)
        except SwitchError as error:
            return (
                f"Whether anything of it is in force is not known ({error}). If so, EOS undoes it "
                f"by itself within {confirm_s} s."
            )
        return "Nothing of it is in force."

    def undo_session(self, name: str) -> bool:
        """Abort a session, which takes it back where it is in force. False: it is over already."""
        return self.patiently(lambda eapi: _abort(eapi, name))

    def patiently(self, act: Callable[[Eapi], Answer]) -> Answer:
        """Do it on a new connection, again while the switch does not answer."""
        given_up = self._clock() + PATIENCE_S
        while True:
            try:
                with self.connected() as eapi:
                    return act(eapi)
            except Lost:
                if self._clock() >= given_up:
                    raise
            self._sleep(RETRY_S)

    def connected(self) -> Eapi:
        return Eapi(self._login, self._transport)


class EosApplied:
    """A session whose commit timer runs."""

    def __init__(self, switch: EosSwitch, session: str, steps: Steps, saved: str) -> None:
        self._switch = switch
        self._session = session
        self._steps = steps
        self._saved = saved
        """The former startup-config."""
        self._confirmed = False
        """A confirmation was sent; its answer may be lost."""

    def confirm(self) -> None:
        with self._switch.connected() as eapi:
            (before,) = eapi.texts([RUNNING])
            (sessions,) = eapi.objects([SESSIONS])
            if session_with_timer(sessions) != self._session:
                raise SwitchError(
                    f"{eapi.where}: session {self._session} waits no longer to be confirmed: its "
                    "timer has ended, and EOS has undone it. Raise switch_qos_confirm_s."
                )
            self._confirmed = True
            eapi.texts([f"configure session {self._session} commit"], timeout_s=SESSION_TIMEOUT_S)
            (sessions,) = eapi.objects([SESSIONS])
            if session_with_timer(sessions) == self._session:
                raise SwitchError(
                    f"{eapi.where}: session {self._session} was committed again, and still waits "
                    "to be confirmed."
                )
            (after,) = eapi.texts([RUNNING])
            if read_settings(after) != read_settings(before):
                raise SwitchError(
                    f"{eapi.where}: session {self._session} was committed again, and its change is "
                    "not what is in force now. Nothing was saved."
                )
            save(eapi)

    def rollback(self) -> None:
        undone = self._switch.undo_session(self._session)
        if self._confirmed:
            self._switch.patiently(lambda eapi: self._put_back(eapi, undone))

    def _put_back(self, eapi: Eapi, undone: bool) -> None:
        """After a confirmation that may have taken place: running and saved configuration."""
        if not undone and self._steps.undo:
            name = SESSION_PREFIX + secrets.token_hex(4)
            try:
                eapi.texts(
                    [f"configure session {name}", *self._steps.undo, "commit"],
                    timeout_s=SESSION_TIMEOUT_S,
                )
            except CommandError:
                _abort(eapi, name)
                raise
        if read_settings(_saved(eapi)) != read_settings(self._saved):
            save(eapi)


def save(eapi: Eapi) -> None:
    """Saves all that runs, the operator's changes too: EOS has no other way."""
    (said,) = eapi.texts([SAVE], timeout_s=SESSION_TIMEOUT_S)
    (running,) = eapi.texts([RUNNING])
    if read_settings(running) != read_settings(_saved(eapi)):
        raise SwitchError(
            f"{eapi.where}: `{SAVE}` did not save ({_words(said)}): the switch would come up with "
            "the former configuration. Is its flash full or read-only (`dir flash:`)?"
        )


def _abort(eapi: Eapi, name: str) -> bool:
    """False where the session is over: confirmed, undone by its timer, or never there."""
    (sessions,) = eapi.objects([SESSIONS])
    state = named(sessions).get(name, {}).get("state")
    if session_with_timer(sessions) != name and state != "pending":
        return False
    eapi.texts([f"configure session {name} abort"], timeout_s=SESSION_TIMEOUT_S)
    (sessions,) = eapi.objects([SESSIONS])
    if session_with_timer(sessions) == name:
        raise SwitchError(f"{eapi.where}: session {name} was aborted, and is still in force.")
    return True


def _saved(eapi: Eapi) -> str:
    """EOS refuses to show a configuration that was never saved."""
    try:
        (startup,) = eapi.texts(["show startup-config"])
    except CommandError:
        return ""
    return startup


def _neighbours(eapi: Eapi) -> Optional[tuple[dict[str, Any], ...]]:
    try:
        (answer,) = eapi.objects([NEIGHBOURS])
    except CommandError:
        return None
    return tuple(answer.get("lldpNeighbors") or ())


def _clock_time(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _words(text: str) -> str:
    return " ".join(text.split()) or "no message"
