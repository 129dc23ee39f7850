# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the network of a virtual cluster with its plan, create it and remove it.

Removal deletes only what the journal lists, so a creation that was killed is cleaned up as well.
The journal is under /run because namespaces do not survive a reboot either.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Runner
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import write_atomically

from .cabling import Cable, Interface, NetworkPlan, Routes
from .inventory import RUN, VirtualError, controller_interface, fabric_namespace

NODE_MTU = 1500
"""MTU of an interface that is not configured."""
SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
}
"""The fabric's namespace routes between rails, as leaves and spines do."""
ROUTER_SYSCTLS = {
    **SYSCTLS,
    "net.ipv4.conf.all.ignore_routes_with_linkdown": "1",
    "net.ipv4.fib_multipath_hash_policy": "1",
}
"""Routers skip paths whose link is down, and hash ports as well as addresses, as switches do."""
MAX_INSTANCES = "proc/sys/fs/inotify/max_user_instances"
RAISED_INSTANCES = 1024
"""The kernel's default is 128; each systemd takes 3 to 7, all of them as root."""


@dataclass(frozen=True)
class InterfaceState:
    """Actual state of an interface."""

    index: int
    peer: Optional[int]
    up: bool
    mtu: int
    bridge: Optional[str]
    addresses: frozenset[str] = frozenset()


@dataclass(frozen=True)
class NetworkState:
    links: Mapping[str, Mapping[str, InterfaceState]]
    """Links by namespace and interface. `""` is the host; a namespace without `lo` is broken."""
    routes: Mapping[str, Routes] = field(default_factory=dict)

    def of(self, port: Interface) -> Optional[InterfaceState]:
        return self.links.get(port.namespace, {}).get(port.name)


@dataclass(frozen=True)
class Batch:
    """Lines of one `ip -batch`, all in one namespace (`""`: the host)."""

    namespace: str
    lines: tuple[str, ...]
    force: bool = False
    """Continue after an error: deleting one end of a veth pair deletes the other."""


def changes(plan: NetworkPlan, state: NetworkState, made_before: Iterable[str]) -> list[Batch]:
    """Plan the commands from the actual state to the plan: delete first, then create."""
    removed = _wrong(plan, state)
    away = [
        Batch(namespace, tuple(f"link delete {name}" for name in names), force=True)
        for namespace, names in removed.items()
    ]
    gone = {name for name, links in state.links.items() if name and "lo" not in links}
    gone |= {name for name in made_before if name in state.links and name not in plan.namespaces}
    left = NetworkState(
        {
            namespace: {
                name: link for name, link in links.items() if name not in removed[namespace]
            }
            for namespace, links in state.links.items()
            if namespace not in gone
        },
        state.routes,
    )
    spaces = [f"netns delete {name}" for name in sorted(gone)]
    spaces += [f"netns add {name}" for name in plan.namespaces if name not in left.links]
    batches = [*away, Batch("", tuple(spaces)), *_creation(plan, left), *_routing(plan, left)]
    return [batch for batch in batches if batch.lines]


def _wrong(plan: NetworkPlan, state: NetworkState) -> dict[str, list[str]]:
    """Interfaces to delete, by namespace: unknown ones, and ends that are not peers."""
    wrong: dict[str, dict[str, None]] = {namespace: {} for namespace in state.links}
    planned = {(port.namespace, port.name) for port in plan.ports}
    for namespace in plan.owned:
        for name in state.links.get(namespace, {}):
            if name != "lo" and (namespace, name) not in planned:
                wrong[namespace][name] = None
    for cable in plan.cables:
        for end in (cable.near, cable.far):
            if end is not None and state.of(end) is not None and not _connected(cable, state):
                wrong[end.namespace][end.name] = None
    return {namespace: list(names) for namespace, names in wrong.items()}


def _connected(cable: Cable, state: NetworkState) -> bool:
    """Return whether two ends are peers: an interface index is unique within its namespace."""
    near = state.of(cable.near)
    if cable.far is None:
        return near is not None and near.peer is None
    far = state.of(cable.far)
    return (
        near is not None and far is not None and near.peer == far.index and far.peer == near.index
    )


def _creation(plan: NetworkPlan, state: NetworkState) -> list[Batch]:
    """Create cables, then bridges, then the bridges' ports; the host's interface is last."""
    lines: dict[str, list[str]] = {name: [] for name in plan.namespaces}
    veths = []
    for namespace in plan.namespaces:
        loopback = state.links.get(namespace, {}).get("lo")
        if loopback is None or not loopback.up:
            lines[namespace].append("link set lo up")
    for cable in plan.cables:
        if _connected(cable, state):
            continue
        if cable.far is None:
            lines[cable.near.namespace].append(f"tuntap add dev {cable.near.name} mode tap")
        else:
            veths.append(f"link add {_end(cable.near)} type veth peer {_end(cable.far)}")
    for bridge in plan.bridges:
        if state.of(bridge) is None:
            lines[bridge.namespace].append(f"link add {bridge.name} type bridge")
    lines[""] = []
    for port in plan.ports:
        lines[port.namespace] += _settings(port, state.of(port))
    return [
        Batch("", tuple(veths)),
        *(Batch(name, tuple(commands)) for name, commands in lines.items()),
    ]


def _end(port: Interface) -> str:
    namespace = f" netns {port.namespace}" if port.namespace else ""
    return f"name {port.name} mtu {port.mtu or NODE_MTU}{namespace}"


def _settings(port: Interface, link: Optional[InterfaceState]) -> list[str]:
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


def _routing(plan: NetworkPlan, state: NetworkState) -> list[Batch]:
    batches = []
    for namespace, desired in plan.routes.items():
        actual = state.routes.get(namespace, {}) if namespace in state.links else {}
        lines = [f"route delete {network}" for network in actual if network not in desired]
        lines += [
            " ".join([f"route replace {network}", *(f"nexthop via {hop}" for hop in sorted(hops))])
            for network, hops in desired.items()
            if actual.get(network) != hops
        ]
        batches.append(Batch(namespace, tuple(lines)))
    return batches


def removal(made: Iterable[str], interface: str, state: NetworkState) -> list[Batch]:
    """Plan the removal. The kernel deletes bridges and veth pairs with their namespace."""
    # Deleted explicitly, because a namespace's interfaces disappear a moment after the namespace.
    lines = [f"link delete {interface}"] if interface in state.links.get("", {}) else []
    lines += [f"netns delete {name}" for name in made if name in state.links]
    return [Batch("", tuple(lines))] if lines else []


class NetworkJournal:
    def __init__(self, cluster: str, folder: Path = RUN) -> None:
        self._path = folder / f"{cluster}.json"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def namespaces(self) -> list[str]:
        """Every namespace that was created, or was about to be created, for this cluster."""
        try:
            return list(json.loads(self._path.read_text(encoding="utf-8"))["namespaces"])
        except FileNotFoundError:
            return []

    def write(self, namespaces: Iterable[str]) -> None:
        names = list(dict.fromkeys(namespaces))
        text = json.dumps({"namespaces": names}, indent=2) + "\n"
        write_atomically(self._path, text, 0o644, 0, 0)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)
        _remove_empty(self._path.parent)


class Instances:
    """The kernel's limit of inotify instances, raised while virtual nodes exist.

    The previous value is stored next to the journals until the last cluster is down.
    """

    def __init__(self, folder: Path = RUN, root: Path = Path("/")) -> None:
        self._before = folder / "max_user_instances"
        self._limit = root / MAX_INSTANCES

    def allowed(self) -> int:
        """The limit after `lift`. In a container the file may be read-only."""
        limit = int(self._limit.read_text(encoding="ascii"))
        return max(limit, RAISED_INSTANCES) if os.access(self._limit, os.W_OK) else limit

    def lift(self) -> None:
        before = self._limit.read_text(encoding="ascii")
        if int(before) < self.allowed():
            if not self._before.exists():
                write_atomically(self._before, before, 0o644, 0, 0)
            self._limit.write_text(f"{RAISED_INSTANCES}\n", encoding="ascii")

    def put_back(self) -> None:
        """Restore the previous limit when no cluster is left and no one else changed it."""
        if not self._before.exists() or any(self._before.parent.glob("*.json")):
            return
        if int(self._limit.read_text(encoding="ascii")) == RAISED_INSTANCES:
            self._limit.write_text(self._before.read_text(encoding="ascii"), encoding="ascii")
        self._before.unlink()
        _remove_empty(self._before.parent)


def _remove_empty(folder: Path) -> None:
    """Remove the folders of the last cluster."""
    for empty in (folder, folder.parent):
        with contextlib.suppress(OSError):
            empty.rmdir()


def parse_links(text: str) -> dict[str, InterfaceState]:
    """Parse the output of `ip -json address show`, by interface name."""
    return {
        entry["ifname"]: InterfaceState(
            index=entry["ifindex"],
            peer=entry.get("link_index"),
            up="UP" in entry["flags"],
            mtu=entry["mtu"],
            bridge=entry.get("master"),
            addresses=frozenset(
                f"{address['local']}/{address['prefixlen']}" for address in entry["addr_info"]
            ),
        )
        for entry in json.loads(text or "[]")
        if entry
    }


def parse_routes(text: str) -> Routes:
    """Parse the routes with next hops of `ip -json route show`."""
    return {
        route["dst"]: frozenset(hop["gateway"] for hop in route.get("nexthops", [route]))
        for route in json.loads(text or "[]")
        if "nexthops" in route or "gateway" in route
    }


class HostNetwork:
    """The machine that carries the virtual network, accessed through iproute2."""

    def __init__(self, run: Runner) -> None:
        self._run = run

    def state(self, namespaces: Iterable[str], interface: str) -> NetworkState:
        """Read the links of these namespaces, and the host's one interface."""
        listed = self._run(["ip", "-json", "netns", "list"]).stdout.strip()
        existing = {entry["name"] for entry in json.loads(listed or "[]")}
        host = self._run(["ip", "-json", "address", "show", "dev", interface], check=False).stdout
        links, routes = {"": parse_links(host)}, {}
        for name in existing.intersection(namespaces):
            shown = self._run(["ip", "-n", name, "-json", "address", "show"], check=False)
            links[name] = parse_links(shown.stdout) if shown.rc == 0 else {}
            shown = self._run(["ip", "-n", name, "-json", "-4", "route", "show"], check=False)
            routes[name] = parse_routes(shown.stdout) if shown.rc == 0 else {}
        return NetworkState(links, routes)

    def overlapping_route(self, network: ipaddress.IPv4Network, own_interface: str) -> str:
        """Describe the host's route to a part of the management network; empty if there is none."""
        for route in json.loads(self._run(["ip", "-json", "-4", "route", "show"]).stdout or "[]"):
            if route["dst"] == "default" or route.get("dev") == own_interface:
                continue
            if ipaddress.IPv4Network(route["dst"]).overlaps(network):
                return f"{route['dst']} dev {route.get('dev', '?')}"
        return ""

    def apply(self, batches: Iterable[Batch]) -> None:
        for batch in batches:
            inside = ["-n", batch.namespace] if batch.namespace else []
            words = ["ip", *inside, *(["-force"] if batch.force else []), "-batch", "-"]
            self._run(words, stdin="\n".join(batch.lines) + "\n", check=not batch.force)

    def forward(self, namespace: str, sysctls: Mapping[str, str]) -> None:
        values = [f"{name}={value}" for name, value in sysctls.items()]
        self._run(["ip", "netns", "exec", namespace, "sysctl", "-q", "-w", *values])


def create(
    plan: NetworkPlan, host: HostNetwork, journal: NetworkJournal, *, check_mode: bool
) -> tuple[str, ...]:
    """Apply the plan and verify the result. Returns the commands that were run, or would be."""
    made = journal.namespaces()
    state = host.state([*plan.namespaces, *made], plan.controller.name)
    _refuse_foreign(plan, state, made)
    taken = host.overlapping_route(plan.network, plan.controller.name)
    if taken:
        raise VirtualError(
            f"this machine already routes {taken}, which overlaps the management network "
            f"{plan.network} of the virtual nodes. Choose another one in cluster.yml."
        )
    batches = changes(plan, state, made)
    if check_mode:
        return _shown(batches)
    journal.write([*plan.namespaces, *made])
    host.apply(batches)
    host.forward(fabric_namespace(plan.cluster), SYSCTLS)
    for namespace in plan.routers:
        host.forward(namespace, ROUTER_SYSCTLS)
    journal.write(plan.namespaces)
    if batches:
        left = changes(plan, host.state(plan.namespaces, plan.controller.name), ())
        if left:
            raise VirtualError("not in effect after the change:\n  " + "\n  ".join(_shown(left)))
    return _shown(batches)


def destroy(
    cluster: str, host: HostNetwork, journal: NetworkJournal, *, check_mode: bool
) -> tuple[str, ...]:
    """Remove what the journal lists, then the journal."""
    if not journal.exists:
        return ()
    interface = controller_interface(cluster)
    made = journal.namespaces()
    batches = removal(made, interface, host.state(made, interface))
    if not check_mode:
        host.apply(batches)
        journal.clear()
    return _shown(batches) or ("forget the journal",)


def _refuse_foreign(plan: NetworkPlan, state: NetworkState, made: Sequence[str]) -> None:
    foreign = [name for name in plan.namespaces if name in state.links and name not in made]
    if foreign or (plan.controller.name in state.links[""] and not made):
        named = ", ".join(foreign) or f"interface {plan.controller.name}"
        raise VirtualError(
            f"{named}: exists already and was not created by this collection. Remove it, or give "
            "the cluster another name."
        )


def _shown(batches: Iterable[Batch]) -> tuple[str, ...]:
    return tuple(
        f"-n {batch.namespace} {line}" if batch.namespace else line
        for batch in batches
        for line in batch.lines
    )
