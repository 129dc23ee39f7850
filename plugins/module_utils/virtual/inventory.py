# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The nodes to make, from the inventory's `cluster_management` and `cluster_rails`."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .names import INTERFACE_LENGTH, MANAGEMENT


class VirtualNetworkError(Exception):
    """The inventory asks for a network that cannot be; the text says what and the way out."""


@dataclass(frozen=True)
class Rail:
    """One cable: the node's interface and the leaf it ends on."""

    interface: str
    leaf: str
    leaf_port: str
    network: str
    gateway: Optional[str]
    pci: Optional[str] = None
    """Where a machine has the rail's card; a container's has no such address."""

    @property
    def prefix(self) -> int:
        return ipaddress.ip_network(self.network).prefixlen


@dataclass(frozen=True)
class Node:
    name: str
    address: str
    prefix: int
    interface: str
    rails: tuple[Rail, ...]
    machine: bool = False
    """A machine with a kernel of its own, cabled by taps; else a container in a namespace."""


def controller_address(nodes: Sequence[Node]) -> str:
    """The last address of the management network that no node has."""
    network = management_network(nodes)
    taken = {ipaddress.ip_address(node.address) for node in nodes}
    candidate = network.broadcast_address - 1
    while candidate in taken and candidate > network.network_address:
        candidate -= 1
    if candidate <= network.network_address:
        raise VirtualNetworkError(
            f"management network {network}: the nodes use every address, and the controller needs "
            "one. Widen the management prefix in cluster.yml."
        )
    return str(candidate)


def management_network(nodes: Sequence[Node]) -> ipaddress.IPv4Network:
    networks = {ipaddress.IPv4Interface(f"{node.address}/{node.prefix}").network for node in nodes}
    if len(networks) != 1:
        shown = ", ".join(sorted(str(network) for network in networks)) or "no node"
        raise VirtualNetworkError(
            f"virtual nodes share one management network; the inventory has {shown}. Give all of "
            "them addresses in one subnet in cluster.yml."
        )
    return networks.pop()


def parse_nodes(
    management: Mapping[str, Mapping[str, Any]],
    rails: Mapping[str, Sequence[Mapping[str, Any]]],
    machines: Collection[str] = (),
) -> tuple[Node, ...]:
    """Nodes from the inventory's `cluster_management` and `cluster_rails`, by host name."""
    nodes = []
    for name, settings in management.items():
        try:
            node = Node(
                name=name,
                address=str(settings["address"]),
                prefix=int(settings["prefix"]),
                interface=str(settings.get("interface") or MANAGEMENT),
                rails=tuple(
                    Rail(
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
        except KeyError as error:
            raise VirtualNetworkError(
                f"host {name}: cluster_management or cluster_rails has no key {error}. Describe "
                "the cluster in cluster.yml, or set the variables docs/architecture.md lists."
            ) from error
        for interface in [node.interface, *(rail.interface for rail in node.rails)]:
            if len(interface) > INTERFACE_LENGTH:
                raise VirtualNetworkError(
                    f"host {name}: interface name {interface!r} has more than {INTERFACE_LENGTH} "
                    "characters, which Linux refuses. Shorten it in cluster.yml."
                )
        nodes.append(node)
    return tuple(nodes)
