# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each rail's promises, compared with what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from ..core.commands import CommandError, Runner
from ..core.dataclass import dataclass
from .device import NAMED, REFUSED, RENAME, Naming
from .device import REBOOT as NAME_AT_REBOOT
from .plan import MAIN_TABLE, RailPlan, Route, Rule
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
RUNNING = (NAME, LINK, MTU, ADDRESS, ROUTE, RULE, ARP)
"""What the running kernel has of a rail; the files have diffs of their own."""

_PAUSE_S = 0.3
"""Between two packets: a refusal by this host itself comes at once."""
_HEADERS = 28
"""Bytes of IPv4 and ICMP headers in a packet."""


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
    subject, naming = rail.interface, seen.naming
    identity = f"{subject} at {rail.pci}" if rail.pci else subject
    if naming.verdict == REFUSED:
        return [Check(NAME, identity, naming.interface, FAILED, subject, naming.reason)]
    first = [_name_check(rail, identity, naming, check_mode)]
    if seen.claims:
        why = (
            "remove the rail from that file, or the rail from the model; nothing was changed on it"
        )
        return [*first, Check(CLAIM, [], list(seen.claims), FAILED, subject, why)]
    first.append(Check(CLAIM, [], [], OK, subject))
    rest = _running_checks(rail, seen, owner, arp, check_mode)
    if naming.verdict == NAME_AT_REBOOT:
        rest = [
            check
            if check.status in (OK, NOT_APPLICABLE)
            else replace(check, status=REBOOT, reason=naming.reason)
            for check in rest
        ]
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
    checks = [same(CONFIG, owner, found_owner)]
    if link is not None and link.up and not link.carrier:
        # A run cannot plug in a cable, so this is a failure in check mode as well.
        why = "look at cable, transceiver and switch port; the rail's configuration stays as it is"
        checks.append(Check(LINK, "up", NO_CARRIER, FAILED, rail.interface, why))
    else:
        checks.append(same(LINK, "up", "absent" if link is None else "up" if link.up else "down"))
    checks += [
        same(MTU, rail.mtu, link.mtu if link else None),
        same(ADDRESS, [rail.cidr], list(link.addresses) if link else []),
    ]
    for name, wanted, found in (
        (ROUTE, rail.routes, seen.routes),
        (RULE, [rail.rule] if rail.rule else [], seen.rules),
    ):
        if wanted or found:
            checks.append(same(name, sorted(map(str, wanted)), sorted(map(str, found))))
    if seen.arp_refused and dict(arp) != dict(seen.arp):
        checks.append(not_applicable(ARP, dict(arp), seen.arp_refused, subject=rail.interface))
    else:
        checks.append(same(ARP, dict(arp), dict(seen.arp)))
    return checks


def _name_check(rail: RailPlan, wanted: str, naming: Naming, check_mode: bool) -> Check:
    subject = rail.interface
    if naming.verdict == NAMED:
        if rail.pci is None:
            return not_applicable(NAME, wanted, "no PCI address in the model", subject=subject)
        return Check(NAME, wanted, wanted, OK, subject)
    found = f"{naming.interface} at {rail.pci}"
    if naming.verdict == RENAME:
        status = PENDING if check_mode else FAILED
        return Check(NAME, wanted, found, status, subject, naming.reason)
    return Check(NAME, wanted, found, REBOOT, subject, naming.reason)


# One full packet to each rail's gateway proves cable, address, route and the leaf's MTU.


def path_check(
    rail: RailPlan, unreached: Optional[str], *, tried: bool, check_mode: bool
) -> Optional[Check]:
    """The check of the way to the gateway; None where an earlier check has failed."""
    if rail.gateway is None:
        wanted = "a full packet returns"
        return not_applicable(PATH, wanted, "no gateway in the model", subject=rail.interface)
    wanted = f"a packet of {rail.mtu} bytes returns from {rail.gateway}"
    if not tried:
        if not check_mode:
            return None
        why = "not tried: the rail is not as planned yet"
        return Check(PATH, wanted, None, PENDING, rail.interface, why)
    if unreached:
        return Check(PATH, wanted, "no answer", FAILED, rail.interface, unreached)
    return Check(PATH, wanted, wanted, OK, rail.interface)


def unreached(
    rails: Sequence[RailPlan],
    run: Runner,
    wait_s: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Rails whose gateway did not answer within `wait_s`, with the command and its output."""
    deadline = clock() + wait_s

    def ask(rail: RailPlan) -> str:
        argv = (
            *("ping", "-n", "-q", "-M", "do", "-s", str(rail.mtu - _HEADERS)),
            *("-c", "1", "-W", "1", "-I", rail.address, str(rail.gateway)),
        )
        while True:
            try:
                result = run(argv, check=False)
            except CommandError as error:
                return str(error)
            if result.rc == 0:
                return ""
            sleep(_PAUSE_S)
            if clock() >= deadline:
                loss = [line.strip() for line in result.stdout.splitlines() if "packet" in line]
                output = result.stderr.strip() or (loss or ["no answer"])[0]
                return f"{' '.join(argv)}: {output[-300:]}"

    asked = [rail for rail in rails if rail.gateway]
    with ThreadPoolExecutor(max_workers=max(1, len(asked))) as pool:
        answers = list(pool.map(ask, asked))
    return {rail.interface: answer for rail, answer in zip(asked, answers) if answer}
