# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster as Slurm describes it: nodes, their hardware by kind, and the tree of switches.

Compiled on the controller from the variables of the model, and passed to nodes as one short text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Optional

from ..core.text import ranges
from . import topology
from .hostlist import compress, expand
from .topology import Switch

SLURM = "slurm"
"""Value of `cluster_scheduler`."""


@dataclass(frozen=True)
class Cpu:
    sockets: int
    cores: int
    """Of a socket."""
    threads: int
    """Of a core."""
    memory_mb: int
    """That jobs may use."""
    numa_nodes: int = 0
    """Of a node; 0: one of each socket."""

    @property
    def cpus(self) -> int:
        return self.sockets * self.cores * self.threads

    def cores_of(self, numa: Optional[int]) -> str:
        """Slurm's numbers of the cores of a NUMA node; empty if unknown.

        Slurm numbers cores as hwloc does: socket by socket, and NUMA node by NUMA node.
        """
        total, several = self.sockets * self.cores, self.numa_nodes or self.sockets
        if numa is None or not 0 <= numa < several or total % several:
            return ""
        each = total // several
        return ranges(range(numa * each, (numa + 1) * each))


@dataclass(frozen=True)
class Gpu:
    index: int
    cores: str
    """Slurm's numbers of the cores next to it: `0-55`; empty if unknown."""
    rails: tuple[str, ...]
    """Interfaces of the NICs next to it."""


@dataclass(frozen=True)
class Hardware:
    """What nodes of one kind have."""

    kind: str
    """Empty in a model without kinds."""
    cpu: Cpu
    gpu_type: str = ""
    gpus: tuple[Gpu, ...] = ()

    @property
    def gres(self) -> str:
        """`gpu:b300:8`; empty without GPUs."""
        words = ["gpu", *([self.gpu_type] if self.gpu_type else []), str(len(self.gpus))]
        return ":".join(words) if self.gpus else ""


@dataclass(frozen=True)
class SlurmNode:
    name: str
    address: str
    hardware: Hardware
    rack: str = ""
    drained: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Its groups of the inventory by kind and rack."""
        kind = self.hardware.kind
        return tuple(name for name in (f"kind_{kind}" if kind else "", self.rack) if name)


@dataclass(frozen=True)
class SlurmCluster:
    name: str
    controllers: tuple[tuple[str, str], ...]
    """Name and address of each launcher, the primary controller first."""
    nodes: tuple[SlurmNode, ...]
    switches: tuple[Switch, ...] = ()
    """Leaf sets first, then what connects them; the names of nodes are those of `nodes`."""

    @property
    def hardware(self) -> list[Hardware]:
        return list(dict.fromkeys(node.hardware for node in self.nodes))

    @property
    def kinds(self) -> dict[str, list[SlurmNode]]:
        """Nodes by kind."""
        found: dict[str, list[SlurmNode]] = {}
        for node in self.nodes:
            found.setdefault(node.hardware.kind, []).append(node)
        return found

    def groups(self) -> list[list[SlurmNode]]:
        """Consecutive nodes that differ only in name and address."""

        def alike(node: SlurmNode) -> tuple[Any, ...]:
            return node.hardware, node.rack, node.drained

        return [list(group) for _key, group in groupby(self.nodes, alike)]

    def as_text(self) -> str:
        """JSON without the names of single nodes, so that all nodes can have it as an argument."""
        hardware = self.hardware
        groups = [
            [
                compress(node.name for node in group),
                compress(node.address for node in group),
                hardware.index(group[0].hardware),
                group[0].rack,
                group[0].drained,
            ]
            for group in self.groups()
        ]
        switches = [
            [each.name, each.level, compress(each.nodes), compress(each.switches)]
            for each in self.switches
        ]
        return json.dumps(
            {
                "name": self.name,
                "controllers": self.controllers,
                "hardware": [asdict(each) for each in hardware],
                "nodes": groups,
                "switches": switches,
            },
            separators=(",", ":"),
        )

    @classmethod
    def of_text(cls, text: str) -> SlurmCluster:
        data = json.loads(text)
        hardware = [
            Hardware(
                each["kind"],
                Cpu(**each["cpu"]),
                each["gpu_type"],
                tuple(Gpu(gpu["index"], gpu["cores"], tuple(gpu["rails"])) for gpu in each["gpus"]),
            )
            for each in data["hardware"]
        ]
        nodes = (
            SlurmNode(name, address, hardware[kind], rack, drained)
            for names, addresses, kind, rack, drained in data["nodes"]
            for name, address in zip(expand(names), expand(addresses))
        )
        switches = (
            Switch(name, level, tuple(expand(own)), tuple(expand(below)))
            for name, level, own, below in data["switches"]
        )
        controllers = tuple((name, address) for name, address in data["controllers"])
        return cls(data["name"], controllers, tuple(nodes), tuple(switches))


def compile_cluster(hosts: Mapping[str, Mapping[str, Any]]) -> SlurmCluster:
    """Compile the variables of all hosts of the model, by host, in its order."""
    compute = [(name, own) for name, own in hosts.items() if own["cluster_role"] == "compute"]
    launchers = [(name, own) for name, own in hosts.items() if own["cluster_role"] == "launcher"]
    compute.sort(key=lambda item: item[1]["cluster_index"])
    known: dict[Hardware, Hardware] = {}
    nodes = []
    for name, own in compute:
        hardware = _hardware(own)
        hardware = known.setdefault(hardware, hardware)
        rack = _rack_group(str(own.get("cluster_rack", "")))
        address = own["cluster_management"]["address"]
        nodes.append(SlurmNode(name, address, hardware, rack, own["cluster_drained"]))
    return SlurmCluster(
        name=next(iter(hosts.values()))["cluster_name"],
        controllers=tuple((name, own["cluster_management"]["address"]) for name, own in launchers),
        nodes=tuple(nodes),
        switches=topology.tree(hosts, [node.name for node in nodes]),
    )


def _rack_group(rack: str) -> str:
    """As the group of the inventory."""
    letters = (each if each.isascii() and each.isalnum() else "_" for each in rack)
    return f"rack_{''.join(letters)}" if rack else ""


def _hardware(own: Mapping[str, Any]) -> Hardware:
    cpu = Cpu(**own["cluster_cpu"])
    rails: dict[int, list[Mapping[str, Any]]] = {}
    for rail in own["cluster_rails"]:
        if rail["gpu"] is not None:
            rails.setdefault(rail["gpu"], []).append(rail)
    gpus = []
    for gpu in own["cluster_gpus"]:
        near = rails.get(gpu["index"], [])
        numas = _known([gpu["numa"], *(rail["numa"] for rail in near)])
        cores = cpu.cores_of(numas[0] if numas else None)
        gpus.append(Gpu(gpu["index"], cores, tuple(rail["interface"] for rail in near)))
    driver = own["cluster_software"].get("driver") or {}
    kind = own.get("cluster_kind", "")
    return Hardware(kind, cpu, str(driver.get("gpu") or "").lower(), tuple(gpus))


def _known(numbers: Iterable[Optional[int]]) -> list[int]:
    return [number for number in numbers if number is not None]
