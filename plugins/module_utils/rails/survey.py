# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of one host: desired state, readings, and the checks that compare them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Optional

from ..core.checks import FAILED, NOT_APPLICABLE, OK, REBOOT, Check, compare, differs
from ..core.checks import not_applicable as inapplicable
from ..core.files import FilePlan, diff
from ..core.machine import IN_CONTAINER
from ..core.part import NAME as OURS
from ..core.part import Node
from ..core.reboots import Reason
from ..hardware.iproute import MAIN_TABLE, IpLink, Route, SourceRule, read_neighbours, read_state
from . import arp, naming
from .backends import BACKENDS, Backend
from .management import ManagementNetwork
from .plan import RailPlan

SERVICE = "rails_service"
NAME = "rail_name"
CLAIM = "rail_claim"
CONFIG = "rail_config"
LINK = "rail_link"
MTU = "rail_mtu"
ADDRESS = "rail_address"
ROUTE = "rail_route"
RULE = "rail_rule"
ARP = "rail_arp"
NEIGHBOUR = "rail_neighbour"
RUNNING = (NAME, LINK, MTU, ADDRESS, ROUTE, RULE, ARP, NEIGHBOUR)
"""Checks of the running kernel; files have separate diffs."""
NO_CARRIER = "no carrier"


@dataclass(frozen=True)
class RailsRequest:
    """The options of the module for this host."""

    rails: Sequence[RailPlan]
    arp: Mapping[str, int] = field(default_factory=lambda: dict(arp.ARP_DEFAULTS))
    check_path: bool = True
    wait_s: float = 30.0
    management: ManagementNetwork = field(default_factory=ManagementNetwork)


class Survey:
    """The rails of one host as planned and as last read."""

    def __init__(self, request: RailsRequest, backend: Backend, node: Node) -> None:
        self.request = request
        self.backend = backend
        self.node = node
        self.by_name = {rail.interface: rail for rail in request.rails}
        self.state = read_state(node.run)
        self.old_blocks = backend.read()
        self.reached_by = request.management.interfaces(self.state, self.old_blocks)
        by_pci = naming.interfaces_by_pci(node.root)
        self.names = {
            name: naming.rail_name(
                rail, self.state, by_pci, self.reached_by, request.management.holds(rail.cidr)
            )
            for name, rail in self.by_name.items()
        }
        other = naming.elsewhere(request.rails, by_pci, self.reached_by)
        if other:
            self.names = {
                name: replace(at, reason=f"{at.reason}. {other}") for name, at in self.names.items()
            }
        allowed = [rail for name, rail in self.by_name.items() if not self.refused(name)]
        now = {name: self._link(each.interface or "") for name, each in self.names.items()}
        self.claims = find_claims(allowed, now, node.root)
        self.blocks = self._wanted_blocks()
        self.changed_blocks = [
            name
            for name in {**self.old_blocks, **self.blocks}
            if self.old_blocks.get(name) != self.blocks.get(name)
        ]
        self.removed = [name for name in self.old_blocks if name not in self.by_name]
        self.service = backend.state()
        self._read_rails()

    def look(self) -> None:
        """Read the rails again."""
        self.state = read_state(self.node.run)
        self._read_rails()

    def _read_rails(self) -> None:
        names = [rail.interface for rail in self.live if self._link(rail.interface)]
        self.owners = self.backend.owners(names)
        self.on_disk = self.backend.read()
        self.arp = {name: arp.read_arp(name, self.node.root) for name in self.by_name}
        self.neighbours = read_neighbours(self.node.run)

    def refused(self, name: str) -> bool:
        return self.names[name].action == naming.REFUSED

    def blocked(self, name: str) -> bool:
        return self.refused(name) or name in self.claims

    @property
    def live(self) -> list[RailPlan]:
        """Rails that can be configured without a reboot."""
        return [
            rail
            for name, rail in self.by_name.items()
            if not self.blocked(name) and self.names[name].action != naming.AT_BOOT
        ]

    @property
    def present(self) -> dict[str, str]:
        named = {rail.interface: self.names[rail.interface].interface for rail in self.live}
        return {name: now for name, now in named.items() if now and now in self.state.links}

    @property
    def later(self) -> dict[str, str]:
        return {
            name: at.reason
            for name, at in self.names.items()
            if at.action == naming.AT_BOOT and not self.blocked(name)
        }

    @property
    def reasons(self) -> list[Reason]:
        return [
            Reason(
                subject=name,
                wanted=f"{name} at {self.by_name[name].pci}",
                running=str(self.names[name].interface),
                reason=reason,
            )
            for name, reason in self.later.items()
        ]

    def _wanted_blocks(self) -> dict[str, str]:
        """Return the desired blocks; a blocked rail retains its block."""
        blocks = {}
        for name, rail in self.by_name.items():
            if not self.blocked(name):
                blocks[name] = self.backend.render(rail)
            elif name in self.old_blocks:
                blocks[name] = self.old_blocks[name]
        return blocks

    def _link(self, name: str) -> Optional[IpLink]:
        return self.state.links.get(name)

    def addresses(self, name: str) -> tuple[str, ...]:
        link = self._link(name)
        return link.addresses if link else ()

    def routes(self, rail: RailPlan) -> list[Route]:
        """Return planned and default routes of a rail, those of its table, and detours."""
        table = rail.rule.table if rail.rule else None
        return self.state.detours(rail.cidr, table, self.by_name) + [
            route
            for route in self.state.routes.get(rail.interface, ())
            if route in rail.routes
            or route.table == table
            or (route.table == MAIN_TABLE and route.destination == "default")
        ]

    def rules(self, rail: RailPlan) -> list[SourceRule]:
        """Return the rules with the address, priority or table of a rail."""
        own = rail.rule
        return [
            rule
            for rule in self.state.rules
            if rule.source == rail.address
            or (own is not None and (rule.priority == own.priority or rule.table == own.table))
        ]

    def arp_locked(self, name: str) -> bool:
        """Return whether this container must not change the ARP settings."""
        if not self.node.container or not self._link(name):
            return False
        return not arp.arp_writable(name, self.node.root)

    def checks_of(self, rail: RailPlan, *, check_mode: bool) -> list[Check]:
        name, at = rail.interface, self.names[rail.interface]
        identity = f"{name} at {rail.pci}" if rail.pci else name
        if self.refused(name):
            return [Check(NAME, identity, at.interface, FAILED, name, at.reason)]
        first = _name_check(rail, identity, at, check_mode)
        claims = list(self.claims.get(name, ()))
        if claims:
            reason = "remove the rail from that file, or from the model; nothing was changed"
            return [first, Check(CLAIM, [], claims, FAILED, name, reason)]
        rest = self._running_checks(rail, check_mode)
        if at.action == naming.AT_BOOT:
            for index, check in enumerate(rest):
                if check.status not in (OK, NOT_APPLICABLE):
                    rest[index] = replace(check, status=REBOOT, reason=at.reason)
        return [first, Check(CLAIM, [], [], OK, name), *rest]

    def _running_checks(self, rail: RailPlan, check_mode: bool) -> list[Check]:
        name = rail.interface

        def same(check: str, wanted: Any, found: Any) -> Check:
            return compare(check, wanted, found, subject=name, check_mode=check_mode)

        link = self._link(name)
        owner = self.owners.get(name) or "none"
        if self.on_disk.get(name) != self.blocks.get(name):
            owner += " (its text differs)"
        checks = [same(CONFIG, self.backend.owner(name), owner)]
        if link is not None and link.up and not link.carrier:
            # A run cannot connect a cable, so this is a failure in check mode as well.
            reason = "check cable, transceiver and switch port"
            checks.append(Check(LINK, "up", NO_CARRIER, FAILED, name, reason))
        else:
            found = "absent" if link is None else "up" if link.up else "down"
            checks.append(same(LINK, "up", found))
        checks += [
            same(MTU, rail.mtu, link.mtu if link else None),
            same(ADDRESS, [rail.cidr], list(self.addresses(name))),
        ]
        routes, rules = self.routes(rail), self.rules(rail)
        if rail.routes or routes:
            checks.append(same(ROUTE, sorted(map(str, rail.routes)), sorted(map(str, routes))))
        if rail.rule or rules:
            wanted = [str(rail.rule)] if rail.rule else []
            checks.append(same(RULE, wanted, sorted(map(str, rules))))
        if name in self.neighbours:
            checks.append(same(NEIGHBOUR, [], self.neighbours[name]))
        check = same(ARP, dict(self.request.arp), self.arp[name])
        if check.status != OK and self.arp_locked(name):
            check = inapplicable(ARP, check.wanted, IN_CONTAINER, subject=name)
        return [*checks, check]

    def differing(self, rail: RailPlan, names: Iterable[str]) -> list[Check]:
        """Return the failing checks that a run can repair, which excludes a missing carrier."""
        return [
            check
            for check in self.checks_of(rail, check_mode=True)
            if check.name in names
            and check.status not in (OK, NOT_APPLICABLE)
            and check.found != NO_CARRIER
        ]

    def incomplete(self, rail: RailPlan) -> bool:
        return (
            bool(self.differing(rail, (CONFIG, LINK, MTU)))
            or rail.cidr not in self.addresses(rail.interface)
            or (rail.rule is not None and rail.rule not in self.state.rules)
            or not set(rail.routes) <= set(self.routes(rail))
        )

    def file_plans(self) -> list[FilePlan]:
        node = self.node
        kept = [name for name in self.by_name if self.blocked(name)]
        ours = [rail for name, rail in self.by_name.items() if not self.blocked(name)]
        plans = self.backend.files(self.blocks)
        for name, other in BACKENDS.items():
            if name != self.backend.name:
                plans += other(node).files({})
        return [
            *plans,
            *naming.plan_link_files(ours, kept, node),
            arp.plan_arp_file(self.blocks, self.request.arp, node),
        ]

    def running_diff(self) -> list[dict[str, Any]]:
        """Return a diff per rail of the differences in the running kernel."""
        shown = []
        for rail in self.live:
            checks = self.differing(rail, RUNNING)
            if checks:
                before = "".join(f"{check.name}: {check.found}\n" for check in checks)
                after = "".join(f"{check.name}: {check.wanted}\n" for check in checks)
                shown.append(diff(f"{rail.interface} (running)", before, after))
        return shown


def _name_check(rail: RailPlan, wanted: str, at: naming.RailName, check_mode: bool) -> Check:
    subject = rail.interface
    if at.action == naming.NAMED:
        if rail.pci is None:
            return inapplicable(NAME, wanted, "no PCI address in the model", subject=subject)
        return Check(NAME, wanted, wanted, OK, subject)
    status = differs(check_mode) if at.action == naming.RENAME else REBOOT
    found = f"{at.interface} at {rail.pci}"
    return Check(NAME, wanted, found, status, subject, at.reason)


# A claim is the name, MAC address or PCI address of a rail in an operator's file of any network
# service, for whatever key; the rail is then not changed. A file that configures it in another way
# is found by the read-back (`rail_config`).

_SYSTEMD = [f"{each}/systemd/network" for each in ("etc", "run", "usr/lib", "lib")]
_KINDS = (
    [f"{each}/netplan/*.yaml" for each in ("etc", "run", "lib", "usr/lib")],
    [f"{each}/*.network" for each in _SYSTEMD],
    [f"{each}/*.link" for each in _SYSTEMD],
    [f"{each}/NetworkManager/system-connections/*.nmconnection" for each in ("etc", "usr/lib")],
    ["etc/sysconfig/network-scripts/ifcfg-*"],
    ["etc/network/interfaces", "etc/network/interfaces.d/*"],
)
_ORDERED = (".network", ".link")
"""Kinds of files of which only the first match is used, in the order of their names."""
_COMMENT = re.compile(r"(^|\s)#.*|^\s*;.*")
_BETWEEN = re.compile(r"[\s,;=\[\]{}\"']+")


def find_claims(
    rails: Sequence[RailPlan], links: Mapping[str, Optional[IpLink]], root: Path
) -> dict[str, tuple[str, ...]]:
    """Return the lines that claim each rail. `links`: its interface, whatever its name."""
    found: dict[str, tuple[str, ...]] = {}
    for path in _files(root):
        first = path.suffix not in _ORDERED or path.name < naming.NETWORK_PREFIX
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            words = [word.rstrip(":") for word in _BETWEEN.split(_COMMENT.sub("", line))]
            for rail in rails:
                link = links.get(rail.interface)
                if any(_claims(word, rail, link.mac if link else "", first) for word in words):
                    location = f"/{path.relative_to(root)} line {number}"
                    claim = f"{location}: {line.strip()!r} claims {rail.interface}"
                    found[rail.interface] = (*found.get(rail.interface, ()), claim)
    return found


def _files(root: Path) -> Iterator[Path]:
    """Files that neither the collection nor netplan wrote; the first with a name hides others."""
    for kind in _KINDS:
        seen: dict[str, Path] = {}
        for path in (path for pattern in kind for path in sorted(root.glob(pattern))):
            if OURS not in path.name and not path.name.startswith("10-netplan-"):
                seen.setdefault(path.name, path)
        yield from (path for _name, path in sorted(seen.items()) if path.is_file())


def _claims(word: str, rail: RailPlan, mac: str, first: bool) -> bool:
    """Return whether a word claims a rail; patterns only count if the `first` match applies."""
    if word == rail.interface:
        return True
    if not first or not word:
        return False
    same_mac = mac.lower() == word.lower().replace("-", ":")
    path = f"pci-{rail.pci}"
    return same_mac or fnmatchcase(rail.interface, word) or fnmatchcase(path, word)
