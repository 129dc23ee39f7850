# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rails of a host as a part: files are written and interfaces renamed, NICs are set, and the
network service takes over the rails that changed or drifted, and only those. A rail that does not
converge in time gets its former configuration back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
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
from ..hardware.iproute import SourceRule
from ..hardware.survey import interface_speed
from ..nic.nics import Nics
from . import arp, naming, survey
from .backends import READY, Backend
from .path import Probe, path_checks
from .plan import RailPlan
from .survey import RailsRequest, Survey

UNFINISHED = "run/baremetal-mpi-roce/rails-in-progress.json"
"""Record of the rails that a run is changing; a reboot applies their files anyway."""
_PATH_WAIT_S = 2.0
STEP = "rails"


def unfinished(root: Path = Path("/")) -> list[str]:
    """Return the rails that an interrupted run was changing; they are set up again."""
    try:
        names: list[str] = json.loads((root / UNFINISHED).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return names


@dataclass(frozen=True)
class _Changes:
    """`written`: rails whose file differs, or that an interrupted run was changing. `again`: rails
    that are set up again although the service knows their file."""

    files: Sequence[FilePlan]
    written: Sequence[str]
    again: Sequence[str]


@dataclass(eq=False)
class Rails:
    """NICs are set before the network service sets up rails, as one may take its link down."""

    request: RailsRequest
    backend: Backend
    nics: Nics
    probe: Optional[Probe] = None
    complaints: dict[str, str] = field(default_factory=dict, init=False)
    """Errors of individual rails while they were set up."""
    rolled_back: list[str] = field(default_factory=list, init=False)
    reconfigured: list[str] = field(default_factory=list, init=False)
    """Interfaces that the network service set up; no other was touched."""
    changed: bool = field(default=False, init=False)
    _activated_at: Optional[float] = field(default=None, init=False)
    _clean_reads: int = field(default=0, init=False)
    _needed_reads: int = field(default=1, init=False)
    _retries: bool = field(default=False, init=False)

    def plan(self, node: Node) -> Plan:
        self.node = node
        self.survey = Survey(self.request, self.backend, node)
        files = self.survey.file_plans()
        self.nics.look(self.survey.present, self.survey.reached_by)
        shown = [*diffs(files), *self.survey.running_diff()]
        drifted, left = self._incomplete(), unfinished(node.root)
        steps = []
        if self.survey.service != READY:
            unit, state = self.backend.unit, self.survey.service
            steps.append(Step(unit, state, READY, self._enable, essential=True))
        if shown or self.nics.diff or drifted or left:
            changes = self._changes(files, drifted, left)
            words = (STEP, f"not as planned: {some([*drifted, *left])}", "as planned")
            write, activate = partial(self._write, changes), partial(self._activate, changes)
            silent = bool(self.nics.diff and not shown)
            steps += [
                Step(*words, write, essential=True, shown=shown, silent=silent),
                *self.nics.steps(),
                Step(
                    *words,
                    activate,
                    essential=True,
                    silent=True,
                    holds=self._settled,
                    wait_s=self.request.wait_s,
                    undo=self._restore,
                ),
                Step(*words, partial(node.path(UNFINISHED).unlink, missing_ok=True), silent=True),
            ]
        self.changed = bool(steps)
        return Plan([], steps)

    def running(self) -> dict[str, dict[str, Any]]:
        """Return name, MAC address, MTU, carrier and speed of each rail, for the layer links."""
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
        return [rail.interface for rail in self.survey.live if self.survey.incomplete(rail)]

    def _changes(
        self, files: Sequence[FilePlan], drifted: Sequence[str], left: Sequence[str]
    ) -> _Changes:
        live = [rail.interface for rail in self.survey.live]
        changed = self.survey.changed_blocks
        repeated = [name for name in left if name in live]
        ours = [name for name in changed if name in (*live, *self.survey.removed)]
        # A changed file is activated gently; with an unchanged one, the service must start over.
        known = [name for name in drifted if name not in changed]
        return _Changes(
            files,
            written=list(dict.fromkeys((*ours, *repeated))),
            again=list(dict.fromkeys((*known, *repeated))),
        )

    def _enable(self) -> None:
        systemd.control(self.node, "enable", "--now", self.backend.unit)
        self.survey.service = self.backend.state()

    def _write(self, changes: _Changes) -> None:
        text = json.dumps(sorted({*changes.written, *changes.again})) + "\n"
        write_atomically(self.node.path(UNFINISHED), text, 0o644, self.node.uid, self.node.gid)
        for planned in changes.files:
            planned.apply()
        if self._rename():
            self.survey.look()
            self.nics.look(self.survey.present, self.survey.reached_by)

    def _rename(self) -> bool:
        renamed = False
        for rail in self.survey.live:
            name = self.survey.names[rail.interface]
            if name.action != naming.RENAME or name.interface is None:
                continue
            link = ("ip", "link", "set", "dev", name.interface)
            try:
                self.node.run((*link, "down"))
                self.node.run((*link, "name", rail.interface))
            except CommandError as error:
                self.complaints[rail.interface] = str(error)
            else:
                named = naming.RailName(naming.NAMED, rail.interface)
                self.survey.names[rail.interface] = named
                renamed = True
        return renamed

    def _activate(self, changes: _Changes) -> None:
        self._apply(changes.written, changes.again)
        for rail in self.survey.live:
            name = rail.interface
            if not self.survey.arp_locked(name):
                error = arp.write_arp(name, self.request.arp, self.node.root)
                self.complaints.setdefault(name, error)
        self._clear_removed()
        self._retries = bool(changes.written or changes.again or self.nics.written)
        self._needed_reads = 2 if self._retries else 1
        self._activated_at = self.node.clock()

    def _apply(self, written: Sequence[str], again: Sequence[str]) -> None:
        if not written and not again:
            return
        self.reconfigured = list(dict.fromkeys((*self.reconfigured, *written, *again)))
        try:
            self.complaints.update(self.backend.apply(written, again))
        except CommandError as error:
            self.complaints.update({name: str(error) for name in (*written, *again)})

    def _settled(self) -> bool:
        """Read all rails, remove what does not belong on them, and return whether they have
        converged.

        After a change, two clean reads in a row count. Rails that are missing after a sixth of the
        time are set up once more.
        """
        self.survey.look()
        if self._remove_foreign():
            self.survey.look()
        missing = self._incomplete()
        self._clean_reads = 0 if missing or self._training() else self._clean_reads + 1
        if self._clean_reads >= self._needed_reads:
            return True
        wait_s = self.request.wait_s
        if missing and self._retries and wait_s / 6 <= self._elapsed_s < wait_s:
            self._retries = False
            self._apply((), missing)
        return False

    @property
    def _elapsed_s(self) -> float:
        return 0.0 if self._activated_at is None else self.node.clock() - self._activated_at

    def _training(self) -> bool:
        """Return whether a link that this run brought up may still gain a carrier."""
        brought_up = (*self.reconfigured, *self.nics.written)
        links = (self.survey.state.links.get(name) for name in brought_up)
        return any(link is not None and link.up and not link.carrier for link in links)

    def _remove_foreign(self) -> bool:
        """Remove surplus addresses, rules, routes, static neighbours and detours; return whether
        there were any."""
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
                    target = (route.destination, *via, *dev, "table", str(route.table))
                    commands.append(("ip", "route", "del", *kind, *target))
            commands += [_del(rule) for rule in self.survey.rules(rail) if rule != rail.rule]
            for each in self.survey.neighbours.get(name, ()):
                commands.append(("ip", "neigh", "del", each.split()[0], "dev", name))
        self._try(commands)
        return bool(commands)

    def _clear_removed(self) -> None:
        """Remove the collection's address and rule from former rails."""
        for name in self.survey.removed:
            for address in self.survey.addresses(name):
                ours = address in self.survey.old_blocks[name]
                if ours and not self.request.management.holds(address):
                    source = address.split("/")[0]
                    rules = [rule for rule in self.survey.state.rules if rule.source == source]
                    command = ("ip", "address", "del", address, "dev", name)
                    self._try([command, *map(_del, rules)])

    def _try(self, commands: Iterable[Sequence[str]]) -> None:
        """Run commands whose object may already be gone; one that remains fails the read-back."""
        for command in commands:
            self.node.run(command, check=False)

    def _restore(self) -> str:
        """Restore the files of the rails that do not come up with the new ones."""
        if self._activated_at is None or self._elapsed_s < self.request.wait_s:
            return ""  # the rails have not had time to come up: the next run repairs them
        old = self.survey.old_blocks
        failed = [name for name in self._incomplete() if name in self.survey.changed_blocks]
        if not failed:
            return ""
        blocks = {
            name: old.get(name) if name in failed else text
            for name, text in self.survey.blocks.items()
        }
        former = {name: text for name, text in blocks.items() if text is not None}
        for planned in self.backend.files(former):
            planned.apply()
        self._apply(failed, [name for name in failed if name in old])
        self.rolled_back = failed
        return ""

    def _reason(self, name: str) -> str:
        """Return the known error of a rail, and whether it was restored."""
        parts = [self.complaints.get(name, "")]
        if name in self.rolled_back:
            restored = name in self.survey.old_blocks
            none = "it had no configuration before, and has none now"
            parts.append("its former configuration was restored" if restored else none)
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
            paths = path_checks(tried, sound, node, wait_s, self.probe)
            for name, path in paths.items():
                of[name].append(path)
        unit = self.backend.unit
        service = compare(survey.SERVICE, READY, found.service, subject=unit, check_mode=check_mode)
        of_rails = [check for checks in of.values() for check in checks]
        quiet = check_mode or not self.changed
        nics = self.nics.rail_checks(found.later, check_mode=check_mode, quiet=quiet)
        return Verdict([service, *of_rails, *nics], found.reasons)


def _explained(checks: list[Check], reason: str) -> list[Check]:
    """Add `reason` to the first check that failed without a reason."""
    for index, check in enumerate(checks):
        if reason and check.status == FAILED and not check.reason:
            checks[index] = replace(check, reason=reason)
            break
    return checks


def _del(rule: SourceRule) -> tuple[str, ...]:
    numbers = ("priority", str(rule.priority), "from", rule.source, "table", str(rule.table))
    return ("ip", "rule", "del", *numbers)
