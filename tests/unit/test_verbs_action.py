# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The controller's side: which hosts are touched, and what is made of all their answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import rdma_verify as action
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.rail_pairs import parts
from hypothesis import given

from tests.unit.action_plays import ansible
from tests.unit.hostile import spoilt


def play(tmp_path: Path, *words: str) -> dict[str, Any]:
    """The layer as it is; no virtual node is up, so whatever touches a host would fail."""
    words = ("playbooks/verbs.yml", "-i", "inventories/virtual", *words)
    done = ansible("ansible-playbook", *words, BAREMETAL_MPI_ROCE_REPORTS=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = (tmp_path / "virtual").glob("verbs-*.json")
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    assert found["remote_module_executions"]["hosts"] == {}
    return found["layers"]["verbs"]


def checks(layer: dict[str, Any]) -> list[dict[str, Any]]:
    return [check for host in layer["hosts"].values() for check in host["checks"]]


@pytest.mark.slow
def test_where_no_rdma_was_asked_for_one_line_says_so_and_no_host_is_touched(
    tmp_path: Path,
) -> None:
    (check,) = checks(play(tmp_path))
    assert check["status"] == "not_applicable"
    assert check["reason"] == "mpi_stack_transport is tcp: no RDMA was asked for"


@pytest.mark.slow
def test_a_host_alone_has_nothing_to_measure_and_is_not_touched(tmp_path: Path) -> None:
    found = checks(play(tmp_path, "--limit=node02", "-e", "mpi_stack_transport=rc"))
    assert {check["status"] for check in found} == {"not_applicable"}
    assert {check["reason"] for check in found} == {"no other host of this run has this rail"}
    assert [check["subject"] for check in found] == [f"rail{number}" for number in range(8)]


def part() -> dict[str, Any]:
    rails = [
        {"interface": "rail0", "address": "10.0.0.1"},
        {"interface": "rail1", "address": "10.1.0.1"},
    ]
    directory = [
        {"name": name, "role": "compute", "drained": False, "rails": rails}
        for name in ("node01", "node02", "node03")
    ]
    return parts(directory, ["node01", "node02", "node03"], 18515)["node01"].as_dict()


def test_peers_that_dropped_out_since_are_known() -> None:
    assert action._lost(part(), {"ansible_play_hosts": ["node01", "node02", "node03"]}) == []
    assert action._lost(part(), {"ansible_play_hosts": ["node01", "node03"]}) == ["node02"]


def test_rails_that_a_peer_cannot_serve_are_known() -> None:
    hostvars = {
        "node02": {"early": {"problems": {}}, "late": {"problems": {"rail1": "no RDMA device"}}},
        "node03": {},
    }
    names = ["early", "late"]
    assert action._unserved(part(), names, hostvars) == {"node02": {"rail1": "no RDMA device"}}
    assert action._unserved(part(), names, {"node02": {"late": {"skipped": True}}}) == {}


def test_servers_wait_for_exchanges_of_the_asked_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"forks": 8})
    rails = [{"interface": "rail0", "address": "10.0.0.1"}]
    names = ["node01", "node02", "node03"]
    given = {
        "directory": [{"name": name, "role": "compute", "rails": rails} for name in names],
        "transport": "rc",
        "seconds": "60",
        "time_limit_s": "30",
    }
    one = object.__new__(action.ActionModule)
    assert one._pairs(given, {"ansible_play_batch": names})["limit_s"] == 120 + 5 * (60 + 30 + 10)


@pytest.mark.parametrize(
    ("results", "started"),
    [
        ({"early": {"ports": [18515]}}, True),
        ({"early": {"missing": ["perftest"]}, "late": {"ports": [18515]}}, True),
        ({"early": {"failed": True, "msg": "verbs: ucx_perftest: not installed"}}, False),
        ({"early": {"ports": [], "problems": {"rail0": "no RDMA device"}}}, False),
        ({"early": {"missing": ["perftest"]}, "late": {"skipped": True}}, False),
        ({}, False),
    ],
)
def test_where_no_servers_were_started_none_are_collected(
    results: dict[str, Any], started: bool
) -> None:
    plan = {"run_id": "run1", "limit_s": 600, "parts": {"node01": part()}}
    given = {"plan": plan, "served": ["early", "late"]}
    hostvars = {name: {} for name in ("node02", "node03")}
    asked = {"inventory_hostname": "node01", "hostvars": {**hostvars, "node01": results}}
    one = object.__new__(action.ActionModule)
    one._task = SimpleNamespace(check_mode=False)
    ran: list[dict[str, Any]] = []

    def execute(_name: str, module_args: dict[str, Any], **_more: Any) -> dict[str, Any]:
        ran.append(module_args)
        return {"checks": []}

    one._execute_module = execute
    assert one._remote("collect", given, asked)["checks"] == []
    assert len(ran) == started


@pytest.mark.parametrize("problems", ["x", ["rail0"], 7, {"rail0": ["x"]}, {7: "x"}])
def test_a_peer_s_answer_of_another_type_fails_no_other_host(problems: Any) -> None:
    part = {"drives": [{"peer": "node02"}]}
    hostvars = {"node02": {"served": {"problems": problems}}}
    found = action._unserved(part, ["served"], hostvars)
    assert found in ({}, {"node02": {"rail0": ""}}, {"node02": {}})


def test_another_host_gets_words_of_a_peer_and_nothing_else() -> None:
    said = {"rail0 GPU": "no room\nleft {{ 7 * 7 }}\x1b[2J", "a\nb": "x"}
    hostvars = {"node02": {"served": {"problems": said}}}
    found = action._unserved({"drives": [{"peer": "node02"}]}, ["served"], hostvars)
    assert found == {"node02": {"rail0 GPU": "no room left 7 * 7 [2J"}}


PAIR = {
    "rail": "rail0",
    "host": "node01",
    "peer": "node02",
    "device": "mlx5_0",
    "line_rate_gbits_s": 400.0,
    "exchanges": {
        "write_bw": {
            "gbits_s": 390.0,
            "growth": {"out_of_sequence": 3, "rx_prio3_pause": 1},
            "wire": {"out": {"packets": 9, "wrong": 0, "tos_seen": [105]}},
        },
        "write_lat": {"median_us": 2.0, "p99_us": 3.0, "growth": {}, "wire": None},
    },
}
DRIVES = {"drives": [{"rail": "rail0", "peer": "node02"}]}


def pairs_of(said: Any) -> list[Any]:
    pairs = said if isinstance(said, list) else [said]
    return action._pairs_of("node01", DRIVES, {"figures": {"pairs": pairs}})


@given(spoilt(PAIR))
def test_figures_of_another_form_or_of_other_hosts_fail_their_pair_and_no_other(said: Any) -> None:
    found = pairs_of(said)
    assert len(found) <= 1 and all(each["host"] == "node01" for each in found)
    for other in (pairs_of(PAIR), []):
        shown = action.table.lines([*found, *other], "TOS 105")
        assert sum("node01 -> node02" in line for line in shown) == len(found) + len(other)


def test_a_pair_is_one_of_the_plan_and_counted_once() -> None:
    assert pairs_of([PAIR, PAIR]) == [PAIR]
    assert pairs_of({**PAIR, "host": "node09"}) == [PAIR]
    assert pairs_of([{**PAIR, "peer": "node03"}, {**PAIR, "rail": ["rail0"]}]) == []
    (odd,) = pairs_of({**PAIR, "line_rate_gbits_s": "fast"})
    assert "invalid form" in odd["problem"] and "FAILED" in action.table.lines([odd], "")[2]
