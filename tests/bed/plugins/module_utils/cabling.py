# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Plan the network of a virtual cluster: namespaces, bridges and cables.

Everything is in named network namespaces. `<cluster>-fabric` holds one bridge per leaf and the
management bridge; `<cluster>.<node>` holds the interfaces of a container. A container is cabled
with veth pairs, a machine with taps whose other ends are held by its QEMU process in the fabric's
namespace. The host itself gets a single interface, the controller's port on the management bridge.
The host's network, firewall and routing are not touched, and deleting the namespaces removes
everything.

In a routed fabric each leaf and spine is a router in the namespace `<cluster>.router.<leaf>`.
Leaves carry the gateways of the rails; leaves and spines are cabled as in the model. Routes are
static: each leaf has a path over every spine, and the kernel skips paths whose link is down.

In a fabric with BGP the routers are the simulated switches, in the namespaces of their containers.
Interfaces have the names of the switch's ports, uplinks have the addresses of the model, and routes
are those of the switch's BGP.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import IP_MTU_LIMITS

from .inventory import (
    CLUSTER_NAME,
    VirtualError,
    VirtualNode,
    controller_address,
    controller_interface,
    fabric_namespace,
    interface_of,
    leaf_port,
    management_network,
    node_namespace,
    router_namespace,
    short_name,
)

MANAGEMENT_BRIDGE = "management"
CONTROLLER_PORT = "controller"
LEAF_MTU = IP_MTU_LIMITS[1]
"""MTU of the leaves: large enough for any MTU of the nodes."""
UPLINK = "uplink"
"""Kind of a leaf port that leads to a spine."""
LINKS = ipaddress.IPv4Address("169.254.0.0")
"""First address of the links between leaves and spines; each link takes two."""

Switches = Mapping[str, Sequence[Mapping[str, Any]]]
"""Variable `cluster_ports` of each leaf and spine, by host name."""


@dataclass(frozen=True)
class Interface:
    """Desired state of an interface: namespace, bridge, MTU and addresses."""

    namespace: str
    name: str
    bridge: Optional[str] = None
    mtu: Optional[int] = None
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cable:
    """A cable. `near` is the leaf's end. Without `far` it is a tap, held by a machine's QEMU."""

    near: Interface
    far: Optional[Interface] = None


Routes = Mapping[str, frozenset[str]]
"""Next hops by destination network."""


@dataclass(frozen=True)
class NetworkPlan:
    cluster: str
    containers: tuple[str, ...]
    """Namespaces of the nodes."""
    bridges: tuple[Interface, ...]
    cables: tuple[Cable, ...]
    controller: Interface
    """The host's interface on the management network."""
    network: ipaddress.IPv4Network
    routes: Mapping[str, Routes] = field(default_factory=dict)
    """Static routes of a routed fabric, by namespace."""
    routers: tuple[str, ...] = ()
    """Namespaces of the leaves and spines of a routed fabric."""

    @property
    def owned(self) -> tuple[str, ...]:
        """Namespaces in which only the plan creates interfaces."""
        return (fabric_namespace(self.cluster), *self.routes)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (*self.owned, *self.containers)

    @property
    def ports(self) -> tuple[Interface, ...]:
        """Interfaces that the plan configures. The node's end of a rail is left to the roles."""
        ends = [cable.near for cable in self.cables]
        far = (cable.far for cable in self.cables)
        ends += [port for port in far if port and (port.addresses or port.mtu)]
        return (*self.bridges, *ends)


def plan_network(
    cluster: str,
    nodes: Sequence[VirtualNode],
    *,
    point_to_point: bool = False,
    switches: Switches = MappingProxyType({}),
    bgp: bool = False,
) -> NetworkPlan:
    """Plan the whole network from inventory variables.

    `switches`: ports of the leaves and spines of a routed fabric, by host name.
    `bgp`: these switches are nodes, which learn their routes by BGP.
    """
    if not CLUSTER_NAME.fullmatch(cluster):
        raise VirtualError(f"cluster name {cluster!r}: use lower-case letters, digits and hyphens")
    machine = next((node.name for node in nodes if node.machine), "")
    if switches and machine:
        raise VirtualError(
            f"{machine} is a machine, whose cables all end in one namespace. A routed fabric needs "
            "containers: set virtual_nodes_kind to container, or virtual_nodes_fabric to bridges."
        )
    names = {node.name for node in nodes}
    absent = next((name for name in switches if name not in names), "")
    if bgp and absent:
        raise VirtualError(
            f"{absent} is not simulated, as virtual_nodes_fabric bgp needs of every switch: "
            "set its system in cluster.yml, and list it in virtual_nodes_names."
        )
    network = management_network(nodes)
    address = controller_address(nodes)
    fabric = fabric_namespace(cluster)
    homes = {
        name: (node_namespace if bgp else router_namespace)(cluster, name) for name in switches
    }
    port = Interface(
        "", controller_interface(cluster), addresses=(f"{address}/{network.prefixlen}",)
    )
    cables = [Cable(Interface(fabric, CONTROLLER_PORT, MANAGEMENT_BRIDGE), port)]
    for node in nodes:
        namespace = node_namespace(cluster, node.name)
        cables += _cables(node, fabric, namespace, point_to_point, homes, bgp)
    gateways = {} if point_to_point else leaf_gateways(nodes)
    leaves = dict.fromkeys(rail.leaf for node in nodes for rail in node.rails)
    bridges = [Interface(fabric, MANAGEMENT_BRIDGE)]
    bridges += [
        Interface(
            homes.get(leaf, fabric),
            short_name(leaf),
            mtu=LEAF_MTU,
            addresses=gateways.get(leaf, ()),
        )
        for leaf in leaves
    ]
    uplinks = _uplinks(switches, homes, bgp)
    return NetworkPlan(
        cluster=cluster,
        containers=tuple(node_namespace(cluster, node.name) for node in nodes if not node.machine),
        bridges=tuple(bridges),
        cables=(*cables, *uplinks),
        controller=port,
        network=network,
        routes={} if bgp else _routes(homes, uplinks, nodes),
        routers=tuple(homes.values()),
    )


def _cables(
    node: VirtualNode,
    fabric: str,
    namespace: str,
    point_to_point: bool,
    homes: Mapping[str, str],
    bgp: bool,
) -> list[Cable]:
    def cable(near: Interface, far: Interface) -> Cable:
        return Cable(near, None if node.machine else far)

    cables = [
        cable(
            Interface(fabric, leaf_port(node.name, node.interface), MANAGEMENT_BRIDGE),
            Interface(namespace, node.interface, addresses=(f"{node.address}/{node.prefix}",)),
        )
    ]
    for rail in node.rails:
        near = Interface(
            homes.get(rail.leaf, fabric),
            interface_of(rail.leaf_port) if bgp else leaf_port(node.name, rail.interface),
            bridge=None if point_to_point else short_name(rail.leaf),
            mtu=LEAF_MTU,
            addresses=(f"{rail.gateway}/{rail.prefix}",) if point_to_point and rail.gateway else (),
        )
        cables.append(cable(near, Interface(namespace, rail.interface)))
    return cables


def _uplinks(switches: Switches, homes: Mapping[str, str], bgp: bool) -> list[Cable]:
    """Plan the cables between leaves and spines, as in the model."""
    ends = [
        ((leaf, port), (spine, group["peer_interface"]))
        for leaf, groups in switches.items()
        for group in groups
        if group["kind"] == UPLINK
        for port, spine in group["peers"].items()
    ]

    def end(switch_port: tuple[str, str], number: int) -> Interface:
        switch, port = switch_port
        address = (f"{uplink_address(switches, switch, port) if bgp else LINKS + number}/31",)
        return Interface(homes[switch], interface_of(port), mtu=LEAF_MTU, addresses=address)

    return [
        Cable(end(leaf, 2 * number), end(spine, 2 * number + 1))
        for number, (leaf, spine) in enumerate(ends)
    ]


def uplink_address(switches: Switches, switch: str, port: str) -> str:
    """Return the address of a leaf's or spine's end of an uplink in the model."""
    for group in switches[switch]:
        if port in (group.get("addresses") or {}):
            return str(group["addresses"][port])
    raise VirtualError(
        f"{switch} {port} has no address, and BGP needs one on both ends of each uplink. Set "
        "leaves.uplink_pool in cluster.yml (with three tiers, also that of the spines)."
    )


def _routes(
    homes: Mapping[str, str], uplinks: Sequence[Cable], nodes: Sequence[VirtualNode]
) -> dict[str, Routes]:
    """Plan the routes of leaves, over every spine to the rails of other leaves, and of spines."""
    rails = {rail.network: homes.get(rail.leaf) for node in nodes for rail in node.rails}
    hops: dict[str, dict[str, set[str]]] = {namespace: {} for namespace in homes.values()}
    for leaf, spine in ((cable.near, cable.far) for cable in uplinks if cable.far):
        for network, home in rails.items():
            here, peer = (spine, leaf) if home == leaf.namespace else (leaf, spine)
            gateway = peer.addresses[0].partition("/")[0]
            hops[here.namespace].setdefault(network, set()).add(gateway)
    return {
        namespace: {network: frozenset(gateways) for network, gateways in routes.items()}
        for namespace, routes in hops.items()
    }


def leaf_gateways(nodes: Sequence[VirtualNode]) -> dict[str, tuple[str, ...]]:
    """Return the gateway addresses of each leaf, one for each of its rail networks."""
    home: dict[str, str] = {}
    gateways: dict[str, dict[str, None]] = {}
    for rail in (rail for node in nodes for rail in node.rails if rail.gateway):
        if home.setdefault(rail.network, rail.leaf) != rail.leaf:
            raise VirtualError(
                f"rail network {rail.network} is on {home[rail.network]} and on {rail.leaf}; its "
                "gateway can be on one leaf only. Give each leaf a separate network in cluster.yml."
            )
        gateways.setdefault(rail.leaf, {})[f"{rail.gateway}/{rail.prefix}"] = None
    return {leaf: tuple(addresses) for leaf, addresses in gateways.items()}
