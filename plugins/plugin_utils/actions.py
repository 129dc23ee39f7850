# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Base classes of the collection's actions.

A node or switch may be compromised. Whatever it answers, the result of an action is printable text
of bounded size. The terminal, the log, registered variables and reports read only that result.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import fields, is_dataclass, replace
from typing import Any, Optional

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure, AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils.core.text import bytes_text, printable, shortened
from .marked import answer, question

EXECUTIONS = "remote_executions"
"""Result key: number of modules that this action executed over the host's connection."""
MAX_OUTPUT_BYTES = 32 << 20
"""Limit for the output of one command on a host; a module is one command."""
MAX_FAILED_BYTES = 4 << 20
"""Limit for a failed answer, which Ansible prints in full."""
MAX_MESSAGE_CHARACTERS = 20_000
MAX_ARGUMENT = 1000
"""Maximum number of characters of an argument that is sent back with the result."""
MESSAGE_KEYS = ("exception", "warnings", "deprecations")
"""Result keys for which ansible-core 2.19 has objects; a module can return them as well."""
SSH_NOISE = (
    "Shared connection to ",
    "Connection to ",
    "debug1: ",
    "debug2: ",
    "debug3: ",
    "OpenSSH_",
)
"""Prefixes of lines that ssh itself prints among those of the host."""


class NodeAction(ActionBase):
    """An action in which answers from hosts are limited in size and printable."""

    _executions = 0

    @abstractmethod
    def act(self, task_vars: Any) -> dict[str, Any]:
        """Return the result of the task. `task_vars` are the variables of its host."""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        failure: Optional[type[AnsibleError]] = None
        shown = ""
        try:
            result.update(self.act(task_vars))
        except Exception as error:
            text = str(error)
            shown = shortened(printable(text), MAX_MESSAGE_CHARACTERS)
            details = getattr(error, "result", None)  # in ansible-core 2.18 with the traceback
            if shown == text and printable(details) == details:
                raise
            failure = type(error) if isinstance(error, AnsibleError) else AnsibleActionFail
        if failure:  # raised here, since 2.18 adds the traceback of a handled exception
            raise failure(shown)
        if self._executions:
            result[EXECUTIONS] = self._executions
        else:
            result.pop(EXECUTIONS, None)
        self._forget_long_arguments()
        return bounded(result)

    def _forget_long_arguments(self) -> None:
        """Ansible sends arguments back with the result, and holds those of all hosts until the task
        ends: the names of 1,000 nodes would be in memory 1,000 times."""
        if not (self._task.until or self._task.retries):  # otherwise this is not the last attempt
            self._task.args = {
                name: shortened(value, MAX_ARGUMENT) if isinstance(value, str) else value
                for name, value in self._task.args.items()
            }

    def _execute_module(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if self._connection.transport.rpartition(".")[2] != "local":
            self._executions += 1
        try:
            answer = plain(super()._execute_module(*args, **kwargs))
        except RecursionError:
            raise AnsibleActionFail("the module's answer is JSON of too many levels") from None
        if "module_stdout" in answer:
            answer["msg"] = no_result(answer)
        return without_details(answer)

    def command(self, script: str, content: bytes) -> Optional[str]:
        """What a script on the host, which reads `content`, prints; None if it did not run.

        Raises AnsibleConnectionFailure if the host is unreachable.
        """
        self._executions += 1
        try:
            done = self._low_level_execute_command(question(script), in_data=content)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError:
            return None
        return answer(done["stdout"])

    def _low_level_execute_command(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = super()._low_level_execute_command(*args, **kwargs)
        except AnsibleConnectionFailure as error:
            raise AnsibleConnectionFailure(printable(str(error))) from None
        size = len(answer["stdout"]) + len(answer["stderr"])
        if size > MAX_OUTPUT_BYTES:
            raise AnsibleActionFail(
                f"a command on the host printed {bytes_text(size)}; the limit is "
                f"{bytes_text(MAX_OUTPUT_BYTES)}. Log in to the host and find what prints it"
            )
        return answer


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """The result as printable text, including Ansible's message objects."""
    made: dict[str, Any] = printable(result)
    return {**made, **{key: _plain_message(made[key]) for key in MESSAGE_KEYS if key in made}}


def _plain_message(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        initial = [field.name for field in fields(value) if field.init]
        return replace(value, **{name: _plain_message(getattr(value, name)) for name in initial})
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain_message, value))
    return printable(value)


def bounded(result: dict[str, Any]) -> dict[str, Any]:
    """The result as printable text, with a message of limited length.

    Raises AnsibleActionFail if its lists are nested too deeply.
    """
    try:
        result = plain(result)
    except RecursionError:
        raise AnsibleActionFail("the result has too many levels") from None
    message = str(result.get("msg", ""))
    if len(message) > MAX_MESSAGE_CHARACTERS:
        result["msg"] = shortened(message, MAX_MESSAGE_CHARACTERS)
        result.pop("exception", None)  # it repeats the message
    for key in MESSAGE_KEYS:
        if len(str(result.get(key, ""))) > MAX_MESSAGE_CHARACTERS:
            del result[key]
    return result


def without_details(answer: dict[str, Any]) -> dict[str, Any]:
    """A failed answer, without its details if they are too large to print."""
    size = len(json.dumps(answer, default=str)) if answer.get("failed") else 0
    if size <= MAX_FAILED_BYTES:
        return answer
    kept = {key: value for key, value in answer.items() if key in ("failed", "changed", "layer")}
    return {**kept, "msg": f"{answer.get('msg')} (omitted: {bytes_text(size)} of details)"}


def no_result(answer: dict[str, Any]) -> str:
    """Why a module returned no JSON: the last line that sudo, a shell or Python printed."""
    printed = f"{answer['module_stdout']}\n{answer.get('module_stderr') or ''}".splitlines()
    lines = [line.strip() for line in printed if line.strip() and not line.startswith(SSH_NOISE)]
    status = answer.get("rc")
    reason = lines[-1] if lines else "it printed nothing"
    exit_status = "" if lines and status in (0, 1) else f" with exit status {status}"
    return f"the module returned no result{exit_status}: {reason}"
