# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs the allreduce module on the launcher, shows its progress, and reports its results."""

from __future__ import annotations

import hashlib
import uuid
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..plugin_utils.answers import AnswerError, checks, form_of
from ..plugin_utils.detached import PATIENCE_S, DetachedAction
from ..plugin_utils.report import reports, smoke
from ..plugin_utils.terminal import display

PROGRAM = Path(__file__).parents[2] / "roles/mpi_stack/files/allreduce.py"
MODULE = "baremetal.mpi_roce.mpi_allreduce"
LIMITS = {"time_limit_s": 300, "gpu_limit_s": 120, "bisect_runs": 24, "bisect_limit_s": 30}


class ActionModule(DetachedAction):
    MODULE = MODULE
    WHAT = "allreduce"
    LAYER = "smoke"

    def act(self, task_vars: Any) -> dict[str, Any]:
        arguments = {
            "run_id": uuid.uuid4().hex[:12],
            "program_sha256": _installed_sha256(PROGRAM),
            **self._task.args,
        }
        arguments["nodes"] = [needed(entry) for entry in arguments.get("nodes") or []]
        if self._task.check_mode:
            found = self._execute_module(MODULE, module_args=arguments, task_vars=task_vars)
            if "command" in found:
                display.display(f"allreduce: would run {found['command']}")
            return found
        found = self._run_detached(arguments, task_vars)
        if not found.get("figures"):
            return found
        try:
            with form_of("smoke: figures of the launcher"):
                lines = smoke.lines({**found, "checks": checks(found.get("checks", []))})
        except AnswerError as error:
            raise AnsibleActionFail(str(error)) from error
        for line in lines:
            display.display(line)
        directory = arguments.get("report_directory")
        return self._report(Path(directory), found) if directory else found

    def _report(self, directory: Path, found: dict[str, Any]) -> dict[str, Any]:
        """The result with the path of the report that has been saved."""
        kept = {key: value for key, value in found.items() if key != "invocation"}
        path = reports.keep(directory, "smoke", kept, display, "mpi_smoke_report_directory")
        # Ansible prints a failed result in full; these keys belong in the report.
        long = ("traffic", "lanes", "versions", "command", "invocation")
        omitted = long if path and found.get("failed") else ()
        result = {key: value for key, value in found.items() if key not in omitted}
        return {**result, "report": path} if path else result

    def _run_detached(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        given = {name: float(arguments.get(name, default)) for name, default in LIMITS.items()}
        patience = given["time_limit_s"] + PATIENCE_S
        # The time limit counts twice, because the module may first wait for another test.
        limit = patience + given["time_limit_s"] + given["bisect_runs"] * given["bisect_limit_s"]
        limit += 2 * given["gpu_limit_s"]  # one with MPI, one with NCCL
        return self.run_detached(arguments, task_vars, limit, patience)


def needed(entry: dict[str, Any]) -> dict[str, Any]:
    """Fields of a node that the module uses; for many nodes, the whole table would be megabytes."""
    keys = ("rail", "interface", "network", "gpu", "speed_gbps")
    rails = [{key: rail.get(key) for key in keys} for rail in entry.get("rails") or []]
    known = {"name": entry["name"], "role": entry.get("role", "compute"), "slots": entry["slots"]}
    of_kind = {key: entry[key] for key in ("kind", "gpus") if "kind" in entry}
    return {**known, "drained": entry.get("drained", False), **of_kind, "rails": rails}


def _installed_sha256(program: Path) -> str:
    """SHA-256 of a program as mpi_stack installs it, with exactly one line feed at its end."""
    text = program.read_text(encoding="utf-8").rstrip() + "\n"
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
