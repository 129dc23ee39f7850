# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What all switch systems share: the intent, the report, and the protocol of a switch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Protocol

from ...module_utils.core.text import counted, natural, some
from ..qos import Contract, fabric_intent
from ..qos.compiled import FabricIntent, PfcWatchdog
from ..schema.findings import Findings
from .asics import Asic, asic_named
from .systems import SYSTEMS

HOST, STORAGE, UPLINK, DOWNLINK, PEER = "host", "storage", "uplink", "downlink", "peer"
"""Kinds of ports: to a node, to a storage host, from leaf to spine, from spine to leaf, and to the
other switch of a pair, whose ports are reported and not configured."""
TO_NODES = (HOST, STORAGE)
"""Kinds whose cables have the length `roce_qos.cable_metres.to_nodes`."""


@dataclass(frozen=True)
class PortIntent:
    name: str
    kind: str
    speed_gbps: int
    cable_metres: int
    peer: str
    peer_interface: str
    channel: str = ""
    """The other end of the port channel that has this port in the model; empty: none. The operator
    configures port channels, including their MTU."""
    channel_name: str = ""
    """Empty: any name."""


@dataclass(frozen=True)
class SwitchIntent:
    name: str
    system: str
    asic: Asic
    fabric: FabricIntent
    ports: tuple[PortIntent, ...]
    port_step: int = 0
    """From one port's number to the next, if computed from the lanes of the chip."""
    port_ranges: Sequence[str] = ()
    """Names of its ports as in the model, if it has them by purpose."""
    peer_ports: tuple[str, ...] = ()
    """Ports to the other switch of a pair, which are only reported."""


@dataclass(frozen=True)
class Neighbour:
    system: str
    """Host name by LLDP; empty if the sender has none, like the firmware of a NIC."""
    port: str
    """An interface name, or a MAC address in lower case with colons."""


_MAC = re.compile(r"([0-9a-f]{4}\.){2}[0-9a-f]{4}|([0-9a-f]{2}[:-]?){5}[0-9a-f]{2}", re.IGNORECASE)


def is_mac(text: str) -> bool:
    return _MAC.fullmatch(text) is not None


def port_id(text: str) -> str:
    """A port id in the form of `Neighbour.port`."""
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    pairs = (digits[index : index + 2] for index in range(0, 12, 2))
    return ":".join(pairs) if is_mac(text) else text


@dataclass(frozen=True)
class EcnReport:
    minimum_bytes: Optional[int]
    """None, like the maximum, if the threshold's unit is not bytes."""
    maximum_bytes: Optional[int]
    probability_percent: int


@dataclass(frozen=True)
class PortReport:
    """State of one port. None means not reported, which differs from off."""

    name: str
    present: bool
    up: Optional[bool] = None
    speed_gbps: Optional[int] = None
    mtu_ip: Optional[int] = None
    """Largest IP packet in bytes, however the system counts."""
    mtu_of: str = ""
    """The interface that has this MTU, if not the port: the routed one behind it, if its MTU is
    smaller (`Vlan100`), or the port channel."""
    in_channel: Optional[bool] = None
    """Whether LACP uses the port in its port channel."""
    trust: Optional[str] = None
    dscp_to_traffic_class: Optional[tuple[int, ...]] = None
    pfc_priorities: Optional[tuple[int, ...]] = None
    lossless_priorities: Optional[tuple[int, ...]] = None
    """Priorities with a lossless buffer: PFC without one drops packets."""
    strict_queues: Optional[tuple[int, ...]] = None
    weights: Optional[dict[int, int]] = None
    ecn: Optional[dict[int, EcnReport]] = None
    """By queue. Queues that do not mark are absent."""
    cable_metres: Optional[int] = None
    headroom_bytes: Optional[int] = None
    platform_headroom_bytes: Optional[int] = None
    """Headroom in the platform's own table, for this speed and cable length."""
    watchdog: Optional[PfcWatchdog] = None
    neighbour: Optional[Neighbour] = None
    alias: str = ""
    """The name that the port announces by LLDP, if it differs."""


@dataclass(frozen=True)
class SwitchReport:
    switch: str
    system: str
    version: str
    ports: tuple[PortReport, ...]
    lldp: bool

    @classmethod
    def of(
        cls, intent: SwitchIntent, version: str, port: Callable[[str], PortReport], lldp: bool
    ) -> SwitchReport:
        ports = tuple(map(port, (*(each.name for each in intent.ports), *intent.peer_ports)))
        return cls(intent.name, intent.system, version, ports, lldp)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


OWNED = "BAREMETAL_MPI_ROCE"
"""Name or prefix of every object of this collection; others are neither changed nor removed."""


class SwitchError(Exception):
    """A switch refused a request, did not answer, or sent an invalid answer.

    The text names the switch, the cause and the remedy, and never contains a password or token.
    """


@dataclass(frozen=True)
class Change:
    path: str
    found: Any
    """None: absent."""
    wanted: Any
    """None: to be removed."""


@dataclass(frozen=True)
class Impact:
    ports_down: tuple[str, ...] = ()
    """Ports that go down and come up again."""
    losses: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        return "bounce" if self.ports_down else "loss" if self.losses else "none"


DSCP_MAP, QUEUE_MAP, SHARES, MARKING, WATCHING = "dscp", "queue", "shares", "ecn", "watchdog"
UNDER_TRAFFIC = {
    DSCP_MAP: "the map from DSCP changes under traffic: packets can be missorted",
    QUEUE_MAP: "the map to queues changes under traffic: packets can be reordered",
    SHARES: "shares of the queues change under traffic",
    MARKING: "ECN thresholds change under traffic",
    WATCHING: "the PFC watchdog of {} restarts: a stuck queue is detected later",
}
"""Impact of changing a part of the contract on any system; systems add their own."""


def check_ports(intent: SwitchIntent, present: Collection[str], bundles: Mapping[str, str]) -> None:
    """Raise SwitchError if a port is missing or not in the port channel of the model (`bundles`:
    those of the switch, by member)."""
    missing = [port.name for port in intent.ports if port.name not in present]
    if missing:
        raise SwitchError(
            f"{intent.name}: the switch has no port {some(missing, 8)}; it has "
            f"{some(list(present), 4)}. Correct the names of the model (leaves.port, spines.port), "
            "or break the ports out on the switch"
        )
    faults = list(_outside_channels(intent.ports, bundles))
    if faults:
        more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
        raise SwitchError(f"{intent.name}: {'; '.join(faults[:_MOST_FAULTS])}{more}")


_MOST_FAULTS = 4


def _outside_channels(ports: Iterable[PortIntent], bundles: Mapping[str, str]) -> Iterator[str]:
    of_channel, leads_to = dict[str, str](), dict[str, str]()
    for port in ports:
        found, channel, name = bundles.get(port.name, ""), port.channel, port.channel_name
        here = f"{port.name} ({port.kind} link, {port.peer} {port.peer_interface})"
        member = f"{here} is a member of {found}"
        if not channel:
            if found:
                yield f"{member}. {_IN_A_BUNDLE[port.kind]}"
        elif not found:
            yield (
                f"{here} is in no port channel. Add it to {name or 'that'} to {channel}, or "
                "correct the model"
            )
        elif name not in ("", found):
            yield f"{member}, and the model has {name} to {channel}. Correct one of them"
        elif (first := of_channel.setdefault(channel, found)) != found:
            yield f"{member}, and others to {channel} of {first}. Add all to one"
        elif (other := leads_to.setdefault(found, channel)) != channel:
            yield f"{member}, which leads to {other}. Correct its members, or the model"


_IN_A_BUNDLE = {
    HOST: "A rail is one link, with its own headroom and cable. Remove it from the bundle, or "
    "write rails.bonded",
    STORAGE: "Remove it from the bundle, or write the host's bond as bond (storage, links)",
    **dict.fromkeys(
        (UPLINK, DOWNLINK),
        "Remove it from the bundle and route over each link (ECMP), or write port_channel "
        "(spines, super_spines or links)",
    ),
}
"""The remedy for a port in a bundle, where the model has none."""


def check_mtu(intent: SwitchIntent, found: Findings) -> None:
    mtu, limit = intent.fabric.mtu_ip, SYSTEMS[intent.system].largest_mtu
    if mtu > limit:
        found.add(
            f"{intent.system}.mtu",
            (intent.name,),
            f"roce_qos.mtu.fabric: IP packets of {mtu} bytes are above the {limit} of a port of "
            f"{intent.system}",
            f"Write fabric: {limit}, fabric_layer: ip, or less",
            mtu,
        )


def check_lossless_class(intent: SwitchIntent, reason: str, found: Findings) -> None:
    """Add a finding if priority and traffic class differ, on a system with one number for both."""
    for queue in intent.fabric.queues:
        if queue.lossless and queue.traffic_class != queue.priority:
            found.add(
                f"{intent.system}.lossless_class",
                (intent.name,),
                f"class {queue.name}: {reason}, and the contract has priority {queue.priority} and "
                f"traffic class {queue.traffic_class}",
                "Leave traffic_class out",
                (queue.priority, queue.traffic_class),
            )


def named_ports(names: Iterable[str]) -> str:
    unique = list(dict.fromkeys(names))
    return f"{counted(len(unique), 'port')} ({some(unique, 8)})"


@dataclass(frozen=True)
class Difference:
    changes: tuple[Change, ...]
    impact: Impact
    before: str
    after: str
    steps: Any
    expected_s: int = 0
    """Of an apply; 0 if unknown."""

    def __bool__(self) -> bool:
        return bool(self.changes)


class Applied(Protocol):
    """A difference in force that the switch undoes unless it is confirmed."""

    def confirm(self) -> None:
        """Make the change permanent. Raises SwitchError if that fails."""

    def rollback(self) -> None:
        """Undo the change and wait for the result. Raises SwitchError if it is not undone."""


class Saved:
    """The configuration was in force and is now saved: nothing to confirm or undo."""

    def confirm(self) -> None: ...

    def rollback(self) -> None: ...


class SwitchConnection(Protocol):
    undone_within_s: int
    """Time from the start of `apply` until the switch has undone an unconfirmed change; 0 if only
    its timer determines that."""

    def read(self) -> Any:
        """Read the input of `difference` and `report` over a new connection, which proves that the
        switch can still be reached."""

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        """Apply a difference, which the switch undoes after `confirm_s` unless it is confirmed.

        Raises SwitchError, with nothing left in force unless the message says so.
        """


@dataclass(frozen=True)
class SwitchLogin:
    """Access to a switch over HTTPS. Its repr hides the secrets."""

    address: str
    port: Optional[int] = None
    user: str = ""
    password: str = ""
    token: str = ""
    ca_file: str = ""
    """PEM file of the certificate's authority; empty: the authorities of the controller."""
    timeout_s: int = 30

    def __repr__(self) -> str:
        return f"Login({self.user}@{self.address}:{self.port or ''})"


@dataclass(frozen=True)
class Completed:
    rc: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """A root shell (POSIX sh) without a terminal: commands survive a lost connection."""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        """Run a command. Raises SwitchError if the connection is lost or the time limit expires."""

    def reconnect(self) -> None:
        """Open a new connection for the next command."""

    def say(self, line: str) -> None:
        """Show a line of progress."""


SPINE = "spine"


def compile_switch(
    name: str,
    system: str,
    asic: str,
    asics: Mapping[str, Mapping[str, Any]],
    ports: Sequence[Mapping[str, Any]],
    contract: Contract,
    port_step: int = 0,
    port_ranges: Sequence[str] = (),
) -> SwitchIntent:
    """Compile the variables `cluster_system`, `cluster_asic`, `cluster_asics` and so on."""
    fabric = fabric_intent(contract)
    cables = fabric.cable_metres
    found = [
        PortIntent(
            port,
            group["kind"],
            group["speed_gbps"],
            cables.to_nodes if group["kind"] in TO_NODES else cables.between_switches,
            peer,
            group["peer_interface"],
            channel=_channel(group, peer),
            channel_name=group.get("channels", {}).get(port, ""),
        )
        for group in ports
        if group["kind"] != PEER
        for port, peer in group["peers"].items()
    ]
    return SwitchIntent(
        name=name,
        system=system,
        asic=asic_named(asic, asics) or Asic(asic),
        fabric=fabric,
        ports=tuple(sorted(found, key=lambda port: natural(port.name))),
        port_step=port_step,
        port_ranges=tuple(port_ranges),
        peer_ports=tuple(
            port for group in ports if group["kind"] == PEER for port in group["peers"]
        ),
    )


def _channel(group: Mapping[str, Any], peer: str) -> str:
    if "channels" not in group:
        return ""
    end = group.get("pairs", {}).get(peer, peer)
    return f"{end} {group.get('bond', '')}".rstrip()


def batches(
    switches: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], at_once: int = 1
) -> list[list[str]]:
    """Order switches (name, role, `cluster_ports`) into batches that are changed in parallel.

    Spines come first, one by one, since a mistake costs least there. Leaves follow, but never two
    at a time that serve the same node in the same rail (planes) or the same storage host.
    """
    found = [[name] for name, role, _ports in switches if role == SPINE]
    waiting = {name: _served(ports) for name, role, ports in switches if role != SPINE}
    while waiting:
        batch: list[str] = []
        served: set[tuple[str, Any]] = set()
        for name, serves in waiting.items():
            if not batch or (len(batch) < at_once and served.isdisjoint(serves)):
                batch.append(name)
                served |= serves
        for name in batch:
            del waiting[name]
        found.append(batch)
    return found


def _served(ports: Iterable[Mapping[str, Any]]) -> set[tuple[str, Any]]:
    return {
        (peer, group.get("rail"))
        for group in ports
        if group["kind"] in TO_NODES
        for peer in group["peers"].values()
    }
