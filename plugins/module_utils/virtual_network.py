# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The network of a virtual cluster: one namespace per node, one for its leaves, veths as cables.

All of it lies in named network namespaces: `<cluster>-fabric` holds a bridge per leaf and the
management bridge, `<cluster>.<node>` holds a node's interfaces. The host itself gets one interface
only, the controller's port on the management bridge. So nothing of the host's own network, firewall
or routing is touched, and deleting the namespaces removes everything.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .commands import Runner
from .virtual_journal import Journal

MANAGEMENT = "mgmt0"
"""Name of a node's management interface when the model gives none."""
MANAGEMENT_BRIDGE = "management"
CONTROLLER_PORT = "controller"
LEAF_MTU = 9216
"""What a leaf carries; the nodes choose their own MTU below it."""
NODE_MTU = 1500
"""What an interface has before anybody configured it."""
INTERFACE_LENGTH = 15
CLUSTER_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


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


@dataclass(frozen=True)
class Link:
    """An interface as it is."""

    index: int
    peer: Optional[int]
    up: bool
    mtu: int
    bridge: Optional[str]
    addresses: frozenset[str] = frozenset()


State = Mapping[str, Mapping[str, Link]]
"""Namespace -> interface -> what is there. `""` is the host; a namespace without `lo` is broken."""


@dataclass(frozen=True)
class Batch:
    """Lines for one `ip -batch`, all in one namespace (`""`: the host)."""

    namespace: str
    lines: tuple[str, ...]


def fabric_namespace(cluster: str) -> str:
    return f"{cluster}-fabric"


def node_namespace(cluster: str, node: str) -> str:
    """Also the name of the node's container. No cluster name holds a dot, so none is ambiguous."""
    return f"{cluster}.{node}"


def controller_interface(cluster: str) -> str:
    """The one interface on the host: the start of the name for people, a digest for uniqueness."""
    return f"{cluster[:8]}-{_digest(cluster)}"


def short_name(name: str) -> str:
    """An interface name Linux has room for: `name` itself where it fits."""
    return name if len(name) <= INTERFACE_LENGTH else f"{name[:8]}-{_digest(name)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:6]


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
    management: Mapping[str, Mapping[str, Any]], rails: Mapping[str, Sequence[Mapping[str, Any]]]
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
                    )
                    for rail in rails.get(name) or ()
                ),
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


def preparation(plan: Plan, state: State, made_before: Iterable[str]) -> list[Batch]:
    """First phase: away with what does not belong to the plan, and every namespace in place."""
    cut = {
        (port.namespace, port.name)
        for cable in plan.cables
        if not _connected(cable, state)
        for port in (cable.near, cable.far)
        if port.name in state.get(port.namespace, {})
    }
    wanted = {port.name for port in plan.ports if port.namespace == plan.fabric} | {"lo"}
    cut |= {(plan.fabric, name) for name in state.get(plan.fabric, {}) if name not in wanted}
    batches = [
        Batch(
            namespace,
            tuple(f"link delete {name}" for place, name in sorted(cut) if place == namespace),
        )
        for namespace in sorted({place for place, _ in cut})
    ]
    broken = {name for name in state if name and "lo" not in state[name]}
    old = {name for name in made_before if name in state and name not in plan.namespaces}
    lines = [f"netns delete {name}" for name in sorted(broken | old)]
    lines += [
        f"netns add {name}" for name in plan.namespaces if name not in state or name in broken
    ]
    return [batch for batch in (*batches, Batch("", tuple(lines))) if batch.lines]


def creation(plan: Plan, state: State) -> list[Batch]:
    """Second phase, on the state the first one left: what is missing or differs."""
    lines: dict[str, list[str]] = {name: [] for name in ("", *plan.namespaces)}
    for namespace in plan.namespaces:
        loopback = state.get(namespace, {}).get("lo")
        if loopback is None or not loopback.up:
            lines[namespace].append("link set lo up")
    for cable in plan.cables:
        if not _connected(cable, state):
            lines[""].append(_veth(cable))
            lines[cable.near.namespace].append(f"link set {cable.near.name} alias '{cable.label}'")
    for bridge in plan.bridges:
        if bridge.name not in state.get(bridge.namespace, {}):
            lines[bridge.namespace].append(f"link add {bridge.name} type bridge")
    # Bridges before the ports they hold; the host's cables before anything that configures an end.
    inside: dict[str, list[str]] = {name: [] for name in lines}
    for port in plan.ports:
        inside[port.namespace] += _settings(port, state)
    first = Batch("", tuple(lines.pop("")))
    rest = [Batch(name, (*lines[name], *inside[name])) for name in plan.namespaces]
    return [batch for batch in (first, *rest, Batch("", tuple(inside[""]))) if batch.lines]


def removal(made: Iterable[str], interface: str, state: State) -> list[Batch]:
    """Everything that was made, gone. The kernel drops bridges and veths with their namespace."""
    # Deleted by itself because a namespace's interfaces vanish a moment after the namespace.
    lines = [f"link delete {interface}"] if interface in state.get("", {}) else []
    lines += [f"netns delete {name}" for name in made if name in state]
    return [Batch("", tuple(lines))] if lines else []


def differences(plan: Plan, state: State) -> list[str]:
    """What still is not as planned: empty after a creation that worked."""
    return [
        f"{batch.namespace or 'host'}: {line}"
        for batch in (*preparation(plan, state, ()), *creation(plan, state))
        for line in batch.lines
    ]


def _veth(cable: Cable) -> str:
    def end(port: Port) -> str:
        place = f" netns {port.namespace}" if port.namespace else ""
        return f"name {port.name} mtu {port.mtu or NODE_MTU}{place}"

    return f"link add {end(cable.near)} type veth peer {end(cable.far)}"


def _settings(port: Port, state: State) -> list[str]:
    link = state.get(port.namespace, {}).get(port.name)
    lines = []
    if port.bridge and (link is None or link.bridge != port.bridge):
        lines.append(f"link set {port.name} master {port.bridge}")
    if port.mtu and (link is None or link.mtu != port.mtu):
        lines.append(f"link set {port.name} mtu {port.mtu}")
    for address in port.addresses:
        if link is None or address not in link.addresses:
            lines.append(f"address add {address} brd + dev {port.name}")
    if link is None or not link.up:
        lines.append(f"link set {port.name} up")
    return lines


def _connected(cable: Cable, state: State) -> bool:
    """Whether the two ends are each other's: an interface index is unique within its namespace."""
    near = state.get(cable.near.namespace, {}).get(cable.near.name)
    far = state.get(cable.far.namespace, {}).get(cable.far.name)
    return (
        near is not None and far is not None and near.peer == far.index and far.peer == near.index
    )


def parse_links(text: str) -> dict[str, Link]:
    """Interfaces by name from `ip -json address show`."""
    found = {}
    for entry in json.loads(text or "[]"):
        if not entry:
            continue
        found[entry["ifname"]] = Link(
            index=entry["ifindex"],
            peer=entry.get("link_index"),
            up="UP" in entry["flags"],
            mtu=entry["mtu"],
            bridge=entry.get("master"),
            addresses=frozenset(
                f"{address['local']}/{address['prefixlen']}" for address in entry["addr_info"]
            ),
        )
    return found


def overlapping_route(
    routes: str, network: ipaddress.IPv4Network, own_interface: str
) -> Optional[str]:
    """The host's route that already leads to part of the management network, as text."""
    for route in json.loads(routes or "[]"):
        if route["dst"] == "default" or route.get("dev") == own_interface:
            continue
        if ipaddress.IPv4Network(route["dst"]).overlaps(network):
            return f"{route['dst']} dev {route.get('dev', '?')}"
    return None


class HostNetwork:
    """The machine that carries the virtual network, through iproute2."""

    def __init__(self, run: Runner) -> None:
        self._run = run

    def state(self, namespaces: Iterable[str], interface: str) -> dict[str, dict[str, Link]]:
        """What is there of these namespaces, and of the host's one interface."""
        listed = self._run(["ip", "-json", "netns", "list"]).stdout.strip()
        existing = {entry["name"] for entry in json.loads(listed or "[]")}
        host = self._run(["ip", "-json", "address", "show", "dev", interface], check=False).stdout
        found = {"": parse_links(host)}
        for name in namespaces:
            if name in existing:
                shown = self._run(["ip", "-n", name, "-json", "address", "show"], check=False)
                found[name] = parse_links(shown.stdout) if shown.rc == 0 else {}
        return found

    def routes(self) -> str:
        return self._run(["ip", "-json", "-4", "route", "show"]).stdout

    def apply(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            inside = ["-n", batch.namespace] if batch.namespace else []
            self._run(["ip", *inside, "-batch", "-"], stdin="\n".join(batch.lines) + "\n")

    def sysctls(self, namespace: str, wanted: Mapping[str, str]) -> bool:
        """Set the namespace's sysctls; whether any differed."""
        inside = ["ip", "netns", "exec", namespace, "sysctl"]
        shown = self._run([*inside, "-n", *wanted]).stdout.split()
        if shown == list(wanted.values()):
            return False
        self._run([*inside, "-q", "-w", *(f"{name}={value}" for name, value in wanted.items())])
        return True


FABRIC_SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
}
"""The fabric routes between rails, as leaves and spines do. Nothing else on the host forwards."""


@dataclass(frozen=True)
class Done:
    """What was run, or would be in check mode."""

    commands: tuple[str, ...]
    interface: str


def create(plan: Plan, host: HostNetwork, journal: Journal, *, check_mode: bool) -> Done:
    """Make the host's network as planned, and read it back."""
    made = journal.namespaces()
    state = host.state([*plan.namespaces, *made], plan.management)
    _refuse_foreign(plan, state, made)
    taken = overlapping_route(host.routes(), plan.network, plan.management)
    if taken:
        raise VirtualNetworkError(
            f"this machine already routes {taken}, which overlaps the management network "
            f"{plan.network} of the virtual nodes. Choose another one in cluster.yml."
        )
    first = preparation(plan, state, made)
    if check_mode:
        return Done(
            (*_shown(first), *_shown(creation(plan, _without_broken(state)))), plan.management
        )
    journal.write([*plan.namespaces, *made])
    host.apply(first)
    forwards = host.sysctls(plan.fabric, FABRIC_SYSCTLS)
    state = host.state(plan.namespaces, plan.management)
    second = creation(plan, state)
    host.apply(second)
    journal.write(plan.namespaces)
    left = (
        differences(plan, host.state(plan.namespaces, plan.management)) if second or first else []
    )
    if left:
        raise VirtualNetworkError(
            "after the change these are still to be done:\n  " + "\n  ".join(left)
        )
    extra = [f"-n {plan.fabric} sysctl {name}={value}" for name, value in FABRIC_SYSCTLS.items()]
    return Done((*_shown(first), *(extra if forwards else ()), *_shown(second)), plan.management)


def destroy(cluster: str, host: HostNetwork, journal: Journal, *, check_mode: bool) -> Done:
    """Remove what the journal names, then the journal."""
    interface = controller_interface(cluster)
    if not journal.exists:
        return Done((), interface)
    made = journal.namespaces()
    batches = removal(made, interface, host.state(made, interface))
    if not check_mode:
        host.apply(batches)
        journal.clear()
    return Done(_shown(batches) or ("forget the journal",), interface)


def _without_broken(state: State) -> State:
    return {name: links for name, links in state.items() if not name or "lo" in links}


def _refuse_foreign(plan: Plan, state: State, made: Sequence[str]) -> None:
    foreign = [name for name in plan.namespaces if name in state and name not in made]
    if foreign or (plan.management in state[""] and not made):
        named = ", ".join(foreign) or f"interface {plan.management}"
        raise VirtualNetworkError(
            f"{named}: there already, and not made by this collection. Remove it, or give the "
            "cluster another name."
        )


def _shown(batches: Iterable[Batch]) -> tuple[str, ...]:
    return tuple(
        f"-n {batch.namespace} {line}" if batch.namespace else line
        for batch in batches
        for line in batch.lines
    )
