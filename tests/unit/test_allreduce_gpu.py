# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""GPU memory: runs, parsed output, and checks that are not applicable."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import numpy
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import gpu
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.launch import (
    RunResult,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import (
    RunPlan,
    command,
    specification,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.session import (
    Session,
    SmokeTest,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import LaunchNode
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import smoke as table

from tests.unit import programs
from tests.unit.test_mpi_launch import ready_here

DATA = Path(__file__).parent / "data/gpu"
program = programs.program("roles/mpi_stack/files/allreduce.py")
NODES = tuple(
    LaunchNode(
        name,
        8,
        tuple(f"rail{rail}" for rail in range(8)),
        (400.0,) * 8,
        by_rank=tuple((f"rail{rail}",) for rail in range(8)),
        gpus=8,
        cuda=("UCX", "Open MPI"),
        nccl_tests=True,
    )
    for name in ("node01", "node02")
)
PLAN = RunPlan(NODES, "rc", max_bytes=1 << 26)
WANTED = gpu.GpuOptions(min_nccl_share=0.15)
BY_HOST, DIRECT = ((DATA / f"ucx_{name}.txt").read_text() for name in ("by_host", "zero_copy"))
NCCL = (DATA / "nccl_h100.txt").read_text()
LARGEST = 1 << 26


def composed(operation: str, how: str, two_rows: bool = False) -> str:
    """A table of UCX; data/gpu/README.md names the source."""
    head = [f"| mpi inter-node cfg#3 | {operation} |"]
    if two_rows:
        head = ["| mpi inter-node cfg#3 |", f"| {operation} |", "| Range | Description | Config |"]
    rows = ["| 0 | no data fetch | |", f"| 1..inf | {how} | rc_mlx5/mlx5_3:1/path0 |"]
    return "\n".join(f"[1717282080.1] [node01:7:0]   {row}" for row in [*head, "+---+", *rows])


FETCH = composed(
    "rendezvous data fetch(multi) into cuda/GPU3 from cuda/dev[0]", "zero-copy read from remote"
)
SEND = composed("tagged message by ucp_tag_send* from cuda/GPU3", "(?) rendezvous zero-copy read")


# Parsing UCX's tables


def test_ucx_is_read_from_real_tables() -> None:
    assert program.protocols(BY_HOST, LARGEST) == [
        [
            "tagged message by ucp_tag_send*(multi) from cuda/GPU1",
            "(?) rendezvous cuda_copy, fenced write to remote, cuda_copy",
            "50% on rc_mlx5/mlx5_0:1 and 50% on rc_mlx5/mlx5_1:1",
        ]
    ]
    assert program.protocols(DIRECT, LARGEST) == [
        [
            "remote memory write by ucp_put*(multi) from cuda/GPU0 to cuda",
            "zero-copy",
            "rc_mlx5/mlx5_0:1",
        ]
    ], "not that within itself"


def test_the_size_decides_which_row_is_read() -> None:
    assert program.protocols(BY_HOST, 3892)[0][1] == "eager copy-in copy-out"
    assert program.protocols(BY_HOST, 3893)[0][1].startswith("(?) rendezvous")
    spans = "| a inter-node cfg#1 | x from cuda/GPU0 |\n| 256K..1M | zero-copy | rc_mlx5/a:1 |\n"
    sizes = {(1 << 18) - 1: 0, 1 << 18: 1, 1 << 20: 1, (1 << 20) + 1: 0}
    assert {size: len(program.protocols(spans, size)) for size in sizes} == sizes


def test_a_head_may_have_two_rows() -> None:
    operation = "rendezvous data send from cuda/GPU3 to cuda/dev[0]"
    found = program.protocols(composed(operation, "zero-copy fenced write", True), LARGEST)
    assert found == [[operation, "zero-copy fenced write", "rc_mlx5/mlx5_3:1/path0"]]


def test_ucx_prints_its_tables_for_gpu_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program.os, "environ", {})
    for tables in (False, True):
        program.UcxLog(tables=tables)
        assert ("UCX_PROTO_INFO" in program.os.environ) is tables


# Ranks with a fake GPU


class FakeCuda:
    """Fake CUDA driver, with the memory of this process."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}
        self.asked: list[tuple[str, Any]] = []
        self.fails: dict[str, int] = {}
        self.spoils: Callable[[Any], object] = lambda _target: None

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.asked.append((name, arguments))
            return self.fails.get(name, 0)

        return call

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        buffer = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(buffer)
        self.held[address._obj.value] = buffer
        return 0

    def cuMemFree_v2(self, address: Any) -> int:
        del self.held[address.value]
        return 0

    def cuMemcpyHtoD_v2(self, address: Any, source: Any, size: Any) -> int:
        ctypes.memmove(address.value, source.value, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, address: Any, size: Any) -> int:
        ctypes.memmove(target.value, address.value, size.value)
        self.spoils(target)
        return 0


def array_of(buffer: Any) -> Any:
    """A buffer as mpi4py accepts it; that of the GPU is in this process."""
    found = getattr(buffer, "__cuda_array_interface__", None)
    if found is None:
        return buffer
    memory = (ctypes.c_char * buffer.nbytes).from_address(found["data"][0])
    return numpy.frombuffer(memory, found["typestr"]).reshape(found["shape"])


class World:
    """A communicator with one rank."""

    sends = True

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 1

    def Split(self, *_arguments: Any) -> World:
        return self

    Split_type = Split

    def Barrier(self) -> None:
        pass

    def gather(self, mine: Any) -> list[Any]:
        return [mine]

    def Allreduce(self, mine: Any, result: Any, _operation: Any) -> None:
        if mine is not None:
            array_of(result)[...] = array_of(mine)

    def Sendrecv(self, mine: Any, _dest: int, *, recvbuf: Any, source: int) -> None:
        if self.sends:
            array_of(recvbuf)[...] = array_of(mine)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    module, world = ModuleType("mpi4py"), World()
    module.__version__ = "4.1.1"  # type: ignore[attr-defined]
    module.MPI = SimpleNamespace(  # type: ignore[attr-defined]
        COMM_WORLD=world,
        COMM_TYPE_SHARED=None,
        IN_PLACE=None,
        Get_library_version=lambda: "Open MPI v4.1.9a1, package: x",
        **dict.fromkeys(program.OPERATIONS),
    )
    monkeypatch.setitem(sys.modules, "mpi4py", module)
    monkeypatch.setattr(program, "host_name", lambda: "node01")
    return world


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake, real = FakeCuda(), ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *more: fake if name == "libcuda.so.1" else real(name, *more)
    )
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "3")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    return fake


def test_a_buffer_is_on_the_ranks_gpu_and_freed(cuda: FakeCuda) -> None:
    memory = program.GpuMemory(numpy, 3)
    asked = dict(cuda.asked)
    assert [name for name, _arguments in cuda.asked] == [
        "cuInit",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
    ]
    assert asked["cuDeviceGet"][1].value == 3
    assert program.os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    buffer = memory.put(numpy.arange(5, dtype="complex128"))
    found = buffer.__cuda_array_interface__
    assert (found["shape"], found["typestr"], found["version"]) == ((5,), "<c16", 3)
    assert found["data"] == (next(iter(cuda.held)), False)
    assert list(memory.get(buffer)) == [0, 1, 2, 3, 4]
    del buffer
    assert cuda.held == {}
    cuda.fails["cuDeviceGet"] = 101
    with pytest.raises(RuntimeError, match="cuDeviceGet failed with CUDA error 101"):
        program.GpuMemory(numpy, 9)


def judged(log: str) -> list[Check]:
    nodes = (replace(NODES[0], slots=1, by_rank=NODES[0].by_rank[:1]),)
    plan = gpu.on_gpus(replace(PLAN, nodes=nodes, max_bytes=1 << 16))
    records: list[dict[str, Any]] = []
    report = SimpleNamespace(write=lambda kind, **more: records.append({"kind": kind, **more}))
    program.run(json.loads(specification(plan, 60)), report, SimpleNamespace(text=lambda: log))
    return gpu.judge_mpi(plan, RunResult(0, False, 1.0, records), 60)


def test_the_allreduce_is_exact_on_gpu_memory(cuda: FakeCuda, world: World) -> None:
    exact, direct = judged(f"{SEND}\n{FETCH}")
    assert (exact.name, exact.status) == ("gpu_allreduce", OK)
    assert "best busbw" in exact.found
    assert (direct.name, direct.status) == ("gpu_zero_copy", OK)
    assert direct.found == "zero-copy read from remote"
    assert cuda.held == {}, "all is freed"


def test_a_gpu_that_corrupts_is_named(cuda: FakeCuda, world: World) -> None:
    cuda.spoils = lambda target: ctypes.memset(target.value, 0x55, 1)
    exact, _direct = judged(FETCH)
    assert exact.status == FAILED
    assert "rank 0 on node01" in exact.reason


def test_what_ucx_alone_moves_is_compared_too(cuda: FakeCuda, world: World) -> None:
    world.sends = False
    exact, _direct = judged(FETCH)
    assert exact.status == FAILED
    assert "SENDRECV" in exact.reason


# Runs


def test_gpu_memory_changes_only_the_buffers() -> None:
    host, device = (command(plan, "h", "r", 9) for plan in (PLAN, gpu.on_gpus(PLAN)))
    assert '"gpu":true' in device[-1]
    assert "gpu" not in host[-1]
    assert host[:-1] == device[:-1]
    assert gpu.on_gpus(PLAN).sizes[-1] == LARGEST


def test_nccl_tests_run_over_all_ranks() -> None:
    wanted = gpu.GpuOptions(nccl_tests="/opt/nccl-tests/all_reduce_perf")
    argv = command(gpu.by_nccl(PLAN, wanted), "hosts", "run7", 9)
    assert " ".join(argv) == (
        "mpirun --mca baremetal_run_id run7 --hostfile hosts -np 16 --map-by slot --bind-to none "
        "env CUDA_DEVICE_ORDER=PCI_BUS_ID /opt/nccl-tests/all_reduce_perf -b 1073741824 "
        "-e 17179869184 -f 2 -g 1"
    )
    assert not [word for word in argv if "NCCL_" in word or "UCX_" in word]


def test_a_node_reports_gpus_and_their_software(tmp_path: Path) -> None:
    for name, body in (
        ("ompi_info", "echo mca:mpi:base:param:mpi_built_with_cuda_support:value:true"),
        ("all_reduce_perf", ""),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()

    def asked(transports: str, path: str, devices: Path) -> tuple[int, tuple[str, ...], bool]:
        by = ["env", f"UCX_TLS={transports}", f"PATH={path}"]
        here = ready_here("/absent", "lo", by=by, edit=("/dev/nvidia", f"{devices}/nvidia"))
        assert here.whole and not here.down
        return here.gpus, here.cuda, here.nccl_tests

    every, path = "rc,ud,sm,self,cuda_copy,cuda_ipc", f"{tmp_path}:/usr/bin:/bin"
    assert asked(every, path, tmp_path) == (2, ("UCX", "Open MPI"), True)
    assert asked("rc,ud,sm,self", "/usr/bin:/bin", tmp_path) == (2, (), False)
    assert asked(every, path, tmp_path / "none") == (0, (), False)


# Evaluation


def proved(plan: RunPlan, **outcomes: RunResult) -> tuple[list[Check], list[str]]:
    ran: list[str] = []

    def start(part: RunPlan, name: str) -> RunResult:
        assert (part.gpu, bool(part.program)) == (name == "gpu", name == "nccl")
        ran.append(name)
        return outcomes[name]

    return gpu.prove(plan, WANTED, start)[0], ran


def by_mpi(rows: Sequence[dict[str, Any]], **end: Any) -> RunResult:
    records: list[dict[str, Any]] = [
        {"kind": "host", "name": node.name, "ranks": list(range(8 * place, 8 * place + 8))}
        for place, node in enumerate(NODES)
    ]
    tested = [["float32", "SUM", "in_place"]]
    records.append({"kind": "size", "bytes": LARGEST, "times_us": [900.0], "tested": tested})
    records += [{"kind": "protocol", **row} for row in rows]
    records.append({"kind": "end", "wrong_results": 0, **end})
    return RunResult(0, False, 1.0, records)


def way(
    how: str, over: str = "rc_mlx5/mlx5_3:1", ranks: Sequence[int] = range(16)
) -> dict[str, Any]:
    return {"operation": "from cuda/GPU3", "how": how, "over": over, "ranks": list(ranks)}


SURE, EXPECTED = way("zero-copy read from remote"), way("(?) rendezvous zero-copy read")
WELL = by_mpi([SURE, EXPECTED])
RAN = RunResult(0, False, 9.0, [], NCCL)


def test_all_three_hold() -> None:
    checks, ran = proved(PLAN, gpu=WELL, nccl=RAN)
    assert ran == ["gpu", "nccl"]
    assert [(check.name, check.status) for check in checks] == [
        ("gpu_allreduce", OK),
        ("gpu_zero_copy", OK),
        ("nccl_allreduce", OK),
    ]
    assert checks[2].wanted == "at least 60 GB/s (15.00% of 400)"
    assert checks[2].found == "70.742 GB/s (17.7% of 400)"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([way("(?) rendezvous cuda_copy, fenced write to remote, cuda_copy")], "nvidia_peermem"),
        ([SURE, way("cuda_copy, fenced write to remote, frag host", ranks=[9])], "ranks [9]"),
        ([SURE, way("eager zero-copy copy-out")], "copy-out"),
        ([SURE, way("zero-copy", over="tcp/eth0")], "tcp/eth0"),
        ([], "on node01, node02"),
        ([EXPECTED], "on node01, node02"),
        ([way("zero-copy", ranks=range(8))], "on node02"),
    ],
)
def test_a_staged_or_unknown_path_fails(rows: list[dict[str, Any]], words: str) -> None:
    exact, direct = gpu.judge_mpi(gpu.on_gpus(PLAN), by_mpi(rows), 60)
    assert (exact.status, direct.status) == (OK, FAILED)
    assert words in direct.reason


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (RunResult(-15, True, 120.0), "stopped after 120 s (mpi_smoke_gpu_limit_s)"),
        (RunResult(1, False, 1.0, [], "allreduce: rank 3: no libcuda"), "status 1: allre"),
        (RunResult(0, False, 1.0), "did not report"),
    ],
)
def test_a_run_without_its_end_is_one_failure(outcome: RunResult, words: str) -> None:
    (exact, direct, _nccl), _ran = proved(PLAN, gpu=outcome, nccl=RAN)
    assert (exact.status, direct.status) == (FAILED, NOT_APPLICABLE)
    assert words in exact.reason
    assert direct.reason == "see gpu_allreduce"


def test_the_output_of_nccl_tests_is_read() -> None:
    found = gpu.read_nccl(f"a login message\n{NCCL}")
    assert (found["ranks"], found["wrong"], found["busbw_gbytes_s"]) == (16, 0, 70.742)
    first, *_others, last = found["by_size"]
    assert first == {"bytes": 8, "time_us": [135.8, 123.5], "busbw_gbytes_s": [0.0, 0.0]}
    assert (last["bytes"], last["time_us"]) == (8589934592, [47535, 47743])
    assert last["busbw_gbytes_s"] == [338.82, 337.35]


@pytest.mark.parametrize(
    ("printed", "rc", "share", "status", "words"),
    [
        (NCCL, 0, 0.15, OK, ""),
        (NCCL, 0, 0.875, FAILED, "average bus bandwidth"),
        (NCCL, 0, None, NOT_APPLICABLE, "no threshold set"),
        (NCCL.replace("values : 0 OK", "values : 7 FAILED"), 0, 0.1, FAILED, "7 wrong values"),
        (NCCL.partition("#  Rank  1")[0] * 16, 0, 0.1, FAILED, "no average bus"),
        (NCCL.replace("#  Rank 1", "#  Bank 1"), 0, 0.1, FAILED, "10 ranks of 16"),
        ("Test NCCL failure common.cu:958 'unhandled system error'", 3, 0.1, FAILED, "cu:958"),
    ],
)
def test_nccls_figure_is_held_against_the_line_rate(
    printed: str, rc: int, share: Optional[float], status: str, words: str
) -> None:
    wanted = replace(WANTED, min_nccl_share=share)
    outcome = RunResult(rc, False, 9.0, [], printed)
    check = gpu.judge_nccl(PLAN, outcome, gpu.read_nccl(printed), wanted)
    assert (check.status, words in check.reason) == (status, True)


NONE = tuple(replace(node, gpus=0, cuda=(), nccl_tests=False) for node in NODES)


@pytest.mark.parametrize(
    ("nodes", "more", "mpi", "nccl"),
    [
        (NONE, {}, "no node has a GPU", ""),
        ((NODES[0], NONE[1]), {}, "fewer GPUs than ranks: node02", ""),
        (NODES, {"transport": "tcp"}, "the transport is tcp", ""),
        (NODES[:1], {}, "a single node", ""),
        (
            tuple(replace(node, cuda=("Open MPI",), nccl_tests=False) for node in NODES),
            {},
            "UCX was built without CUDA on node01, node02",
            "all_reduce_perf not found on node01, node02",
        ),
        (
            tuple(replace(node, cuda=("UCX",), nccl_tests=False) for node in NODES),
            {},
            "Open MPI was built without CUDA on node01, node02",
            "all_reduce_perf not found on node01, node02",
        ),
    ],
)
def test_missing_requirements_are_not_applicable(
    nodes: tuple[LaunchNode, ...], more: dict[str, Any], mpi: str, nccl: str
) -> None:
    checks, ran = proved(replace(PLAN, nodes=nodes, **more))
    assert ran == []
    assert [check.name for check in checks] == ["gpu_allreduce", "gpu_zero_copy", "nccl_allreduce"]
    assert {check.status for check in checks} == {NOT_APPLICABLE}
    found = [
        check.reason.startswith(words) for check, words in zip(checks, (mpi, mpi, nccl or mpi))
    ]
    assert found == [True] * 3


def test_nccl_tests_on_some_of_the_nodes_fail() -> None:
    nodes = (NODES[0], replace(NODES[1], cuda=(), nccl_tests=False))
    checks, ran = proved(replace(PLAN, nodes=nodes))
    found = (checks[-1].name, checks[-1].status, checks[-1].reason)
    assert found == ("nccl_allreduce", FAILED, "all_reduce_perf not found on node02")
    assert ran == []


# The complete test


class Cluster:
    """Two nodes with GPUs; `broken` fails the first run."""

    def __init__(self) -> None:
        self.broken = False
        self.runs: list[tuple[str, float]] = []
        self.hosts: list[str] = []

    def ssh(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        # For READY and SWEEP: each parser reads its own lines.
        lines = ["killed 0 left 0", "program abc", "daemon yes", "gpus 8"]
        lines += [f"device mlx5_{rail}:1 rail{rail}" for rail in range(8)]
        lines += [f"port mlx5_{rail}:1 ACTIVE" for rail in range(8)]
        lines += ["cuda UCX", "cuda Open MPI", "nccl yes", "end"]
        return Result(tuple(argv), 0, "".join(f"mpi-ready {line}\n" for line in lines), "")

    def start(
        self, plan: RunPlan, hostfile: Path, run_id: str, limit_s: float, **_more: Any
    ) -> RunResult:
        self.runs.append((run_id, limit_s))
        self.hosts.append(hostfile.read_text(encoding="utf-8"))
        if plan.program:
            return RAN
        if plan.gpu:
            return WELL
        records = [] if self.broken else WELL.records
        sizes = [dict(record, bytes=size) for record in records[2:3] for size in plan.sizes]
        return RunResult(0, False, 1.0, sizes + [dict(record) for record in records[3:]])


def smoke(cluster: Cluster, tmp_path: Path, *more: LaunchNode) -> dict[str, Any]:
    nodes = (*NODES, *more)
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{node.name} slots={node.slots}\n" for node in nodes))
    plan = replace(
        PLAN, nodes=tuple(replace(node, cuda=(), gpus=0, nccl_tests=False) for node in nodes)
    )
    request = SmokeTest(plan, "mpi", hostfile, "run7", "abc", gpu=WANTED, bisect_runs=0)
    return Session(request, cluster.ssh, cluster.start, lambda _text: None, lambda: 0.0).run()


def gpu_checks(result: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        check["name"]: (check["status"], check["reason"])
        for check in result["checks"]
        if "gpu" in check["name"] or "nccl" in check["name"]
    }


def test_the_smoke_test_proves_gpu_memory_after_host_memory(tmp_path: Path) -> None:
    cluster = Cluster()
    result = smoke(cluster, tmp_path)
    assert cluster.runs == [("run7", 300.0), ("run7-gpu", 120.0), ("run7-nccl", 120.0)]
    assert {status for status, _why in gpu_checks(result).values()} == {OK}
    lines = [line for line in table.lines(result) if "GPU" in line]
    assert lines == [
        "  GPU memory: MPI best busbw 139.81 GB/s (64 MiB); line rate 400 GB/s a node (35.0 %)",
        "  GPU memory: NCCL average busbw 70.74 GB/s (8 B to 8 GiB); line rate 400 GB/s a node "
        "(17.7 %)",
    ]


def test_a_kind_without_gpus_takes_no_part_in_their_tests(tmp_path: Path) -> None:
    """Its rails do not limit the bandwidth that is expected of the others."""
    cluster = Cluster()
    few = {"rails": ("rail0",), "speeds": (100.0,), "by_rank": (("rail0",),) * 64}
    result = smoke(cluster, tmp_path, LaunchNode("cpu01", 64, gpus_expected=False, **few))
    assert result["figures"]["line_rate_gbytes_s"] == 12.5
    assert cluster.hosts[1:] == ["node01 slots=8\nnode02 slots=8\n"] * 2
    assert {status for status, _why in gpu_checks(result).values()} == {OK}
    (line,) = [line for line in table.lines(result) if "MPI best" in line]
    assert line == (
        "  GPU memory of 2 nodes: MPI best busbw 139.81 GB/s (64 MiB); line rate 400 GB/s a node "
        "(35.0 %)"
    )


def test_a_node_that_lost_its_gpus_is_not_left_out() -> None:
    nodes = (*NODES, replace(NODES[0], name="node03", gpus=0), LaunchNode("cpu01", 8))
    plan = replace(PLAN, nodes=(*nodes[:3], replace(nodes[3], gpus_expected=False)))
    assert [node.name for node in gpu.of_gpus(plan).nodes] == ["node01", "node02", "node03"]
    assert gpu.without_gpus(gpu.of_gpus(plan)) == "fewer GPUs than ranks: node03"
    assert gpu.of_gpus(PLAN) is PLAN


def test_after_a_broken_run_nothing_more_is_started(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.broken = True
    result = smoke(cluster, tmp_path)
    assert [run_id for run_id, _limit in cluster.runs] == ["run7"]
    assert set(gpu_checks(result).values()) == {
        (NOT_APPLICABLE, "the allreduce of host memory failed")
    }
