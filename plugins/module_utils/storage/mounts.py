# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mounts of one host: planned without touching them, changed only where nobody uses them.

Mounting itself is no step: whoever enters an armed automount point mounts it, and so does the
read-back. What is planned are the units, and whatever stands in the way of what they say.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, partial
from typing import Optional

from ..checks import Check
from ..commands import CommandError, NoAnswerError, Runner
from ..dataclass import dataclass
from ..files import FilePlan, diffs
from ..node import systemd
from ..node.part import Node, Plan, PlanError, Step, StepError, Verdict
from . import (
    after_device,
    busy,
    connections,
    foreign,
    mount_checks,
    mount_options,
    mounted,
    removal,
    server_address,
    under,
    units,
)
from .mount_options import Difference
from .mounted import Mount
from .running import ENABLED, boot_unit, journal, needs_reload, shown, state
from .server import once
from .units import AUTOMOUNT, MOUNT
from .wanted_mounts import WantedMount


@dataclass
class Mounts:
    wanted: Sequence[WantedMount]
    absent: Sequence[str]
    """Mount points whose units are taken away; and directories that this host serves no more,
    whose exports and devices other parts end before this one is done."""
    wait: Runner
    """Runs what may have to wait for a server, and is given up after `wait_s`."""
    wait_s: int
    servers: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Addresses of the hosts of this cluster that serve, by name."""
    _in_use: dict[str, str] = field(default_factory=dict, init=False)
    """Check mode: mount points that would have to be unmounted, and who keeps them."""

    # Planning

    def plan(self, node: Node) -> Plan:
        table = mounted.read(node.root)
        findings = [*connections.one_way(self.wanted), *connections.shared(self.wanted)]
        files: list[FilePlan] = []
        late: list[FilePlan] = []
        away: list[Step] = []
        after: list[Step] = []
        moves: dict[str, Sequence[Difference]] = {}
        for each in self.wanted:
            try:
                if self._follows_a_device(node, each):
                    self._refuse_others(node, each, table, [each.unit.automount])
                    own = self._files(node, each)
                    late += own
                    away.append(self._follow(node, each, own, table))
                    continue
                self._refuse_foreign(node, each, table)
                runs = None if node.container else mounted.on(table, each.point)
                own = self._files(node, each)
                files += own
                if each.unit.is_bind:
                    away += self._no_automount(node, each, runs)
                if node.container:
                    continue
                if runs is None:
                    self._refuse_hidden(node, each, table)
                    continue
                moved = self._differences(node, each, runs, table)
                if moved and mount_options.changeable(moved, runs) and each.is_source(runs, table):
                    after.append(self._remount(each, runs, moved))
                elif moved or self._unarmed(node, each):
                    self._refuse_busy(node, each.point, _said(each, runs, moved), table)
                    moves[each.point] = moved
                    del files[-len(own) :]
                    late += own
                    away.append(self._unmount(each, runs, own))
            except PlanError as error:
                findings.append(str(error))
        gone = set()
        for point in map(posixpath.normpath, self.absent):
            if self._was_served(node, point):
                continue
            try:
                removals = self._removal(node, point, table)
                gone |= {point} if removals else set()
                away += removals
            except PlanError as error:
                findings.append(str(error))
        stays = [each for each in table if each.point not in gone]
        findings += connections.kept(self.wanted, moves, stays)
        if findings:
            raise PlanError("\n".join(findings))
        reload = self._reload(node, [*files, *late])
        return Plan(files, [*away, *reload, *self._arm(node, moves), *after])

    def _files(self, node: Node, each: WantedMount) -> list[FilePlan]:
        found = [node.file(units.path_of(each.unit.mount), units.mount_text(each.unit))]
        if not each.unit.is_bind:
            text = units.automount_text(each.unit)
            found.append(node.file(units.path_of(each.unit.automount), text))
        return found

    def _no_automount(self, node: Node, each: WantedMount, runs: Optional[Mount]) -> list[Step]:
        """What was mounted from elsewhere, and is served here now, had an automount point."""
        gone = removal.files(node, each.point, [AUTOMOUNT])
        if not gone:
            return []
        return [removal.step(node, each.point, gone, shown(runs), self.wait, unmount=True)]

    def _refuse_others(
        self, node: Node, each: WantedMount, table: Sequence[Mount], names: Sequence[str]
    ) -> None:
        """`names`: units for the place that are to be ours, or not there."""
        line = foreign.in_fstab(node, each.point)
        if line is not None:
            raise PlanError(
                f"{each.point}: /{foreign.FSTAB} has an entry for it, line {line.number}: "
                f"{line.text}. Two cannot mount one directory, and an entry there can keep the "
                f"node from booting. Remove the line; what is mounted by it is taken over"
            )
        for unit in names:
            path = foreign.unit_elsewhere(node, unit)
            if path:
                raise PlanError(
                    f"{each.point}: {path} is somebody else's unit for it. Remove it (systemctl "
                    f"disable '{unit}' first), or mount {each.fs.name} elsewhere"
                )
        trap = mounted.trap(table, each.point)
        if trap is not None and trap.source != mounted.SYSTEMD:
            raise PlanError(
                f"{each.point}: an automounter has it (map {trap.source}). Take it out there, "
                f"or mount {each.fs.name} elsewhere"
            )

    def _refuse_foreign(self, node: Node, each: WantedMount, table: Sequence[Mount]) -> None:
        if not each.unit.is_bind and once.has_device(node, each.point):
            raise PlanError(after_device.stays(each))
        self._refuse_others(node, each, table, [each.unit.mount, each.unit.automount])
        if node.container:
            return
        runs = mounted.on(table, each.point)
        known = foreign.is_ours(node.read(units.path_of(each.unit.mount)))
        if runs is not None and not known and not each.of_this_kind(runs):
            raise PlanError(
                f"{each.point}: {runs.source} ({runs.kind}) is mounted there, and not by this "
                f"collection. Unmount it, or mount {each.fs.name} elsewhere"
            )

    def _refuse_hidden(self, node: Node, each: WantedMount, table: Sequence[Mount]) -> None:
        if mounted.trap(table, each.point) is not None:
            return  # what is under it cannot be seen, and was looked at before it was put there
        why = under.refusal(node, each.point, self.wait)
        if why:
            raise PlanError(why)

    def _differences(
        self, node: Node, each: WantedMount, runs: Mount, table: Sequence[Mount]
    ) -> list[Difference]:
        found = mount_checks.differences(node, each, runs)
        if not each.is_source(runs, table):
            found.insert(0, Difference("source", each.source, shown(runs)))
        return found

    def _unarmed(self, node: Node, each: WantedMount) -> bool:
        """Mounted by hand: systemd arms no automount point over what is mounted."""
        return not each.unit.is_bind and state(node, each.unit.automount)[1] != "active"

    def _refuse_busy(self, node: Node, point: str, what: str, table: Sequence[Mount]) -> None:
        inner = [each.point for each in mounted.below(table, point)]
        if inner:
            who = f"mounts in it: {', '.join(sorted(set(inner)))}"
        else:
            try:
                found = busy.holders(point, node.root, self.wait)
            except busy.UnknownError as error:
                raise PlanError(f"{point}: {what}. It was not unmounted: {error}") from error
            who = f"processes that use it: {busy.shown(found)}" if found else ""
        if not who:
            return
        if node.check_mode:
            self._in_use[point] = who
            return
        raise PlanError(
            f"{point}: {what}. It was not unmounted, because of {who}. End them, or drain the "
            "node, then run again"
        )

    def _unmount(self, each: WantedMount, runs: Mount, files: Sequence[FilePlan]) -> Step:
        """The units are written after it: they say what runs until then, and what it had of
        options that are not asked for any more is found again where this is interrupted."""
        keeps = self._in_use.get(each.point)
        later = f"refused now, because of {keeps}" if keeps else "unmounted, then as its unit says"
        step = Step(
            each.point,
            shown(runs),
            f"{each.source} {','.join(each.unit.options)} ({later})",
            partial(self._change, each, files),
        )
        return replace(step, shown=[*diffs(files), step.diff()])

    def _change(self, each: WantedMount, files: Sequence[FilePlan]) -> None:
        removal.stop(each.point, MOUNT, self.wait)
        for planned in files:
            planned.apply()

    def _remount(self, each: WantedMount, runs: Mount, differences: Sequence[Difference]) -> Step:
        words = mount_options.remount_words(each.unit.options, runs)
        argv = ["mount", "-o", ",".join(["remount", "bind", *words]), each.point]

        def act() -> None:
            try:
                self.wait(argv)
            except CommandError as error:
                raise StepError(str(error)) from error

        return Step(
            each.point,
            ",".join(runs.flags),
            ", ".join(each.wanted for each in differences),
            act,
        )

    def _was_served(self, node: Node, point: str) -> bool:
        """Whether `absent` names there what was served, and is mounted from elsewhere now. By the
        same path on its server, also where a run before this one has ended it."""
        wanted = next((each for each in self.wanted if each.point == point), None)
        if wanted is None or wanted.unit.is_bind:
            return False
        same = wanted.is_nfs and wanted.fs.path == point
        return same or once.served_once(node, point)

    def _follows_a_device(self, node: Node, each: WantedMount) -> bool:
        return after_device.follows(node, each, frozenset(map(posixpath.normpath, self.absent)))

    def _follow(
        self, node: Node, each: WantedMount, files: Sequence[FilePlan], table: Sequence[Mount]
    ) -> Step:
        runs = mounted.on(table, each.point)
        if runs is not None:
            self._refuse_busy(node, each.point, f"{shown(runs)} is to be taken away", table)
        return after_device.step(node, each, files, runs, self.wait)

    def _removal(self, node: Node, point: str, table: Sequence[Mount]) -> list[Step]:
        if point in {each.point for each in self.wanted}:
            raise PlanError(
                f"shared_storage_absent: {point} is the mount point of a file system that this "
                "host is to mount, and nothing that it served is left there. Remove one of the two"
            )
        gone = removal.files(node, point, [AUTOMOUNT, MOUNT])
        if not gone:
            return []
        runs = None if node.container else mounted.on(table, point)
        if runs is not None:
            self._refuse_busy(node, point, "is to be taken away", table)
        return [removal.step(node, point, gone, shown(runs), self.wait, unmount=True)]

    def _reload(self, node: Node, files: Sequence[FilePlan]) -> list[Step]:
        changed = [planned.path.name for planned in files if planned.changed]
        stale = [unit for unit in self._units() if needs_reload(node, unit)]
        names = list(dict.fromkeys([*changed, *stale]))
        if not names:
            return []
        return [
            Step(
                "units that systemd knows",
                "",
                "\n".join(names),
                lambda: systemd.reload(node),
                essential=True,
            )
        ]

    def _arm(self, node: Node, unmounted: Collection[str]) -> list[Step]:
        """Automount points, and bind mounts themselves: now and at every boot."""
        found = []
        for each in self.wanted:
            unit = boot_unit(each.unit)
            enabled, active = state(node, unit)
            if each.unit.is_bind and each.point in unmounted:
                active = "inactive"
            wanted = "enabled" if node.container else ENABLED
            runs = enabled if node.container else f"{enabled}, {active}"
            if runs != wanted:
                found.append(Step(unit, runs, wanted, partial(self._enable, node, unit)))
            found += self._not_at_boot(node, each)
        return found

    def _not_at_boot(self, node: Node, each: WantedMount) -> list[Step]:
        """What was a bind mount, and comes from elsewhere now, would hold up the boot."""
        unit = each.unit.mount
        if each.unit.is_bind or state(node, unit)[0] != "enabled":
            return []
        if self._follows_a_device(node, each):
            return []  # whose unit that is now
        disable = partial(node.run, ["systemctl", "disable", unit])
        return [Step(unit, "enabled", "mounted at its first use", lambda: _done(disable()))]

    def _enable(self, node: Node, unit: str) -> None:
        now = [] if node.container else ["--now"]
        try:
            self.wait(["systemctl", "enable", *now, unit])
        except CommandError as error:
            raise StepError(f"{error}{journal(node, unit)}") from error

    def _units(self) -> list[str]:
        return [
            unit
            for each in self.wanted
            for unit in (each.unit.mount, *([] if each.unit.is_bind else [each.unit.automount]))
        ]

    # Reading back

    def verify(self, node: Node) -> Verdict:
        why = {} if node.container else self._mount_what_is_armed(node)
        table = mounted.read(node.root)
        checks = []
        resolved = cache(partial(server_address.resolve, self.wait))
        for each in self.wanted:
            keeps = self._in_use.get(each.point, "")
            checks.append(mount_checks.at_boot(node, each))
            checks += mount_checks.running(node, each, table, why.get(each.point, ""), keeps)
            checks += self._from_its_server(node, each, table, resolved)
        sources = {each.point: each.source for each in self.wanted}
        absent = list(map(posixpath.normpath, self.absent))
        gone = [point for point in absent if point not in sources]
        checks += mount_checks.gone(node, gone, table, self._in_use)
        checks += [
            mount_checks.stays(point, sources[point]) for point in absent if point in sources
        ]
        known = {*sources, *absent}
        return Verdict([*checks, *mount_checks.leftovers(node, known)])

    def _from_its_server(
        self,
        node: Node,
        each: WantedMount,
        table: Sequence[Mount],
        resolved: server_address.Resolved,
    ) -> list[Check]:
        runs = None if node.container else mounted.on(table, each.point)
        if runs is None or not each.is_source(runs, table):
            return []  # which is told by another check
        serve = each.fs.serve
        known = self.servers.get(serve.host, ()) if serve is not None else ()
        found = server_address.check(node, each, runs, known, resolved, table)
        return [] if found is None else [found]

    def _mount_what_is_armed(self, node: Node) -> dict[str, str]:
        """As its first use would; point -> why it could not be. All at once.

        Not where the units are not as wanted: check mode mounts nothing that a run would change.
        """
        due = [
            each
            for each in _not_mounted(self.wanted, node)
            if not any(planned.changed for planned in self._files(node, each))
            and not needs_reload(node, each.unit.mount)
        ]
        if not due:
            return {}
        try:
            self.wait(["systemctl", "start", *(each.unit.mount for each in due)])
        except NoAnswerError:
            told = f"its server did not answer within {self.wait_s} s"
        except CommandError as error:
            told = str(error)
        else:
            return {}
        return {
            each.point: f"{told}{journal(node, each.unit.mount)}{connections.not_mounted(each)}"
            for each in _not_mounted(due, node)
        }


def _not_mounted(wanted: Sequence[WantedMount], node: Node) -> list[WantedMount]:
    """Those whose automount point is armed, and waits."""
    table = mounted.read(node.root)
    return [
        each
        for each in wanted
        if mounted.trap(table, each.point) is not None and mounted.on(table, each.point) is None
    ]


def _done(result: object) -> None:
    """What a program said, where it does not matter."""


def _said(each: WantedMount, runs: Mount, differences: Sequence[Difference]) -> str:
    if not differences:
        return f"{shown(runs)} is mounted there by hand, and its automount point cannot be armed"
    what = ", ".join(difference.text for difference in differences)
    return f"{shown(runs)} is mounted there, and wanted is {what}"
