# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The network of a virtual cluster: a namespace per container, one for the leaves, and cables.

All of it lies in named network namespaces: `<cluster>-fabric` holds a bridge per leaf and the
management bridge, `<cluster>.<node>` holds a container's interfaces. A container's cables are veth
pairs, a machine's are taps: its QEMU runs in the fabric's namespace and holds their other ends. The
host itself gets one interface only, the controller's port on the management bridge. So nothing of
the host's own network, firewall or routing is touched, and deleting the namespaces removes
everything.

In a routed fabric each leaf and spine is a router in a namespace `<cluster>.router.<leaf>`, with
the rails' gateways on the leaves and the cables of the model between leaves and spines.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Optional

from ..qos import IP_MTU_LIMITS
from .inventory import (
    CLUSTER_NAME,
    Node,
    VirtualError,
    controller_address,
    controller_interface,
    fabric_namespace,
    leaf_port,
    management_network,
    node_namespace,
    short_name,
)
from .routing import UPLINK, Router, Switches, interface_of, routers_of

MANAGEMENT_BRIDGE = "management"
CONTROLLER_PORT = "controller"
LEAF_MTU = IP_MTU_LIMITS[1]
"""What a leaf carries: whatever MTU the nodes choose."""


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
class Tap:
    """The leaf's end of a cable whose other end is a machine's network card."""

    near: Port
    label: str


@dataclass(frozen=True)
class Plan:
    cluster: str
    namespaces: tuple[str, ...]
    bridges: tuple[Port, ...]
    cables: tuple[Cable, ...]
    taps: tuple[Tap, ...]
    management: str
    """The host's interface on the management network."""
    controller: str
    """Its address."""
    network: ipaddress.IPv4Network
    routers: tuple[Router, ...] = ()
    """Leaves and spines of a routed fabric."""

    @property
    def fabric(self) -> str:
        return self.namespaces[0]

    @property
    def near(self) -> tuple[str, ...]:
        """Namespaces with the near ends of cables: nobody but the plan makes interfaces there."""
        leaves = (router.namespace for router in self.routers if not router.spine)
        return (self.fabric, *leaves)

    @property
    def far(self) -> tuple[str, ...]:
        """The same of far ends: the spines. A node's far ends are the node's own business."""
        return tuple(router.namespace for router in self.routers if router.spine)

    @property
    def ports(self) -> tuple[Port, ...]:
        """What the plan holds as it is wanted. A rail's far end is the node's own business."""
        ends = [cable.near for cable in self.cables] + [tap.near for tap in self.taps]
        ends += [cable.far for cable in self.cables if cable.far.addresses or cable.far.mtu]
        return (*self.bridges, *ends)


def plan_network(
    cluster: str,
    nodes: Sequence[Node],
    *,
    point_to_point: bool = False,
    controller: str = "",
    switches: Switches = MappingProxyType({}),
) -> Plan:
    """Everything that is to be there, from the inventory alone.

    `switches`: leaves and spines of a routed fabric, by name, with their ports.
    """
    if not CLUSTER_NAME.fullmatch(cluster):
        raise VirtualError(f"cluster name {cluster!r}: use lower-case letters, digits and hyphens")
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
    taps: list[Tap] = []
    routers = routers_of(cluster, switches, nodes)
    homes = {router.name: router.namespace for router in routers}
    for node in nodes:
        laid = _cables(node, fabric, node_namespace(cluster, node.name), point_to_point, homes)
        if node.machine:
            taps += [Tap(cable.near, cable.label) for cable in laid]
        else:
            cables += laid
    gateways = {} if point_to_point else leaf_gateways(nodes)
    leaves = dict.fromkeys(rail.leaf for node in nodes for rail in node.rails)
    bridges = [Port(fabric, MANAGEMENT_BRIDGE)]
    bridges += [
        Port(
            homes.get(leaf, fabric),
            short_name(leaf),
            mtu=LEAF_MTU,
            addresses=gateways.get(leaf, ()),
        )
        for leaf in leaves
    ]
    cables += _uplinks(switches, homes)
    containers = [node.name for node in nodes if not node.machine]
    return Plan(
        cluster=cluster,
        namespaces=(
            fabric,
            *homes.values(),
            *(node_namespace(cluster, name) for name in containers),
        ),
        bridges=tuple(bridges),
        cables=tuple(cables),
        taps=tuple(taps),
        management=host_port,
        controller=address,
        network=network,
        routers=routers,
    )


def _cables(
    node: Node, fabric: str, namespace: str, point_to_point: bool, homes: Mapping[str, str]
) -> list[Cable]:
    management = Cable(
        Port(fabric, leaf_port(node.name, node.interface), MANAGEMENT_BRIDGE),
        Port(namespace, node.interface, addresses=(f"{node.address}/{node.prefix}",)),
        f"{node.name} {node.interface}",
    )
    cables = [management]
    for rail in node.rails:
        near = Port(
            homes.get(rail.leaf, fabric),
            leaf_port(node.name, rail.interface),
            bridge=None if point_to_point else short_name(rail.leaf),
            mtu=LEAF_MTU,
            addresses=(f"{rail.gateway}/{rail.prefix}",) if point_to_point and rail.gateway else (),
        )
        label = f"{node.name} {rail.interface} on {rail.leaf} {rail.leaf_port}".rstrip()
        cables.append(Cable(near, Port(namespace, rail.interface), label))
    return cables


def _uplinks(switches: Switches, homes: Mapping[str, str]) -> list[Cable]:
    """The cables between leaves and spines, as the model has them."""
    return [
        Cable(
            Port(homes[leaf], interface_of(port), mtu=LEAF_MTU),
            Port(homes[spine], interface_of(group["peer_interface"]), mtu=LEAF_MTU),
            f"{leaf} {port} to {spine} {group['peer_interface']}",
        )
        for leaf, groups in switches.items()
        for group in groups
        if group["kind"] == UPLINK
        for port, spine in group["peers"].items()
    ]


def leaf_gateways(nodes: Sequence[Node]) -> dict[str, tuple[str, ...]]:
    """Leaf -> the gateway addresses it carries, one per rail network that ends on it."""
    home: dict[str, str] = {}
    gateways: dict[str, dict[str, None]] = {}
    for rail in (rail for node in nodes for rail in node.rails if rail.gateway):
        if home.setdefault(rail.network, rail.leaf) != rail.leaf:
            raise VirtualError(
                f"rail network {rail.network} ends on {home[rail.network]} and on {rail.leaf}: its "
                "gateway can stand on one leaf only. Give each leaf a network of its own in "
                "cluster.yml."
            )
        gateways.setdefault(rail.leaf, {})[f"{rail.gateway}/{rail.prefix}"] = None
    return {leaf: tuple(addresses) for leaf, addresses in gateways.items()}
