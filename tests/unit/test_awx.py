# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""awx/controller.yml against the options of awx.awx and the keys that infra.aap_configuration reads
(tests/awx.json, recorded by tools/record_awx.py), and what a job then finds."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

ROOT = Path(__file__).resolve().parents[2]
FILE = yaml.safe_load((ROOT / "awx/controller.yml").read_text("utf-8"))
CONTENT: dict[str, Any] = {
    key: value for key, value in FILE.items() if key.startswith("controller")
}
RECORD: dict[str, Any] = json.loads((ROOT / "tests/awx.json").read_text("utf-8"))
NODES, EDGES = "simplified_workflow_nodes", ("success_nodes", "failure_nodes", "always_nodes")
SECRET = "correct-horse"


def entries(content: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each entry with its variable; nodes with the workflow of which they are a key."""
    for variable, listed in content.items():
        for entry in listed:
            nodes = entry.get(NODES, ())
            yield variable, {key: value for key, value in entry.items() if key != NODES}
            for node in nodes:
                yield NODES, {**node, "workflow": entry["name"]}


def faults(content: Mapping[str, Any]) -> list[str]:
    found = []
    for variable, entry in entries(content):
        known = RECORD[variable]
        unread = [key for key in entry if key not in {*known["keys"], "workflow"}]
        result = ArgumentSpecValidator(known["options"]).validate(entry)
        found += [f"{variable}: {each}" for each in (*unread, *result.error_messages)]
    return found


def named(variable: str) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in CONTENT[variable]}


def unbraced(value: Any) -> Any:
    """As the roles write it to AWX."""
    return json.loads(json.dumps(value).replace("{  {", "{{"))


def test_every_entry_fits_the_modules_and_roles() -> None:
    assert {*CONTENT} <= {*RECORD}
    assert faults(CONTENT) == []


@pytest.mark.parametrize(
    ("variable", "key", "value"),
    [
        ("controller_projects", "scm_typ", "git"),
        ("controller_templates", "job_type", "scan"),
        ("controller_templates", "forks", "many"),
        ("controller_workflows", NODES, [{"unified_job_template": "x"}]),
    ],
)
def test_an_entry_that_does_not_fit_is_found(variable: str, key: str, value: Any) -> None:
    first, *others = CONTENT[variable]
    assert faults({variable: [{**first, key: value}, *others]})


def test_names_refer_to_entries() -> None:
    projects, inventories = named("controller_projects"), named("controller_inventories")
    environments, credentials = (
        named("controller_execution_environments"),
        named("controller_credentials"),
    )
    types = {"Machine", *named("controller_credential_types")}
    assert {each["credential_type"] for each in credentials.values()} <= types
    for source in CONTENT["controller_inventory_sources"]:
        assert source["source_project"] in projects
        assert source["inventory"] in inventories
    for template in CONTENT["controller_templates"]:
        assert template["project"] in projects
        assert template["inventory"] in inventories
        assert template["execution_environment"] in environments
        assert {*template["credentials"]} == {*credentials}
    for schedule in CONTENT["controller_schedules"]:
        assert schedule["unified_job_template"] in named("controller_templates")


def test_templates_start_playbooks_of_the_collection() -> None:
    for template in CONTENT["controller_templates"]:
        (play,) = yaml.safe_load((ROOT / "awx" / template["playbook"]).read_text("utf-8"))
        imported = play["ansible.builtin.import_playbook"].removeprefix("baremetal.mpi_roce.")
        assert (ROOT / f"playbooks/{imported}.yml").is_file()
        assert imported == Path(template["playbook"]).stem


def test_only_an_approval_leads_to_a_reboot() -> None:
    (workflow,) = CONTENT["controller_workflows"]
    nodes = {each["identifier"]: each for each in workflow[NODES]}
    templates = named("controller_templates")
    ends = [
        (name, end) for name, each in nodes.items() for edge in EDGES for end in each.get(edge, ())
    ]
    assert {end for _name, end in ends} | {"drift"} == {*nodes}
    reboots = {
        name
        for name, each in nodes.items()
        if "unified_job_template" in each
        and templates[each["unified_job_template"]]["playbook"].endswith("reboot.yml")
        and templates[each["unified_job_template"]]["job_type"] == "run"
    }
    assert reboots == {"reboot"}
    assert [(name, end) for name, end in ends if end in reboots] == [("approve", "reboot")]
    assert nodes["approve"]["success_nodes"] == ["reboot"]
    assert "approval_node" in nodes["approve"]


def test_secrets_are_files_only() -> None:
    for kind in CONTENT["controller_credential_types"]:
        injectors = unbraced(kind["injectors"])
        assert {*injectors} <= {"env", "file"}
        secret = {each["id"] for each in kind["inputs"]["fields"] if each.get("secret")}
        for name, text in injectors["env"].items():
            used = {*re.findall(r"{{ (\w[\w.]*) }}", text)}
            assert not used & secret, name
            files = {each.removeprefix("tower.filename.") for each in used if "." in each}
            assert {f"template.{each}" for each in files} <= {*injectors.get("file", {})}


def environment(tmp_path: Path) -> dict[str, str]:
    """What AWX gives a job by the injectors."""
    inputs = {"state": str(tmp_path / "state"), "reports": str(tmp_path / "reports")}
    secrets = {"ca_passphrase": SECRET, "switch_password": "x"}
    for name, text in secrets.items():
        (tmp_path / name).write_text(text, "utf-8")
        inputs[f"tower.filename.{name}"] = str(tmp_path / name)
    made: dict[str, str] = {}
    for kind in CONTENT["controller_credential_types"]:
        for name, text in unbraced(kind["injectors"])["env"].items():
            made[name] = re.sub(r"{{ (\S+) }}", lambda each: inputs[each[1]], text)
    return made


@pytest.mark.slow
def test_a_job_has_the_model_the_callback_and_the_secret(tmp_path: Path) -> None:
    programs = Path(sys.executable).parent
    base = {**os.environ, "ANSIBLE_LOCALHOST_WARNING": "0"}
    base["ANSIBLE_COLLECTIONS_PATH"] = str(ROOT / "collections")
    argv = [programs / "ansible-inventory", "-i", ROOT / "inventories/b300/cluster.yml"]
    exported = subprocess.run(
        [*argv, "--list", "--export"],
        env=base,
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (inventory,) = CONTENT["controller_inventories"]
    groups = json.loads(exported)
    groups.setdefault("all", {}).setdefault("vars", {}).update(unbraced(inventory["variables"]))
    (tmp_path / "groups.json").write_text(json.dumps(groups), "utf-8")
    script = tmp_path / "inventory.sh"
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/groups.json\n", "utf-8")
    script.chmod(0o755)
    shown = ["inventory_dir", "ssh_trust_state_directory", "ssh_trust_ca_passphrase | length"]
    told = {"name": "Told", "hosts": "node01", "gather_facts": False, "tasks": []}
    told["tasks"] = [
        {"name": "Show", "ansible.builtin.debug": {"msg": [f"{{{{ {each} }}}}" for each in shown]}},
        {"name": "Callback", "baremetal.mpi_roce.cluster_verify": {"step": "verdict"}},
    ]
    book = tmp_path / "job.yml"
    model = {"name": "Model", "ansible.builtin.import_playbook": "baremetal.mpi_roce.model"}
    book.write_text(json.dumps([model, told]), "utf-8")
    extra = CONTENT["controller_templates"][0]["extra_vars"]
    done = subprocess.run(
        [programs / "ansible-playbook", "-i", script, "-e", json.dumps(extra), book],
        env={**base, **environment(tmp_path), "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert extra["inventory_dir"] in done.stdout
    assert f'"{tmp_path}/state/ssh-ca"' in done.stdout
    assert f'"{len(SECRET)}"' in done.stdout or f"{len(SECRET)}\n" in done.stdout
    assert SECRET not in done.stdout + done.stderr
