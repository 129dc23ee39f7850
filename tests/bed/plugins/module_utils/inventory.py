# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes of a virtual cluster, read from inventory variables, and names of their interfaces."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

RUN = Path("/run/baremetal-mpi-roce/virtual")
MANAGEMENT = "mgmt0"
"""Name of a node's management interface if the model gives none."""
INTERFACE_LENGTH = 15
CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def fabric_namespace(cluster: str) -> str:
    return f"{cluster}-fabric"


def node_namespace(cluster: str, node: str) -> str:
    """Return the name of a node's namespace and container. Cluster names contain no dot."""
    return f"{cluster}.{node}"


def router_namespace(cluster: str, switch: str) -> str:
    """Return the namespace of a router. No container has this name: host names have no dot."""
    return f"{cluster}.router.{switch}"


def controller_interface(cluster: str) -> str:
    """Return the host's one interface: a readable prefix and a digest that makes it unique."""
    return f"{cluster[:8]}-{_digest(cluster)}"


def leaf_port(node: str, interface: str) -> str:
    """Return the leaf's end of a node's cable, in the fabric's namespace."""
    return short_name(f"{node}-{interface}")


def interface_of(port: str) -> str:
    """Return a port's name in a form Linux accepts: no `/`, at most 15 characters."""
    return short_name(port.replace("/", "-"))


def short_name(name: str) -> str:
    """Return `name` if Linux accepts an interface name of this length, otherwise a shorter one."""
    return name if len(name) <= INTERFACE_LENGTH else f"{name[:8]}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]


class VirtualError(Exception):
    """The nodes cannot be created. The text names subject, reason and remedy."""


@dataclass(frozen=True)
class RailCable:
    """One cable: the node's interface and the leaf at its other end."""

    interface: str
    leaf: str
    leaf_port: str
    network: str
    gateway: Optional[str]
    pci: Optional[str] = None
    """PCI address of the rail's card in a machine. Containers have none."""

    @property
    def prefix(self) -> int:
        return ipaddress.ip_network(self.network).prefixlen


@dataclass(frozen=True)
class VirtualNode:
    name: str
    address: str
    prefix: int
    interface: str
    rails: tuple[RailCable, ...]
    machine: bool = False
    """Whether the node is a virtual machine, cabled with taps, and not a container."""


def controller_address(nodes: Sequence[VirtualNode]) -> str:
    """Return the last address of the management network that is not taken by a node."""
    network = management_network(nodes)
    taken = {ipaddress.ip_address(node.address) for node in nodes}
    candidate = network.broadcast_address - 1
    while candidate in taken:
        candidate -= 1
    return str(candidate)


def management_network(nodes: Sequence[VirtualNode]) -> ipaddress.IPv4Network:
    networks = {ipaddress.IPv4Interface(f"{node.address}/{node.prefix}").network for node in nodes}
    if len(networks) != 1:
        shown = ", ".join(sorted(str(network) for network in networks)) or "no node"
        raise VirtualError(
            f"virtual nodes share one management network; the inventory has {shown}. Give all of "
            "them addresses in one subnet in cluster.yml."
        )
    return networks.pop()


def parse_nodes(
    management: Mapping[str, Mapping[str, Any]],
    rails: Mapping[str, Sequence[Mapping[str, Any]]],
    machines: Collection[str] = (),
) -> tuple[VirtualNode, ...]:
    """Parse nodes from the variables `cluster_management` and `cluster_rails`, by host name."""
    return tuple(
        VirtualNode(
            name=name,
            address=str(settings["address"]),
            prefix=int(settings["prefix"]),
            interface=str(settings.get("interface") or MANAGEMENT),
            rails=tuple(
                RailCable(
                    interface=str(rail["interface"]),
                    leaf=str(rail["leaf"]),
                    leaf_port=str(rail.get("leaf_port") or ""),
                    network=str(rail["network"]),
                    gateway=str(rail["gateway"]) if rail.get("gateway") else None,
                    pci=str(rail["pci"]).lower() if rail.get("pci") else None,
                )
                for rail in rails.get(name) or ()
            ),
            machine=name in machines,
        )
        for name, settings in management.items()
    )
