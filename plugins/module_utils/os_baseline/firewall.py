# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What filters incoming connections on this host: firewalld, ufw, or rules of nftables or iptables.

MPI, PMIx and NCCL take any TCP port, so networks of the cluster are admitted as a whole, or not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network
from typing import Any

from ..core.checks import compare, not_applicable
from ..core.commands import CommandError, Runner
from ..core.files import FilePlan
from ..core.part import Node, Plan, PlanError, Step, Verdict
from ..core.text import one_line, some

FIREWALLD = "firewalld"
UFW = "ufw"
NONE = "neither firewalld nor ufw runs here, and nft and iptables show no rule that refuses"
OPEN = "os_baseline_firewall: open"
MOST = 200
"""Characters of one rule."""


def answer(run: Runner, *words: str) -> str:
    """What a program printed, or nothing where it is missing or fails."""
    try:
        done = run(words, check=False)
    except CommandError:
        return ""
    return done.stdout if done.rc == 0 else ""


def manager(run: Runner) -> str:
    """The service that keeps the rules, where one runs."""
    if answer(run, "firewall-cmd", "--state").strip() == "running":
        return FIREWALLD
    return UFW if answer(run, "ufw", "status").startswith("Status: active") else ""


def filters(run: Runner, interface: str, networks: str) -> tuple[str, str]:
    """What filters an interface of this host, and what the operator must do to admit `networks`."""
    kept_by = manager(run)
    if kept_by == FIREWALLD:
        zone = answer(run, "firewall-cmd", f"--get-zone-of-interface={interface}").strip()
        zone = zone or answer(run, "firewall-cmd", "--get-default-zone").strip()
        what = f"firewalld, zone {one_line(zone)[:MOST]} of {interface}"
    elif kept_by == UFW:
        status = answer(run, UFW, "status", "verbose")
        default = re.search(r"^Default: (\w+) \(incoming\)", status, re.MULTILINE)
        what = f"ufw, default {default[1] if default else 'unknown'} (incoming)"
    else:
        rules = [*nftables(answer(run, "nft", "-j", "list", "ruleset"))]
        for program in ("iptables", "iptables-legacy"):
            rules = rules or [*iptables(answer(run, program, "-S", "INPUT"), program)]
        if not rules:
            return NONE, "look at rules of the other host's output, and at switches between"
        return some(rules, 3), f"admit TCP from {networks} in these rules, where they are kept"
    return what, f"set {OPEN}, then run --tags os on this host: it admits {networks} there"


def filters_at(run: Runner, address: str) -> tuple[str, str]:
    """The same of the interface that has the address."""
    try:
        found = json.loads(run(["ip", "-j", "address", "show", "to", address]).stdout)
        interface = str(next(link["ifname"] for link in found if link))
    except (CommandError, ValueError, StopIteration, KeyError, TypeError):
        interface = address
    return filters(run, interface, f"{address} and its network")


def nftables(text: str) -> Iterator[str]:
    """Of `nft -j list ruleset` what may refuse: policies and verdicts of chains for input."""
    try:
        entries = json.loads(text or "{}").get("nftables", [])
    except (ValueError, AttributeError):
        return
    if not isinstance(entries, list):
        return
    pairs = (pair for entry in entries if isinstance(entry, dict) for pair in entry.items())
    for kind, each in pairs:
        if not isinstance(each, dict):
            continue
        name = each.get("name" if kind == "chain" else "chain")
        where = one_line(f"nft table {each.get('family')} {each.get('table')} chain {name}")[:MOST]
        if kind == "chain" and each.get("hook") == "input" and each.get("policy") == "drop":
            yield f"{where}: policy drop"
        elif kind == "rule" and _refuses(each):  # chains of input jump to others
            yield f"{where}: rule with handle {one_line(str(each.get('handle')))[:20]}"


def _refuses(rule: dict[str, Any]) -> bool:
    expressions = rule.get("expr")
    return isinstance(expressions, list) and any(
        isinstance(each, dict) and ("drop" in each or "reject" in each) for each in expressions
    )


def iptables(text: str, program: str) -> Iterator[str]:
    """Of `iptables -S INPUT` what may refuse."""
    for line in text.splitlines():
        if re.match(r"-P INPUT DROP$|-A INPUT (.* )?-j (DROP|REJECT)\b", line):
            yield f"{program} {one_line(line)[:MOST]}"


RECORD = "var/lib/baremetal-mpi-roce/firewall.json"
"""The networks that were admitted here, and by what: only these are taken back."""
TRUSTED = ("firewall-cmd", "--zone=trusted")


@dataclass(frozen=True)
class Admitted:
    """The cluster's networks, through the service that keeps the rules; no service is started,
    stopped or set otherwise. None of `networks`: what was admitted earlier is taken back."""

    networks: Sequence[str]

    def plan(self, node: Node) -> Plan:
        wanted, recorded = self._wanted(), _recorded(node)
        kept_by = manager(node.look) if wanted or recorded else ""
        if not kept_by:
            return Plan()
        steps: list[Step] = []
        added: set[str] = set()
        removed = [each for each in recorded if each not in wanted]
        for place in _places(kept_by):
            there = _there(node, kept_by, place)
            name = " ".join([kept_by, *place])
            for network in (each for each in wanted if each not in there):
                added.add(network)
                act = node.doing(*_words(kept_by, place, network, add=True))
                steps.append(Step(f"{name} {network}", "not admitted", "admitted", act))
            for network in (each for each in removed if each in there):
                act = node.doing(*_words(kept_by, place, network, add=False))
                steps.append(Step(f"{name} {network}", "admitted", "not admitted", act))
        if removed:
            act = partial(_forget, node, kept_by, wanted)
            steps.append(Step(f"record of {kept_by}", some(recorded), some(wanted), act))
        # Before the steps: what an interrupted run admitted is taken back as well.
        files = [_record(node, {*recorded, *added})] if added else []
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        wanted = self._wanted()
        if not wanted:
            return Verdict()
        kept_by = manager(node.look)
        if not kept_by:
            why = "neither firewalld nor ufw runs here"
            return Verdict([not_applicable("firewall", wanted, why)])
        checks = []
        for place in _places(kept_by):
            there = _there(node, kept_by, place)
            found = [each for each in wanted if each in there]
            subject = " ".join([kept_by, *place])
            checks.append(
                compare("firewall", wanted, found, subject=subject, check_mode=node.check_mode)
            )
        return Verdict(checks)

    def _wanted(self) -> list[str]:
        """Each once, as firewalld and ufw write them."""
        try:
            networks = [str(IPv4Network(each, strict=False)) for each in self.networks]
        except ValueError as error:
            raise PlanError(f"firewall: {error}. Write networks as 10.0.0.0/16") from error
        return list(dict.fromkeys(networks))


def _places(kept_by: str) -> tuple[tuple[str, ...], ...]:
    """Where a service keeps rules: firewalld what runs, and what its next start reads."""
    return ((), ("--permanent",)) if kept_by == FIREWALLD else ((),)


def _record(node: Node, networks: Collection[str]) -> FilePlan:
    return node.record(RECORD, json.dumps(sorted(networks)) + "\n" if networks else None)


def _forget(node: Node, kept_by: str, wanted: Collection[str]) -> None:
    """What could not be taken back stays in the record."""
    there = {each for place in _places(kept_by) for each in _there(node, kept_by, place)}
    _record(node, [each for each in _recorded(node) if each in wanted or each in there]).apply()


def _recorded(node: Node) -> list[str]:
    try:
        found = json.loads(node.read(RECORD) or "[]")
        return [str(IPv4Network(each)) for each in found]
    except (TypeError, ValueError) as error:
        raise PlanError(f"firewall: /{RECORD}: {error}. Remove the file") from error


def _there(node: Node, kept_by: str, place: tuple[str, ...]) -> set[str]:
    """The networks that are admitted now. Raises CommandError where that cannot be read."""
    if kept_by == FIREWALLD:
        return set(node.look([*TRUSTED, *place, "--list-sources"]).stdout.split())
    lines = node.look([UFW, "show", "added"]).stdout.splitlines()
    rules = (re.fullmatch(r"ufw allow from (\S+)( comment .*)?", line.strip()) for line in lines)
    return {rule[1] for rule in rules if rule}


def _words(kept_by: str, place: tuple[str, ...], network: str, *, add: bool) -> list[str]:
    if kept_by == FIREWALLD:
        return [*TRUSTED, *place, f"--{'add' if add else 'remove'}-source={network}"]
    return [UFW, *([] if add else ["delete"]), "allow", "from", network]
