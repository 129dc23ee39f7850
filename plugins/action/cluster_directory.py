# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check the inventory against the cluster model, and return the cluster facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail

from ..module_utils.software.software_set import SoftwareSet
from ..modules.cluster_directory import ARGUMENTS
from ..plugin_utils.actions import NodeAction
from ..plugin_utils.model import facts, inventory_rules, role_variables
from ..plugin_utils.model.cluster import ROLES
from ..plugin_utils.model.software_rules import REFUSED, evaluate
from ..plugin_utils.schema.findings import Findings
from ..plugin_utils.terminal import display


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
        first = next(iter(hosts.values()))
        software = SoftwareSet.of(first["cluster_software"])
        doubts = [rule.line(software) for rule in evaluate(software) if rule.status != REFUSED]
        for line in (*doubts, *inventory_rules.unread_files(sources, groups)):
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
            "names": facts.names(directory if domain is not None else (), domain or ""),
            "software_doubts": doubts,
            "mpi_provider": software.mpi.provider,
        }


def _check_limit(group: str, task_vars: dict[str, Any]) -> None:
    """Without a host in the group, its play would do nothing and still succeed."""
    hosts, limit = task_vars["groups"].get(group) or [], task_vars.get("ansible_limit")
    if limit and hosts and not set(hosts).intersection(task_vars["ansible_play_hosts_all"]):
        raise AnsibleActionFail(
            f"--limit {limit} excludes {', '.join(hosts)}, which runs it: nothing was done. "
            f"Add the {group}: --limit '{limit},{group}'"
        )
