# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Load the GPUs of each node, and compare those of all nodes on the controller."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.core.checks import Check, as_dicts, failure_message, not_applicable
from ..plugin_utils.acceptance import burn
from ..plugin_utils.answers import AnswerError, mapping, sentence
from ..plugin_utils.answers import checks as checks_of
from ..plugin_utils.report import reports
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

LAYER = "burn"
MODULE = "baremetal.mpi_roce.gpu_burn"
CONTROLLER_ONLY = frozenset(["burned", "compared", "report_directory", "run"])
REMEDY = "Run again for these nodes only: playbooks/burn.yml --limit HOST,OTHER"
LEAST_S = 60.0
"""No load of a run begins with less time left: a guess."""


def _ended(found: dict[str, Any]) -> dict[str, Any]:
    """The result of a node as its module returned it."""
    message = failure_message(LAYER, [Check(**each) for each in found["checks"]], REMEDY)
    result = {"changed": False, "layer": LAYER, **found}
    return {**result, "failed": True, "msg": message} if message else result


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        return {"burn": self._burn, "compare": self._compare, "verdict": self._verdict}

    def _burn(self, task_vars: Any) -> dict[str, Any]:
        arguments = self._task.args
        sent = {key: value for key, value in arguments.items() if key not in CONTROLLER_ONLY}
        run = arguments.get("run") or {}
        if run and not self._task.check_mode:
            return self._of_run(run, sent, task_vars)
        return self._load(sent, task_vars)

    def _load(self, sent: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        result: dict[str, Any] = self._execute_module(MODULE, module_args=sent, task_vars=task_vars)
        if "checks" in result:
            result["checks"] = checks_of(result["checks"])
        return result

    def _of_run(self, run: Any, sent: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """The result that the run has for this node, if it is of the same boot and driver; else
        load its GPUs until the time at which the run must end, and keep the result."""
        host, kept = task_vars["inventory_hostname"], burn.Kept(Path(run["directory"]))
        found = mapping(mapping(task_vars.get(run["looked"])).get("found"))
        boot = sentence(found.get("boot"))
        driver = sentence(mapping(found.get("versions")).get("gpu_driver"))
        options = json.dumps(sent, sort_keys=True, default=str)
        on = [run["began"], boot, driver, hashlib.sha256(options.encode()).hexdigest()]
        before = kept.read(host, on) if boot else None
        if before is not None:
            display.display(f"{LAYER}: {host}: its GPUs were loaded before the interruption")
            return _ended(before)
        limit_s = float(run["until"]) - time.time()
        if limit_s < LEAST_S:
            late = not_applicable("burn_products", "exact", "the time budget was used up")
            return _ended({"checks": as_dicts([late]), "figures": {}})
        result = self._load({**sent, "limit_s": limit_s}, task_vars)
        if boot and "checks" in result and mapping(result.get("figures")).get("gpus"):
            try:
                kept.save(host, on, result, time.time())
            except OSError as error:
                raise AnsibleActionFail(f"{LAYER}: {host}: not saved: {error}") from error
        return result

    def _compare(self, task_vars: Any) -> dict[str, Any]:
        name, hostvars = self._task.args.get("burned"), task_vars["hostvars"]
        by_host: dict[str, list[dict[str, Any]]] = {}
        loaded: list[burn.Loaded] = []
        for host in task_vars["ansible_play_hosts_all"]:
            figures = (hostvars.raw_get(host).get(name) or {}).get("figures") or {}
            try:
                loaded += burn.read(host, figures)
            except AnswerError as error:
                wrong = Check("answer", "figures of GPUs", None, "failed", "", str(error))
                by_host[host] = as_dicts([wrong])
        for host, check in burn.compare(loaded):
            by_host.setdefault(host, []).extend(as_dicts([check]))
        for line in burn.lines(loaded):
            display.display(line)
        result: dict[str, Any] = {"changed": False, "by_host": by_host}
        if loaded and self._task.args.get("report_directory"):
            directory = Path(self._task.args["report_directory"])
            text = {"gpus": [one.as_dict() for one in loaded]}
            option = "gpu_burn_report_directory"
            result["report"] = reports.keep(directory, LAYER, text, display, option)
        return result

    def _verdict(self, task_vars: Any) -> dict[str, Any]:
        found = task_vars.get(self._task.args.get("compared")) or {}
        checks = (found.get("by_host") or {}).get(task_vars["inventory_hostname"]) or []
        return _ended({"checks": list(checks)})
