# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The network of a virtual cluster on this machine: compared with the plan, made, and removed.

Removal takes what the journal names and nothing else, so a creation that was killed half-way is
cleaned up as well. The journal is below /run: namespaces end with the host's boot too."""

from __future__ import annotations

import contextlib
import ipaddress
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.commands import Runner
from ..core.files import write_atomically
from .cabling import Cable, Plan, Port, Tap
from .inventory import RUN, VirtualError, controller_interface
from .routing import Routing

NODE_MTU = 1500
"""What an interface has before anybody configured it."""


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


def preparation(plan: Plan, state: State, made_before: Iterable[str]) -> list[Batch]:
    """First phase: away with what does not belong to the plan, and every namespace in place."""
    cut: dict[str, list[str]] = {}
    for namespace in plan.near:
        cut[namespace] = _unwanted(plan, namespace, state)
    # One end is enough: it takes the other along, which may be another one than the plan names.
    for cable in plan.cables:
        near = cable.near
        if near.name in state.get(near.namespace, {}) and not _connected(cable, state):
            cut[near.namespace].append(near.name)
    for tap in plan.taps:
        if tap.near.name in state.get(plan.fabric, {}) and not _is_tap(tap, state):
            cut[plan.fabric].append(tap.near.name)
    batches = [
        Batch(namespace, tuple(f"link delete {name}" for name in names))
        for namespace, names in cut.items()
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
    loose = [
        Batch(far.namespace, (f"link delete {far.name}",))
        for cable, far in ((cable, cable.far) for cable in plan.cables)
        if far.name in state.get(far.namespace, {}) and not _connected(cable, state)
    ]
    # On the state after the first phase, which may have taken them along with their near ends.
    loose += [
        Batch(namespace, tuple(f"link delete {name}" for name in _unwanted(plan, namespace, state)))
        for namespace in plan.far
    ]
    for namespace in plan.namespaces:
        loopback = state.get(namespace, {}).get("lo")
        if loopback is None or not loopback.up:
            lines[namespace].append("link set lo up")
    for cable in plan.cables:
        if not _connected(cable, state):
            lines[""].append(_veth(cable))
            lines[cable.near.namespace].append(f"link set {cable.near.name} alias '{cable.label}'")
    for tap in plan.taps:
        if not _is_tap(tap, state):
            lines[tap.near.namespace] += [
                f"tuntap add dev {tap.near.name} mode tap",
                f"link set {tap.near.name} alias '{tap.label}'",
            ]
    for bridge in plan.bridges:
        if bridge.name not in state.get(bridge.namespace, {}):
            lines[bridge.namespace].append(f"link add {bridge.name} type bridge")
    # Bridges before the ports they hold; the host's cables before anything that configures an end.
    inside: dict[str, list[str]] = {name: [] for name in lines}
    for port in plan.ports:
        inside[port.namespace] += _settings(port, state)
    first = Batch("", tuple(lines.pop("")))
    rest = [Batch(name, (*lines[name], *inside[name])) for name in plan.namespaces]
    return [batch for batch in (*loose, first, *rest, Batch("", tuple(inside[""]))) if batch.lines]


def _unwanted(plan: Plan, namespace: str, state: State) -> list[str]:
    wanted = {port.name for port in plan.ports if port.namespace == namespace} | {"lo"}
    return [name for name in state.get(namespace, {}) if name not in wanted]


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


def _is_tap(tap: Tap, state: State) -> bool:
    """Whether it is there, and no end of a veth pair."""
    near = state.get(tap.near.namespace, {}).get(tap.near.name)
    return near is not None and near.peer is None


class Journal:
    def __init__(self, cluster: str, folder: Path = RUN) -> None:
        self._path = folder / f"{cluster}.json"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def namespaces(self) -> list[str]:
        """Every namespace made, or about to be made, for this cluster."""
        try:
            return list(json.loads(self._path.read_text(encoding="utf-8"))["namespaces"])
        except FileNotFoundError:
            return []

    def write(self, namespaces: Iterable[str]) -> None:
        names = list(dict.fromkeys(namespaces))
        text = json.dumps({"namespaces": names}, indent=2) + "\n"
        write_atomically(self._path, text, 0o644, 0, 0)

    def clear(self) -> None:
        """Forget; the folders go with the last cluster."""
        self._path.unlink(missing_ok=True)
        for folder in (self._path.parent, self._path.parent.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()


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


ROUTER_SYSCTLS = {**FABRIC_SYSCTLS, "net.ipv4.fib_multipath_hash_policy": "1"}
"""Which of several paths a packet takes depends on its ports as well, as in switches."""


def create(
    plan: Plan,
    host: HostNetwork,
    journal: Journal,
    *,
    check_mode: bool,
    routing: Optional[Routing] = None,
) -> tuple[str, ...]:
    """Make the host's network as planned, and read it back. Returns what was run, or would be."""
    made = journal.namespaces()
    old = [name for name in made if name not in plan.namespaces]
    state = host.state([*plan.namespaces, *made], plan.management)
    _refuse_foreign(plan, state, made)
    taken = overlapping_route(host.routes(), plan.network, plan.management)
    if taken:
        raise VirtualError(
            f"this machine already routes {taken}, which overlaps the management network "
            f"{plan.network} of the virtual nodes. Choose another one in cluster.yml."
        )
    first = preparation(plan, state, made)
    if check_mode:
        further = routing.plan(plan.routers, old) if routing else []
        sound = {name: links for name, links in state.items() if not name or "lo" in links}
        return (*_shown(first), *_shown(creation(plan, sound)), *further)
    stopped = routing.stop(old) if routing else []
    journal.write([*plan.namespaces, *made])
    host.apply(first)
    forwarding = {
        plan.fabric: FABRIC_SYSCTLS,
        **{router.namespace: ROUTER_SYSCTLS for router in plan.routers},
    }
    set_now = [name for name, wanted in forwarding.items() if host.sysctls(name, wanted)]
    state = host.state(plan.namespaces, plan.management)
    second = creation(plan, state)
    host.apply(second)
    journal.write(plan.namespaces)
    left = (
        differences(plan, host.state(plan.namespaces, plan.management)) if second or first else []
    )
    if left:
        raise VirtualError("after the change these are still to be done:\n  " + "\n  ".join(left))
    extra = [
        f"-n {namespace} sysctl {name}={value}"
        for namespace in set_now
        for name, value in forwarding[namespace].items()
    ]
    started = routing.start(plan.routers) if routing else []
    return (*stopped, *_shown(first), *extra, *_shown(second), *started)


def destroy(
    cluster: str,
    host: HostNetwork,
    journal: Journal,
    *,
    check_mode: bool,
    routing: Optional[Routing] = None,
) -> tuple[str, ...]:
    """Remove what the journal names, then the journal."""
    if not journal.exists:
        return ()
    interface = controller_interface(cluster)
    made = journal.namespaces()
    batches = removal(made, interface, host.state(made, interface))
    if check_mode:
        stopped = routing.plan((), made) if routing else []
    else:
        # Before their namespaces go: a program in one would keep it alive without a name.
        stopped = routing.stop(made) if routing else []
        host.apply(batches)
        journal.clear()
    return (*stopped, *_shown(batches)) or ("forget the journal",)


def _refuse_foreign(plan: Plan, state: State, made: Sequence[str]) -> None:
    foreign = [name for name in plan.namespaces if name in state and name not in made]
    if foreign or (plan.management in state[""] and not made):
        named = ", ".join(foreign) or f"interface {plan.management}"
        raise VirtualError(
            f"{named}: there already, and not made by this collection. Remove it, or give the "
            "cluster another name."
        )


def _shown(batches: Iterable[Batch]) -> tuple[str, ...]:
    return tuple(
        f"-n {batch.namespace} {line}" if batch.namespace else line
        for batch in batches
        for line in batch.lines
    )
