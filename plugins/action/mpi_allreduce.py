# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the allreduce module on the launcher, shows how it is getting on, and reports what it found.

The module runs detached from this connection, by Ansible's own means: it comes to its end and
cleans up even when the controller goes away. One remote module execution in all; between start and
end a shell waits on the launcher and looks at two files.
"""

from __future__ import annotations

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
LOOK_S = 5
"""Seconds the shell on the launcher waits for the end before it tells how far it is."""
PATIENCE_S = 60
"""Beyond the time limits of the module, for what it does before and after its runs; and for ending
a run that is given up."""

# Done when Ansible's record of the job no longer says that it has only started.
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
    _told = ""

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        arguments.setdefault("run_id", uuid.uuid4().hex[:12])
        arguments.setdefault("program_sha256", _installed_sha256(PROGRAM))
        arguments["nodes"] = [_needed(entry) for entry in arguments.get("nodes") or []]
        directory = arguments.get("report_directory")
        if self._task.check_mode:
            found = self._execute_module(
                "baremetal.mpi_roce.mpi_allreduce", module_args=arguments, task_vars=task_vars
            )
            if "command" in found:
                display.display(f"allreduce: would run {found['command']}")
            return {**result, **found}
        found = self._run_detached(arguments, task_vars)
        result.update(found)
        if found.get("figures"):
            for line in smoke.lines(found):
                display.display(line)
            if directory:
                self._report(Path(directory), found, result)
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
        # Twice its time limit: it may first have to wait for another test to end.
        limit = 2 * _seconds(arguments, "time_limit_s", 300) + PATIENCE_S
        limit += _seconds(arguments, "bisect_runs", 24) * _seconds(arguments, "bisect_limit_s", 30)
        begin = time.monotonic()
        kept = self._task.async_val
        self._task.async_val = int(limit)
        try:
            started = self._execute_module(
                "baremetal.mpi_roce.mpi_allreduce",
                module_args=arguments,
                task_vars=task_vars,
                wrap_async=True,
            )
        finally:
            self._task.async_val = kept
        job = started.get("results_file")
        if not job:
            return started
        progress = PROGRESS.format(arguments["run_id"])
        patience = _seconds(arguments, "time_limit_s", 300) + PATIENCE_S
        seen = now = time.monotonic()
        text = state = ""
        while now - begin < limit + PATIENCE_S and now - seen < patience:
            state, text = self._look(job, progress)
            if state == "finished":
                self._quietly(f"rm -f {shlex.quote(job)}")
                return _result(text)
            if state == "died":
                break
            now = time.monotonic()
            if state == "unseen":
                # Ranks may have all of the launcher's cores; it says nothing of how they are.
                display.display(f"allreduce: the launcher could not be asked, once more: {text}")
                time.sleep(LOOK_S)
                continue
            seen = now
            if text and text != self._told:
                self._told = text
                display.display(text)
        why = {
            "died": "the module was killed on the launcher",
            "unseen": f"the launcher could not be asked for {now - seen:.0f} s: {text}",
        }.get(state, f"the module has not ended within {limit:.0f} s")
        raise AnsibleActionFail(
            f"smoke: the allreduce was given up: {why}\n"
            f"  last seen: {self._told or 'nothing'}; job on the launcher: {job}\n"
            f"  {self._end(arguments, task_vars)}"
        )

    def _look(self, job: str, progress: str) -> tuple[str, str]:
        """How the module is getting on: `running`, `finished`, `died`, or `unseen`, with what it or
        the connection says."""
        script = WAIT.format(job=shlex.quote(job), progress=progress, seconds=LOOK_S)
        answer = self._quietly(f"/bin/sh -c {shlex.quote(script)}")
        state, _separator, rest = answer["stdout"].partition("\n")
        if state.strip() in ("running", "finished", "died"):
            return state.strip(), rest.strip()
        return "unseen", (answer.get("stderr") or answer["stdout"]).strip()

    def _quietly(self, command: str) -> dict[str, Any]:
        """A command on the launcher; where it cannot be reached, an answer with the reason."""
        try:
            answer: dict[str, Any] = self._low_level_execute_command(command)
        except AnsibleConnectionFailure as error:
            return {"stdout": "", "stderr": str(error)}
        return answer

    def _end(self, arguments: dict[str, Any], task_vars: Any) -> str:
        """End what is left of the run on every node, and say what came of that."""
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                found = self._execute_module(
                    "baremetal.mpi_roce.mpi_allreduce",
                    module_args={**arguments, "end": True},
                    task_vars=task_vars,
                )
                return str(found["msg"])
            except AnsibleConnectionFailure as error:
                if time.monotonic() >= until:
                    return (
                        f"its processes could not be ended ({error}); they end within the time "
                        f"limit, or now, on every node, by: pkill -f {arguments['run_id']}"
                    )
            time.sleep(LOOK_S)


def _needed(entry: dict[str, Any]) -> dict[str, Any]:
    """Of a node only what the test uses: the whole directory would be megabytes for many nodes."""
    return {
        "name": entry["name"],
        "role": entry.get("role", "compute"),
        "slots": entry["slots"],
        "drained": entry.get("drained", False),
        "management_address": entry.get("management_address") or "",
        "rails": [
            {key: rail.get(key) for key in ("rail", "interface", "network", "gpu", "speed_gbps")}
            for rail in entry.get("rails") or []
        ],
    }


def _installed_sha256(program: Path) -> str:
    """Of a program as mpi_stack installs it: ending in exactly one line feed."""
    text = program.read_text(encoding="utf-8").rstrip() + "\n"
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _seconds(arguments: dict[str, Any], name: str, default: float) -> float:
    try:
        return float(arguments.get(name, default))
    except (TypeError, ValueError):
        return default  # the module refuses it


def _result(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        shown = text[-2000:] or "nothing"
        return {"failed": True, "msg": f"smoke: the module ended without a result: {shown}"}
    found.pop("ansible_job_id", None)
    return found
