# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which switches a run changes, in which order, and where it stops. The switches are files
(fabric_run/sonic.py); everything else is real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import switch_qos as action

from tests.waiting import deadline, until

ROOT = Path(__file__).parents[2]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: files
management: {subnet: 10.0.0.0/24}
nodes: {count: 2, management_first: 10.0.0.11}
gpus: {count: 1}
rails: {count: 2, planes: 2, speed_gbps: 400}
addresses: {pool: 10.100.0.0/16, prefix: 24}
leaves: {count: 4, management_first: 10.0.0.101, ports: 64, system: sonic, asic: spectrum4}
spines: {count: 2, management_first: 10.0.0.201, ports: 64, divided_by: [],
  system: sonic, asic: spectrum4}
launcher: {name: launcher01, management: 10.0.0.10}
"""
LEAVES = [f"leaf0{number}" for number in range(1, 5)]
SPINES = ["spine01", "spine02"]
SWITCHES = [*SPINES, *LEAVES]
ADDRESS = {
    **{name: f"10.0.0.{101 + number}" for number, name in enumerate(LEAVES)},
    **{name: f"10.0.0.{201 + number}" for number, name in enumerate(SPINES)},
}


@dataclass
class Ran:
    rc: int
    output: str
    report: dict[str, Any]

    def checks(self, host: str) -> dict[str, dict[str, Any]]:
        found = self.report["layers"]["fabric"]["hosts"][host]["checks"]
        return {check["name"]: check for check in found}


class Fabric:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "cluster.yml").write_text(MODEL)
        for name in SWITCHES:
            self.write(name, {"ports": {"theirs": "untouched"}})

    def file(self, name: str, kind: str = "json") -> Path:
        return self.folder / f"{ADDRESS[name]}.{kind}"

    def write(self, name: str, state: dict[str, Any]) -> None:
        part = self.file(name, "new")
        part.write_text(json.dumps(state))
        part.replace(self.file(name))  # the run reads it at any time

    def fault(self, name: str, **faults: list[Optional[str]]) -> None:
        self.write(name, {**self.state(name), "faults": faults})

    def state(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self.file(name).read_text()))

    def applied(self, name: str) -> bool:
        ports = self.state(name)["ports"]
        ours = [value for port, value in ports.items() if port != "theirs"]
        assert ports["theirs"] == "untouched"
        assert set(ours) <= {"lossless"}
        return bool(ours)

    def calls(self, name: str) -> list[str]:
        log = self.file(name, "log")
        return log.read_text().split() if log.exists() else []

    def forget(self) -> None:
        for log in self.folder.glob("*.log"):
            log.unlink()

    def start(self, playbook: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(str(Path(sys.executable).with_name("ansible-playbook")), playbook),
                *("-i", str(self.folder / "cluster.yml"), "-e", "ansible_connection=local"),
                *("-e", "ansible_become=false", *words),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": f"{Path(__file__).with_name('fabric_run')}{os.pathsep}{ROOT}",
                "SWITCH_FILES": str(self.folder),
                "BAREMETAL_MPI_ROCE_REPORTS": str(self.folder / "reports"),
                "ANSIBLE_NOCOLOR": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *words: str, playbook: str = "playbooks/fabric.yml") -> Ran:
        running = self.start(playbook, *words)
        output, _nothing = running.communicate(timeout=deadline(300))
        reports = sorted((self.folder / "reports" / "files").glob("*.json"))
        return Ran(running.returncode, output, json.loads(reports[-1].read_text()))


@pytest.fixture
def fabric(tmp_path: Path) -> Fabric:
    return Fabric(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("playbook", ["fabric", "links"])
def test_a_contract_set_by_hand_is_refused_before_any_switch_is_read(
    fabric: Fabric, playbook: str
) -> None:
    running = fabric.start(f"playbooks/{playbook}.yml", "-e", '{"roce_qos": {"roce": {}}}')
    output, _nothing = running.communicate(timeout=deadline(300))
    assert running.returncode == 2
    assert "roce_qos: {" in output and "not what the model" in output
    assert not any(map(fabric.calls, SWITCHES))


@pytest.mark.slow
def test_a_run_changes_one_after_another_and_a_second_one_only_reads(fabric: Fabric) -> None:
    first = fabric.run("--diff")
    assert first.rc == 0, first.output
    for name in SWITCHES:
        assert fabric.applied(name)
        # To plan, then in its turn.
        assert fabric.calls(name) == ["read", "read", "apply", "read", "confirm"]
        assert first.checks(name)["configuration"]["status"] == "ok"
        pfc = first.checks(name)["port_pfc"]
        assert pfc["found"] == "PFC on 3" and pfc["status"] == "ok"
    assert first.checks("leaf01")["port_pfc"]["subject"] == "Ethernet0-Ethernet504 (4 ports)"
    turns = [
        line.rpartition("Apply to ")[2].partition("]")[0]
        for line in first.output.splitlines()
        if "Apply to " in line and line.startswith("TASK")
    ]
    assert turns == SWITCHES
    assert "leaf01 (sonic): 4 values to change, which takes about 14 min" in first.output
    assert "Ethernet0-Ethernet504 (4 ports)" in first.output
    assert "+Ethernet8 lossless" in first.output

    fabric.forget()
    second = fabric.run("--diff")
    assert second.rc == 0 and "to change" not in second.output
    assert {name: fabric.calls(name) for name in SWITCHES} == {name: ["read"] for name in SWITCHES}
    assert second.report["changed"] == {}


@pytest.mark.slow
def test_check_mode_is_the_plan_and_touches_nothing(fabric: Fabric) -> None:
    ran = fabric.run("--check", "--diff")
    assert ran.rc == 0, ran.output
    for name in SWITCHES:
        assert fabric.calls(name) == ["read"] and not fabric.applied(name)
        assert ran.checks(name)["configuration"]["status"] == "pending"
        assert ran.checks(name)["port_pfc"]["status"] == "pending"
        assert ran.checks(name)["port_mtu"]["status"] == "ok"
    assert "+Ethernet8 lossless" in ran.output
    assert "go down" in ran.output


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["one cannot be read", "one has another speed"])
def test_nothing_is_applied_anywhere_when_one_cannot_have_it(fabric: Fabric, fault: str) -> None:
    if fault == "one cannot be read":
        fabric.fault("leaf02", read=["no answer"])
        words = "leaf02 cannot be planned: 10.0.0.102: no answer"
    else:
        fabric.write("leaf02", {**fabric.state("leaf02"), "speed_gbps": 100})
        words = "port_speed Ethernet0-Ethernet504 (4 ports): wanted '400 Gb/s', found '100 Gb/s'"
    ran = fabric.run()
    assert ran.rc != 0
    assert not any(fabric.applied(name) for name in SWITCHES)
    assert not any("apply" in fabric.calls(name) for name in SWITCHES)
    assert words in ran.output
    assert "no switch was" in ran.output and "all:!leaf02" in ran.output

    if fault == "one cannot be read":
        without = fabric.run("--limit=all:!leaf02")
        assert without.rc == 0, without.output
        assert [name for name in SWITCHES if not fabric.applied(name)] == ["leaf02"]


@pytest.mark.slow
def test_after_a_failure_no_further_switch_is_touched(fabric: Fabric) -> None:
    failing = "leaf01"
    fabric.fault(failing, confirm=["disk full"])
    ran = fabric.run()
    assert ran.rc != 0
    before = SWITCHES[: SWITCHES.index(failing)]
    for name in SWITCHES:
        assert fabric.applied(name) == (name in before)
        assert ("apply" in fabric.calls(name)) == (name in before or name == failing)
    assert f"{failing}: the change was" in ran.output
    assert "(read back)." in ran.output
    assert failing in ran.report["failed"]
    # Completed changes stay, and the next run continues.
    assert fabric.run().rc == 0
    assert all(fabric.applied(name) for name in SWITCHES)


@pytest.mark.slow
def test_a_fabric_without_a_system_is_said_once_and_not_touched(fabric: Fabric) -> None:
    (fabric.folder / "cluster.yml").write_text(MODEL.replace("system: sonic, asic: spectrum4", ""))
    ran = fabric.run()
    assert ran.rc == 0, ran.output
    assert not any(fabric.calls(name) for name in SWITCHES)
    reasons = {ran.checks(name)["configuration"]["reason"] for name in LEAVES}
    assert ["leaves.system" in reason for reason in reasons] == [True]
    assert "spines.system" in ran.checks("spine01")["configuration"]["reason"]


@pytest.mark.slow
def test_verify_reports_switches_outside_an_earlier_limit(fabric: Fabric) -> None:
    assert fabric.run("--limit=leaf03").rc == 0
    assert [name for name in SWITCHES if fabric.applied(name)] == ["leaf03"]
    assert [name for name in SWITCHES if fabric.calls(name)] == ["leaf03"]

    drifted = {**fabric.state("leaf03")["ports"], "Ethernet8": "by hand"}
    fabric.write("leaf02", {"ports": drifted})
    ran = fabric.run("--tags=fabric", playbook="playbooks/verify.yml")
    assert ran.rc != 0
    assert fabric.state("leaf02")["ports"]["Ethernet8"] == "by hand"
    for name in SWITCHES:
        if name == "leaf03":
            continue
        assert "apply" not in fabric.calls(name)
        assert ran.checks(name)["configuration"]["status"] == "failed"
        assert ran.checks(name)["port_pfc"]["status"] == "failed"
        assert f"site.yml --tags fabric --limit {name}" in ran.output
    assert "port_pfc Ethernet8: wanted 'PFC on 3', found 'PFC off'" in ran.output
    assert ran.checks("leaf03")["configuration"]["status"] == "ok"
    assert set(ran.report["failed"]) == set(SWITCHES) - {"leaf03"}


def test_a_switch_waits_for_earlier_batches() -> None:
    """For any strategy and error handling of the play."""
    turns = {"turns": {"spine01": 0, "leaf01": 1, "leaf02": 1, "leaf03": 2}}
    done = {"switch_qos_state": {"applied": True}}
    hostvars: dict[str, Any] = {"spine01": done, "leaf01": done, "leaf02": done, "leaf03": {}}
    action._check_turn("leaf03", turns, hostvars)
    action._check_turn("leaf02", turns, {**hostvars, "leaf01": {}})  # of the same batch
    for state in ({}, {"switch_qos_state": {"failed": True}}):
        with pytest.raises(AnsibleActionFail, match="leaf02 come before it"):
            action._check_turn("leaf03", turns, {**hostvars, "leaf02": state})
    with pytest.raises(AnsibleActionFail, match="none of the"):
        action._check_turn("leaf04", turns, hostvars)


@pytest.mark.slow
def test_links_are_judged_though_a_port_was_dark_before_and_after(fabric: Fabric) -> None:
    """A node without power is not waited for, and is not a failure of its switch."""
    for name in LEAVES:
        fabric.write(name, {**fabric.state(name), "dark": ["Ethernet0"]})
    ran = fabric.run("--tags=fabric,links", "--limit=leaf:spine", playbook="site.yml")
    for name in SWITCHES:
        assert fabric.applied(name)
        assert ran.checks(name)["configuration"]["status"] == "ok"
        # Once more for the links, without waiting, which would need more reads.
        assert fabric.calls(name) == ["read", "read", "apply", "read", "confirm", "read"]
    judged = ran.report["layers"]["links"]["hosts"]
    found = [check for host in judged.values() for check in host["checks"]]
    down = [check for check in found if check["name"] == "link_up" and check["status"] == "failed"]
    assert len(down) == 4 and all("Ethernet0" in check["subject"] for check in down)


def test_a_layer_beyond_the_limit_fails_last(fabric: Fabric) -> None:
    beyond = "not done: hostfile: its hosts (launcher01) are excluded by --limit leaf:spine"
    ran = fabric.run("--tags=fabric,hostfile", "--limit=leaf:spine", playbook="site.yml")
    assert ran.rc == 2 and beyond in ran.output and "nothing was done" not in ran.output
    assert all(map(fabric.applied, SWITCHES)) and ran.report["failed"] == {}
    ran = fabric.run("--skip-tags=links", "--limit=leaf:spine", playbook="site.yml")
    assert ran.rc == 0 and "not done: " not in ran.output
    (line,) = re.findall("^not done because of --limit leaf:spine: (.+)$", ran.output, re.MULTILINE)
    assert (
        "names" in line and "hostfile" in line and not {"fabric", "links"} & set(line.split(", "))
    )
    verified = fabric.run(
        "--tags=fabric,hostfile", "--limit=leaf:spine", playbook="playbooks/verify.yml"
    )
    assert verified.rc == 2 and beyond in verified.output


SETTLED = """\
- name: After a change
  hosts: leaf01
  gather_facts: false
  tasks:
    - name: What it had when it was changed
      ansible.builtin.set_fact:
        switch_qos_state: {report: {ports: [{name: Ethernet8, up: true}]}}
    - name: Read it again
      baremetal.mpi_roce.switch_qos:
        step: plan
        settle_s: SECONDS
      register: switch_qos_state
    - name: Go on
      ansible.builtin.debug:
        msg: "dark: {{ switch_qos_state.report.ports | rejectattr('up') | map(attribute='name') }}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("comes_up", [True, False])
def test_links_wait_for_a_port_that_a_change_took_down(fabric: Fabric, comes_up: bool) -> None:
    fabric.write("leaf01", {**fabric.state("leaf01"), "dark": ["Ethernet8"]})
    playbook = fabric.folder / "settled.yml"
    playbook.write_text(SETTLED.replace("SECONDS", "36000" if comes_up else "0"))
    running = fabric.start(str(playbook))
    until(lambda: fabric.calls("leaf01"), "the first look", 300)
    if comes_up:
        fabric.write("leaf01", {**fabric.state("leaf01"), "dark": []})
    output, _nothing = running.communicate(timeout=deadline(300))
    assert running.returncode == 0, output
    assert (len(fabric.calls("leaf01")) > 1) == comes_up
    assert ("dark: []" in output) == comes_up and ("dark: ['Ethernet8']" in output) != comes_up


@pytest.mark.slow
def test_a_run_that_is_ended_undoes_what_it_applied(fabric: Fabric) -> None:
    # A second signal during the undo has no effect.
    fabric.fault("spine01", read=[None, None, "hang"], rollback=["pause"])
    running = fabric.start("playbooks/fabric.yml")
    until(lambda: fabric.calls("spine01")[-2:] == ["apply", "read"], "a change to undo", 300)
    assert fabric.applied("spine01")
    # Only that process, because a worker that exits while it returns its result holds
    # the lock of Ansible's queue.
    worker = int(fabric.file("spine01", "pid").read_text())
    for _time in range(2):
        os.kill(worker, signal.SIGTERM)
        until(lambda: "rollback" in fabric.calls("spine01"), "the change being undone", 300)
    fabric.file("spine01", "go").touch()
    running.communicate(timeout=deadline(300))
    assert running.returncode != 0
    assert not fabric.applied("spine01")
    assert fabric.calls("spine01")[-2:] == ["rollback", "read"]
    assert not any(fabric.applied(name) for name in LEAVES)
