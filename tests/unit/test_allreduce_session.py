# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The complete smoke test, over a fake cluster with faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.launch import (
    RunResult,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import RunPlan
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.session import (
    Session,
    SmokeTest,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import readiness
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    OPEN_MPI,
    Srun,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import LaunchNode

NAMES = [f"node{number:02d}" for number in range(1, 9)]
RAILS = ("rail0", "rail1")


class Cluster:
    """Fake ssh and mpirun. `fails` selects the nodes on which a run fails, and how."""

    def __init__(self) -> None:
        self.fails: Callable[[set[str]], str] = lambda names: ""
        self.silent: set[str] = set()
        self.sha256 = "abc"
        self.slurm: dict[str, str] = {}
        """State of nodes that are not idle."""
        self.slurm_refuses = ""
        self.left_behind = 0
        self.runs: list[tuple[str, list[str]]] = []
        self.now = 0.0

    def ssh(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        host = next((name for name in NAMES if name in argv), "")
        if host in self.silent:
            return Result(tuple(argv), 255, "", "Host key verification failed.")
        # For READY and SWEEP: each parser reads its own lines.
        if "scontrol" in argv[-1]:
            states = (f"NodeName={name} State={self.slurm.get(name, 'IDLE')}\n" for name in NAMES)
            return Result(tuple(argv), 0, "".join(states), "")
        if "--test-only" in argv[-1] and self.slurm_refuses:
            return Result(tuple(argv), 1, "", self.slurm_refuses)
        killed = self.left_behind if host else 0
        lines = [f"program {self.sha256}", "daemon yes", "end", f"killed {killed} left 0"]
        return Result(tuple(argv), 0, "".join(f"mpi-ready {line}\n" for line in lines), "")

    def start(
        self,
        plan: RunPlan,
        hostfile: Path,
        run_id: str,
        limit_s: float,
        *,
        progress: Any = lambda record: None,
        lost: Callable[[], bool] = lambda: False,
    ) -> RunResult:
        names = [node.name for node in plan.nodes]
        assert [line.split()[0] for line in hostfile.read_text().splitlines()] == names
        self.runs.append((run_id, names))
        self.now += 1
        how = self.fails(set(names))
        if how == "hang":
            if lost():
                self.now += 12
                return RunResult(-15, True, 12.0, [], "")
            self.now += limit_s
            return RunResult(-15, True, limit_s, [], "")
        if how == "queued":
            return RunResult(1, False, 60.0, [], "salloc: Pending job allocation 7\n")
        if how == "crash":
            printed = "mpirun noticed that process rank 5 on node node03 exited on signal 11"
            return RunResult(139, False, 1.0, [], printed)
        records = self.records(plan, wrong=how == "wrong")
        for record in records:
            progress(record)
        return RunResult(0, False, 1.0, records, "")

    @staticmethod
    def records(plan: RunPlan, wrong: bool) -> list[dict[str, Any]]:
        tested = [["float32", "SUM", "in_place"]]
        size = {"kind": "size", "times_us": [50.0], "tested": tested}
        found: list[dict[str, Any]] = [{"kind": "start", "ranks": plan.ranks}]
        found += [{**size, "bytes": each} for each in plan.sizes]
        counters = {rail: [1 << 30, 1 << 30] for rail in RAILS} | {"mgmt0": [100, 100]}
        for place, node in enumerate(plan.nodes):
            ranks = [2 * place, 2 * place + 1]
            found.append({"kind": "host", "name": node.name, "ranks": ranks, "counters": counters})
        every = list(range(plan.ranks))
        found.append({"kind": "lane", "text": "ep_cfg[2]: tag(tcp/rail0)", "ranks": every})
        if wrong:
            what = {"type": "float32", "operation": "SUM", "placement": "in_place", "bytes": 4}
            result = {"elements": 1, "first": 0, "wanted": "1", "found": "2"}
            place = {"kind": "wrong", "rank": 1, "host": plan.nodes[0].name}
            found.append({**place, **what, **result})
        end = {"volume_bytes": 1 << 20, "wrong_results": int(wrong), "silent_ranks": []}
        return [*found, {"kind": "end", **end}]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def play(cluster: Cluster, tmp_path: Path, **changes: Any) -> tuple[dict[str, Any], list[str]]:
    hostfile = tmp_path / "hostfile"
    listed = changes.pop("listed", NAMES)
    hostfile.write_text("".join(f"{name} slots=2\n" for name in listed))
    nodes = tuple(LaunchNode(name, 2, RAILS) for name in NAMES)
    launcher = changes.pop("launcher", OPEN_MPI)
    plan = RunPlan(nodes, "tcp", max_bytes=1 << 16, launcher=launcher)
    request = SmokeTest(plan, "root", hostfile, "run7", "abc", **changes)
    shown: list[str] = []
    session = Session(request, cluster.ssh, cluster.start, shown.append, lambda: cluster.now)
    return session.run(), shown


def by_name(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for check in result["checks"]:
        if check["name"] not in found or check["status"] == "failed":
            found[check["name"]] = check
    return found


def test_a_sound_cluster(cluster: Cluster, tmp_path: Path) -> None:
    result, shown = play(cluster, tmp_path)
    checks = by_name(result)
    assert result["message"] == ""
    assert not [check for check in result["checks"] if check["status"] == "failed"]
    assert {"world_size", "exactness", "threshold", "no_orphans"} <= set(checks)
    assert len(cluster.runs) == 1
    assert result["figures"]["ranks"] == 16
    assert len(result["figures"]["by_size"]) == len(result["traffic"]) == 8
    assert any("sizes" in line for line in shown)
    assert result["command"].startswith("mpirun ")


def test_a_launcher_with_low_limits_starts_nothing(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "DEFAULT_LIMIT", 0)
    ssh = cluster.ssh

    def limited(argv: Sequence[str], **options: Any) -> Result:
        if argv[0] == "systemd-run":
            return Result(tuple(argv), 0, "mpi-ready files 100\n", "")
        return ssh(argv, **options)

    monkeypatch.setattr(cluster, "ssh", limited)
    result, _shown = play(cluster, tmp_path)
    (check,) = result["checks"]
    assert (check["name"], check["subject"], check["status"]) == (
        "launcher_limits",
        "files",
        "failed",
    )
    assert (check["wanted"], check["found"]) == (256 + len(NAMES), 100)
    assert not cluster.runs


def test_slurm_starts_what_it_offers(cluster: Cluster, tmp_path: Path) -> None:
    result, _shown = play(cluster, tmp_path, launcher=Srun())
    assert result["message"] == "" and result["command"].startswith("salloc ")
    cluster.slurm = {"node03": "IDLE+DRAIN"}
    result, _shown = play(cluster, tmp_path, launcher=Srun())
    check = by_name(result)["ready"]
    assert (check["status"], check["subject"]) == ("failed", "node03")
    cluster.slurm, cluster.slurm_refuses = {}, "srun: error: Invalid MPI type 'pmix'"
    result, _shown = play(cluster, tmp_path, launcher=Srun())
    check = by_name(result)["ready"]
    assert (check["status"], check["subject"]) == ("failed", "Slurm")
    assert check["reason"] == cluster.slurm_refuses.replace("error: ", "")
    assert len(cluster.runs) == 1


def test_a_run_that_waited_in_slurms_queue_needs_no_search(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.fails = lambda _names: "queued"
    result, _shown = play(cluster, tmp_path, launcher=Srun())
    assert by_name(result)["finished"]["status"] == "failed" and len(cluster.runs) == 1
    told = Srun().scheduler_reason("salloc: Pending job allocation 7\n")
    assert told and by_name(result)["finished"]["reason"].endswith(told)


def test_nodes_that_the_test_leaves_out_are_named(cluster: Cluster, tmp_path: Path) -> None:
    result, _shown = play(cluster, tmp_path, without_rails=("cpu01", "cpu02"))
    (check,) = [check for check in result["checks"] if check["status"] == "not_applicable"][:1]
    assert (check["name"], check["subject"]) == ("ready", "cpu01, cpu02")
    assert result["message"] == "" and result["figures"]["ranks"] == 16


def test_remaining_processes_are_killed_and_counted(cluster: Cluster, tmp_path: Path) -> None:
    cluster.left_behind = 2
    check = by_name(play(cluster, tmp_path)[0])["no_orphans"]
    assert (check["status"], check["reason"].partition(":")[0]) == ("ok", "16 killed")


def test_an_unready_node_replaces_the_search(cluster: Cluster, tmp_path: Path) -> None:
    def fails(_names: set[str]) -> str:
        cluster.silent = {"node05"}
        return "hang"

    cluster.fails = fails
    result, shown = play(cluster, tmp_path)
    assert any(line.startswith("allreduce: node05 no longer answers") for line in shown)
    assert cluster.now < 60, "full time limit"
    assert "12 s: node05" in result["message"]
    assert by_name(result)["ready"]["subject"] == "node05"
    assert "ready node05: " in result["message"]
    assert by_name(result)["no_orphans"]["status"] == "failed"
    assert result["culprit"] is None
    assert len(cluster.runs) == 1


@pytest.mark.parametrize("how", ["hang", "crash", "wrong"])
def test_a_faulty_pair_is_named(cluster: Cluster, tmp_path: Path, how: str) -> None:
    cluster.fails = lambda names: how if {"node02", "node07"} <= names else ""
    result, shown = play(cluster, tmp_path)
    assert result["culprit"]["kind"] == "pair"
    assert set(result["culprit"]["nodes"]) == {"node02", "node07"}
    assert "pair node02, node07" in result["message"]
    assert any("locating" in line for line in shown)


def test_a_node_at_fault_is_named(cluster: Cluster, tmp_path: Path) -> None:
    cluster.fails = lambda names: "crash" if "node05" in names and len(names) > 1 else ""
    result, _shown = play(cluster, tmp_path)
    assert result["culprit"]["nodes"] == ("node05",)
    assert "status 139" in result["message"] and "exited on signal 11" in result["message"]
    first, *others = [run_id for run_id, _names in cluster.runs]
    assert first == "run7" and len(set(others)) == len(others)
    assert all(run_id.startswith("run7-") for run_id in others)


def test_the_message_has_the_configured_limit(cluster: Cluster, tmp_path: Path) -> None:
    """Not the remaining time after the readiness check."""
    ssh = cluster.ssh

    def slow(argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None) -> Result:
        cluster.now += 0.5
        return ssh(argv, check=check, stdin=stdin)

    cluster.ssh = slow  # type: ignore[method-assign]
    cluster.fails = lambda names: "hang"
    result, _shown = play(cluster, tmp_path, time_limit_s=20.0, bisect_runs=0)
    assert "stopped after 20 s (mpi_smoke_time_limit_s)" in result["message"]
    assert result["culprit"] is None


def test_an_end_without_its_sizes_is_no_end(cluster: Cluster, tmp_path: Path) -> None:
    records = cluster.records

    def short(plan: RunPlan, wrong: bool) -> list[dict[str, Any]]:
        found = records(plan, wrong)
        found.remove(next(one for one in found if one["kind"] == "size"))
        return found

    cluster.records = short  # type: ignore[method-assign]
    result, _shown = play(cluster, tmp_path)
    total = len(RunPlan((LaunchNode("node01", 1),), "tcp", max_bytes=1 << 16).sizes)
    assert by_name(result)["finished"]["found"] == f"{total - 1} of {total} sizes"


def test_silent_nodes_prevent_a_launch(cluster: Cluster, tmp_path: Path) -> None:
    cluster.silent = {"node03", "node06"}
    result, _shown = play(cluster, tmp_path)
    assert cluster.runs == []
    failed = [check["subject"] for check in result["checks"] if check["status"] == "failed"]
    assert failed == ["node03, node06"], "listed once"
    assert "ready node03, node06: " in result["message"]


def test_a_deviating_hostfile_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    result, _shown = play(cluster, tmp_path, listed=NAMES[:-1])
    assert "node08: in the model" in result["message"]
    assert "run --tags hostfile" in result["message"]
    assert cluster.runs == []


def test_the_search_keeps_to_its_runs(cluster: Cluster, tmp_path: Path) -> None:
    cluster.fails = lambda names: "hang"
    result, _shown = play(cluster, tmp_path, bisect_runs=3)
    assert len(cluster.runs) <= 4 and result["culprit"]["runs"] <= 3
