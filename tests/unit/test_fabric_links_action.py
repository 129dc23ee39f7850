# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The action fabric_links: which host gets which findings, and the report."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.baremetal.mpi_roce.plugins.action import fabric_links as action
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract
from hypothesis import given

from tests.unit.hostile import spoilt
from tests.unit.link_fabric import Fabric


class HostVars(dict[str, Any]):
    def raw_get(self, name: str) -> Any:
        return self[name]


class Run:
    def __init__(self, fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        monkeypatch.setattr(action.display, "display", self.lines.append)
        monkeypatch.setattr(action.display, "warning", self.lines.append)
        switches, nodes = fabric.switches, fabric.nodes
        self.hostvars = HostVars()
        for name, switch in switches.items():
            self.hostvars[name] = {
                "cluster_system": switch.system,
                "cluster_asic": switch.asic,
                "cluster_ports": switch.ports,
                "switch_qos_state": {"report": switch.report, "problem": switch.reason},
            }
        for name, node in nodes.items():
            state = node.state if node.state is not None else {"failed": True, "msg": node.reason}
            self.hostvars[name] = {"roce_rails_state": state}
        self.here = [*nodes, *switches]
        self.groups = {
            "compute": list(nodes),
            "leaf": [name for name, switch in switches.items() if name.startswith("leaf")],
            "spine": [name for name, switch in switches.items() if name.startswith("spine")],
        }
        self.all = list(self.here)

    def compare(self, check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        task_vars = {
            "groups": self.groups,
            "hostvars": self.hostvars,
            "ansible_play_hosts": self.here,
            "ansible_play_hosts_all": self.all,
            "inventory_hostname": self.here[0],
        }
        arguments = {"qos": read_contract({}).as_variable(), **arguments}
        this = SimpleNamespace(_task=SimpleNamespace(args=arguments, check_mode=check_mode))
        found: dict[str, Any] = action.ActionModule._compare(this, task_vars)
        return found

    def verdict(self, host: str, judged: dict[str, Any]) -> dict[str, Any]:
        this = SimpleNamespace(_task=SimpleNamespace(args={"judged": "judged"}))
        task_vars = {"inventory_hostname": host, "judged": judged}
        found: dict[str, Any] = action.ActionModule._verdict(this, task_vars)
        return found


def test_all_that_holds_is_told_to_the_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(Fabric(), monkeypatch)
    judged = run.compare()
    assert set(judged["by_host"]) == {"leaf01", "leaf02"}
    assert "report" not in judged
    verdict = run.verdict("leaf01", judged)
    assert [check["subject"] for check in verdict["checks"]] == [
        "leaf01 to nodes",
        "leaf01 to spines",
    ]
    assert "failed" not in verdict
    assert run.verdict("node01", judged)["checks"] == []
    assert re.findall("[0-9]+", run.lines[0]) == ["10", "10", "10"]


def test_the_host_whose_end_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    fabric.setting("node02", "rail0", "pfc")["found"] = []
    run = Run(fabric, monkeypatch)
    judged = run.compare()
    verdict = run.verdict("node02", judged)
    assert verdict["failed"]
    assert verdict["msg"].startswith("links: 1 ") and "\n  link_pfc leaf01" in verdict["msg"]
    assert "failed" not in run.verdict("leaf01", judged)
    assert any(line.startswith("  link_pfc leaf01 Ethernet8 - node02 rail0:") for line in run.lines)


def test_in_check_mode_repairable_mismatches_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    fabric.setting("node02", "rail0", "pfc")["found"] = []
    fabric.port("leaf02", "Ethernet8")["speed_gbps"] = 200
    run = Run(fabric, monkeypatch)
    judged = run.compare(check_mode=True)
    assert [check["status"] for check in run.verdict("node02", judged)["checks"]] == ["pending"]
    assert "failed" not in run.verdict("node02", judged)
    assert run.verdict("leaf02", judged)["failed"]
    assert any(line.startswith("  link_pfc") for line in run.lines)


def test_a_wire_map_is_read_or_the_task_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = Fabric()
    fabric.port("leaf01", "Ethernet8")["neighbour"].update(system="stranger", port="1")
    run, path = Run(fabric, monkeypatch), tmp_path / "wires.csv"
    with pytest.raises(AnsibleActionFail, match=str(path)):
        run.compare(wire_map=str(path))
    path.write_text("a_host,a_port,b_host,b_port\nleaf01,Ethernet8,node02,rail0\n")
    reasons = [check["reason"] for check in run.compare(wire_map=str(path))["by_host"]["leaf01"]]
    assert any("line 2 of the wire map" in reason for reason in reasons)


def test_to_verify_nothing_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    fabric.setting("node02", "rail0", "pfc")["found"] = []
    run = Run(fabric, monkeypatch)
    assert run.verdict("node02", run.compare(check_mode=True, strict=True))["failed"]
    assert "failed" not in run.verdict("node02", run.compare(check_mode=True, strict="false"))


def test_nobody_fails_for_the_sake_of_a_host_that_dropped_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric()
    fabric.setting("node02", "rail0", "pfc")["found"] = []
    fabric.change_node("node03", state=None, reason="rails: `ip` could not be run")
    run = Run(fabric, monkeypatch)
    run.here = [name for name in run.here if name not in ("node02", "node03")]
    judged = run.compare()
    wrong = judged["by_host"]["leaf01"][0]
    assert (wrong["name"], wrong["status"]) == ("link_pfc", "not_applicable")
    assert wrong["reason"].startswith("node02 has failed earlier")
    assert "failed" not in run.verdict("leaf01", judged)
    assert any(line.startswith("  link_pfc leaf01 Ethernet8 - node02 rail0:") for line in run.lines)
    lost = judged["by_host"]["node01"][0]
    assert lost["name"] == "link_report"
    assert lost["status"] == "not_applicable"
    assert lost["reason"].startswith("node03 has failed earlier")
    assert "rails: `ip` could" in lost["reason"]
    assert "failed" not in run.verdict("node01", judged)


def test_a_switch_without_a_report_is_shown_with_its_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric()
    fabric.change_switch("leaf01", report=None, reason="leaf01 cannot be planned\nmore")
    judged = Run(fabric, monkeypatch).compare()
    (check,) = [each for each in judged["by_host"]["leaf01"] if each["name"] == "link_report"]
    assert check["reason"].startswith("leaf01 cannot be planned. Try: ")


def test_of_two_ends_that_are_wrong_the_one_that_is_left_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fabric = Fabric()
    fabric.setting("node02", "rail0", "pfc")["found"] = []
    fabric.port("leaf01", "Ethernet8")["pfc_priorities"] = (4,)
    for gone, left in (("node02", "leaf01"), ("leaf01", "node02")):
        run = Run(fabric, monkeypatch)
        run.here = [name for name in run.here if name != gone]
        assert run.verdict(left, run.compare())["failed"]


def test_a_swap_fails_the_switches_at_both_ends_and_is_shown_to_the_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def where(*ports: tuple[str, str]) -> dict[str, str]:
        fabric = Fabric()
        first, second = (fabric.port(*port) for port in ports)
        first["neighbour"], second["neighbour"] = second["neighbour"], first["neighbour"]
        found = Run(fabric, monkeypatch).compare()["by_host"]
        return {
            host: check["status"]
            for host, checks in found.items()
            for check in checks
            if check["name"] == "link_neighbour" and "are swapped" in check["reason"]
        }

    nodes = dict.fromkeys(("node02", "node03"), "not_applicable")
    assert where(("leaf01", "Ethernet8"), ("leaf02", "Ethernet16")) == {
        **dict.fromkeys(("leaf01", "leaf02"), "failed"),
        **nodes,
    }
    assert where(("spine01", "Ethernet0"), ("spine02", "Ethernet8")) == dict.fromkeys(
        ("leaf01", "leaf02", "spine01", "spine02"), "failed"
    )
    run = Run(fabric := Fabric(), monkeypatch)
    port = fabric.port("leaf01", "Ethernet8")
    port["neighbour"] = fabric.port("leaf02", "Ethernet16")["neighbour"]
    found = run.compare()["by_host"]
    assert {host for host in found if run.verdict(host, {"by_host": found}).get("failed")} == {
        *("leaf01", "leaf02"),
    }
    seen = [check for check in found["node02"] if check["name"] == "link_neighbour"]
    assert [check["reason"].partition(":")[0] for check in seen] == ["see leaf01"]


def test_the_report_has_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fabric = Fabric(nodes=60)
    for node in fabric.nodes:
        fabric.setting(node, "rail0", "pfc")["found"] = []
    run = Run(fabric, monkeypatch)
    judged = run.compare(report_directory=str(tmp_path / "reports"))
    report = json.loads((tmp_path / "reports/links-latest.json").read_text())
    assert judged["report"].startswith(str(tmp_path / "reports/links-"))
    assert len([check for check in report["checks"] if check["status"] == "failed"]) == 60
    assert report["links"][0]["wrong"] == 60
    listed = run.verdict("leaf01", {"by_host": {"leaf01": report["checks"]}})["msg"].splitlines()
    assert len(listed) == 42
    assert "20 more" in listed[-1] and listed[-1] in run.lines


def test_a_report_that_cannot_be_saved_takes_nothing_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    run = Run(Fabric(), monkeypatch)
    judged = run.compare(report_directory=str(tmp_path / "file"))
    assert judged["report"] == ""
    assert judged["by_host"]
    assert "fabric_links_report_directory" in run.lines[-1]


FABRIC = Fabric()


@given(spoilt(FABRIC.nodes["node02"].state))
def test_whatever_a_node_answers_the_links_of_the_others_are_compared(said: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        run = Run(FABRIC, patch)
        run.hostvars["node02"] = {"roce_rails_state": said if isinstance(said, dict) else {}}
        judged = run.compare()
        failed = [
            check
            for host, checks in judged["by_host"].items()
            for check in checks
            if check["status"] == "failed" and host != "node02"
        ]
        assert failed == []
        assert "failed" not in run.verdict("node01", judged)


def test_the_address_of_another_node_is_not_taken_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric()
    theirs = fabric.nodes["node01"].state
    for said in (fabric.nodes["node02"].state, fabric.nodes["node03"].state):
        assert theirs and said
        for name, rail in said["rails"].items():
            rail["mac"] = theirs["rails"][name]["mac"]
    run = Run(fabric, monkeypatch)
    judged = run.compare()
    wrong = [
        check["found"]
        for checks in judged["by_host"].values()
        for check in checks
        if check["status"] == "failed" and "node01" in str(check["wanted"])
    ]
    assert wrong == []
