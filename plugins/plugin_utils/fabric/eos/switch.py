# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One EOS switch over eAPI (JSON-RPC over HTTPS), changed in a configuration session.

`commit timer` puts a session in force, and a second `commit` confirms it. Otherwise EOS undoes it
when the timer expires; `abort` does so immediately. Neither changes startup-config, which is saved
separately: if saving fails, the next run saves.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

from ....module_utils.core.text import one_line
from ....module_utils.core.waiting import until
from ...answers import mapping, sequence
from ..base import SystemDriver
from ..counters import PortCounters
from ..https import Https, HttpsService, HttpsSwitch, Lost, text_of
from ..system import OWNED, Applied, Difference, Saved, SwitchError, SwitchLogin
from ..underlay import Underlay
from . import state
from .difference import difference
from .reading import (
    SESSION_PREFIX,
    Present,
    abandoned_sessions,
    report,
    session_with_timer,
    sessions,
)
from .render import wanted
from .settings import PROFILE, Settings, read_settings

SERVICE = HttpsService(
    "EOS eAPI", 443, "`management api http-commands`, `no shutdown` on the switch turns it on."
)
PATH = "/command-api"

SESSION_TIMEOUT_S = 120
"""For typing and committing a session of a few hundred lines, or for saving."""


class CommandError(SwitchError):
    """EOS refused a command."""


class Eapi(Https):
    def __init__(self, login: SwitchLogin, transport: Any = None) -> None:
        super().__init__(login, SERVICE, transport)

    def texts(self, commands: Sequence[str], timeout_s: Optional[float] = None) -> list[str]:
        return [str(answer.get("output", "")) for answer in self._run(commands, "text", timeout_s)]

    def shown(self, commands: Sequence[str]) -> list[Optional[dict[str, Any]]]:
        """The answers of show commands, by one request if EOS refuses none; None for those that it
        refuses."""
        try:
            return [*self.objects(commands)]
        except CommandError:
            if len(commands) == 1:
                return [None]
        return [self.shown([command])[0] for command in commands]

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
        answer = self.request("POST", PATH, body=body, timeout_s=timeout_s)
        if not isinstance(answer, dict):
            raise SwitchError(f"{self.where}: {PATH} answers no JSON-RPC. Is this port the eAPI?")
        if answer.get("error"):
            raise self._refused(typed, mapping(answer["error"]))
        results = sequence(answer.get("result"))
        if len(results) != len(typed):
            raise SwitchError(
                f"{self.where}: {len(typed)} commands were sent, {len(results)} answers came"
            )
        for command, result in zip(typed, results):
            if not isinstance(result, dict):
                kind = type(result).__name__
                raise SwitchError(f"{self.where}: `{command}` was answered by a {kind}, no object")
        return list(results[1:])

    def _refused(self, typed: Sequence[str], error: Mapping[str, Any]) -> SwitchError:
        data = sequence(error.get("data"))[: len(typed)]
        errors = sequence(mapping(data[-1]).get("errors")) if data else ()
        reason = text_of(json.dumps([*errors] or str(error.get("message", "no reason given"))))
        if not data:
            return SwitchError(f"{self.where}: EOS refuses the commands: {reason.rstrip('. ')}.")
        if len(data) == 1:
            reason += ". The user needs privileged mode without a further password (`privilege 15`)"
        return CommandError(
            f"{self.where}: EOS refuses `{typed[len(data) - 1]}`: {reason.rstrip('. ')}."
        )


SESSIONS = "show configuration sessions detail"
STATUS, NEIGHBOURS = "show interfaces status", "show lldp neighbors"
RUNNING = "show running-config"
QUEUES = "show running-config all | include tx-queue"
SAVE = "copy running-config startup-config"

RETRY_S = 3
PATIENCE_S = 90
"""How long to retry a switch that does not answer, to confirm or undo a change."""


class EosSwitch(HttpsSwitch):
    _session = ""

    def read(self) -> Present:
        with self.connected() as eapi:
            version, interfaces, detail = eapi.objects(["show version", STATUS, SESSIONS])
            waiting = session_with_timer(detail)
            if waiting.startswith(SESSION_PREFIX) and waiting != self._session:
                raise SwitchError(
                    f"{eapi.where}: a change of an earlier run waits for confirmation (session "
                    f"{waiting}). EOS undoes it when its timer expires: run again then, or undo "
                    f"it now with `configure session {waiting} abort`."
                )
            (running,) = eapi.texts([RUNNING])
            startup = _saved(eapi)
            known = _BLOCK.search(running) and (_MAP.search(running) or _OURS in running)
            shown = running if known else f"{running}\n{_queues(eapi)}"
            neighbours = _neighbours(eapi)
        return Present(
            version=one_line(f"{version.get('modelName', '')} {version.get('version', '')}")[:200],
            running=running,
            startup=startup,
            interfaces=mapping(interfaces.get("interfaceStatuses")),
            neighbours=neighbours,
            queue=_word(_BLOCK, shown),
            mapped=_word(_MAP, shown),
            unconfirmed=bool(waiting) and waiting == self._session,
        )

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        lines: tuple[str, ...] = difference.steps
        with self.connected() as eapi:
            self._abort_abandoned(eapi)
            if not lines:
                save(eapi)
                return Saved()
            name = self._session = SESSION_PREFIX + secrets.token_hex(4)
            minutes, seconds = divmod(confirm_s, 60)
            timer = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
            failure: Optional[SwitchError] = None
            try:
                eapi.texts(
                    [f"configure session {name}", *lines, f"commit timer {timer}"],
                    timeout_s=max(self._login.timeout_s, SESSION_TIMEOUT_S),
                )
            except SwitchError as error:
                failure = error
        if failure is not None:
            raise SwitchError(f"{failure} {self._after(name, confirm_s)}")
        return EosApplied(self, name)

    def _abort_abandoned(self, eapi: Eapi) -> None:
        """Abort open sessions of earlier runs, but not those of others."""
        (sessions,) = eapi.objects([SESSIONS])
        waiting = session_with_timer(sessions)
        if waiting:
            raise SwitchError(
                f"{eapi.where}: session {waiting} is in force and waits for confirmation. Have its "
                "owner commit or abort it, and run again."
            )
        for name in abandoned_sessions(sessions):
            eapi.texts([f"configure session {name} abort"])

    def _after(self, name: str, confirm_s: int) -> str:
        try:
            self.patiently(lambda eapi: _abort(eapi, name))
        except SwitchError as error:
            return (
                f"Whether anything of it is in force is unknown ({error}). If so, EOS undoes it "
                f"within {confirm_s} s."
            )
        return "Nothing of it is in force."

    def patiently(self, act: Callable[[Eapi], None]) -> None:
        """Call `act` with a new connection, and repeat while the switch does not answer."""
        lost: Optional[Lost] = None

        def done() -> bool:
            nonlocal lost
            lost = None
            try:
                with self.connected() as eapi:
                    act(eapi)
            except Lost as error:
                lost = error
            return lost is None

        until(done, PATIENCE_S, RETRY_S, clock=self._clock, sleep=self._sleep)
        if lost is not None:
            raise lost

    def connected(self) -> Eapi:
        return Eapi(self._login, self._transport)


class EosApplied:
    def __init__(self, switch: EosSwitch, session: str) -> None:
        self._switch = switch
        self._session = session
        self._proved: Optional[Settings] = None

    def confirm(self) -> None:
        self._switch.patiently(self._confirm)

    def _confirm(self, eapi: Eapi) -> None:
        """Can be repeated after a lost answer, as the switch may have kept or undone the change."""
        running, waits = _running(eapi), self._waits(eapi)
        if waits:
            self._proved = running
            eapi.texts([f"configure session {self._session} commit"], timeout_s=SESSION_TIMEOUT_S)
            running, waits = _running(eapi), self._waits(eapi)
        if waits:
            raise SwitchError(
                f"{eapi.where}: session {self._session} was committed again, and still waits "
                "for confirmation."
            )
        if running != self._proved:
            raise SwitchError(
                f"{eapi.where}: session {self._session} no longer waits for confirmation, and its "
                "change is not in force: its timer has expired, and EOS has undone it. Nothing "
                "was saved. Raise switch_qos_confirm_s."
            )
        save(eapi)

    def _waits(self, eapi: Eapi) -> bool:
        (sessions,) = eapi.objects([SESSIONS])
        return session_with_timer(sessions) == self._session

    def rollback(self) -> None:
        """Abort a session that waits. A confirmed one stays in force and may be unsaved."""
        self._switch.patiently(lambda eapi: _abort(eapi, self._session))


def save(eapi: Eapi) -> None:
    (printed,) = eapi.texts([SAVE], timeout_s=SESSION_TIMEOUT_S)
    if _running(eapi) != read_settings(_saved(eapi)):
        raise SwitchError(
            f"{eapi.where}: `{SAVE}` did not save ({' '.join(printed.split()) or 'no message'}): "
            "a restart would load the former configuration. Is its flash full or "
            "read-only (`dir flash:`)?"
        )


def _abort(eapi: Eapi, name: str) -> None:
    """Unless it is confirmed, undone by its timer, or does not exist."""
    (detail,) = eapi.objects([SESSIONS])
    state = sessions(detail).get(name, {}).get("state")
    if session_with_timer(detail) != name and state != "pending":
        return
    eapi.texts([f"configure session {name} abort"], timeout_s=SESSION_TIMEOUT_S)
    (detail,) = eapi.objects([SESSIONS])
    if session_with_timer(detail) == name:
        raise SwitchError(f"{eapi.where}: session {name} was aborted, and is still in force.")


def _running(eapi: Eapi) -> Settings:
    (running,) = eapi.texts([RUNNING])
    return read_settings(running)


def _saved(eapi: Eapi) -> str:
    """The saved configuration; empty if it was never saved, which EOS refuses to show."""
    try:
        (startup,) = eapi.texts(["show startup-config"])
    except CommandError:
        return ""
    return startup


# The platform's keyword for a unicast queue. The map of traffic classes may use another one: guides
# for EOS 4.36 have `uc-tx-queue 3` below a port and `qos map traffic-class 3 to tx-queue 3` on one
# switch.

_BLOCK = re.compile(r"^[ \t]*((?:uc-)?tx-queue) [0-9]+[ \t\r]*$", re.MULTILINE)
_MAP = re.compile(r"^qos map traffic-class [0-9, -]+ to ((?:uc-)?tx-queue) [0-9]", re.MULTILINE)


_OURS = f"{PROFILE}{OWNED}\n"
"""With this profile the map was typed too, so its defaults need not be read."""


def _queues(eapi: Eapi) -> str:
    """The queues of each port and the whole map, from the configuration with defaults."""
    try:
        (shown,) = eapi.texts([QUEUES], timeout_s=SESSION_TIMEOUT_S)
    except CommandError:
        return ""
    return shown


def _word(line: re.Pattern[str], shown: str) -> str:
    match = line.search(shown)
    return match[1] if match else ""


def _neighbours(eapi: Eapi) -> Optional[tuple[Mapping[str, Any], ...]]:
    (answer,) = eapi.shown([NEIGHBOURS])
    if answer is None:
        return None
    return tuple(map(mapping, sequence(answer.get("lldpNeighbors"))))


def underlay(switch: EosSwitch) -> Underlay:
    with switch.connected() as eapi:
        return state.read_underlay(eapi.shown)


def counters(switch: EosSwitch, ports: Sequence[str]) -> dict[str, PortCounters]:
    with switch.connected() as eapi:
        return state.read_counters(eapi.shown, ports)


DRIVER = SystemDriver(wanted, difference, report, EosSwitch, underlay, counters)
