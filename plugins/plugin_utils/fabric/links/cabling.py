# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cables of the model: which port of which switch meets which rail, or which other port."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Optional

from ....module_utils.core.dataclass import dataclass
from ..intent import DOWNLINK, HOST, STORAGE, UPLINK


class End(NamedTuple):
    """One end of a cable."""

    host: str
    interface: str

    def __str__(self) -> str:
        return f"{self.host} {self.interface}"


class Link(NamedTuple):
    """One cable. `first` is a port of a switch; of a leaf where a leaf has part in it."""

    first: End
    second: End
    kind: str
    """HOST, STORAGE or UPLINK."""
    speed_gbps: float
    mtu: int
    """IP packets of the rails."""

    def __str__(self) -> str:
        return f"{self.first} - {self.second}"


@dataclass(frozen=True)
class Switch:
    """A switch of the inventory, and what it says of itself."""

    name: str
    role: str
    """`leaf` or `spine`."""
    ports: Sequence[Mapping[str, Any]]
    """Its variable `cluster_ports`."""
    system: str = ""
    asic: str = ""
    report: Optional[Mapping[str, Any]] = None
    """`SwitchReport.as_dict()`; None where there is none, and then `why`."""
    why: str = ""


@dataclass(frozen=True)
class Node:
    """A compute node of the inventory, and what its rails are."""

    name: str
    rails: Sequence[Mapping[str, Any]]
    """Its variable `cluster_rails`."""
    state: Optional[Mapping[str, Any]] = None
    """Result of the module roce_rails; None where there is none, and then `why`."""
    why: str = ""


@dataclass
class Cabling:
    links: list[Link] = field(default_factory=list)
    peers: dict[End, End] = field(default_factory=dict)
    """The other end, from either end."""
    contradictions: list[tuple[End, Optional[End], End, Optional[End]]] = field(
        default_factory=list
    )
    """A port and the peer that it has; that peer, and the one that it has itself."""


def cabling_of(switches: Iterable[Switch], nodes: Iterable[Node]) -> Cabling:
    """Every link once. Model and variables written by hand have each cable from both its ends."""
    cabling = Cabling()
    uplinks: dict[End, End] = {}
    downlinks: dict[End, End] = {}
    to_hosts: dict[End, End] = {}
    for switch in switches:
        for group in switch.ports:
            _add_group(switch.name, group, cabling, to_hosts, uplinks, downlinks)
    rails = {
        End(node.name, rail["interface"]): End(rail["leaf"], rail["leaf_port"])
        for node in nodes
        for rail in node.rails
        if rail.get("leaf") and rail.get("leaf_port")
    }
    known = {node for node, _interface in rails}
    _compare(to_hosts, rails, known, cabling)
    _compare(uplinks, downlinks, {spine for spine, _port in downlinks}, cabling)
    return cabling


def _add_group(
    name: str,
    group: Mapping[str, Any],
    cabling: Cabling,
    to_hosts: dict[End, End],
    uplinks: dict[End, End],
    downlinks: dict[End, End],
) -> None:
    kind, interface = group["kind"], group["peer_interface"]
    speed, mtu = group["speed_gbps"], group["mtu"]
    for port, peer in group["peers"].items():
        here, there = End(name, port), End(peer, interface)
        if kind == DOWNLINK:
            downlinks[here] = there
            continue
        if kind == HOST:
            to_hosts[here] = there
        elif kind == UPLINK:
            uplinks[here] = there
        elif kind != STORAGE:
            continue
        cabling.links.append(Link(here, there, kind, speed, mtu))
        cabling.peers[here] = there
        cabling.peers[there] = here


def _compare(
    here: Mapping[End, End], there: Mapping[End, End], known: set[str], cabling: Cabling
) -> None:
    """What one end has for its peer, against what that has for its own."""
    for port, peer in here.items():
        # A peer that says nothing of its own cables is no contradiction: it is not in this model.
        if peer.host in known and there.get(peer) != port:
            cabling.contradictions.append((port, peer, peer, there.get(peer)))
    for port, peer in there.items():
        if port not in cabling.peers:
            cabling.contradictions.append((port, peer, peer, here.get(peer)))
