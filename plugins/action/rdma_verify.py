# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The steps of a verification: plan pairs of rails, run the module on the hosts, and report the
figures.

The steps `pairs` and `report` open no connection. The others run the module on the host, unless it
has nothing to do.
"""

from __future__ import annotations

import math
import uuid
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ansible import context

from ..module_utils.core.checks import Check, as_dicts, not_applicable
from ..module_utils.core.text import counted
from ..module_utils.qos import HostSettings
from ..module_utils.verbs.exchanges import END_S, EXCHANGES, Options
from ..module_utils.verbs.wire import tos_text
from ..plugin_utils import incast, rail_pairs
from ..plugin_utils.acceptance.coverage import Coverage, Fabric
from ..plugin_utils.answers import checks as checks_of
from ..plugin_utils.report import reports
from ..plugin_utils.report import verbs as table
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display
from ..plugin_utils.verify_run import VerifyRun

LAYER = "verbs"
MODULE = "baremetal.mpi_roce.rdma_verify"
REMOTE = ("serve", "drive", "collect")
CONTROLLER_ONLY = frozenset(
    [
        *("directory", "transport", "first_port", "at_once", "plan", "served", "driven"),
        *("collected", "place", "incast_senders"),
    ]
)
"""Options that the module on the host does not need."""


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
            reason = f"mpi_stack_transport is {transport}: RDMA is not used"
            return _result([not_applicable("pairs", "every rail measured", reason)], parts={})
        directory, batch = arguments.get("directory") or [], task_vars["ansible_play_batch"]
        first_port, place = int(arguments.get("first_port", 18515)), arguments.get("place") or ""
        switches = _switches(task_vars)
        if place:
            senders = int(arguments.get("incast_senders", incast.SENDERS))
            parts = incast.parts(directory, batch, first_port, place, senders)
        else:
            units = {
                name: own["cluster_unit"] for name, own in switches.items() if "cluster_unit" in own
            }
            parts = rail_pairs.parts(directory, batch, first_port, units)
        options = Options(
            queue_pairs=int(arguments.get("queue_pairs", Options.queue_pairs)),
            duration_s=int(arguments.get("duration_s", Options.duration_s)),
            time_limit_s=int(arguments.get("time_limit_s", Options.time_limit_s)),
        )
        schedule = rail_pairs.schedule(
            parts,
            at_once=int(arguments.get("at_once") or 0),
            forks=int(context.CLIARGS.get("forks") or 5),
            exchange_s=options.ends_s + 2 * END_S,
            duration_s=options.duration_s,
            exchanges=1 if place else len(EXCHANGES),
        )
        leaves = rail_pairs.by_leaves(directory, parts)
        pairs = counted(sum(leaves.values()), "sender" if place else "pair")
        display.display(
            f"{incast.PLACES[place] if place else LAYER}: {pairs} of rails, {schedule.at_once} "
            f"nodes at a time: at most about {math.ceil(schedule.expected_s / 60)} min"
        )
        coverage = Fabric.of_switches(switches).coverage(leaves, options.queue_pairs)
        return _result(
            [],
            incast=place,
            coverage=asdict(coverage) if coverage.directions and not place else {},
            parts={name: part.as_dict() for name, part in parts.items()},
            run_id=uuid.uuid4().hex[:12],
            at_once=schedule.at_once,
            limit_s=schedule.limit_s,
        )

    def _remote(self, step: str, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        host = task_vars["inventory_hostname"]
        run = VerifyRun.of(arguments, task_vars)
        part = run.part(host)
        if part is None:
            return _result([], problems={}, missing=[])
        checks = run.without_peer(host) if step == "drive" else []
        # Check mode starts nothing, but the step `serve` reports missing packages.
        idle = self._task.check_mode and step != "serve"
        if step == "collect" and not run.started(host):
            idle = True  # the step `serve` has reported the reason
        if idle or not part["drives" if step == "drive" else "serves"]:
            return _result(checks, problems={}, missing=[])
        sent = {key: value for key, value in arguments.items() if key not in CONTROLLER_ONLY}
        sent["part"] = {
            "drives": part["drives"],
            "serves": part["serves"],
            "host": host,
            "run_id": run.plan["run_id"],
            "limit_s": run.plan["limit_s"],
            "incast": run.incast,
        }
        if step == "drive":
            # Peers that have failed or become unreachable since the pairs were planned.
            lost = set(run.peers(host)) - set(task_vars["ansible_play_hosts"])
            sent["part"].update(lost=sorted(lost), unserved=run.unserved(host))
        result: dict[str, Any] = self._execute_module(MODULE, module_args=sent, task_vars=task_vars)
        if "checks" in result:
            result["checks"] = [*checks_of(result["checks"]), *as_dicts(checks)]
        return result

    def _report(self, arguments: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        run = VerifyRun.of(arguments, task_vars)
        pairs = [pair for host in run.parts for pair in run.pairs(host)]
        if not pairs:
            return {"changed": False}
        settings = HostSettings.of(arguments["qos"])
        planned = sum(len(part["drives"]) for part in run.parts.values())
        place = run.incast
        lines = table.lines(pairs, tos_text(settings.traffic_class), planned)
        if place:
            lines = table.incasts(pairs, incast.PLACES[place])
        for line in lines:
            display.display(line)
        covered = run.plan.get("coverage") or {}
        if covered:
            display.display(f"  {Coverage(**covered).sentence()}")
        directory = arguments.get("report_directory")
        if not directory:
            return {"changed": False}
        arrived = {host: run.arrived(host) for host in run.parts}
        text = {
            "pairs": pairs,
            "arrived": arrived,
            "traffic_class": settings.traffic_class,
            "coverage": covered,
        }
        name = f"incast-{place}" if place else LAYER
        report = reports.keep(Path(directory), name, text, display, "rdma_verify_report_directory")
        return {"changed": False, "report": report}


def _switches(task_vars: Any) -> dict[str, dict[str, Any]]:
    """Variables of all leaves and spines, whatever hosts play."""
    groups = task_vars.get("groups") or {}
    names = [name for role in ("leaf", "spine") for name in groups.get(role, ())]
    return {name: task_vars["hostvars"].raw_get(name) for name in names}


def _result(checks: list[Check], **more: Any) -> dict[str, Any]:
    return {"changed": False, "layer": LAYER, "checks": as_dicts(checks), **more}
