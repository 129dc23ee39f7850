# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Validate inventory variables of the collection's roles before any host is contacted.

Ansible validates a role's argument_specs.yml in its first task, when earlier roles have already
changed hosts. The same specifications are read here.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean

from ...module_utils.core.part import PlanError
from ...module_utils.core.text import counted
from ...module_utils.mpi.job import plan as job
from ...module_utils.ssh import authorized
from ..layers import RENAMED
from ..schema.findings import Findings

Variables = Mapping[str, Any]
ROLES = Path(__file__).parents[3] / "roles"
READERS: Mapping[str, Callable[[Any], object]] = {
    "ssh_trust_authorized_keys": authorized.declarable,
    "ssh_trust_extra_sources": lambda value: [ipaddress.ip_network(item) for item in value],
    "mpi_job_environment": job.environment_of,
    "mpi_job_parameters": lambda value: job.texts(value, "mpi_job_parameters"),
    "mpi_job_places": job.places_of,
}
"""Parsers for variables whose type permits unusable values. They raise an error where the role
would fail.
"""
_TEMPLATE = re.compile(r"\{[{%#]")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_specs() -> dict[str, dict[str, Any]]:
    """The options of all roles by name, none of them required.

    Options without their role's name as prefix come from the model and are left out.
    """
    specs: dict[str, dict[str, Any]] = {}
    for path in sorted(ROLES.glob("*/meta/argument_specs.yml")):
        role = path.parents[1].name
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
        for name, option in document["argument_specs"]["main"]["options"].items():
            if name.startswith(role):
                specs[name] = {**option, "required": False}
    return specs


def values(hostvars: Any, host: str, names: Iterable[str]) -> dict[str, Any]:
    """The variables among `names` that a host has and that can be templated now.

    A template that uses facts, or variables set by a role, is validated at its first use. Former
    names of options are included as written.
    """
    raw, resolved = hostvars.raw_get(host), {}
    resolved.update({name: raw[name] for name in RENAMED if name in raw})
    for name in names:
        if name in raw and not _has_template(raw[name]):
            resolved[name] = raw[name]
        elif name in raw:
            with contextlib.suppress(AnsibleError):
                value = _resolved(hostvars[host][name])
                if not _has_template(value):  # ansible-core 2.18 returns an undefined one unchanged
                    resolved[name] = value
    return resolved


def check_renamed(hosts: Mapping[str, dict[str, Any]], findings: Findings) -> None:
    """Refuse former names of options, which Ansible would ignore, and take them from `hosts`."""
    for old, new in RENAMED.items():
        affected = [host for host, own in hosts.items() if own.pop(old, None) is not None]
        if affected:
            others = counted(len(affected) - 1, "other host")
            problem = f"this option is now named {new}"
            findings.add(
                "inventory.renamed_variable",
                (affected[0], old),
                f"{problem} (and on {others})" if len(affected) > 1 else problem,
                f"Rename it to {new}",
            )


def check(specs: Mapping[str, Any], hosts: Mapping[str, Variables], findings: Findings) -> None:
    """Validate the role variables of `hosts`; the same error on several hosts is one finding."""
    errors: dict[tuple[str, str], list[str]] = {}
    for host, variables in hosts.items():
        for name, value in variables.items():
            validation = ArgumentSpecValidator({name: specs[name]}).validate({name: value})
            problems = validation.error_messages
            for problem in problems or _unreadable(name, validation.validated_parameters[name]):
                errors.setdefault((name, problem), []).append(host)
    for (name, problem), affected in errors.items():
        others = counted(len(affected) - 1, "other host")
        findings.add(
            "inventory.role_variable",
            (affected[0], name),
            f"{problem} (and on {others})" if len(affected) > 1 else problem,
            "Correct it in the inventory",
        )


def check_combinations(hosts: Mapping[str, Variables], findings: Findings) -> None:
    """Reject combinations of role variables with which mpirun or sshd would only fail later."""
    _check_tree_spawn(hosts, findings)
    _check_renewal(hosts, findings)
    _check_program(hosts, findings)


def _check_tree_spawn(hosts: Mapping[str, Variables], findings: Findings) -> None:
    between, tree = "ssh_trust_between_compute", "mpi_stack_tree_spawn"
    closed = [host for host, own in hosts.items() if not boolean(own.get(between, True), False)]
    spawning = [host for host, own in hosts.items() if boolean(own.get(tree, False), False)]
    if closed and spawning:
        findings.add(
            "inventory.closed_nodes",
            (closed[0], between),
            f"is false, but {tree} is true on {spawning[0]} and needs SSH between compute nodes",
            "Remove one of the two",
        )


def _check_renewal(hosts: Mapping[str, Variables], findings: Findings) -> None:
    name = "ssh_trust_renew_days"
    for host, own in hosts.items():
        with contextlib.suppress(TypeError, ValueError):  # reported by its type
            renewal = float(own.get(name, 45))
            validity = float(own.get("ssh_trust_validity_days", 90))
            if renewal >= validity:
                problem = f"{renewal:g} days is not less than the validity of {validity:g} days"
                findings.add("inventory.renew_days", (host, name), problem, f"Reduce {name}")
                return


def _check_program(hosts: Mapping[str, Variables], findings: Findings) -> None:
    name = "mpi_job_program"
    for host, own in hosts.items():
        text = own.get(name)
        if isinstance(text, str):
            step = f"Write it as {text.split()}"
            findings.add("inventory.program_is_text", (host, name), f"{text!r} is not a list", step)
            return


def _unreadable(name: str, value: Any) -> list[str]:
    try:
        if name in READERS:
            READERS[name](value)
    except (PlanError, ValueError) as error:
        return [str(error)]
    return []


def _resolved(value: Any) -> Any:
    """The value with its lazily templated parts."""
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
