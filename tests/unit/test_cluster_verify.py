# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""playbooks/verify.yml checks every layer of every reachable host, and fails for differences."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.action_plays import ROOT, ansible, run_play
from tests.unit.small_model import MODEL

pytestmark = pytest.mark.slow

INVENTORY = """\
[compute]
node01 ansible_connection=local
node02 ansible_connection=local
node03 ansible_host=127.0.0.1 ansible_port=1 ansible_ssh_common_args="-o ControlPath=none"

[launcher]
login01 ansible_connection=local

[leaf]
leaf01 ansible_host=192.0.2.1

[compute:vars]
cluster_role=compute

[launcher:vars]
cluster_role=launcher
ansible_become=true
ansible_become_user=ops
ansible_become_exe=/no/sudo

[leaf:vars]
cluster_role=leaf

[all:vars]
ansible_python_interpreter=/usr/bin/python3
cluster_name=tiny
"""

# One fails on all hosts, one would change a host, one has unreachable hosts, one passes.
LAYERS: dict[str, tuple[str, str]] = {
    "names": ("compute", "ansible.builtin.fail: {msg: line 3 is wrong}"),
    "os": (
        "compute",
        "ansible.builtin.copy: {content: new, dest: '{{ playbook_dir }}/{{ inventory_hostname }}'}",
    ),
    "hostfile": ("node03", "ansible.builtin.command: 'true'"),
    "fabric": ("leaf", "ansible.builtin.assert: {that: cluster_role == 'leaf'}"),
}


def plays(frame: str = "playbooks/verify.yml") -> list[dict[str, Any]]:
    """The first and last play of the playbook, and its layers with other tasks."""
    own = yaml.safe_load((ROOT / frame).read_text(encoding="utf-8"))
    reach, verdict = own[1], own[-1]
    reach["become"] = False
    made = [reach]
    by_tag = {play["tags"][0]: play for play in own if "tags" in play}
    for tag, (hosts, task) in LAYERS.items():
        block = by_tag[tag]["tasks"][-1]
        tasks = [{**block, "block": [{"name": f"Task of {tag}", **yaml.safe_load(task)}]}]
        made.append({**by_tag[tag], "hosts": hosts, "become": False, "tasks": tasks})
    return [*made, verdict]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "hosts.ini").write_text(INVENTORY, encoding="utf-8")
    (tmp_path / "node01").write_text("new", encoding="utf-8")
    (tmp_path / "node02").write_text("old", encoding="utf-8")
    monkeypatch.setenv("ANSIBLE_CALLBACKS_ENABLED", "baremetal.mpi_roce.summary")
    monkeypatch.setenv("BAREMETAL_MPI_ROCE_REPORTS", str(tmp_path / "reports"))
    return tmp_path


def run(folder: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    rc, text = run_play(folder, yaml.safe_dump(plays()), folder / "hosts.ini", *options)
    saved = re.search(r"^report: (.+)$", text, re.MULTILINE)
    return rc, text, json.loads((folder / saved[1]).read_text(encoding="utf-8")) if saved else {}


def test_every_layer_is_verified_on_every_host(folder: Path) -> None:
    rc, text, report = run(folder, "--diff")
    assert rc == 4  # Ansible's status for unreachable hosts
    rows = {line.split()[0]: line for line in text.partition("SUMMARY")[2].splitlines() if line}
    assert list(rows)[2:7] == ["layer", "names", "os", "hostfile", "fabric"]
    assert "not verified" in rows["names"] and "not verified" in rows["hostfile"]
    assert "2 of 3 compute" in rows["os"] and "1 leaf" in rows["fabric"]
    lines = text.splitlines()
    assert "not verified: names on node01, node02: Task of names: line 3 is wrong" in lines
    (lost,) = [line for line in lines if line.startswith("not verified: hostfile on node03: ")]
    assert "no SSH connection within" in lost and "refused" in lost
    assert "-old\n" in text and "+new\n" in text
    inventory = "hosts.ini"
    assert [line for line in lines if line.startswith("repair: ")] == [
        f"repair: ansible-playbook site.yml -i {inventory} --tags names --limit node01,node02",
        f"repair: ansible-playbook site.yml -i {inventory} --tags os --limit node02",
    ]
    (check,) = report["layers"]["os"]["hosts"]["node02"]["checks"]
    assert [check["name"], check["subject"], check["status"]] == [
        "unchanged",
        "Task of os",
        "failed",
    ]
    assert (folder / "node02").read_text(encoding="utf-8") == "old"
    assert set(report["failed"]) == {"node01", "node02"}
    assert set(report["unreachable"]) == {"node03", "login01"}
    assert "no command runs as root: " in report["unreachable"]["login01"]
    assert "/no/sudo: not found; " in report["unreachable"]["login01"]


def test_tags_and_limit_select_layers_and_hosts(folder: Path) -> None:
    rc, text, report = run(folder, "--tags=os,fabric", "--limit=node01,leaf01")
    assert rc == 0, text
    assert report["unverified"] == {} and set(report["layers"]) == set()
    assert "not verified: " not in text and "repair: " not in text


def test_verify_fails_without_the_callback(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANSIBLE_CALLBACKS_ENABLED")
    rc, text, _report = run(folder, "--limit=node01", "--tags=os")
    assert rc == 2 and "callbacks_enabled" in text


def test_a_run_that_verifies_nothing_fails(folder: Path) -> None:
    rc, text, _report = run(folder, "--limit=node01", "--tags=hostnames")
    assert rc == 2 and "nothing was verified: " in text


def test_a_failed_run_once_task_does_not_stop_later_layers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = "ansible.builtin.assert: {that: inventory_hostname != 'node01', fail_msg: no authority}"
    monkeypatch.setitem(LAYERS, "names", ("compute", f"{once}\nrun_once: true"))
    made = plays()
    first = {"ansible.builtin.debug": {"msg": "without a connection"}}
    layer = made[1]["tasks"][0]
    layer["block"] = [{"block": [first, *layer["block"]]}]  # like a role
    monkeypatch.setitem(globals(), "plays", lambda: made)
    rc, text, report = run(folder, "--limit=compute")
    assert rc == 4 and "not verified: names on node01: Task of names: no authority" in text
    assert [host for hosts in report["unverified"]["os"].values() for host in hosts] == ["node03"]
    assert list(report["layers"]["os"]["hosts"]) == ["node02"]
    assert "not verified: names on node03: no SSH" in text  # not counted as verified


def test_verify_fails_when_ansible_forgets_a_host_that_is_lost_during_a_layer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rescue of a layer clears unreachable hosts: Ansible then has no status for them."""
    once = "ansible.builtin.fail: {msg: no authority}\nrun_once: true"
    monkeypatch.setitem(LAYERS, "names", ("compute", once))
    made = plays()
    made[0]["hosts"] = "node01"
    lose = {"ansible.builtin.command": "true", "changed_when": False, "check_mode": False}
    made[1]["tasks"][0]["block"].insert(0, lose)
    monkeypatch.setitem(globals(), "plays", lambda: made)
    rc, text, report = run(folder, "--limit=compute,leaf01", "--tags=names,fabric")
    assert rc == 4 and "not verified: names on node01: Task of names: no authority" in text
    assert set(report["unreachable"]) == {"node03"}


def test_verify_fails_if_the_callback_does_not_load(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAREMETAL_MPI_ROCE_REMOTE_EXECUTION_LIMIT", "many")
    rc, text, _report = run(folder, "--limit=node02", "--tags=os")
    assert rc == 2 and "baremetal.mpi_roce.summary, which evaluates the run" in text


def test_an_import_with_tags(folder: Path) -> None:
    (folder / "verify.yml").write_text(yaml.safe_dump(plays()), encoding="utf-8")
    nightly = [{"import_playbook": "verify.yml", "tags": ["nightly"]}]
    rc, text = run_play(
        folder, yaml.safe_dump(nightly), folder / "hosts.ini", "--limit=node01,leaf01"
    )
    assert rc == 2 and "--tags names --limit node01" in text and "nightly" not in text


@pytest.mark.parametrize(
    ("named", "status", "ran"), [("", 4, True), ("launcher02", 0, True), ("launcher01", 4, False)]
)
def test_the_smoke_test_starts_from_the_launcher_that_responds(
    tmp_path: Path, named: str, status: int, ran: bool
) -> None:
    launchers = "launchers: [{name: launcher01, management: 10.0.0.8}, {name: launcher02, \
management: 10.0.0.9}]"
    lines = [launchers if line.startswith("launcher:") else line for line in MODEL.splitlines()]
    (tmp_path / "cluster.yml").write_text("\n".join(lines), encoding="utf-8")
    variables = tmp_path / "host_vars"
    variables.mkdir()
    dead = "ansible_host: 127.0.0.1\nansible_port: 1\n"
    (variables / "launcher01.yml").write_text(dead, encoding="utf-8")
    local = "ansible_connection: local\nansible_become: false\n"
    local += "ansible_python_interpreter: /usr/bin/python3\n"
    (variables / "launcher02.yml").write_text(local, encoding="utf-8")
    words = ("--tags", "smoke", "--check", "-e", f"mpi_smoke_launcher={named}")
    reports = {"BAREMETAL_MPI_ROCE_REPORTS": str(tmp_path / "reports")}
    done = ansible("ansible-playbook", "playbooks/site.yml", "-i", tmp_path, *words, **reports)
    assert done.returncode == status, done.stdout
    assert ("would run mpirun" in done.stdout) is ran
    summary = done.stdout.partition("SUMMARY")[2]
    assert ("smoke  1 of 2 launcher (launcher02)" in summary) is ran
    assert ("unreachable: launcher01" in summary) is (status == 4)
