# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mounts of a host: planned without accessing them, and changed only if nothing uses them.

Mounting is not a step: the first access to an automount point mounts the file system, and so does
the read-back. Source, version, protocol, `hard` and `ro` are compared with the running mount, other
options with the unit on disk by which it was mounted.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Optional

from ..core import mounts as table
from ..core import processes, systemd
from ..core.checks import FAILED, OK, Check, compare, differs, not_applicable
from ..core.commands import CommandError, NoAnswerError, Runner
from ..core.files import HEADER, FilePlan, diffs
from ..core.machine import NO_MOUNTS
from ..core.mounts import Mount, within
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..core.text import some
from . import units
from .file_system import NFS
from .units import AUTOMOUNT, ENABLED, MOUNT, OF_CLIENT, OF_DEVICE, WantedMount

UNIT, AUTO, MOUNTED, OPTIONS, LEFT, ABSENT, DROP_IN = (
    "storage_unit", "storage_automount", "storage_mount",
    "storage_options", "storage_leftover", "storage_absent", "storage_drop_in",
)  # fmt: skip
NOTHING = "not mounted"
FSTAB = "etc/fstab"
MAX_LISTED = 8


@dataclass
class Mounts:
    """`absent`: mount points, and directories of devices, whose units are removed unless they are
    wanted as well. `wait` runs commands that may wait for a server, for at most `wait_s`.
    `devices`: directories with a device, which another part mounts.
    """

    wanted: Sequence[WantedMount]
    absent: Sequence[str]
    wait: Runner
    wait_s: int
    devices: Sequence[str] = ()

    def plan(self, node: Node) -> Plan:
        mounts = table.read(node.root)
        findings: list[str] = []
        files: list[FilePlan] = []
        late: list[FilePlan] = []
        away: list[Step] = []
        moves: set[str] = set()
        for desired in self.wanted:
            try:
                refuse(node, desired, mounts)
                own = self._files(node, desired)
                runs = None if node.container else table.on(mounts, desired.point)
                reason = "" if runs is None else _why_unmounted(node, desired, runs, mounts)
                if runs is not None and reason:
                    _refuse_busy(node, desired.point, f"{runs.text}: {reason}", mounts)
                    moves.add(desired.point)
                    late += own
                    away.append(self._unmount(node, desired, runs, own))
                    continue
                files += own
                # The directory below an automount point was checked before that was created.
                if not node.container and not runs and not table.trap(mounts, desired.point):
                    refuse_hidden(node, desired.point, self.wait)
            except PlanError as error:
                findings.append(str(error))
        for point in self._absent():
            try:
                runs = None if node.container else table.on(mounts, point)
                steps = self._take_away(node, point, runs)
                if steps and runs is not None:
                    _refuse_busy(node, point, "named in shared_storage_absent", mounts)
                away += steps
            except PlanError as error:
                findings.append(str(error))
        if findings:
            raise PlanError("\n".join(findings))
        reload = self._reload(node, [*files, *late])
        return Plan(files, [*away, *reload, *self._arm(node, moves)])

    def _files(self, node: Node, desired: WantedMount) -> list[FilePlan]:
        return [node.file(units.path_of(name), text) for name, text in desired.texts().items()]

    def _absent(self) -> list[str]:
        wanted = {*(desired.point for desired in self.wanted), *self.devices}
        return [x for x in map(posixpath.normpath, self.absent) if x not in wanted]

    def _unmount(
        self, node: Node, desired: WantedMount, runs: Mount, files: Sequence[FilePlan]
    ) -> Step:
        """Unmount, then write the units, which describe the mount until then for the next run."""

        def act() -> None:
            self._stop(desired.point, MOUNT)
            for planned in files:
                planned.apply()
            # Done immediately, or an access would mount with the old unit.
            systemd.control(node, "daemon-reload")

        after = f"{desired.source} {','.join(desired.options)}"
        step = Step(desired.point, runs.text, after, act)
        return replace(step, shown=[*diffs(files), step.diff()])

    def _take_away(self, node: Node, point: str, runs: Optional[Mount]) -> list[Step]:
        """Remove units. The mount is stopped before its automount point, as stopping that detaches
        it even if it is busy; files go last, as systemd can only disable units that it can read."""
        names = [units.unit_name(point, kind) for kind in (AUTOMOUNT, MOUNT)]
        present = [name for name in names if is_ours(node.read(units.path_of(name)))]
        if not present:
            return []
        removed = [node.file(units.path_of(name), None) for name in present]

        def act() -> None:
            if not node.container:
                # Otherwise nfs-server, which required this device when its unit was loaded, would
                # be stopped as well.
                systemd.control(node, "daemon-reload")
                self._stop(point, MOUNT)
                if units.unit_name(point, AUTOMOUNT) in present:
                    self._stop(point, AUTOMOUNT)
            node.run(["systemctl", "disable", *present])
            for planned in removed:
                planned.apply()
            systemd.control(node, "daemon-reload")

        step = Step(point, runs.text if runs else "", NOTHING, act)
        return [replace(step, shown=[*diffs(removed), *([step.diff()] if runs else [])])]

    def _stop(self, point: str, kind: str) -> None:
        """Stop a unit, never by force. Raises StepError if the mount is busy."""
        unit = units.unit_name(point, kind)
        try:
            self.wait(["systemctl", "stop", unit])
        except NoAnswerError as error:
            raise StepError(
                f"{error}; systemd continues: run again after it has finished"
            ) from error
        except CommandError as error:
            raise StepError(f"{error}. See journalctl -u '{unit}'") from error

    def _reload(self, node: Node, files: Sequence[FilePlan]) -> list[Step]:
        changed = [planned.path.name for planned in files if planned.changed]
        known = sorted({unit for desired in self.wanted for unit in desired.texts()})
        names = [*changed, *(unit for unit in known if _needs_reload(node, unit))]
        if not names:
            return []
        after = "\n".join(dict.fromkeys(names))
        reload = partial(systemd.control, node, "daemon-reload")
        return [Step("units reloaded by systemd", "", after, reload, essential=True)]

    def _arm(self, node: Node, unmounted: Collection[str]) -> list[Step]:
        steps = []
        for desired in self.wanted:
            enabled, active = systemd.state(node, desired.at_boot).split(", ")
            if desired.is_bind and desired.point in unmounted:
                active = "inactive"
            wanted = "enabled" if node.container else ENABLED
            runs = enabled if node.container else f"{enabled}, {active}"
            if runs != wanted:
                act = partial(self._enable, node, desired.at_boot)
                steps.append(Step(desired.at_boot, runs, wanted, act))
            unit = desired.mount_unit
            if not desired.is_bind and systemd.state(node, unit).startswith("enabled,"):
                # A former bind mount, now from another host, would delay the boot.
                off = node.doing("systemctl", "disable", unit)
                steps.append(Step(unit, "mounted at boot", "at first access", off))
        return steps

    def _enable(self, node: Node, unit: str) -> None:
        now = [] if node.container else ["--now"]
        try:
            self.wait(["systemctl", "enable", *now, unit])
        except CommandError as error:
            raise StepError(f"{error}{_journal(node, unit)}") from error

    def verify(self, node: Node) -> Verdict:
        errors = {} if node.container else self._trigger_mounts(node)
        mounts = table.read(node.root)
        checks = []
        for desired in self.wanted:
            checks.append(_at_boot(node, desired))
            checks += drop_ins(node, desired.point, desired.texts())
            checks += _running(node, desired, mounts, errors.get(desired.point, ""))
        absent = self._absent()
        checks += [_gone(node, point, mounts) for point in absent]
        known = {*(desired.point for desired in self.wanted), *absent, *self.devices}
        return Verdict([*checks, *_leftovers(node, known)])

    def _trigger_mounts(self, node: Node) -> dict[str, str]:
        """Mount everything that is armed in parallel, unless its units are outdated; returns errors
        by mount point."""
        due = [
            desired
            for desired in _not_mounted(self.wanted, node)
            if not any(planned.changed for planned in self._files(node, desired))
            and not _needs_reload(node, desired.mount_unit)
        ]
        if not due:
            return {}
        try:
            self.wait(["systemctl", "start", *(desired.mount_unit for desired in due)])
        except NoAnswerError:
            reason = f"its server did not respond within {self.wait_s} s"
        except CommandError as error:
            reason = str(error)
        else:
            return {}
        return {
            desired.point: f"{reason}{_journal(node, desired.mount_unit)}"
            for desired in _not_mounted(due, node)
        }


def _why_unmounted(node: Node, desired: WantedMount, runs: Mount, mounts: Sequence[Mount]) -> str:
    """Why a mount must be replaced; empty if it may stay."""
    if not desired.is_source(runs, mounts):
        return f"wanted is {desired.source}"
    listed = differences(node, desired, runs)
    if listed:
        return f"wanted is {', '.join(listed)}"
    armed = desired.is_bind or systemd.state(node, desired.at_boot).endswith(", active")
    return "" if armed else "mounted by hand, and its automount point cannot be armed"


def differences(node: Node, desired: WantedMount, runs: Mount) -> list[str]:
    """Options that differ in the mount or the unit on disk, such as `ro (runs: rw)`."""
    asked = dict(word.partition("=")[::2] for word in desired.options)
    running = dict(word.partition("=")[::2] for word in runs.options)
    pairs = [("ro" if "ro" in asked else "rw", "ro" if "ro" in runs.flags else "rw")]
    if "ro" in running and desired.kind == NFS:  # on a disk, the kernel has set it
        pairs = [(pairs[0][0], "ro")]
    if desired.kind == NFS:
        # tcp6 and rdma6 are tcp and rdma over IPv6.
        pairs += [
            (f"{key}={asked[key]}", f"{key}={running.get(key, 'not set').rstrip('6')}")
            for key in ("vers", "proto")
        ]
        soft = next((word for word in ("soft", "softerr") if word in running), "hard")
        pairs.append(("hard", soft))
    listed = [f"{wanted} (runs: {actual})" for wanted, actual in pairs if wanted != actual]
    before = _options_of(node.read(units.path_of(desired.mount_unit)) or "", desired.kind)
    after = _options_of(units.mount_text(desired), desired.kind)
    if before is not None and after is not None and set(before) != set(after):
        options = [option for option in after if option not in before]
        options += [f"no {option}" for option in before if option not in after]
        listed.append(f"{', '.join(options)} (mounted by: {','.join(before)})")
    return listed


def _options_of(text: str, kind: str) -> Optional[list[str]]:
    """Options in a unit of this kind, without `retry`, which is a limit of mount.nfs only."""
    if units.value_of(text, "Type") != kind:
        return None
    options = units.value_of(text, "Options").split(",")
    return [word for word in options if not word.startswith("retry=")]


def _running(node: Node, desired: WantedMount, mounts: Sequence[Mount], error: str) -> list[Check]:
    options = ",".join(desired.options)
    if node.container:
        reason = node.not_here(NO_MOUNTS)
        return [
            not_applicable(MOUNTED, desired.source, reason, subject=desired.point),
            not_applicable(OPTIONS, options, reason, subject=desired.point),
        ]
    status = differs(node.check_mode)
    runs = table.on(mounts, desired.point)
    if runs is None:
        # An error is a failure even in check mode.
        status = FAILED if error else status
        return [Check(MOUNTED, desired.source, NOTHING, status, desired.point, error)]
    same = desired.is_source(runs, mounts)
    actual = desired.source if same else runs.text
    checks = [Check(MOUNTED, desired.source, actual, OK if same else status, desired.point)]
    wrong = ", ".join(differences(node, desired, runs))
    status = status if wrong else OK
    return [*checks, Check(OPTIONS, options, wrong or options, status, desired.point)]


def _gone(node: Node, point: str, mounts: Sequence[Mount]) -> Check:
    paths = [units.path_of(units.unit_name(point, kind)) for kind in (AUTOMOUNT, MOUNT)]
    left = [f"/{path}" for path in paths if is_ours(node.read(path))]
    runs = None if node.container else table.on(mounts, point)
    if runs is not None and not left:
        reason = "it was not mounted by this collection, and is not changed"
        return Check(ABSENT, "absent", runs.text, FAILED, point, reason)
    actual = left[0] if left else "absent"
    return compare(ABSENT, "absent", actual, subject=point, check_mode=node.check_mode)


def _at_boot(node: Node, desired: WantedMount) -> Check:
    name = UNIT if desired.is_bind else AUTO
    wanted, actual = ENABLED, systemd.state(node, desired.at_boot)
    if node.container:  # where it is enabled but not started
        wanted, actual = wanted.split(", ")[0], actual.split(", ")[0]
    return compare(name, wanted, actual, subject=desired.point, check_mode=node.check_mode)


def drop_ins(node: Node, point: str, names: Iterable[str]) -> list[Check]:
    """Settings of drop-ins that change how systemd mounts these units."""
    listed = []
    folders = [f"{each}/systemd/system/{name}.d" for each in ("etc", "run") for name in names]
    for path in (path for folder in folders for path in sorted(node.path(folder).glob("*.conf"))):
        name, section = f"/{path.relative_to(node.root)}", ""
        for line in map(str.strip, (node.read(name) or "").split("\n")):
            section = line if line.startswith("[") else section
            if section in ("[Mount]", "[Automount]") and re.match(r"\w+\s*=", line):
                listed.append(f"{name}: {line}")
    reason = f"remove them, systemctl daemon-reload, and umount {point} when it is not in use"
    return [Check(DROP_IN, [], listed, FAILED, point, reason)] if listed else []


def _leftovers(node: Node, known: Collection[str]) -> list[Check]:
    """Mounts of this layer that are no longer desired, but not declared absent."""
    checks = []
    for path in sorted(node.path(units.DIRECTORY).glob(f"*.{MOUNT}")):
        name = str(path.relative_to(node.root))
        text = node.read(name) or ""
        point = units.value_of(text, "Where")
        if is_ours(text) and point not in known:
            reason = (
                "its file system left the model, or this host left its hosts: unmount it with "
                f'-e \'{{"shared_storage_absent": ["{point}"]}}\' and --limit to these hosts'
            )
            wanted = "a file system of this host"
            checks.append(Check(LEFT, wanted, f"/{name}", FAILED, point, reason))
    return checks


def _not_mounted(wanted: Sequence[WantedMount], node: Node) -> list[WantedMount]:
    mounts = table.read(node.root)
    return [x for x in wanted if table.trap(mounts, x.point) and not table.on(mounts, x.point)]


def _needs_reload(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["NeedDaemonReload"]).get("NeedDaemonReload") == "yes"


def _journal(node: Node, unit: str) -> str:
    """Output of the mount program, which systemctl does not show."""
    argv = ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", "3", "-u", unit]
    try:
        lines = node.look(argv, check=False).stdout.strip().splitlines()
    except CommandError:
        return ""
    return f"; its journal: {' | '.join(lines)}" if lines else ""


# Conflicts with a mount


def in_fstab(node: Node, point: str) -> str:
    """The line of /etc/fstab for a mount point, with its number; empty if there is none."""
    for number, line in enumerate((node.read(FSTAB) or "").split("\n"), start=1):
        fields = line.split()
        if len(fields) < 2 or fields[0].startswith("#"):
            continue
        if posixpath.normpath(table.unescape(fields[1])) == point:
            return f"/{FSTAB}:{number}: {line.strip()}"
    return ""


def is_ours(text: Optional[str], *marks: str) -> bool:
    """Whether a unit file is a mount of this layer, of one of these kinds (default: any)."""
    known = text is not None and text.split("\n", 1)[0].endswith(HEADER)
    return known and any(mark in str(text) for mark in marks or (OF_CLIENT, OF_DEVICE))


def refuse(node: Node, desired: WantedMount, mounts: Sequence[Mount]) -> None:
    point = desired.point
    line = in_fstab(node, point)
    if line:
        raise PlanError(f"{point}: {line}. Remove the line; its mount is taken over")
    for unit in (desired.mount_unit, units.unit_name(point, AUTOMOUNT)):
        path = units.path_of(unit)
        text = node.read(path)
        present = text is not None or node.path(path).is_symlink()
        if present and not is_ours(text, OF_CLIENT):
            raise PlanError(
                f"{point}: /{path} is not of this collection: disable and remove it, or mount "
                f"{desired.fs.name} elsewhere"
            )
    runs = None if node.container else table.on(mounts, point)
    known = is_ours(node.read(units.path_of(desired.mount_unit)))
    if runs is not None and not known and not desired.of_this_kind(runs):
        raise PlanError(f"{point}: {runs.text} is mounted there, not by this collection")


def refuse_hidden(node: Node, point: str, wait: Runner) -> None:
    """Raise PlanError unless the directory is empty or does not exist. A program with a time limit
    reads it, as a parent directory may be on a dead server."""
    argv = ["find", str(node.path(point)), "-maxdepth", "1", "-printf", "%y %P\\n"]
    try:
        listed = wait(argv, check=False)
    except CommandError as error:
        raise PlanError(f"{point}: the directory cannot be read: {error}") from error
    rows = [line.split(" ", 1) for line in listed.stdout.split("\n") if " " in line]
    names = sorted(row[1] for row in rows[1:])
    if names:
        raise PlanError(
            f"{point}: not mounted, and the directory is not empty: it contains "
            f"{some(names, MAX_LISTED)}, which a mount would hide"
        )


def _refuse_busy(node: Node, point: str, change: str, mounts: Sequence[Mount]) -> None:
    """Raise PlanError for a busy mount, except in check mode, which shows the plan."""
    users = "" if node.check_mode else in_use(node, point, mounts)
    if users:
        raise PlanError(f"{point}: {change}. It was not unmounted, because of {users}")


def in_use(node: Node, point: str, mounts: Sequence[Mount]) -> str:
    """The users of a mount; empty if none are found.

    fuser and lsof would access the file system, and hang if its server is dead. Files that are only
    mapped are not found: then unmounting fails.
    """
    inner = sorted({mount.point for mount in table.below(mounts, point)})
    if inner:
        return f"mounts in it: {', '.join(inner)}"
    held = [
        f"{processes.name(node.root, pid)} ({pid})"
        for pid in processes.pids(node.root)
        if any(
            within(path.removesuffix(" (deleted)"), point)
            for _how, path in processes.held(node.root, pid)
        )
    ]
    return f"processes that use it: {some(held, MAX_LISTED)}" if held else ""
