# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check the inventory against the cluster model, and return the cluster facts.

With `against`, show what the model changes, and refuse moves of hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants as C
from ansible import context
from ansible.errors import AnsibleActionFail

from ..module_utils.core.text import nearest, some
from ..module_utils.software.software_set import SoftwareSet
from ..modules.cluster_directory import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.model import facts, inventory_rules, role_variables
from ..plugin_utils.model.changes import as_data, compare
from ..plugin_utils.model.cluster import ROLES
from ..plugin_utils.model.moves import refuse
from ..plugin_utils.model.software_rules import REFUSED, evaluate
from ..plugin_utils.model.source import ModelError, read_file
from ..plugin_utils.model.versions import compiled, read_earlier
from ..plugin_utils.report import model_changes
from ..plugin_utils.report.reports import save
from ..plugin_utils.schema.findings import Findings, listed
from ..plugin_utils.terminal import display

RESOLVER = "resolver"
"""Value of `cluster_hosts_mode` with which a new node changes no file of other nodes."""
NOT_COMPARED = "none"
"""The word for `against` that skips the comparison, which group_vars may ask for."""


class ActionModule(NodeAction):
    """Reads the inventory on the controller; needs no connection, and ignores --limit."""

    _requires_connection = False

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, arguments = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if arguments["needs"]:
            _check_limit(arguments["needs"], task_vars)
        findings = Findings()
        sources = [Path(source) for source in task_vars.get("ansible_inventory_sources") or []]
        # HostVars.raw_get merges a host's variables without templating them.
        hostvars, groups = task_vars["hostvars"], task_vars["groups"]
        every = {name: hostvars.raw_get(name) for name in groups["all"]}
        hosts = {name: every[name] for role in ROLES for name in groups.get(role, ())}
        inventory_rules.check_model(hosts, sources, findings)
        if arguments["role_variables"]:
            specs = role_variables.read_specs()
            values = {
                name: role_variables.values(hostvars, name, variables, specs)
                for name, variables in every.items()
            }
            role_variables.check(specs, values, findings)
        ports = inventory_rules.ssh_ports(hosts, hostvars, findings)
        if findings:
            return {
                "failed": True,
                "msg": inventory_rules.message(findings, bool(hosts), sources),
                "findings": [finding.text() for finding in findings.found],
            }
        changes = self._changes(arguments, sources, hosts)
        if "msg" in changes:
            return changes
        first = next(iter(hosts.values()))
        launcher = _launcher(arguments["launcher"], task_vars)
        software = SoftwareSet.of(first["cluster_software"])
        sets = {own.get("cluster_kind"): own["cluster_software"] for own in hosts.values()}
        doubts = [
            rule.line(each)
            for each in map(SoftwareSet.of, sets.values())
            for rule in evaluate(each)
            if rule.status != REFUSED
        ]
        forks = int(context.CLIARGS.get("forks") or C.DEFAULT_FORKS)
        for line in (
            *inventory_rules.unread_files(sources, groups),
            *inventory_rules.controller_limits(hosts, forks),
        ):
            display.warning(line)
        directory = facts.build(hosts, ports)
        domain = arguments["domain"]
        returned = {"directory": directory} if arguments["directory"] else {}
        return {
            "changed": False,
            "cluster_name": first["cluster_name"],
            "compute_hosts": [host["name"] for host in directory if host["role"] == "compute"],
            "drained_hosts": [host["name"] for host in directory if host["drained"]],
            "total_slots": sum(host["slots"] for host in directory if not host["drained"]),
            **returned,
            "slurm": facts.slurm(hosts),
            "names": facts.names(directory if domain is not None else (), domain or ""),
            "software_doubts": list(dict.fromkeys(doubts)),
            "launcher": launcher,
            "mpi_provider": software.mpi.provider,
            **changes,
        }

    def _changes(
        self,
        arguments: Mapping[str, Any],
        sources: Sequence[Path],
        hosts: Mapping[str, Mapping[str, Any]],
    ) -> dict[str, Any]:
        """Show and return what the model changes; the failed result if it is refused."""
        against, to_file = arguments["against"], arguments["against_json"]
        if against in (None, NOT_COMPARED):
            return {}
        if not against.strip():
            raise AnsibleActionFail(
                "against is empty: name a model, a directory or a revision of git. "
                f"To compare with nothing: -e against={NOT_COMPARED}"
            )
        model = next(inventory_rules.models([each for each in sources if each.exists()]), None)
        if model is None:
            raise AnsibleActionFail("against: no inventory source is a model. Pass one with -i")
        try:
            new = compiled(read_file(str(model)))
            old = compiled(read_earlier(against, model))
        except ModelError as error:
            raise AnsibleActionFail(str(error)) from None
        found, findings = compare(old, new), Findings(new.source.line)
        refuse(old, new, found, findings)
        words = [min(os.path.relpath(source), str(source), key=len) for source in sources]
        nodes = [own for own in hosts.values() if own["cluster_role"] == "compute"]
        resolver = all(own.get("cluster_hosts_mode") == RESOLVER for own in nodes)
        steps = model_changes.steps(found, words, resolver=resolver)
        for line in model_changes.lines(found, against, steps):
            display.display(line)
        given = {"format": 1, "against": against, "model": str(model), "moves": arguments["moves"]}
        changes = {**given, **as_data(found, findings), "steps": steps}
        if to_file and not self._task.check_mode:
            try:
                save(Path(to_file), json.dumps(changes, indent=1) + "\n")
            except OSError as error:
                raise AnsibleActionFail(f"against_json: {error}. Name another file") from None
        if not findings or arguments["moves"] == "accepted":
            return {"changes": changes}
        remedy = "To accept, run again with -e moves=accepted."
        head = f"{model}: compared with {against}, this model has"
        return {
            "failed": True,
            "msg": f"{listed(head, findings.found)}\n  {remedy}",
            "findings": [finding.text() for finding in findings.found],
        }


def _check_limit(group: str, task_vars: dict[str, Any]) -> None:
    """Without a host in the group, its play would do nothing and still succeed."""
    hosts, limit = task_vars["groups"].get(group) or [], task_vars.get("ansible_limit")
    if limit and hosts and not set(hosts).intersection(task_vars["ansible_play_hosts_all"]):
        runs = "which runs it" if len(hosts) == 1 else "one of which runs it"
        raise AnsibleActionFail(
            f"--limit {limit} excludes {', '.join(hosts)}, {runs}: nothing was done. "
            f"Add the {group}: --limit '{limit},{group}'"
        )


def _launcher(named: str, task_vars: dict[str, Any]) -> str:
    """The launcher of this play that launches ranks: the one that is named, or the first one."""
    known = task_vars["groups"].get("launcher") or []
    running = task_vars["ansible_play_hosts"]
    here = [host for host in known if host in running]
    if not named:
        return str((here or running)[0])
    if named not in known:
        remedy = nearest(named, known)
        raise AnsibleActionFail(f"mpi_job_launcher: {named!r} is not a launcher. {remedy}")
    if named not in here:
        why = "failed or did not respond earlier in this run"
        if named not in task_vars["ansible_play_hosts_all"]:
            why = f"is excluded by --limit {task_vars.get('ansible_limit') or ''}".rstrip()
        others = f"; available: {some(here)}" if here else ""
        raise AnsibleActionFail(f"mpi_job_launcher: {named} {why}{others}")
    return named
