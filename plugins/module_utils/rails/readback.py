# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each rail's promises, compared with what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Optional

from ..core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    REBOOT,
    Check,
    compare,
    not_applicable,
)
from ..core.dataclass import dataclass
from .device import NAMED, NO_PCI, REFUSED, RENAME, Naming
from .device import REBOOT as NAME_AT_REBOOT
from .plan import MAIN_TABLE, RailPlan, Route, Rule
from .service import READY
from .state import Link, State

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
PATH = "rail_path"

NO_CARRIER = "no carrier"

SERVICE_SETS = (CONFIG, LINK, MTU, ADDRESS, ROUTE, RULE)
"""What the network service brings about; what differs here is a reason to call it."""


@dataclass(frozen=True)
class Observation:
    """Everything that was read of one rail."""

    naming: Naming
    claims: tuple[str, ...] = ()
    """Files of others that claim it."""
    owner: str = ""
    """The configuration that the network service uses for it now."""
    on_disk: bool = True
    """Whether our file holds what is planned."""
    link: Optional[Link] = None
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    arp: Mapping[str, Optional[int]] = field(default_factory=dict)
    arp_refused: str = ""
    """Why the ARP settings cannot be set on this machine."""


def routes_of(rail: RailPlan, state: State) -> tuple[Route, ...]:
    """The routes out of a rail that matter: those planned, its own table, and default routes."""
    table = rail.rule.table if rail.rule else None
    return tuple(
        route
        for route in state.routes.get(rail.interface, ())
        if route in rail.routes
        or route.table == table
        or (route.table == MAIN_TABLE and route.destination == "default")
    )


def rules_of(rail: RailPlan, state: State) -> tuple[Rule, ...]:
    """The rules that concern a rail: by its address, its priority or its table."""
    own = rail.rule
    return tuple(
        rule
        for rule in state.rules
        if rule.source == rail.address
        or (own is not None and (rule.priority == own.priority or rule.table == own.table))
    )


def rail_checks(
    rail: RailPlan,
    seen: Observation,
    owner: str,
    arp: Mapping[str, int],
    *,
    check_mode: bool = False,
) -> list[Check]:
    """One check per promise of a rail."""
    subject = rail.interface
    if seen.naming.verdict == REFUSED:
        found = seen.naming.interface
        return [Check(NAME, _identity(rail), found, FAILED, subject, seen.naming.reason)]
    first = [_name_check(rail, seen.naming, check_mode)]
    if seen.claims:
        why = (
            "remove the rail from that file, or the rail from the model; nothing was changed on it"
        )
        return [*first, Check(CLAIM, [], list(seen.claims), FAILED, subject, why)]
    first.append(Check(CLAIM, [], [], OK, subject))
    rest = _running_checks(rail, seen, owner, arp, check_mode)
    if seen.naming.verdict == NAME_AT_REBOOT:
        rest = [_at_reboot(check, seen.naming.reason) for check in rest]
    return [*first, *rest]


def _running_checks(
    rail: RailPlan,
    seen: Observation,
    owner: str,
    arp: Mapping[str, int],
    check_mode: bool,
) -> list[Check]:
    def same(name: str, wanted: Any, found: Any) -> Check:
        return compare(name, wanted, found, subject=rail.interface, check_mode=check_mode)

    link = seen.link
    found_owner = (seen.owner or "none") + ("" if seen.on_disk else " (its text differs)")
    checks = [
        same(CONFIG, owner, found_owner),
        _link_check(rail, link, check_mode),
        same(MTU, rail.mtu, link.mtu if link else None),
        same(ADDRESS, [rail.cidr], list(link.addresses) if link else []),
    ]
    wanted_routes, found_routes = _texts(rail.routes), _texts(seen.routes)
    if wanted_routes or found_routes:
        checks.append(same(ROUTE, wanted_routes, found_routes))
    wanted_rules, found_rules = _texts([rail.rule] if rail.rule else []), _texts(seen.rules)
    if wanted_rules or found_rules:
        checks.append(same(RULE, wanted_rules, found_rules))
    if seen.arp_refused and dict(arp) != dict(seen.arp):
        checks.append(not_applicable(ARP, dict(arp), seen.arp_refused, subject=rail.interface))
    else:
        checks.append(same(ARP, dict(arp), dict(seen.arp)))
    return checks


def _texts(items: Sequence[object]) -> list[str]:
    return sorted(str(item) for item in items)


def _identity(rail: RailPlan) -> str:
    return f"{rail.interface} at {rail.pci}" if rail.pci else rail.interface


def _name_check(rail: RailPlan, naming: Naming, check_mode: bool) -> Check:
    wanted, subject = _identity(rail), rail.interface
    if naming.verdict == NAMED:
        if rail.pci is None:
            return not_applicable(NAME, wanted, NO_PCI, subject=subject)
        return Check(NAME, wanted, wanted, OK, subject)
    found = f"{naming.interface} at {rail.pci}"
    if naming.verdict == RENAME:
        status = PENDING if check_mode else FAILED
        return Check(NAME, wanted, found, status, subject, naming.reason)
    return Check(NAME, wanted, found, REBOOT, subject, naming.reason)


def _link_check(rail: RailPlan, link: Optional[Link], check_mode: bool) -> Check:
    if link is None or not link.up:
        found = "down" if link else "absent"
        return compare(LINK, "up", found, subject=rail.interface, check_mode=check_mode)
    if not link.carrier:
        # No run of Ansible plugs a cable in: this has failed in check mode as well.
        why = "look at cable, transceiver and switch port; the rail's configuration stays as it is"
        return Check(LINK, "up", NO_CARRIER, FAILED, rail.interface, why)
    return Check(LINK, "up", "up", OK, rail.interface)


def _at_reboot(check: Check, reason: str) -> Check:
    if check.status in (OK, NOT_APPLICABLE):
        return check
    return replace(check, status=REBOOT, reason=reason)


def service_check(unit: str, found: str, check_mode: bool) -> Check:
    """The check of the network service, which all rails share."""
    return compare(SERVICE, READY, found, subject=unit, check_mode=check_mode)


def path_check(
    rail: RailPlan, unreached: Optional[str], *, tried: bool, check_mode: bool
) -> Optional[Check]:
    """The check of the way to the gateway; None where there is nothing sensible to say."""
    wanted = f"a packet of {rail.mtu} bytes returns from {rail.gateway}"
    if rail.gateway is None:
        return not_applicable(
            PATH, "a full packet returns", "no gateway in the model", subject=rail.interface
        )
    if not tried:
        if not check_mode:
            return None
        why = "not tried: the rail is not as planned yet"
        return Check(PATH, wanted, None, PENDING, rail.interface, why)
    if unreached:
        return Check(PATH, wanted, "no answer", FAILED, rail.interface, unreached)
    return Check(PATH, wanted, wanted, OK, rail.interface)
