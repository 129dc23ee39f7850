# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The summary of a run: every check counted once, every host that needs the operator named."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.module_utils import checks
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.summary import RunSummary


def summary(**fields) -> RunSummary:
    roles = {"login01": "launcher", "node01": "compute", "node02": "compute"}
    return RunSummary(cluster="tiny", roles=roles, **fields)


def result(layer: str, *found: checks.Check, **more) -> dict:
    return {"layer": layer, "checks": checks.as_dicts(found), **more}


def check(status: str, name: str = "mtu", subject: str = "", reason: str = "") -> checks.Check:
    return checks.Check(name, 9000, 9000, status, subject, reason)


def test_the_table_counts_every_status_of_every_layer():
    run = summary()
    for host in ("node01", "node02"):
        run.add_result(host, result("os", check(checks.OK), check(checks.OK, "swap")))
    run.add_result("login01", result("os", check(checks.FAILED)))
    run.add_result("node02", result("rails", check(checks.PENDING), check(checks.OK, "name")))
    assert run.lines(12.34, 60) == [
        "site.yml on tiny: 12.3 s",
        "layer  hosts                  ok  not applicable  failed  pending  reboot",
        "os     2 compute, 1 launcher   4               -       1        -       -",
        "rails  1 of 2 compute          1               -       -        1       -",
    ]


def test_a_check_made_again_replaces_the_earlier_one():
    run = summary()
    run.add_result("node01", result("rails", check(checks.PENDING, subject="rail0")))
    run.add_result("node01", result("rails", check(checks.OK, subject="rail0")))
    run.add_result("node01", result("rails", check(checks.OK, subject="rail1")))
    assert run.counts("rails") == {checks.OK: 2}


def test_not_applicable_is_said_aloud_with_its_reason_and_count():
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


def test_hosts_that_need_the_operator_are_named():
    run = summary(failed={"node02": "Configure the rails"}, unreachable={"login01": "Ping"})
    run.add_result("node01", result("os", check(checks.REBOOT, "cmdline", reason="iommu=pt")))
    lines = run.lines(1, 60)
    assert "failed: node02 (Configure the rails)" in lines
    assert "unreachable: login01" in lines
    assert "reboot needed: node01 (os: iommu=pt)" in lines


def test_remote_executions_are_those_of_the_busiest_compute_node():
    run = summary()
    run.executions.update({"login01": 80, "node01": 12, "node02": 14})
    assert run.busiest() == ("node02", 14)
    assert run.lines(1, 60)[-1] == (
        "remote module executions per compute node: 14 at most (node02), limit 60"
    )
    assert run.lines(1, 13)[-1].endswith("limit 13, OVER THE LIMIT")


def test_a_thousand_failed_hosts_stay_one_line():
    run = summary(failed={f"node{n:04}": "t" for n in range(1000)})
    assert run.lines(1, 60)[-1].endswith("node0011 (t) and 988 more")


def test_what_speaks_for_no_layer_is_left_alone():
    run = summary()
    for other in ({}, {"layer": "os"}, {"layer": 3, "checks": []}, {"layer": "os", "checks": "no"}):
        run.add_result("node01", other)
    assert not run.tells
    run.add_result("node01", {"layer": "os", "checks": [{"name": "x", "status": "odd"}, "text"]})
    assert run.counts("os") == {}


def test_the_report_holds_every_check_and_the_figures():
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
