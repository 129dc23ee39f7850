# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mounts of one host: planned without touching them, changed only where nothing uses them.

Mounting itself is no step: the first access of an armed automount point mounts it, and so does the
read-back. Planned are the units, and whatever stands in the way of what they say. A running mount
is compared by its source, version, protocol, `hard` and `ro`; all other options by the unit on
disk, by which it was mounted. A difference is applied by unmounting it; its next use mounts it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Sequence
from dataclasses import field, replace
from functools import partial
from typing import Optional

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, compare, not_applicable
from ..core.commands import CommandError, NoAnswerError, Runner
from ..core.dataclass import dataclass
from ..core.files import HEADER, FilePlan, diffs
from ..core.machine import NO_MOUNTS
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from . import foreign, mounted, units
from .file_system import NFS, RDMA
from .mounted import Mount
from .service import MODULE, MODULE_REMEDY
from .units import AUTOMOUNT, ENABLED, MOUNT, WantedMount

UNIT, AUTO, MOUNTED, OPTIONS, LEFT, ABSENT = (
    "storage_unit", "storage_automount", "storage_mount",
    "storage_options", "storage_leftover", "storage_absent",
)  # fmt: skip
_JOURNAL_LINES = 3


def differences(node: Node, each: WantedMount, runs: Mount) -> list[str]:
    """Options that run, or that the unit on disk has, otherwise than wanted: `ro (runs: rw)`."""
    asked = dict(word.partition("=")[::2] for word in each.options)
    running = dict(word.partition("=")[::2] for word in runs.options)
    pairs = [("ro" if "ro" in asked else "rw", "ro" if "ro" in runs.flags else "rw")]
    if "ro" in running and each.kind == NFS:  # of a disk, the kernel made it so: no mount helps
        pairs = [(pairs[0][0], "ro")]
    if each.kind == NFS:
        # tcp6 and rdma6 are the same over IPv6.
        pairs += [
            (f"{key}={asked[key]}", f"{key}={running.get(key, 'not set').rstrip('6')}")
            for key in ("vers", "proto")
        ]
        soft = next((word for word in ("soft", "softerr") if word in running), "hard")
        pairs.append(("hard", soft))
    found = [f"{wanted} (runs: {runs_now})" for wanted, runs_now in pairs if wanted != runs_now]
    before = _options_of(node.read(units.path_of(each.mount_unit)) or "", each.kind)
    now = _options_of(units.mount_text(each), each.kind)
    if before is not None and now is not None and set(before) != set(now):
        words = [word for word in now if word not in before]
        words += [f"no {word}" for word in before if word not in now]
        found.append(f"{', '.join(words)} (mounted by: {','.join(before)})")
    return found


def _options_of(text: str, kind: str) -> Optional[list[str]]:
    """Of a unit of this kind. Without `retry`, which is how long mount.nfs tries."""
    if units.value_of(text, "Type") != kind:
        return None
    words = units.value_of(text, "Options").split(",")
    return [word for word in words if not word.startswith("retry=")]


@dataclass
class Mounts:
    wanted: Sequence[WantedMount]
    absent: Sequence[str]
    """Mount points whose units are removed; and directories that this host serves no more, whose
    exports and devices other parts end before this one is done."""
    wait: Runner
    """Runs what may have to wait for a server, and is given up after `wait_s`."""
    wait_s: int
    _in_use: dict[str, str] = field(default_factory=dict, init=False)
    """Check mode: mount points that would have to be unmounted, and what keeps them."""

    # Planning

    def plan(self, node: Node) -> Plan:
        table = mounted.read(node.root)
        findings: list[str] = []
        files: list[FilePlan] = []
        late: list[FilePlan] = []
        away: list[Step] = []
        moves: set[str] = set()
        for each in self.wanted:
            try:
                foreign.refuse(node, each, table)
                own = self._files(node, each)
                runs = None if node.container else mounted.on(table, each.point)
                if each.is_bind:
                    # What was mounted from elsewhere, and is served here now, had one.
                    away += self._take_away(node, each.point, [AUTOMOUNT], runs)
                why = "" if runs is None else self._why_unmounted(node, each, runs, table)
                if runs is not None and why:
                    self._refuse_busy(node, each.point, f"{runs.text}: {why}", table)
                    moves.add(each.point)
                    late += own
                    away.append(self._unmount(node, each, runs, own))
                    continue
                files += own
                # What is under an automount point was read before it was put there.
                if not node.container and not runs and not mounted.trap(table, each.point):
                    foreign.refuse_hidden(node, each.point, self.wait)
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
        return Plan(files, [*away, *reload, *self._arm(node, moves)])

    def _files(self, node: Node, each: WantedMount) -> list[FilePlan]:
        return [node.file(units.path_of(name), text) for name, text in each.texts().items()]

    def _why_unmounted(
        self, node: Node, each: WantedMount, runs: Mount, table: Sequence[Mount]
    ) -> str:
        """Why what runs has to be unmounted; empty where it may stay."""
        if not each.is_source(runs, table):
            return f"wanted is {each.source}"
        found = differences(node, each, runs)
        if found:
            return f"wanted is {', '.join(found)}"
        armed = each.is_bind or systemd.state(node, each.at_boot).endswith(", active")
        return "" if armed else "mounted by hand, and its automount point cannot be armed"

    def _refuse_busy(self, node: Node, point: str, what: str, table: Sequence[Mount]) -> None:
        keeps = foreign.in_use(node, point, table, self.wait)
        if keeps and node.check_mode:
            self._in_use[point] = keeps
        elif keeps:
            raise PlanError(
                f"{point}: {what}. It was not unmounted, because of {keeps}. End them, or drain "
                "the node, then run again"
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
        after = f"{each.source} {','.join(each.options)} ({later})"
        step = Step(each.point, runs.text, after, act)
        return replace(step, shown=[*diffs(files), step.diff()])

    def _absent(self) -> list[str]:
        """But for what this host served once, and mounts from elsewhere now by the same path."""
        same = {x.point for x in self.wanted if x.kind == NFS and x.fs.path == x.point}
        points = map(posixpath.normpath, self.absent)
        return [point for point in points if point not in same]

    def _removal(self, node: Node, point: str, table: Sequence[Mount]) -> list[Step]:
        if point in {each.point for each in self.wanted}:
            raise PlanError(
                f"shared_storage_absent: {point} is the mount point of a file system of this host. "
                "Remove one of the two"
            )
        runs = None if node.container else mounted.on(table, point)
        steps = self._take_away(node, point, [AUTOMOUNT, MOUNT], runs)
        if steps and runs is not None:
            self._refuse_busy(node, point, "named in shared_storage_absent", table)
        return steps

    def _take_away(
        self, node: Node, point: str, kinds: Sequence[str], runs: Optional[Mount]
    ) -> list[Step]:
        """The files go after systemd has let go of the units: it disables none that it cannot read.
        The mount goes before its automount point, with whose end systemd would detach it, busy or
        not."""
        names = [units.unit_name(point, kind) for kind in kinds]
        there = [name for name in names if foreign.is_ours(node.read(units.path_of(name)))]
        if not there:
            return []
        gone = [node.file(units.path_of(name), None) for name in there]

        def act() -> None:
            if not node.container:
                self._stop(point, MOUNT)
                if units.unit_name(point, AUTOMOUNT) in there:
                    self._stop(point, AUTOMOUNT)
            node.run(["systemctl", "disable", *there])
            for planned in gone:
                planned.apply()
            systemd.reload(node)

        step = Step(point, runs.text if runs else "", mounted.NOTHING, act)
        return [replace(step, shown=[*diffs(gone), *([step.diff()] if runs else [])])]

    def _stop(self, point: str, kind: str) -> None:
        """Raises StepError. Never by force: what has open files stays."""
        unit = units.unit_name(point, kind)
        try:
            self.wait(["systemctl", "stop", unit])
        except NoAnswerError as error:
            raise StepError(
                f"{error}. systemd continues (systemctl list-jobs) for TimeoutSec= of the unit: "
                "run again when the server answers, or reboot the node"
            ) from error
        except CommandError as error:
            raise StepError(f"{error}. It is as it was; journalctl -u '{unit}' says why") from error

    def _reload(self, node: Node, files: Sequence[FilePlan]) -> list[Step]:
        changed = [planned.path.name for planned in files if planned.changed]
        known = sorted({unit for each in self.wanted for unit in each.texts()})
        names = [*changed, *(unit for unit in known if _needs_reload(node, unit))]
        if not names:
            return []
        after = "\n".join(dict.fromkeys(names))
        reload = partial(systemd.reload, node)
        return [Step("units that systemd knows", "", after, reload, essential=True)]

    def _arm(self, node: Node, unmounted: Collection[str]) -> list[Step]:
        """Automount points, and bind mounts themselves: now and at every boot."""
        found = []
        for each in self.wanted:
            enabled, active = systemd.state(node, each.at_boot).split(", ")
            if each.is_bind and each.point in unmounted:
                active = "inactive"
            wanted = "enabled" if node.container else ENABLED
            runs = enabled if node.container else f"{enabled}, {active}"
            if runs != wanted:
                act = partial(self._enable, node, each.at_boot)
                found.append(Step(each.at_boot, runs, wanted, act))
            if not each.is_bind and systemd.state(node, each.mount_unit).startswith("enabled,"):
                # What was a bind mount, and comes from elsewhere now, would hold up the boot.
                disable = partial(_run, node, ["systemctl", "disable", each.mount_unit])
                found.append(Step(each.mount_unit, "enabled", "mounted at its first use", disable))
        return found

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
        for each in self.wanted:
            checks.append(_at_boot(node, each))
            checks += self._running(node, each, table, why.get(each.point, ""))
        checks += [self._gone(node, point, table) for point in self._absent()]
        known = {*(each.point for each in self.wanted), *self._absent()}
        return Verdict([*checks, *_leftovers(node, known)])

    def _running(
        self, node: Node, each: WantedMount, table: Sequence[Mount], why: str
    ) -> list[Check]:
        """`why` it could not be mounted."""
        options = ",".join(each.options)
        if node.container:
            reason = node.not_here(NO_MOUNTS)
            return [
                not_applicable(MOUNTED, each.source, reason, subject=each.point),
                not_applicable(OPTIONS, options, reason, subject=each.point),
            ]
        differs = PENDING if node.check_mode else FAILED
        runs = mounted.on(table, each.point)
        if runs is None:
            # That it cannot be mounted is true whatever a run would change.
            status = FAILED if why else differs
            return [Check(MOUNTED, each.source, mounted.NOTHING, status, each.point, why)]
        reason = self._refused(each.point)
        if each.is_source(runs, table):
            found = [Check(MOUNTED, each.source, each.source, OK, each.point)]
        else:
            found = [Check(MOUNTED, each.source, runs.text, differs, each.point, reason)]
        wrong = differences(node, each, runs)
        if not wrong:
            return [*found, Check(OPTIONS, options, options, OK, each.point)]
        if any(word.startswith("proto=") for word in wrong):
            reason = reason or (
                "is the same server mounted by another address or transport? From version 4.1 on "
                "the kernel takes the connections it has: write another nfs.version for one"
            )
        return [*found, Check(OPTIONS, options, ", ".join(wrong), differs, each.point, reason)]

    def _refused(self, point: str) -> str:
        keeps = self._in_use.get(point, "")
        return f"a run would be refused, because of {keeps}" if keeps else ""

    def _gone(self, node: Node, point: str, table: Sequence[Mount]) -> Check:
        """A mount point that must have no mount of ours."""
        paths = [units.path_of(units.unit_name(point, kind)) for kind in (AUTOMOUNT, MOUNT)]
        left = [path for path in paths if foreign.is_ours(node.read(path))]
        runs = None if node.container else mounted.on(table, point)
        if left:
            status = PENDING if node.check_mode else FAILED
            return Check(ABSENT, "absent", f"/{left[0]}", status, point, self._refused(point))
        if runs is not None and HEADER not in (node.read(paths[1]) or ""):
            reason = "it was not mounted by this collection, which leaves it alone"
            return Check(ABSENT, "absent", runs.text, FAILED, point, reason)
        return Check(ABSENT, "absent", "absent", OK, point)

    def _mount_what_is_armed(self, node: Node) -> dict[str, str]:
        """As its first use would; point -> why it could not be. All at once.

        Not where the units are not as wanted: check mode mounts nothing that a run would change.
        """
        due = [
            each
            for each in _not_mounted(self.wanted, node)
            if not any(planned.changed for planned in self._files(node, each))
            and not _needs_reload(node, each.mount_unit)
        ]
        if not due:
            return {}
        try:
            self.wait(["systemctl", "start", *(each.mount_unit for each in due)])
        except NoAnswerError:
            why = f"its server did not answer within {self.wait_s} s"
        except CommandError as error:
            why = str(error)
        else:
            return {}
        return {
            each.point: f"{why}{_journal(node, each.mount_unit)}{_hint(each)}"
            for each in _not_mounted(due, node)
        }


def _run(node: Node, argv: Sequence[str]) -> None:
    node.run(argv)


def _at_boot(node: Node, each: WantedMount) -> Check:
    """Its automount point, or the bind mount itself."""
    name = UNIT if each.is_bind else AUTO
    wanted, found = ENABLED, systemd.state(node, each.at_boot)
    if node.container:  # where it is enabled, and starts nothing
        wanted, found = wanted.split(", ")[0], found.split(", ")[0]
    return compare(name, wanted, found, subject=each.point, check_mode=node.check_mode)


def _leftovers(node: Node, known: Collection[str]) -> list[Check]:
    """Mounts of ours that nothing asks for: they stay until they are declared absent."""
    return [
        Check(
            *(LEFT, "a file system of this host", path, FAILED, point),
            "its file system left cluster_filesystems, or this host its list of hosts. Put it "
            f'back, or unmount it with -e \'{{"shared_storage_absent": ["{point}"]}}\' and '
            "--limit to these hosts",
        )
        for point, path in foreign.our_points(node).items()
        if point not in known
    ]


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
    """What the mount program printed, which systemctl does not show."""
    words = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", str(_JOURNAL_LINES), "-u", unit]
    try:
        lines = node.look(words, check=False).stdout.strip().splitlines()
    except CommandError:
        return ""
    return f"; its journal: {' | '.join(lines)}" if lines else ""


def _hint(each: WantedMount) -> str:
    """mount.nfs reports a module that does not load as an incorrect mount option."""
    if each.kind != NFS or each.fs.nfs.transport != RDMA:
        return ""
    return f"; is the module {MODULE} loaded? {MODULE_REMEDY}"
