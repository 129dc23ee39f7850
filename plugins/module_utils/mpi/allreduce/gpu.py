# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The allreduce on GPU memory, and NCCL's allreduce, run by nccl-tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ...core.checks import FAILED, NOT_APPLICABLE, OK, Check, failures, not_applicable
from ...core.text import bytes_text, some
from ..causes import causes, last_lines
from ..launch.node import LaunchNode
from . import traffic, verdict
from .launch import Records, RunResult, of_kind, of_nodes
from .plan import RunPlan
from .verdict import is_transport

ALLREDUCE, ZERO_COPY, NCCL = "gpu_allreduce", "gpu_zero_copy", "nccl_allreduce"
STAGED = re.compile(r"copy-in|copy-out|cuda_copy|gdr_copy|\bfrag\b|\bshort\b")
"""UCX's names for paths through host memory (`src/ucp/proto`, UCX 1.16 to 1.21)."""
OVER = re.compile(r"\b(\w+)/\S+")
MAX_ITEMS = 3


@dataclass(frozen=True)
class GpuOptions:
    """Options of the module mpi_allreduce, with the same names."""

    nccl_tests: str = "all_reduce_perf"
    """Name or path, on every node."""
    nccl_min_bytes: int = 1 << 30
    nccl_max_bytes: int = 1 << 34
    min_nccl_share: Optional[float] = None
    """Share of a node's line rate that the average bus bandwidth must reach."""
    gpu_limit_s: float = 120.0
    """Seconds after which each of the two runs is stopped."""


Start = Callable[[RunPlan, str], RunResult]


def prove(
    plan: RunPlan, wanted: GpuOptions, start: Start, failed: str = ""
) -> tuple[list[Check], dict[str, Any]]:
    figures: dict[str, Any] = {}
    every, plan = plan, of_gpus(plan)
    if plan is not every:
        rate = min(node.line_rate_gbytes_s for node in plan.nodes)
        figures.update(gpu_nodes=len(plan.nodes), gpu_line_rate_gbytes_s=rate)
    reason = without_gpus(plan) or failed
    on_mpi = reason or without_cuda(plan)
    if on_mpi:
        checks = [not_applicable(name, "measured", on_mpi) for name in (ALLREDUCE, ZERO_COPY)]
    else:
        device = on_gpus(plan)
        outcome = start(device, "gpu")
        checks = judge_mpi(device, outcome, wanted.gpu_limit_s)
        by_size = verdict.figures(outcome.records, plan.ranks)
        figures["gpu"] = {"by_size": by_size, "best": verdict.best_busbw(by_size)}
    missing = [node for node in plan.nodes if not node.nccl_tests]
    lacking = f"{wanted.nccl_tests} not found on {_names(missing)}" if missing else ""
    if reason or len(missing) == len(plan.nodes):
        return [*checks, not_applicable(NCCL, "measured", reason or lacking)], figures
    if missing:
        return [*checks, Check(NCCL, "on every node", "not", FAILED, "", lacking)], figures
    outcome = start(by_nccl(plan, wanted), "nccl")
    figures["nccl"] = read_nccl(outcome.complaints)
    return [*checks, judge_nccl(plan, outcome, figures["nccl"], wanted)], figures


def _names(nodes: Sequence[LaunchNode]) -> str:
    return some([node.name for node in nodes])


def of_gpus(plan: RunPlan) -> RunPlan:
    """The run without nodes of kinds that have no GPUs, as the model says: a node that has lost
    its GPUs is not left out."""
    nodes = tuple(node for node in plan.nodes if node.gpus_expected)
    return replace(plan, nodes=nodes, rankfile="") if 0 < len(nodes) < len(plan.nodes) else plan


def without_gpus(plan: RunPlan) -> str:
    """Why GPU memory cannot be tested; empty if each rank has a GPU."""
    without = [node for node in plan.nodes if node.gpus < node.slots]
    if not any(node.gpus for node in plan.nodes):
        return "no node has a GPU"
    if without:
        return f"fewer GPUs than ranks: {_names(without)}"
    if plan.transport != "rc":
        return f"the transport is {plan.transport}: GPU memory is staged through the host"
    return "a single node: no traffic between nodes" if len(plan.nodes) < 2 else ""


def without_cuda(plan: RunPlan) -> str:
    for software in ("UCX", "Open MPI"):
        missing = [node for node in plan.nodes if software not in node.cuda]
        if missing:
            remedy = "software.mpi.provider: hpcx includes it"
            return f"{software} was built without CUDA on {_names(missing)}; {remedy}"
    return ""


def on_gpus(plan: RunPlan) -> RunPlan:
    """A short allreduce on GPU memory, with few sizes and combinations."""
    return replace(
        plan,
        gpu=True,
        size_step=max(plan.size_step, 64),
        combinations=min(plan.combinations or 4, 4),
        iterations=min(plan.iterations, 20),
        iterations_large=min(plan.iterations_large, 10),
        rail_bytes=0,
    )


def by_nccl(plan: RunPlan, wanted: GpuOptions) -> RunPlan:
    sizes = ("-b", str(wanted.nccl_min_bytes), "-e", str(wanted.nccl_max_bytes), "-f", "2")
    return replace(plan, program=(wanted.nccl_tests, *sizes, "-g", "1"))


def _broken(outcome: RunResult, limit_s: float) -> str:
    """Why a run did not complete; empty if it did."""
    if outcome.timed_out:
        return f"stopped after {limit_s:g} s (mpi_smoke_gpu_limit_s)"
    if outcome.rc == 0:
        return ""
    printed = outcome.complaints
    lines = causes(printed, MAX_ITEMS) or last_lines(printed, MAX_ITEMS) or ["it printed nothing"]
    return f"mpirun exited with status {outcome.rc}: {'; '.join(lines)}"


def judge_mpi(plan: RunPlan, outcome: RunResult, limit_s: float) -> list[Check]:
    reason = _broken(outcome, limit_s) or ("" if outcome.complete else "the ranks did not report")
    if reason:
        checks = [Check(ALLREDUCE, "all sizes", "not", FAILED, "", reason)]
        return [*checks, not_applicable(ZERO_COPY, "zero-copy", "see gpu_allreduce")]
    exact = verdict.exactness(outcome.records)
    wrong = [check.line() for check in failures(exact)]
    wanted = f"{len(exact)} types and operations bit-exact"
    best = verdict.best_busbw(verdict.figures(outcome.records, plan.ranks))
    found = f"{wanted}, best busbw {best['busbw_gbytes_s'] if best else 0:.3g} GB/s"
    checked = traffic.verdict(ALLREDUCE, wanted, found, wrong)
    return [checked, zero_copy(plan, outcome.records)]


def zero_copy(plan: RunPlan, records: Records) -> Check:
    """Check that UCX transfers data between GPUs of two nodes directly.

    UCX marks a path with `(?)` if it only expects it of the peer: such a path can fail the check,
    but does not pass it. Each node sends and receives, and the end that moves the data reports the
    path without a mark.
    """
    by_rank = {rank: node for node, host in of_nodes(plan, records) for rank in host["ranks"]}
    staged: list[str] = []
    proved, ways = set[str](), set[str]()
    for row in of_kind(records, "protocol"):
        text = f"{row['operation']}: {row['how']} over {row['over']}"
        used = OVER.findall(row["over"])
        direct = "zero-copy" in row["how"] and not STAGED.search(row["how"])
        if not direct or not used or not all(is_transport(name, "rc") for name in used):
            staged.append(f"ranks {row['ranks'][:8]}: {text}")
        elif not row["how"].startswith("(?)"):
            proved |= {by_rank[rank].name for rank in row["ranks"] if rank in by_rank}
            ways.add(row["how"])
    wanted = f"zero-copy over rc, {bytes_text(plan.sizes[-1])}"
    if staged:
        reason = (
            f"{'; '.join(staged[:MAX_ITEMS])}: the NIC cannot access GPU memory by dma-buf or "
            "nvidia_peermem; see gpu_write_bw (--tags verbs) and --tags gpu"
        )
        return Check(ZERO_COPY, wanted, "through the host", FAILED, "", reason)
    silent = [node.name for node in plan.nodes if node.name not in proved]
    if silent:
        reason = (
            f"UCX reported no path between GPUs on {some(silent)}: its protocols are disabled "
            "(UCX_PROTO_ENABLE), it is older than 1.16, or pml is not ucx"
        )
        return Check(ZERO_COPY, wanted, "no report", FAILED, "", reason)
    return Check(ZERO_COPY, wanted, "; ".join(sorted(ways)), OK)


def read_nccl(printed: str) -> dict[str, Any]:
    """Parse the output of all_reduce_perf, whose columns differ between versions, in 10^9 bytes per
    second."""
    heading: list[str] = []
    found: dict[str, Any] = {"ranks": 0, "by_size": [], "wrong": None, "busbw_gbytes_s": None}
    for line in printed.splitlines():
        cells = line.split()
        if re.match(r"#? *Rank +\d+ ", line):
            found["ranks"] += 1
        elif cells[:2] == ["#", "size"]:
            heading = cells[1:]
        elif heading and len(cells) == len(heading) and cells[0].isdigit():
            row: dict[str, Any] = {"bytes": int(cells[0])}
            for name, key in (("time", "time_us"), ("busbw", "busbw_gbytes_s")):
                row[key] = [float(cell) for head, cell in zip(heading, cells) if head == name]
            found["by_size"].append(row)
        last = re.match(r"# (Out of bounds values|Avg bus bandwidth) +: ([\d.]+)", line)
        if last and last[1].startswith("Out"):
            found["wrong"] = int(last[2])
        elif last:
            found["busbw_gbytes_s"] = float(last[2])
    return found


def judge_nccl(
    plan: RunPlan, outcome: RunResult, figures: Mapping[str, Any], wanted: GpuOptions
) -> Check:
    rate = min(node.line_rate_gbytes_s for node in plan.nodes)
    share = wanted.min_nccl_share or 0
    asked = f"at least {share * rate:g} GB/s ({share:.2%} of {rate:g})" if share and rate else ""
    busbw, ranks = figures["busbw_gbytes_s"], figures["ranks"]
    reason = _broken(outcome, wanted.gpu_limit_s)
    if not reason and ranks != plan.ranks:
        reason = f"it counts {ranks} ranks of {plan.ranks}: build nccl-tests with MPI=1"
    elif not reason and figures["wrong"]:
        reason = f"{figures['wrong']} wrong values: a GPU, its memory or a link corrupts data"
    if reason or busbw is None:
        reason = reason or "it printed no average bus bandwidth"
        return Check(NCCL, asked or "measured", "not", FAILED, "", reason)
    found = f"{busbw:g} GB/s" + (f" ({busbw / rate:.1%} of {rate:g})" if rate else "")
    if not asked:
        return Check(NCCL, "measured", found, NOT_APPLICABLE, "", "no threshold set")
    reason = "average bus bandwidth: check gpu_write_bw (--tags verbs), and NCCL_* in mpi.env"
    status, reason = (OK, "") if busbw >= share * rate else (FAILED, reason)
    return Check(NCCL, asked, found, status, "", reason)
