# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host during its reboot, as seen from the controller over Ansible's connection.

No method leaves a lost connection to Ansible, which would remove the host from the play.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any, Optional

from ansible.errors import AnsibleConnectionFailure, AnsibleError

from ...module_utils.core.waiting import until
from ..marked import answer, question
from . import guards

MODULE = "baremetal.mpi_roce.cluster_reboot"
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
POLL_S = 2.0
RECONNECT_S = 5.0
"""Pause after a connection was lost while the host boots."""
BOOT_ID_LIMIT_S = 60.0
"""Time limit for one login and the answer."""
STEP_LIMIT_S = 300.0
"""Time limit for a step on the host, excluding the time that it waits."""
MAX_MESSAGE_CHARACTERS = 600


class RebootingHost:
    """Runs the steps of the module on the host, and waits for its next boot."""

    def __init__(self, action: Any, task_vars: Any) -> None:
        self._action = action
        self._task_vars = task_vars

    @property
    def is_local(self) -> bool:
        return str(self._action._connection.transport).rpartition(".")[2] == "local"

    def run(self, limit_s: float = STEP_LIMIT_S, **arguments: Any) -> dict[str, Any]:
        """The result of a step of the module, with `lost` if the connection was lost."""
        try:
            with guards.bounded(limit_s):
                result: dict[str, Any] = self._action._execute_module(
                    MODULE, module_args=arguments, task_vars=self._task_vars
                )
        except (AnsibleConnectionFailure, guards.StepTimeoutError) as error:
            return {"failed": True, "lost": True, "msg": str(error)}
        if result.get("unreachable"):
            return {"failed": True, "lost": True, "msg": str(result.get("msg"))}
        return result

    def wait_for_another_boot(self, former: str, deadline: float) -> tuple[Optional[str], str]:
        """The new boot ID, or None and what prevented it until `deadline` (monotonic)."""
        problem = ""

        def new_boot() -> str:
            nonlocal problem
            boot_id, problem = self.boot_id()
            if boot_id == former:
                problem = "it responds, but did not reboot"
            return "" if boot_id == former else boot_id

        limit_s = max(0.0, deadline - time.monotonic())
        boot_id = until(new_boot, limit_s, POLL_S, clock=time.monotonic, sleep=time.sleep)
        return boot_id or None, problem

    def wait_until_up(self, deadline: float, retry: bool) -> dict[str, Any]:
        """The result of the step `arrive`, which waits for systemd.

        `retry`: repeat it after a lost connection, as sshd may restart during boot.
        """
        while True:
            remaining_s = max(0.0, deadline - time.monotonic())
            result = self.run(remaining_s + STEP_LIMIT_S, step="arrive", timeout_s=remaining_s)
            if not (result.get("lost") and retry and remaining_s):
                return result
            time.sleep(RECONNECT_S)
            self._reconnect()

    def boot_id(self) -> tuple[str, str]:
        """The ID of the current boot, or an empty one and the reason why it is unknown."""
        try:
            with guards.bounded(BOOT_ID_LIMIT_S):
                self._reconnect()
                done = self._action._low_level_execute_command(question(BOOT_ID), sudoable=False)
        except (AnsibleError, OSError, guards.StepTimeoutError) as error:
            return "", shortened(error)
        if done["rc"] != 0:
            return "", f"exit status {done['rc']}: {shortened(done.get('stderr', ''))}"
        words = (answer(done["stdout"]) or "").split()
        if len(words) != 1:
            return "", f"no boot id: {shortened(done['stdout'])}"
        return words[0], ""

    def _reconnect(self) -> None:
        """Drop the connection to the former boot; a new one is tried once."""
        connection = self._action._connection
        with contextlib.suppress(KeyError):
            connection.set_option("reconnection_retries", 0)
        with contextlib.suppress(AnsibleError, OSError, AttributeError):
            connection.reset()


def shortened(text: object) -> str:
    """The message as one line."""
    return " ".join(str(text).split())[:MAX_MESSAGE_CHARACTERS]
