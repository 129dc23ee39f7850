# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mounts of one host: planned without touching them, changed only where nothing uses them.

Mounting itself is not a step: the first access of an armed automount point mounts it, and so does
the read-back. Planned are the units, and what must go before them. A running mount is compared by
its source, version, protocol, `hard` and `ro`; all other options by the unit on disk, by which it
was mounted. A difference is applied by unmounting it; its next use mounts it.
"""

from __future__ import annotations

import posixpath
import pwd
import shlex
from collections.abc import Collection, Iterator, Sequence
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
SHOWN = 8
_JOURNAL_LINES = 3
_MOUNTING = ("[Mount]", "[Automount]")


@dataclass
class Mounts:
    """`absent`: mount points, and directories of devices that this host no longer serves, whose
    units are removed; exports of these end before. What is wanted as well stays. `wait` runs what
    may have to wait for a server, and is given up after `wait_s`. `devices`: directories that have
    a device, which another part mounts."""

    wanted: Sequence[WantedMount]
    absent: Sequence[str]
    wait: Runner
    wait_s: int
    devices: Sequence[str] = ()

    # Planning

    def plan(self, node: Node) -> Plan:
        mounts = table.read(node.root)
        findings: list[str] = []
        files: list[FilePlan] = []
        late: list[FilePlan] = []
        away: list[Step] = []
        moves: set[str] = set()
        for each in self.wanted:
            try:
                refuse(node, each, mounts)
                own = self._files(node, each)
                runs = None if node.container else table.on(mounts, each.point)
                if each.is_bind:
                    # What was mounted from elsewhere, and is served here now, had one.
                    away += self._take_away(node, each.point, [AUTOMOUNT], runs)
                why = "" if runs is None else _why_unmounted(node, each, runs, mounts)
                if runs is not None and why:
                    _refuse_busy(node, each.point, f"{runs.text}: {why}", mounts)
                    moves.add(each.point)
                    late += own
                    away.append(self._unmount(node, each, runs, own))
                    continue
                files += own
                # What is under an automount point was read before it was put there.
                if not node.container and not runs and not table.trap(mounts, each.point):
                    refuse_hidden(node, each.point, self.wait)
            except PlanError as error:
                findings.append(str(error))
        for point in self._absent():
            try:
                runs = None if node.container else table.on(mounts, point)
                steps = self._take_away(node, point, [AUTOMOUNT, MOUNT], runs)
                if steps and runs is not None:
                    _refuse_busy(node, point, "named in shared_storage_absent", mounts)
                away += steps
            except PlanError as error:
                findings.append(str(error))
        if findings:
            raise PlanError("\n".join(findings))
        reload = self._reload(node, [*files, *late])
        return Plan(files, [*away, *reload, *self._arm(node, moves)])

    def _files(self, node: Node, each: WantedMount) -> list[FilePlan]:
        return [node.file(units.path_of(name), text) for name, text in each.texts().items()]

    def _absent(self) -> list[str]:
        wanted = {*(each.point for each in self.wanted), *self.devices}
        return [x for x in map(posixpath.normpath, self.absent) if x not in wanted]

    def _unmount(
        self, node: Node, each: WantedMount, runs: Mount, files: Sequence[FilePlan]
    ) -> Step:
        """The units are written after it: they describe what runs until then, and options that are
        no longer wanted are found again where this is interrupted."""

        def act() -> None:
            self._stop(each.point, MOUNT)
            for planned in files:
                planned.apply()
            # At once: an access in between would mount by the unit as it was.
            systemd.control(node, "daemon-reload")

        after = f"{each.source} {','.join(each.options)} (unmounted, then as its unit has it)"
        step = Step(each.point, runs.text, after, act)
        return replace(step, shown=[*diffs(files), step.diff()])

    def _take_away(
        self, node: Node, point: str, kinds: Sequence[str], runs: Optional[Mount]
    ) -> list[Step]:
        """The files go after systemd has let go of the units: it disables none that it cannot read.
        The mount goes before its automount point, with whose end systemd would detach it, busy or
        not."""
        names = [units.unit_name(point, kind) for kind in kinds]
        there = [name for name in names if is_ours(node.read(units.path_of(name)))]
        if not there:
            return []
        gone = [node.file(units.path_of(name), None) for name in there]

        def act() -> None:
            if not node.container:
                # nfs-server requires the devices of its exports as they were when systemd last
                # loaded its units, and would be stopped with this one.
                systemd.control(node, "daemon-reload")
                self._stop(point, MOUNT)
                if units.unit_name(point, AUTOMOUNT) in there:
                    self._stop(point, AUTOMOUNT)
            node.run(["systemctl", "disable", *there])
            for planned in gone:
                planned.apply()
            systemd.control(node, "daemon-reload")

        step = Step(point, runs.text if runs else "", NOTHING, act)
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
            raise StepError(f"{error}. It stays mounted; see journalctl -u '{unit}'") from error

    def _reload(self, node: Node, files: Sequence[FilePlan]) -> list[Step]:
        changed = [planned.path.name for planned in files if planned.changed]
        known = sorted({unit for each in self.wanted for unit in each.texts()})
        names = [*changed, *(unit for unit in known if _needs_reload(node, unit))]
        if not names:
            return []
        after = "\n".join(dict.fromkeys(names))
        reload = partial(systemd.control, node, "daemon-reload")
        return [Step("units that systemd has loaded", "", after, reload, essential=True)]

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
                disable = node.doing("systemctl", "disable", each.mount_unit)
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
        mounts = table.read(node.root)
        checks = []
        for each in self.wanted:
            checks.append(_at_boot(node, each))
            checks += drop_ins(node, each.point, each.texts())
            checks += _running(node, each, mounts, why.get(each.point, ""))
        absent = self._absent()
        checks += [_gone(node, point, mounts) for point in absent]
        known = {*(each.point for each in self.wanted), *absent, *self.devices}
        return Verdict([*checks, *_leftovers(node, known)])

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
            each.point: f"{why}{_journal(node, each.mount_unit)}"
            for each in _not_mounted(due, node)
        }


def _why_unmounted(node: Node, each: WantedMount, runs: Mount, mounts: Sequence[Mount]) -> str:
    """Why what runs has to be unmounted; empty where it may stay."""
    if not each.is_source(runs, mounts):
        return f"wanted is {each.source}"
    found = differences(node, each, runs)
    if found:
        return f"wanted is {', '.join(found)}"
    armed = each.is_bind or systemd.state(node, each.at_boot).endswith(", active")
    return "" if armed else "mounted by hand, and its automount point cannot be armed"


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


def _running(node: Node, each: WantedMount, mounts: Sequence[Mount], why: str) -> list[Check]:
    """`why` it could not be mounted."""
    options = ",".join(each.options)
    if node.container:
        reason = node.not_here(NO_MOUNTS)
        return [
            not_applicable(MOUNTED, each.source, reason, subject=each.point),
            not_applicable(OPTIONS, options, reason, subject=each.point),
        ]
    status = differs(node.check_mode)
    runs = table.on(mounts, each.point)
    if runs is None:
        # That it cannot be mounted is true whatever a run would change.
        return [Check(MOUNTED, each.source, NOTHING, FAILED if why else status, each.point, why)]
    same = each.is_source(runs, mounts)
    found = each.source if same else runs.text
    checks = [Check(MOUNTED, each.source, found, OK if same else status, each.point)]
    wrong = differences(node, each, runs)
    if not wrong:
        return [*checks, Check(OPTIONS, options, options, OK, each.point)]
    reason = ""
    if any(word.startswith("proto=") for word in wrong):
        reason = (
            "is the same server mounted by another address or transport? From version 4.1 on the "
            "kernel takes the connections it has: write another nfs.version for one"
        )
    return [*checks, Check(OPTIONS, options, ", ".join(wrong), status, each.point, reason)]


def _gone(node: Node, point: str, mounts: Sequence[Mount]) -> Check:
    """A mount point that must have no mount of ours."""
    paths = [units.path_of(units.unit_name(point, kind)) for kind in (AUTOMOUNT, MOUNT)]
    left = [path for path in paths if is_ours(node.read(path))]
    runs = None if node.container else table.on(mounts, point)
    if left:
        return Check(ABSENT, "absent", f"/{left[0]}", differs(node.check_mode), point)
    if runs is not None and HEADER not in (node.read(paths[1]) or ""):
        reason = "it was not mounted by this collection, which leaves it alone"
        return Check(ABSENT, "absent", runs.text, FAILED, point, reason)
    return Check(ABSENT, "absent", "absent", OK, point)


def _at_boot(node: Node, each: WantedMount) -> Check:
    """Its automount point, or the bind mount itself."""
    name = UNIT if each.is_bind else AUTO
    wanted, found = ENABLED, systemd.state(node, each.at_boot)
    if node.container:  # where it is enabled, and starts nothing
        wanted, found = wanted.split(", ")[0], found.split(", ")[0]
    return compare(name, wanted, found, subject=each.point, check_mode=node.check_mode)


def drop_ins(node: Node, point: str, names: Collection[str]) -> list[Check]:
    """Lines of other files by which systemd mounts otherwise than these units of ours have it."""
    key, found = "DropInPaths", []
    text = node.look(["systemctl", "show", "-p", key, "--", *names]).stdout
    # systemd quotes names with a backslash.
    for path in dict.fromkeys(shlex.split(text.replace(f"{key}=", " "))):
        section = ""
        for line in map(str.strip, (node.read(path) or "").split("\n")):
            section = line if line.startswith("[") else section
            if section in _MOUNTING and "=" in line and not line.startswith(("#", ";")):
                found.append(f"{path}: {line}")
    reason = f"remove them, systemctl daemon-reload, and umount {point} when it is not in use"
    return [Check(DROP_IN, [], found, FAILED, point, reason)] if found else []


def _leftovers(node: Node, known: Collection[str]) -> list[Check]:
    """Mounts of ours that are not wanted: they stay until they are declared absent."""
    found = []
    for path in sorted(node.path(units.DIRECTORY).glob(f"*.{MOUNT}")):
        name = str(path.relative_to(node.root))
        text = node.read(name) or ""
        point = units.value_of(text, "Where")
        if is_ours(text) and point not in known:
            reason = (
                "its file system left cluster_filesystems, or this host its list of hosts. Put it "
                f'back, or unmount it with -e \'{{"shared_storage_absent": ["{point}"]}}\' and '
                "--limit to these hosts"
            )
            found.append(
                Check(LEFT, "a file system of this host", f"/{name}", FAILED, point, reason)
            )
    return found


def _not_mounted(wanted: Sequence[WantedMount], node: Node) -> list[WantedMount]:
    """Those whose automount point is armed, and waits."""
    mounts = table.read(node.root)
    return [x for x in wanted if table.trap(mounts, x.point) and not table.on(mounts, x.point)]


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


# What stands in the way of a mount


def in_fstab(node: Node, point: str) -> str:
    """The line of /etc/fstab that mounts something there, with its number; or empty."""
    for number, line in enumerate((node.read(FSTAB) or "").split("\n"), start=1):
        fields = line.split()
        if len(fields) < 2 or fields[0].startswith("#"):
            continue
        if posixpath.normpath(table.unescape(fields[1])) == point:
            return f"/{FSTAB}:{number}: {line.strip()}"
    return ""


def is_ours(text: Optional[str], *marks: str) -> bool:
    """Whether a unit file is a mount of this layer, of one of these kinds; by default any."""
    known = text is not None and text.split("\n", 1)[0].endswith(HEADER)
    return known and any(mark in str(text) for mark in marks or (OF_CLIENT, OF_DEVICE))


def refuse(node: Node, each: WantedMount, mounts: Sequence[Mount]) -> None:
    """Raises PlanError where something else has the mount point."""
    line = in_fstab(node, each.point)
    if line:
        raise PlanError(
            f"{each.point}: {line}: two cannot mount one directory. Remove the line; what is "
            "mounted by it is taken over"
        )
    for unit in (each.mount_unit, units.unit_name(each.point, AUTOMOUNT)):
        path = units.path_of(unit)
        text = node.read(path)
        there = text is not None or node.path(path).is_symlink()
        if there and not is_ours(text, OF_CLIENT):
            raise PlanError(
                f"{each.point}: /{path} is another unit for it. Remove it (systemctl disable --now "
                f"'{unit}' first), or mount {each.fs.name} elsewhere"
            )
    runs = None if node.container else table.on(mounts, each.point)
    known = is_ours(node.read(units.path_of(each.mount_unit)))
    if runs is not None and not known and not each.of_this_kind(runs):
        raise PlanError(
            f"{each.point}: {runs.text} is mounted there, and not by this collection. Unmount it, "
            f"or mount {each.fs.name} elsewhere"
        )


def refuse_hidden(node: Node, point: str, wait: Runner) -> None:
    """Raises PlanError unless the directory is a plain, empty one, or not there yet.

    Read by a program with a time limit: a parent directory may lie on a server that is dead. Not
    for a point that is mounted or an automount point already.
    """
    words = ["find", str(node.path(point)), "-maxdepth", "1", "-printf", "%y %P\\n"]
    try:
        found = wait(words, check=False)
    except CommandError as error:
        raise PlanError(f"{point}: the directory cannot be read: {error}") from error
    rows = [line.split(" ", 1) for line in found.stdout.split("\n") if " " in line]
    if rows and rows[0][0] != "d":
        raise PlanError(f"{point}: not a directory. Move it away")
    names = sorted(row[1] for row in rows[1:])
    if names:
        raise PlanError(
            f"{point}: nothing is mounted there, and the directory is not empty: it holds "
            f"{some(names, SHOWN)}. A mount would hide that. Move it away, or mount elsewhere"
        )


def _refuse_busy(node: Node, point: str, what: str, mounts: Sequence[Mount]) -> None:
    """Raises PlanError, except in check mode, which shows the plan."""
    keeps = "" if node.check_mode else in_use(node, point, mounts)
    if keeps:
        raise PlanError(
            f"{point}: {what}. It was not unmounted, because of {keeps}. End them, or drain "
            "the node, then run again"
        )


def in_use(node: Node, point: str, mounts: Sequence[Mount]) -> str:
    """What keeps a mount from being unmounted; empty where nothing is found.

    Processes are found by the links of /proc alone, which the kernel answers from memory: fuser and
    lsof query the file system itself, and wait with it where its server is dead. A file that is
    only mapped, as a shared library is, is not among them: there unmounting itself fails.
    """
    inner = sorted({each.point for each in table.below(mounts, point)})
    if inner:
        return f"mounts in it: {', '.join(inner)}"
    held = list(_holders(node, point))
    return f"processes that use it: {some(held, SHOWN)}" if held else ""


def _holders(node: Node, point: str) -> Iterator[str]:
    for pid in processes.pids(node.root):
        for how, path in processes.held(node.root, pid):
            if within(path.removesuffix(" (deleted)"), point):
                name, user = processes.name(node.root, pid), _user(node, pid)
                yield f"{name} (pid {pid}, {user}, {how})"
                break


def _user(node: Node, pid: int) -> str:
    try:
        uid = node.path(f"proc/{pid}").stat().st_uid
        return pwd.getpwuid(uid).pw_name
    except OSError:  # ended meanwhile
        return "?"
    except KeyError:
        return f"uid {uid}"
