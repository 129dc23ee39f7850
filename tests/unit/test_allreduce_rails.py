# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every rail is proved whatever the shape of the cluster, and one that carries nothing is found.

The model, the plan made of it, rail-bind and the program of the ranks are the real ones.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_allreduce as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import (
    environment as mpi_environment,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import Plan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.session import (
    Request,
    Session,
)
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_allreduce as module
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    compile_model,
    inventory_of,
    read,
)

from tests.unit.mpi_in_threads import Algorithm, NodesInThreads, doubling, ring

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: shapes
management: {subnet: 10.0.0.0/24}
launcher: {name: launcher01, management: 10.0.0.250}
nodes: {name: "node{:02d}", management_first: 10.0.0.11, %(nodes)s}
gpus: {count: %(gpus)s}
rails: {speed_gbps: 10, %(rails)s}
addresses: {pool: 10.128.0.0/16, %(plan)s}
leaves: {count: %(leaves)s, ports: 64, management_first: 10.0.0.101}
"""
SUBNETS = "plan: subnet_per_rail, prefix: 24"


def shape(nodes: str, gpus: int, rails: str = "", plan: str = SUBNETS, leaves: int = 0) -> str:
    rails = rails or f"count: {gpus}"
    return MODEL % {
        "nodes": nodes,
        "gpus": gpus,
        "rails": rails,
        "plan": plan,
        "leaves": leaves or gpus,
    }


UNEQUAL = "overrides: {node01: {slots: 1}, node02: {slots: 3}}"
SHAPES = {
    **{str(count): shape(f"count: {count}", 8) for count in (2, 3, 5, 6, 7)},
    "planes": shape("count: 3", 2, "count: 2, planes: 2", leaves=4),
    "unequal": shape(f"count: 3, slots: 4, {UNEQUAL}", 4),
    "routed": shape("count: 4, slots: 2", 2, plan="plan: point_to_point"),
    "two routed": shape("count: 2", 2, plan="plan: point_to_point"),
    "drained": shape("count: 4, drained: [node02]", 8),
    "more slots than rails": shape("count: 3, slots: 5", 2),
    "several rails a rank": shape("count: 3, slots: 2", 0, "count: 5", leaves=5),
}
Result = dict[str, Any]


class Cluster:
    """The nodes of a model, and the smoke test on them."""

    def __init__(
        self, model: str, algorithm: Algorithm, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        inventory = inventory_of(compile_model(read("cluster.yml", model)))
        groups = inventory.group_variables
        hosts = {
            host.name: {**groups["all"], **groups["compute"], **host.variables}
            for host in inventory.hosts
            if "compute" in host.groups
        }
        entries = [
            {
                "name": name,
                "slots": said["cluster_slots"],
                "drained": said["cluster_drained"],
                "rails": said["cluster_rails"],
            }
            for name, said in hosts.items()
        ]
        self.nodes = module.nodes_of([action._needed(entry) for entry in entries])
        environments = {
            name: mpi_environment.environment(
                mpi_environment.Settings(
                    "10.0.0.0/24",
                    rails=tuple(mpi_environment.rails_from_model(said["cluster_rails"])),
                    slots=said["cluster_slots"],
                )
            )
            for name, said in hosts.items()
        }
        routed = "point_to_point" in model
        self.threads = NodesInThreads(monkeypatch, environments, algorithm, routed)
        self.hostfile = folder / "hostfile"
        self.hostfile.write_text("".join(f"{n.name} slots={n.slots}\n" for n in self.nodes))

    def test(self, **changes: Any) -> Result:
        plan = Plan(
            self.nodes,
            "tcp",
            max_bytes=1024,
            size_step=1024,
            combinations=1,
            iterations=1,
            **changes,
        )
        request = Request(plan, "mpi", self.hostfile, "run7", "abc", bisect_runs=0)
        threads = self.threads
        return Session(request, threads.ssh, threads.start, lambda _text: None).run()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(name: str, algorithm: Algorithm = doubling) -> Cluster:
        return Cluster(SHAPES.get(name, name), algorithm, tmp_path, monkeypatch)

    return made


def rails_traffic(result: Result) -> list[Result]:
    return [check for check in result["checks"] if check["name"] == "rails_traffic"]


@pytest.mark.parametrize("algorithm", [ring, doubling])
@pytest.mark.parametrize("name", SHAPES)
def test_a_healthy_cluster_passes(cluster: Any, name: str, algorithm: Algorithm) -> None:
    found = cluster(name, algorithm)
    result = found.test()
    assert result["message"] == ""
    assert result["figures"]["ranks"] == sum(node.slots for node in found.nodes)
    for one in result["traffic"]:
        for rail, moved in one["rails"].items():
            if moved["own_bytes"] is not None:
                assert moved["own_bytes"] >= Plan.rail_bytes // 2, (one["node"], rail)


@pytest.mark.parametrize("name", SHAPES)
def test_a_rail_that_is_kept_from_mpi_is_found_by_name(cluster: Any, name: str) -> None:
    """By hand, in the environment file of one node: a rank gets another rail instead."""
    found = cluster(name)
    node = found.nodes[-1]
    kept, other = "rail1", "rail0"
    if name == "planes":
        kept, other = "rail1p1", "rail1p0"
    by_rank = found.threads.environments[node.name]["MPI_ROCE_RAILS_BY_RANK"]
    words = " ".join(
        ",".join(other if rail == kept else rail for rail in word.split(","))
        for word in by_rank.split()
    )
    found.threads.by_hand[node.name] = {"MPI_ROCE_RAILS_BY_RANK": words}
    result = found.test()
    wrong = [check for check in result["checks"] if check["status"] == "failed"]
    assert [check["name"] for check in wrong] == ["rails_traffic"]
    assert wrong[0]["reason"] == f"{node.name}: nothing went over {kept} in its own allreduce"
    assert wrong[0]["reason"] in result["message"]


def test_nothing_but_its_own_allreduce_proves_a_rail(cluster: Any) -> None:
    """What went before, over all ranks, is not counted."""
    result = cluster("3", ring).test()
    sent = {moved["own_bytes"] for one in result["traffic"] for moved in one["rails"].values()}
    assert sent == {int(2 * 2 / 3 * Plan.rail_bytes)}


def test_one_node_alone_has_nothing_to_prove(cluster: Any) -> None:
    result = cluster(shape("count: 1", 8)).test()
    assert result["message"] == ""
    (check,) = rails_traffic(result)
    assert (check["status"], check["reason"]) == (
        "not_applicable",
        "one node alone: nothing leaves it",
    )


def test_a_rail_that_nobody_can_prove_is_not_applicable_by_name(cluster: Any) -> None:
    result = cluster("unequal").test()
    _held, *others = rails_traffic(result)
    assert {(one["status"], one["subject"], one["reason"]) for one in others} == {
        (
            "not_applicable",
            "node01 rail1, node01 rail2, node01 rail3, node02 rail3",
            "given to no rank",
        ),
        ("not_applicable", "node03 rail3", "no other node has a rank of the same number"),
    }
    rails = {one["rail"]: one for one in result["figures"]["rails"]}
    assert [rails[f"rail{k}"]["own_nodes"] for k in range(4)] == [3, 2, 2, 0]
    assert rails["rail3"]["own_bytes"] is None


def test_ranks_that_are_not_bound_prove_no_rail(cluster: Any) -> None:
    result = cluster("3").test(bind_rails=False)
    assert result["message"] == ""
    _held, other = rails_traffic(result)
    assert (other["status"], other["subject"]) == ("not_applicable", "each rail")
    assert "mpi_smoke_bind_rails" in other["reason"]


@pytest.mark.parametrize(
    ("name", "runs"), [("5", 1), ("planes", 3), ("routed", 2), ("several rails a rank", 4)]
)
def test_short_runs_are_added_only_where_a_rank_has_a_choice(
    cluster: Any, name: str, runs: int
) -> None:
    found = cluster(name)
    found.test()
    argvs = found.threads.runs
    assert len(argvs) == runs
    own = [argv[argv.index("--only") + 1] for argv in argvs if "--only" in argv]
    assert own == [str(number) for number in range(runs - 1)]
    assert ["ob1" in argv for argv in argvs] == [False, *[name == "routed"] * (runs - 1)]
    assert all('"sizes":[],' in argv[-1] for argv in argvs[1:])


def test_a_short_run_that_fails_says_which_and_is_looked_into(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cluster("planes")
    start, ssh = found.threads.start, found.threads.ssh
    down: set[str] = set()

    def hang(plan: Plan, *given: Any) -> Any:
        outcome = start(plan, *given)
        if plan.only == 1:
            outcome.records, outcome.timed_out, outcome.rc = [], True, -15
            down.add("node02")
        return outcome

    def asked(argv: Any, **options: Any) -> Any:
        answer = ssh(argv, **options)
        before = down & set(argv) and not options.get("stdin")
        rail = "mpi-ready rail rail0p1 down\n" if before else ""
        return replace(answer, stdout=rail + answer.stdout)

    monkeypatch.setattr(found.threads, "start", hang)
    monkeypatch.setattr(found.threads, "ssh", asked)
    result = found.test()
    wrong = {f"{c['name']} {c['subject']}" for c in result["checks"] if c["status"] == "failed"}
    assert wrong == {"rails_traffic rail 1 of each rank", "ready node02"}
    assert "stopped after 300 s" in result["message"]
    assert "ready node02: wanted 'ready', found 'not' (rail0p1 is down" in result["message"]
