# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run of the allreduce: nodes, buffer sizes, and the launcher's command line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from ...core.part import PlanError
from ..environment import PROGRAM, RAIL_BIND
from ..launch.launcher import OPEN_MPI, Launcher, Start
from ..launch.node import LaunchNode, slots_of

LARGE_BYTES = 65536
"""Larger buffers have fewer iterations."""


@dataclass(frozen=True)
class RunPlan:
    nodes: tuple[LaunchNode, ...]
    transport: str
    max_bytes: int = 1 << 20
    size_step: int = 4
    combinations: int = 0
    iterations: int = 200
    iterations_large: int = 50
    warmup: int = 2
    bind_rails: bool = True
    python: str = "/usr/bin/python3"
    parameters: tuple[tuple[str, str], ...] = ()
    launcher: Launcher = OPEN_MPI
    rankfile: str = ""
    rail_bytes: int = 1 << 18
    """Buffer size of the allreduce that runs over one rail only."""
    only: Optional[int] = None
    """Index of the only rail that each rank uses, if the run is the allreduce of that rail."""
    gpu: bool = False
    """Buffers are in the memory of each rank's GPU."""
    program: tuple[str, ...] = ()
    """Another program to run instead of the allreduce, with its arguments."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise PlanError("no compute node takes part: all are drained, or the model has none")
        if self.rankfile and self.launcher is not OPEN_MPI:
            raise PlanError(
                "mpi_smoke_rankfile is for Open MPI's mpirun: omit it with impi and srun"
            )

    @property
    def ranks(self) -> int:
        return sum(node.slots for node in self.nodes)

    @property
    def sizes(self) -> list[int]:
        return sizes(self.max_bytes, self.size_step) if self.only is None else []

    @cached_property
    def with_peer(self) -> int:
        """Ranks per node that have a peer: a rank with the same number on another node."""
        return sorted(node.slots for node in self.nodes)[-2] if len(self.nodes) > 1 else 0

    def provable(self, node: LaunchNode) -> tuple[str, ...]:
        """Rails over which `node` must send: those of its ranks that have a peer."""
        rails = (rail for own in node.by_rank[: self.with_peer] for rail in own)
        return tuple(dict.fromkeys(rails)) if self.bind_rails else ()

    @cached_property
    def unbound(self) -> bool:
        """Whether routes select the rail instead of the sender.

        UCX before 1.18 does not bind a TCP connection to the address of its rail, so routes decide
        where peers are in networks other than the rail's: rails with the same name, or those of
        ranks with the same number, if nodes have different rails.
        """
        first: dict[object, object] = {}
        if self.transport != "tcp":
            return False
        for node in self.nodes:
            networks = dict(zip(node.rails, node.networks))
            of_ranks = {
                rank: [networks.get(rail) for rail in own] for rank, own in enumerate(node.by_rank)
            }
            for key, network in (*networks.items(), *of_ranks.items()):
                if first.setdefault(key, network) != network:
                    return True
        return False

    @cached_property
    def rail_runs(self) -> Sequence[RunPlan]:
        """A short run for each rail of a rank, if the run itself does not prove every rail: where
        ranks have several rails (planes), or routes select the rail."""
        most = max((len(own) for node in self.nodes for own in node.by_rank), default=0)
        if not self.bind_rails or len(self.nodes) < 2 or (most < 2 and not self.unbound):
            return []
        return [replace(self, only=number) for number in range(most)]

    def subset(self, names: Sequence[str]) -> RunPlan:
        """A short run on some of the nodes, to see whether it fails."""
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.name in set(names)),
            size_step=max(self.size_step, 64),
            combinations=self.combinations and min(self.combinations, 8),
            iterations=2,
            iterations_large=1,
            warmup=0,
            rankfile="",
        )

    def start(self, run_id: str, hosts: str, limit_s: float) -> Start:
        parameters = dict(self.parameters)
        if self.only is not None and self.unbound:
            parameters.update(self.launcher.tcp)
        gpus = min(node.slurm_gpus for node in self.nodes)
        return Start(run_id, hosts, self.ranks, len(self.nodes), limit_s, gpus, parameters)

    def hostfile(self) -> str:
        return self.launcher.hostfile(slots_of(self.nodes, self.launcher))


def sizes(largest: int, step: int) -> list[int]:
    """4 bytes, then multiples by `step`, and finally `largest` rounded down to 4 bytes."""
    series = [4]
    while series[-1] * max(2, step) <= largest:
        series.append(series[-1] * max(2, step))
    last = largest - largest % 4
    return series if series[-1] == last else [*series, last]


def specification(plan: RunPlan, time_limit_s: float) -> str:
    values = {
        "sizes": plan.sizes,
        "combinations": plan.combinations,
        "iterations": plan.iterations,
        "iterations_large": plan.iterations_large,
        "large": LARGE_BYTES,
        "warmup": plan.warmup,
        "rail_bytes": 0 if plan.only is None and plan.rail_runs else plan.rail_bytes,
        "time_limit_s": max(1, round(time_limit_s)),
    }
    if plan.gpu:
        values["gpu"] = True
    return json.dumps(values, separators=(",", ":"))


def command(plan: RunPlan, hosts: str, run_id: str, time_limit_s: float) -> list[str]:
    """The launcher's command line. Devices come from the environment file of each node."""
    launcher, start = plan.launcher, plan.start(run_id, hosts, time_limit_s)
    argv = launcher.start(start)
    argv += ["--rankfile", plan.rankfile] if plan.rankfile else launcher.mappings["gpu"]
    argv += launcher.ranks(start)
    if plan.program:
        # NCCL selects cores near each GPU, and takes its NICs from the environment of the node.
        return [*argv, "env", "CUDA_DEVICE_ORDER=PCI_BUS_ID", *plan.program]
    if plan.bind_rails:
        argv += [RAIL_BIND, *(["--keep-cpus"] if plan.rankfile else [])]
    argv += ["--only", str(plan.only)] if plan.only is not None else []
    spec = specification(plan, time_limit_s)
    return [*argv, plan.python, PROGRAM, "--run-id", run_id, "--spec", spec]
