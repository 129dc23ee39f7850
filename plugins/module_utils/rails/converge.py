# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the rails as they are to the rails as planned, one rail never at another's cost.

Read everything; write the files that differ; let the network service take over the rails that
changed or drifted, and only those; read back until they hold, or put a rail's old files back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core import systemd
from ..core.checks import FAILED, PENDING, REBOOT, Check, compare
from ..core.commands import CommandError
from ..core.files import FilePlan, diffs, write_atomically
from ..core.part import Node, Plan, Step, Verdict
from ..core.text import some
from ..hardware.survey import interface_speed
from ..nic.engine import Nics
from . import state, survey
from .backends import READY, Backend
from .path import Probe, path_checks
from .plan import RailPlan, Rule
from .survey import Request, Survey

UNFINISHED = "run/baremetal-mpi-roce/rails-in-progress.json"
"""Under /run: a reboot applies the files anyway."""
_POLL_S = 0.2
_PATH_WAIT_S = 2.0


def unfinished(root: Path = Path("/")) -> list[str]:
    """Interfaces that an interrupted run was changing: set up again although their files match."""
    try:
        names: list[str] = json.loads((root / UNFINISHED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return names


def begin(interfaces: Iterable[str], node: Node) -> None:
    """Note the rails that are about to be changed; the note is removed after the read-back."""
    text = json.dumps(sorted(set(interfaces))) + "\n"
    write_atomically(node.path(UNFINISHED), text, 0o644, node.uid, node.gid)


@dataclass(eq=False)
class Rails:
    """All rails of one host, as one part of the engine: its files are written with its steps.

    NICs are set once each rail has its name, before the network service sets it up: a NIC may take
    its link down for a moment, and the run waits for links anyway.
    """

    request: Request
    backend: Backend
    nics: Nics
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    probe: Optional[Probe] = None
    complaints: dict[str, str] = field(default_factory=dict, init=False)
    """Errors about single rails while they were set up."""
    rolled_back: list[str] = field(default_factory=list, init=False)
    reconfigured: list[str] = field(default_factory=list, init=False)
    """Interfaces that the network service set up; no other was touched."""
    disturbed: list[str] = field(default_factory=list, init=False)
    """Rails whose NIC was set: its link may go down for a moment."""
    changed: bool = field(default=False, init=False)

    def plan(self, node: Node) -> Plan:
        self.node = node
        found = self.survey = Survey(self.request, self.backend, node)
        plans = found.file_plans()
        self.nics.look(found.present, found.reached_by)
        shown = [*diffs([*plans, *found.former_file()]), *found.running_diff(), *self.nics.diff]
        drifted = self._incomplete()
        left = unfinished(node.root)
        steps = []
        if found.service != READY:
            what, act = self.backend.unit, self._enable
            steps.append(Step(what, found.service, READY, act, essential=True))
        if shown or drifted or left:
            act = partial(self._act, plans, drifted, left)
            before = f"not as planned: {some([*drifted, *left])}"
            steps.append(Step("rails", before, "as planned", act, shown=shown))
        self.changed = bool(steps)
        return Plan([], steps)

    def running(self) -> dict[str, dict[str, Any]]:
        """By rail its present name, MAC address, MTU, carrier and speed, for the links layer."""
        found = {}
        for name, interface in self.survey.present.items():
            link = self.survey.state.links[interface]
            speed = interface_speed(self.node.root / "sys/class/net" / interface)
            found[name] = {
                "interface": interface,
                "mac": link.mac,
                "mtu": link.mtu,
                "up": link.up,
                "carrier": link.carrier,
                "speed_gbps": speed if link.carrier else None,
            }
        return found

    def _incomplete(self) -> list[str]:
        """Rails that the network service has to set up."""
        return [rail.interface for rail in self.survey.live if self.survey.incomplete(rail)]

    def _enable(self) -> None:
        systemd.control(self.node, "enable", "--now", self.backend.unit)
        self.survey.service = self.backend.state()

    def _act(self, plans: Sequence[FilePlan], drifted: Sequence[str], left: Sequence[str]) -> None:
        found, node = self.survey, self.node
        live = [rail.interface for rail in found.live]
        repeated = [name for name in left if name in live]
        ours = [name for name in found.changed_blocks if name in (*live, *found.removed)]
        written = list(dict.fromkeys((*ours, *repeated)))
        # A changed file is taken over gently; one that networkd knows already needs the firmer way.
        known = [name for name in drifted if name not in found.changed_blocks]
        again = list(dict.fromkeys((*known, *repeated)))
        begin([*written, *again], node)
        for plan in plans:
            plan.apply()
        if self._rename():
            found.look()
            self.nics.look(found.present, found.reached_by)
        self.disturbed = self.nics.act()
        self._apply(written, again)
        for name in live:
            if not found.arp_locked(name):
                error = state.write_arp(name, self.request.arp, node.root)
                self.complaints.setdefault(name, error)
        self._clear_removed()
        self._settle(bool(written or again or self.disturbed))
        self._roll_back()
        if not self.rolled_back:
            for plan in found.former_file():
                plan.apply()
        node.path(UNFINISHED).unlink(missing_ok=True)

    def _rename(self) -> bool:
        renamed = False
        for rail in self.survey.live:
            naming = self.survey.namings[rail.interface]
            if naming.verdict != state.RENAME or naming.interface is None:
                continue
            link = ("ip", "link", "set", "dev", naming.interface)
            try:
                self.node.run((*link, "down"))
                self.node.run((*link, "name", rail.interface))
            except CommandError as error:
                self.complaints[rail.interface] = str(error)
            else:
                self.survey.namings[rail.interface] = state.Naming(state.NAMED, rail.interface)
                renamed = True
        return renamed

    def _apply(self, written: Sequence[str], again: Sequence[str]) -> None:
        if not written and not again:
            return
        self.reconfigured = list(dict.fromkeys((*self.reconfigured, *written, *again)))
        try:
            self.complaints.update(self.backend.apply(written, again))
        except CommandError as error:
            self.complaints.update({name: str(error) for name in (*written, *again)})

    def _settle(self, applied: bool) -> None:
        """Wait until all rails hold, and remove what does not belong on them.

        Two clean reads in a row count as converged.
        """
        start = self.clock()
        good = 0
        firmer = applied
        while True:
            self.survey.look()
            if self._remove_foreign():
                self.survey.look()
            missing = self._incomplete()
            good = 0 if missing or self._training() else good + 1
            elapsed = self.clock() - start
            if good >= (2 if applied else 1) or elapsed >= self.request.wait_s:
                return
            if missing and firmer and elapsed >= self.request.wait_s / 6:
                firmer = False
                self._apply((), missing)
            self.sleep(_POLL_S)

    def _training(self) -> bool:
        """Whether a link that was just brought up may still be on its way to a carrier."""
        brought_up = (*self.reconfigured, *self.disturbed)
        links = (self.survey.state.links.get(name) for name in brought_up)
        return any(link is not None and link.up and not link.carrier for link in links)

    def _remove_foreign(self) -> bool:
        """Addresses, rules, default routes and static neighbours, which a rail must not have, and
        routes that lead its network elsewhere."""
        commands: list[tuple[str, ...]] = []
        for rail in self.survey.live:
            name = rail.interface
            for address in self.survey.addresses(name):
                if address != rail.cidr and not self.request.management.holds(address):
                    commands.append(("ip", "address", "del", address, "dev", name))
            for route in self.survey.routes(rail):
                if route not in rail.routes:
                    kind = (route.kind,) if route.kind else ()
                    via = ("via", route.gateway) if route.gateway else ()
                    dev = () if kind else ("dev", route.device or name)
                    place = (route.destination, *via, *dev, "table", str(route.table))
                    commands.append(("ip", "route", "del", *kind, *place))
            commands += [_del(rule) for rule in self.survey.rules(rail) if rule != rail.rule]
            for each in self.survey.neighbours.get(name, ()):
                commands.append(("ip", "neigh", "del", each.split()[0], "dev", name))
        self._try(commands)
        return bool(commands)

    def _clear_removed(self) -> None:
        """A former rail keeps neither the address we gave it nor its rule."""
        for name in self.survey.removed:
            for address in self.survey.addresses(name):
                ours = address in self.survey.old_blocks[name]
                if ours and not self.request.management.holds(address):
                    source = address.split("/")[0]
                    rules = [each for each in self.survey.state.rules if each.source == source]
                    command = ("ip", "address", "del", address, "dev", name)
                    self._try([command, *map(_del, rules)])

    def _try(self, commands: Iterable[Sequence[str]]) -> None:
        """What is removed may have gone by itself meanwhile; what stays fails the read-back."""
        for command in commands:
            self.node.run(command, check=False)

    def _roll_back(self) -> None:
        """Rails that do not come up with their new configuration get their old one back."""
        old = self.survey.old_blocks
        failed = [name for name in self._incomplete() if name in self.survey.changed_blocks]
        if not failed:
            return
        back = {
            name: old.get(name) if name in failed else text
            for name, text in self.survey.blocks.items()
        }
        former = {name: text for name, text in back.items() if text is not None}
        for plan in self.backend.files(former):
            plan.apply()
        self._apply(failed, [name for name in failed if name in old])
        self.rolled_back = failed

    def _reason(self, name: str) -> str:
        """The known cause of a rail that does not hold, and what was done about it."""
        parts = [self.complaints.get(name, "")]
        if name in self.rolled_back:
            had = name in self.survey.old_blocks
            none = "it had no configuration before, and has none now"
            parts.append("its former configuration was put back" if had else none)
        return "; ".join(part for part in parts if part)

    def verify(self, node: Node) -> Verdict:
        found, request, check_mode = self.survey, self.request, node.check_mode
        of: dict[str, list[Check]] = {}
        sound: list[RailPlan] = []
        for rail in request.rails:
            checks = found.checks_of(rail, check_mode=check_mode)
            of[rail.interface] = _explained(checks, self._reason(rail.interface))
            if all(check.status not in (FAILED, PENDING, REBOOT) for check in checks):
                sound.append(rail)
        if request.check_path:
            wait_s = request.wait_s if self.changed and not check_mode else _PATH_WAIT_S
            tried = [rail for rail in request.rails if not found.blocked(rail.interface)]
            clocks = (self.clock, self.sleep)
            paths = path_checks(tried, sound, node, wait_s, *clocks, self.probe)
            for name, path in paths.items():
                of[name].append(path)
        unit = self.backend.unit
        service = compare(survey.SERVICE, READY, found.service, subject=unit, check_mode=check_mode)
        of_rails = [check for checks in of.values() for check in checks]
        quiet = check_mode or not self.changed
        nics = self.nics.rail_checks(found.later, check_mode=check_mode, quiet=quiet)
        return Verdict([service, *of_rails, *nics], found.reasons)


def _explained(checks: list[Check], reason: str) -> list[Check]:
    """The reason once, at the first check that failed without one of its own."""
    for place, check in enumerate(checks):
        if reason and check.status == FAILED and not check.reason:
            checks[place] = replace(check, reason=reason)
            break
    return checks


def _del(rule: Rule) -> tuple[str, ...]:
    numbers = ("priority", str(rule.priority), "from", rule.source, "table", str(rule.table))
    return ("ip", "rule", "del", *numbers)
