# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller alone knows of a verification: who takes part, and what all of them found.

The steps `pairs` and `report` need no connection. The others execute the module on the host, unless
there is nothing for it to do.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ansible import context

from ..module_utils.core.checks import Check, as_dicts, not_applicable
from ..module_utils.qos import HostSettings
from ..module_utils.verbs.exchanges import END_S, Options
from ..module_utils.verbs.wire import tos_text
from ..plugin_utils import rail_pairs
from ..plugin_utils.answers import AnswerError, form_of, mapping, sentence, sequence
from ..plugin_utils.answers import checks as checks_of
from ..plugin_utils.report import reports
from ..plugin_utils.report import verbs as table
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

LAYER = "verbs"
MODULE = "baremetal.mpi_roce.rdma_verify"
REMOTE = ("serve", "drive", "collect")
MOST_RAILS = 64
HERE_ONLY = frozenset(
    ["directory", "transport", "first_port", "at_once", "plan", "served", "driven", "collected"]
)
"""Options that a host does not need."""


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        arguments = self._task.args
        return {
            "pairs": partial(self._pairs, arguments),
            "report": partial(self._report, arguments),
            **{step: partial(self._remote, step, arguments) for step in REMOTE},
        }

    def _pairs(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        transport = arguments.get("transport", "rc")
        if transport != "rc":
            reason = f"mpi_stack_transport is {transport}: no RDMA was asked for"
            return _result([not_applicable("pairs", "every rail measured", reason)], parts={})
        found = rail_pairs.parts(
            arguments.get("directory") or [],
            task_vars["ansible_play_batch"],
            int(arguments.get("first_port", 18515)),
        )
        options = Options(
            duration_s=int(arguments.get("duration_s", Options.duration_s)),
            time_limit_s=int(arguments.get("time_limit_s", Options.time_limit_s)),
        )
        when = rail_pairs.schedule(
            found,
            at_once=int(arguments.get("at_once") or 0),
            forks=int(context.CLIARGS.get("forks") or 5),
            exchange_s=options.ends_s + 2 * END_S,
        )
        return _result(
            [],
            parts={name: part.as_dict() for name, part in found.items()},
            run_id=uuid.uuid4().hex[:12],
            at_once=when.at_once,
            limit_s=when.limit_s,
        )

    def _remote(self, step: str, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        host = task_vars["inventory_hostname"]
        plan = arguments.get("plan") or {}
        part = (plan.get("parts") or {}).get(host)
        if part is None:
            return _result([], problems={}, missing=[])
        checks = _without_peer(part) if step == "drive" else []
        idle = self._task.check_mode and step != "serve"  # that one reports missing packages
        if step == "collect" and not _started(host, arguments.get("served"), task_vars["hostvars"]):
            idle = True  # step `serve` has reported why
        if idle or not part["drives" if step == "drive" else "serves"]:
            return _result(checks, problems={}, missing=[])
        sent = {key: value for key, value in arguments.items() if key not in HERE_ONLY}
        given = {key: part[key] for key in ("drives", "serves")}
        given.update(host=host, run_id=plan["run_id"], limit_s=plan["limit_s"])
        if step == "drive":
            given["lost"] = _lost(part, task_vars)
            given["unserved"] = _unserved(part, arguments.get("served"), task_vars["hostvars"])
        sent["part"] = given
        found: dict[str, Any] = self._execute_module(MODULE, module_args=sent, task_vars=task_vars)
        if "checks" in found:
            found["checks"] = [*checks_of(found["checks"]), *as_dicts(checks)]
        return found

    def _report(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        hostvars = task_vars["hostvars"]
        found: list[dict[str, Any]] = []
        arrived: dict[str, Any] = {}
        parts = (arguments.get("plan") or {}).get("parts") or {}
        for host in parts:
            driven = mapping(hostvars[host].get(arguments.get("driven")))
            collected = mapping(hostvars[host].get(arguments.get("collected")))
            found += _pairs_of(host, parts[host], driven)
            arrived[host] = mapping(collected.get("arrived"))
        if not found:
            return {"changed": False}
        settings = HostSettings.of(arguments["qos"])
        planned = sum(len(part["drives"]) for part in parts.values())
        for line in table.lines(found, tos_text(settings.traffic_class), planned):
            display.display(line)
        directory = arguments.get("report_directory")
        if not directory:
            return {"changed": False}
        text = {"pairs": found, "arrived": arrived, "traffic_class": settings.traffic_class}
        report = reports.keep(Path(directory), LAYER, text, display, "rdma_verify_report_directory")
        return {"changed": False, "report": report}


def _result(checks: list[Check], **more: Any) -> dict[str, Any]:
    return {"changed": False, "layer": LAYER, "checks": as_dicts(checks), **more}


def _without_peer(part: dict[str, Any]) -> list[Check]:
    return [
        not_applicable("pair", "measured", reason, subject=rail)
        for rail, reason in part["alone"].items()
    ]


def _lost(part: dict[str, Any], task_vars: Any) -> list[str]:
    """Peers that failed or could not be reached since the pairs were made."""
    here = set(task_vars["ansible_play_hosts"])
    return sorted({half["peer"] for half in part["drives"]} - here)


def _started(host: str, names: Any, hostvars: Any) -> bool:
    """Whether this host has servers: one that failed to start them has stopped them itself."""
    return any((hostvars[host].get(name) or {}).get("ports") for name in names or [])


def _pairs_of(host: str, part: Mapping[str, Any], driven: Mapping[str, Any]) -> list[Any]:
    """What a host measured, once for each of its pairs. A result of another form has failed."""
    wanted = [(half["rail"], half["peer"]) for half in part["drives"]]
    found: dict[Any, dict[str, Any]] = {}
    for each in sequence(mapping(driven.get("figures")).get("pairs")):
        pair = mapping(each)
        place = next((one for one in wanted if one == (pair.get("rail"), pair.get("peer"))), None)
        if place is None or place in found:
            continue
        found[place] = {"rail": place[0], "host": host, "peer": place[1]}
        try:
            with form_of("the figures of a pair"):
                exchanges = {
                    name: {**result, "growth": _growth(result.get("growth"))}
                    for name, result in (pair.get("exchanges") or {}).items()
                }
                one = {**pair, **found[place], "exchanges": exchanges}
                table.lines([one], "")
                found[place] = one
        except AnswerError as error:
            found[place]["problem"] = str(error)
    return list(found.values())


def _growth(answer: Any) -> dict[str, int]:
    return {
        name: count
        for name, count in mapping(answer).items()
        if isinstance(count, int) and 0 <= count < 1 << 64
    }


def _sentences(problems: Mapping[str, Any]) -> dict[str, str]:
    """By rail what a peer says, which another host gets: words for its messages, nothing else."""
    rails = list(problems.items())[:MOST_RAILS]
    return {rail: sentence(why, 300) for rail, why in rails if sentence(rail, 40) == rail}


def _unserved(part: dict[str, Any], names: Any, hostvars: Any) -> dict[str, Any]:
    """By peer the rails that it cannot serve."""
    found: dict[str, Any] = {}
    for peer in sorted({half["peer"] for half in part["drives"]}):
        for name in names or []:
            problems = mapping(mapping(hostvars[peer].get(name)).get("problems"))
            if problems:
                found.setdefault(peer, {}).update(_sentences(problems))
    return found
