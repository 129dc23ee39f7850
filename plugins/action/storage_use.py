# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller alone knows of the use of storage: the ring of hosts, and all their figures.

The steps `write` and `read` execute the module on the host, unless it mounts nothing. The others
need no connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ..module_utils.core.checks import Check, as_dicts, failure_message
from ..module_utils.storage.file_system import FileSystem, of_variable
from ..module_utils.storage.units import mounts
from ..plugin_utils.report import reports
from ..plugin_utils.report import storage_use as table

display = Display()

LAYER = "storage"
MODULE = "baremetal.mpi_roce.storage_use"
HERE_ONLY = frozenset(["plan", "written", "met", "used", "reported", "report_directory"])
"""Options that a host does not need."""
REMEDY = "Look at the server first: all nodes used it, and together they were too slow."


class ActionModule(ActionBase):
    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = self._task.args
        step = arguments.get("round")
        filesystems = tuple(of_variable(each) for each in arguments.get("filesystems") or [])
        if step == "plan":
            return {**result, **_plan(filesystems, task_vars)}
        if step == "meet":
            return {**result, **_meet(arguments, task_vars)}
        if step == "report":
            return {**result, **_report(filesystems, arguments, task_vars)}
        if step == "verdict":
            return {**result, **_verdict(arguments, task_vars)}
        if step in ("write", "read"):
            return {**result, **self._remote(step, filesystems, task_vars)}
        raise AnsibleActionFail(f"round {step!r} is not known; see ansible-doc {MODULE}")

    def _remote(
        self, step: str, filesystems: tuple[FileSystem, ...], task_vars: Any
    ) -> dict[str, Any]:
        arguments = self._task.args
        host, hostvars = task_vars["inventory_hostname"], task_vars["hostvars"]
        plan = _planned(arguments, task_vars)
        rings_of = plan.get("rings") or {}
        here = [name for name, ring in rings_of.items() if host in ring]
        if not here:
            return _nothing()
        sent = {key: value for key, value in arguments.items() if key not in HERE_ONLY}
        sent.update(
            host=host,
            groups=list(task_vars["group_names"]),
            token=plan["token"],
            filesystems=[fs.as_variable() for fs in filesystems if fs.name in here],
        )
        if step == "write":
            sent["seats"] = {name: {"writers": len(rings_of[name])} for name in here}
        else:
            variable = arguments.get("written")
            sent["held"] = (hostvars[host].get(variable) or {}).get("held") or {}
            met = (task_vars.get(arguments.get("met") or "") or {}).get("met") or {}
            sent["seats"] = {}
            for name in here:
                place = table.seat(rings_of[name], host, (met.get(name) or {}).get)
                if place is not None:
                    sent["seats"][name] = asdict(place)
        found: dict[str, Any] = self._execute_module(MODULE, module_args=sent, task_vars=task_vars)
        return found


def _nothing() -> dict[str, Any]:
    return {"changed": False, "layer": LAYER, "checks": [], "held": {}}


def _alone(arguments: Mapping[str, Any]) -> bool:
    return bool(boolean(arguments.get("alone", False)))


def _plan(filesystems: tuple[FileSystem, ...], task_vars: Any) -> dict[str, Any]:
    """The hosts of this play that use each file system: `--limit` makes a smaller ring."""
    groups_of: dict[str, set[str]] = {host: set() for host in task_vars["ansible_play_batch"]}
    for group, members in task_vars["groups"].items():
        for host in members:
            if host in groups_of:
                groups_of[host].add(group)
    found = {
        fs.name: [host for host, groups in groups_of.items() if mounts(fs, host, groups)]
        for fs in filesystems
    }
    plan = {"token": uuid.uuid4().hex[:12], "rings": found}
    return {"changed": False, "layer": LAYER, "checks": [], "plan": plan}


def _planned(arguments: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
    """By the name of a variable: as a value, all names would be templated for each of the hosts."""
    found = task_vars.get(arguments.get("plan") or "") or {}
    plan: dict[str, Any] = found.get("plan") or {}
    return plan


def _meet(arguments: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
    """How much each host wrote, of those that wrote well and are still in the play. All of them
    are asked once: each asking for those that follow would ask for each 64 times."""
    variable, hostvars = arguments.get("written"), task_vars["hostvars"]
    playing = frozenset(task_vars["ansible_play_hosts"])
    rings_of = _planned(arguments, task_vars).get("rings") or {}
    met: dict[str, dict[str, int]] = {name: {} for name in rings_of}
    for host in dict.fromkeys(chain.from_iterable(rings_of.values())):
        if host not in playing:
            continue
        held = (hostvars[host].get(variable) or {}).get("held") or {}
        for name, one in held.items():
            wrote = (one.get("figures") or {}).get("wrote")
            if wrote and not one.get("stopped"):
                met[name][host] = int(wrote["bytes"])
    return {"changed": False, "layer": LAYER, "checks": [], "met": met}


def _report(
    filesystems: tuple[FileSystem, ...], arguments: Mapping[str, Any], task_vars: Any
) -> dict[str, Any]:
    plan = _planned(arguments, task_vars)
    used = []
    for fs in filesystems:
        ring = (plan.get("rings") or {}).get(fs.name) or []
        figures = {}
        virtual = False
        for host in ring:
            result = _result(host, arguments, task_vars["hostvars"])
            found = ((result.get("held") or {}).get(fs.name) or {}).get("figures")
            virtual = virtual or bool(result.get("virtual"))
            if found and found.get("wrote"):
                figures[host] = found
        if figures:
            links = {host: _link(host, figures[host], task_vars["hostvars"]) for host in figures}
            used.append(table.Used(fs, tuple(ring), figures, links, virtual, _alone(arguments)))
    for one in used:
        for line in table.lines(one):
            display.display(line)
    told: dict[str, list[dict[str, Any]]] = {}
    for one in used:
        host = _concerned(one, task_vars["ansible_play_hosts"])
        told.setdefault(host, []).extend(as_dicts(table.together(one)))
    result: dict[str, Any] = {
        "changed": False,
        "layer": LAYER,
        "checks": [],
        "told": told,
        "figures": {one.fs.name: one.as_dict() for one in used},
    }
    if used and arguments.get("report_directory"):
        result["report"] = reports.keep(
            Path(arguments["report_directory"]),
            LAYER,
            {"filesystems": result["figures"]},
            display,
            "shared_storage_report_directory",
        )
    return result


def _concerned(used: table.Used, playing: Sequence[str]) -> str:
    """The host to be told what all of them did together: who serves it, else the slowest. It alone
    drops out of what follows where that is not enough."""
    serving = used.fs.serve.host if used.fs.serve is not None else ""
    slowest = [found.slowest_host for found in (used.of("wrote"), used.of("read")) if found]
    return next((host for host in (serving, *slowest, *used.hosts) if host in playing), playing[0])


def _verdict(arguments: Mapping[str, Any], task_vars: Any) -> dict[str, Any]:
    reported = task_vars.get(arguments.get("reported") or "") or {}
    told = (reported.get("told") or {}).get(task_vars["inventory_hostname"]) or []
    result = {"changed": False, "layer": LAYER, "checks": list(told)}
    message = failure_message(LAYER, [Check(**each) for each in told], REMEDY)
    return result if message is None else {**result, "failed": True, "msg": message}


def _result(host: str, arguments: Mapping[str, Any], hostvars: Any) -> dict[str, Any]:
    """Of the second round; of the first where there was no second."""
    for name in (arguments.get("used"), arguments.get("written")):
        found = hostvars[host].get(name) if name else None
        if found and found.get("held"):
            return dict(found)
    return {}


def _link(host: str, figures: Mapping[str, Any], hostvars: Any) -> Optional[table.Link]:
    """The rail that has the address by which the host talks to the server, if it is one."""
    for rail in hostvars[host].get("cluster_rails") or []:
        if rail.get("address") and rail["address"] == figures.get("own_address"):
            speed = float(rail.get("speed_gbps") or 0)
            return table.Link(rail["interface"], speed) if speed else None
    return None
