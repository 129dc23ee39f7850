# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare the cables of the model with LLDP neighbours; swapped cables are reported as such."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, Union

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, Check
from ...module_utils.core.text import counted, some
from .system import DOWNLINK, PEER, UPLINK

NAME, MAPPED = "link_neighbour", "link_wire_map"
MAX_LISTED = 20
HOW = "install lldpd on the nodes, or enable LLDP in NIC firmware (mlxconfig LLDP_NB_TX_MODE_P1=2)"


class End(NamedTuple):
    host: str
    interface: str

    def __str__(self) -> str:
        return f"{self.host} {self.interface}"


class Cable(NamedTuple):
    """One cable. `first` is a switch port; a leaf's port if one end is on a leaf."""

    first: End
    second: End
    kind: str
    """HOST, STORAGE, UPLINK or PEER."""
    speed_gbps: float
    mtu: int
    """Largest IP packet of the rails."""

    def __str__(self) -> str:
        return f"{self.first} - {self.second}"


@dataclass(frozen=True)
class SwitchEntry:
    name: str
    ports: Sequence[Mapping[str, Any]]
    system: str = ""
    asic: str = ""
    report: Optional[Mapping[str, Any]] = None
    """None if missing, with the reason."""
    reason: str = ""


@dataclass(frozen=True)
class NodeEntry:
    name: str
    state: Optional[Mapping[str, Any]] = None
    """None if missing, with the reason."""
    reason: str = ""


def cables_of(switches: Iterable[SwitchEntry]) -> list[Cable]:
    """Every link once; links between leaf and spine begin at the leaf."""
    return [
        Cable(
            End(switch.name, port),
            End(peer, group["peer_interface"]),
            group["kind"],
            group["speed_gbps"],
            group["mtu"],
        )
        for switch in switches
        for group in switch.ports
        for port, peer in group["peers"].items()
        if first_end(group["kind"], switch.name, peer)
    ]


def first_end(kind: str, host: str, peer: str) -> bool:
    """Whether a cable of this kind begins at `host`, so that it is counted once."""
    return kind != DOWNLINK and (kind != PEER or host < peer)


def peers_of(cables: Iterable[Cable]) -> dict[End, End]:
    return {
        near: far
        for cable in cables
        for near, far in ((cable.first, cable.second), (cable.second, cable.first))
    }


class LinkFinding(NamedTuple):
    check: Check
    hosts: tuple[str, ...]
    at_fault: int = 1
    shown_at: tuple[str, ...] = ()
    """Hosts at the other ends, where nothing is wrong."""


class Stranger(NamedTuple):
    """A neighbour that is not at the end of any link in the model."""

    text: str
    host: str = ""
    """The host in the model that has the name sent, if any."""
    bare: bool = False
    """It sends only a MAC address."""


Heard = Union[End, Stranger]


class Neighbours:
    def __init__(
        self,
        cables: Iterable[Cable],
        switches: Mapping[str, SwitchEntry],
        nodes: Mapping[str, NodeEntry],
        mapped: Mapping[End, tuple[End, int]] = MappingProxyType({}),
    ) -> None:
        """`mapped`: the end that each end has in a wire map, and the number of the line."""
        self._peers = peers_of(cables)
        self._mapped = mapped
        self._switches = switches
        self._nodes = nodes
        self._by_label: dict[str, list[str]] = {}
        for host in (*switches, *nodes):
            self._by_label.setdefault(_labels(host)[0], []).append(host)
        self._by_mac: dict[str, list[End]] = {}
        for node in nodes.values():
            for name, rail in ((node.state or {}).get("rails") or {}).items():
                if rail.get("mac"):
                    self._by_mac.setdefault(rail["mac"].lower(), []).append(End(node.name, name))
        self._by_alias = {
            End(switch.name, port["alias"]): End(switch.name, port["name"])
            for switch in switches.values()
            for port in (switch.report or {}).get("ports", ())
            if port.get("alias")
        }
        self.proven = 0
        """Number of cables confirmed by a neighbour of at least one end."""

    def findings(self) -> list[LinkFinding]:
        wrong: dict[End, Heard] = {}
        proven: set[frozenset[End]] = set()
        silent: list[End] = []
        unread: dict[str, int] = {}
        outdated: dict[int, End] = {}
        """End by line of the wire map where LLDP agrees with the model."""
        findings: list[LinkFinding] = []
        for switch in self._switches.values():
            if switch.report is None:
                continue
            if not switch.report["lldp"]:
                kinds = {group["kind"] for group in switch.ports}
                between = not kinds.isdisjoint((UPLINK, DOWNLINK, PEER))
                reason = "swapped cables are not detected: enable LLDP on the switch"
                status = FAILED if between else NOT_APPLICABLE
                every = "the neighbours of every port"
                hosts = (switch.name,)
                findings.append(_finding(every, None, switch.name, reason, hosts, status))
                continue
            for port in switch.report["ports"]:
                here = End(switch.name, port["name"])
                peer = self._peers.get(here)
                if peer is None or not port["present"]:
                    continue
                neighbour = port.get("neighbour")
                if neighbour is None:
                    if port.get("up") is not False:
                        silent.append(here)
                    continue
                found = self._heard(neighbour["system"], neighbour["port"], peer.host)
                if found == peer:
                    proven.add(frozenset((here, peer)))
                    if self._mapped.get(here, (peer, 0))[0] != peer:
                        outdated.setdefault(self._mapped[here][1], here)
                elif self._may_be(found, peer):
                    unread[peer.host] = unread.get(peer.host, 0) + 1
                else:
                    wrong[here] = found
        self.proven = len(proven)
        reason = "the host was not read, so the neighbour cannot be identified"
        return [
            *findings,
            *self._silent(silent),
            *(
                _finding(f"{count} of its ends", None, host, reason, (host,), NOT_APPLICABLE)
                for host, count in unread.items()
            ),
            *self._wrong(wrong),
            *self._outdated(outdated),
        ]

    def _heard(self, system: str, port: str, expected: str) -> Heard:
        # A node may claim another node's address: the owner is found all the same.
        by_mac = [end for end in self._by_mac.get(port.lower(), ()) if end in self._peers]
        if by_mac:
            return next((end for end in by_mac if end.host == expected), by_mac[0])
        shown = f"{system} {port}".strip()
        hosts = self._named(system)
        if not hosts:
            text = f"a neighbour that is not in the model, {shown or 'without a name'}"
            return Stranger(text, bare=not system)
        if len(hosts) > 1 and expected not in hosts:
            return Stranger(f"{shown}, which is the name of {' and of '.join(hosts)}")
        host = expected if expected in hosts else hosts[0]
        end = End(host, port)
        end = end if end in self._peers else self._by_alias.get(end, end)
        if end in self._peers:
            return end
        return Stranger(f"{shown}, which is not an end of the model", host)

    def _named(self, system: str) -> list[str]:
        """Hosts with the name sent, with or without a domain: `leaf01.dc1` is not `leaf01.dc2`."""
        sent = _labels(system)
        return [
            host
            for host in self._by_label.get(sent[0], ())
            if all(label == known for label, known in zip(sent, _labels(host)))
        ]

    def _may_be(self, found: Heard, peer: End) -> bool:
        """Whether it may be the expected end: a MAC address or alias of an unread host."""
        if not isinstance(found, Stranger) or not (found.bare or found.host == peer.host):
            return False
        if peer.host in self._nodes:
            return self._nodes[peer.host].state is None
        return peer.host in self._switches and self._switches[peer.host].report is None

    def _silent(self, silent: Iterable[End]) -> list[LinkFinding]:
        findings = []
        nodes: dict[str, int] = {}
        for here in silent:
            peer = self._peers[here]
            if peer.host not in self._switches:
                nodes[here.host] = nodes.get(here.host, 0) + 1
                continue
            reason = f"{here.host} hears no neighbour: enable LLDP on {peer.host}, check the cable"
            hosts = (here.host, peer.host)
            findings.append(_finding(str(peer), None, f"{here} - {peer}", reason, hosts))
        for host, count in nodes.items():
            # One finding per leaf, since many nodes run no LLDP.
            reason = f"ports to nodes hear no neighbour: {HOW}"
            wanted = f"the neighbours of {count} ports"
            subject = f"{host} to nodes"
            findings.append(_finding(wanted, None, subject, reason, (host,), NOT_APPLICABLE))
        return findings

    def _outdated(self, lines: Mapping[int, End]) -> Iterator[LinkFinding]:
        if lines:
            shown = [
                f"line {number}: {here} - {self._mapped[here][0]}, where LLDP and the model have "
                f"{self._peers[here]}"
                for number, here in sorted(lines.items())
            ]
            host = next(iter(lines.values())).host
            reason = f"correct it: {some(shown, MAX_LISTED)}"
            found = f"{counted(len(lines), 'line')} of others"
            check = Check(
                MAPPED, "the cables that LLDP shows", found, NOT_APPLICABLE, "wire map", reason
            )
            yield LinkFinding(check, (host,))

    def _by_map(self, here: End, found: Heard) -> str:
        """What the wire map has at an end whose neighbour is not that of the model."""
        if here not in self._mapped:
            return "; the wire map has no line for it" if self._mapped else ""
        there, number = self._mapped[here]
        agrees = {self._peers[here]: "the model", found: "LLDP"}.get(there)
        return f"; line {number} of the wire map has {there}" + (f", as {agrees}" if agrees else "")

    def _wrong(self, heard: Mapping[End, Heard]) -> list[LinkFinding]:
        findings = []
        ends: dict[End, End] = {}
        for here, found in heard.items():
            if not isinstance(found, Stranger):
                ends[here] = found
                continue
            peer = self._peers[here]
            reason = (
                f"{here} hears {found.text}: trace this cable and connect {peer}, or correct "
                f"the model{self._by_map(here, found)}"
            )
            findings.append(_finding(str(peer), found.text, str(here), reason, (here.host,)))
        for here, peer, found, other, swapped in misplaced(self._peers, ends):
            mapped = self._by_map(here, found)
            ends_of = dict.fromkeys(end.host for end in (here, other, peer, found))
            hosts = tuple(host for host in ends_of if host in self._switches)
            others = tuple(host for host in ends_of if host not in self._switches)
            if not swapped:
                reason = (
                    f"the cable of {found} belongs in {other}: connect it there and {peer} here, "
                    f"or correct the model{mapped}"
                )
                finding = _finding(str(peer), str(found), str(here), reason, hosts)
                findings.append(finding._replace(at_fault=len(hosts), shown_at=others))
                continue
            both = f"{here} and {other.interface if other.host == here.host else other}"
            wanted = f"{here}: {peer}; {other}: {found}"
            actual = f"{here}: {found}; {other}: {peer}"
            reason = f"the cables of {both} are swapped: swap them, or correct the model{mapped}"
            finding = _finding(wanted, actual, both, reason, hosts)
            findings.append(finding._replace(at_fault=len(hosts), shown_at=others))
        return findings


class Misplaced(NamedTuple):
    """A cable between two ends of the model that belong to different cables."""

    here: End
    peer: End
    """Where the model has the cable of `here`."""
    found: End
    other: End
    """Where the model has the cable of `found`."""
    swapped: bool
    """The cable of `other` leads to `peer`."""


def misplaced(peers: Mapping[End, End], found: Mapping[End, End]) -> Iterator[Misplaced]:
    """Compare actual neighbours by end, `found`, with those of the model; two swapped cables are
    one result."""
    done: set[frozenset[End]] = set()
    for here, there in found.items():
        peer, other = peers[here], peers[there]
        cable = frozenset((here, there))
        if there == peer or cable in done:
            continue
        done.add(cable)
        swapped = found.get(other) == peer
        if swapped:
            done.add(frozenset((other, peer)))
        yield Misplaced(here, peer, there, other, swapped)


def _labels(name: str) -> list[str]:
    """`leaf01`, `dc1`, `example` of `leaf01.dc1.example`."""
    return name.lower().split(".")


def _finding(
    wanted: str,
    found: Optional[str],
    subject: str,
    reason: str,
    hosts: tuple[str, ...],
    status: str = FAILED,
) -> LinkFinding:
    return LinkFinding(Check(NAME, wanted, found, status, subject, reason), hosts)
