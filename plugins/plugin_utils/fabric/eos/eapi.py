# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""EOS's command API: JSON-RPC over HTTPS, several commands in one call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from ..https import Https, Service
from ..system import Login, SwitchError

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
        results = answer.get("result")
        if not isinstance(results, list) or len(results) != len(typed):
            raise SwitchError(f"{self.where}: {PATH} answers {len(typed)} commands with others.")
        for command, said in zip(typed, results):
            if not isinstance(said, dict):
                raise self.nonsense(command, "the answer", said)
        return results[1:]

    def nonsense(self, command: str, place: str, said: Any) -> SwitchError:
        """An answer that cannot be. Believed, it would look as if nothing were set.

        Of what stands there only the kind is told: it may hold what was sent.
        """
        kinds = {dict: "an object", list: "a list", str: "a text"}
        kind = next((word for form, word in kinds.items() if isinstance(said, form)), "a number")
        return SwitchError(
            f"{self.where}: `{command}`: {place} is {kind}, which EOS does not answer. Look at the "
            "release of the switch, and whether this is its eAPI."
        )

    def part(self, command: str, answer: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
        """Objects by name, of the answer to a command; empty where nothing is said."""
        found = answer.get(name)
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise self.nonsense(command, name, found)
        for key, value in found.items():
            if not isinstance(value, dict):
                raise self.nonsense(command, f"{name} {key}", value)
        return found

    def _refused(self, typed: Sequence[str], error: Any) -> SwitchError:
        """`data` has one entry for each command that ran, the refused one last."""
        error = error if isinstance(error, dict) else {}
        data, errors = error.get("data"), None
        data = data if isinstance(data, list) else []
        if data and isinstance(data[-1], dict):
            errors = data[-1].get("errors")
        errors = errors if isinstance(errors, list) else []
        said = "; ".join(str(line).strip() for line in errors if str(line).strip())
        said = said or str(error.get("message", "no reason given"))
        if not 0 < len(data) <= len(typed):
            return SwitchError(f"{self.where}: EOS refuses the commands: {said.rstrip('. ')}.")
        if len(data) == 1:
            said += ". The user needs privileged mode without a further password (`privilege 15`)"
        return CommandError(self.where, typed[len(data) - 1], said)
