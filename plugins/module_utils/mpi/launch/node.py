# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes that run ranks, from the model and in the order of the hostfile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from ...names import rail_name
from .. import hostfile
from ..environment import rails_by_rank, rails_from_model
from .launcher import OPEN_MPI, Launcher


@dataclass(frozen=True)
class LaunchNode:
    """A node that runs ranks. The model supplies the fields up to `numa` and those about its
    kind, the node the others."""

    name: str
    slots: int
    rails: tuple[str, ...] = ()
    speeds: tuple[float, ...] = ()
    """Speed of each rail in Gb/s."""
    address: str = ""
    """The name by which mpirun and ssh connect, if it is not `name`."""
    networks: tuple[str, ...] = ()
    numbers: tuple[Optional[int], ...] = ()
    """Number of each rail in the model; the planes of a NIC share one."""
    by_rank: tuple[tuple[str, ...], ...] = ()
    numa: tuple[Optional[int], ...] = ()
    """NUMA node of each GPU; on a node without GPUs, of the rail of each rank."""
    devices: tuple[tuple[str, str], ...] = ()
    """Maps RDMA device and port (`mlx5_0:1`) to one of its interfaces."""
    software: bool = False
    """Whether the RDMA devices are Soft-RoCE, whose speed is nominal."""
    kind: str = ""
    """Empty if the model has no kinds of nodes."""
    gpus_expected: bool = True
    """Whether the model has GPUs here; true as well if it has no kinds of nodes."""
    gpus: int = 0
    cuda: tuple[str, ...] = ()
    """Which of `UCX` and `Open MPI` were built with CUDA."""
    slurm_gpus: int = 0
    """GPUs that Slurm has on it, if Slurm starts the ranks."""
    nccl_tests: bool = False
    """Whether all_reduce_perf of nccl-tests is installed."""

    @property
    def host(self) -> str:
        return self.address or self.name

    @property
    def line_rate_gbytes_s(self) -> float:
        """Total line rate of its rails in each direction, in 10^9 bytes per second."""
        return sum(self.speeds) / 8

    @property
    def given(self) -> tuple[str, ...]:
        """Rails that ranks use; all rails where the assignment is unknown."""
        return tuple(dict.fromkeys(rail for own in self.by_rank for rail in own)) or self.rails

    def of_devices(self, devices: Sequence[tuple[str, str]]) -> LaunchNode:
        """The node with the RDMA devices that it reported.

        Planes that a NIC balances in hardware become one rail: only the first plane has an RDMA
        device then (nic-configuration-operator 632f1295).
        """
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
        kept = [index for index, rail in enumerate(self.rails) if rail in speeds]
        return replace(
            node,
            rails=tuple(speeds),
            speeds=tuple(speeds.values()) if self.speeds else (),
            networks=tuple(self.networks[index] for index in kept) if self.networks else (),
            numbers=tuple(self.numbers[index] for index in kept),
            by_rank=tuple(tuple(r for r in own if r in speeds) for own in self.by_rank),
        )


def nodes_of(entries: Sequence[Mapping[str, Any]]) -> tuple[LaunchNode, ...]:
    """The compute nodes in service, from the table of the cluster's hosts."""
    nodes = []
    for entry in entries:
        if entry["role"] != "compute" or entry["drained"]:
            continue
        slots, rails = int(entry["slots"]), entry["rails"]
        if not slots:
            continue  # a service node
        by_rank = rails_by_rank(rails_from_model(rails), slots)
        numa = {rail.get("gpu"): rail.get("numa") for rail in rails}
        numa.update({rail["interface"]: rail.get("numa") for rail in rails})
        by_gpu = tuple(numa.get(gpu) for gpu in range(int(entry.get("gpus", 0))))
        nodes.append(
            LaunchNode(
                entry["name"],
                slots,
                rails=tuple(rail["interface"] for rail in rails),
                speeds=tuple(float(rail["speed_gbps"] or 0) for rail in rails),
                networks=tuple(rail["network"] or "" for rail in rails),
                numbers=tuple(rail.get("rail") for rail in rails),
                by_rank=tuple(tuple(rail.interface for rail in own) for own in by_rank),
                numa=by_gpu or tuple(numa[own[0].interface] for own in by_rank),
                kind=entry.get("kind", ""),
                gpus_expected="kind" not in entry or bool(by_gpu),
            )
        )
    return tuple(nodes)


def slots_of(nodes: Sequence[LaunchNode], launcher: Launcher) -> dict[str, int]:
    """Slots by the name that the launcher uses: Slurm has the names of the model."""
    return {node.name if launcher.scheduled else node.host: node.slots for node in nodes}


def with_rails(nodes: Sequence[LaunchNode]) -> tuple[LaunchNode, ...]:
    """The nodes with rails, if there are any: no transport connects them to the others."""
    return tuple(node for node in nodes if node.rails) or tuple(nodes)


def as_listed(
    nodes: Sequence[LaunchNode], path: Path, launcher: Launcher = OPEN_MPI
) -> tuple[tuple[LaunchNode, ...], list[str]]:
    """The nodes in the order and with the names of the hostfile, which may be those of a rail, and
    its deviations from the model."""
    try:
        entries = hostfile.parse(path.read_text(encoding="utf-8"), launcher.hostfile_format)
    except (OSError, ValueError) as error:
        return tuple(nodes), [str(error)]
    by_name = {node.name: node for node in nodes}
    for node in nodes:
        by_name.update({rail_name(node.name, rail): node for rail in node.rails})
    listed: list[LaunchNode] = []
    differences: list[str] = []
    for host, slots in entries.items():
        known = by_name.get(host)
        if known is None:
            differences.append(f"{host}: in the hostfile, but drained or not in the model")
            continue
        if slots != known.slots:
            differences.append(f"{known.name}: {known.slots} slots, {slots} in the hostfile")
        listed.append(replace(known, address=host))
    names = {node.name for node in listed}
    missing = [node for node in nodes if node.name not in names]
    differences += [
        f"{node.name}: in the model, but not in the hostfile"
        for node in missing
        if node in with_rails(nodes)
    ]
    return (*listed, *missing), differences
