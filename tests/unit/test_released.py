# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Release metadata is consistent: versions in several files, and groups of modules.

tools/package.sh covers the content and the installation of the built collection.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.doc_fragments.options import read

from tests.unit.action_plays import ROOT, run_play


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def load(path: str):
    return yaml.safe_load(text(path))


GROUPS = load("meta/runtime.yml")["action_groups"]


def pinned(*paths: str) -> set[str]:
    return {pin for path in paths for pin in re.findall(r"^[\w-]+==\S+", text(path), re.M)}


def options(module: str) -> set[str]:
    (found,) = (
        set(layer["modules"][module])
        for layer in read()[1].values()
        if module in layer.get("modules", {})
    )
    return found


@pytest.mark.parametrize("group", GROUPS)
def test_the_options_of_a_group_are_common_to_its_modules(group):
    """A default for an option that one of the modules lacks would fail its tasks."""
    comment = re.search(rf"^  {group}: # (.*)$", text("meta/runtime.yml"), re.M)
    assert comment and comment[1].split(", ") == sorted(
        set.intersection(*(options(module) for module in GROUPS[group]))
    )


@pytest.mark.slow
def test_a_routed_module_has_the_defaults_of_its_group_and_a_bounding_action(tmp_path):
    play = """
- hosts: localhost
  connection: local
  gather_facts: false
  module_defaults:
    group/baremetal.mpi_roce.drivers: {rails: 7}
  tasks:
    - baremetal.mpi_roce.rdma_stack:
      vars: {ansible_python_interpreter: "{{ ansible_playbook_python }}"}
      ignore_errors: true # it fails on purpose, and the next task must run
    - baremetal.mpi_roce.rdma_stack:
      vars: {ansible_python_interpreter: /bin/echo}
"""
    status, output = run_play(tmp_path, play, Path("localhost,"))
    assert status == 2 and re.search(r"'?rails'? is of type", output), output
    assert "the module returned no result: " in output, output


def test_supported_versions_of_ansible_core_are_tested():
    matrix = load(".github/workflows/test.yml")["jobs"]["fast"]["strategy"]["matrix"]["include"]
    tested = [job["ansible"] for job in matrix]
    ignored = [path.stem.removeprefix("ignore-") for path in ROOT.glob("tests/sanity/ignore-*.txt")]
    assert sorted(ignored) == tested
    assert load("meta/runtime.yml")["requires_ansible"] == f">={tested[0]}.0"
    assert f"ansible-core {tested[0]} to {tested[-1]}" in text("docs/packages.md")


def test_the_execution_environment_has_tested_versions():
    version = load("galaxy.yml")["version"]
    needs = load("execution-environment.yml")["dependencies"]
    (collection,) = needs["galaxy"]["collections"]
    assert collection["name"].endswith(f"-{version}.tar.gz")
    assert {needs[name]["package_pip"] for name in ("ansible_core", "ansible_runner")} <= pinned(
        "requirements/controller.in", "requirements/test.in"
    )
    assert version in load("changelogs/changelog.yaml")["releases"]


@pytest.mark.parametrize("name", ["controller", "test", "audit"])
def test_locks_have_all_packages_and_hashes(name):
    """pip verifies that the lock includes the dependencies as well (--require-hashes)."""
    path = f"requirements/{name}"
    lock = text(f"{path}.txt")
    blocks = re.findall(r"^\w.*(?:\n .*)*", lock, re.M)
    assert pinned(f"{path}.in", *(["requirements/controller.txt"] * (name == "test"))) <= pinned(
        f"{path}.txt"
    )
    assert all(re.match(r"[\w-]+==\S+( ;.*)? \\\n    --hash=sha256:", block) for block in blocks)
    assert not re.search(r"^\s*(--(?!hash)|-\w)|://", lock, re.M)
    oldest = re.search(r"^readonly PYTHON_OLDEST=(.*)$", text("tools/bootstrap.sh"), re.M)
    assert oldest and f"--universal --python-version {oldest[1]} " in lock


@pytest.mark.slow
def test_the_bill_of_materials_lists_all_locked_packages(tmp_path):
    build = [ROOT / "tools/build_collection.sh", tmp_path]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    [archive] = tmp_path.glob("*.tar.gz")
    path = tmp_path / archive.name.replace(".tar.gz", ".cdx.json")
    bill = json.loads(path.read_text(encoding="utf-8"))
    version = load("galaxy.yml")["version"]
    component = bill["metadata"]["component"]
    assert (component["name"], component["version"]) == ("baremetal-mpi_roce", version)
    listed = {
        f"{package['name']}=={package['version']}": {
            digest["content"]
            for source in package["externalReferences"]
            for digest in source["hashes"]
        }
        for package in bill["components"]
    }
    lock = text("requirements/controller.txt")
    assert listed.keys() == pinned("requirements/controller.txt")
    assert set().union(*listed.values()) == set(re.findall("sha256:([0-9a-f]{64})", lock))


def test_the_workflow_is_pinned_and_read_only():
    workflow = text(".github/workflows/test.yml")
    uses = re.findall(r"uses: (\S+)", workflow)
    assert uses and all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action) for action in uses)
    assert yaml.safe_load(workflow)["permissions"] == {"contents": "read"}
    assert "secrets." not in workflow


def test_each_threat_names_an_existing_test():
    lines = text("SECURITY.md").splitlines()
    rows = [
        line
        for line, after in zip(lines, lines[1:])
        if line.startswith("| ") and not after.startswith("|---")
    ]
    existing = {
        name
        for path in ROOT.glob("tests/*/test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    assert len(rows) > 5
    for row in rows:
        named = re.findall(r"`(test_\w+)`", row)
        assert named and set(named) <= existing, row
