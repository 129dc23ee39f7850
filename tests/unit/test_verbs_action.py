# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Controller side of rdma_verify: pairs, the hosts that are used, and their results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import rdma_verify as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import EXCHANGES
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import verify_run
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.rail_pairs import (
    Part,
    alternated,
    parts,
    schedule,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.verify_run import VerifyRun
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.action_plays import ansible
from tests.unit.hostile import spoilt


def play(tmp_path: Path, *words: str) -> dict[str, Any]:
    """Run the layer. No virtual node is running, so any connection would fail."""
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
def test_without_rdma_no_host_is_used(tmp_path: Path) -> None:
    (check,) = checks(play(tmp_path))
    assert check["status"] == "not_applicable"
    assert "mpi_stack_transport is tcp" in check["reason"]


@pytest.mark.slow
def test_a_single_host_is_not_used(tmp_path: Path) -> None:
    found = checks(play(tmp_path, "--limit=node02", "-e", "mpi_stack_transport=rc"))
    assert {check["status"] for check in found} == {"not_applicable"}
    assert {check["reason"] for check in found} == {"no other host of this run has this rail"}
    assert [check["subject"] for check in found] == [f"rail{number}" for number in range(8)]


@pytest.mark.slow
def test_congestion_is_measured_only_on_request(tmp_path: Path) -> None:
    asked = "-e", json.dumps({"rdma_verify_incast": ["leaf", "spine"]})
    found = checks(play(tmp_path, "--limit=node02", "-e", "mpi_stack_transport=rc", *asked))
    assert Counter(check["name"] for check in found) == {"pair": 8, "incast": 16}
    assert {check["status"] for check in found} == {"not_applicable"}


Entry = dict[str, Any]


def entry(number: int, rails: list[int], gbps: int = 0, gpu: bool = False, **more: Any) -> Entry:
    known = {"speed_gbps": gbps, "gpu": 0 if gpu else None} if gbps or gpu else {}
    found = [
        {"interface": f"rail{rail}", "address": f"10.{rail}.0.{number}", **known} for rail in rails
    ]
    name = f"node{number:02d}"
    return {"name": name, "role": "compute", "drained": False, "rails": found, **more}


NAMES = ["node01", "node02", "node03"]
THREE = [entry(number, [0, 1]) for number in (1, 2, 3)]
SERVED = ["early", "late"]


def a_run(hostvars: dict[str, Any], **given: Any) -> VerifyRun:
    planned = {name: part.as_dict() for name, part in parts(THREE, NAMES, 18515).items()}
    plan = {"run_id": "run1", "limit_s": 600, "parts": planned}
    hosts = {name: hostvars.get(name, {}) for name in plan["parts"]}
    return VerifyRun(plan, hosts, SERVED, **given)


class Plugin(action.ActionModule):
    """The action, with a record of the modules that it runs."""

    def __init__(self, *, check_mode: bool = False) -> None:
        self._task = SimpleNamespace(check_mode=check_mode)
        self.sent: list[dict[str, Any]] = []

    def _execute_module(self, _name: str, module_args: dict[str, Any], **_more: Any) -> Any:
        self.sent.append(module_args)
        return {"checks": []}


def step(
    name: str, results: dict[str, Any], here: list[str], *, check_mode: bool = False
) -> list[dict[str, Any]]:
    """Arguments of the modules that a step runs on node01."""
    run = a_run({"node01": results})
    variables = {
        "inventory_hostname": "node01",
        "hostvars": run.hostvars,
        "ansible_play_hosts": here,
    }
    plugin = Plugin(check_mode=check_mode)
    plugin._remote(name, {"plan": run.plan, "served": SERVED}, variables)
    return plugin.sent


def test_lost_peers_are_named() -> None:
    for here, lost in ((["node01", "node02", "node03"], []), (["node01", "node03"], ["node02"])):
        [sent] = step("drive", {}, here)
        assert sent["part"]["lost"] == lost and sent["part"]["run_id"] == "run1"
        assert "plan" not in sent and "served" not in sent


def test_check_mode_measures_nothing() -> None:
    started = {"early": {"ports": [18515]}}
    for name, modules in (("serve", 1), ("drive", 0), ("collect", 0)):
        assert len(step(name, started, ["node01"])) == 1
        assert len(step(name, started, ["node01"], check_mode=True)) == modules, name


def test_the_time_limit_of_servers_includes_every_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"forks": 8})
    directory = [entry(number, [0]) for number in (1, 2, 3)]
    given = {"directory": directory, "duration_s": "60", "time_limit_s": "30"}
    planned = Plugin()._pairs(given, {"ansible_play_batch": NAMES})
    assert planned["limit_s"] == 120 + 5 * (60 + 30 + 10)


@pytest.mark.parametrize(
    ("results", "started"),
    [
        ({"early": {"ports": [18515]}}, True),
        ({"early": {"missing": ["perftest"]}, "late": {"ports": [18515]}}, True),
        ({"early": {"failed": True, "msg": "verbs: ucx_perftest: not installed"}}, False),
        ({"early": {"missing": ["perftest"]}, "late": {"skipped": True}}, False),
        ({}, False),
    ],
)
def test_only_started_servers_are_collected(results: dict[str, Any], started: bool) -> None:
    assert len(step("collect", results, [])) == started


@pytest.mark.parametrize("problems", ["x", ["rail0"], 7, {"rail0": ["x"]}, {7: "x"}])
def test_malformed_problems_of_a_peer_fail_no_other_host(problems: Any) -> None:
    found = a_run({"node02": {"late": {"problems": problems}}}).unserved("node01")
    assert found in ({}, {"node02": {"rail0": ""}}, {"node02": {}})


def test_problems_of_a_peer_are_passed_on_as_plain_text() -> None:
    problems = {"rail0 GPU": "no space\nleft {{ 7 * 7 }}\x1b[2J", "a\nb": "x"}
    results = {"early": {"problems": {}}, "late": {"problems": problems}}
    found = a_run({"node02": results}).unserved("node01")
    assert found == {"node02": {"rail0 GPU": "no space left 7 * 7 [2J"}}
    assert a_run({"node02": {"late": {"skipped": True}}}).unserved("node01") == {}


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


def pairs_of(reported: Any) -> list[Any]:
    pairs = reported if isinstance(reported, list) else [reported]
    hostvars = {"node01": {"driven": {"figures": {"pairs": pairs}}}}
    return a_run(hostvars, driven="driven").pairs("node01")


@given(spoilt(PAIR))
def test_malformed_figures_fail_only_their_pair(reported: Any) -> None:
    found = pairs_of(reported)
    assert len(found) <= 1 and all(pair["host"] == "node01" for pair in found)
    for other in (pairs_of(PAIR), []):
        shown = verify_run.table.lines([*found, *other], "TOS 105")
        assert sum("node01 -> node02" in line for line in shown) == len(found) + len(other)


def test_a_pair_must_be_planned_and_counts_once() -> None:
    assert pairs_of([PAIR, {**PAIR, "device": "mlx5_9"}]) == [PAIR]
    assert pairs_of({**PAIR, "host": "node09"}) == [PAIR]
    assert pairs_of([{**PAIR, "peer": "node03"}, {**PAIR, "rail": ["rail0"]}]) == []
    (odd,) = pairs_of({**PAIR, "line_rate_gbits_s": "fast"})
    assert "invalid form" in odd["problem"]
    assert "FAILED" in verify_run.table.lines([odd], "")[2]


directories = st.lists(
    st.tuples(
        st.sets(st.integers(0, 7), max_size=8), st.booleans(), st.booleans(), st.integers(1, 3)
    ),
    max_size=12,
)


@given(directories)
def test_every_rail_sends_once_and_receives_once(
    drawn: list[tuple[set[int], bool, bool, int]],
) -> None:
    directory = [
        entry(number, sorted(rails), drained=drained, gbps=100 * kind)
        for number, (rails, drained, _here, kind) in enumerate(drawn, 1)
    ]
    here = [one["name"] for one, (_rails, _drained, there, _) in zip(directory, drawn) if there]
    found = parts(directory, here, 18515)
    assert set(found) == set(here)

    able = [one for one in directory if one["name"] in here and not one["drained"]]
    have = Counter(rail["interface"] for one in able for rail in one["rails"])
    wanted = sorted(
        (one["name"], rail["interface"])
        for one in able
        for rail in one["rails"]
        if have[rail["interface"]] >= 2
    )
    drives = [(name, half) for name, part in found.items() for half in part.drives]
    serves = [(name, half) for name, part in found.items() for half in part.serves]
    assert sorted((name, half.rail) for name, half in drives) == wanted
    assert sorted((name, half.rail) for name, half in serves) == wanted

    # The two halves of a pair match each other only.
    there = {(half.peer, half.rail): (name, half) for name, half in serves}
    for name, half in drives:
        assert half.peer != name
        other, mirror = there[name, half.rail]
        assert other == half.peer
        assert (mirror.address, mirror.peer_address) == (half.peer_address, half.address)
        assert mirror.port == half.port
        speeds = [drawn[int(each[4:]) - 1][3] * 100 for each in (name, other)]
        assert half.peer_gbps == (speeds[1] if speeds[1] < speeds[0] else None)

    # Ports of a node are unique, including all exchanges of each pair.
    for part in found.values():
        ports = [half.port + place for half in part.serves for place in range(len(EXCHANGES))]
        assert len(ports) == len(set(ports))

    # Every rail that is not measured is reported.
    for one in directory:
        if one["name"] not in here:
            continue
        part = found[one["name"]]
        if one["drained"] or not one["rails"]:
            assert set(part.alone) == {""}
        else:
            lonely = {r["interface"] for r in one["rails"] if have[r["interface"]] < 2}
            assert set(part.alone) == lonely


leaf_of_each = st.lists(st.sampled_from("abcde"), min_size=2, max_size=14)


def differing(ring: Sequence[Any]) -> int:
    return sum(one != two for one, two in pairwise([*ring, ring[0]]))


def most(groups: Sequence[Any]) -> int:
    return min(len(groups), 2 * (len(groups) - max(Counter(groups).values())))


@given(st.lists(st.sampled_from("abc"), min_size=3, max_size=6))
def test_no_order_has_more_neighbours_on_different_leaves(leaves: list[str]) -> None:
    assert max(map(differing, permutations(leaves))) == most(leaves)


@given(leaf_of_each, st.lists(st.integers(1, 3), min_size=5, max_size=5))
def test_as_many_neighbours_as_possible_differ_in_leaf_and_unit(
    leaves: list[str], units: list[int]
) -> None:
    ring = [{"host": number, "leaf": leaf} for number, leaf in enumerate(leaves)]
    unit_of = dict(zip("abcde", units))
    order = alternated(ring, unit_of)
    assert sorted(node["host"] for node in order) == list(range(len(leaves)))
    for key in (str, unit_of.get):
        assert differing([key(node["leaf"]) for node in order]) == most([*map(key, leaves)])


def on_leaves(number: int, leaves: dict[int, str]) -> Entry:
    own = entry(number, list(leaves))
    for rail, leaf in zip(own["rails"], leaves.values()):
        rail["leaf"] = leaf
    return own


@given(st.lists(st.tuples(leaf_of_each, st.sets(st.integers(0, 13))), min_size=1, max_size=3))
def test_each_rail_alternates_its_own_leaves(drawn: list[tuple[list[str], set[int]]]) -> None:
    """Rails lead to other leaves, and nodes lack some of them."""
    directory = [
        on_leaves(
            number,
            {
                rail: leaves[number]
                for rail, (leaves, lacking) in enumerate(drawn)
                if number < len(leaves) and number not in lacking
            },
        )
        for number in range(14)
    ]
    leaf_of = {
        (one["name"], rail["interface"]): rail["leaf"] for one in directory for rail in one["rails"]
    }
    found = parts(directory, [one["name"] for one in directory], 18515)
    for rail in {name for _host, name in leaf_of}:
        own = [leaf for (_host, name), leaf in leaf_of.items() if name == rail]
        pairs = {
            (host, half.peer)
            for host, part in found.items()
            for half in part.drives
            if half.rail == rail
        }
        crossing = sum(leaf_of[host, rail] != leaf_of[peer, rail] for host, peer in pairs)
        if len(own) > 1:
            assert crossing == most(own)
        if len(own) > 2:
            assert not any((peer, host) in pairs for host, peer in pairs)


def test_the_plan_knows_units_and_cables_of_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action.context, "CLIARGS", {"forks": 8})
    directory = [on_leaves(number, {0: leaf}) for number, leaf in enumerate("abcd")]

    def ports(spine: str) -> list[dict[str, Any]]:
        peers = {"swp1": spine, "swp2": spine}
        return [
            {
                "kind": "uplink",
                "peer_interface": "x",
                "speed_gbps": 800,
                "mtu": 9000,
                "peers": peers,
            }
        ]

    switches = {
        leaf: {"cluster_unit": unit, "cluster_ports": ports("spine")}
        for leaf, unit in zip("abcd", (1, 1, 2, 2))
    }
    switches["spine"] = {"cluster_ports": []}
    variables = {
        "ansible_play_batch": [one["name"] for one in directory],
        "groups": {"leaf": [*"abcd"], "spine": ["spine"]},
        "hostvars": SimpleNamespace(raw_get=switches.get),
    }
    planned = Plugin()._pairs({"directory": directory, "queue_pairs": "1"}, variables)
    peers = {name: part["drives"][0]["peer"] for name, part in planned["parts"].items()}
    assert peers == {"node00": "node02", "node02": "node01", "node01": "node03", "node03": "node00"}
    # Each of 16 directions is one of two ways of one queue pair.
    assert planned["coverage"] == {
        "pairs": 4, "crossing": 4, "queue_pairs": 1, "directions": 16, "expected": 8.0
    }  # fmt: skip


def test_nodes_of_a_leaf_begin_with_different_rails() -> None:
    directory = [entry(number, [0, 1, 2]) for number in range(7)]
    found = parts(directory, [one["name"] for one in directory], 18515)
    first = Counter(part.drives[0].rail for part in found.values())
    assert sorted(first.values()) == [2, 2, 3]
    assert all(len({half.rail for half in part.drives}) == 3 for part in found.values())


def test_nodes_with_equal_rails_measure_each_other() -> None:
    """A few of another kind join the others, so that no two of them are each other's peer."""
    directory = [
        entry(number, [0], gbps=400 if number in (2, 4, 6) else 800) for number in range(9)
    ]
    names = [one["name"] for one in directory]

    def peers(hosts: list[str]) -> dict[str, str]:
        found = parts(directory, hosts, 18515)
        return {name: part.drives[0].peer for name, part in found.items()}

    assert peers(names)["node02"] == "node04"
    assert peers(names)["node06"] == "node02"
    assert peers(names)["node05"] == "node07"
    few = peers([name for name in names if name != "node04"])
    assert (few["node08"], few["node02"], few["node06"]) == ("node02", "node06", "node00")


def test_gpus_are_measured_where_both_ends_have_one() -> None:
    directory = [entry(number, [0], 400, gpu=number % 2 == 0) for number in range(6)]
    found = parts(directory, [one["name"] for one in directory], 18515)
    assert [part.drives[0].gpu for part in found.values()] == [0, None] * 3


def many(count: int) -> dict[str, Part]:
    directory = [entry(number, [0, 1]) for number in range(count)]
    return parts(directory, [one["name"] for one in directory], 18515)


def test_hosts_drive_together_but_two_alone_take_turns() -> None:
    limits = {"at_once": 0, "forks": 32, "exchange_s": 40, "duration_s": 2}
    assert schedule(many(3), **limits).at_once == 32
    assert schedule(many(3), **{**limits, "at_once": 2}).at_once == 2
    assert schedule(many(3), **{**limits, "at_once": 64}).at_once == 32
    assert schedule(many(2), **limits).at_once == 1


def test_hosts_that_are_each_others_peer_on_different_rails_drive_together() -> None:
    directory = [on_leaves(number, {0: "a", 1: leaf}) for number, leaf in enumerate("bbc")]
    found = parts(directory, [one["name"] for one in directory], 18515)
    pairs = {(host, half.peer) for host, part in found.items() for half in part.drives}
    assert all((peer, host) in pairs for host, peer in pairs)
    assert schedule(found, at_once=0, forks=32, exchange_s=40, duration_s=2).at_once == 32


def test_a_single_host_has_no_pairs() -> None:
    directory = [entry(1, [0, 1]), entry(2, [0, 1])]
    found = parts(directory, ["node02"], 18515)
    assert found["node02"].drives == found["node02"].serves == []
    assert found["node02"].alone == {
        "rail0": "no other host of this run has this rail",
        "rail1": "no other host of this run has this rail",
    }


def test_hosts_that_run_no_ranks_take_no_part() -> None:
    directory = [entry(1, [0]), entry(2, [0]), entry(3, [0], role="launcher")]
    assert set(parts(directory, ["node01", "node02", "node03"], 18515)) == {"node01", "node02"}
