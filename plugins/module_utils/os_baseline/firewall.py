# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Networks that firewalld or ufw must admit as a whole: MPI, PMIx and NCCL use any TCP ports."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Network

from ..core.checks import compare, not_applicable
from ..core.files import FilePlan
from ..core.part import Node, Plan, PlanError, Step, Verdict
from ..core.text import some
from .filters import ACCEPT, FIREWALLD, UFW, bound, manager, target, ufw_networks, unbind, zones

RECORD = "var/lib/baremetal-mpi-roce/firewall.json"
"""Record of the networks admitted by the collection; only these are ever removed."""
TRUSTED = ("firewall-cmd", "--zone=trusted")


@dataclass(frozen=True)
class Admitted:
    """Without `networks`, those that were admitted earlier are removed."""

    networks: Sequence[str]

    def plan(self, node: Node) -> Plan:
        wanted, recorded = self._wanted(), _recorded(node)
        kept_by = manager(node.look) if wanted or recorded else ""
        if not kept_by:
            return Plan()
        wanted = _needed(node, kept_by, wanted)
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
        # Before the steps, so that networks of an interrupted run are removed too.
        files = [_record(node, {*recorded, *added})] if added else []
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        wanted = self._wanted()
        if not wanted:
            return Verdict()
        kept_by = manager(node.look)
        if not kept_by:
            reason = "neither firewalld nor ufw runs here"
            return Verdict([not_applicable("firewall", wanted, reason)])
        wanted = _needed(node, kept_by, wanted)
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
        """The networks without duplicates, as firewalld and ufw write them."""
        try:
            networks = [str(IPv4Network(network, strict=False)) for network in self.networks]
        except ValueError as error:
            raise PlanError(f"firewall: {error}. Write networks as 10.0.0.0/16") from error
        return list(dict.fromkeys(networks))


def _places(kept_by: str) -> tuple[tuple[str, ...], ...]:
    """Configurations of a service; for firewalld, the running and the permanent one."""
    return ((), ("--permanent",)) if kept_by == FIREWALLD else ((),)


def _record(node: Node, networks: Collection[str]) -> FilePlan:
    return node.record(RECORD, json.dumps(sorted(networks)) + "\n" if networks else None)


def _forget(node: Node, kept_by: str, wanted: Collection[str]) -> None:
    """Drop removed networks from the record; networks that are still admitted stay in it."""
    there = {each for place in _places(kept_by) for each in _there(node, kept_by, place)}
    _record(node, [each for each in _recorded(node) if each in wanted or each in there]).apply()


def _recorded(node: Node) -> list[str]:
    try:
        found = json.loads(node.read(RECORD) or "[]")
        return [str(IPv4Network(each)) for each in found]
    except (TypeError, ValueError) as error:
        raise PlanError(f"firewall: /{RECORD}: {error}. Remove the file") from error


def _needed(node: Node, kept_by: str, networks: Sequence[str]) -> list[str]:
    """Networks that no other zone takes. Raises PlanError if such a zone refuses one."""
    sources = zones(node.look, "sources") if kept_by == FIREWALLD and networks else []
    others = [each for each in sources if each[0] != "trusted"]
    taken = {network: each for network in networks for each in bound(others, network)}
    for network, (zone, source) in taken.items():
        if target(node.look, zone) != ACCEPT:
            raise PlanError(
                f"firewall: firewalld's zone {zone} takes {source}, so zone trusted cannot admit "
                f"{network}: {unbind(zone, source)}, or set the target of {zone} to ACCEPT"
            )
    return [each for each in networks if each not in taken]


def _there(node: Node, kept_by: str, place: tuple[str, ...]) -> set[str]:
    """Networks that are admitted now. Raises CommandError if that cannot be read."""
    if kept_by == FIREWALLD:
        return set(node.look([*TRUSTED, *place, "--list-sources"]).stdout.split())
    return set(ufw_networks(node.look([UFW, "show", "added"]).stdout))


def _words(kept_by: str, place: tuple[str, ...], network: str, *, add: bool) -> list[str]:
    if kept_by == FIREWALLD:
        return [*TRUSTED, *place, f"--{'add' if add else 'remove'}-source={network}"]
    return [UFW, *([] if add else ["delete"]), "allow", "from", network]
