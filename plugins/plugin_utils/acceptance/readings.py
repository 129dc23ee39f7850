# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Readings of all switches, as the play registers them. Counters (`switch_qos_counters`) are kept
in the state of a run, and compared for the certificate and for the probes of the search. The
routing (`switch_qos_underlay`) tells which cables carry nothing, before the first measurement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...module_utils.core.checks import FAILED, Check
from ...module_utils.core.text import some
from ..answers import mapping, sentence
from ..fabric import underlay
from ..fabric.counters import Growth, grown, read_ports
from . import cables
from .figures import Direction, Figure, Topology, Uplink

CABLE = "acceptance_cable"
VARIABLE = "switch_qos_counters"
NOT_FAULTS = frozenset([cables.UNTESTED, cables.UNREAD, cables.UNEVEN])
"""Findings that only the certificate lists. Shares of cables also depend on flows of collectives,
which are not counted as flows of pairs."""
MAX_LISTED = 8
LOST = 1e-3
"""A guess: share of lost packets from which slow pairs over a cable need no other reason."""
DOWN = "down"
"""Kind of a cable without BGP."""
REMEDY = (
    "no traffic takes it. Check the cable, its transceivers and both ports, then BGP on them"
    " (docs/first-site.md, The underlay)"
)

Reading = dict[str, dict[str, Any]]
"""`read_s` and `ports` by switch."""
Growths = dict[str, dict[str, Growth]]


def reading(results: Mapping[str, Any]) -> tuple[Reading, dict[str, str]]:
    """The newest reading of each switch, and why others have none. `results` are registered."""
    found: Reading = {}
    reasons: dict[str, str] = {}
    for switch, result in results.items():
        after = mapping(mapping(result).get("after"))
        ports = {name: each.as_dict() for name, each in read_ports(after.get("ports")).items()}
        if ports:
            found[switch] = {"read_s": after.get("read_s"), "ports": ports}
        else:
            reasons[switch] = sentence(after.get("reason")) or "its counters were not read"
    return found, reasons


def last(results: Mapping[str, Any]) -> dict[str, Any]:
    """The newest readings in the form of a state."""
    found, reasons = reading(results)
    return {"reading": found, "unread": reasons}


def unpaired(before: Reading, after: Reading) -> dict[str, str]:
    """Why switches that were read at the end have no growth."""
    return dict.fromkeys(
        (switch for switch in after if switch not in before),
        "its counters were not read before the first measurement",
    )


def growths(before: Reading, after: Reading) -> Growths:
    return {
        switch: grown({"before": before[switch], "after": after[switch]})
        for switch in after
        if switch in before
    }


def counted(figures: Sequence[Figure], topology: Topology, ports: Growths) -> list[Figure]:
    """Figures of one probe; the first has what the cables carried and lost meanwhile."""
    carried = cables.carried(topology, ports)
    drops = {}
    for direction in carried:
        sender, receiver = cables.ends(direction, ports)
        lost = [sender.counters.tx_discards, sender.counters.tx_errors] if sender else []
        lost += [receiver.counters.rx_errors] if receiver else []
        drops[direction] = sum(count or 0 for count in lost)
    return [replace(figures[0], cables=carried, drops=drops), *figures[1:]]


@dataclass
class Routing:
    """The routing of switches against the model."""

    down: dict[Uplink, str] = field(default_factory=dict)
    """Cables that carry no traffic, with what their ends report."""
    checks: list[Check] = field(default_factory=list)
    """A failed check for each cable, and for each other fault."""
    unread: dict[str, str] = field(default_factory=dict)
    """Switches that could not be read, and why."""

    def listed(self) -> list[dict[str, str]]:
        """Cables as in the certificate."""
        return [
            {"kind": DOWN, "cable": str(cable), "evidence": text}
            for cable, text in self.down.items()
        ]


def routing(groups: Mapping[str, Any], hostvars: Any, topology: Topology) -> Routing:
    """Of the switches that were read in this run. A cable is down if BGP is not established on it,
    while it is on another one of the switch; what else is missing only for that is no fault."""
    found = Routing()
    switches = [*groups.get("leaf", ()), *groups.get("spine", ())]
    read = underlay.reading_of(groups, hostvars, switches)
    if read is None:
        return found
    ends = {
        end: cable
        for cable in topology.cables
        for end in ((cable.lower, cable.lower_port), (cable.upper, cable.upper_port))
    }
    states: dict[Uplink, list[str]] = {}
    for switch, port, state in read.down():
        if cable := ends.get((switch, port.name)):
            states.setdefault(cable, []).append(f"{sentence(state, 40)} at {switch}")
    for cable, own in states.items():
        found.down[cable] = f"BGP {' and '.join(own)}"
        text = f"{found.down[cable]}: {REMEDY}"
        found.checks.append(Check(CABLE, "BGP established", DOWN, FAILED, str(cable), text))
    known = {text for each in states for text in (str(each), each.reversed())}
    lost = {end for end, cable in ends.items() if cable in states}
    for switch, check in read.without(lost).checks():
        if check.status == FAILED and check.name == underlay.ANY:
            found.unread[switch] = check.reason
        elif check.status == FAILED and check.subject not in known:
            found.checks.append(check)
    return found


def lossy(topology: Topology, ports: Growths) -> set[Uplink]:
    """Cables that lose packets."""
    found = set()
    for cable in topology.cables:
        for up in (True, False):
            _sender, receiver = cables.ends(Direction(cable, up), ports)
            own = receiver.counters if receiver else None
            if own and own.rx_packets and (own.rx_errors or 0) > LOST * own.rx_packets:
                found.add(cable)
    return found


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(reason, []).append(name)
    return found


def evaluate(
    findings: Iterable[cables.CableFinding],
) -> tuple[list[dict[str, str]], list[Check]]:
    """Every finding for the certificate, and a failed check for each fault."""
    listed, checks = [], []
    for each in findings:
        listed.append({"kind": each.kind, "cable": str(each.direction), "evidence": each.evidence})
        if each.kind not in NOT_FAULTS:
            wanted = "traffic without losses"
            checks.append(
                Check(CABLE, wanted, each.kind, FAILED, str(each.direction), each.evidence)
            )
    return listed, checks


def missing(
    reasons: Mapping[str, str], listed: Sequence[Mapping[str, str]], topology: Topology
) -> list[tuple[str, str]]:
    """Switches whose counters are unknown, by reason, cables without counters although both
    switches were read, and cables that too few flows crossed."""
    linked = {switch for cable in topology.cables for switch in (cable.lower, cable.upper)}
    own = {switch: reason for switch, reason in reasons.items() if switch in linked}
    found = [
        (f"counters of {some(names, MAX_LISTED)}", reason)
        for reason, names in by_reason(own).items()
    ]
    known = {
        str(direction): direction.ends
        for cable in topology.cables
        for direction in (Direction(cable, True), Direction(cable, False))
    }
    unread = [
        each["cable"]
        for each in listed
        if each["kind"] == cables.UNREAD and not reasons.keys() & set(known[each["cable"]])
    ]
    if unread:
        found.append((some(unread, MAX_LISTED), "neither end has counters of both readings"))
    untested = [each["cable"] for each in listed if each["kind"] == cables.UNTESTED]
    if untested:
        found.append(
            (f"{some(untested, MAX_LISTED)}", "too few flows to carry traffic for certain")
        )
    return found
