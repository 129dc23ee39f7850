# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What every switch system has in common: intent, report, and the interface it is used through.

Rendering, comparing and reporting are pure: they take data and give data, so that plans of a whole
fabric need no switch. Only `Switch` talks to one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional, Protocol

from ...module_utils.core.text import counted, natural, some
from ..qos import Contract, fabric_intent
from ..qos.compiled import FabricIntent, PfcWatchdog
from ..schema.findings import Findings
from .asics import Asic, asic_named
from .systems import SYSTEMS

HOST, STORAGE, UPLINK, DOWNLINK = "host", "storage", "uplink", "downlink"
"""Kinds of ports: to a node, to a storage host, from a leaf to a spine, from a spine to a leaf."""
TO_NODES = (HOST, STORAGE)
"""Their cables are `roce_qos.cable_metres.to_nodes` long."""


@dataclass(frozen=True)
class PortIntent:
    name: str
    """In the switch's own terms: `Ethernet8`, `swp2`, `Ethernet2/1`."""
    kind: str
    speed_gbps: int
    cable_metres: int
    """The longest cable of this kind of link in the contract."""
    peer: str
    """Host name at the other end."""
    peer_interface: str
    """Its rail or port."""


@dataclass(frozen=True)
class SwitchIntent:
    """The wanted state of one switch, in no system's configuration language."""

    name: str
    system: str
    asic: Asic
    fabric: FabricIntent
    ports: tuple[PortIntent, ...]
    """In the order of the switch's ports. Ports outside the model are not in it."""
    port_step: int = 0
    """From one port's number to the next as the model computed it from the lanes of the chip; 0:
    names were not computed so."""


@dataclass(frozen=True)
class Neighbour:
    """What LLDP heard on a port."""

    system: str
    """Host name; empty where the sender does not say one, as a NIC's firmware does not."""
    port: str
    """Port id: an interface name, or a MAC address in lower case with colons."""


_MAC = re.compile(r"([0-9a-f]{4}\.){2}[0-9a-f]{4}|([0-9a-f]{2}[:-]?){5}[0-9a-f]{2}", re.IGNORECASE)


def is_mac(text: str) -> bool:
    return _MAC.fullmatch(text) is not None


def port_id(text: str) -> str:
    """As `Neighbour.port` has it."""
    digits = re.sub(r"[^0-9a-f]", "", text.lower())
    pairs = (digits[place : place + 2] for place in range(0, 12, 2))
    return ":".join(pairs) if is_mac(text) else text


@dataclass(frozen=True)
class EcnReport:
    minimum_bytes: Optional[int]
    """None, and of the maximum: a threshold that is no number of bytes, as EOS's `segments`."""
    maximum_bytes: Optional[int]
    probability_percent: int


@dataclass(frozen=True)
class PortReport:
    """One port. None: the switch does not report it, which is not the same as off."""

    name: str
    present: bool
    """False: the switch has no such port, and nothing else here is known."""
    up: Optional[bool] = None
    speed_gbps: Optional[int] = None
    mtu_ip: Optional[int] = None
    """Largest IP packet, however the system counts."""
    mtu_of: str = ""
    """The routed interface behind the port (`Vlan100`), where its MTU is the smaller one."""
    trust: Optional[str] = None
    """`dscp`, `pcp` or `none`."""
    dscp_to_traffic_class: Optional[tuple[int, ...]] = None
    """Place = DSCP, 64 of them."""
    pfc_priorities: Optional[tuple[int, ...]] = None
    lossless_priorities: Optional[tuple[int, ...]] = None
    """Those with a buffer that is lossless: PFC without one drops."""
    strict_queues: Optional[tuple[int, ...]] = None
    weights: Optional[dict[int, int]] = None
    """Per cent or weight of each queue that is not strict."""
    ecn: Optional[dict[int, EcnReport]] = None
    """By queue; a queue that is not in it does not mark."""
    cable_metres: Optional[int] = None
    headroom_bytes: Optional[int] = None
    """Room after XOFF (xoff) of the lossless priority group."""
    platform_headroom_bytes: Optional[int] = None
    """What the switch's own table has for this speed and cable."""
    watchdog: Optional[PfcWatchdog] = None
    neighbour: Optional[Neighbour] = None
    alias: str = ""
    """Another name by which it announces itself to neighbours (LLDP), where there is one."""


@dataclass(frozen=True)
class SwitchReport:
    switch: str
    system: str
    version: str
    """As the switch reports it; contains `simulation` where it is one."""
    ports: tuple[PortReport, ...]
    lldp: bool
    """Whether neighbours could be read at all."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form, as the module returns it."""
        return asdict(self)


OWNED = "BAREMETAL_MPI_ROCE"
"""Name, or its beginning, of every object of this collection. Others are the operator's: they are
neither changed nor removed."""


class SwitchError(Exception):
    """A switch refused, did not answer, or answered nonsense: which, what, and the remedy.

    Never holds a password or token.
    """


@dataclass(frozen=True)
class Change:
    """One value that differs."""

    path: str
    """In the system's own words: `PORT_QOS_MAP|Ethernet0 pfc_enable`."""
    found: Any
    """None: not there."""
    wanted: Any
    """None: it goes."""


@dataclass(frozen=True)
class Impact:
    """What applying a difference costs the traffic."""

    ports_down: tuple[str, ...] = ()
    """They go down and come up again."""
    losses: tuple[str, ...] = ()
    """Other costs, one sentence each: `PFC off for a moment on 64 ports: packets can be lost`."""

    @property
    def level(self) -> str:
        """`none`, `loss` or `bounce`."""
        return "bounce" if self.ports_down else "loss" if self.losses else "none"


DSCP_MAP, QUEUE_MAP, SHARES, MARKING, WATCHING = "dscp", "queue", "shares", "ecn", "watchdog"
UNDER_TRAFFIC = {
    DSCP_MAP: "the map from DSCP changes under traffic: packets can be missorted",
    QUEUE_MAP: "the map to queues changes under traffic: packets can be reordered",
    SHARES: "shares of the queues change under traffic",
    MARKING: "ECN thresholds change under traffic",
    WATCHING: "the PFC watchdog of {} starts anew: a stuck queue is noticed later",
}
"""What a change of the contract's parts costs on every system. What else it costs on one of them,
such as buffers that are laid out anew, comes on top."""


def check_ports(intent: SwitchIntent, there: Collection[str], bundles: Mapping[str, str]) -> None:
    """SwitchError where a port is missing, or in a bundle. `bundles`: by member."""
    missing = [port.name for port in intent.ports if port.name not in there]
    if missing:
        raise SwitchError(
            f"{intent.name}: the switch has no port {some(missing, 8)}; it has "
            f"{some(list(there), 4)}. Correct the names of the model (leaves.port, spines.port), "
            "or break the ports out on the switch"
        )
    for port in intent.ports:
        if port.name in bundles:
            raise SwitchError(
                f"{intent.name}: {port.name} ({port.kind} link, {port.peer} {port.peer_interface}) "
                f"is a member of {bundles[port.name]}. {_IN_A_BUNDLE[port.kind]}"
            )


def check_names(intent: SwitchIntent, there: Collection[str]) -> None:
    """SwitchError where computed names pass over ports of the switch: each of them is there, and
    leads to another cable."""
    for port in intent.ports if intent.port_step else ():
        stem, number = _stem(port.name)
        between = range(number + 1, number + intent.port_step)
        skipped = next((place for place in between if f"{stem}{place}" in there), None)
        if skipped is not None:
            raise SwitchError(
                f"{intent.name}: after {port.name} the switch has {stem}{skipped}, and the model, "
                f"which takes a port for {intent.port_step} lanes, {stem}{between.stop}: the names "
                f"after it are those of other cables. Write port_step: {skipped - number} "
                f"(leaves.port_step, spines.port_step), or {intent.port_step} where ports between "
                "are outside the model"
            )


def _stem(name: str) -> tuple[str, int]:
    """`Ethernet` and 8."""
    digits = re.search(r"[0-9]{0,9}$", name)
    number = digits[0] if digits else ""
    return name.removesuffix(number), int(number or 0)


_TO_SWITCH = (
    "The model has each link between switches by itself, and MTU and QoS of a member are those of "
    "its bundle. Take it out, and route over each link (ECMP); or leave the spines out of the "
    "model, and set the bundle by hand as the contract says"
)
_IN_A_BUNDLE = {
    HOST: "A rail is one link, and the contract counts on its headroom and its cable. Take it out, "
    "or correct the model",
    STORAGE: "MTU and QoS of a member are those of its bundle, and the contract is set port by "
    "port. Take it out, or leave the link out of the model (storage, links), and set the bundle by "
    "hand as the contract says",
    UPLINK: _TO_SWITCH,
    DOWNLINK: _TO_SWITCH,
}
"""Why a port in a bundle is refused, and what to do, by kind of link."""


def check_mtu(intent: SwitchIntent, found: Findings) -> None:
    mtu, most = intent.fabric.mtu_ip, SYSTEMS[intent.system].largest_mtu
    if mtu > most:
        found.add(
            f"{intent.system}.mtu",
            (intent.name,),
            f"roce_qos.mtu.fabric: IP packets of {mtu} bytes are above the {most} of a port of "
            f"{intent.system}",
            f"Write fabric: {most}, fabric_layer: ip, or less",
            mtu,
        )


def check_lossless_class(intent: SwitchIntent, why: str, found: Findings) -> None:
    """Of a system that has one number where the contract has two."""
    for queue in intent.fabric.queues:
        if queue.lossless and queue.traffic_class != queue.priority:
            found.add(
                f"{intent.system}.lossless_class",
                (intent.name,),
                f"class {queue.name}: {why}, and the contract has priority {queue.priority} and "
                f"traffic class {queue.traffic_class}",
                "Leave traffic_class out",
                (queue.priority, queue.traffic_class),
            )


def named_ports(names: Iterable[str]) -> str:
    """`2 ports (swp1, swp2)`, for a text on losses."""
    different = list(dict.fromkeys(names))
    return f"{counted(len(different), 'port')} ({some(different, 8)})"


@dataclass(frozen=True)
class Difference:
    changes: tuple[Change, ...]
    impact: Impact
    before: str
    """What is there of what changes, as text for a unified diff; `after` the same as it will be."""
    after: str
    steps: Any
    """What the system's `Switch` applies: patches, an object, lines."""
    expected_s: int = 0
    """How long applying it takes; 0 where no figures are known."""

    def __bool__(self) -> bool:
        return bool(self.changes)


class Applied(Protocol):
    """A difference that is in force and not yet kept: left alone, the switch itself undoes it."""

    def confirm(self) -> None:
        """Keep it, across reboots of the switch too. SwitchError if it is not kept."""

    def rollback(self) -> None:
        """Undo it now and wait until it is undone. SwitchError if it is not."""


class Saved:
    """All was in force and is saved now: nothing to prove and nothing to undo."""

    def confirm(self) -> None:
        return

    def rollback(self) -> None:
        return


class Switch(Protocol):
    """One switch, over its connection."""

    undone_within_s: int
    """Counted from the begin of `apply`: by then the switch has undone what was not kept; 0 where
    its timer alone decides."""

    def read(self) -> Any:
        """All that `difference` and `report` look at, read from the device now. Changes nothing.

        Each call makes a connection of its own: a read after a change proves that the switch can
        still be reached.
        """

    def apply(self, difference: Difference, confirm_s: int) -> Applied:
        """Put a difference in force; the switch undoes it after `confirm_s` unless confirmed.

        On SwitchError nothing of it is left in force, or the message names what is.
        """


@dataclass(frozen=True)
class Login:
    """How a switch is reached. Its text never shows the secrets."""

    address: str
    port: Optional[int] = None
    """None: the system's usual one."""
    user: str = ""
    password: str = ""
    token: str = ""
    ca_file: str = ""
    """PEM of the authority of the switch's certificate; empty: those of this machine."""
    timeout_s: int = 30

    def __repr__(self) -> str:
        return f"Login({self.user}@{self.address}:{self.port or ''})"


@dataclass(frozen=True)
class Completed:
    rc: int
    stdout: str
    stderr: str


class Shell(Protocol):
    """Runs as root, in POSIX sh, without a terminal: a command goes on if the line is cut."""

    def run(self, command: str, stdin: str = "", timeout_s: int = 60) -> Completed:
        """Of any status; SwitchError where the connection was lost or time ran out."""

    def reconnect(self) -> None:
        """The next command opens a new connection."""

    def say(self, line: str) -> None:
        """To the operator, while minutes pass."""


# From the inventory to one intent per switch, and the order in which switches are changed. The
# cluster model was checked when it was compiled; nothing is checked again here.

SPINE = "spine"


def compile_switch(
    name: str,
    system: str,
    asic: str,
    asics: Mapping[str, Mapping[str, Any]],
    ports: Iterable[Mapping[str, Any]],
    contract: Contract,
    port_step: int = 0,
) -> SwitchIntent:
    """`asic`, `asics`, `ports`, `port_step`: the variables `cluster_asic`, `cluster_asics`, ..."""
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
        )
        for group in ports
        for port, peer in group["peers"].items()
    ]
    return SwitchIntent(
        name=name,
        system=system,
        asic=asic_named(asic, asics) or Asic(asic),
        fabric=fabric,
        ports=tuple(sorted(found, key=lambda port: natural(port.name))),
        port_step=port_step,
    )


def batches(
    switches: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], at_once: int = 1
) -> list[list[str]]:
    """Names, each once; a batch is changed in parallel, and the next when it is done.

    `switches`: name, role and `cluster_ports` of each that differs. Spines come first, each alone:
    the others carry its traffic meanwhile, so a mistake shows first on the switch whose loss costs
    least. Then leaves, `at_once` of them, never two that serve the same node in the same rail
    (planes) or the same storage host.
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
