# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Validate inventory variables of the collection's roles before any host is contacted.

Ansible validates a role's argument_specs.yml in its first task, when earlier roles have already
changed hosts. The same specifications are read here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ...module_utils.core.text import counted
from ..layers import RENAMED
from ..schema.findings import Findings

Variables = Mapping[str, Any]
ROLES = Path(__file__).parents[3] / "roles"
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


def values(hostvars: Any, host: str, variables: Variables, names: Container[str]) -> dict[str, Any]:
    """The variables among `names` that a host has and that can be templated now.

    `variables`: all variables of the host, not templated.

    A template that uses facts, or variables set by a role, is validated at its first use. Former
    names of options are included as written.
    """
    resolved = {}
    for name, raw in variables.items():
        if name in RENAMED or (name in names and not has_template(raw)):
            resolved[name] = raw
        elif name in names:
            with contextlib.suppress(AnsibleError):
                value = _resolved(hostvars[host][name])
                if not has_template(value):  # ansible-core 2.18 returns an undefined one unchanged
                    resolved[name] = value
    return resolved


def check(specs: Mapping[str, Any], hosts: Mapping[str, Variables], findings: Findings) -> None:
    """Validate the role variables of `hosts`, and refuse former names of options, which Ansible
    would ignore. The same error on several hosts is one finding.
    """
    affected: dict[tuple[str, str], list[str]] = {}
    for host, variables in hosts.items():
        for name, value in variables.items():
            problems = [f"this option is now named {RENAMED.get(name)}"]
            if name not in RENAMED:
                validator = ArgumentSpecValidator({name: specs[name]})
                problems = validator.validate({name: value}).error_messages
            for problem in problems:
                affected.setdefault((name, problem), []).append(host)
    for (name, problem), names in affected.items():
        others = counted(len(names) - 1, "other host")
        problem = f"{problem} (and on {others})" if names[1:] else problem
        path, remedy = (names[0], name), "Correct it in the inventory"
        findings.add("inventory.role_variable", path, problem, remedy)


def _resolved(value: Any) -> Any:
    """The value with its lazily templated parts."""
    if isinstance(value, dict):
        return {key: _resolved(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item) for item in value]
    return value


def has_template(value: Any) -> bool:
    if isinstance(value, str):
        return "{" in value and _TEMPLATE.search(value) is not None
    if isinstance(value, dict):
        return any(map(has_template, value.values()))
    if isinstance(value, list):
        return any(map(has_template, value))
    return False
