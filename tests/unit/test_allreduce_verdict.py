# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A sound run passes every check; each fault fails its own check and names the node."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import Check
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import (
    traffic,
    verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import RunPlan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import LaunchNode
from hypothesis import given
from hypothesis import strategies as st

RAILS = ("rail0", "rail1")
BY_RANK = (("rail0",), ("rail1",))
PLAN = RunPlan(
    tuple(LaunchNode(name, 2, RAILS, by_rank=BY_RANK) for name in ("node01", "node02")), "tcp"
)
VOLUME = 8 << 20
HALF = VOLUME // 2
OWN = PLAN.rail_bytes

BOTH = {"rail0": [HALF, HALF], "rail1": [HALF, HALF]}
RAIL = {"rail0": [OWN, OWN], "rail1": [OWN, OWN], "mgmt0": [90, 70]}
TESTED = [["float32", "SUM", "in_place"], ["int64", "PROD", "out_of_place"]]
OTHER = "node02.example.net"


def record(kind: str, **values: Any) -> dict[str, Any]:
    return {"kind": kind, **values}


SOUND: list[dict[str, Any]] = [
    record("start", ranks=4),
    record("size", bytes=1048576, times_us=[1000.0, 1100.0], tested=TESTED),
    record("host", name="node01", ranks=[0, 1], counters={**BOTH, "mgmt0": [9000, 7000]}),
    record("host", name=OTHER, ranks=[2, 3], counters={**BOTH, "mgmt0": [100, 100]}),
    record("lane", text="ep_cfg[1]: tag(sysv/memory cma/memory)", ranks=[0, 1, 2, 3]),
    record("lane", text="ep_cfg[2]: tag(tcp/rail0)", ranks=[0, 2]),
    record("lane", text="ep_cfg[2]: tag(tcp/rail1)", ranks=[1, 3]),
    record("end", volume_bytes=VOLUME, wrong_results=0, silent_ranks=[]),
    record("rails", name="node01", counters={**RAIL}),
    record("rails", name=OTHER, counters={**RAIL}),
]
START, SIZE, HOST1, HOST2, INSIDE, LANE0, LANE1, END, OWN1, OWN2 = range(10)
Records = list[dict[str, Any]]


def judged(
    change: Callable[[Records], object] = lambda records: None,
    plan: RunPlan = PLAN,
    tolerances: traffic.Tolerances = traffic.Tolerances(),  # noqa: B008, RUF100
) -> dict[str, Any]:
    """Checks by name after `change`; of several checks with a name, the failed one."""
    records = copy.deepcopy(SOUND)
    change(records)
    found: dict[str, Any] = {}
    for check in verdict.judge(plan, records, tolerances):
        if check.name not in found or check.status == "failed":
            found[check.name] = check
    return found


def failed(found: dict[str, Any]) -> set[str]:
    return {name for name, check in found.items() if check.status == "failed"}


def test_a_sound_run_passes_every_check() -> None:
    found = judged()
    assert failed(found) == set()
    names = "world_size placement rank_binding exactness transport rails_traffic rail_retries"
    assert set(found) == {*names.split(), "management_traffic", "threshold"}
    assert found["threshold"].reason == "no threshold set"


def set_(index: int, key: str, value: Any) -> Callable[[Records], object]:
    def change(records: Records) -> None:
        records[index][key] = value

    return change


@pytest.mark.parametrize(
    ("change", "check", "reason"),
    [
        (set_(START, "ranks", 3), "world_size", "ranks are missing"),
        (set_(HOST2, "name", "node09"), "placement", "on node09, which is"),
        (set_(HOST1, "ranks", [0, 2]), "placement", "node01 has ranks [0, 2], not 0 to 1"),
        (set_(LANE0, "text", "ep_cfg[2]: tag(rc_verbs/rail0:1)"), "transport", "rc_verbs/rail0:1"),
        (set_(LANE0, "text", "ep_cfg[2]: tag(tcp/mgmt0)"), "transport", "mgmt0 is not a rail of"),
        (set_(END, "silent_ranks", [3]), "transport", "on ranks [3]"),
        (set_(END, "wrong_results", 2), "exactness", "did not report the errors"),
        (set_(HOST2, "counters", BOTH), "management_traffic", "node02: management"),
        (lambda records: records.pop(OWN2), "rails_traffic", "node02: nothing went over rail0"),
    ],
)
def test_each_fault_fails_its_own_check(
    change: Callable[[Records], object], check: str, reason: str
) -> None:
    found = judged(change)
    # Traffic and rails of a rank follow from its node.
    also = {"transport", "management_traffic"} if check == "placement" else set()
    assert {check} <= failed(found) <= {check} | also
    assert reason in found[check].reason


def test_tcp_instead_of_rc_fails() -> None:
    found = judged(plan=RunPlan(PLAN.nodes, "rc"))
    assert failed(found) == {"transport", "rails_traffic"}
    assert (found["transport"].wanted, found["transport"].found) == ("rc", "tcp")
    assert "node01: no RDMA device counted for rail0" in found["rails_traffic"].reason


DEVICES = (("mlx5_0:1", "rail0"), ("mlx5_1:1", "rail1"), ("mlx5_8:1", "storage0"))
RDMA = RunPlan(tuple(replace(node, devices=DEVICES) for node in PLAN.nodes), "rc")


def counting(records: Records) -> Records:
    """Counters of nodes: in the run, and in the allreduce of each rail."""
    return [records[index] for index in (HOST1, HOST2, OWN1, OWN2)]


def over_rdma(second: str = "mlx5_1:1") -> Callable[[Records], object]:
    """A run over NICs: their ports count, and kernel interfaces do not."""

    def change(records: Records) -> None:
        records[LANE0]["text"] = "x inter-node cfg#2 tag(rc_mlx5/mlx5_0:1)"
        records[LANE1]["text"] = f"x inter-node cfg#2 tag(rc_mlx5/{second})"
        for host in counting(records):
            sent = host["counters"]["rail0"]
            host["counters"].update(rail0=[1000, 900], rail1=[1000, 900])
            host["rdma"] = {
                "mlx5_0:1": {"interface": "rail0", "bytes": sent},
                "mlx5_1:1": {"interface": "rail1", "bytes": [*sent]},
                "mlx5_8:1": {"interface": "storage0", "bytes": [0, 0]},
            }

    return change


SOFT_DEVICES = (("rxe0:1", "rail0"), ("rxe1:1", "rail1"))
SOFT = RunPlan(
    tuple(replace(node, devices=SOFT_DEVICES, software=True) for node in PLAN.nodes), "rc"
)


def over_soft_roce(records: Records) -> None:
    """A run over Soft-RoCE, which counts packets; kernel interfaces count them too."""
    records[LANE0]["text"] = "  ep_cfg[2]: tag(rc_verbs/rxe0:1)"
    records[LANE1]["text"] = "  ep_cfg[2]: tag(rc_verbs/rxe1:1)"
    for host in counting(records):
        packets = host["counters"]["rail0"][0] // 1024
        host["rdma"] = {
            f"rxe{k}:1": {
                "interface": f"rail{k}",
                "packets": [packets, packets],
                "interface_packets": [packets + 12, packets + 9],
            }
            for k in (0, 1)
        }


def then(
    first: Callable[[Records], object], second: Callable[[Records], object]
) -> Callable[[Records], object]:
    def change(records: Records) -> None:
        first(records)
        second(records)

    return change


def test_rc_over_another_device_or_by_verbs_on_an_nvidia_nic_fails() -> None:
    found = judged(over_rdma("mlx5_8:1"), plan=RDMA)
    assert failed(found) == {"transport"}
    assert found["transport"].reason == "mlx5_8:1 (storage0) is not a rail of ranks [1, 3]"
    hardware = replace(SOFT, nodes=tuple(replace(node, software=False) for node in SOFT.nodes))
    assert failed(judged(over_soft_roce, plan=SOFT)) == set()
    found = judged(over_soft_roce, plan=hardware)
    assert "transport" in failed(found)
    assert found["transport"].reason.startswith("rc_verbs/rxe0:1 on ranks")


def test_rdma_bytes_of_other_devices_count_elsewhere() -> None:
    def change(records: Records) -> None:
        over_rdma()(records)
        records[HOST1]["rdma"]["mlx5_8:1"]["bytes"] = [2 * VOLUME, 2 * VOLUME]

    found = judged(change, plan=RDMA)
    assert failed(found) == {"management_traffic"}
    assert "node01 mlx5_8:1 (storage0): 16 MiB" in found["management_traffic"].reason


def test_with_rc_bytes_of_interfaces_do_not_count() -> None:
    """All traffic used TCP, in spite of UCX's report."""

    def change(records: Records) -> None:
        for host in counting(records):
            host["counters"].update(rail0=[HALF, HALF], rail1=[HALF, HALF])
            for counted in host["rdma"].values():
                counted["bytes"] = [0, 0]

    found = judged(then(over_rdma(), change), plan=RDMA)
    assert failed(found) == {"rails_traffic", "rails_tcp"}
    assert "node01 sent 0 B over its rails" in found["rails_traffic"].reason
    assert "node01 rail0: 4 MiB" in found["rails_tcp"].reason


@pytest.mark.parametrize("packets", [(0, 4096), (10, 20)])
def test_tcp_over_a_soft_roce_rail_is_seen(packets: tuple[int, int]) -> None:
    """Packets of Soft-RoCE pass through the interface too, so its bytes prove nothing.

    TCP may send many packets, or few large ones with segmentation offload.
    """
    own, every = packets

    def change(records: Records) -> None:
        for host in counting(records):
            counted = host["rdma"]["rxe1:1"]
            counted.update(packets=[own, own], interface_packets=[every, every])

    found = judged(then(over_soft_roce, change), plan=SOFT)
    assert failed(found) == {"rails_traffic", "rails_tcp"}
    assert "node02 rail1: " in found["rails_tcp"].reason
    assert "went over rail1" in found["rails_traffic"].reason


def test_each_rail_is_reported_beside_its_line_rate() -> None:
    # That of the slowest node.
    nodes = tuple(
        replace(node, speeds=(speed, 400.0)) for node, speed in zip(RDMA.nodes, (400.0, 800.0))
    )
    records = copy.deepcopy(SOUND)
    over_rdma()(records)
    records[HOST2]["rdma"]["mlx5_0:1"]["bytes"] = [HALF // 2, 2 * HALF]
    records[OWN2]["rdma"]["mlx5_0:1"]["bytes"] = [OWN // 2, 2 * OWN]
    records[END]["window_s"] = 0.5
    found = traffic.by_rail(RunPlan(nodes, "rc"), records)
    assert [one["rail"] for one in found] == ["rail0", "rail1"]
    assert found[0] == {
        "rail": "rail0",
        "nodes": 2,
        "sent_bytes": HALF // 2,
        "own_bytes": OWN // 2,
        "own_nodes": 2,
        "tcp_bytes": 1000,
        "gbps": round(HALF // 2 * 8 / 0.5 / 1e9, 6),
        "speed_gbps": 400.0,
    }
    assert traffic.least_sent(RunPlan(nodes, "rc"), records) == HALF // 2 + HALF
    plain = traffic.by_rail(PLAN, SOUND)
    assert (plain[0]["tcp_bytes"], plain[0]["gbps"], plain[0]["speed_gbps"]) == (None, None, None)


def test_no_endpoint_between_the_nodes_is_a_failure() -> None:
    def change(records: Records) -> None:
        del records[LANE0 : LANE1 + 1]

    assert "node01 reported no endpoint between nodes" in judged(change)["transport"].reason
    # One rank of each node is enough: endpoints are created at first use.
    assert failed(judged(set_(LANE1, "ranks", [3]))) == set()
    found = judged(lambda records: (records[LANE0].update(ranks=[0]), records.pop(LANE1)))
    assert found["transport"].reason == "node02 reported no endpoint between nodes"


def test_a_wrong_result_names_rank_host_and_place() -> None:
    where = {"rank": 3, "host": "node02", "type": "int64", "operation": "PROD"}
    what = {"placement": "in_place", "bytes": 64, "elements": 2, "first": 5}
    wrong = record("wrong", **where, **what, wanted="8", found="4")

    def change(records: Records) -> None:
        records[END].update(wrong_results=1)
        records.insert(SIZE, wrong)

    found = judged(change)
    assert failed(found) == {"exactness"}
    assert found["exactness"].subject == "int64 PROD"
    assert "rank 3 on node02" in found["exactness"].reason
    assert "first at 5: wanted 8, found 4" in found["exactness"].reason


def test_bytes_on_management_fail_both_checks() -> None:
    def change(records: Records) -> None:
        for index in (HOST1, HOST2):
            over(records, index, rail0=0, rail1=0, mgmt0=VOLUME)

    found = judged(change)
    assert failed(found) == {"rails_traffic", "management_traffic"}
    assert "node01 mgmt0: 8 MiB" in found["management_traffic"].reason


def over(records: Records, index: int, **sent: int) -> None:
    records[index]["counters"].update({rail: [count, count] for rail, count in sent.items()})


def test_a_rail_is_proved_by_its_own_allreduce() -> None:
    """Traffic of all ranks over a rail proves nothing, because algorithms differ."""

    def folded(records: Records) -> None:
        over(records, HOST2, rail0=VOLUME, rail1=0)

    def kept(records: Records) -> None:
        over(records, OWN2, rail0=2 * OWN, rail1=OWN // 2 - 1)

    assert failed(judged(folded)) == set()
    found = judged(kept)
    assert failed(found) == {"rails_traffic"}
    reason = "node02: 128 KiB of 256 KiB went over rail1 in its own allreduce"
    assert found["rails_traffic"].reason == reason
    assert failed(judged(lambda records: over(records, OWN2, rail1=OWN // 2))) == set()
    unbound = RunPlan(PLAN.nodes, "tcp", bind_rails=False)
    assert failed(judged(kept, plan=unbound)) == set()


def test_a_threshold_is_kept_or_not() -> None:
    best = 1048576 / 1050 / 1000 * 2 * 3 / 4
    kept = judged(tolerances=traffic.Tolerances(min_busbw_gbytes_s=best - 0.01))
    assert kept["threshold"].status == "ok"
    missed = judged(tolerances=traffic.Tolerances(min_busbw_gbytes_s=best + 0.01))
    assert failed(missed) == {"threshold"}
    assert missed["threshold"].found == round(best, 9)


def test_one_node_alone_has_nothing_to_show() -> None:
    def change(records: Records) -> None:
        records[START]["ranks"] = 2
        del records[HOST2]

    found = judged(change, plan=RunPlan(PLAN.nodes[:1], "tcp"))
    assert found["transport"].status == "not_applicable"
    assert found["rails_traffic"].status == "not_applicable"
    assert failed(found) == set()


def test_unprovable_rails_are_not_applicable() -> None:
    nodes = (replace(PLAN.nodes[0], slots=1, by_rank=BY_RANK[:1]), PLAN.nodes[1])
    _held, *others = traffic.rails_traffic(RunPlan(nodes, "tcp"), SOUND)
    assert [(check.status, check.subject, check.reason) for check in others] == [
        ("not_applicable", "node01 rail1", "assigned to no rank"),
        ("not_applicable", "node02 rail1", "no other node has a rank of the same number"),
    ]
    _held, other = traffic.rails_traffic(replace(PLAN, bind_rails=False), SOUND)
    assert (other.status, other.subject) == ("not_applicable", "each rail")


def test_a_rankfile_may_change_placement_only() -> None:
    def change(records: Records) -> None:
        records[HOST1]["ranks"], records[HOST2]["ranks"] = [0, 2], [1, 3]
        records[LANE0]["ranks"], records[LANE1]["ranks"] = [0, 1], [2, 3]

    plan = RunPlan(PLAN.nodes, "tcp", rankfile="/etc/rankfile")
    assert failed(judged(change, plan=plan)) == set()
    fewer = then(change, lambda records: records[HOST2].update(ranks=[1], cpus=["1"]))
    assert "placement" in failed(judged(fewer, plan=plan))


TOPOLOGY = {
    "numa": {"0": "0-55,112-167", "1": "56-111,168-223"},
    "allowed": "0-223",
    "gpus": [0, 1],
    "interfaces": {"rail0": 0, "rail1": 1},
    "container": False,
}
NUMA = replace(PLAN, nodes=tuple(replace(node, numa=(0, 1), gpus=2) for node in PLAN.nodes))


def bindings(plan: RunPlan, cpus: tuple[str, ...], **changes: Any) -> list[Any]:
    """Checks if node02 is correct, and node01 has these CPUs and changes."""
    records = copy.deepcopy(SOUND)
    records[HOST1].update(cpus=list(cpus), topology={**TOPOLOGY, **changes})
    records[HOST2].update(cpus=["0-55,112-167", "56-111,168-223"], topology=TOPOLOGY)
    return verdict.rank_binding(plan, records)


RIGHT = ("0-27,112-139", "60-111,172-223")
UNKNOWN = {"gpus": [], "interfaces": {"rail0": -1}}


@pytest.mark.parametrize(
    ("cpus", "changes", "wrong"),
    [
        (RIGHT, {}, ()),
        (("0-223", RIGHT[1]), {}, ("rank 0, GPU 0", "on CPUs 0-223", "0-55,112-167")),
        ((RIGHT[0], "0-13"), {}, ("rank 1, GPU 1", "on CPUs 0-13", "56-111,168-223")),
        (("0", RIGHT[1]), {}, ("rank 0, GPU 0", "on CPUs 0", "wanted 112 of 0-55,112-167")),
        (("0-3", RIGHT[1]), {"allowed": "0-3,56-111,168-223"}, ()),
        (RIGHT, {"numa": {"0": "0-223"}}, ("rank 1, GPU 1", "no NUMA node 1")),
        (("0-9,99999999999", RIGHT[1]), {}, ("cannot be parsed",)),
        (RIGHT, {"numa": None}, ("cannot be parsed",)),
    ],
)
def test_misbound_ranks_are_reported(
    cpus: tuple[str, ...], changes: dict[str, Any], wrong: tuple[str, ...]
) -> None:
    *failed, held = bindings(NUMA, cpus, **changes)
    assert (held.status, held.found) == (
        "ok",
        f"as expected on {1 if wrong else 2} node{'' if wrong else 's'}",
    )
    assert [(one.status, one.subject, one.at) for one in failed] == (
        [("failed", "node01", "node01")] if wrong else []
    )
    assert all(word in failed[0].reason for word in wrong)


def test_the_node_supplies_unknown_numa_nodes() -> None:
    by_node = replace(PLAN, nodes=tuple(replace(node, gpus=2) for node in PLAN.nodes))
    for changes in ({}, {"gpus": []}):
        [wrong, _held] = bindings(by_node, ("56", RIGHT[1]), **changes)
        assert "rank 0, GPU 0: on CPUs 56" in wrong.reason
    [_held, open_] = bindings(by_node, ("56", "0"), **UNKNOWN)
    assert (open_.status, open_.subject) == ("not_applicable", "node01")
    [_held, container] = bindings(NUMA, ("0-1", "0-1"), container=True)
    assert (container.status, container.subject) == ("not_applicable", "node01")
    swapped = replace(NUMA, nodes=tuple(replace(node, numa=(1, 0)) for node in NUMA.nodes))
    other, _other = bindings(swapped, RIGHT)
    assert (other.status, other.found) == ("failed", "2 not"), "model first"
    [unbound] = bindings(replace(NUMA, bind_rails=False), ("0", "0"))
    assert unbound.status == "not_applicable"


def test_two_ranks_share_a_gpu() -> None:
    nodes = tuple(replace(node, slots=4, numa=(0, 1), gpus=2) for node in PLAN.nodes)
    records = copy.deepcopy(SOUND)
    cpus = ["0-27", "56-83", "28-55,112", "0-27"]
    records[HOST1].update(ranks=[0, 1, 2, 3], cpus=cpus, topology=TOPOLOGY)
    records[HOST2].update(topology={**TOPOLOGY, "container": True})
    wrong, _other = verdict.rank_binding(replace(PLAN, nodes=nodes), records)
    assert wrong.found == "1 not"
    assert "rank 3, GPU 1: on CPUs 0-27, wanted 56 of 56-111,168-223" in wrong.reason


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ep_cfg[0]: tag(self/memory0 cma/memory)", ""),
        ("ep_cfg[2]: tag(tcp/rail1 tcp/rail0)", "tcp/rail1 tcp/rail0"),
        ("ep_cfg[1]: tag(rc_verbs/rxe0:1 rc_verbs/rxe1:1);", "rc_verbs/rxe0:1 rc_verbs/rxe1:1"),
        # Recorded from UCX 1.13.1 over Soft-RoCE, with ranks that have both rails.
        ("ep_cfg[0]: tag(self/memory0 cma/memory rc_verbs/rxe0:1)", ""),
        # As 1.18 and later print it: several uses, and a keepalive lane.
        ("x inter-node cfg#2 tag(rc_verbs/rxe1:1) ka(ud_verbs/rxe1:1)", "rc_verbs/rxe1:1"),
        ("x inter-node cfg#5 tag(rc_mlx5/a:1) am(ud_mlx5/b:1)", "rc_mlx5/a:1 ud_mlx5/b:1"),
        ("ucp_context_0 self cfg#0 tag(self/memory cma/memory)", ""),
        ("ucp_context_0 intra-node cfg#4 tag(sysv/memory cma/memory rc_mlx5/mlx5_3:1)", ""),
        ("x inter-node cfg#3 tag(tcp/rail0) rma(tcp/rail1)", "tcp/rail0 tcp/rail1"),
    ],
)
def test_lanes_that_leave_the_node(text: str, wanted: str) -> None:
    assert " ".join(map("/".join, verdict.lanes_between_nodes(text))) == wanted


def test_rc_includes_its_drivers() -> None:
    names = ("rc", "rc_mlx5", "rc_verbs", "tcp", "ud_verbs", "dc_mlx5", "rcx")
    assert [verdict.is_transport(name, "rc") for name in names] == [True] * 3 + [False] * 4


# Figures.


def test_figures_in_the_terms_of_the_field() -> None:
    found = verdict.figure(1 << 20, [1000.0, 900.0, 1100.0, 5000.0], 32)
    assert found["min_us"] == 900.0
    assert found["median_us"] == 1050.0
    assert found["p99_us"] == 5000.0
    assert found["iterations"] == 4
    assert verdict.figure(4, [1.0], 1)["busbw_gbytes_s"] == 0, "single rank"
    assert found["algbw_gbytes_s"] == round(1048576 / 1050 / 1000, 9)
    assert found["busbw_gbytes_s"] == round(1048576 / 1050 / 1000 * 2 * 31 / 32, 9)


@given(st.lists(st.floats(0.01, 1e7), min_size=1, max_size=300))
def test_quantiles_are_measured_and_ordered(times: list[float]) -> None:
    found = verdict.figure(4, times, 2)
    assert found["min_us"] == min(times)
    assert found["p99_us"] in times
    assert found["min_us"] <= found["p99_us"] <= max(times)
    if len(times) < 100:
        assert found["p99_us"] == max(times)


def retries(of_node: dict[str, tuple[int, int]], plan: RunPlan, rdma: bool = False) -> list[Check]:
    """Checks if each node counted these retries among these packets on rail1."""
    records: Records = []
    for name, (again, sent) in of_node.items():
        host: dict[str, Any] = {"kind": "host", "name": name, "ranks": [0], "counters": {}}
        if rdma:
            device = {"interface": "rail1", "retries": [sent, again, 0, 0, 0, 0]}
            host["rdma"] = {"mlx5_1:1": device}
        else:
            host["resent"] = {"rail0": [0, 900], "rail1": [again, sent]}
        records.append(host)
    return traffic.rail_retries(plan, records, traffic.Tolerances())


THREE = replace(PLAN, nodes=tuple(replace(PLAN.nodes[0], name=f"node0{n}") for n in (1, 2, 3)))


def test_only_the_rail_that_loses_packets_is_named() -> None:
    found = retries({"node01": (17, 1300), "node02": (33, 1306), "node03": (16, 1300)}, THREE)
    assert [(check.subject, check.at, check.status) for check in found] == [
        ("node02 rail1", "node02", "failed")
    ]
    assert found[0].found == "2.53%"
    both = retries({"node01": (33, 1306), "node02": (33, 1306)}, PLAN)
    assert [check.at for check in both] == ["node01", "node02"], "two ends alike"


@pytest.mark.parametrize("counted", [(9, 100), (12, 1300), (0, 0)])
def test_a_hiccup_is_no_loss(counted: tuple[int, int]) -> None:
    found = retries({"node01": (0, 1300), "node02": counted}, PLAN)
    assert [check.status for check in found] == ["ok"]


def test_a_device_that_retries_is_named() -> None:
    plan = replace(THREE, transport="rc")
    counts = {"node01": (0, 10**6), "node02": (40, 10**6), "node03": (10, 10**7)}
    (check,) = retries(counts, plan, rdma=True)
    assert (check.subject, check.status) == ("node02 rail1", "failed")
    assert check.reason.startswith("out_of_sequence 40 of 1000000 packets")
    soft = replace(plan, nodes=tuple(replace(node, software=True) for node in plan.nodes))
    assert [one.status for one in retries(counts, soft, rdma=True)] == ["not_applicable"]
