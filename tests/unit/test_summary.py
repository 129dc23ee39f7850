# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The summary of a run: counts of checks, and hosts that need the operator."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import checks
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import (
    finite,
    json_parts,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.layers import TAGS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot import planning
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.summary import (
    RunSummary,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hostile import spoilt


def summary(**fields) -> RunSummary:
    roles = {"login01": "launcher", "node01": "compute", "node02": "compute"}
    return RunSummary(cluster="tiny", roles=roles, **fields)


def result(layer: str, *found: checks.Check, **more) -> dict:
    return {"layer": layer, "checks": checks.as_dicts(found), **more}


def check(status: str, name: str = "mtu", subject: str = "", reason: str = "") -> checks.Check:
    return checks.Check(name, 9000, 9000, status, subject, reason)


def test_a_layer_that_was_named_and_excluded_makes_a_run_incomplete():
    excluded = {"os": ["node01"], "gpu": []}
    assert summary(left_out=excluded, named={"os"}).incomplete
    assert not summary(left_out=excluded, named={"gpu"}).incomplete
    assert not summary(left_out=excluded).incomplete


def test_the_table_counts_statuses_by_layer():
    run = summary()
    for host in ("node01", "node02"):
        run.add_result(host, result("os", check(checks.OK), check(checks.OK, "swap")))
    run.add_result("login01", result("os", check(checks.FAILED)))
    run.add_result("node02", result("rails", check(checks.PENDING), check(checks.OK, "name")))
    assert run.lines(12.34, 60) == [
        "site.yml on tiny: 12.3 s",
        "layer  hosts                    ok  not applicable  failed  pending  reboot",
        "os     2 compute, 1 launcher     4               -       1        -       -",
        "rails  1 of 2 compute (node02)   1               -       -        1       -",
    ]


def test_a_repeated_check_replaces_the_earlier_one():
    run = summary()
    run.add_result("node01", result("rails", check(checks.PENDING, subject="rail0")))
    run.add_result("node01", result("rails", check(checks.OK, subject="rail0")))
    run.add_result("node01", result("rails", check(checks.OK, subject="rail1")))
    assert run.counts("rails") == {checks.OK: 2}


def test_reasons_of_not_applicable_checks():
    run = summary()
    for host in ("node01", "node02"):
        excuse = "not applicable in a container"
        run.add_result(
            host,
            result(
                "os",
                check(checks.NOT_APPLICABLE, "hugepages", reason=excuse),
                check(checks.NOT_APPLICABLE, "sysctl", "vm.swappiness", reason=excuse),
                check(checks.NOT_APPLICABLE, "sysctl", "kernel.x", reason=excuse),
                check(checks.NOT_APPLICABLE, "governor", reason="no cpufreq driver"),
            ),
        )
    assert run.lines(1, 60)[-2:] == [
        "6 not applicable in a container: os hugepages 2, os sysctl 4",
        "2 not applicable, no cpufreq driver: os governor 2",
    ]


def test_remote_executions_of_the_busiest_node():
    run = summary()
    run.executions.update({"login01": 80, "node01": 12, "node02": 14})
    assert run.busiest() == ("node02", 14)
    assert run.lines(1, 60)[-1] == (
        "remote module executions per compute node: 14 at most (node02), limit 60"
    )
    assert run.lines(1, 13)[-1].endswith("limit 13, OVER THE LIMIT")


def test_results_without_a_layer_are_ignored():
    run = summary()
    for other in ({}, {"layer": "os"}, {"layer": 3, "checks": []}, {"layer": "root", "checks": []}):
        run.add_result("node01", other)
    assert not run.any


def test_layers_of_modules_are_known():
    plugins = Path(__file__).parents[2] / "plugins"
    text = "\n".join(path.read_text(encoding="utf-8") for path in plugins.rglob("*.py"))
    named = re.findall(r'(?:LAYER = |Layer\(\s*|[("]layer"?[=:] ?)"([a-z_]+)"', text)
    assert set(named) == set(TAGS)


RESULT = {
    **result("os", check(checks.OK), check(checks.FAILED, "swap", "sda", "why")),
    "simulated": ["nvidia-smi"],
    "figures": {"gbits_s": 1.5},
    "reboot_plan": {"batches": [], "left": [], "nothing": [], "check_mode": False},
    "reboot_outcome": {"status": "verified", "text": "well", "seconds": 1},
    "results": [],
    "diff": [{"after_header": "/etc/x"}],
}


@given(st.lists(spoilt(RESULT), max_size=3))
def test_whatever_a_host_answers_counts_for_it_and_for_no_other(said):
    """The summary of other hosts is complete and unchanged."""

    def add(run: RunSummary, of: str, result: dict) -> None:
        run.add_result(of, result)
        run.would_change("os", of, "Settle", result)

    expected = {"os": {"node01": "", "node02": "", "login01": ""}}
    run, without = summary(expected=expected), summary(expected=expected)
    for one in (run, without):
        one.add_result("node02", result("os", check(checks.OK)))
        one.add_result("login01", result("os", check(checks.FAILED, "swap")))
    for each in said:
        if isinstance(each, dict):
            add(run, "node01", each)
    lines = run.lines(1, 60)
    assert all(line.isprintable() for line in lines)
    report, other = (one.report("now", 1, 60, False) for one in (run, without))
    json.dumps(finite(report), allow_nan=False)
    hosts = report["layers"]["os"]["hosts"]
    assert {name: hosts[name] for name in ("node02", "login01")} == other["layers"]["os"]["hosts"]
    assert set(run.wrong()["os"]) - {"node01"} == {"login01"}
    assert run.reboot_plan is None and not run.reboot_outcomes
    assert set(run.layers) == {"os"}


def test_a_step_for_another_host_says_whose_word_it_is():
    run = summary(expected={"ssh": {"node01": "", "node02": ""}})
    odd = checks.Check(
        "ssh_login", "reached", "refused", checks.FAILED, at="login01", by_hand="run x"
    )
    run.add_result("node01", result("ssh", odd))
    assert "by hand: login01 (says node01): run x" in run.lines(1, 60)


def test_a_long_answer_of_one_host_is_bounded():
    run = summary()
    many = [
        check(checks.NOT_APPLICABLE, "x", str(number), f"reason {number}\n" + "y" * 9000)
        for number in range(500)
    ]
    run.add_result("node01", result("os", *many, simulated=[f"program {n}" for n in range(500)]))
    lines = run.lines(1, 60)
    assert len(lines) < 100 and max(map(len, lines)) < 2000
    assert "not applicable: 460 more, see the report" in lines
    run.simulated = {f"program {number}": ["node01"] for number in range(40)}
    assert not [line for line in run.lines(1, 60) if line.startswith("SIMULATED: 0 more")]


def test_records_lie_in_a_file_that_grows_with_the_run(tmp_path):
    run, kept = summary(), summary()
    run.records.path = path = tmp_path / "c1" / "site.jsonl"
    for name in ("mtu", "swap", "mtu"):
        for one in (run, kept):
            one.add_result("node01", result("os", check(checks.OK, name), figures={"a": name}))
        last = json.loads(path.read_text().splitlines()[-1])
        assert (last["layer"], last["host"]) == ("os", "node01")
    assert [item["name"] for item in last["checks"]] == ["mtu", "swap"]
    assert path.stat().st_mode & 0o137 == 0
    run.records.remove()
    assert not path.exists()
    for one in (run, kept):
        one.add_result("node02", result("os", check(checks.FAILED)))
    report, other = (finite(one.report("now", 1, 60, False)) for one in (run, kept))
    assert report == other and report["layers"]["os"]["counts"][checks.FAILED] == 1
    assert json.loads("".join(json_parts(run.report("now", 1, 60, False)))) == report


def test_records_that_no_file_takes_stay_in_memory(tmp_path, monkeypatch):
    run = summary()
    run.records.path = tmp_path / "site.jsonl"
    real = os.pwrite
    # A disk that is full after a part of the second line.
    monkeypatch.setattr(
        os, "pwrite", lambda handle, line, at: real(handle, line[: 9 if at else None], at)
    )
    for host in ("node01", "node02", "login01"):
        run.add_result(host, result("os", check(checks.OK, subject=host)))
    monkeypatch.undo()
    run.add_result("node03", result("os", check(checks.OK, subject="node03")))
    hosts = run.report("now", 1, 60, False)["layers"]["os"]["hosts"]
    assert [hosts[host]["checks"][0]["subject"] for host in hosts] == list(hosts)
    assert len((tmp_path / "site.jsonl").read_text().splitlines()) == 2
    (tmp_path / "taken.jsonl").write_text("of another run")
    other = summary()
    other.records.path = tmp_path / "taken.jsonl"
    other.add_result("node01", result("os", check(checks.OK)))
    assert other.counts("os") == {checks.OK: 1} and other.layers["os"]["node01"].checks
    other.records.remove()
    assert (tmp_path / "taken.jsonl").read_text() == "of another run"


def test_the_report_has_checks_and_figures():
    run = summary()
    figures = [{"bytes": 4, "median_us": 31.0}]
    run.add_result(
        "login01",
        result("smoke", check(checks.OK), figures=figures, ranks=32, invocation={}, changed=False),
    )
    run.add_result("node01", result("smoke", check(checks.OK), ranks=32))
    run.executions.update({"node01": 3})
    report = run.report("2026-01-01T00:00:00+00:00", 2.04, 60, check_mode=False)
    assert report["seconds"] == 2.0
    assert report["layers"]["smoke"]["counts"][checks.OK] == 2
    smoke = report["layers"]["smoke"]["hosts"]["login01"]
    assert smoke["measured"] == {"figures": figures, "ranks": 32}
    assert "measured" not in report["layers"]["smoke"]["hosts"]["node01"]
    assert smoke["checks"][0]["name"] == "mtu"
    assert report["remote_module_executions"] == {
        "limit_per_compute_node": 60,
        "most_on_a_compute_node": 3,
        "hosts": {"node01": 3},
    }


def waiting(**fields) -> RunSummary:
    run = summary(**fields)
    run.add_result("node01", result("os", check(checks.REBOOT, "cmdline", reason="iommu=pt")))
    run.add_result("node01", result("gpu", check(checks.REBOOT, "driver", reason="580.95.05")))
    run.add_result("node02", result("os", check(checks.OK, "cmdline")))
    return run


def test_hosts_that_need_the_operator():
    why = "Configure the rails: no carrier"
    run = waiting(inventories=("inventories/b300", "a b"), failed={"node01": why, "node02": why})
    run.unreachable["login01"] = "Ping"
    for host in ("node01", "node02", "node01"):
        run.add_result(host, result("gpu", check(checks.OK), simulated=["nvidia-smi"]))
    lines = run.lines(1, 60)
    assert f"failed: node01, node02: {why}" in lines
    assert "unreachable: login01" in lines
    assert "SIMULATED: nvidia-smi: node01, node02" in lines
    assert run.report("now", 1, 60, False)["simulated"] == {"nvidia-smi": ["node01", "node02"]}
    assert lines[-2:] == [
        "reboot needed: node01 (os: iommu=pt; gpu: 580.95.05)",
        "reboot them with: ansible-playbook playbooks/reboot.yml -i inventories/b300 -i 'a b' "
        "(--check shows the plan and hosts waiting from earlier runs)",
    ]


def rebooting(check_mode: bool) -> RunSummary:
    run = waiting(playbook="reboot.yml")
    verdicts: list = [
        (name, planning.Turn(name, "compute", planning.REBOOT, ("os",), ("os",), ("os: iommu=pt",)))
        for name in ("node01", "node02")
    ]
    verdicts.append(("login01", planning.Left("login01", "MPI runs on it", ("os: x",))))
    plan = planning.plan(verdicts, planning.RebootSettings())
    run.add_reboots("node01", {"reboot_plan": {**plan, "check_mode": check_mode}})
    return run


def test_the_table_after_reboots():
    run = rebooting(check_mode=False)
    run.unreachable["node01"] = "Verify"  # no further result
    assert run.lines(1, 60)[-4:] == [
        "host     reason        batch  seconds  outcome",
        "node01   os: iommu=pt  1      -        lost while its batch ran",
        "node02   os: iommu=pt  2      -        not rebooted: batch 1 failed (node01)",
        "login01  os: x         -      -        left: MPI runs on it",
    ]
    run.add_reboots(
        "node01",
        {"reboot_outcome": {"status": "verified", "text": "verified: os", "seconds": 241.4}},
    )
    assert "node01   os: iommu=pt  1      241      verified: os" in run.lines(1, 60)
    report = run.report("now", 1, 60, False)
    assert report["rebooted"]["node01"]["seconds"] == 241.4


def test_the_plan_in_check_mode():
    messages = "\n".join(rebooting(check_mode=True).lines(1, 60))
    assert messages.count("would be rebooted") == 2 and "reboot needed" not in messages


def test_a_host_that_was_not_verified_is_wrong() -> None:
    run = summary(expected={"os": {"node01": ""}, "ssh": {"node01": "", "login01": "no SSH"}})
    assert run.wrong() == {"ssh": ["login01"]}


def test_a_task_that_would_change_a_host_fails() -> None:
    """Except one that only changes the record of a reason to reboot, which has a check."""
    run = summary(expected={"rdma": {"node01": "", "node02": ""}})
    record = "/var/lib/baremetal-mpi-roce/reboot-required.d/rdma.json"
    for host, headers in (("node01", [record]), ("node02", [record, "/etc/fstab"])):
        diffs = [{"before_header": each, "after_header": each} for each in headers]
        run.would_change("rdma", host, "Settle", {"changed": True, "diff": diffs})
    assert run.wrong() == {"rdma": ["node02"]}
    run.would_change("rdma", "node01", "Install", {"changed": True})
    assert run.wrong() == {"rdma": ["node01", "node02"]}
    assert "repair: ansible-playbook site.yml --tags rdma --limit node01,node02" in run.lines(1, 60)


def test_repairs_of_other_hosts_and_manual_steps():
    run = summary(expected={"ssh": {"login01": "", "node01": ""}, "mpi": {"node01": ""}})

    def refused(at: str) -> checks.Check:
        return checks.Check("ssh_login", "reached", "refused", checks.FAILED, at=at)

    step = "remove line 3 of /etc/ucx/ucx.conf"
    manual = checks.Check("mpi_foreign", {}, {}, checks.FAILED, by_hand=step)
    run.add_result("login01", result("ssh", refused("node02")))
    run.add_result("node01", result("ssh", refused("no host of the inventory")))
    run.add_result("node01", result("mpi", manual))
    assert run.repairs() == ({step: ["node01"]}, {"ssh": ["node01", "node02"]})
    assert run.lines(1, 60)[-2:] == [
        f"by hand: node01: {step}",
        "repair: ansible-playbook site.yml --tags ssh --limit node01,node02",
    ]


def test_a_node_that_verified_itself_repairs_itself():
    run = summary(playbook="pull.yml", by_name=True, inventories=("localhost,",))
    command = "ansible-playbook baremetal.mpi_roce.pull -i localhost, --tags mpi"
    assert run.repair("mpi", ["node01"]) == f"{command} -e pull_apply=true"


def test_a_manual_step_replaces_the_repair():
    run = summary(expected={"ssh": {"login01": "", "node01": ""}})
    own = checks.Check("nologin", "no", "yes", checks.FAILED, by_hand="rm /etc/nologin")
    seen = checks.Check("ssh_login", "reached", "closed", checks.FAILED, at="node01")
    run.add_result("login01", result("ssh", seen))
    assert run.repairs() == ({}, {"ssh": ["node01"]})
    run.add_result("node01", result("ssh", own))
    assert run.repairs() == ({"rm /etc/nologin": ["node01"]}, {})


def test_nodes_out_of_service_in_slurm_are_those_that_slurmctld_s_host_lists():
    row = {"nodes": "node[01-02]", "since": "2026-11-29T09:04:59", "by": "root", "reason": "a NIC"}
    run = summary()
    run.add_result("node01", result("slurm", check(checks.OK), out_of_service=[row]))
    assert run.out_of_service == []
    hostile = {"nodes": "\x1b[2Jnode02", "reason": "{{ x }}" + "y" * 5000, "by": 7}
    run.add_result("login01", result("slurm", out_of_service=[row, hostile, "text"]))
    shown = [line for line in run.lines(1, 60) if line.startswith("out of service in Slurm: ")]
    assert shown[0].endswith(": node[01-02]: a NIC (root, 2026-11-29T09:04:59)")
    assert all(line.isprintable() and len(line) < 500 and "{" not in line for line in shown)
    assert run.report("now", 1, 60, False)["out_of_service"][0] == row
    run.add_result("login01", result("slurm", out_of_service=[]))
    assert "out_of_service" not in run.report("now", 1, 60, False)
