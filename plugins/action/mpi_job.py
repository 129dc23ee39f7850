# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the module mpi_job on the launcher, and shows the job's output as it arrives.

Ctrl-C reaches this action's process as a signal, which it passes on to the module. Each time it
reads the output, it renews the lease of the job: without ansible-playbook, the job is stopped.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import shlex
import signal
import uuid
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleError

from ..module_utils.core.text import printable, some
from ..module_utils.mpi.job.plan import JOBS
from ..module_utils.mpi.job.run import checkpoint_line
from ..plugin_utils.answers import AnswerError, form_of, mapping, sequence
from ..plugin_utils.detached import LOOK_S, PROGRESS, DetachedAction
from ..plugin_utils.marked import answer, question
from ..plugin_utils.terminal import display
from .mpi_allreduce import needed

LEASE_S = 60
TIME_LIMIT_S = 3600
END_S = 240
"""Seconds for the module's work before and after the job."""
MARK = "@@ output"
MAX_REMOVED = 4
LOOK_BYTES = 65536
"""Maximum number of bytes of output shown at a time."""


class ActionModule(DetachedAction):
    MODULE = "baremetal.mpi_roce.mpi_job"
    WHAT = "job"
    LAYER = "job"

    def act(self, task_vars: Any) -> dict[str, Any]:
        return self.job(self._task.args, task_vars)

    def job(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        if isinstance(given.get("program"), str):
            example = given["program"].split()
            raise AnsibleActionFail(f"job: mpi_job_program is not a list: write it as {example}")
        arguments = {"run_id": uuid.uuid4().hex[:12], "lease_s": LEASE_S, **given}
        arguments["nodes"] = [needed(entry) for entry in arguments.get("nodes") or []]
        if self._task.check_mode:
            found = self._execute_module(self.MODULE, module_args=arguments, task_vars=task_vars)
            if "command" in found:
                display.display(f"job: would run {found['command']}")
            return found
        self._place = str(JOBS / arguments["run_id"])
        self._offset, self._behind = 0, False
        host = task_vars["inventory_hostname"]
        limit = float(arguments.get("time_limit_s") or TIME_LIMIT_S) + END_S
        display.display(f"job {arguments['run_id']}: {self._place} on {host}")
        self._ansible = os.getppid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._interrupted)
        try:
            found = self.run_detached(arguments, task_vars, limit, limit)
        except KeyboardInterrupt:
            self._end(arguments["run_id"])
            raise
        rest = self._low_level_execute_command(question(self.more("/dev/null")))
        self.seen(answer(rest["stdout"]) or "")
        if self._behind:
            display.display(f"job: more of the output is in {self._place}/output.log")
        if found.get("seconds") is not None:
            state = found.get("stopped") or f"exit status {found.get('rc')}"
            display.display(f"job {arguments['run_id']}: {state} after {found['seconds']} s")
        try:
            with form_of("job: the launcher's report"):
                for host, paths in mapping(found.get("removed")).items():
                    listed = some(sorted(map(str, sequence(paths))), MAX_REMOVED)
                    display.display(f"job: removed from {host}: {listed}")
                if found.get("checkpoint") and not found.get("failed"):
                    display.display(checkpoint_line(found["checkpoint"]))
        except AnswerError as error:
            raise AnsibleActionFail(str(error)) from error
        return found

    def _interrupted(self, *_signal: Any) -> None:
        """Ansible then sends SIGTERM and waits for this process."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    def _end(self, run_id: str) -> None:
        """Make the module stop the job, and show the result."""
        self._say(f"job {run_id}: interrupted, stopping all its ranks")
        progress = PROGRESS.format(run_id)
        kill = f"/bin/sh -c 'kill -TERM $(head -n 1 {progress})'"
        state, text, looks = "running" if self.record else "", "", 0
        with contextlib.suppress(AnsibleError):
            while state == "running" and looks * LOOK_S < END_S:
                self._low_level_execute_command(kill)
                state, text = self._look(self.record, progress)
                looks += 1
        told = f"job {run_id}: the launcher did not confirm its stop; its lease will expire"
        self._say(str(self.result(text).get("msg")) if state == "finished" else told)

    def _say(self, text: str) -> None:
        """Write to the standard error of ansible-playbook, which no longer displays messages."""
        with contextlib.suppress(OSError), open(f"/proc/{self._ansible}/fd/2", "a") as terminal:
            terminal.write(f"{text}\n")

    def more(self, progress: str) -> str:
        directory = shlex.quote(self._place)
        return (
            f"touch -c {directory}/lease; tail -n +2 {progress} 2>/dev/null; echo {MARK}; "
            f"tail -c +{self._offset + 1} {directory}/output.log 2>/dev/null | "
            f"head -c {LOOK_BYTES} | base64"
        )

    def seen(self, text: str) -> None:
        state, _mark, sent = text.partition(f"{MARK}\n")
        super().seen(f"job: {state}" if state.strip() else "")
        try:
            output = base64.b64decode(sent)
        except binascii.Error:
            return  # truncated: the next reading repeats it
        self._behind = len(output) == LOOK_BYTES
        end = output.rfind(b"\n") + 1
        if not end and self._behind:
            end = LOOK_BYTES  # a line longer than this, such as a progress bar
        self._offset += end
        for line in output[:end].decode("utf-8", "replace").splitlines():
            self.show(str(printable(line)))

    def show(self, line: str) -> None:
        display.display(line)
