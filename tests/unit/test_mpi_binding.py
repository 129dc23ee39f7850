# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CPUs that `rail-bind` gives to ranks, with the variables of each MPI."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.text import ranges
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.hostfile import (
    parse_cores,
)

from tests import chassis

GOLDEN = Path(__file__).parent / "golden/binding.txt"
OPEN_MPI = ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
INTEL_MPI = ("MPI_LOCALRANKID", "MPI_LOCALNRANKS")
SLURM = ("SLURM_LOCALID", "SLURM_GTIDS")


def bound(
    root: Path,
    rank: int,
    ranks: int,
    *words: str,
    names: tuple[str, str] = OPEN_MPI,
    rails: str = "",
) -> str:
    """CPUs of a rank as a list of ranges, or `unbound`."""
    local = dict(zip(names, (str(rank), str(ranks))))
    if names == SLURM:
        local[names[1]] = ",".join(str(8 + number) for number in range(ranks))
        local["SLURM_CPU_BIND_TYPE"] = "none"
    done = subprocess.run(
        ["sh", str(root / "rail-bind"), *words, str(root / "show"), str(rank)],
        env={"PATH": f"{root}:{os.environ['PATH']}", "MPI_ROCE_RAILS_BY_RANK": rails, **local},
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    cpus = done.stdout.split()[-1]
    return cpus if cpus == "unbound" else ranges(parse_cores(cpus))


def table(folder: Path, names: tuple[str, str]) -> Iterator[str]:
    for name, gpus in chassis.CHASSIS.items():
        root = chassis.build(folder / str(len(gpus)), gpus)
        for ranks in (8, 16, 4, 2):
            yield f"{name}, {ranks} ranks a node"
            yield "rank GPU NUMA CPUs"
            for rank in range(ranks):
                gpu = rank % len(gpus)
                cpus = bound(root, rank, ranks, names=names)
                yield f"{rank:4} {gpu:3} {gpu * 2 // len(gpus):4} {cpus}"


@pytest.mark.parametrize("names", [OPEN_MPI, INTEL_MPI, SLURM])
def test_ranks_share_the_cores_of_their_gpus_numa_node(
    tmp_path: Path, names: tuple[str, str]
) -> None:
    assert list(table(tmp_path, names)) == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_a_rank_stays_within_what_mpiruns_daemon_may_use(tmp_path: Path) -> None:
    root = chassis.build(tmp_path, allowed="8-11,60-63,120-123")
    assert [bound(root, rank, 8) for rank in (0, 3, 4)] == ["8,120", "11,123", "60"]
    (root / "proc/status").write_text("Cpus_allowed_list:\t56-111\n", encoding="utf-8")
    assert [bound(root, rank, 8) for rank in (0, 4)] == ["unbound", "56-69"]


def test_fewer_cores_than_ranks_are_shared(tmp_path: Path) -> None:
    root = chassis.build(tmp_path, allowed="0-2,56-111")
    assert [bound(root, rank, 8) for rank in (0, 3)] == ["0-2", "0-2"]


def test_without_gpus_the_rails_numa_node_counts(tmp_path: Path) -> None:
    root = chassis.build(tmp_path, ())
    numa = {"infiniband/mlx5_0": 1, "net/rail0": 0, "net/rail1": -1}
    for name, number in numa.items():
        chassis.write(root / f"sys/class/{name}/device/numa_node", f"{number}\n")
    rails = "mlx5_0:1,mlx5_7:1 rail0 rail1 rail9"
    whole = ["56-111,168-223", "0-55,112-167", "unbound", "unbound"]
    assert [bound(root, rank, 4, rails=rails) for rank in range(4)] == whole
    assert [bound(root, rank, 4) for rank in range(4)] == ["unbound"] * 4


def test_unbound_ranks_are_unchanged(tmp_path: Path) -> None:
    root = chassis.build(tmp_path)
    assert bound(root, 0, 8, "--keep-cpus") == bound(root, 0, 8, "--only", "0", "--keep-cpus")
    assert bound(root, 0, 8, "--keep-cpus") == "unbound"
    srun = ("SLURM_LOCALID", "SLURM_NTASKS")
    assert bound(root, 4, 8, names=srun) == "unbound", "started by srun: Slurm binds"


def test_it_is_the_program_that_is_bound(tmp_path: Path) -> None:
    """With the real taskset, on CPUs of this machine."""
    here = sorted(os.sched_getaffinity(0))[:2]
    root = chassis.build(tmp_path, allowed=ranges(here))
    numa = root / "sys/devices/system/node/node0"
    for cpu in here:
        chassis.write(numa / f"cpu{cpu}/topology/thread_siblings_list", f"{cpu}\n")
    program = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
    found = []
    for rank in range(len(here)):
        done = subprocess.run(
            ["sh", str(root / "rail-bind"), *program],
            env={"PATH": os.environ["PATH"], **dict(zip(OPEN_MPI, (str(rank), str(len(here)))))},
            check=True,
            capture_output=True,
            text=True,
        )
        found.append(done.stdout.strip())
    assert found == [str(cpu) for cpu in here]


def test_a_refused_binding_is_reported(tmp_path: Path) -> None:
    root = chassis.build(tmp_path)
    (root / "taskset").write_text("#!/bin/sh\necho refused >&2; exit 1\n", encoding="utf-8")
    variables = dict(zip(OPEN_MPI, "08"))
    done = subprocess.run(
        ["sh", str(root / "rail-bind"), "echo", "started"],
        env={"PATH": f"{root}:{os.environ['PATH']}", **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("started\n", "refused\n")
