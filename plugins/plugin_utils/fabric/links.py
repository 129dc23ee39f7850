# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare both ends of every link in the model with the contract, and name the remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, PENDING, Check
from ...module_utils.core.text import some
from ..qos import Contract, fabric_intent
from . import aspects
from .asics import Asic, asic_named
from .aspects import Reading, Unread, show
from .cabling import Cable, End, LinkFinding, Neighbours, NodeEntry, SwitchEntry, cables_of
from .compare import SwitchEnds, nic_end
from .system import HOST, PEER, STORAGE, UPLINK
from .systems import SYSTEMS
from .wire_map import by_end

MAX_LISTED_NAMES = 8

BY_HAND = {
    aspects.PORT: "Compare the port and rail names of the model with those present",
    aspects.UP: "Check the cable, the transceivers and both ports",
    aspects.SPEED: "Set the port's speed and breakout by hand, or correct the model",
}
"""Remedies for aspects that no layer repairs."""

_FIGURES = (
    aspects.DSCP_MAP,
    aspects.QUEUES,
    aspects.PFC,
    aspects.ECN,
    aspects.MTU,
    aspects.SPEED,
    aspects.CABLE,
    aspects.HEADROOM,
    aspects.WATCHDOG,
)


class Side(NamedTuple):
    """One end of a link; `found` is None if it was not read."""

    end: End
    wanted: Reading
    found: Optional[Reading]


@dataclass
class Group:
    """The links of one switch to one kind of host: a line of the table."""

    switch: str
    to: str
    links: int = 0
    agree: int = 0
    """Both ends were read, and match the contract."""
    one_end: int = 0
    """Only one end was read, which matches the contract."""
    wrong: int = 0
    unread: int = 0
    figures: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        counts = [f"{self.agree} links"] if self.agree else []
        counts += [f"{self.one_end} at one end only"] if self.one_end else []
        figures = [self.figures[aspect] for aspect in _FIGURES if aspect in self.figures]
        return f"{' and '.join(counts)}: {', '.join(figures)}"


@dataclass
class Links:
    findings: list[LinkFinding] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    neighbours: int = 0
    wrong_mtu: dict[str, set[str]] = field(default_factory=dict)
    """Interfaces by host, with a finding each."""

    @property
    def checks(self) -> list[Check]:
        return [finding.check for finding in self.findings]


def check_links(
    contract: Contract,
    switches: Mapping[str, SwitchEntry],
    nodes: Mapping[str, NodeEntry],
    *,
    asics: Optional[Mapping[str, Mapping[str, Any]]] = None,
    inside: Optional[Collection[str]] = None,
    check_mode: bool = False,
    wire_map: Optional[Path] = None,
    small: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Links:
    """Check every link with an end among the hosts `inside`; None: every link. `small`: routed
    interfaces by switch whose MTU has a check elsewhere.

    In check mode, deviations that the layers rails and fabric would repair are pending. Raises
    WireMapError.
    """
    check = _Check(contract, switches, nodes, asics or {}, inside, check_mode, small)
    return check.run(wire_map)


class _Check:
    def __init__(
        self,
        contract: Contract,
        switches: Mapping[str, SwitchEntry],
        nodes: Mapping[str, NodeEntry],
        asics: Mapping[str, Mapping[str, Any]],
        inside: Optional[Collection[str]],
        check_mode: bool,
        small: Mapping[str, Collection[str]],
    ) -> None:
        self.check_mode = check_mode
        self.small = small
        self.result = Links()
        self.inside = inside
        self.nodes = nodes
        self.switches = switches
        intent = fabric_intent(contract)
        self.switch_ends = {
            name: SwitchEnds(
                switch.system,
                asic_named(switch.asic, asics) or Asic(switch.asic),
                switch.report,
                intent,
            )
            for name, switch in switches.items()
        }
        self.unread: dict[tuple[str, str], dict[str, set[str]]] = {}
        """Unreported aspects of each interface, by host and reason."""
        self.beyond = 0
        """Number of links whose other end is outside --limit."""
        self.storage = 0
        self.groups: dict[tuple[str, str, float], Group] = {}

    def run(self, wire_map: Optional[Path]) -> Links:
        cables = cables_of(self.switches.values())
        mapped = by_end(wire_map, cables) if wire_map else {}
        self._without_report()
        for link in (cable for cable in cables if cable.kind != PEER):
            if self._within(link.first.host) or self._within(link.second.host):
                self._check_link(link)
        neighbours = Neighbours(cables, self.switches, self.nodes, mapped)
        self.result.findings += neighbours.findings()
        self.result.neighbours = neighbours.proven
        self._add_unread()
        self.result.groups = list(self.groups.values())
        for group in self.result.groups:
            if group.agree + group.one_end and not group.wrong:
                subject = f"{group.switch} to {group.to}"
                self._add(Check("links", group.text(), group.text(), OK, subject), group.switch)
        return self.result

    def _within(self, host: str) -> bool:
        return self.inside is None or host in self.inside

    def _add(self, check: Check, *hosts: str, at_fault: int = 1) -> None:
        self.result.findings.append(LinkFinding(check, hosts, at_fault))

    def _without_report(self) -> None:
        switches = [
            switch
            for switch in self.switches.values()
            if switch.report is None and self._within(switch.name)
        ]
        for switch in switches:
            if switch.system and switch.ports:
                self._unreported(switch.name, switch.reason, "a report of its ports")
        for node in self.nodes.values():
            if node.state is None and self._within(node.name):
                self._unreported(node.name, node.reason, "the state of its rails")
        without_system = [switch.name for switch in switches if not switch.system]
        if without_system:
            reason = (
                f"the model names no system for {some(without_system, MAX_LISTED_NAMES)}, so their "
                "ends of links were not read: set leaves.system and spines.system"
            )
            wanted = f"reports of {len(without_system)} switches"
            self._add(
                Check("link_system", wanted, None, NOT_APPLICABLE, "", reason), *without_system[:1]
            )

    def _unreported(self, host: str, cause: str, wanted: str) -> None:
        cause = cause or f"{host} returned nothing in this run"
        reason = f"{cause.rstrip('.')}. Try: {self._command(host)} --check"
        self._add(Check("link_report", wanted, None, FAILED, host, reason), host)

    def _command(self, host: str) -> str:
        tag = "fabric" if host in self.switches else "rails"
        return f"ansible-playbook site.yml --tags {tag} --limit {host}"

    def _check_link(self, link: Cable) -> None:
        key = (link.first.host, link.kind, link.speed_gbps)
        if key not in self.groups:
            to = {HOST: "nodes", STORAGE: "storage", UPLINK: "spines"}[link.kind]
            self.groups[key] = Group(link.first.host, to)
        group = self.groups[key]
        group.links += 1
        if link.kind == STORAGE:
            self.storage += 1
        elif not all(self._within(end.host) for end in (link.first, link.second)):
            self.beyond += 1
        sides = (self._side(link.first, link), self._side(link.second, link))
        wrong = self._wrong(sides, link.mtu)
        for side in wrong.get(aspects.MTU, ()):
            self.result.wrong_mtu.setdefault(side.end.host, set()).add(side.end.interface)
        for aspect, deviating in wrong.items():
            hosts = dict.fromkeys(side.end.host for side in deviating)
            every = dict.fromkeys((*hosts, link.first.host, link.second.host))
            self._add(self._mismatch(link, aspect, deviating, sides), *every, at_fault=len(hosts))
        read = [side for side in sides if side.found is not None]
        if wrong:
            group.wrong += 1
            return
        if len(read) == 2:
            group.agree += 1
        elif read:
            group.one_end += 1
        else:
            group.unread += 1
        if len(group.figures) < len(_FIGURES):
            for side in read:
                for aspect, value in (side.found or {}).items():
                    if aspect in _FIGURES and not isinstance(value, Unread):
                        group.figures.setdefault(aspect, show(aspect, value))

    def _side(self, end: End, link: Cable) -> Side:
        switch, node = self.switches.get(end.host), self.nodes.get(end.host)
        if switch is not None and switch.report is not None:
            ports = self.switch_ends[end.host]
            wanted = ports.wanted(link.kind, link.speed_gbps)
            return Side(end, wanted, ports.found(end.interface, wanted))
        if node is not None and node.state is not None:
            return Side(end, *nic_end(node.state, end.interface, link.speed_gbps, link.mtu))
        return Side(end, {}, None)

    def _wrong(self, sides: tuple[Side, Side], mtu: int) -> dict[str, list[Side]]:
        """By aspect, the sides that deviate from the contract. A routed interface or port channel
        only needs the MTU of the rails, `mtu`. Unreported values are recorded."""
        wrong: dict[str, list[Side]] = {}
        for side in sides:
            if side.found is None or side.found == side.wanted:
                continue
            for aspect, found in side.found.items():
                wanted = side.wanted[aspect]
                missing = found if isinstance(found, Unread) and not found.fault else wanted
                if isinstance(missing, Unread):
                    interfaces = self.unread.setdefault((side.end.host, missing.reason), {})
                    interfaces.setdefault(side.end.interface, set()).add(aspect)
                elif found != wanted and not (
                    aspect == aspects.MTU
                    and self._routed([side])
                    and (mtu <= found or self._named_elsewhere(side.end))
                ):
                    wrong.setdefault(aspect, []).append(side)
        return wrong

    def _named_elsewhere(self, end: End) -> bool:
        routed = self.switch_ends[end.host].routed(end.interface)
        return routed in self.small.get(end.host, ())

    def _mismatch(
        self, link: Cable, aspect: str, wrong: list[Side], sides: tuple[Side, Side]
    ) -> Check:
        shown = [side for side in sides if side.found is not None and aspect in side.wanted]
        wanted = [show(aspect, side.wanted[aspect]) for side in shown]
        alike = len(set(wanted)) == 1
        differing = "; ".join(f"{side.end.host}: {text}" for side, text in zip(shown, wanted))
        # The layer rails repairs a rail that is not set up yet.
        not_set_up = aspect == aspects.UP and all(
            (side.found or {}).get(aspect) == aspects.NOT_SET_UP for side in wrong
        )
        by_hand = "" if not_set_up else self._by_hand(aspect, wrong)
        commands = dict.fromkeys(self._command(side.end.host) for side in wrong)
        repair = by_hand or "Repair: " + "; ".join(commands)
        return Check(
            f"link_{aspect}",
            wanted[0] if alike else differing,
            "; ".join(f"{side.end}: {_found(side, aspect)}" for side in shown),
            PENDING if self.check_mode and not by_hand else FAILED,
            str(link),
            f"{_who(aspect, wrong, sides, alike)}. {repair}",
        )

    def _by_hand(self, aspect: str, wrong: list[Side]) -> str:
        switches = (self.switches.get(side.end.host) for side in wrong)
        systems = (SYSTEMS.get(switch.system) for switch in switches if switch is not None)
        fixed = (system.fixed.get(aspect, "") for system in systems if system is not None)
        routed = self._routed(wrong) if aspect == aspects.MTU else ""
        return routed or BY_HAND.get(aspect) or next(filter(None, fixed), "")

    def _routed(self, wrong: list[Side]) -> str:
        """The remedy if a routed interface or port channel limits the MTU, which no layer sets;
        otherwise empty."""
        interfaces = []
        for side in wrong:
            switch = self.switch_ends.get(side.end.host)
            name = switch.routed(side.end.interface) if switch else ""
            if not name:
                return ""
            interfaces.append(f"{side.end.host} interface {name}")
        return f"Set the MTU of {', '.join(interfaces)} by hand: no layer sets these interfaces"

    def _add_unread(self) -> None:
        for (host, reason), interfaces in self.unread.items():
            aspects = sorted(set().union(*interfaces.values()))
            subject = f"{host} {some(list(interfaces), MAX_LISTED_NAMES)}"
            name, wanted = f"link_{aspects[0]}", ", ".join(aspects)
            self._add(Check(name, wanted, None, NOT_APPLICABLE, subject, reason), host)
        if self.beyond:
            reason = "the other ends are outside --limit and were not read: run without it"
            wanted = f"both ends of {self.beyond} links"
            self._add(Check("link_other_end", wanted, None, NOT_APPLICABLE, "", reason))
        if self.storage:
            reason = "NICs of storage hosts are not read: this collection does not configure them"
            wanted = f"both ends of {self.storage} links"
            self._add(Check("link_other_end", wanted, None, NOT_APPLICABLE, "storage", reason))


def _found(side: Side, aspect: str) -> str:
    return show(aspect, (side.found or {}).get(aspect, "not read"))


def _who(aspect: str, wrong: list[Side], sides: Iterable[Side], alike: bool) -> str:
    if len(wrong) == 1:
        unread = [side.end.host for side in sides if side.found is None]
        also = f" ({', '.join(unread)} was not read)" if unread else ""
        return f"{wrong[0].end.host} is wrong{also}"
    if alike and len({_found(side, aspect) for side in wrong}) == 1:
        return "both ends agree with each other, but not with the contract"
    return "both ends are wrong"
