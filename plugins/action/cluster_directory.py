# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..plugin_utils import model as cluster_model
from ..plugin_utils import role_variables
from ..plugin_utils.model import contracts, directory, filesystem_lists, names, software_sets
from ..plugin_utils.model.software_keys import VARIABLE as SOFTWARE
from ..plugin_utils.model.storage_keys import VARIABLE as FILESYSTEMS
from ..plugin_utils.qos.keys import VARIABLE as CONTRACT
from ..plugin_utils.schema.findings import SHOWN, Findings

_TEMPLATE = re.compile(r"\{[{%#]")


class ActionModule(ActionBase):
    """Reads the inventory on the controller: no connection, no module, whatever hosts play."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_async = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _spec, arguments = self.validate_argument_spec(
            argument_spec={
                "role_variables": {"type": "bool", "default": False},
                "domain": {"type": "str"},
            }
        )
        findings = Findings()
        if arguments["role_variables"]:
            known = role_variables.options()
            role_variables.check(known, _settings(task_vars, known), findings)
        records = list(_records(task_vars, findings))
        built = directory.build(records, findings)
        contracts.check_contracts(_holders(records, task_vars, findings), findings)
        doubts = software_sets.check_sets(_sets(records), findings)
        _check_filesystems(records, built.entries, task_vars["groups"], findings)
        contracts.check_switches(_switches(task_vars, findings), findings)
        # Of an inventory without another fault: a name has one then.
        of_hosts = {}
        if arguments["domain"] is not None and not findings:
            of_hosts = names.lines(built.entries, arguments["domain"], findings)
        for line in doubts:
            self._display.warning(line)
        if findings:
            result.update(
                failed=True,
                msg=_message(findings, records, task_vars.get("ansible_inventory_sources")),
                findings=[finding.text() for finding in findings.found],
            )
            return result
        result.update(
            changed=False,
            cluster_name=built.cluster_name,
            compute_hosts=built.compute_hosts,
            drained_hosts=built.drained_hosts,
            total_slots=built.total_slots,
            directory=built.entries,
            names=names.rendered(of_hosts),
            software_doubts=doubts,
        )
        return result


def _records(task_vars: dict[str, Any], findings: Findings) -> Iterator[directory.Record]:
    """Every host of the directory's groups, each once, with its variables resolved."""
    groups, hostvars = task_vars["groups"], task_vars["hostvars"]
    roles: dict[str, list[str]] = {}
    for role in directory.ROLES:
        for name in groups.get(role, []):
            roles.setdefault(name, []).append(role)
    for name, of_host in roles.items():
        # HostVars.raw_get merges a host's variables once and templates none of them.
        raw = hostvars.raw_get(name)
        unreadable = set()
        wanted = (*directory.VARIABLES, CONTRACT, SOFTWARE, FILESYSTEMS)
        variables = {key: raw[key] for key in wanted if key in raw}
        for key in variables:
            if not _resolve(variables, key, name, hostvars, findings):
                unreadable.add(key)
        yield directory.Record(name, tuple(of_host), variables, frozenset(unreadable))


def _holders(
    records: list[directory.Record], task_vars: dict[str, Any], findings: Findings
) -> Iterator[contracts.Holder]:
    """Everybody who keeps the QoS contract: the hosts of the directory, then the switches."""
    for record in records:
        if CONTRACT not in record.unreadable:
            variables = record.variables
            yield contracts.Holder(
                record.name, variables.get(CONTRACT), variables.get("cluster_rails")
            )
    hostvars = task_vars["hostvars"]
    for name in _switch_names(task_vars):
        variables = {CONTRACT: hostvars.raw_get(name).get(CONTRACT)}
        if _resolve(variables, CONTRACT, name, hostvars, findings):
            yield contracts.Holder(name, variables[CONTRACT])


def _sets(records: list[directory.Record]) -> Iterator[software_sets.Holder]:
    for record in records:
        if SOFTWARE not in record.unreadable:
            value = record.variables.get(SOFTWARE)
            yield software_sets.Holder(record.name, value, "compute" in record.roles)


def _check_filesystems(
    records: list[directory.Record],
    entries: list[dict[str, Any]],
    groups: dict[str, list[str]],
    findings: Findings,
) -> None:
    """Shared file systems of everybody who may mount or serve them."""
    domain = records[0].variables.get("cluster_domain", "") if records else ""
    site = filesystem_lists.site_of(entries, str(domain), groups)
    members: dict[str, set[str]] = {}
    for group, hosts in groups.items():
        for name in hosts:
            members.setdefault(name, set()).add(group)
    holders = [
        filesystem_lists.Holder(
            record.name, record.variables.get(FILESYSTEMS), members.get(record.name, set())
        )
        for record in records
        if FILESYSTEMS not in record.unreadable
    ]
    filesystem_lists.check_lists(holders, site, findings)


def _settings(
    task_vars: dict[str, Any], known: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of every host those of the variables that it has, and that have a value by now.

    A template of facts, or of what a role has yet to define, is judged where it is used.
    """
    later = Findings()
    for name in task_vars["groups"]["all"]:
        yield name, _known(task_vars["hostvars"], name, known, later)


def _switches(
    task_vars: dict[str, Any], findings: Findings
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in _switch_names(task_vars):
        variables = _known(task_vars["hostvars"], name, contracts.VARIABLES, findings)
        yield name, variables


def _known(hostvars: Any, name: str, known: Iterable[str], findings: Findings) -> dict[str, Any]:
    """Those of the variables that a host has and that can be templated."""
    raw = hostvars.raw_get(name)
    variables = {key: raw[key] for key in known if key in raw}
    return {
        key: variables[key]
        for key in list(variables)
        if _resolve(variables, key, name, hostvars, findings)
    }


def _switch_names(task_vars: dict[str, Any]) -> list[str]:
    groups = task_vars["groups"]
    return list(dict.fromkeys((*groups.get("leaf", []), *groups.get("spine", []))))


def _resolve(
    variables: dict[str, Any], key: str, name: str, hostvars: Any, findings: Findings
) -> bool:
    """Template a variable where it has to be; False where that fails, which is then told."""
    if _has_template(variables[key]):
        try:
            variables[key] = _resolved(hostvars[name][key])
        except AnsibleError as error:
            findings.add(
                "inventory.template", (name, key), f"cannot be templated: {error}", "Correct it"
            )
            return False
    return True


def _resolved(value: Any) -> Any:
    """All of a value that Ansible would template only when it is looked at."""
    if isinstance(value, dict):
        return {key: _resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    return value


def _has_template(value: Any) -> bool:
    if isinstance(value, str):
        return "{" in value and _TEMPLATE.search(value) is not None
    if isinstance(value, dict):
        return any(map(_has_template, value.values()))
    if isinstance(value, list):
        return any(map(_has_template, value))
    return False


def _message(findings: Findings, records: list[directory.Record], sources: Any) -> str:
    if not records:
        return "\n".join(["The inventory has no hosts of a cluster.", *_why_empty(sources or [])])
    lines = [finding.text() for finding in findings.found[:SHOWN]]
    if len(findings.found) > SHOWN:
        lines.append(f"... and {len(findings.found) - SHOWN} more.")
    count = len(findings.found)
    head = f"The inventory describes no possible cluster, {count} error{'s' if count != 1 else ''}:"
    return "\n  ".join([head, *lines])


def _why_empty(sources: list[Any]) -> Iterator[str]:
    """What is wrong with the models among the sources: Ansible has only warned of it, far above."""
    told = False
    for source in map(Path, map(str, sources)):
        for path in sorted(source.glob("*.y*ml")) if source.is_dir() else [source]:
            try:
                if cluster_model.is_model(path):
                    cluster_model.load(str(path))
            except cluster_model.ModelError as error:
                told = True
                yield str(error)
            except OSError as error:
                told = True
                yield f"{path}: cannot be read: {error.strerror}. Check the path given by -i."
    if not told:
        shown = ", ".join(map(str, sources)) or "none"
        yield f"Inventory sources: {shown}. Name one with compute hosts: -i inventories/NAME."
