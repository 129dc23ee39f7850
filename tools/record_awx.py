#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Record what awx.awx and infra.aap_configuration accept, for the test of awx/controller.yml:

    tools/record_awx.py CHECKOUT_OF_ansible/awx CHECKOUT_OF_redhat-cop/infra.aap_configuration

Writes tests/awx.json: the options of the modules (names, types, choices), and the keys of an entry
that each role reads. Both come from the syntax tree or text of the newest commit; nothing is
executed.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

RECORD = Path(__file__).resolve().parents[1] / "tests/awx.json"
VARIABLES = {
    "controller_projects": ("controller_projects", "project"),
    "controller_inventories": ("controller_inventories", "inventory"),
    "controller_inventory_sources": ("controller_inventory_sources", "inventory_source"),
    "controller_execution_environments": (
        "controller_execution_environments",
        "execution_environment",
    ),
    "controller_credential_types": ("controller_credential_types", "credential_type"),
    "controller_credentials": ("controller_credentials", "credential"),
    "controller_templates": ("controller_job_templates", "job_template"),
    "controller_workflows": ("controller_workflow_job_templates", "workflow_job_template"),
    "simplified_workflow_nodes": (
        "controller_workflow_job_templates",
        "workflow_job_template_node",
    ),
    "controller_schedules": ("controller_schedules", "schedule"),
}
"""Role and module by the variable of the role; nodes are a key of a workflow."""
NODES = ("simplified_workflow_nodes",)
KEPT = ("type", "elements", "choices", "required", "aliases")


def git(repository: str, *words: str) -> str:
    argv = ["git", "-C", repository, *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def options(source: str) -> dict[str, Any]:
    """The argument specification of a module, as a program that imports it would see it."""
    known: dict[str, Any] = {}

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "dict":
                return {str(each.arg): value(each.value) for each in node.keywords}
            if node.func.id == "list":  # list(NAME.keys())
                (inner,) = node.args
                assert isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)
                assert isinstance(inner.func.value, ast.Name)
                return list(known[inner.func.value.id])
        if isinstance(node, ast.Name):
            return known[node.id]
        return ast.literal_eval(node)

    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if name == "argument_spec":
            spec = value(node.value)
            return {key: {k: own[k] for k in KEPT if k in own} for key, own in spec.items()}
        if isinstance(node.value, ast.Dict):
            known[name] = ast.literal_eval(node.value)
    raise ValueError("no argument_spec")


def main() -> int:
    awx, configuration = sys.argv[1:3]
    found: dict[str, Any] = {
        "sources": {
            "ansible/awx, awx_collection": git(awx, "log", "-1", "--format=%H of %cs").strip(),
            "redhat-cop/infra.aap_configuration": git(
                configuration, "log", "-1", "--format=%H of %cs"
            ).strip(),
        }
    }
    for variable, (role, module) in VARIABLES.items():
        path = f"awx_collection/plugins/modules/{module}.py"
        names = git(configuration, "ls-tree", "--name-only", "HEAD", f"roles/{role}/tasks/").split()
        tasks = "".join(git(configuration, "show", f"HEAD:{name}") for name in names)
        item = "__workflow_loop_node_item" if variable in NODES else r"__(?!\w*node_item)\w+_item"
        keys = {*re.findall(rf"\b{item}\.(\w+)", tasks)} - {"ansible_job_id"}
        found[variable] = {
            "module": module,
            "keys": sorted(key for key in keys if not key.startswith("__")),
            "options": options(git(awx, "show", f"HEAD:{path}")),
        }
    RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
