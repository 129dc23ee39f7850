# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check every link from the results of nodes and switches in this run, without a connection.

Step `judge` compares all links once; step `verdict` returns the findings to each host and fails
those whose end of a link is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Optional

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils.core.checks import FAILED, NOT_APPLICABLE, PENDING, Check, failures
from ..plugin_utils import look
from ..plugin_utils.answers import AnswerError
from ..plugin_utils.fabric import underlay
from ..plugin_utils.fabric.cabling import LinkFinding, NodeEntry, SwitchEntry
from ..plugin_utils.fabric.compare import node_state
from ..plugin_utils.fabric.links import Links, check_links
from ..plugin_utils.fabric.results import RAILS, failure_of, switch_result
from ..plugin_utils.fabric.wire_map import WireMapError
from ..plugin_utils.qos import contract_of
from ..plugin_utils.report import reports
from ..plugin_utils.steps import Step, SteppedAction
from ..plugin_utils.terminal import display

LAYER = "links"
MODULE = "baremetal.mpi_roce.fabric_links"
MAX_LINES = 40


class ActionModule(SteppedAction):
    MODULE = MODULE

    def steps(self) -> dict[str, Step]:
        return {"judge": self._compare, "verdict": self._verdict}

    def _compare(self, task_vars: Any) -> dict[str, Any]:
        arguments = self._task.args
        contract = contract_of(arguments["qos"])
        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        wire_map = arguments.get("wire_map")
        routing = underlay.reading_of(groups, hostvars, task_vars["ansible_play_hosts_all"])
        try:
            links = check_links(
                contract,
                {switch.name: switch for switch in _switches(groups, hostvars)},
                {node.name: node for node in _nodes(groups, hostvars)},
                asics=arguments.get("asics") or {},
                inside=frozenset(task_vars["ansible_play_hosts_all"]),
                check_mode=bool(self._task.check_mode)
                and not boolean(arguments.get("strict", False)),
                wire_map=Path(wire_map) if wire_map else None,
                small=routing.small if routing else {},
            )
        except WireMapError as error:
            raise AnsibleActionFail(f"fabric_links_wire_map: {error}") from error
        links.findings += _underlay(routing, links.wrong_mtu)
        for line in lines(links):
            display.display(line)
        here = dict.fromkeys(task_vars["ansible_play_hosts"])
        by_host: dict[str, list[dict[str, Any]]] = {}
        for finding in links.findings:
            check, at_fault = finding.check, finding.hosts[: finding.at_fault]
            if at_fault and not any(name in here for name in at_fault):
                check = _of_one_that_dropped_out(check, at_fault[0])
            first = next((name for name in finding.hosts if name in here), next(iter(here)))
            for host in [name for name in at_fault if name in here] or [first]:
                by_host.setdefault(host, []).append(asdict(check))
            seen = replace(check, status=NOT_APPLICABLE, reason=f"see {first}: {check.reason}")
            for host in finding.shown_at:
                by_host.setdefault(host, []).append(asdict(seen))
        result: dict[str, Any] = {"changed": False, "by_host": by_host}
        if arguments.get("report_directory"):
            result["report"] = _save(Path(arguments["report_directory"]), links)
        return result

    def _verdict(self, task_vars: Any) -> dict[str, Any]:
        result = task_vars.get(self._task.args.get("judged")) or {}
        checks = (result.get("by_host") or {}).get(task_vars["inventory_hostname"]) or []
        wrong = [f"  {check.line()}" for check in failures(Check(**each) for each in checks)]
        result = {"changed": False, "layer": LAYER, "checks": list(checks)}
        if not wrong:
            return result
        head = f"{LAYER}: {len(wrong)} found here or at the other end:"
        message = "\n".join([head, *wrong[:MAX_LINES], *_more(wrong)])
        return {**result, "failed": True, "msg": message}


def _of_one_that_dropped_out(check: Check, host: str) -> Check:
    if check.status != FAILED:
        return check
    reason = f"{host} has failed earlier in this run; see its own message. {check.reason}"
    return replace(check, status=NOT_APPLICABLE, reason=reason)


def _switches(groups: Any, hostvars: Any) -> Iterator[SwitchEntry]:
    for name in (*groups.get("leaf", []), *groups.get("spine", [])):
        variables = hostvars[name]
        result = switch_result(variables)
        yield SwitchEntry(
            name=name,
            ports=variables.get("cluster_ports") or [],
            system=str(variables.get("cluster_system") or ""),
            asic=str(variables.get("cluster_asic") or ""),
            report=result.get("report"),
            reason=failure_of(result),
        )


def _nodes(groups: Any, hostvars: Any) -> Iterator[NodeEntry]:
    for name in groups.get("compute", []):
        # Untemplated, because there are many nodes.
        state = hostvars.raw_get(name).get(RAILS) or look.state(name, "rails") or {}
        if "rails" not in state:
            yield NodeEntry(name=name, reason=failure_of(state))
            continue
        try:
            yield NodeEntry(name=name, state=node_state(state))
        except AnswerError as error:
            yield NodeEntry(name=name, reason=str(error))


def _underlay(
    reading: Optional[underlay.Reading], known: Mapping[str, Collection[str]]
) -> Iterator[LinkFinding]:
    """What the step `underlay` of switch_qos read on each switch, compared with the model. An MTU
    has one finding: that of a port by its link, that of another routed interface here."""
    for name, check in reading.checks(known) if reading else ():
        yield LinkFinding(check, (name,))


def _save(directory: Path, links: Links) -> str:
    found = {
        "links": [vars(group) for group in links.groups],
        "shown_by_lldp": links.neighbours,
        "checks": [asdict(check) for check in links.checks],
    }
    return reports.keep(directory, LAYER, found, display, "fabric_links_report_directory")


def lines(links: Links) -> list[str]:
    count = sum(group.links for group in links.groups)
    agree = sum(group.agree for group in links.groups)
    head = (
        f"links: {count} in the model, {agree} with nothing wrong in what both ends say, "
        f"{links.neighbours} shown by LLDP to be where the model has them"
    )
    failed = [check for check in links.checks if check.status in (FAILED, PENDING)]
    return [head, *(f"  {check.line()}" for check in failed[:MAX_LINES]), *_more(failed)]


def _more(entries: Sequence[object]) -> list[str]:
    left = len(entries) - MAX_LINES
    return [f"  ... and {left} more: see the report"] if left > 0 else []
