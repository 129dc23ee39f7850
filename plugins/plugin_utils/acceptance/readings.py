# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Readings of the counters of all switches, as the play registers them (`switch_qos_counters`):
kept in the state of a run, and compared for the certificate and for the probes of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...module_utils.core.checks import FAILED, Check
from ...module_utils.core.text import some
from ..answers import mapping, sentence
from ..fabric.counters import Growth, grown, read_ports
from . import cables
from .figures import Direction, Figure, Topology

CABLE = "acceptance_cable"
VARIABLE = "switch_qos_counters"
NOT_FAULTS = frozenset([cables.UNTESTED, cables.UNREAD, cables.UNEVEN])
"""Findings that only the certificate lists. Shares of cables also depend on flows of collectives,
which are not counted as flows of pairs."""
MAX_LISTED = 8

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
    by_reason: dict[str, list[str]] = {}
    linked = {switch for cable in topology.cables for switch in (cable.lower, cable.upper)}
    for switch in (switch for switch in reasons if switch in linked):
        reason = reasons[switch]
        by_reason.setdefault(reason, []).append(switch)
    found = [
        (f"counters of {some(names, MAX_LISTED)}", reason) for reason, names in by_reason.items()
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
