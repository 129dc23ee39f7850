# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From what is there to what is planned, as lines for `ip -batch`: none when nothing differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional

from .cabling import Cable, Plan, Port, Tap

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
