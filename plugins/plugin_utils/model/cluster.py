# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The compiled model: every host with its attributes, and its Ansible variables.

Fields have the names of the host variables in docs/architecture.md. Values common to all hosts are
group variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ..schema.findings import Finding

ROLES = ("compute", "launcher", "storage", "leaf", "spine")
"""Roles of hosts, which are also groups of the inventory, in the order in which they are shown."""
HOST_ROLES = ("compute", "launcher", "storage")
"""Roles of servers, which have entries in the cluster facts."""


@dataclass
class RailPlane:
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
    networks: list[str] = field(init=False, repr=False, compare=False)
    """What it reaches through its gateway, if planes are apart; otherwise the rail has no such
    value, and `cluster_rail_networks` is for all."""
    members: list[dict[str, Any]] = field(init=False, repr=False, compare=False)
    """Of a bond: `plane`, `interface`, `pci`, `speed_gbps`, `leaf` and `leaf_port` of each member;
    leaf and port of the rail are those of the first. Other rails have no such value."""
    plane_network: str = field(init=False, repr=False, compare=False)
    """The prefix of its plane, if planes are apart and each has one."""


@dataclass
class PortGroup:
    """Ports of one switch that differ only in their peer.

    All cables of a rail, and all first links to spines, end at the same interface name. Groups
    limit the size of the inventory: 10,000 nodes have 100,000 ports.
    """

    kind: str
    """`host` (to a node), `storage` (to a storage host), `uplink` (to a spine), `downlink` or
    `peer` (to the other switch of a pair)."""
    peer_interface: str
    speed_gbps: int
    mtu: int
    rail: Optional[int] = None
    plane: Optional[int] = None
    prefix: Optional[int] = None
    address: Optional[str] = None
    """The gateway shared by these ports, with `subnet_per_rail`."""
    peers: dict[str, str] = field(default_factory=dict)
    """Port to peer."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Port to address, with `point_to_point`."""
    channels: dict[str, str] = field(init=False, repr=False, compare=False)
    """Port to the name of its port channel, or to an empty text if any name fits. Those with the
    same peer, and bond of it, form one. Without port channels, there is no such value."""
    pairs: dict[str, str] = field(init=False, repr=False, compare=False)
    """Peer to the pair of switches of which it is one, if both are one end of its channel."""
    bond: str = field(init=False, repr=False, compare=False)
    """The bond of the peer, a host, that has the ports of the channels."""


@dataclass
class ClusterHost:
    name: str
    role: str
    management: dict[str, Any]
    """`cluster_management`."""
    vars: dict[str, Any] = field(default_factory=dict)
    bmc: str = ""
    networks: list[dict[str, Any]] = field(default_factory=list)
    """`cluster_networks`."""
    groups: Sequence[str] = ()
    """Groups in addition to the role."""
    more: dict[str, Any] = field(default_factory=dict)
    """Variables that only some models set."""
    unit: Optional[int] = None
    """From 0, as set and plane; None if the cluster has one, or the host belongs to several."""
    leaf_set: Optional[int] = None
    plane: Optional[int] = None


@dataclass
class ComputeNode(ClusterHost):
    index: int = 0
    rack: str = ""
    slots: int = 0
    drained: bool = False
    kind: str = ""
    """Empty if the model has no kinds."""
    gpus: list[dict[str, Any]] = field(default_factory=list)
    rails: list[RailPlane] = field(default_factory=list)


@dataclass
class ClusterSwitch(ClusterHost):
    system: str = ""
    """Name of a switch system (`fabric.systems`); empty if the model names none."""
    asic: str = ""
    rack: str = ""
    port_step: int = 0
    """Increment of port numbers computed from the lanes of the chip; 0: not computed."""
    port_ranges: Sequence[str] = ()
    """Names of all ports as in the model, if it has them by purpose."""
    ports: list[PortGroup] = field(default_factory=list)


@dataclass
class Cluster:
    name: str
    variables: dict[str, dict[str, Any]]
    """Values common to the hosts of a group, by group."""
    nodes: list[ComputeNode]
    launchers: list[ClusterHost]
    storage: list[ClusterHost]
    switches: list[ClusterSwitch]
    """Tier by tier, leaves first."""
    group_vars: dict[str, dict[str, Any]]
    """Written by the operator, by group."""
    doubts: tuple[Finding, ...] = ()
    """Valid settings that are probably mistakes."""

    @property
    def leaves(self) -> list[ClusterSwitch]:
        return [switch for switch in self.switches if switch.role == "leaf"]

    @property
    def spines(self) -> list[ClusterSwitch]:
        """Every switch above the leaves."""
        return [switch for switch in self.switches if switch.role == "spine"]


def rack_group(rack: str) -> str:
    """The Ansible group of a rack; invalid characters become underscores."""
    return "rack_" + re.sub(r"[^A-Za-z0-9_]", "_", rack)


def kind_group(kind: str) -> str:
    """The Ansible group of a kind of nodes; empty if the model has no kinds."""
    return f"kind_{kind}" if kind else ""


DIGEST = "cluster_digest"
NAMES = (
    *("cluster_name", "cluster_domain", "cluster_mpi_user", "cluster_mpi_uid"),
    *("cluster_addressing", "cluster_rail_networks", "cluster_asics", "roce_qos", "cluster_qos"),
    *(
        "cluster_software",
        "cluster_filesystems",
        "cluster_scheduler",
        "cluster_role",
        "cluster_management",
    ),
    *("cluster_bmc", "cluster_networks", "cluster_management_networks"),
    *(
        "cluster_index",
        "cluster_kind",
        "cluster_rack",
        "cluster_slots",
        "cluster_drained",
        "cluster_gpus",
        "cluster_cpu",
    ),
    *("cluster_rails", "cluster_system", "cluster_asic", "cluster_ports", "cluster_port_step"),
    "cluster_port_ranges",
    "cluster_cabling",
    *("cluster_unit", "cluster_set", "cluster_plane"),
    *("cluster_asn", "cluster_loopback", "cluster_vlans", "cluster_storage_links"),
)
"""Variables of the model that the inventory must not override; not `ansible_host`."""


@dataclass
class InventoryHost:
    name: str
    groups: tuple[str, ...]
    variables: dict[str, Any]
    """Computed by the model; never templates."""
    site_variables: dict[str, Any]
    """Written by the operator; may be templates."""


@dataclass
class Inventory:
    group_variables: dict[str, dict[str, Any]]
    site_group_variables: dict[str, dict[str, Any]]
    hosts: list[InventoryHost] = field(default_factory=list)

    def merged(self, host: InventoryHost) -> dict[str, Any]:
        """The model's variables of a host, merged as by Ansible."""
        merged = dict(self.group_variables["all"])
        for group in host.groups:
            merged.update(self.group_variables[group])
        merged.update(host.variables)
        return merged


def inventory_of(cluster: Cluster) -> Inventory:
    groups = {role: {**cluster.variables.get(role, {}), "cluster_role": role} for role in ROLES}
    groups["all"] = cluster.variables["all"]
    for node in cluster.nodes:
        groups.setdefault(rack_group(node.rack), {"cluster_rack": node.rack})
        if node.kind:
            group = kind_group(node.kind)
            groups.setdefault(
                group, {"cluster_kind": node.kind, **cluster.variables.get(group, {})}
            )
    for switch in cluster.switches:
        groups.update({group: {} for group in switch.groups})
    return Inventory(groups, cluster.group_vars, list(_hosts(cluster)))


def _hosts(cluster: Cluster) -> Iterator[InventoryHost]:
    common = cluster.variables["compute"]
    for node in cluster.nodes:
        own = {
            "cluster_slots": node.slots,
            "cluster_drained": node.drained,
            "cluster_gpus": node.gpus,
        }
        variables = {
            **_of_host(node),
            "cluster_index": node.index,
            "cluster_rails": _plain(node.rails),
            **{name: value for name, value in own.items() if value != common[name]},
        }
        of_kind = (kind_group(node.kind),) if node.kind else ()
        groups = ("compute", rack_group(node.rack), *node.groups, *of_kind)
        yield InventoryHost(node.name, groups, variables, node.vars)
    for host in (*cluster.launchers, *cluster.storage):
        yield InventoryHost(host.name, (host.role,), _of_host(host), host.vars)
    for switch in cluster.switches:
        groups = (switch.role, *switch.groups)
        yield InventoryHost(switch.name, groups, _of_switch(switch), switch.vars)


def _of_host(host: ClusterHost) -> dict[str, Any]:
    variables = {"ansible_host": host.management["address"], "cluster_management": host.management}
    if host.bmc:
        variables["cluster_bmc"] = host.bmc
    if host.networks:
        variables["cluster_networks"] = host.networks
    if host.unit is not None:
        variables["cluster_unit"] = host.unit + 1
    if host.leaf_set is not None:
        variables["cluster_set"] = host.leaf_set + 1
    if host.plane is not None:
        variables["cluster_plane"] = host.plane
    variables.update(host.more)
    return variables


def _of_switch(switch: ClusterSwitch) -> dict[str, Any]:
    variables = {
        **_of_host(switch),
        "cluster_system": switch.system,
        "cluster_asic": switch.asic,
        "cluster_ports": _plain(switch.ports),
    }
    if switch.rack:
        variables["cluster_rack"] = switch.rack
    if switch.port_step:
        variables["cluster_port_step"] = switch.port_step
    if switch.port_ranges:
        variables["cluster_port_ranges"] = list(switch.port_ranges)
    return variables


def _plain(records: Iterable[Any]) -> list[dict[str, Any]]:
    """Convert dataclasses to their dictionaries without copying a million values."""
    return [vars(record) for record in records]
