# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What LLDP heard against the cables of the model: swapped cables show as such."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Optional, Union

from ....module_utils.core.checks import FAILED, NOT_APPLICABLE, Check
from ..intent import DOWNLINK, UPLINK
from .cabling import Cabling, End, Node, Switch

NAME = "link_neighbour"
HOW = "install lldpd on the nodes, or let the NICs' firmware speak (mlxconfig LLDP_NB_TX_MODE_P1=2)"

NOBODY = End("", "")


class Finding(NamedTuple):
    check: Check
    hosts: tuple[str, ...]
    """Whom it is about, those at fault before the others."""
    at_fault: int = 1
    """How many of `hosts` are."""


class Stranger(NamedTuple):
    """A neighbour that is no end of the model."""

    text: str
    host: str
    """The host of the model that it says it is; empty for one that nobody knows."""
    bare: bool
    """It says its MAC address and nothing else."""


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

    # What is heard

    def _listen(self) -> tuple[dict[End, Heard], list[Finding]]:
        """Ends that hear something else than they should; and what is heard nowhere."""
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
        by_mac = self._by_mac.get(port.lower(), NOBODY)
        if by_mac in self._cabling.peers:
            return by_mac
        shown = f"{system} {port}".strip()
        hosts = self._named.like(system)
        host = expected if expected in hosts else next(iter(hosts), None)
        if len(hosts) > 1 and host != expected:
            text = f"{shown}, which is the name of {' and of '.join(hosts)}"
            return Stranger(text, "", bare=False)
        if host is None:
            text = f"a neighbour that is not in the model, {shown or 'and says no name'}"
            return Stranger(text, "", bare=not system)
        end = End(host, port)
        if end in self._cabling.peers:
            return end
        alias = self._by_alias.get(end)
        if alias is not None:
            return alias
        return Stranger(f"{shown}, which is no end of the model", host, bare=False)

    def _may_be(self, found: Heard, peer: End) -> bool:
        """Whether it may be the right one, which was not read: its MACs are not known then."""
        if not isinstance(found, Stranger) or self._knows_ports(peer.host):
            return False
        return found.bare or found.host == peer.host

    def _knows_ports(self, host: str) -> bool:
        """Whether a port that this host speaks of could be told: a rail by its MAC address, a port
        of a switch by its alias."""
        if host in self._nodes:
            return self._nodes[host].state is not None
        return host not in self._switches or self._switches[host].report is not None

    # What comes of it

    def _deaf(self, switch: Switch) -> Finding:
        between = any(group["kind"] in (UPLINK, DOWNLINK) for group in switch.ports)
        check = Check(
            NAME,
            "the neighbours of every port",
            None,
            FAILED if between else NOT_APPLICABLE,
            switch.name,
            "the switch gives no LLDP neighbours: its LLDP is off, or may not be read. Swapped "
            "cables cannot be seen. Switch LLDP on",
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
            reason = (
                f"{here.host} hears nobody. Switch LLDP on at {peer.host}, and look at the cable"
            )
            check = Check(NAME, str(peer), None, FAILED, f"{here} - {peer}", reason)
            findings.append(Finding(check, (here.host, peer.host)))
        for host, ends in nodes.items():
            # One line a leaf: nodes speak LLDP only where somebody saw to it.
            reason = f"ports to nodes hear nobody: {HOW}"
            wanted = f"the neighbours of {len(ends)} ports"
            check = Check(NAME, wanted, None, NOT_APPLICABLE, f"{host} to nodes", reason)
            findings.append(Finding(check, (host,)))
        return findings

    def _wrong(self, heard: Mapping[End, Heard]) -> list[Finding]:
        findings = []
        told: set[frozenset[End]] = set()
        for here, found in heard.items():
            if isinstance(found, Stranger):
                findings.append(self._stranger(here, found))
                continue
            cable = frozenset((here, found))
            if cable in told:
                continue
            told.add(cable)
            other = self._swapped(here, found, heard)
            if other is None:
                findings.append(self._misplaced(here, found))
            else:
                told.add(frozenset((other, self._cabling.peers[here])))
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
    """Hosts by what they call themselves: with or without the domain that the inventory has.

    Of two names one has to be the other's beginning: `leaf01.dc1` is no `leaf01.dc2`.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._whole: dict[str, str] = {}
        self._begun: dict[str, list[str]] = {}
        for host in hosts:
            self._whole[host.lower()] = host
            for name in _beginnings(host.lower()):
                self._begun.setdefault(name, []).append(host)

    def like(self, system: str) -> Sequence[str]:
        """Several where the domain that is not said would tell them apart."""
        said = system.lower()
        for name in (said, *_beginnings(said)):
            if name in self._whole:
                return (self._whole[name],)
        return self._begun.get(said, ())


def _beginnings(name: str) -> list[str]:
    """`leaf01.dc1` and `leaf01` of `leaf01.dc1.example`; the longest first."""
    labels = name.split(".")
    return [".".join(labels[:count]) for count in range(len(labels) - 1, 0, -1)]


def _unread(ends: list[tuple[End, End]]) -> list[Finding]:
    """The right host was heard, and which of its ports or rails cannot be told."""
    hosts: dict[str, int] = {}
    for _here, peer in ends:
        hosts[peer.host] = hosts.get(peer.host, 0) + 1
    reason = "the host was not read: which of its ports or rails is heard cannot be told"
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
