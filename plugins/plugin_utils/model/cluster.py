# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The compiled model: every host with what the layers need to know of it.

Field names are those of the host variables in docs/architecture.md.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.software.software_set import SoftwareSet
from ...module_utils.storage.file_system import FileSystem
from ..qos import Contract


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
class PortGroup:
    """Ports of one switch that differ in their peer alone.

    All cables of one rail, or one link to each spine, have the same interface at their other end.
    So a port costs one line, not ten, of an inventory that has 100,000 of them at 10,000 nodes.
    """

    kind: str
    """`host` to a node, `storage` to a storage host, `uplink` to a spine, `downlink` to a leaf."""
    peer_interface: str
    speed_gbps: int
    mtu: int
    rail: Optional[int] = None
    plane: Optional[int] = None
    prefix: Optional[int] = None
    address: Optional[str] = None
    """The gateway that these ports share, with `subnet_per_rail`."""
    peers: dict[str, str] = field(default_factory=dict)
    """Port to peer."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Port to its own address, with `point_to_point`."""


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
    system: str = ""
    """`sonic`, `nvue` or `eos`; empty where nobody says."""
    asic: str = ""
    """Likewise."""
    ports: list[PortGroup] = field(default_factory=list)


@dataclass
class Cluster:
    name: str
    domain: str
    mpi_user: str
    mpi_uid: int
    addressing: str
    rail_networks: list[str]
    """Networks that hold every rail, where a rail's own does not: links of two addresses."""
    roce_qos: Contract
    software: SoftwareSet
    filesystems: tuple[FileSystem, ...]
    slots: int
    """Of a node that says nothing else."""
    gpus: list[Gpu]
    """Likewise."""
    nodes: list[Node]
    launcher: Host
    storage: list[Host]
    leaves: list[Switch]
    spines: list[Switch]
    asics: dict[str, dict[str, Any]]
    """By chip, as the model says it."""
    group_vars: dict[str, dict[str, Any]]


def rack_group(rack: str) -> str:
    """The Ansible group of a rack: what no group name may have becomes an underscore."""
    return "rack_" + re.sub(r"[^A-Za-z0-9_]", "_", rack)
