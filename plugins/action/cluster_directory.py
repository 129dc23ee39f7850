# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ..module_utils.core.part import PlanError
from ..module_utils.core.text import counted, nearest
from ..module_utils.mpi.job import plan as job
from ..module_utils.software.software_set import SoftwareSet
from ..module_utils.ssh import authorized
from ..plugin_utils import model as cluster_model
from ..plugin_utils.layers import RENAMED
from ..plugin_utils.model import digest, directory, names
from ..plugin_utils.model.cluster import DIGEST
from ..plugin_utils.model.software_rules import REFUSED, judge
from ..plugin_utils.schema.findings import Findings, listed

NO_MODELS = {"group_vars", "host_vars", "keys"}
ROLES = Path(__file__).parents[2] / "roles"
SSH = 22
_PORTS = ("ansible_port", "ansible_ssh_port")
_OF_VARIABLES = (".yml", ".yaml", ".json")
READERS: Mapping[str, Callable[[Any], object]] = {
    "ssh_trust_authorized_keys": authorized.declarable,
    "ssh_trust_extra_sources": lambda given: [ipaddress.ip_network(each) for each in given],
    "mpi_job_environment": job.environment_of,
    "mpi_job_parameters": lambda given: job.texts(given, "mpi_job_parameters"),
    "mpi_job_places": job.places_of,
}
"""For variables whose type admits unusable values: they raise where the role would refuse."""
_TEMPLATE = re.compile(r"\{[{%#]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ActionModule(ActionBase):
    """Reads the inventory on the controller: no connection, no module, whatever hosts play."""

    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _spec, arguments = self.validate_argument_spec(
            argument_spec={
                "role_variables": {"type": "bool", "default": False},
                "domain": {"type": "str"},
                "needs": {"type": "str"},
            }
        )
        if arguments["needs"]:
            _check_limit(arguments["needs"], task_vars)
        findings = Findings()
        sources = [Path(source) for source in task_vars.get("ansible_inventory_sources") or []]
        # HostVars.raw_get merges a host's variables once and templates none of them.
        raw = task_vars["hostvars"].raw_get
        hosts = {name: raw(name) for name in digest.hosts_of(task_vars["groups"])}
        _check_model(hosts, sources, findings)
        if arguments["role_variables"]:
            known = _options()
            settings = dict(_settings(task_vars, [*known, *RENAMED]))
            _check_renamed(settings, findings)
            _check_roles(known, settings.items(), findings)
            _check_launch(settings, findings)
        ports = _ssh_ports(hosts, task_vars["hostvars"], findings)
        built = directory.Directory("", []) if findings else directory.build(hosts, ports)
        of_hosts = {}
        if arguments["domain"] is not None and not findings:
            of_hosts = names.lines(built.entries, arguments["domain"], findings)
        if findings:
            result.update(
                failed=True,
                msg=_message(findings, bool(hosts), sources),
                findings=[finding.text() for finding in findings.found],
            )
            return result
        software = next(iter(hosts.values()))["cluster_software"]
        doubts = _doubts(software)
        for line in (*doubts, *_unread(sources, task_vars["groups"])):
            self._display.warning(line)
        result.update(
            changed=False,
            cluster_name=built.cluster_name,
            compute_hosts=built.compute_hosts,
            drained_hosts=built.drained_hosts,
            total_slots=built.total_slots,
            directory=built.entries,
            names=names.rendered(of_hosts),
            software_doubts=doubts,
            mpi_provider=SoftwareSet.of(software).mpi.provider,
        )
        return result


def _ssh_ports(hosts: dict[str, Any], hostvars: Any, findings: Findings) -> dict[str, int]:
    """The port of each sshd that Ansible reaches by another than 22: MPI's ssh goes there as well.

    Not where Ansible goes by another address, such as that of a gateway which forwards the port.
    """
    found = {}
    for name, of in hosts.items():
        key = next((each for each in _PORTS if of.get(each) is not None), "")
        management = of.get("cluster_management") or {}
        if not key or str(of.get("ansible_host", name)) not in (name, management.get("address")):
            continue
        value = _known(hostvars, name, [key]).get(key, SSH)
        port = int(value) if str(value).isascii() and str(value).isdigit() else 0
        if not 0 < port < 1 << 16:
            findings.add(
                "inventory.ssh_port",
                (name, key),
                f"{str(value)[:40]!r} is no port: wanted a number from 1 to 65535",
                "Correct it in the inventory",
            )
        elif port != SSH:
            found[name] = port
    return found


def _check_limit(group: str, task_vars: dict[str, Any]) -> None:
    """Without a host of the group its play would do nothing, and the run be a success."""
    hosts = task_vars["groups"].get(group) or []
    if hosts and not set(hosts).intersection(task_vars["ansible_play_hosts_all"]):
        limit = task_vars.get("ansible_limit") or ""
        raise AnsibleActionFail(
            f"--limit {limit} leaves out {', '.join(hosts)}, which runs it: nothing was done. "
            f"Add the {group}: --limit '{limit},{group}'"
        )


def _check_model(hosts: dict[str, Any], sources: list[Path], findings: Findings) -> None:
    """Every host has what the model compiled, and nothing else."""
    if not any(DIGEST in variables for variables in hosts.values()):
        findings.add(
            "inventory.no_model",
            (),
            "this inventory has no cluster model",
            "Write one (docs/cluster-model.md) and name its folder: -i inventories/NAME",
        )
        return
    found = digest.Digest()
    for name, variables in hosts.items():
        found.add(name, variables)
    if all(variables.get(DIGEST) == found.text() for variables in hosts.values()):
        return
    why = "differs from its digest; no model among the inventory sources"
    try:
        for path in _models([source for source in sources if source.exists()]):
            why = "cluster.yml has changed since this run began, or there are two of it"
            digest.differences(
                cluster_model.inventory_of(cluster_model.load(str(path))), hosts, findings
            )
    except (cluster_model.ModelError, OSError) as error:
        why = f"the model cannot be read any more: {error}"
    if not findings:
        findings.add("inventory.changed", (), why, "Run again, with one model")


def _models(sources: list[Path]) -> Iterator[Path]:
    for source in sources:
        for path in sorted(source.rglob("*.y*ml")) if source.is_dir() else [source]:
            ignored = NO_MODELS.intersection(path.relative_to(source).parts)
            if not ignored and cluster_model.is_model(path):
                yield path


def _doubts(variable: dict[str, Any]) -> list[str]:
    """What is doubtful or unknown of the software set, a line each."""
    software = SoftwareSet.of(variable)
    return [rule.line(software) for rule in judge(software) if rule.status != REFUSED]


def _unread(sources: list[Path], groups: Mapping[str, list[str]]) -> Iterator[str]:
    """Files of variables that no host or group gets: Ansible ignores them without a word."""
    hosts = dict.fromkeys([*groups["all"], "localhost"])
    known: dict[str, Mapping[str, Any]] = {"host_vars": hosts, "group_vars": groups}
    found = [
        (path, path.stem if path.suffix in _OF_VARIABLES else path.name, of_kind)
        for folder in dict.fromkeys(
            source if source.is_dir() else source.parent for source in sources if source.exists()
        )
        for kind, of_kind in known.items()
        for path in sorted((folder / kind).glob("*"))
        if path.name[0] != "." and (path.is_dir() or path.suffix in ("", *_OF_VARIABLES))
    ]
    found = [each for each in found if each[0].name not in each[2] and each[1] not in each[2]]
    absent = set(_absent(sources)) if found else set()
    for path, name, others in found:
        if name not in absent:
            problem = f"{name!r} is not in the inventory, and nothing reads the file"
            yield f"{path}: {problem}. {nearest(name, others)}"


def _absent(sources: list[Path]) -> Iterator[str]:
    for path in _models([source for source in sources if source.exists()]):
        nodes = cluster_model.read(str(path), path.read_text(encoding="utf-8")).data["nodes"]
        yield from nodes.get("absent") or ()


# Variables of the collection's roles, by the roles' meta/argument_specs.yml. Ansible checks them in
# the first task of each role, when the roles before it have changed the hosts; this is before.


def _options() -> dict[str, dict[str, Any]]:
    """The variables that bear a role's name, and how each is specified; the others are the model's.

    Not whether one is required: that is a question to the hosts of a role's play.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        role = path.parents[1].name
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
        for name, option in document["argument_specs"]["main"]["options"].items():
            if name.startswith(role):
                found[name] = {**option, "required": False}
    return found


def _check_renamed(hosts: Mapping[str, dict[str, Any]], findings: Findings) -> None:
    """Refuse former names of options, which Ansible would ignore, and take them from `hosts`."""
    for old, new in RENAMED.items():
        where = [name for name, variables in hosts.items() if variables.pop(old, None) is not None]
        if where:
            others = f" (and on {counted(len(where) - 1, 'other host')})" if where[1:] else ""
            findings.add(
                "inventory.renamed_variable",
                (where[0], old),
                f"this option is now named {new}{others}",
                f"Rename it to {new}",
            )


def _check_roles(
    known: Mapping[str, dict[str, Any]],
    hosts: Iterable[tuple[str, Mapping[str, Any]]],
    findings: Findings,
) -> None:
    """Hosts with those of the `known` that they have; the same fault of many is one finding."""
    faults: dict[tuple[str, str], list[str]] = {}
    for host, variables in hosts:
        for name, value in variables.items():
            judged = ArgumentSpecValidator({name: known[name]}).validate({name: value})
            problems = judged.error_messages
            for problem in problems or _unreadable(name, judged.validated_parameters[name]):
                faults.setdefault((name, problem), []).append(host)
    for (name, problem), where in faults.items():
        others = f" (and on {counted(len(where) - 1, 'other host')})" if len(where) > 1 else ""
        findings.add(
            "inventory.role_variable",
            (where[0], name),
            f"{problem}{others}",
            "Correct it in the inventory",
        )


def _unreadable(name: str, value: Any) -> list[str]:
    try:
        if name in READERS:
            READERS[name](value)
    except (PlanError, ValueError) as error:
        return [str(error)]
    return []


def _check_launch(hosts: Mapping[str, Mapping[str, Any]], findings: Findings) -> None:
    """What no variable shows alone, and mpirun would only wait for, or take for another program."""
    closed, tree = "ssh_trust_between_compute", "mpi_stack_tree_spawn"
    off = [name for name, of in hosts.items() if not boolean(of.get(closed, True), strict=False)]
    on = [name for name, of in hosts.items() if boolean(of.get(tree, False), strict=False)]
    if off and on:
        findings.add(
            "inventory.closed_nodes",
            (off[0], closed),
            f"it is false, and {tree} true on {on[0]}: compute nodes have to admit each other then",
            "Leave out one of the two",
        )
    renew, valid = "ssh_trust_renew_days", "ssh_trust_validity_days"
    for name, of in hosts.items():
        with contextlib.suppress(TypeError, ValueError):  # a finding by its type
            days = float(of.get(renew, 45)), float(of.get(valid, 90))
            if days[0] >= days[1]:
                why = f"renewal {days[0]:g} days before the end of certificates of {days[1]:g} days"
                step = f"Make {renew} less than {valid}"
                findings.add("inventory.renew_days", (name, renew), why, step)
                break
    words = [name for name, of in hosts.items() if isinstance(of.get("mpi_job_program"), str)]
    if words:
        text = hosts[words[0]]["mpi_job_program"]
        findings.add(
            "inventory.program_is_text",
            (words[0], "mpi_job_program"),
            f"{text!r} is no list",
            f"Write it as {text.split()}",
        )


def _settings(
    task_vars: dict[str, Any], known: Iterable[str]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Of every host those of the variables that it has, and that have a value by now.

    A template of facts, or of what a role has yet to define, is judged where it is used.
    """
    for name in task_vars["groups"]["all"]:
        yield name, _known(task_vars["hostvars"], name, known)


def _known(hostvars: Any, name: str, known: Iterable[str]) -> dict[str, Any]:
    raw, found = hostvars.raw_get(name), {}
    for key in known:
        if key in raw:
            # What cannot be templated is judged where it is used.
            with contextlib.suppress(AnsibleError):
                templated = key not in RENAMED and _has_template(raw[key])
                found[key] = _resolved(hostvars[name][key]) if templated else raw[key]
    return found


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


def _message(findings: Findings, hosts: bool, sources: list[Path]) -> str:
    if not hosts:
        shown = ", ".join(map(str, sources)) or "none"
        why = list(_why_empty(sources)) or [
            f"Inventory sources: {shown}. Name one with compute hosts: -i inventories/NAME."
        ]
        return "\n".join(["The inventory has no hosts of a cluster.", *why])
    return listed("The inventory is not a valid cluster,", findings.found)


def _why_empty(sources: list[Path]) -> Iterator[str]:
    """What is wrong with the models among the sources: Ansible has only warned of it, far above."""
    for source in sources:
        try:
            for path in _models([source]):
                cluster_model.load(str(path))
        except (cluster_model.ModelError, OSError) as error:
            yield str(error)
