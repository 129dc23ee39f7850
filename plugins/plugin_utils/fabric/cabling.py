# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cables of the model, and what LLDP heard on them: swapped cables are reported as such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Optional, Union

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, Check
from ...module_utils.core.dataclass import dataclass
from .system import DOWNLINK, UPLINK

NAME = "link_neighbour"
HOW = "install lldpd on the nodes, or enable LLDP in NIC firmware (mlxconfig LLDP_NB_TX_MODE_P1=2)"


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
    """A switch of the inventory, and its report."""

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


def cabling_of(switches: Iterable[Switch]) -> Cabling:
    """Every link once: that between leaf and spine from the leaf."""
    cabling = Cabling()
    for switch in switches:
        for group in switch.ports:
            if group["kind"] == DOWNLINK:
                continue
            for port, peer in group["peers"].items():
                here, there = End(switch.name, port), End(peer, group["peer_interface"])
                link = Link(here, there, group["kind"], group["speed_gbps"], group["mtu"])
                cabling.links.append(link)
                cabling.peers[here] = there
                cabling.peers[there] = here
    return cabling


class Finding(NamedTuple):
    check: Check
    hosts: tuple[str, ...]
    """Hosts that it concerns, those at fault first."""
    at_fault: int = 1
    """How many of `hosts` are."""


class Stranger(NamedTuple):
    """A neighbour that is not an end of a link of the model."""

    text: str
    host: str
    """The host of the model whose name it sends; empty where there is none."""
    bare: bool
    """It sends a MAC address and nothing else."""


Heard = Union[End, Stranger]


class Neighbours:
    def __init__(
        self, cabling: Cabling, switches: Mapping[str, Switch], nodes: Mapping[str, Node]
    ) -> None:
        self._cabling = cabling
        self._switches = switches
        self._nodes = nodes
        self._named = _Names((*switches, *nodes))
        self._by_mac = dict(_macs(nodes.values()))
        self._by_alias = dict(_aliases(switches.values()))
        self.proven = 0
        """Cables that at least one end has heard as the model has them."""

    def findings(self) -> list[Finding]:
        heard, findings = self._listen()
        return [*findings, *self._wrong(heard)]

    def _listen(self) -> tuple[dict[End, Heard], list[Finding]]:
        """Ends that hear another peer than the model's; and findings on what is not heard."""
        wrong: dict[End, Heard] = {}
        proven: set[frozenset[End]] = set()
        silent: list[End] = []
        findings: list[Finding] = []
        unread: list[tuple[End, End]] = []
        for switch in self._switches.values():
            if switch.report is None:
                continue
            if not switch.report["lldp"]:
                findings.append(self._deaf(switch))
                continue
            for port in switch.report["ports"]:
                here = End(switch.name, port["name"])
                peer = self._cabling.peers.get(here)
                if peer is None or not port["present"]:
                    continue
                neighbour = port.get("neighbour")
                if neighbour is None:
                    if port.get("up") is not False:
                        silent.append(here)
                    continue
                found = self._who(neighbour["system"], neighbour["port"], peer.host)
                if found == peer:
                    proven.add(frozenset((here, peer)))
                elif self._may_be(found, peer):
                    unread.append((here, peer))
                else:
                    wrong[here] = found
        self.proven = len(proven)
        return wrong, [*findings, *self._silent(silent), *_unread(unread)]

    def _who(self, system: str, port: str, expected: str) -> Heard:
        by_mac = self._by_mac.get(port.lower())
        if by_mac in self._cabling.peers:
            return by_mac
        shown = f"{system} {port}".strip()
        hosts = self._named.like(system)
        host = expected if expected in hosts else next(iter(hosts), None)
        if len(hosts) > 1 and host != expected:
            text = f"{shown}, which is the name of {' and of '.join(hosts)}"
            return Stranger(text, "", bare=False)
        if host is None:
            text = f"a neighbour that is not in the model, {shown or 'without a name'}"
            return Stranger(text, "", bare=not system)
        end = End(host, port)
        if end in self._cabling.peers:
            return end
        alias = self._by_alias.get(end)
        if alias is not None:
            return alias
        return Stranger(f"{shown}, which is not an end of the model", host, bare=False)

    def _may_be(self, found: Heard, peer: End) -> bool:
        """Whether it can be the right one: the MAC addresses of an unread host are not known."""
        if not isinstance(found, Stranger) or self._knows_ports(peer.host):
            return False
        return found.bare or found.host == peer.host

    def _knows_ports(self, host: str) -> bool:
        """Whether this host was read: its rails' MAC addresses, or its ports' aliases."""
        if host in self._nodes:
            return self._nodes[host].state is not None
        return host not in self._switches or self._switches[host].report is not None

    def _deaf(self, switch: Switch) -> Finding:
        between = any(group["kind"] in (UPLINK, DOWNLINK) for group in switch.ports)
        check = Check(
            NAME,
            "the neighbours of every port",
            None,
            FAILED if between else NOT_APPLICABLE,
            switch.name,
            "the switch reports no LLDP neighbours, so swapped cables cannot be found: enable LLDP",
        )
        return Finding(check, (switch.name,))

    def _silent(self, silent: Iterable[End]) -> list[Finding]:
        findings = []
        nodes: dict[str, list[End]] = {}
        for here in silent:
            peer = self._cabling.peers[here]
            if peer.host not in self._switches:
                nodes.setdefault(here.host, []).append(here)
                continue
            reason = f"{here.host} hears no neighbour: enable LLDP on {peer.host}, check the cable"
            check = Check(NAME, str(peer), None, FAILED, f"{here} - {peer}", reason)
            findings.append(Finding(check, (here.host, peer.host)))
        for host, ends in nodes.items():
            # One line per leaf: many nodes run no LLDP.
            reason = f"ports to nodes hear no neighbour: {HOW}"
            wanted = f"the neighbours of {len(ends)} ports"
            check = Check(NAME, wanted, None, NOT_APPLICABLE, f"{host} to nodes", reason)
            findings.append(Finding(check, (host,)))
        return findings

    def _wrong(self, heard: Mapping[End, Heard]) -> list[Finding]:
        findings = []
        done: set[frozenset[End]] = set()
        for here, found in heard.items():
            if isinstance(found, Stranger):
                findings.append(self._stranger(here, found))
                continue
            cable = frozenset((here, found))
            if cable in done:
                continue
            done.add(cable)
            other = self._swapped(here, found, heard)
            if other is None:
                findings.append(self._misplaced(here, found))
            else:
                done.add(frozenset((other, self._cabling.peers[here])))
                findings.append(self._swap(here, found, other))
        return findings

    def _swapped(self, here: End, found: End, heard: Mapping[End, Heard]) -> Optional[End]:
        """The port that has the cable of this one, whose cable this one has."""
        other = self._cabling.peers.get(found)
        if other is not None and heard.get(other) == self._cabling.peers[here]:
            return other
        return None

    def _swap(self, here: End, found: End, other: End) -> Finding:
        peer = self._cabling.peers[here]
        both = f"{here} and {other.interface if other.host == here.host else other}"
        check = Check(
            NAME,
            f"{here}: {peer}; {other}: {found}",
            f"{here}: {found}; {other}: {peer}",
            FAILED,
            both,
            f"the cables of {both} are swapped: swap them, or correct the model",
        )
        return Finding(check, tuple(dict.fromkeys((here.host, other.host))))

    def _misplaced(self, here: End, found: End) -> Finding:
        peer, place = self._cabling.peers[here], self._cabling.peers[found]
        check = Check(
            NAME,
            str(peer),
            str(found),
            FAILED,
            str(here),
            f"the cable of {found} belongs in {place}: plug it there and {peer} here, or correct "
            "the model",
        )
        return Finding(check, (here.host, place.host))

    def _stranger(self, here: End, found: Stranger) -> Finding:
        peer = self._cabling.peers[here]
        reason = (
            f"{here} hears {found.text}: look where this cable goes, and plug {peer} in, or "
            "correct the model"
        )
        check = Check(NAME, str(peer), found.text, FAILED, str(here), reason)
        return Finding(check, (here.host,))


class _Names:
    """Hosts by the name that LLDP sends, with or without the domain that the inventory has.

    One of two names must be the other's beginning: `leaf01.dc1` is not `leaf01.dc2`.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._whole: dict[str, str] = {}
        self._begun: dict[str, list[str]] = {}
        for host in hosts:
            self._whole[host.lower()] = host
            for name in _beginnings(host.lower()):
                self._begun.setdefault(name, []).append(host)

    def like(self, system: str) -> Sequence[str]:
        """Several where only the missing domain would distinguish them."""
        sent = system.lower()
        for name in (sent, *_beginnings(sent)):
            if name in self._whole:
                return (self._whole[name],)
        return self._begun.get(sent, ())


def _beginnings(name: str) -> list[str]:
    """`leaf01.dc1` and `leaf01` of `leaf01.dc1.example`; the longest first."""
    labels = name.split(".")
    return [".".join(labels[:count]) for count in range(len(labels) - 1, 0, -1)]


def _unread(ends: list[tuple[End, End]]) -> list[Finding]:
    """The right host was heard; which of its ports or rails is not known."""
    hosts: dict[str, int] = {}
    for _here, peer in ends:
        hosts[peer.host] = hosts.get(peer.host, 0) + 1
    reason = "the host was not read, so which of its ports or rails is heard is not known"
    return [
        Finding(Check(NAME, f"{count} of its ends", None, NOT_APPLICABLE, host, reason), (host,))
        for host, count in hosts.items()
    ]


def _macs(nodes: Iterable[Node]) -> Iterable[tuple[str, End]]:
    for node in nodes:
        for name, rail in ((node.state or {}).get("rails") or {}).items():
            if rail.get("mac"):
                yield rail["mac"].lower(), End(node.name, name)


def _aliases(switches: Iterable[Switch]) -> Iterable[tuple[End, End]]:
    for switch in switches:
        for port in (switch.report or {}).get("ports", ()):
            if port.get("alias"):
                yield End(switch.name, port["alias"]), End(switch.name, port["name"])
