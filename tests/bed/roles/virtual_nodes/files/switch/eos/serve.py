# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulation of an EOS switch as seen through eAPI."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from common.server import Answer, Request, Surroundings, main
from common.traffic import Traffic

from eos import grammar, routing
from eos.grammar import Failed, Mode, Refused
from eos.sessions import Session, Sessions
from eos.show import Shows

DENIED = Answer(
    401,
    "Unable to authenticate user: Bad username/password combination\n",
    {"WWW-Authenticate": 'Basic realm="COMMAND_API_AUTH"'},
)
SAVE = "copy running-config startup-config"
COPIED = "Copy completed successfully."
IN_TEXT = (
    "show running-config",
    "show startup-config",
    "show session-config diffs",
    "show running-config all | include tx-queue",
)
PRIVILEGED = ("configure", "copy")


class RpcError(Exception):
    def __init__(self, code: int, message: str, data: Optional[list[Any]] = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, **({"data": data} if data else {})}


@dataclass
class Shell:
    """Progress of the commands of one request."""

    privileged: bool = False
    modes: list[Mode] = field(default_factory=list)
    session: Optional[Session] = None


class Arista:
    def __init__(self, surroundings: Surroundings) -> None:
        self._hardware = surroundings.hardware
        self._faults = surroundings.faults
        self._log = surroundings.log
        self._sessions = Sessions(surroundings)
        self._shows = Shows(surroundings.hardware, surroundings.faults, self._sessions)
        self._routing = routing.shows(Traffic(surroundings.hardware))

    def cut_by(self, cut: Callable[[], None]) -> None:
        self._sessions.cut = cut

    def handle(self, request: Request) -> Answer:
        delay = self._faults.take("delay_s")
        if delay:
            time.sleep(float(delay))
        if request.path != "/command-api":
            return Answer(404, "Not Found\n")
        if request.method != "POST":
            return Answer(405, "Method Not Allowed\n")
        call: Any = None
        try:
            call = json.loads(request.body)
            result = self._call(call)
        except ValueError:
            return Answer(200, {"jsonrpc": "2.0", "id": None, "error": {"code": -32700}})
        except RpcError as problem:
            return Answer(200, {"jsonrpc": "2.0", "id": call.get("id"), "error": problem.error})
        return Answer(200, {"jsonrpc": "2.0", "id": call.get("id"), "result": result})

    def _call(self, call: Any) -> list[Any]:
        params = call.get("params") if isinstance(call, dict) else None
        if not isinstance(params, dict) or call.get("method") != "runCmds":
            raise RpcError(-32600, "Invalid request")
        if not isinstance(params.get("cmds"), list) or params.get("version") not in (1, "latest"):
            raise RpcError(-32602, "Invalid params")
        with self._sessions.lock:
            return self._run(params["cmds"], params.get("format", "json") == "json")

    def _run(self, commands: list[Any], as_json: bool) -> list[Any]:
        shell = Shell()
        results: list[Any] = []
        for index, command in enumerate(commands, 1):
            problem = None
            try:
                result = self._command(shell, command, as_json)
            except Refused as refused:
                problem = (1002, "invalid command", str(refused))
            except Failed as failed:
                problem = (1000, "could not run command", str(failed))
            if problem is not None:
                code, what, text = problem
                raise RpcError(
                    code,
                    f"CLI command {index} of {len(commands)} {command!r} failed: {what}",
                    [*results, {"errors": [text]}],
                )
            results.append({"output": result} if isinstance(result, str) else result)
        return results

    def _command(self, shell: Shell, command: str, as_json: bool) -> Any:
        words = command.split()
        nothing: Any = {} if as_json else ""
        if words[:1] == ["show"]:
            return self._show(shell, words, as_json)
        if shell.modes:
            return self._configured(shell, command, words, as_json)
        if words == ["enable"]:
            shell.privileged = True
            return nothing
        if words and words[0] in PRIVILEGED and not shell.privileged:
            raise Refused(f"Invalid input (privileged mode required) (at token 0: {words[0]!r})")
        if command == SAVE:
            return self._save(as_json)
        if words == ["configure"]:
            shell.modes = [Mode("configure", self._sessions.running.top)]
            return nothing
        if words[:2] == ["configure", "session"] and len(words) in (3, 4, 6):
            self._session(shell, words[2], words[3:])
            return nothing
        raise Refused(f"Invalid input (at token 0: {words[:1]})")

    def _save(self, as_json: bool) -> Any:
        self._sessions.save()
        return {"messages": [COPIED]} if as_json else f"{COPIED}\n"

    def _session(self, shell: Shell, name: str, rest: list[str]) -> None:
        if not rest:
            shell.session = self._sessions.enter(name)
            shell.modes = [Mode("configure", shell.session.config.top)]
        elif rest == ["abort"]:
            self._sessions.abort(self._sessions.existing(name))
        elif rest == ["commit"]:
            self._sessions.commit(self._sessions.existing(name))
        elif rest[:2] == ["commit", "timer"]:
            self._sessions.commit(self._sessions.existing(name), _seconds(rest[2]))
        else:
            raise Refused(f"Invalid input (at token 3: {rest[0]!r})")

    def _configured(self, shell: Shell, command: str, words: list[str], as_json: bool) -> Any:
        nothing: Any = {} if as_json else ""
        if words == ["end"] or (words == ["exit"] and len(shell.modes) == 1):
            shell.modes, shell.session = [], None
            return nothing
        if command == SAVE:
            return self._save(as_json)
        session = shell.session
        if session is None:
            before = self._sessions.running.kept()
            grammar.enter(self._sessions.running, shell.modes, command, self._hardware)
            if self._sessions.running.kept() != before:
                self._log("configured", line=repr(command.strip()))
            return nothing
        if words == ["abort"]:
            self._sessions.abort(session)
        elif words == ["commit"]:
            self._sessions.commit(session)
        elif words[:2] == ["commit", "timer"] and len(words) == 3:
            self._sessions.commit(session, _seconds(words[2]))
        elif words == ["rollback", "clean-config"]:
            self._sessions.clean(session)
            shell.modes = [Mode("configure", session.config.top)]
            return nothing
        else:
            grammar.enter(session.config, shell.modes, command, self._hardware)
            return nothing
        shell.modes, shell.session = [], None
        return nothing

    def _show(self, shell: Shell, words: list[str], as_json: bool) -> Any:
        command = " ".join(words)
        if command in IN_TEXT:
            if not shell.privileged:
                where = f"(at token 1: {words[1]!r})"
                raise Refused(f"Invalid input (privileged mode required) {where}")
            if as_json:
                raise Failed("The simulation has only the text form of this command")
            return self._as_text(command, shell.session)
        shown = {
            "show version": self._shows.version_facts,
            "show interfaces status": self._shows.interfaces_status,
            "show lldp neighbors": self._shows.neighbours,
            "show configuration sessions": self._shows.sessions,
            "show configuration sessions detail": self._shows.sessions,
            **self._routing,
        }.get(command)
        if shown is None:
            raise Refused(f"Invalid input (at token 1: {words[1:2]})")
        if not as_json:
            raise Failed("The simulation has only the JSON form of this command")
        return shown()

    def _as_text(self, command: str, session: Optional[Session]) -> str:
        name = command[len("show ") :]
        if command == "show running-config":
            return self._shows.text_of(self._sessions.running, name)
        if command == "show startup-config":
            return self._shows.text_of(self._sessions.startup, name)
        if command == IN_TEXT[-1]:
            return "".join(f"   {self._hardware.queue} {number}\n" for number in range(8))
        if session is None:
            raise Failed("Not in a configuration session")
        return self._sessions.difference(session)


def _seconds(word: str) -> float:
    parts = re.fullmatch(r"(\d{1,2}):(\d{2}):(\d{2})", word)
    if parts is None:
        raise Refused(f"Invalid input (at token 2: {word!r})")
    return int(parts[1]) * 3600 + int(parts[2]) * 60 + int(parts[3])


if __name__ == "__main__":
    sys.exit(main(DENIED, Arista))
