# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run: the nodes, the sizes, the launcher's command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Optional

from ...core.part import PlanError
from .. import hostfile
from ..environment import PROGRAM_DIRECTORY, rails_by_rank, rails_from_model
from ..launcher import OPEN_MPI, Launcher

PROGRAM = f"{PROGRAM_DIRECTORY}/allreduce.py"
RAIL_BIND = f"{PROGRAM_DIRECTORY}/rail-bind"


@dataclass(frozen=True)
class Node:
    """One node that takes part, as the model has it."""

    name: str
    slots: int
    rails: tuple[str, ...] = ()
    speeds: tuple[float, ...] = ()
    """Gb/s of each rail, as the model has it."""
    address: str = ""
    """The name mpirun and ssh call it by."""
    networks: tuple[str, ...] = ()
    """The network of each rail, as the model has it."""
    numbers: tuple[Optional[int], ...] = ()
    """The number of each rail in the model, which its planes share."""
    by_rank: tuple[tuple[str, ...], ...] = ()
    """The rails that each of its ranks is given."""
    numa: tuple[Optional[int], ...] = ()
    """The NUMA node of each GPU, or without GPUs of the rail of each rank, as the model has it."""
    devices: tuple[tuple[str, str], ...] = ()
    """RDMA device and port with an interface behind it, from the node."""
    software: bool = False
    """Whether its RDMA devices are made of software, and so their speed is nominal."""
    gpus: int = 0
    """As many as its driver has, as the node says."""
    cuda: tuple[str, ...] = ()
    """Which of `UCX` and `Open MPI` were built with CUDA."""
    nccl_tests: bool = False
    """Whether it has nccl-tests' all_reduce_perf."""

    @property
    def line_rate_gbytes_s(self) -> float:
        """What its rails carry in each direction, in 10^9 bytes per second."""
        return sum(self.speeds) / 8

    @property
    def given(self) -> tuple[str, ...]:
        """The rails that any rank is given; all of them where that is not known."""
        return tuple(dict.fromkeys(rail for own in self.by_rank for rail in own)) or self.rails

    def of_devices(self, devices: Sequence[tuple[str, str]]) -> Node:
        """The same with what it reported. Planes that a NIC balances by hardware are one rail: no
        plane but the first has an RDMA device (nic-configuration-operator 632f1295)."""
        node = replace(self, devices=tuple(devices))
        behind = {interface for _device, interface in devices}
        planes: dict[int, list[str]] = {}
        for rail, number in zip(self.rails, self.numbers):
            if number is not None:
                planes.setdefault(number, []).append(rail)
        first = {rail: own[0] for own in planes.values() for rail in own}
        further = [rail for own in planes.values() for rail in own[1:]]
        if not further or behind & {*further} or not {first[rail] for rail in further} <= behind:
            return node
        speeds = dict.fromkeys((rail for rail in self.rails if rail not in further), 0.0)
        for rail, speed in zip(self.rails, self.speeds):
            speeds[first.get(rail, rail)] += speed
        kept = [place for place, rail in enumerate(self.rails) if rail in speeds]
        return replace(
            node,
            rails=tuple(speeds),
            speeds=tuple(speeds.values()) if self.speeds else (),
            networks=tuple(self.networks[place] for place in kept) if self.networks else (),
            numbers=tuple(self.numbers[place] for place in kept),
            by_rank=tuple(tuple(r for r in own if r in speeds) for own in self.by_rank),
        )

    @property
    def host(self) -> str:
        return self.address or self.name


@dataclass(frozen=True)
class Plan:
    """One run. Subsets of the same run, as the search for a fault makes them, share the rest."""

    nodes: tuple[Node, ...]
    transport: str
    max_bytes: int = 1 << 20
    size_step: int = 4
    combinations: int = 0
    iterations: int = 200
    iterations_large: int = 50
    large_bytes: int = 65536
    warmup: int = 2
    bind_rails: bool = True
    python: str = "/usr/bin/python3"
    parameters: tuple[tuple[str, str], ...] = ()
    launcher: Launcher = OPEN_MPI
    rankfile: str = ""
    rail_bytes: int = 1 << 18
    """Buffer of the allreduce that each rail has to itself."""
    only: Optional[int] = None
    """Each rank gets this one of its rails, and nothing is done but the allreduce of each rail."""
    gpu: bool = False
    """Buffers are in the memory of each rank's GPU."""
    program: tuple[str, ...] = ()
    """Another program with its arguments."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise PlanError("no node takes part: every compute node is drained, or there is none")
        if self.rankfile and self.launcher is not OPEN_MPI:
            raise PlanError("mpi_smoke_rankfile is for Open MPI: leave it out with impi")

    @property
    def ranks(self) -> int:
        return sum(node.slots for node in self.nodes)

    @property
    def sizes(self) -> list[int]:
        return sizes(self.max_bytes, self.size_step) if self.only is None else []

    @cached_property
    def with_peer(self) -> int:
        """So many ranks of a node have a peer: a rank with the same number on another node."""
        return sorted(node.slots for node in self.nodes)[-2] if len(self.nodes) > 1 else 0

    def provable(self, node: Node) -> tuple[str, ...]:
        """The rails by which `node` cannot but send: those of its ranks that have a peer."""
        found = (rail for own in node.by_rank[: self.with_peer] for rail in own)
        return tuple(dict.fromkeys(found)) if self.bind_rails else ()

    @cached_property
    def unbound(self) -> bool:
        """Whether routes choose the rail, and not who sends: UCX before 1.18 does not bind what it
        connects by TCP to the rail's address, and its peers are in other networks than the rail."""
        first: dict[str, str] = {}
        return self.transport == "tcp" and any(
            first.setdefault(rail, network) != network
            for node in self.nodes
            for rail, network in zip(node.rails, node.networks)
        )

    @cached_property
    def rail_runs(self) -> Sequence[Plan]:
        """Where a rank does not have to send by one rail, as it has several (planes) or does not
        bind: a short run for each of its rails. Elsewhere none: the run itself proves them."""
        most = max((len(own) for node in self.nodes for own in node.by_rank), default=0)
        if not self.bind_rails or len(self.nodes) < 2 or (most < 2 and not self.unbound):
            return []
        return [replace(self, only=number) for number in range(most)]

    def subset(self, names: Sequence[str]) -> Plan:
        """The same run on some of the nodes, short: enough to see whether it fails."""
        wanted = set(names)
        return replace(
            self,
            nodes=tuple(node for node in self.nodes if node.name in wanted),
            size_step=max(self.size_step, 64),
            combinations=self.combinations and min(self.combinations, 8),
            iterations=2,
            iterations_large=1,
            warmup=0,
            rankfile="",
        )

    def hostfile(self) -> str:
        return self.launcher.hostfile({node.host: node.slots for node in self.nodes})


def nodes_of(entries: Sequence[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The nodes that run ranks. With fewer slots than GPUs, ranks are not given all rails."""
    found = []
    for entry in entries:
        if entry["role"] != "compute" or entry["drained"]:
            continue
        slots, rails = int(entry["slots"]), entry["rails"]
        given = rails_by_rank(rails_from_model(rails), slots)
        of_gpus = {rail.get("gpu"): rail.get("numa") for rail in rails}
        of_rails = {rail["interface"]: rail.get("numa") for rail in rails}
        by_gpu = tuple(of_gpus.get(gpu) for gpu in range(int(entry.get("gpus", 0))))
        node = Node(
            entry["name"],
            slots,
            tuple(rail["interface"] for rail in rails),
            tuple(float(rail["speed_gbps"] or 0) for rail in rails),
            networks=tuple(rail["network"] or "" for rail in rails),
            numbers=tuple(rail.get("rail") for rail in rails),
            by_rank=tuple(tuple(rail.interface for rail in own) for own in given),
            numa=by_gpu or tuple(of_rails[own[0].interface] for own in given),
        )
        found.append(node)
    return tuple(found)


def sizes(largest: int, step: int) -> list[int]:
    """4 bytes, then `step` times as much each, and the largest whether or not it is reached."""
    found = [4]
    while found[-1] * max(2, step) <= largest:
        found.append(found[-1] * max(2, step))
    whole = largest - largest % 4
    return found if found[-1] == whole else [*found, whole]


def specification(plan: Plan, time_limit_s: float) -> str:
    """Specification for the program of every rank."""
    return json.dumps(
        {
            "sizes": plan.sizes,
            "combinations": plan.combinations,
            "iterations": plan.iterations,
            "iterations_large": plan.iterations_large,
            "large": plan.large_bytes,
            "warmup": plan.warmup,
            "rail_bytes": 0 if plan.only is None and plan.rail_runs else plan.rail_bytes,
            "time_limit_s": max(1, round(time_limit_s)),
            **({"gpu": True} if plan.gpu else {}),
        },
        separators=(",", ":"),
    )


def command(plan: Plan, hosts: str, run_id: str, time_limit_s: float) -> list[str]:
    """mpirun's command line. Devices come from each node's own environment file, by name.

    The run id is with every process of the run, the daemons of the nodes included: by it the sweep
    afterwards finds what was left behind.
    """
    launcher, parameters = plan.launcher, dict(plan.parameters)
    if plan.only is not None and plan.unbound:
        parameters.update(launcher.tcp)
    argv = [*launcher.start(run_id, parameters, hosts, plan.ranks), *launcher.ranks()]
    if plan.program:
        # NCCL finds cores near each GPU by itself, and its NICs in the node's own environment.
        order = ("env", "CUDA_DEVICE_ORDER=PCI_BUS_ID")
        return [*argv, *launcher.mappings["gpu"], *order, *plan.program]
    argv += ["--rankfile", plan.rankfile] if plan.rankfile else launcher.mappings["gpu"]
    if plan.bind_rails:
        argv += [RAIL_BIND, *(["--keep-cpus"] if plan.rankfile else [])]
    argv += ["--only", str(plan.only)] if plan.only is not None else []
    spec = specification(plan, time_limit_s)
    return [*argv, plan.python, PROGRAM, "--run-id", run_id, "--spec", spec]


def as_listed(
    nodes: Sequence[Node], text: str, launcher: Launcher = OPEN_MPI
) -> tuple[tuple[Node, ...], list[str]]:
    """The nodes in the order and by the names of the hostfile, and where it and the model disagree.

    mpirun gives ranks out in the hostfile's order. A hostfile may name a node by one of its rails.
    """
    try:
        entries = hostfile.parse(text, launcher.hostfile_format)
    except ValueError as error:
        return tuple(nodes), [str(error)]
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        by_name.update({hostfile.rail_name(node.name, rail): node for rail in node.rails})
    listed: list[Node] = []
    differences: list[str] = []
    for host, slots in entries.items():
        found = by_name.get(host)
        if found is None:
            differences.append(f"{host}: in the hostfile, and not in the model, or drained")
            continue
        if slots != found.slots:
            differences.append(f"{found.name}: {found.slots} slots, {slots} in the hostfile")
        listed.append(replace(found, address=host))
    names = {node.name for node in listed}
    missing = [node for node in nodes if node.name not in names]
    differences += [f"{node.name}: in the model, and not in the hostfile" for node in missing]
    return (*listed, *missing), differences
