# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the allreduce module on the launcher, shows its progress, and reports what it found.

The module runs detached from this connection, by Ansible's own means: it comes to its end and
cleans up even when the controller goes away. One remote module execution in all; between start and
end a shell waits on the launcher and looks at two files.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shlex
import time
import uuid
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail, AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..plugin_utils.report import reports, smoke

display = Display()

PROGRAM = Path(__file__).parents[2] / "roles/mpi_stack/files/allreduce.py"
PROGRESS = "/run/baremetal-mpi-roce/{}.progress"
MODULE = "baremetal.mpi_roce.mpi_allreduce"
LOOK_S = 5
"""Seconds the shell on the launcher waits for the end before it prints the progress."""
PATIENCE_S = 60
"""Beyond the time limits of the module, for what it does before and after its runs."""
LIMITS = {"time_limit_s": 300, "gpu_limit_s": 120, "bisect_runs": 24, "bisect_limit_s": 30}
"""Defaults of the module."""

# Done when Ansible's record of the job is no longer that of its start.
WAIT = """
until=$(($(date +%s) + {seconds}))
while grep -qs '"started"' {job} && [ "$(date +%s)" -lt "$until" ]; do sleep 0.2; done
if ! grep -qs '"started"' {job}; then echo finished; cat {job}; exit; fi
pid=$(head -n 1 {progress} 2>/dev/null)
if [ -n "$pid" ] && [ ! -d "/proc/$pid" ]; then
  sleep 2  # if Ansible's wrapper outlived it, there is a result by now
  if grep -qs '"started"' {job}; then echo died; else echo finished; cat {job}; fi
  exit
fi
echo running
tail -n +2 {progress} 2>/dev/null || true
"""
"""The progress file: the module's process id, and a line of what it is doing."""


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = {
            "run_id": uuid.uuid4().hex[:12],
            "program_sha256": _installed_sha256(PROGRAM),
            **self._task.args,
        }
        arguments["nodes"] = [_needed(entry) for entry in arguments.get("nodes") or []]
        if self._task.check_mode:
            found = self._execute_module(MODULE, module_args=arguments, task_vars=task_vars)
            if "command" in found:
                display.display(f"allreduce: would run {found['command']}")
            return {**result, **found}
        found = self._run_detached(arguments, task_vars)
        result.update(found)
        if found.get("figures"):
            for line in smoke.lines(found):
                display.display(line)
            if arguments.get("report_directory"):
                self._report(Path(arguments["report_directory"]), found, result)
        return result

    def _report(self, directory: Path, found: dict[str, Any], result: dict[str, Any]) -> None:
        kept = {key: value for key, value in found.items() if key != "invocation"}
        path = reports.keep(directory, "smoke", kept, display, "mpi_smoke_report_directory")
        if not path:
            return
        result["report"] = path
        if found.get("failed"):
            # Ansible prints a failed result whole; these are for the report.
            for key in ("traffic", "lanes", "versions", "command", "invocation"):
                result.pop(key, None)

    def _run_detached(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        given = {name: float(arguments.get(name, default)) for name, default in LIMITS.items()}
        patience = given["time_limit_s"] + PATIENCE_S
        # Twice its time limit: it may first have to wait for another test to end.
        limit = patience + given["time_limit_s"] + given["bisect_runs"] * given["bisect_limit_s"]
        limit += 2 * given["gpu_limit_s"]  # with MPI, and with NCCL
        begin = time.monotonic()
        kept = self._task.async_val
        self._task.async_val = int(limit)
        try:
            started: dict[str, Any] = self._execute_module(
                MODULE, module_args=arguments, task_vars=task_vars, wrap_async=True
            )
        finally:
            self._task.async_val = kept
        job = started.get("results_file")
        if not job:
            return started
        progress = PROGRESS.format(arguments["run_id"])
        seen = now = time.monotonic()
        text = state = shown = ""
        while now - begin < limit + PATIENCE_S and now - seen < patience:
            state, text = self._look(job, progress)
            if state == "finished":
                with contextlib.suppress(AnsibleConnectionFailure):
                    self._low_level_execute_command(f"rm -f {shlex.quote(job)}")
                return _result(text)
            if state == "died":
                break
            now = time.monotonic()
            if state == "unseen":
                # Ranks may have all of the launcher's cores, and go on.
                display.display(f"allreduce: the launcher does not answer, once more: {text}")
                time.sleep(LOOK_S)
                continue
            seen = now
            if text and text != shown:
                shown = text
                display.display(text)
        why = {
            "died": "the module was killed on the launcher",
            "unseen": f"the launcher did not answer for {now - seen:.0f} s: {text}",
        }.get(state, f"the module has not ended within {limit:.0f} s")
        raise AnsibleActionFail(
            f"smoke: the allreduce was given up: {why}\n"
            f"  last seen: {shown or 'nothing'}; job on the launcher: {job}\n"
            f"  its processes end within the time limit; to end them now, on every node: pkill -f "
            f"{arguments['run_id']}"
        )

    def _look(self, job: str, progress: str) -> tuple[str, str]:
        """The state of the module, `running`, `finished`, `died` or `unseen`, and its output or
        that of the connection."""
        script = WAIT.format(job=shlex.quote(job), progress=progress, seconds=LOOK_S)
        try:
            answer = self._low_level_execute_command(f"/bin/sh -c {shlex.quote(script)}")
        except AnsibleConnectionFailure as error:
            return "unseen", str(error)
        state, _separator, rest = answer["stdout"].partition("\n")
        if state.strip() in ("running", "finished", "died"):
            return state.strip(), rest.strip()
        return "unseen", (answer.get("stderr") or answer["stdout"]).strip()


def _needed(entry: dict[str, Any]) -> dict[str, Any]:
    """Of a node only what the test uses: the whole directory would be megabytes for many nodes."""
    return {
        "name": entry["name"],
        "role": entry.get("role", "compute"),
        "slots": entry["slots"],
        "drained": entry.get("drained", False),
        "rails": [
            {key: rail.get(key) for key in ("rail", "interface", "network", "gpu", "speed_gbps")}
            for rail in entry.get("rails") or []
        ],
    }


def _installed_sha256(program: Path) -> str:
    """Of a program as mpi_stack installs it: ending in exactly one line feed."""
    text = program.read_text(encoding="utf-8").rstrip() + "\n"
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _result(text: str) -> dict[str, Any]:
    """What Ansible's record of the job has."""
    try:
        found = dict(json.loads(text))
    except (TypeError, ValueError):
        shown = text[-2000:] or "nothing"
        return {"failed": True, "msg": f"smoke: the module ended without a result: {shown}"}
    found.pop("ansible_job_id", None)
    return found
