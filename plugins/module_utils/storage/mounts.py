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

from ..core import systemd
from ..core.checks import Check
from ..core.commands import CommandError, NoAnswerError, Runner
from ..core.dataclass import dataclass
from ..core.files import FilePlan, diffs
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from . import busy, foreign, mount_checks, mount_options, mounted, units
from .mount_options import Difference
from .mounted import Mount
from .units import AUTOMOUNT, ENABLED, MOUNT
from .wanted_mounts import WantedMount, at_one_server, look_first

_JOURNAL_LINES = 3


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
        findings = at_one_server(self.wanted)
        files: list[FilePlan] = []
        late: list[FilePlan] = []
        away: list[Step] = []
        after: list[Step] = []
        moves: set[str] = set()
        for each in self.wanted:
            try:
                foreign.refuse(node, each, table)
                runs = None if node.container else mounted.on(table, each.point)
                own = self._files(node, each)
                files += own
                if each.unit.is_bind:
                    away += self._no_automount(node, each, runs)
                if node.container:
                    continue
                if runs is None:
                    # What is under an automount point was looked at before it was put there.
                    if mounted.trap(table, each.point) is None:
                        foreign.refuse_hidden(node, each.point, self.wait)
                    continue
                moved = self._differences(node, each, runs, table)
                if moved and mount_options.changeable(moved, runs) and each.is_source(runs, table):
                    after.append(self._remount(each, runs, moved))
                elif moved or self._unarmed(node, each):
                    self._refuse_busy(node, each.point, _said(each, runs, moved), table)
                    moves.add(each.point)
                    del files[-len(own) :]
                    late += own
                    away.append(self._unmount(node, each, runs, own))
            except PlanError as error:
                findings.append(str(error))
        for point in self._absent():
            try:
                away += self._removal(node, point, table)
            except PlanError as error:
                findings.append(str(error))
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
        gone = foreign.our_files(node, each.point, [AUTOMOUNT])
        return [self._take_away(node, each.point, gone, runs)] if gone else []

    def _differences(
        self, node: Node, each: WantedMount, runs: Mount, table: Sequence[Mount]
    ) -> list[Difference]:
        found = mount_checks.differences(node, each, runs)
        if not each.is_source(runs, table):
            found.insert(0, Difference("source", each.source, runs.text))
        return found

    def _unarmed(self, node: Node, each: WantedMount) -> bool:
        """Mounted by hand: systemd arms no automount point over what is mounted."""
        return not each.unit.is_bind and not systemd.state(node, each.unit.automount).endswith(
            ", active"
        )

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

    def _unmount(
        self, node: Node, each: WantedMount, runs: Mount, files: Sequence[FilePlan]
    ) -> Step:
        """The units are written after it: they say what runs until then, and what it had of
        options that are not asked for any more is found again where this is interrupted."""

        def act() -> None:
            self._stop(each.point, MOUNT)
            for planned in files:
                planned.apply()
            # At once: an access in between would mount by the unit as it was.
            systemd.reload(node)

        keeps = self._in_use.get(each.point)
        later = f"refused now, because of {keeps}" if keeps else "unmounted, then as its unit says"
        after = f"{each.source} {','.join(each.unit.options)} ({later})"
        step = Step(each.point, runs.text, after, act)
        return replace(step, shown=[*diffs(files), step.diff()])

    def _remount(self, each: WantedMount, runs: Mount, differences: Sequence[Difference]) -> Step:
        words = mount_options.remount_words(each.unit.options, runs)
        argv = ["mount", "-o", ",".join(["remount", "bind", *words]), each.point]

        def act() -> None:
            try:
                self.wait(argv)
            except CommandError as error:
                raise StepError(str(error)) from error

        after = ", ".join(each.wanted for each in differences)
        return Step(each.point, ",".join(runs.flags), after, act)

    def _absent(self) -> list[str]:
        """But for what this host served once, and mounts from elsewhere now by the same path."""
        same = {each.point for each in self.wanted if each.is_nfs and each.fs.path == each.point}
        points = map(posixpath.normpath, self.absent)
        return [point for point in points if point not in same]

    def _removal(self, node: Node, point: str, table: Sequence[Mount]) -> list[Step]:
        if point in {each.point for each in self.wanted}:
            raise PlanError(
                f"shared_storage_absent: {point} is the mount point of a file system that this "
                "host is to mount. Remove one of the two"
            )
        gone = foreign.our_files(node, point, [AUTOMOUNT, MOUNT])
        if not gone:
            return []
        runs = None if node.container else mounted.on(table, point)
        if runs is not None:
            self._refuse_busy(node, point, "is to be taken away", table)
        return [self._take_away(node, point, gone, runs)]

    def _take_away(
        self, node: Node, point: str, gone: Sequence[FilePlan], runs: Optional[Mount]
    ) -> Step:
        """The files go after systemd has let go of the units: it disables none that it cannot read.
        The mount goes before its automount point, with whose end systemd would detach it, busy or
        not."""

        names = [planned.path.name for planned in gone]

        def act() -> None:
            if not node.container:
                self._stop(point, MOUNT)
                if units.unit_name(point, AUTOMOUNT) in names:
                    self._stop(point, AUTOMOUNT)
            node.run(["systemctl", "disable", *names])
            for planned in gone:
                planned.apply()
            systemd.reload(node)

        step = Step(point, runs.text if runs else "", mounted.NOTHING, act)
        return replace(step, shown=[*diffs(gone), *([step.diff()] if runs else [])])

    def _stop(self, point: str, kind: str) -> None:
        """Raises StepError. Never by force: what has open files stays."""
        unit = units.unit_name(point, kind)
        try:
            self.wait(["systemctl", "stop", unit])
        except NoAnswerError as error:
            raise StepError(
                f"{error}. systemd goes on with it (systemctl list-jobs), for TimeoutSec= of the "
                "unit: where the server answers until then, it is unmounted after all, and a "
                "further run goes on from there. If it is dead: bring it back, or reboot the node"
            ) from error
        except CommandError as error:
            raise StepError(f"{error}. It is as it was; journalctl -u '{unit}' says why") from error

    def _reload(self, node: Node, files: Sequence[FilePlan]) -> list[Step]:
        changed = [planned.path.name for planned in files if planned.changed]
        known = {unit for each in self.wanted for unit in (each.unit.mount, each.unit.at_boot)}
        stale = [unit for unit in sorted(known) if _needs_reload(node, unit)]
        names = list(dict.fromkeys([*changed, *stale]))
        if not names:
            return []
        what, reload = "units that systemd knows", partial(systemd.reload, node)
        return [Step(what, "", "\n".join(names), reload, essential=True)]

    def _arm(self, node: Node, unmounted: Collection[str]) -> list[Step]:
        """Automount points, and bind mounts themselves: now and at every boot."""
        found = []
        for each in self.wanted:
            unit = each.unit.at_boot
            enabled, active = systemd.state(node, unit).split(", ")
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
        if each.unit.is_bind or not systemd.state(node, unit).startswith("enabled,"):
            return []

        def disable() -> None:
            node.run(["systemctl", "disable", unit])

        return [Step(unit, "enabled", "mounted at its first use", disable)]

    def _enable(self, node: Node, unit: str) -> None:
        now = [] if node.container else ["--now"]
        try:
            self.wait(["systemctl", "enable", *now, unit])
        except CommandError as error:
            raise StepError(f"{error}{_journal(node, unit)}") from error

    # Reading back

    def verify(self, node: Node) -> Verdict:
        why = {} if node.container else self._mount_what_is_armed(node)
        table = mounted.read(node.root)
        checks = []
        resolved = cache(partial(mount_checks.resolve, self.wait))
        for each in self.wanted:
            keeps = self._in_use.get(each.point, "")
            checks.append(mount_checks.at_boot(node, each))
            checks += mount_checks.running(node, each, table, why.get(each.point, ""), keeps)
            checks += self._from_its_server(node, each, table, resolved)
        checks += mount_checks.gone(node, self._absent(), table, self._in_use)
        known = {*(each.point for each in self.wanted), *self._absent()}
        return Verdict([*checks, *mount_checks.leftovers(node, known)])

    def _from_its_server(
        self,
        node: Node,
        each: WantedMount,
        table: Sequence[Mount],
        resolved: mount_checks.Resolved,
    ) -> list[Check]:
        runs = None if node.container else mounted.on(table, each.point)
        if runs is None or not each.is_source(runs, table):
            return []  # which is told by another check
        serve = each.fs.serve
        known = self.servers.get(serve.host, ()) if serve is not None else ()
        found = mount_checks.check(node, each, runs, known, resolved)
        return [] if found is None else [found]

    def _mount_what_is_armed(self, node: Node) -> dict[str, str]:
        """As its first use would; point -> why it could not be. All at once.

        Not where the units are not as wanted: check mode mounts nothing that a run would change.
        """
        due = [
            each
            for each in _not_mounted(self.wanted, node)
            if not any(planned.changed for planned in self._files(node, each))
            and not _needs_reload(node, each.unit.mount)
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
            each.point: f"{told}{_journal(node, each.unit.mount)}{look_first(each)}"
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


def _needs_reload(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["NeedDaemonReload"]).get("NeedDaemonReload") == "yes"


def _journal(node: Node, unit: str) -> str:
    """What the mount program said, which systemctl keeps for itself."""
    words = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", str(_JOURNAL_LINES), "-u", unit]
    try:
        told = node.look(words, check=False).stdout.strip()
    except CommandError:
        return ""
    return f"; its journal: {' | '.join(told.splitlines())}" if told else ""


def _said(each: WantedMount, runs: Mount, differences: Sequence[Difference]) -> str:
    if not differences:
        return f"{runs.text} is mounted there by hand, and its automount point cannot be armed"
    what = ", ".join(difference.text for difference in differences)
    return f"{runs.text} is mounted there, and wanted is {what}"
