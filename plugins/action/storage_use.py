# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's part in the use of storage: the ring of hosts, and the figures of all.

The rounds `write` and `read` execute the module on a host that has something to write or read. The
others need no connection.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.checks import Check, as_dicts, failure_message
from ..module_utils.storage.file_system import FileSystem, of_variable
from ..module_utils.storage.units import mounts
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.answers import amount, mapping, sentence
from ..plugin_utils.report import reports
from ..plugin_utils.report import storage_use as table
from ..plugin_utils.terminal import display

LAYER = "storage"
MODULE = "baremetal.mpi_roce.storage_use"
MOST_BYTES = 1 << 50
"""That a host wrote, as many as another host reads."""
MOST_SECONDS = 1e11
"""Since 1970, and so of any time."""
REMEDY = "Look at the server first: all nodes used it, and together they were too slow."


class ActionModule(NodeAction):
    def act(self, task_vars: Any) -> dict[str, Any]:
        step = self._task.args.get("round")
        filesystems = [of_variable(each) for each in self._task.args.get("filesystems") or []]
        nothing = {"changed": False, "layer": LAYER, "checks": []}
        if step == "plan":
            return {**nothing, "plan": _plan(filesystems, task_vars)}
        if step == "report":
            return {**nothing, **_report(filesystems, self._task.args, task_vars)}
        if step == "verdict":
            return {**nothing, **_verdict(task_vars)}
        if step not in ("write", "read"):
            raise AnsibleActionFail(f"unknown round {step!r}; see ansible-doc {MODULE}")
        plan = _registered(task_vars, "plan").get("plan") or {"rings": {}}
        seats = (_writing if step == "write" else _reading)(plan["rings"], task_vars)
        if not seats:
            return {**nothing}
        given = {
            **{key: value for key, value in self._task.args.items() if key != "report_directory"},
            "host": task_vars["inventory_hostname"],
            "groups": list(task_vars["group_names"]),
            "token": plan["token"],
            "filesystems": [fs.as_variable() for fs in filesystems if fs.name in seats],
            "seats": seats,
        }
        return self._execute_module(MODULE, module_args=given, task_vars=task_vars)


def _registered(variables: Any, step: str) -> Mapping[str, Any]:
    """The result of a round; empty where there was none."""
    found: Optional[Mapping[str, Any]] = variables.get(f"__shared_storage_{step}")
    return found or {}


def _plan(filesystems: Sequence[FileSystem], task_vars: Any) -> dict[str, Any]:
    """The hosts of this play that use each file system: `--limit` makes a smaller ring."""
    groups_of: dict[str, set[str]] = {host: set() for host in task_vars["ansible_play_batch"]}
    for group, members in task_vars["groups"].items():
        for host in members:
            if host in groups_of:
                groups_of[host].add(group)
    rings = {
        fs.name: [host for host, groups in groups_of.items() if mounts(fs, host, groups)]
        for fs in filesystems
    }
    return {"token": uuid.uuid4().hex[:12], "rings": rings}


Rings = Mapping[str, Sequence[str]]
Seats = dict[str, dict[str, Any]]
"""By file system, what the module has to know of the other hosts."""


def _writing(rings: Rings, task_vars: Any) -> Seats:
    host = task_vars["inventory_hostname"]
    return {name: {"writers": len(ring)} for name, ring in rings.items() if host in ring}


def _reading(rings: Rings, task_vars: Any) -> Seats:
    """Only of what this host wrote itself.

    Writers are known by the results of their round, never by who is still in the play: a host that
    fails while it reads leaves the play before others have their turn.
    """
    host, hostvars = task_vars["inventory_hostname"], task_vars["hostvars"]
    results = {host: _registered(task_vars, "write")}

    def wrote(other: str, name: str) -> Optional[int]:
        if other not in results:
            results[other] = _registered(hostvars[other], "write")
        result = results[other]
        found = mapping(mapping(mapping(result.get("measured")).get(name)).get("wrote"))
        size = amount(found.get("bytes"), MOST_BYTES)
        return int(size) if size is not None and not result.get("failed") else None

    found: Seats = {}
    for name, ring in rings.items():
        if host in ring and wrote(host, name) is not None:
            neighbour, size = table.neighbour(ring, host, lambda other: wrote(other, name))  # noqa: B023
            found[name] = {
                "writers": len(ring),
                "neighbour": neighbour,
                "neighbour_bytes": size,
            }
    return found


def _report(
    filesystems: Sequence[FileSystem], arguments: Mapping[str, Any], task_vars: Any
) -> dict[str, Any]:
    rings = (_registered(task_vars, "plan").get("plan") or {}).get("rings") or {}
    alone = bool(boolean(arguments.get("alone", False)))
    hosts = dict.fromkeys(host for ring in rings.values() for host in ring)
    variables = {host: task_vars["hostvars"][host] for host in hosts}
    results = {
        host: [_registered(variables[host], step) for step in ("write", "read")] for host in hosts
    }
    used = []
    for fs in filesystems:
        ring = rings.get(fs.name) or []
        figures: dict[str, dict[str, Any]] = {}
        for host in ring:
            measured = [mapping(each.get("measured")).get(fs.name) for each in results[host]]
            found = {key: value for each in measured for key, value in _figures(each).items()}
            if found.get("wrote"):
                figures[host] = found
        if figures:
            links = {host: _link(figures[host], variables[host]) for host in figures}
            virtual = any(each.get("virtual") for host in ring for each in results[host])
            used.append(table.Used(fs, tuple(ring), figures, links, virtual, alone))
    verdicts: dict[str, list[dict[str, Any]]] = {}
    for one in used:
        for line in table.lines(one):
            display.display(line)
        host = _concerned(one, task_vars["ansible_play_hosts"])
        verdicts.setdefault(host, []).extend(as_dicts(table.together(one)))
    figures_of = {one.fs.name: one.as_dict() for one in used}
    result: dict[str, Any] = {"verdicts": verdicts, "figures": figures_of}
    if used and arguments.get("report_directory"):
        result["report"] = reports.keep(
            Path(arguments["report_directory"]),
            LAYER,
            {"filesystems": figures_of},
            display,
            "shared_storage_report_directory",
        )
    return result


def _figures(answer: Any) -> dict[str, Any]:
    """What a host measured of one file system, as all figures together are made of it."""
    given = mapping(answer)
    found = {
        "own_address": sentence(given.get("own_address")),
        "served_here": given.get("served_here") is True,
    }
    for what in ("wrote", "read"):
        one = mapping(given.get(what))
        size = amount(one.get("bytes"), MOST_BYTES)
        seconds, ended = (amount(one.get(key), MOST_SECONDS) for key in ("seconds", "ended"))
        if size is not None and seconds is not None and ended is not None:
            found[what] = {"bytes": int(size), "seconds": seconds, "ended": ended}
    return {key: value for key, value in found.items() if key in given}


def _concerned(used: table.Used, playing: Sequence[str]) -> str:
    """The host that fails for all: the server, else the slowest. It alone drops out of what
    follows."""
    serving = used.fs.serve.host if used.fs.serve is not None else ""
    slowest = [found.slowest_host for found in (used.of("wrote"), used.of("read")) if found]
    candidates = (serving, *slowest, *used.hosts)
    return next((host for host in candidates if host in playing), used.hosts[0])


def _verdict(task_vars: Any) -> dict[str, Any]:
    verdicts = _registered(task_vars, "report").get("verdicts") or {}
    checks = verdicts.get(task_vars["inventory_hostname"]) or []
    message = failure_message(LAYER, [Check(**each) for each in checks], REMEDY)
    return {"checks": checks, **({"failed": True, "msg": message} if message else {})}


def _link(figures: Mapping[str, Any], variables: Mapping[str, Any]) -> Optional[table.ServerLink]:
    """The rail that has the address by which the host reaches the server, if it is one."""
    for rail in variables.get("cluster_rails") or []:
        if rail.get("address") and rail["address"] == figures.get("own_address"):
            speed = float(rail.get("speed_gbps") or 0)
            return table.ServerLink(rail["interface"], speed) if speed else None
    return None
