# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The compiled model: every host with what the layers need to know of it.

Field names are those of the host variables in docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional


@dataclass
class Management:
    address: str
    prefix: int
    interface: str


@dataclass
class Gpu:
    index: int
    pci: Optional[str]
    numa: Optional[int]


@dataclass
class Rail:
    """One plane of one rail of one node."""

    rail: int
    plane: int
    interface: str
    pci: Optional[str]
    address: str
    prefix: int
    network: str
    gateway: Optional[str]
    mtu: int
    speed_gbps: int
    leaf: str
    leaf_port: str
    gpu: Optional[int]
    numa: Optional[int]


@dataclass
class Port:
    """One used port of a leaf or spine."""

    port: str
    kind: str
    peer: str
    peer_interface: str
    speed_gbps: int
    mtu: int
    address: Optional[str]
    prefix: Optional[int]
    rail: Optional[int]
    plane: Optional[int]


@dataclass
class Host:
    name: str
    role: str
    management: Management
    vars: dict[str, Any] = field(default_factory=dict)


@dataclass
class Node(Host):
    index: int = 0
    rack: str = ""
    slots: int = 0
    drained: bool = False
    gpus: list[Gpu] = field(default_factory=list)
    rails: list[Rail] = field(default_factory=list)


@dataclass
class Switch(Host):
    ports: list[Port] = field(default_factory=list)


@dataclass
class Cluster:
    name: str
    domain: str
    mpi_user: str
    mpi_uid: int
    addressing: str
    slots: int
    """Of a node that says nothing else."""
    gpus: list[Gpu]
    """Likewise."""
    nodes: list[Node]
    launcher: Host
    storage: list[Host]
    leaves: list[Switch]
    spines: list[Switch]
    group_vars: dict[str, dict[str, Any]]
