# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Findings of a run of playbooks/drift.yml: what differs, on which part, and what repairs it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, Check, as_dicts
from ...module_utils.core.text import natural, shortened
from ..answers import sequence
from ..layers import MEASURING, TAGS
from ..report.summary import RunSummary
from .history import Key
from .rules import Rule, of_dicts

MOST_SUBJECT = 300
MOST_TEXT = 1000
RAIL_PEER = "rail_peer"
"""Check of the layer ssh: whether packets return from the next host over a rail."""
BY_REASON = "see the reason, and its check in docs/checks.md"
Facts = Callable[[str], Mapping[str, Any]]
"""Variables of the inventory, by host."""


@dataclass(frozen=True)
class Settings:
    """What the step `drift` of cluster_verify read from the inventory."""

    rules: Sequence[Rule] = ()
    textfile: str = ""
    offender_times: int = 3
    offender_days: int = 30

    def as_dict(self) -> dict[str, Any]:
        rules = [
            {**rule.as_dict(), "hosts": None if rule.hosts is None else sorted(rule.hosts)}
            for rule in self.rules
        ]
        return {**vars(self), "rules": rules}

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Settings:
        return cls(**{**given, "rules": of_dicts(given["rules"])})


@dataclass
class Looked:
    """Whether a run looked at a finding of an earlier one."""

    run: RunSummary
    names: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    """Names of the checks that a host made in a layer, by layer and host."""

    def __post_init__(self) -> None:
        for layer, hosts in self.run.layers.items():
            for host, entry in hosts.items():
                self.names[layer, host] = {check["name"] for check in entry.checks}

    def at(self, key: Key) -> bool:
        """A layer that failed may have stopped before a check."""
        host, layer, check, _subject = key
        if self.run.roles and host not in self.run.roles:
            return True  # it left the inventory, perhaps under another name
        reason = self.run.expected.get(layer, {}).get(host)
        if reason is None or host in self.run.unreachable:
            return False
        return not reason or check in self.names.get((layer, host), ())


def findings_of(run: RunSummary, facts: Facts) -> list[dict[str, Any]]:
    """Every difference, in the order of layers and hosts; `since`, `new` and `ignored` lack."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    unverified = run.unverified()
    for layer in run.expected:
        for each in (
            *_failed(run, layer, facts),
            *_unverified(run, layer, unverified.get(layer, {})),
        ):
            found[each["host"], layer, each["check"], each["subject"]] = each
    _over_rails(list(found.values()), run, facts)
    by_end = [each for each in found.values() if each["layer"] in ("rails", "fabric")]
    kept = [each for each in found.values() if not _repeats(each, by_end)]
    return sorted(kept, key=lambda each: (TAGS.index(each["layer"]), natural(each["host"])))


def _failed(run: RunSummary, layer: str, facts: Facts) -> Iterator[dict[str, Any]]:
    for at, host, check in run.faults(layer):
        subject, reason = check.get("subject", ""), check.get("reason", "")
        by_hand = check.get("by_hand") or (layer in MEASURING and (reason or BY_REASON)) or ""
        if by_hand and at != host:
            by_hand = f"{at} (says {host}): {by_hand}"
        yield {
            "host": host,
            "layer": layer,
            "check": check["name"],
            "subject": shortened(subject, MOST_SUBJECT),
            "found": check.get("found"),
            "desired": check.get("wanted"),
            "reason": shortened(reason, MOST_TEXT),
            "command": "" if by_hand else run.repair(layer, [at]),
            "by_hand": shortened(by_hand, MOST_TEXT),
            "part": part_of(at, subject, reason, facts(at)),
        }


def _unverified(
    run: RunSummary, layer: str, by_reason: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, Any]]:
    """Hosts that answered and on which a task failed without a check."""
    for reason, hosts in by_reason.items():
        (check,) = as_dicts([Check("verified", True, False, FAILED, "", reason)])
        for host in hosts:
            if host not in run.unreachable:
                by_hand = reason if layer in MEASURING else ""
                yield {
                    "host": host,
                    "layer": layer,
                    "check": check["name"],
                    "subject": "",
                    "found": check["found"],
                    "desired": check["wanted"],
                    "reason": shortened(reason, MOST_TEXT),
                    "command": "" if by_hand else run.repair(layer, [host]),
                    "by_hand": shortened(by_hand, MOST_TEXT),
                    "part": host,
                }


def _over_rails(found: Sequence[dict[str, Any]], run: RunSummary, facts: Facts) -> None:
    """Attribute packets and logins of the layer ssh that a rail did not carry to that rail.

    Hosts send to the next one in a ring. A rail is at fault if its layer failed there, or if it
    carried nothing in either direction and the rails of the other hosts did. One host's word is no
    evidence against another: otherwise both ends are named.
    """
    failed = {
        (each["host"], *each["part"].split()[1:2]) for each in found if each["layer"] == "rails"
    }
    pairs = [(each, pair) for each in found if (pair := _pair(each, run, facts))]
    others: dict[tuple[str, str], set[str]] = {}
    for each, (here, peer, rail) in pairs:
        if each["check"] == RAIL_PEER:
            others.setdefault((here, rail), set()).add(peer)
            others.setdefault((peer, rail), set()).add(here)
    for each, (here, peer, rail) in pairs:
        if each["check"] != RAIL_PEER and peer not in others.get((here, rail), ()):
            continue
        ends = [end for end in (here, peer) if (end, rail) in failed]
        ends = ends or [end for end in (here, peer) if len(others[end, rail]) > 1]
        if len(ends) != 1:
            ends = [here, peer]
        each["command"] = run.repair("rails", ends)
        each["part"] = " - ".join(part_of(end, rail, "", facts(end)) for end in ends)


def _pair(
    finding: Mapping[str, Any], run: RunSummary, facts: Facts
) -> Optional[tuple[str, str, str]]:
    """The host, its peer and the rail between them, if a layer repairs the finding."""
    if finding["layer"] != "ssh" or not finding["command"] or finding["part"] != finding["host"]:
        return None
    here, _arrow, target = finding["subject"].partition(" -> ")
    for end in re.finditer("-", target):
        peer, rail = target[: end.start()], target[end.end() :]
        both = here == finding["host"] and peer in run.roles and peer != here
        if both and rail in _rails(facts(peer)) and rail in _rails(facts(here)):
            return here, peer, rail
    return None


def _rails(facts: Mapping[str, Any]) -> dict[str, Any]:
    """PCI address of each rail, by interface."""
    return {rail["interface"]: rail["pci"] for rail in sequence(facts.get("cluster_rails"))}


def _repeats(finding: Mapping[str, Any], by_end: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a finding of the layer links is one of a rail or a port, which its layer repairs."""
    if finding["layer"] != "links":
        return False
    words = set(_words(finding["subject"]))
    aspect = finding["check"].partition("_")[2]
    for each in by_end:
        if each["host"] in words:
            _host, *interface = each["part"].split()[:2]
            if interface and interface[0] in words:
                return True
            if not interface and each["check"].partition("_")[2] == aspect:
                return True  # of a switch as a whole
    return False


def _words(text: str) -> list[str]:
    return re.split(r"[\s,:;()]+", text)


def part_of(host: str, subject: str, reason: str, facts: Mapping[str, Any]) -> str:
    """The part of a host that a check is about: a rail, a GPU, a port; else the host."""
    words = _words(subject)
    rails = _rails(facts)
    rail = next((word for word in words if word in rails), "")
    if rail:
        return f"{host} {rail}" + (f" ({rails[rail]})" if rails[rail] else "")
    gpu = next((word for word in words if re.fullmatch(r"gpu[0-9]{1,3}", word)), "")
    if gpu:
        serial = re.search(r"\bserial ([A-Za-z0-9-]{1,40})\b", reason)
        return f"{host} {gpu}" + (f" {serial[1]}" if serial else "")
    ports = {port for group in sequence(facts.get("cluster_ports")) for port in group["peers"]}
    port = next((word for word in words if word in ports), "")
    return f"{host} {port}".rstrip()
