# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The network of a virtual cluster: one namespace per node, one for its leaves, veths as cables.

All of it lies in named network namespaces: `<cluster>-fabric` holds a bridge per leaf and the
management bridge, `<cluster>.<node>` holds a node's interfaces. The host itself gets one interface
only, the controller's port on the management bridge. So nothing of the host's own network, firewall
or routing is touched, and deleting the namespaces removes everything.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from .inventory import Node, VirtualNetworkError, controller_address, management_network
from .names import (
    CLUSTER_NAME,
    controller_interface,
    fabric_namespace,
    node_namespace,
    short_name,
)

MANAGEMENT_BRIDGE = "management"
CONTROLLER_PORT = "controller"
LEAF_MTU = 9216
"""What a leaf carries; the nodes choose their own MTU below it."""


@dataclass(frozen=True)
class Port:
    """An interface as it is wanted: where, up, with which bridge, MTU and addresses."""

    namespace: str
    name: str
    bridge: Optional[str] = None
    mtu: Optional[int] = None
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cable:
    """A veth pair. `near` is the leaf's end; a rail's `far` end belongs to the node's roles."""

    near: Port
    far: Port
    label: str


@dataclass(frozen=True)
class Plan:
    cluster: str
    namespaces: tuple[str, ...]
    bridges: tuple[Port, ...]
    cables: tuple[Cable, ...]
    management: str
    """The host's interface on the management network."""
    controller: str
    """Its address."""
    network: ipaddress.IPv4Network

    @property
    def fabric(self) -> str:
        return self.namespaces[0]

    @property
    def ports(self) -> tuple[Port, ...]:
        """What the plan holds as it is wanted. A rail's far end is the node's own business."""
        ends = [cable.near for cable in self.cables]
        ends += [cable.far for cable in self.cables if cable.far.addresses]
        return (*self.bridges, *ends)


def plan_network(
    cluster: str, nodes: Sequence[Node], *, point_to_point: bool = False, controller: str = ""
) -> Plan:
    """Everything that is to be there, from the inventory alone."""
    if not CLUSTER_NAME.fullmatch(cluster):
        raise VirtualNetworkError(
            f"cluster name {cluster!r}: use lower-case letters, digits and hyphens"
        )
    network = management_network(nodes)
    address = controller or controller_address(nodes)
    fabric = fabric_namespace(cluster)
    host_port = controller_interface(cluster)
    cables = [
        Cable(
            Port(fabric, CONTROLLER_PORT, MANAGEMENT_BRIDGE),
            Port("", host_port, addresses=(f"{address}/{network.prefixlen}",)),
            f"controller of {cluster}",
        )
    ]
    for node in nodes:
        cables += _cables(node, fabric, node_namespace(cluster, node.name), point_to_point)
    gateways = {} if point_to_point else leaf_gateways(nodes)
    leaves = dict.fromkeys(rail.leaf for node in nodes for rail in node.rails)
    bridges = [Port(fabric, MANAGEMENT_BRIDGE)]
    bridges += [
        Port(fabric, short_name(leaf), mtu=LEAF_MTU, addresses=gateways.get(leaf, ()))
        for leaf in leaves
    ]
    namespaces = (fabric, *(node_namespace(cluster, node.name) for node in nodes))
    plan = Plan(cluster, namespaces, tuple(bridges), tuple(cables), host_port, address, network)
    _refuse_double_names(plan)
    return plan


def _cables(node: Node, fabric: str, namespace: str, point_to_point: bool) -> list[Cable]:
    management = Cable(
        Port(fabric, short_name(f"{node.name}-{node.interface}"), MANAGEMENT_BRIDGE),
        Port(namespace, node.interface, addresses=(f"{node.address}/{node.prefix}",)),
        f"{node.name} {node.interface}",
    )
    cables = [management]
    for rail in node.rails:
        near = Port(
            fabric,
            short_name(f"{node.name}-{rail.interface}"),
            bridge=None if point_to_point else short_name(rail.leaf),
            mtu=LEAF_MTU,
            addresses=(f"{rail.gateway}/{rail.prefix}",) if point_to_point and rail.gateway else (),
        )
        label = f"{node.name} {rail.interface} on {rail.leaf} {rail.leaf_port}".rstrip()
        cables.append(Cable(near, Port(namespace, rail.interface), label))
    return cables


def leaf_gateways(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """Leaf -> the gateway addresses it carries, one per rail network that ends on it."""
    home: dict[str, str] = {}
    gateways: dict[str, dict[str, None]] = {}
    for rail in (rail for node in nodes for rail in node.rails if rail.gateway):
        if home.setdefault(rail.network, rail.leaf) != rail.leaf:
            raise VirtualNetworkError(
                f"rail network {rail.network} ends on {home[rail.network]} and on {rail.leaf}: its "
                "gateway can stand on one leaf only. Give each leaf a network of its own in "
                "cluster.yml."
            )
        gateways.setdefault(rail.leaf, {})[f"{rail.gateway}/{rail.prefix}"] = None
    return {leaf: tuple(addresses) for leaf, addresses in gateways.items()}


def _refuse_double_names(plan: Plan) -> None:
    seen: set[tuple[str, str]] = set()
    for port in [
        *plan.bridges,
        *(port for cable in plan.cables for port in (cable.near, cable.far)),
    ]:
        if (port.namespace, port.name) in seen:
            raise VirtualNetworkError(
                f"two interfaces of the virtual network would be called {port.name} in "
                f"{port.namespace or 'the host'}. Rename the node, rail or leaf in cluster.yml."
            )
        seen.add((port.namespace, port.name))
