# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Organise the rounds of storage_use: the ring of hosts, the work of each, and the combined
figures.

Only a host that has something to write or read needs a connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.checks import as_dicts, failure_message
from ..module_utils.storage.file_system import FileSystem, of_variable
from ..module_utils.storage.units import mounts
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.report import reports
from ..plugin_utils.report import storage_use as table
from ..plugin_utils.storage_rounds import PLAN, READ, REPORT, VERDICT, WRITE, Results
from ..plugin_utils.terminal import display

LAYER = "storage"
MODULE = "baremetal.mpi_roce.storage_use"
REMEDY = "Check the server first: all nodes used it, and together they were too slow."


class ActionModule(NodeAction):
    def act(self, task_vars: Any) -> dict[str, Any]:
        step = self._task.args.get("round")
        filesystems = [of_variable(entry) for entry in self._task.args.get("filesystems") or []]
        results = Results(task_vars["inventory_hostname"], task_vars, task_vars["hostvars"])
        result: dict[str, Any] = {"changed": False, "layer": LAYER, "checks": []}
        if step == PLAN:
            result["plan"] = _plan(filesystems, task_vars)
        elif step in (WRITE, READ):
            result.update(self._work(step, filesystems, results, task_vars))
        elif step == REPORT:
            playing = task_vars["ansible_play_hosts"]
            result.update(_report(filesystems, self._task.args, results, playing))
        elif step == VERDICT:
            result.update(_verdict(results))
        else:
            raise AnsibleActionFail(f"unknown round {step!r}; see ansible-doc {MODULE}")
        return result

    def _work(
        self, step: str, filesystems: Sequence[FileSystem], results: Results, task_vars: Any
    ) -> dict[str, Any]:
        seats = results.seats_to_write() if step == WRITE else results.seats_to_read()
        if not seats:
            return {}
        given = {
            **{key: value for key, value in self._task.args.items() if key != "report_directory"},
            "host": results.host,
            "groups": list(task_vars["group_names"]),
            "token": results.token,
            "filesystems": [fs.as_variable() for fs in filesystems if fs.name in seats],
            "seats": seats,
        }
        return self._execute_module(MODULE, module_args=given, task_vars=task_vars)


def _plan(filesystems: Sequence[FileSystem], task_vars: Any) -> dict[str, Any]:
    """One ring per file system, of the hosts in this play that use it: `--limit` shortens it."""
    groups_of: dict[str, set[str]] = {host: set() for host in task_vars["ansible_play_batch"]}
    for group, members in task_vars["groups"].items():
        for host in groups_of.keys() & members:
            groups_of[host].add(group)
    rings = {
        fs.name: [host for host, groups in groups_of.items() if mounts(fs, host, groups)]
        for fs in filesystems
    }
    return {"token": uuid.uuid4().hex[:12], "rings": rings}


def _report(
    filesystems: Sequence[FileSystem],
    arguments: Mapping[str, Any],
    results: Results,
    playing: Sequence[str],
) -> dict[str, Any]:
    """Show and store the figures. The round `verdict` evaluates them."""
    alone = bool(boolean(arguments.get("alone", False)))
    used = [fs_used for fs in filesystems if (fs_used := results.used(fs, alone=alone))]
    verdicts: dict[str, list[dict[str, Any]]] = {}
    for fs_used in used:
        for line in table.lines(fs_used):
            display.display(line)
        host = _responsible(fs_used, playing)
        verdicts.setdefault(host, []).extend(as_dicts(table.together(fs_used)))
    figures = {fs_used.fs.name: fs_used.as_dict() for fs_used in used}
    result: dict[str, Any] = {"verdicts": verdicts, "figures": figures}
    if used and arguments.get("report_directory"):
        directory, name = Path(arguments["report_directory"]), "shared_storage_report_directory"
        result["report"] = reports.keep(directory, LAYER, {"filesystems": figures}, display, name)
    return result


def _responsible(used: table.Used, playing: Sequence[str]) -> str:
    """The only host to fail: the server, else the slowest one. The others continue."""
    serving = used.fs.serve.host if used.fs.serve is not None else ""
    slowest = [figure.slowest_host for figure in (used.of("wrote"), used.of("read")) if figure]
    candidates = (serving, *slowest, *used.hosts)
    return next((host for host in candidates if host in playing), used.hosts[0])


def _verdict(results: Results) -> dict[str, Any]:
    checks = results.verdicts()
    message = failure_message(LAYER, checks, REMEDY)
    failure = {"failed": True, "msg": message} if message else {}
    return {"checks": as_dicts(checks), **failure}
