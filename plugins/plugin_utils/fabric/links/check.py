# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every link of the model, end to end: contract, model, switches and NICs against one another."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from typing import Any, Optional

from ....module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ....module_utils.core.dataclass import dataclass
from ....module_utils.schema.findings import Findings
from ....module_utils.schema.kinds import check
from ...qos import Contract, fabric_intent, host_settings
from ..asics import asic_named
from ..headroom import headroom
from ..intent import HOST, STORAGE, UPLINK
from ..keys import ASICS, check_asics, check_ports
from ..system import WantedError
from . import said
from .cabling import Cabling, End, Link, Node, Switch, cabling_of
from .judging import Side, command, judge
from .neighbours import Finding, Neighbours
from .nic_end import NicEnds, contract_of
from .said import DscpTexts, Said
from .switch_end import SwitchEnds

Asics = Mapping[str, Mapping[str, Any]]

REPORT = "link_report"
MODEL = "link_model"
LIMIT = "link_other_end"
SYSTEM = "link_system"
GROUP = "links"
NAMES_SHOWN = 8


@dataclass
class Group:
    """The links of one switch that lead to the same kind of host: one line of the table."""

    switch: str
    to: str
    """`nodes`, `storage` or `spines`."""
    links: int = 0
    agree: int = 0
    """Both ends were read, and say what the contract says."""
    one_end: int = 0
    """One end was read, and says what the contract says."""
    wrong: int = 0
    unread: int = 0
    figures: dict[str, str] = field(default_factory=dict)
    """What was found right, by aspect."""


@dataclass
class Links:
    """What a check of all links found."""

    findings: list[Finding] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    neighbours: int = 0
    """Cables that LLDP has shown to be where the model has them."""

    @property
    def checks(self) -> list[Check]:
        return [finding.check for finding in self.findings]


class _Check:
    def __init__(
        self,
        contract: Contract,
        switches: Mapping[str, Switch],
        nodes: Mapping[str, Node],
        asics: Asics,
        inside: Optional[Collection[str]],
        check_mode: bool,
    ) -> None:
        self.check_mode = check_mode
        self.found = Links()
        self.inside = inside
        self.nodes = nodes
        self.unknown: set[str] = set()
        """Switches whose ports nobody can make out."""
        self.switches = self._read_switches(switches)
        asics = self._read_asics(asics)
        intent = fabric_intent(contract)
        headroom = _Headroom(asics, intent.mtu_frame)
        dscps = DscpTexts(intent)
        nic = contract_of(host_settings(contract), intent, dscps)
        self.switch_ends = {
            name: SwitchEnds(switch, intent, dscps, headroom) for name, switch in switches.items()
        }
        known: dict[object, Said] = {}
        self.nic_ends = {
            name: NicEnds(node, intent, dscps, nic, known) for name, node in nodes.items()
        }
        self.unsaid: dict[tuple[str, str], dict[str, set[str]]] = {}
        """By host and reason: the interfaces, and what each does not say."""
        self.beyond = 0
        """Links whose other end is outside of the limit."""
        self.storage = 0
        """Links to storage hosts."""
        self.groups: dict[tuple[str, str], Group] = {}

    def run(self) -> Links:
        cabling = cabling_of(self.switches.values(), self.nodes.values())
        self._contradictions(cabling)
        self._reports()
        for link in cabling.links:
            if self._within(link.first.host) or self._within(link.second.host):
                self._judge(link)
        neighbours = Neighbours(cabling, self.switches, self.nodes)
        self.found.findings += neighbours.findings()
        self.found.neighbours = neighbours.proven
        self._tell_unsaid()
        self._tell_groups()
        return self.found

    def _within(self, host: str) -> bool:
        return self.inside is None or host in self.inside

    def _add(self, check: Check, *hosts: str, at_fault: int = 1) -> None:
        self.found.findings.append(Finding(check, hosts, at_fault))

    # What the inventory has in no form that could be judged

    def _read_switches(self, switches: Mapping[str, Switch]) -> dict[str, Switch]:
        read = {}
        for name, switch in switches.items():
            wrong = Findings()
            groups = check_ports(switch.ports, wrong, (name, "cluster_ports"))
            if wrong:
                self.unknown.add(name)
                if self._within(name):
                    self._malformed("cluster_ports", wrong, "its links are not judged", name)
            read[name] = replace(switch, ports=() if wrong else groups)
        return read

    def _read_asics(self, asics: Asics) -> Asics:
        wrong = Findings()
        read = check(ASICS, asics, wrong, ("cluster_asics",)) or {}
        check_asics(read, wrong, ("cluster_asics",))
        if not wrong:
            return asics
        self._malformed("cluster_asics", wrong, "headroom of these chips is not judged")
        return {}

    def _malformed(self, variable: str, wrong: Findings, so: str, *hosts: str) -> None:
        first, *others = [finding.text() for finding in wrong.found]
        more = f" And {len(others)} more." if others else ""
        reason = f"{first}{more} Until then {so}"
        wanted = f"{variable} as docs/cluster-model.md has it"
        self._add(Check(MODEL, wanted, None, FAILED, next(iter(hosts), "all"), reason), *hosts)

    # Who could not be read, and what the inventory contradicts itself in

    def _contradictions(self, cabling: Cabling) -> None:
        for here, peer, there, back in cabling.contradictions:
            if not self.unknown.isdisjoint((here.host, there.host)):
                continue
            if not self._within(here.host) and not self._within(there.host):
                continue
            reason = (
                f"{here} has {peer or 'nobody'} for its peer, and {there} has {back or 'nobody'}: "
                "correct cluster_ports or cluster_rails; a model compiled from cluster.yml has "
                "both right"
            )
            found = str(back) if back else None
            self._add(
                Check(MODEL, str(here), found, FAILED, f"{here} - {there}", reason), here.host
            )

    def _reports(self) -> None:
        without_system = []
        for switch in self.switches.values():
            if switch.report is not None or not self._within(switch.name):
                continue
            if not switch.system:
                without_system.append(switch.name)
                continue
            if not switch.ports:
                continue  # no link ends on it
            self._unreported(switch.name, switch.why, "a report of its ports")
        for node in self.nodes.values():
            if node.state is None and self._within(node.name):
                self._unreported(node.name, node.why, "the state of its rails")
        if without_system:
            names = ", ".join(without_system[:NAMES_SHOWN])
            more = len(without_system) - NAMES_SHOWN
            reason = (
                f"the model names no system for {names}"
                + (f" and {more} more" if more > 0 else "")
                + ": their ends of links were not read. Write leaves.system and spines.system"
            )
            wanted = f"reports of {len(without_system)} switches"
            self._add(Check(SYSTEM, wanted, None, NOT_APPLICABLE, "", reason), *without_system[:1])

    def _unreported(self, host: str, why: str, wanted: str) -> None:
        repair = command(End(host, ""), self.switches)
        told = why or f"{host} said nothing in this run"
        reason = f"{told}{'' if told[-1] in '.?!' else '.'} Try: {repair} --check"
        self._add(Check(REPORT, wanted, None, FAILED, host, reason), host)

    # One link

    def _judge(self, link: Link) -> None:
        group = self._group(link)
        group.links += 1
        sides = self._sides(link)
        verdict = judge(link, sides, self.switches, check_mode=self.check_mode)
        for end, aspect, reason in verdict.unsaid:
            interfaces = self.unsaid.setdefault((end.host, reason), {})
            interfaces.setdefault(end.interface, set()).add(aspect)
        for mismatch in verdict.mismatches:
            wrong = dict.fromkeys(end.host for end in mismatch.wrong)
            others = [end.host for end in (link.first, link.second)]
            hosts = dict.fromkeys((*wrong, *others))
            self._add(mismatch.check, *hosts, at_fault=len(wrong) or len(hosts))
        read = [side for side in sides if side.said is not None]
        if verdict.mismatches:
            group.wrong += 1
        elif len(read) == 2:
            group.agree += 1
        elif read:
            group.one_end += 1
        else:
            group.unread += 1
        if not verdict.mismatches:
            _note(group, read)

    def _sides(self, link: Link) -> tuple[Side, ...]:
        sides = (
            self._switch_side(link.first, link),
            self._switch_side(link.second, link)
            if link.kind == UPLINK
            else self._nic_side(link.second, link),
        )
        if link.kind == STORAGE:
            self.storage += 1
        elif not all(self._within(end.host) for end in (link.first, link.second)):
            self.beyond += 1
        return sides

    def _switch_side(self, end: End, link: Link) -> Side:
        ends = self.switch_ends.get(end.host)
        if ends is None or self.switches[end.host].report is None:
            return Side(end, {}, None)
        wanted = ends.wanted(link.kind, link.speed_gbps)
        return Side(end, wanted, ends.says(end.interface, wanted))

    def _nic_side(self, end: End, link: Link) -> Side:
        node = self.nodes.get(end.host)
        if node is None or node.state is None:
            return Side(end, {}, None)
        ends = self.nic_ends[end.host]
        return Side(end, ends.wanted(link.speed_gbps, link.mtu), ends.says(end.interface))

    def _group(self, link: Link) -> Group:
        key = (link.first.host, link.kind)
        if key not in self.groups:
            to = {HOST: "nodes", STORAGE: "storage", UPLINK: "spines"}[link.kind]
            self.groups[key] = Group(link.first.host, to)
        return self.groups[key]

    # What is told at the end, once for many

    def _tell_unsaid(self) -> None:
        for (host, reason), interfaces in self.unsaid.items():
            aspects = sorted(set().union(*interfaces.values()))
            check = Check(
                f"link_{aspects[0]}",
                ", ".join(aspects),
                None,
                NOT_APPLICABLE,
                f"{host} {_listed(interfaces)}",
                reason,
            )
            self._add(check, host)
        if self.beyond:
            reason = "other ends of links that are outside of --limit are not read: leave it out"
            wanted = f"both ends of {self.beyond} links"
            self._add(Check(LIMIT, wanted, None, NOT_APPLICABLE, "", reason))

        if self.storage:
            reason = "storage hosts are not set up by this collection: their NICs are not read"
            wanted = f"both ends of {self.storage} links"
            self._add(Check(LIMIT, wanted, None, NOT_APPLICABLE, "storage", reason))

    def _tell_groups(self) -> None:
        self.found.groups = list(self.groups.values())
        for group in self.found.groups:
            held = group.agree + group.one_end
            if held and not group.wrong:
                text = _told(group)
                check = Check(GROUP, text, text, OK, f"{group.switch} to {group.to}")
                self._add(check, group.switch)


def check_links(
    contract: Contract,
    switches: Mapping[str, Switch],
    nodes: Mapping[str, Node],
    *,
    asics: Optional[Asics] = None,
    inside: Optional[Collection[str]] = None,
    check_mode: bool = False,
) -> Links:
    """Judge every link that has an end among `inside`; None: all of them.

    `asics` is the variable `cluster_asics`. In check mode what the layers rails and fabric would
    set right is pending: they have not done it. One look at each link: the time grows with their
    number.
    """
    return _Check(contract, switches, nodes, asics or {}, inside, check_mode).run()


class _Headroom:
    """Each wanted headroom once: a fabric has few kinds of ports."""

    def __init__(self, asics: Asics, mtu_frame: int) -> None:
        self._asics = asics
        self._mtu_frame = mtu_frame

    def __call__(self, asic: str, speed_gbps: float, metres: int) -> Optional[int]:
        chip = asic_named(asic, self._asics)
        try:
            if chip is not None:
                return headroom(chip, int(speed_gbps), metres, self._mtu_frame).xoff_bytes
        except WantedError:
            # The layer fabric has said so, and what to write.
            return None
        return None


def _note(group: Group, sides: Iterable[Side]) -> None:
    if len(group.figures) == len(_FIGURES):
        return
    for side in sides:
        for aspect, text in (side.said or {}).items():
            if aspect in _FIGURES and isinstance(text, str):
                group.figures.setdefault(aspect, text)


_FIGURES = (
    said.ROCE_DSCP,
    said.CNP_DSCP,
    said.QUEUES,
    said.PFC,
    said.ECN,
    said.MTU,
    said.SPEED,
    said.CABLE,
    said.HEADROOM,
    said.WATCHDOG,
)


def _told(group: Group) -> str:
    """`64 links: DSCP 26 to TC 3, ...`"""
    many = f"{group.agree} links" if group.agree else ""
    if group.one_end:
        many += f"{' and ' if many else ''}{group.one_end} by one end alone"
    figures = [group.figures[aspect] for aspect in _FIGURES if aspect in group.figures]
    return f"{many}: {', '.join(figures)}"


def _listed(interfaces: Iterable[str]) -> str:
    names = list(interfaces)
    if len(names) <= NAMES_SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:NAMES_SHOWN])} and {len(names) - NAMES_SHOWN} more"
