# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Drift: findings, the rules that ignore some, and the history of appearances and repairs."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import resource
import signal
from collections.abc import Iterable
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    OK,
    PENDING,
    Check,
    as_dicts,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.answers import finite
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.drift import (
    findings,
    history,
    report,
    rules,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report.summary import RunSummary
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.action_plays import ROOT
from tests.unit.hostile import JSON, spoilt
from tests.waiting import until

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs/drift.schema.json").read_text(encoding="utf-8"))
)
START = datetime(2026, 11, 1, 4, tzinfo=timezone.utc)
ROLES = {"login01": "launcher", "node01": "compute", "node02": "compute", "leaf01": "leaf"}
FACTS: dict[str, dict[str, Any]] = {
    "node01": {"cluster_rails": [{"interface": "rail2", "pci": "0000:5d:00.0"}]},
    "leaf01": {"cluster_ports": [{"peers": {"Ethernet12": "node01"}}]},
}
RULE = {"check": "rail_mtu", "host": "*", "reason": "old NIC", "until": "2026-11-30"}
GROUPS = {"all": list(ROLES), "compute": ["node01", "node02"], "leaf": ["leaf01"]}


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def summary(*layers: str, **fields: Any) -> RunSummary:
    """A run that verified these layers on all hosts."""
    expected = {layer: dict.fromkeys(ROLES, "") for layer in layers or ("rails",)}
    return RunSummary(
        cluster="tiny",
        inventories=("inv",),
        verifies=True,
        expected=expected,
        **{"roles": ROLES, **fields},
    )


def fail(run: RunSummary, host: str, layer: str, name: str, subject: str = "", **more: str) -> None:
    check = Check(name, 9000, 1500, FAILED, subject, **more)
    run.add_result(host, {"layer": layer, "checks": as_dicts([check])})
    run.expected[layer][host] = "Settle: 1 check failed"


def evaluated(run: RunSummary, folder: Path, at: datetime = START, **options: Any) -> report.Drift:
    drift = report.evaluate(
        run,
        findings.Settings(**options),
        folder,
        at,
        1.0,
        facts=lambda host: FACTS.get(host, {}),
    )
    SCHEMA.validate(json.loads(json.dumps(finite(drift.report))))
    lines = report.lines(drift.report)
    assert all(line.isprintable() and len(line) < 5000 for line in lines) and len(lines) < 600
    return drift


def found(drift: report.Drift) -> list[tuple[Any, ...]]:
    names = ("host", "layer", "check", "subject", "new")
    return [tuple(each[name] for name in names) for each in drift.report["findings"]]


def part(layer: str, *check: str, host: str = "node01", **more: str) -> tuple[str, str, str]:
    run = summary(layer)
    fail(run, host, layer, *check, **more)
    (each,) = findings.findings_of(run, lambda name: FACTS.get(name, {}))
    return each["part"], each["command"], each["by_hand"]


def test_each_finding_names_its_part_and_its_repair() -> None:
    site = "ansible-playbook site.yml -i inv --tags"
    rail = "node01 rail2 (0000:5d:00.0)"
    assert part("rails", "rail_mtu", "rail2") == (rail, f"{site} rails --limit node01", "")
    where = "GPU 3 at 0000:60:00.0 (GPU-b3, serial 1652)"
    assert part("gpu", "gpu_ecc", "gpu3", reason=where)[0] == "node01 gpu3 1652"
    assert part("fabric", "port_mtu", "Ethernet12", host="leaf01")[0] == "leaf01 Ethernet12"
    assert part("os", "sysctl", "vm.x", by_hand="echo 1") == ("node01", "", "echo 1")
    at = part("ssh", "ssh_login", "x", at="node02", by_hand="run y")
    assert at == ("node02", "", "node02 (says node01): run y")
    assert part("ssh", "ssh_login", "x", at="node02")[1] == f"{site} ssh --limit node02"
    assert part("verbs", "write_bw", "rail2", reason="slow") == (rail, "", "slow")


def test_a_link_repeats_no_finding_of_its_ends() -> None:
    run = summary("rails", "links")
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    for aspect, port in (("mtu", "rail2"), ("mtu", "rail3")):
        fail(run, "leaf01", "links", f"link_{aspect}", f"leaf01 Ethernet12 - node01 {port}")
    kept = findings.findings_of(run, lambda name: FACTS.get(name, {}))
    assert [each["subject"] for each in kept] == ["rail2", "leaf01 Ethernet12 - node01 rail3"]


RING = [f"node0{number}" for number in range(1, 5)]


def carried(run: RunSummary, *failed: str, check: str = "rail_peer", **more: str) -> None:
    """Failed packets of the layer ssh, such as `1>2`: from node01 over rail0 of node02."""
    for one, other in (pair.split(">") for pair in failed):
        fail(run, f"node0{one}", "ssh", check, f"node0{one} -> node0{other}-rail0", **more)


@pytest.mark.parametrize(
    ("failed", "broken", "blamed"),
    [
        (["1>2", "2>3"], [], {"1>2": "2", "2>3": "2"}),  # nothing from or to node02
        (["1>2"], [], {"1>2": "12"}),  # node02 reaches node03: either end of this pair
        (["1>2"], ["2"], {"1>2": "2"}),
        (["1>2"], ["1"], {"1>2": "1"}),
        (["1>2"], ["1", "2"], {"1>2": "12"}),
        (["1>2", "2>3", "3>4"], [], {"1>2": "2", "2>3": "23", "3>4": "3"}),
        (["1>2", "2>1"], [], {"1>2": "12", "2>1": "21"}),
        (["4>2", "4>1", "4>3"], [], dict.fromkeys(["4>2", "4>1", "4>3"], "4")),  # its word only
    ],
)
def test_packets_that_a_rail_does_not_carry_are_attributed_to_it(
    failed: list[str], broken: list[str], blamed: dict[str, str]
) -> None:
    run = summary("rails", "ssh", roles=dict.fromkeys(RING, "compute"))
    rails = {"cluster_rails": [{"interface": f"rail{n}", "pci": f"0000:{n}"} for n in (0, 1)]}
    for number in broken:
        fail(run, f"node0{number}", "rails", "rail_mtu", "rail0")
    fail(run, "node03", "rails", "rail_mtu", "rail1")  # another rail is no evidence
    carried(run, *failed)
    carried(run, failed[0], check="ssh_login")
    found = [
        each for each in findings.findings_of(run, lambda _name: rails) if each["layer"] == "ssh"
    ]
    assert len(found) == len(failed) + 1
    for each in found:
        here, there = (name[-1] for name in each["subject"].removesuffix("-rail0").split(" -> "))
        ends = [f"node0{number}" for number in blamed[f"{here}>{there}"]]
        assert each["part"] == " - ".join(f"{end} rail0 (0000:0)" for end in ends)
        limit = ",".join(ends)
        assert each["command"].endswith(f" site.yml -i inv --tags rails --limit {limit}")


def test_other_failures_of_the_layer_ssh_stay_where_they_are() -> None:
    run = summary("ssh", roles=dict.fromkeys(RING, "compute"))
    rails = {"cluster_rails": [{"interface": "rail0", "pci": None}]}
    carried(run, "1>2", check="ssh_login")  # packets pass: its sshd, or the name
    carried(run, "2>3", by_hand="check the cable")
    carried(run, "3>4", at="node04")
    fail(run, "node02", "ssh", "rail_peer", "node02 -> node09-rail0")
    fail(run, "node02", "ssh", "rail_peer", "node01 -> node02-rail0")  # of another host
    found = findings.findings_of(run, lambda _name: rails)
    assert len(found) == 5 and not any("--tags rails" in each["command"] for each in found)
    assert [each["part"] for each in found] == ["node01", "node02", "node02", "node02", "node04"]


def test_only_a_run_that_looked_repairs(tmp_path: Path) -> None:
    run = summary("rails", "os")
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    fail(run, "node01", "rails", "rail_arp", "rail2")
    fail(run, "node02", "os", "sysctl")
    first = evaluated(run, tmp_path)
    assert (first.status, [each[-1] for each in found(first)]) == (2, [True, True, True])

    run = summary("rails", "os", unreachable={"node01": "no SSH"})  # found nothing elsewhere
    drift = evaluated(run, tmp_path, day(1))
    assert (drift.status, drift.report["verdict"], found(drift)) == (4, "incomplete", [])

    run = summary("rails")  # stopped at the first check: the second was not looked at
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    drift = evaluated(run, tmp_path, day(2))
    assert found(drift) == [("node01", "rails", "rail_mtu", "rail2", False)]
    assert drift.report["findings"][0]["since"] == START.isoformat()

    assert evaluated(summary("rails"), tmp_path, day(3)).status == 0
    lines = (tmp_path / history.FILE).read_text(encoding="utf-8").splitlines()
    events = [(each["event"], each.get("check"), each["at"]) for each in map(json.loads, lines)]
    assert [event for event in events if event[0] == "repaired"] == [
        ("repaired", "sysctl", day(1).isoformat()),
        ("repaired", "rail_mtu", day(3).isoformat()),
        ("repaired", "rail_arp", day(3).isoformat()),
    ]


def test_a_part_that_returns_is_an_offender(tmp_path: Path) -> None:
    for number in range(8):  # appears on the days 0, 2, 4, 6
        run = summary()
        if number % 2 == 0:
            for check in ("rail_mtu", "rail_arp"):
                fail(run, "node01", "rails", check, "rail2")
        drift = evaluated(run, tmp_path, day(number), offender_times=3, offender_days=4)
        offenders = drift.report["offenders"]
        assert [each["times"] for each in offenders] == ([3] if number in (4, 6) else [])
    drift = evaluated(summary(), tmp_path, day(7.5))
    assert drift.report["offenders"] == [
        {"part": "node01 rail2 (0000:5d:00.0)", "times": 4, "last": day(6).isoformat()}
    ]


def read(*given: Any, on: Iterable[str] = ROLES) -> list[rules.Rule]:
    value = list(given)
    found, errors = rules.read({host: value if host in on else None for host in ROLES}, GROUPS)
    assert errors == []
    return found


def test_rules_ignore_until_their_day_and_say_when_they_match_nothing(tmp_path: Path) -> None:
    mtu = {**RULE, "subject": "rail[0-3]", "until": date(2026, 12, 20)}
    other = {**RULE, "check": "sysctl", "host": "login01", "until": "2026-12-31"}
    mine = read(mtu, other)
    assert {rule.until for rule in mine} == {"2026-12-20", "2026-12-31"}
    for number, status, unused in ((0, 0, 0), (49.8, 0, 1), (50, 2, 1)):
        run = summary()
        fail(run, "node01", "rails", "rail_mtu", "rail2")
        drift = evaluated(run, tmp_path, day(number), rules=mine)
        (each,) = drift.report["findings"]
        assert (drift.status, len(drift.report["unused"])) == (status, unused), number
        assert bool(each["ignored"]) is (status == 0)
        assert [rule["check"] for rule in drift.report["expired"]] == ["rail_mtu"] * (status // 2)
    run = summary()
    fail(run, "node01", "rails", "rail_mtu", "rail4")
    assert evaluated(run, tmp_path, rules=mine).status == 2
    assert evaluated(summary(), tmp_path, day(60), rules=mine).report["verdict"] == "drift"


def test_a_host_has_the_rules_of_its_own_variables() -> None:
    one, group = read(RULE, {**RULE, "host": "compute"}, on=["node02", "leaf01"])
    covered = [
        [host for host in ROLES if rule.covers(host, "rail_mtu", "x")] for rule in (one, group)
    ]
    assert covered == [["node02", "leaf01"], ["node02"]]
    (every,) = read(RULE)
    assert every.hosts is None and findings.Settings.of(
        json.loads(json.dumps(findings.Settings([every, one]).as_dict()))
    ).rules == [every, rules.Rule(**{**vars(one), "hosts": ["leaf01", "node02"]})]


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({**RULE, "check": "rail mtu"}, "check"),
        ({**RULE, "check": "rial_mtu"}, "check"),
        ({**RULE, "host": "node1"}, "host"),
        ({**RULE, "host": ["node01"]}, "host"),
        ({**RULE, "subject": "x" * 301}, "subject"),
        ({**RULE, "reason": "{{ 7 * 7 }}"}, "reason"),
        ({**RULE, "reason": "\x1b[2J"}, "reason"),
        ({**RULE, "until": "2026-02-30"}, "until"),
        ({**RULE, "until": "1.12.2026"}, "until"),
        ({**RULE, "until": datetime(2026, 1, 1)}, "until"),
        ({key: RULE[key] for key in ("check", "host", "until")}, "reason"),
        ({**RULE, "untill": "2026-01-01"}, "form"),
        ("rail_mtu", "form"),
    ],
)
def test_an_invalid_rule_is_refused(rule: Any, code: str) -> None:
    _found, errors = rules.read({"node01": [RULE, rule], "node02": None}, GROUPS)
    assert [each.code for each in errors] == [f"drift.rule_{code}"]
    assert errors[0].path[:3] == ("node01", "drift_ignore", 1) and errors[0].remedy


@given(JSON | st.lists(spoilt(RULE), max_size=3))
def test_whatever_is_written_as_rules_is_taken_or_refused(value: Any) -> None:
    taken, errors = rules.read(dict.fromkeys(ROLES, value), GROUPS)
    assert taken or errors or value in (None, [])
    assert all(len(error.text()) < 1000 and error.text().isprintable() for error in errors)


KEY = st.tuples(st.sampled_from(["node01", "node02"]), st.sampled_from(["os", "rails"]))
RUNS = st.lists(st.tuples(st.sets(KEY), st.sets(KEY), st.integers(0, 99)), max_size=12)


def taken(events: history.History, number: int, now: set[Any], looked: set[Any]) -> None:
    names = [(host, layer, "file", "") for host, layer in sorted(now)]
    rows = [{**dict(zip(history._KEY, each)), "part": each[0]} for each in names]
    events.take(day(number).isoformat(), rows, lambda key: key[:2] in looked, [])


@given(RUNS)
def test_appearances_and_repairs_of_a_finding_alternate(runs: Any) -> None:
    """Also if the file loses the end of any of its lines between two runs."""
    events, present = history.History(), set[Any]()
    for number, (now, looked, torn) in enumerate(runs):
        taken(events, number, now, looked)
        present = (present - looked) | now
        assert {key[:2] for key in events.open} == present
        text = events.text()
        assert history.History.of(text.splitlines()) == events
        lines = text.splitlines(keepends=True)
        lines[torn % len(lines)] = lines[torn % len(lines)][: torn // 2]
        hurt = history.History.of(lines)
        for one in (events, hurt):
            kinds: dict[history.Key, list[str]] = {}
            for event in one.events:
                if event["event"] != "run":
                    kinds.setdefault(history.key_of(event), []).append(event["event"])
            for key, row in kinds.items():
                assert row == (["found", "repaired"] * len(row))[: len(row)]
                assert (key in one.open) is (row[-1] == "found")


def test_the_history_is_bounded_and_keeps_what_is_not_repaired(tmp_path: Path) -> None:
    path = tmp_path / history.FILE
    path.parent.mkdir()
    events = history.History()
    taken(events, 0, {("node01", "os")}, set())
    for number in range(1, 9000):
        taken(events, number % 300, {("node02", "os")} if number % 2 else set(), {("node02", "os")})
    assert len(events.events) <= history.MOST_LINES
    assert [key[0] for key in history.History.of(events.text().splitlines()).open][:1] == ["node01"]
    lines = [
        "null",
        "{}",
        '{"at": 1}',
        "[" * 5000,
        '{"at": "x", "event": "run"}',
        "x" * 10**6,
        "\0",
    ]
    path.write_text(events.text() + "\n".join(lines), encoding="utf-8")
    run = summary("os")
    checks = [Check("sysctl", 1, 0, FAILED, f"x{number}") for number in range(2000)]
    run.add_result("node02", {"layer": "os", "checks": as_dicts(checks)})
    drift = evaluated(run, tmp_path)
    assert len(drift.report["findings"]) == 2000
    kept = read_history(path)
    assert sum(key[2] == "sysctl" for key in kept.open) == history.MOST_PER_HOST
    assert path.stat().st_mode & 0o777 == 0o640 and not kept.events[-1]["silent"]


def read_history(path: Path) -> history.History:
    return history.History.of(path.read_text(encoding="utf-8").splitlines())


def _often(folder: Path, host: str, runs: int) -> None:
    for number in range(runs):
        with history.changing(folder) as events:
            taken(events, number, {(host, "os")} if number % 2 == 0 else set(), {(host, "os")})


def test_two_runs_lose_nothing_of_each_other_and_a_killed_one_leaves_the_file(
    tmp_path: Path,
) -> None:
    fork = multiprocessing.get_context("fork")
    both = [fork.Process(target=_often, args=(tmp_path, f"node0{n}", 20)) for n in (1, 2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    path = tmp_path / history.FILE
    events = read_history(path).events
    assert len(events) == 2 * (20 + 20) and not any(process.exitcode for process in both)
    killed = fork.Process(target=_often, args=(tmp_path, "node03", 10**6))
    killed.start()
    until(lambda: "node03" in path.read_text(encoding="utf-8"), "a line of node03")
    os.kill(killed.pid or 0, signal.SIGKILL)
    killed.join()
    (path.parent / f".{path.name}.abc").write_text("a killed run may leave it")
    text = path.read_text(encoding="utf-8")
    assert history.History.of(text.splitlines()).text() == text
    _often(tmp_path, "node01", 1)
    assert sorted(each.name for each in path.parent.iterdir()) == ["drift.jsonl", "drift.lock"]


def event(at: str = START.isoformat(), **fields: Any) -> dict[str, Any]:
    key = {"host": "node01", "layer": "rails", "check": "rail_mtu", "subject": "rail2"}
    return {"at": at, "event": "found", **key, "part": "node01", **fields}


HOSTILE = [
    event(part="\x1b[2J"),
    event(part="x" * 9999),
    event(subject="\ud800"),
    event("2026-11-01 04:00"),
    event("20261101"),
    event("0001-01-01T00:00:00+14:00"),
    {"at": START.isoformat(), "event": "run", "findings": 1, "silent": [[[[]]], "\x07", {}]},
    {"at": START.isoformat(), "event": "run", "findings": 1, "silent": "node01"},
]


@given(st.lists(st.sampled_from(HOSTILE) | spoilt(event()), max_size=4), st.binary(max_size=99))
def test_whatever_the_history_holds_is_shown_as_text_in_the_schema(
    tmp_path_factory: pytest.TempPathFactory, given: list[Any], rest: bytes
) -> None:
    folder = tmp_path_factory.mktemp("x")
    path = folder / history.FILE
    path.parent.mkdir()
    path.write_bytes("".join(json.dumps(each) + "\n" for each in given).encode() + rest)
    for number in (1, 2):
        run = summary()
        fail(run, "node01", "rails", "rail_mtu", "rail2")
        drift = evaluated(run, folder, day(number), offender_times=1)
        assert drift.warnings == []
    assert drift.report["findings"][0]["new"] is False
    text = path.read_text(encoding="utf-8")
    assert read_history(path).text() == text
    silent = [name for line in text.splitlines() for name in json.loads(line).get("silent", ())]
    assert all(isinstance(name, str) and name.isprintable() for name in silent)


def test_a_history_of_another_kind_is_replaced_or_refused(tmp_path: Path) -> None:
    """A pipe without a writer, a link to endless bytes, empty lines, a directory."""
    path = tmp_path / history.FILE
    path.parent.mkdir()
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero"), _write_empty_lines):
        path.unlink(missing_ok=True)
        make(path)
        assert evaluated(summary(), tmp_path).warnings == []
        assert path.is_file() and not path.is_symlink() and path.stat().st_size < 999
    path.unlink()
    path.mkdir()
    assert len(evaluated(summary(), tmp_path).warnings) == 1


def _write_empty_lines(path: Path) -> None:
    path.write_bytes(b"\n" * (1 << 20))


def test_a_line_is_never_too_long_to_be_read_again(tmp_path: Path) -> None:
    names = {f"{number:03}{'x' * 250}": "no route" for number in range(2000)}
    evaluated(summary(unreachable=names), tmp_path)
    lines = (tmp_path / history.FILE).read_bytes().splitlines()
    assert len(lines) == 1 and len(lines[0]) < history.MOST_LINE_BYTES
    assert len(read_history(tmp_path / history.FILE).events) == 1


def test_a_clock_that_was_wrong_for_a_run_names_no_rule_and_no_offender(tmp_path: Path) -> None:
    (rule,) = read(RULE)
    future = day(40_000)
    for at in (day(0), future, day(-10_000), future):
        run = summary()
        fail(run, "node01", "rails", "rail_arp", "rail2")
        evaluated(run, tmp_path, at)
        if at != future:
            evaluated(summary(), tmp_path, at)
    drift = evaluated(run, tmp_path, day(1), rules=[rule], offender_times=2)
    assert (drift.report["unused"], drift.report["offenders"]) == ([], [])
    (each,) = drift.report["findings"]
    assert each["since"] == day(1).isoformat()


def test_a_host_that_left_the_inventory_leaves_no_finding(tmp_path: Path) -> None:
    run = summary()
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    evaluated(run, tmp_path)
    others = {host: role for host, role in ROLES.items() if host != "node01"}
    run = summary(roles={**others, "node11": "compute"})
    del run.expected["rails"]["node01"]
    evaluated(run, tmp_path, day(1))
    kept = read_history(tmp_path / history.FILE)
    assert not kept.open and kept.events[-2]["event"] == "repaired"


def test_a_full_disk_costs_the_history_and_metrics_only(tmp_path: Path) -> None:
    run = summary()
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    path = tmp_path / "x/drift.prom"
    first = evaluated(run, tmp_path, textfile=str(path))
    before = (tmp_path / history.FILE).read_bytes(), path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        drift = evaluated(run, tmp_path, day(1), textfile=str(path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (drift.status, len(drift.warnings)) == (first.status, 2)
    assert drift.report["findings"][0]["since"] == START.isoformat()
    assert before == ((tmp_path / history.FILE).read_bytes(), path.read_bytes())
    assert [each.name for each in path.parent.iterdir()] == ["drift.prom"]


def test_metrics_replace_a_link_and_write_through_none(tmp_path: Path) -> None:
    """node_exporter's directory may belong to its user, and drift runs as root."""
    victim, path = tmp_path / "victim", tmp_path / "x/drift.prom"
    victim.write_text("precious")
    path.parent.mkdir()
    path.symlink_to(victim)
    assert evaluated(summary(), tmp_path, textfile=str(path)).warnings == []
    assert victim.read_text() == "precious" and not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o644
    path.parent.chmod(0o777)
    (warning,) = evaluated(summary(), tmp_path, textfile=str(path)).warnings
    assert "chmod o-w" in warning


TARGET = {"cluster", "instance", "job"}
"""Labels that Prometheus adds (plugin_utils/monitoring/targets.py)."""


def test_rules_and_dashboards_read_metrics_and_labels_that_drift_writes(tmp_path: Path) -> None:
    run = summary("rails", "os")
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    path = tmp_path / "drift.prom"
    evaluated(run, tmp_path, textfile=str(path))
    samples = re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", path.read_text(), re.MULTILINE)
    labels = {name: set(re.findall(r'(\w+)="', given)) for name, given, _value in samples}
    assert ("baremetal_drift_findings", 'layer="rails"', "1") in samples
    kinds = re.findall(r"^# TYPE (\w+) gauge$", path.read_text(), re.MULTILINE)
    assert sorted(labels) == sorted(kinds)
    pages = [
        each for end in ("yml", "json") for each in (ROOT / "docs/monitoring").glob(f"*.{end}")
    ]
    read = {each for page in pages for each in _expressions(page) if "baremetal_drift_" in each}
    assert len(read) >= 3
    for each in read:
        names = set(re.findall(r"baremetal_drift_\w+", each))
        assert names <= set(labels), each
        wanted = {word for words in re.findall(r"by \((.*?)\)", each) for word in words.split(", ")}
        wanted |= set(re.findall(r'(\w+) ?[=!]~?"', each))
        assert wanted - TARGET <= set.union(*(labels[name] for name in names)), each


def _expressions(page: Path) -> list[str]:
    """Queries of rules in YAML or of a dashboard in JSON."""
    found: list[str] = []
    todo = [yaml.safe_load(page.read_text(encoding="utf-8"))]
    while todo:
        each = todo.pop()
        if isinstance(each, dict):
            found += [each["expr"]] if "expr" in each else []
            todo += each.values()
        elif isinstance(each, list):
            todo += each
    return found


@pytest.mark.parametrize("subject", ["[z-a]", "[", "[!", "*a" * 150, "?" * 299, "**/..", "\\"])
def test_any_pattern_of_a_rule_ends(subject: str) -> None:
    """In time that grows with the length of the text only, without an error."""
    (rule,) = read({**RULE, "subject": subject})
    assert not rule.covers("node01", "rail_mtu", "a" * 140 + "b" * 160)


def test_a_history_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "history").write_text("")
    run = summary()
    fail(run, "node01", "rails", "rail_mtu", "rail2")
    drift = evaluated(run, tmp_path, textfile=str(tmp_path / "history/x.prom"))
    assert (drift.status, len(drift.warnings), found(drift)[0][-1]) == (2, 2, True)


ANSWER = {
    "layer": "rails",
    "checks": as_dicts(
        [Check("rail_mtu", 9000, 1500, FAILED, "rail2", "<script>", "node02", "rm")]
    ),
}


@settings(max_examples=50)
@given(spoilt(ANSWER) | st.just({**ANSWER, "checks": [*ANSWER["checks"]] * 3}))
def test_whatever_a_host_answers_is_reported_in_the_schema(
    tmp_path_factory: pytest.TempPathFactory, said: Any
) -> None:
    run = summary()
    fail(run, "node02", "rails", "rail_mtu", "rail2")
    checks = [Check("rail_mtu", 9000, 9000, OK), Check("rail_up", 1, 0, PENDING)]
    run.add_result("login01", {"layer": "rails", "checks": as_dicts(checks)})
    if isinstance(said, dict):
        run.add_result("node01", said)
    drift = evaluated(run, tmp_path_factory.mktemp("x"))
    hosts = [each["host"] for each in drift.report["findings"]]
    assert "node02" in hosts and set(hosts) <= {"node01", "node02"}
    assert all(each["part"].split()[0] in ROLES for each in drift.report["findings"])
