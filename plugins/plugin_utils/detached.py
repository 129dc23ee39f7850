# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Actions that run their module detached from the connection (Ansible's async) and watch it.

A run takes one remote module execution. Until it finishes, a shell on the host repeatedly waits and
then prints Ansible's record of the job, or the module's progress file: its PID and a line about the
current step.

After Ctrl-C on run.yml, action/mpi_job.py sends SIGTERM to the module, whose handler in
modules/mpi_job.py makes mpi/job/run.py stop the systemd unit and sweep the nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from typing import Any

from ansible.constants import INTERNAL_RESULT_KEYS
from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure

from ..module_utils.core.text import printable
from .actions import NodeAction
from .answers import PATH, AnswerError
from .marked import answer, question
from .terminal import display

PROGRESS = "/run/baremetal-mpi-roce/{}.progress"
LOOK_S = 5
"""Seconds for which the shell on the host waits before it prints the progress."""
PATIENCE_S = 60
"""Seconds in addition to the module's time limits, for its work before and after its runs."""

WAIT = r"""#!/bin/sh
# Wait at most $3 seconds for a result in Ansible's record $1 of the job, whose progress file is $2.
# Prints `finished` and the record, `died`, or `running`. The record has a result when it no longer
# is that of the start.
until=$(($(date +%s) + $3))
while grep -qs '"started"' "$1" && [ "$(date +%s)" -lt "$until" ]; do sleep 0.2; done
if ! grep -qs '"started"' "$1"; then echo finished; cat "$1"; exit; fi
pid=$(head -n 1 "$2" 2>/dev/null)
if [ -n "$pid" ] && [ ! -d "/proc/$pid" ]; then
  sleep 2 # Ansible's wrapper, if it outlives the module, writes the result
  if grep -qs '"started"' "$1"; then echo died; else echo finished; cat "$1"; fi
  exit
fi
echo running
"""


class DetachedAction(NodeAction):
    MODULE = ""
    WHAT = ""
    """Name of the work in messages: `allreduce`."""
    LAYER = ""
    _shown = ""
    record = ""
    """Path of Ansible's record of the job on the host, once it was started."""

    def more(self, progress: str) -> str:
        """Shell commands to run after each wait; `seen` gets their output."""
        return f"tail -n +2 {progress} 2>/dev/null || true"

    def seen(self, text: str) -> None:
        text = str(printable(text)).strip()
        if text and text != self._shown:
            self._shown = text
            display.display(text)

    def run_detached(
        self, arguments: dict[str, Any], task_vars: Any, limit: float, patience: float
    ) -> dict[str, Any]:
        """Run the module and return its result. It may take `limit` seconds, and the host may be
        silent for `patience` seconds. Raises KeyboardInterrupt if ansible-playbook was killed."""
        begin, parent = time.monotonic(), os.getppid()
        self._shown = self.record = ""
        kept = self._task.async_val
        self._task.async_val = int(limit)
        try:
            started: dict[str, Any] = self._execute_module(
                self.MODULE, module_args=arguments, task_vars=task_vars, wrap_async=True
            )
        finally:
            self._task.async_val = kept
        if not started.get("results_file"):
            return started
        try:
            self.record = PATH.of(started["results_file"], "Ansible's record of the job")
        except AnswerError as error:
            raise AnsibleActionFail(f"{self.LAYER}: {error}: the host answered it") from None
        progress = PROGRESS.format(arguments["run_id"])
        seen = now = time.monotonic()
        text = state = ""
        while now - begin < limit + PATIENCE_S and now - seen < patience:
            if os.getppid() != parent:
                raise KeyboardInterrupt
            state, text = self._look(self.record, progress)
            if state == "finished":
                return self.result(text)
            if state == "died":
                break
            now = time.monotonic()
            if state == "running":
                seen = now
                self.seen(text)
                continue
            # Ranks may use all cores of the launcher for a while; it recovers.
            display.display(f"{self.WHAT}: the launcher does not answer, retrying: {text}")
            time.sleep(LOOK_S)
        reason = {
            "died": "the module was killed on the launcher",
            "unseen": f"the launcher did not answer for {now - seen:.0f} s: {text}",
        }.get(state, f"the module has not finished within {limit:.0f} s")
        raise AnsibleActionFail(
            f"{self.LAYER}: the {self.WHAT} was given up: {reason}\n"
            f"  last seen: {self._shown or 'nothing'}; job on the launcher: {self.record}\n"
            "  its processes end within the time limit; to end them now, on every node: pkill -f "
            f"{arguments['run_id']}"
        )

    def result(self, text: str) -> dict[str, Any]:
        with contextlib.suppress(AnsibleConnectionFailure):
            self._low_level_execute_command(f"rm -f {shlex.quote(self.record)}")
        return result_of(self.LAYER, text)

    def _look(self, job: str, progress: str) -> tuple[str, str]:
        """State of the module, `running`, `finished`, `died` or `unseen`, and its output or that of
        the connection."""
        arguments = shlex.join([job, progress, str(LOOK_S)])
        script = f"set -- {arguments}\n{WAIT}\n{self.more(progress)}"
        try:
            done = self._low_level_execute_command(question(script))
        except AnsibleConnectionFailure as error:
            return "unseen", str(printable(str(error)))
        state, _separator, rest = (answer(done["stdout"]) or "").lstrip("\n").partition("\n")
        if state.strip() in ("running", "finished", "died"):
            return state.strip(), rest
        return "unseen", str(printable(done.get("stderr") or done["stdout"])).strip()


NOT_OF_A_HOST = frozenset([*INTERNAL_RESULT_KEYS, "ansible_facts", "ansible_stats"])
"""Keys of a result that Ansible acts on, like `_ansible_*`: hosts, groups and variables to add.
Ansible removes them from the result of a module, but does not see this record."""


def result_of(layer: str, text: str) -> dict[str, Any]:
    try:
        found = dict(printable(json.loads(text)))  # JSON hides unprintable characters
    except (TypeError, ValueError, RecursionError):
        shown = printable(text[-2000:]) or "nothing"
        return {"failed": True, "msg": f"{layer}: the module exited without a result: {shown}"}
    return {
        key: value
        for key, value in found.items()
        if isinstance(key, str)
        and not key.startswith(("_ansible_", "ansible_job_id"))
        and key not in NOT_OF_A_HOST
    }
