# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the rails as they are to the rails as planned, one rail never at another's cost.

Read everything; write the files that differ; let the network service take over the rails that
changed or drifted, and only those; read back until they hold, or put a rail's old files back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils import reboots
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    REBOOT,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import FilePlan, diffs
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.machine import (
    IN_CONTAINER,
    boot_id,
    container,
)

from . import arp, detect, device, intent, link_files, path_mtu, readback, service
from .backend import BACKENDS, Backend, Conflict
from .plan import RailPlan
from .readback import Observation
from .state import State, read_state

LAYER = "rails"
_POLL_S = 0.2
_PATH_WAIT_S = 2.0


@dataclass(frozen=True)
class Request:
    """What is asked of this host."""

    rails: Sequence[RailPlan]
    arp: Mapping[str, int] = field(default_factory=lambda: dict(arp.DEFAULTS))
    check_path: bool = True
    wait_s: float = 30.0


@dataclass(frozen=True)
class Host:
    """The machine, or what stands in for it."""

    run: Runner
    root: Path = Path("/")
    uid: int = 0
    gid: int = 0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


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


def converge(request: Request, backend: Backend, host: Host, *, check_mode: bool) -> Outcome:
    """Bring the rails about and prove them. Raises CommandError when the host cannot be read."""
    return _Run(request, backend, host, check_mode).outcome()


class _Run:
    """One run on one host; the steps are in `outcome`."""

    def __init__(self, request: Request, backend: Backend, host: Host, check_mode: bool) -> None:
        self.request = request
        self.backend = backend
        self.host = host
        self.check_mode = check_mode
        self.by_name = {rail.interface: rail for rail in request.rails}
        self.state = read_state(host.run)
        by_pci = device.interfaces_by_pci(host.root)
        self.namings = {
            rail.interface: device.naming(rail, self.state.links, by_pci, self.state.in_use)
            for rail in request.rails
        }
        self.claims = self._claims()
        self.old_blocks = backend.read()
        self.blocks = self._wanted_blocks()
        self.changed_blocks = [
            name
            for name in {**self.old_blocks, **self.blocks}
            if self.old_blocks.get(name) != self.blocks.get(name)
        ]
        self.removed = [name for name in self.old_blocks if name not in self.by_name]
        self.service = service.state(backend.unit, host.run)
        self.seen = self._observe(self.state)
        self.complaints: dict[str, str] = {}
        self.rolled_back: list[str] = []
        self.reconfigured: list[str] = []

    # What may be done with each rail

    def _claims(self) -> dict[str, tuple[str, ...]]:
        rails = [
            rail
            for rail in self.request.rails
            if self.namings[rail.interface].verdict != device.REFUSED
        ]
        conflicts: list[Conflict] = self.backend.conflicts(rails, self.state.links)
        conflicts += link_files.link_file_conflicts(rails, self.host.root)
        claims: dict[str, tuple[str, ...]] = {}
        for conflict in conflicts:
            claims[conflict.interface] = (*claims.get(conflict.interface, ()), str(conflict))
        return claims

    def _blocked(self, name: str) -> bool:
        return self.namings[name].verdict == device.REFUSED or name in self.claims

    @property
    def _writable(self) -> list[RailPlan]:
        """Rails whose files are ours to write."""
        return [rail for rail in self.request.rails if not self._blocked(rail.interface)]

    @property
    def _live(self) -> list[RailPlan]:
        """Rails that can run as planned without a reboot."""
        return [
            rail
            for rail in self._writable
            if self.namings[rail.interface].verdict in (device.NAMED, device.RENAME)
        ]

    def _wanted_blocks(self) -> dict[str, str]:
        """A rail that must not be touched keeps the block it has."""
        blocks = {}
        for rail in self.request.rails:
            name = rail.interface
            if not self._blocked(name):
                blocks[name] = self.backend.render(rail)
            elif name in self.old_blocks:
                blocks[name] = self.old_blocks[name]
        return blocks

    # Reading

    def _observe(self, state: State) -> dict[str, Observation]:
        root = self.host.root
        present = [rail.interface for rail in self._live if rail.interface in state.links]
        owners = self.backend.owners(present)
        on_disk = self.backend.read()
        seen = {}
        for rail in self.request.rails:
            name = rail.interface
            refused = ""
            if container(root) and name in state.links and not arp.writable(name, root):
                refused = IN_CONTAINER
            seen[name] = Observation(
                naming=self.namings[name],
                claims=self.claims.get(name, ()),
                owner=owners.get(name, ""),
                on_disk=on_disk.get(name) == self.blocks.get(name),
                link=state.links.get(name),
                routes=readback.routes_of(rail, state),
                rules=readback.rules_of(rail, state),
                arp=arp.read_settings(name, root),
                arp_refused=refused,
            )
        return seen

    def _checks_of(self, rail: RailPlan, *, check_mode: bool) -> list[Check]:
        return readback.rail_checks(
            rail,
            self.seen[rail.interface],
            self.backend.owner(rail.interface),
            self.request.arp,
            check_mode=check_mode,
        )

    def _differing(self, rail: RailPlan, names: Iterable[str]) -> list[Check]:
        """Checks that a run could set right: no run brings a carrier."""
        wanted = set(names)
        return [
            check
            for check in self._checks_of(rail, check_mode=True)
            if check.name in wanted
            and check.status not in (OK, NOT_APPLICABLE)
            and check.found != readback.NO_CARRIER
        ]

    def _incomplete(self, rail: RailPlan) -> bool:
        """Whether something is missing that the network service has to bring about."""
        seen = self.seen[rail.interface]
        if self._differing(rail, (readback.CONFIG, readback.LINK, readback.MTU)):
            return True
        addresses = seen.link.addresses if seen.link else ()
        missing_rule = rail.rule is not None and rail.rule not in seen.rules
        return (
            rail.cidr not in addresses or missing_rule or not set(rail.routes) <= set(seen.routes)
        )

    # Planning

    def _file_plans(self) -> list[FilePlan]:
        root = self.host.root
        kept = [name for name in self.by_name if self._blocked(name)]
        plans = self.backend.files(self.blocks)
        for other in BACKENDS:
            if other != self.backend.name:
                plans += detect.backend_named(other, self.host.run, root).files({})
        plans += link_files.plan_link_files(self._writable, kept, root)
        plans.append(arp.plan_settings_file(self.blocks, self.request.arp, root))
        plans.append(self._reboot_plan())
        return [replace(plan, uid=self.host.uid, gid=self.host.gid) for plan in plans]

    def _reboot_plan(self) -> FilePlan:
        reasons = [
            reboots.Reason(
                subject=name,
                wanted=f"{name} at {self.by_name[name].pci}",
                running=str(naming.interface),
                reason=naming.reason,
            )
            for name, naming in self.namings.items()
            if naming.verdict == device.REBOOT and name not in self.claims
        ]
        return reboots.plan(LAYER, reasons, boot_id(self.host.root), root=self.host.root)

    def _running_diff(self) -> list[dict[str, Any]]:
        """What differs in the running kernel, rail by rail."""
        shown = []
        for rail in self._live:
            names = (readback.NAME, *readback.SERVICE_SETS[1:], readback.ARP)
            checks = self._differing(rail, names)
            if checks:
                header = f"{rail.interface} (running)"
                shown.append(
                    {
                        "before_header": header,
                        "after_header": header,
                        "before": "".join(f"{check.name}: {check.found}\n" for check in checks),
                        "after": "".join(f"{check.name}: {check.wanted}\n" for check in checks),
                    }
                )
        return shown

    # The steps

    def outcome(self) -> Outcome:
        plans = self._file_plans()
        diff = diffs(plans) + self._running_diff()
        drifted = [rail.interface for rail in self._live if self._incomplete(rail)]
        unfinished = intent.unfinished(self.host.root)
        changed = bool(diff or drifted or unfinished or self.service != service.READY)
        if self.changed_blocks:
            self.backend.validate(self.blocks)
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
            removed=self.removed,
        )

    def _act(
        self, plans: Sequence[FilePlan], drifted: Sequence[str], unfinished: Sequence[str]
    ) -> None:
        live = {rail.interface for rail in self._live}
        written = [name for name in self.changed_blocks if name in live or name in self.removed]
        written += [name for name in unfinished if name in live and name not in written]
        # A changed file is taken over gently; one that networkd knows already needs the firmer way.
        again = [name for name in drifted if name not in self.changed_blocks]
        again += [name for name in unfinished if name in live and name not in again]
        if self.service != service.READY:
            service.start(self.backend.unit, self.host.run)
            self.service = service.state(self.backend.unit, self.host.run)
        intent.begin([*written, *again], self.host.root)
        _write_all(plans)
        self._rename()
        self._apply(written, again)
        for rail in self._live:
            if not self.seen[rail.interface].arp_refused:
                self.complaints.setdefault(
                    rail.interface,
                    arp.write_settings(rail.interface, self.request.arp, self.host.root),
                )
        self._clear_removed()
        self._settle(bool(written or again))
        self._roll_back()
        intent.finish(self.host.root)

    def _rename(self) -> None:
        for rail in self._live:
            naming = self.namings[rail.interface]
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
                self.namings[rail.interface] = device.Naming(device.NAMED, rail.interface)

    def _apply(self, written: Sequence[str], again: Sequence[str]) -> None:
        if not written and not again:
            return
        told = (*self.reconfigured, *written, *again)
        self.reconfigured = list(dict.fromkeys(told))
        try:
            self.complaints.update(self.backend.apply(written, again))
        except CommandError as error:
            self.complaints.update({name: str(error) for name in (*written, *again)})

    def _look(self) -> None:
        self.state = read_state(self.host.run)
        self.seen = self._observe(self.state)

    def _settle(self, applied: bool) -> None:
        """Wait until all rails hold, and take away what is too much. Good twice is settled."""
        start = self.host.clock()
        good = 0
        firmer = applied
        while True:
            self._look()
            if self._remove_foreign():
                self._look()
            missing = [rail.interface for rail in self._live if self._incomplete(rail)]
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
        links = (self.state.links.get(name) for name in self.reconfigured)
        return any(link is not None and link.up and not link.carrier for link in links)

    def _remove_foreign(self) -> bool:
        """Addresses, rules and default routes on a rail that are nobody's any more."""
        commands: list[tuple[str, ...]] = []
        for rail in self._live:
            name, seen = rail.interface, self.seen[rail.interface]
            for address in seen.link.addresses if seen.link else ():
                if address != rail.cidr:
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
        """A rail that is none any more keeps neither address nor rule."""
        for name in self.removed:
            link = self.state.links.get(name)
            if link is None:
                continue
            for address in link.addresses:
                self.host.run(("ip", "address", "del", address, "dev", name), check=False)
                for rule in self.state.rules:
                    if rule.source == address.split("/")[0]:
                        command = _rule_del(rule.priority, rule.source, rule.table)
                        self.host.run(command, check=False)

    def _roll_back(self) -> None:
        """Rails that do not come up with their new configuration get their old one back."""
        failed = [
            rail.interface
            for rail in self._live
            if self._incomplete(rail) and rail.interface in self.changed_blocks
        ]
        if not failed:
            return
        blocks = {name: text for name, text in self.blocks.items() if name not in failed}
        blocks.update({name: self.old_blocks[name] for name in failed if name in self.old_blocks})
        ordered = {name: blocks[name] for name in self.by_name if name in blocks}
        _write_all(
            replace(plan, uid=self.host.uid, gid=self.host.gid)
            for plan in self.backend.files(ordered)
        )
        self._apply(failed, [name for name in failed if name in self.old_blocks])
        self.rolled_back = failed

    def _reason(self, name: str) -> str:
        """What is known of why a rail does not hold, and what was done about it."""
        parts = [self.complaints.get(name, "")]
        if name in self.rolled_back and name in self.old_blocks:
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
            found = self._checks_of(rail, check_mode=self.check_mode)
            of[name] = _explained(found, self._reason(name))
            if all(check.status not in (FAILED, PENDING, REBOOT) for check in found):
                sound.append(rail)
        unreached: dict[str, str] = {}
        if self.request.check_path:
            wait_s = self.request.wait_s if changed and not self.check_mode else _PATH_WAIT_S
            clock, sleep = self.host.clock, self.host.sleep
            unreached = path_mtu.unreached(sound, self.host.run, wait_s, clock, sleep)
        checks.append(readback.service_check(self.backend.unit, self.service, self.check_mode))
        for rail in self.request.rails:
            own = of[rail.interface]
            if self.request.check_path and not self._blocked(rail.interface):
                path = readback.path_check(
                    rail,
                    unreached.get(rail.interface),
                    tried=rail in sound,
                    check_mode=self.check_mode,
                )
                own += [path] if path else []
            checks += own
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


def _write_all(plans: Iterable[FilePlan]) -> None:
    """All of them, or none: what was written goes back when one cannot be."""
    done: list[FilePlan] = []
    try:
        for plan in plans:
            if plan.changed:
                done.append(plan)
                plan.apply()
    except OSError:
        for plan in done:
            _restore(plan)
        raise


def _restore(plan: FilePlan) -> None:
    uid, gid = plan.owner_before or (plan.uid, plan.gid)
    mode = plan.mode_before if plan.mode_before is not None else plan.mode
    now = "" if plan.before is None else plan.before
    back = replace(
        plan, before=f"{now}\n", after=plan.before, mode=mode, uid=uid, gid=gid, mode_before=None
    )
    back.apply()
