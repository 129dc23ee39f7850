# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Variables of the collection's roles, judged by the roles' meta/argument_specs.yml.

Ansible judges them in the first task of each role: on every host, whatever tags run, and when the
roles before it have changed the hosts. Site playbooks have all of them judged at once instead,
before any host is touched. A role in a playbook of its own is judged by Ansible.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ..module_utils.core.text import counted
from .schema.findings import Findings

ROLES = Path(__file__).parents[2] / "roles"
CODE = "inventory.role_variable"


def options() -> dict[str, dict[str, Any]]:
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


def check(
    known: Mapping[str, dict[str, Any]],
    hosts: Iterable[tuple[str, Mapping[str, Any]]],
    findings: Findings,
) -> None:
    """Hosts with those of the `known` that they have; the same fault of many is one finding."""
    faults: dict[tuple[str, str], list[str]] = {}
    for host, variables in hosts:
        for name, value in variables.items():
            judged = ArgumentSpecValidator({name: known[name]}).validate({name: value})
            for problem in judged.error_messages:
                faults.setdefault((name, problem), []).append(host)
    for (name, problem), where in faults.items():
        others = f" (and on {counted(len(where) - 1, 'other host')})" if len(where) > 1 else ""
        findings.add(CODE, (where[0], name), f"{problem}{others}", "Correct it in the inventory")


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
