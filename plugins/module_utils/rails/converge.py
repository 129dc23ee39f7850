# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the rails as they are to the rails as planned, one rail never at another's cost.

Read everything; write the files that differ; let the network service take over the rails that
changed or drifted, and only those; read back until they hold, or put a rail's old files back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Optional, Protocol

from ..core.checks import FAILED, PENDING, REBOOT, Check
from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diffs
from ..hardware.ports import interface_speed
from . import arp, device, intent, path_mtu, readback, service
from .backend import Backend
from .plan import RailPlan
from .survey import Host, Request, Survey

# Each rail as the kernel has it: what the other end of its cable is compared with.


def running(survey: Survey) -> dict[str, dict[str, Any]]:
    """By rail: what it is called now, its MAC address, MTU, carrier and speed."""
    found = {}
    for name, interface in survey.present.items():
        link = survey.state.links[interface]
        entry = survey.host.root / "sys/class/net" / interface
        found[name] = {
            "interface": interface,
            "mac": link.mac,
            "mtu": link.mtu,
            "up": link.up,
            "carrier": link.carrier,
            "speed_gbps": interface_speed(entry) if link.carrier else None,
        }
    return found


# Several files as one: all of them are written, or none.


def write_all(plans: Iterable[FilePlan]) -> None:
    """What was written goes back when one of them cannot be, and the error goes on."""
    done: list[FilePlan] = []
    try:
        for plan in plans:
            if plan.changed:
                done.append(plan)
                plan.apply()
    except OSError:
        for plan in done:
            restore(plan)
        raise


def restore(plan: FilePlan) -> None:
    """The file as it was when it was planned."""
    uid, gid = plan.owner_before or (plan.uid, plan.gid)
    mode = plan.mode_before if plan.mode_before is not None else plan.mode
    now = "" if plan.before is None else plan.before
    back = replace(
        plan, before=f"{now}\n", after=plan.before, mode=mode, uid=uid, gid=gid, mode_before=None
    )
    back.apply()


# What a run does on the rails besides their network configuration, as far as it knows of it.


class Further(Protocol):
    """Planned with the rails, done once each has its name, before the network service sets it up.

    A NIC may take its link down for a moment when its settings change; the run waits for it anyway.
    """

    def look(self, interfaces: Mapping[str, str], reached_by: Mapping[str, str]) -> None:
        """Read everything. `interfaces`: what each rail is called now. `reached_by`: interfaces
        by which this host is reached, and why."""

    @property
    def diff(self) -> list[dict[str, Any]]:
        """What would be set; empty when nothing differs."""

    def act(self, interfaces: Mapping[str, str]) -> Sequence[str]:
        """Set what differs. Returns the rails on which anything was written."""

    def checks(self, later: Mapping[str, str], *, check_mode: bool) -> list[Check]:
        """`later`: rails that get their name at the next boot only, and why."""


_POLL_S = 0.2
_PATH_WAIT_S = 2.0


@dataclass
class Outcome:
    """What was found and done."""

    changed: bool
    diff: list[dict[str, Any]]
    checks: list[Check]
    backend: str
    reconfigured: list[str]
    """Interfaces that the network service was told to set up; no other was touched."""
    rolled_back: list[str]
    removed: list[str]
    """Interfaces that are rails no longer."""
    rails: dict[str, dict[str, Any]]
    """Each rail that is there, as the kernel has it at the end."""


def converge(
    request: Request,
    backend: Backend,
    host: Host,
    *,
    check_mode: bool,
    further: Optional[Further] = None,
) -> Outcome:
    """Bring the rails about and prove them. Raises CommandError when the host cannot be read."""
    return _Run(request, backend, host, check_mode, further).outcome()


class _Run:
    """One run on one host; the steps are in `outcome`."""

    def __init__(
        self,
        request: Request,
        backend: Backend,
        host: Host,
        check_mode: bool,
        further: Optional[Further],
    ) -> None:
        self.survey = Survey(request, backend, host)
        self.further = further
        self.request = request
        self.backend = backend
        self.host = host
        self.check_mode = check_mode
        self.complaints: dict[str, str] = {}
        """What was said against single rails while they were set up."""
        self.rolled_back: list[str] = []
        self.reconfigured: list[str] = []
        self.disturbed: list[str] = []
        """Interfaces whose NIC was set to something else: its link may go down for a moment."""

    def outcome(self) -> Outcome:
        plans = self.survey.file_plans()
        diff = diffs(plans) + self.survey.running_diff()
        if self.further is not None:
            self.further.look(self.survey.present, self.survey.reached_by)
            diff += self.further.diff
        drifted = [rail.interface for rail in self.survey.live if self.survey.incomplete(rail)]
        unfinished = intent.unfinished(self.host.root)
        changed = bool(diff or drifted or unfinished or self.survey.service != service.READY)
        if self.survey.changed_blocks:
            self.backend.validate(self.survey.blocks)
        if changed and not self.check_mode:
            self._act(plans, drifted, unfinished)
        checks = self._final_checks(changed)
        return Outcome(
            changed=changed,
            diff=diff,
            checks=checks,
            backend=self.backend.name,
            reconfigured=self.reconfigured,
            rolled_back=self.rolled_back,
            removed=self.survey.removed,
            rails=running(self.survey),
        )

    def _act(
        self, plans: Sequence[FilePlan], drifted: Sequence[str], unfinished: Sequence[str]
    ) -> None:
        survey = self.survey
        live = {rail.interface for rail in survey.live}
        ours = live.union(survey.removed)
        written = [name for name in survey.changed_blocks if name in ours]
        written += [name for name in unfinished if name in live and name not in written]
        # A changed file is taken over gently; one that networkd knows already needs the firmer way.
        again = [name for name in drifted if name not in self.survey.changed_blocks]
        again += [name for name in unfinished if name in live and name not in again]
        if self.survey.service != service.READY:
            service.start(self.backend.unit, self.host.run)
            self.survey.service = service.state(self.backend.unit, self.host.run)
        intent.begin([*written, *again], self.host.root)
        write_all(plans)
        if self._rename():
            self.survey.look()
        if self.further is not None:
            self.disturbed = list(self.further.act(self.survey.present))
        self._apply(written, again)
        for rail in self.survey.live:
            if not self.survey.seen[rail.interface].arp_refused:
                self.complaints.setdefault(
                    rail.interface,
                    arp.write_settings(rail.interface, self.request.arp, self.host.root),
                )
        self._clear_removed()
        self._settle(bool(written or again or self.disturbed))
        self._roll_back()
        intent.finish(self.host.root)

    def _rename(self) -> bool:
        renamed = False
        for rail in self.survey.live:
            naming = self.survey.namings[rail.interface]
            if naming.verdict != device.RENAME or naming.interface is None:
                continue
            try:
                self.host.run(("ip", "link", "set", "dev", naming.interface, "down"))
                self.host.run(
                    ("ip", "link", "set", "dev", naming.interface, "name", rail.interface)
                )
            except CommandError as error:
                self.complaints[rail.interface] = str(error)
            else:
                self.survey.namings[rail.interface] = device.Naming(device.NAMED, rail.interface)
                renamed = True
        return renamed

    def _apply(self, written: Sequence[str], again: Sequence[str]) -> None:
        if not written and not again:
            return
        told = (*self.reconfigured, *written, *again)
        self.reconfigured = list(dict.fromkeys(told))
        try:
            self.complaints.update(self.backend.apply(written, again))
        except CommandError as error:
            self.complaints.update({name: str(error) for name in (*written, *again)})

    def _settle(self, applied: bool) -> None:
        """Wait until all rails hold, and take away what is too much. Good twice is settled."""
        start = self.host.clock()
        good = 0
        firmer = applied
        while True:
            self.survey.look()
            if self._remove_foreign():
                self.survey.look()
            missing = [rail.interface for rail in self.survey.live if self.survey.incomplete(rail)]
            good = 0 if missing or self._training() else good + 1
            elapsed = self.host.clock() - start
            if good >= (2 if applied else 1) or elapsed >= self.request.wait_s:
                return
            if missing and firmer and elapsed >= self.request.wait_s / 6:
                firmer = False
                self._apply((), missing)
            self.host.sleep(_POLL_S)

    def _training(self) -> bool:
        """Whether a link that was just brought up may still be on its way to a carrier."""
        brought_up = (*self.reconfigured, *self.disturbed)
        links = (self.survey.state.links.get(name) for name in brought_up)
        return any(link is not None and link.up and not link.carrier for link in links)

    def _remove_foreign(self) -> bool:
        """Addresses, rules and default routes on a rail that are nobody's any more."""
        commands: list[tuple[str, ...]] = []
        for rail in self.survey.live:
            name, seen = rail.interface, self.survey.seen[rail.interface]
            for address in seen.link.addresses if seen.link else ():
                if address != rail.cidr and not self.request.management.holds(address):
                    commands.append(("ip", "address", "del", address, "dev", name))
            for route in seen.routes:
                if route not in rail.routes:
                    commands.append(_route_del(name, route.destination, route.gateway, route.table))
            for rule in seen.rules:
                if rule != rail.rule:
                    commands.append(_rule_del(rule.priority, rule.source, rule.table))
        for command in commands:
            # It may have gone by itself meanwhile; what stays is found by the read-back.
            self.host.run(command, check=False)
        return bool(commands)

    def _clear_removed(self) -> None:
        """A rail that is none any more keeps neither the address we gave it nor its rule."""
        for name in self.survey.removed:
            link = self.survey.state.links.get(name)
            if link is None:
                continue
            ours = self.survey.old_blocks[name]
            for address in (each for each in link.addresses if each in ours):
                if self.request.management.holds(address):
                    continue
                self.host.run(("ip", "address", "del", address, "dev", name), check=False)
                for rule in self.survey.state.rules:
                    if rule.source == address.split("/")[0]:
                        command = _rule_del(rule.priority, rule.source, rule.table)
                        self.host.run(command, check=False)

    def _roll_back(self) -> None:
        """Rails that do not come up with their new configuration get their old one back."""
        failed = [
            rail.interface
            for rail in self.survey.live
            if self.survey.incomplete(rail) and rail.interface in self.survey.changed_blocks
        ]
        if not failed:
            return
        old, blocks = self.survey.old_blocks, self.survey.blocks
        back = {name: old.get(name) if name in failed else text for name, text in blocks.items()}
        former = {name: text for name, text in back.items() if text is not None}
        write_all(
            replace(plan, uid=self.host.uid, gid=self.host.gid)
            for plan in self.backend.files(former)
        )
        self._apply(failed, [name for name in failed if name in old])
        self.rolled_back = failed

    def _reason(self, name: str) -> str:
        """What is known of why a rail does not hold, and what was done about it."""
        parts = [self.complaints.get(name, "")]
        if name in self.rolled_back and name in self.survey.old_blocks:
            parts.append("its former configuration was put back")
        elif name in self.rolled_back:
            parts.append("it had no configuration before, and has none now")
        return "; ".join(part for part in parts if part)

    def _final_checks(self, changed: bool) -> list[Check]:
        checks: list[Check] = []
        sound: list[RailPlan] = []
        of: dict[str, list[Check]] = {}
        for rail in self.request.rails:
            name = rail.interface
            found = self.survey.checks_of(rail, check_mode=self.check_mode)
            of[name] = _explained(found, self._reason(name))
            if all(check.status not in (FAILED, PENDING, REBOOT) for check in found):
                sound.append(rail)
        unreached: dict[str, str] = {}
        if self.request.check_path:
            wait_s = self.request.wait_s if changed and not self.check_mode else _PATH_WAIT_S
            clock, sleep = self.host.clock, self.host.sleep
            unreached = path_mtu.unreached(sound, self.host.run, wait_s, clock, sleep)
        unit, state = self.backend.unit, self.survey.service
        checks.append(readback.service_check(unit, state, self.check_mode))
        for rail in self.request.rails:
            own = of[rail.interface]
            if self.request.check_path and not self.survey.blocked(rail.interface):
                path = readback.path_check(
                    rail,
                    unreached.get(rail.interface),
                    tried=rail in sound,
                    check_mode=self.check_mode,
                )
                own += [path] if path else []
            checks += own
        if self.further is not None:
            later = {
                name: naming.reason
                for name, naming in self.survey.namings.items()
                if naming.verdict == device.REBOOT and not self.survey.blocked(name)
            }
            checks += self.further.checks(later, check_mode=self.check_mode)
        return checks


def _explained(checks: list[Check], reason: str) -> list[Check]:
    """The reason once, at the first check that failed without one of its own."""
    bare = [place for place, check in enumerate(checks) if check.status == FAILED]
    bare = [place for place in bare if not checks[place].reason]
    if bare and reason:
        checks[bare[0]] = replace(checks[bare[0]], reason=reason)
    return checks


def _route_del(name: str, destination: str, gateway: Optional[str], table: int) -> tuple[str, ...]:
    via = ("via", gateway) if gateway else ()
    return ("ip", "route", "del", destination, *via, "dev", name, "table", str(table))


def _rule_del(priority: int, source: str, table: int) -> tuple[str, ...]:
    numbers = ("priority", str(priority), "from", source, "table", str(table))
    return ("ip", "rule", "del", *numbers)
