# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stripe defaults of Lustre, and whether its servers are there; each look is bounded.

What the kernel has recorded of its connections is read first: that never waits. Servers are queried
only where it records no trouble, and no further query goes to a file system that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Optional

from ..core import mounts as table
from ..core.checks import FAILED, OK, Check, compare, not_applicable
from ..core.commands import CommandError, NoAnswerError, Result
from ..core.dataclass import dataclass
from ..core.mounts import within
from ..core.part import Node, Plan, Step, Verdict
from . import units
from .file_system import FileSystem
from .lnet import pairs
from .lustre import Kernel, LustreSettings, Source, Stripes, read_source

STRIPES, TARGETS, TARGET, SERVERS, MGS, ROOM = (
    "lustre_stripes", "lustre_targets", "lustre_target", "lustre_servers", "lustre_mgs",
    "lustre_target_room",
)  # fmt: skip
CONNECTED = "connected"
ANSWERS = "an answer"
PING_S = 5
"""Seconds that a ping of LNet has; a healthy server takes a thousandth of one."""
WELL = ("FULL", "IDLE")
"""An object target that was not used for a while is disconnected, and connected when needed."""
INACTIVE = "inactive"
_REMEDIES = {
    INACTIVE: "it is switched off here (lctl set_param osc.*.active=0, or the mount option "
    "exclude): switch it on again, or take the target out of the file system",
    "EVICTED": "the servers evicted this client, and what programs had not written is lost: see "
    "LustreError in dmesg, look at the network of the rails, and start the jobs anew",
}
_WAIT = (
    "every access to it waits. A server that recovers its clients is through within minutes; else: "
    "is it up (lctl ping NID), and the target mounted on it or on its partner"
)
_CHECKED = re.compile(r"check '?(?P<name>[^'\s:]+)'?: (?P<why>.+)$")
_ROOM = re.compile(r"^(\S+)_UUID\s+\d+\s+\d+\s+\d+\s+(\d+)%\s", re.MULTILINE)
_TARGET = re.compile(r"((.+)-(?:OST|MDT)[0-9a-f]{4})(?:-.*)?")
MIB = 1 << 20
_VALUE = re.compile(r"(?:^|\s)(?:lmm_)?(stripe_count|stripe_size|pool):\s*(\S+)")
_MANY = ("65535", "4294967295")
"""How releases print -1."""

# Stripe defaults of directories: where the files that are made there are spread. Files that are
# there keep their layout.


@dataclass(frozen=True)
class Layout:
    count: int = 0
    size: int = 0
    """Bytes."""
    pool: str = ""
    composite: bool = False
    """PFL; then the rest is meaningless."""

    def text(self, wanted: Stripes) -> str:
        """The part of it that is asked for."""
        if self.composite:
            return "composite layout"
        whole, rest = divmod(self.size, MIB)
        words = (
            f"count {self.count}" if wanted.count else "",
            f"size {f'{self.size} bytes' if rest else f'{whole} MiB'}" if wanted.size_mib else "",
            f"pool {self.pool or 'none'}" if wanted.pool else "",
        )
        return ", ".join(word for word in words if word)


def wanted_text(wanted: Stripes) -> str:
    return Layout(wanted.count, wanted.size_mib * MIB, wanted.pool).text(wanted)


def read_layout(text: str) -> Optional[Layout]:
    """Of what `lfs getstripe -d` prints, with -y or without; None where it shows no layout."""
    if "lcme_id:" in text:
        return Layout(composite=True)
    found = dict(_VALUE.findall(text))
    try:
        count = found["stripe_count"]
        return Layout(
            -1 if count in _MANY else int(count), int(found["stripe_size"]), found.get("pool", "")
        )
    except (KeyError, ValueError):
        return None


def wanted_stripes(filesystems: Sequence[FileSystem], further: Sequence[Stripes]) -> list[Stripes]:
    """Of the file systems themselves, and of directories in them; without those that ask nothing.

    A directory of `further` that is a mount point replaces the stripes of its file system.
    """
    found = {}
    for fs in filesystems:
        lustre = fs.lustre
        found[fs.mount] = Stripes(
            fs.mount, lustre.stripe_count, lustre.stripe_size_mib, lustre.pool
        )
    found.update({each.directory.rstrip("/"): each for each in further})
    return [each for each in found.values() if each.count or each.size_mib or each.pool]


@dataclass
class StripesPart:
    """`points`: mount points of Lustre on this host. Comes after what mounts them."""

    wanted: Sequence[Stripes]
    points: Sequence[str]
    kernel: Kernel
    _silent: dict[str, str] = field(default_factory=dict, init=False)
    """Mount point to what did not answer there."""

    def plan(self, node: Node) -> Plan:
        steps = []
        for each in self.wanted if not self.kernel.missing(node) else ():
            try:
                layout = self._layout(each)
            except CommandError:
                continue  # which its check reports
            if layout is None and (node.container or self._is_armed(self._point(each))):
                continue  # what cannot be mounted by this run: its own check reports why
            before = "not mounted yet" if layout is None else layout.text(each)
            if before != wanted_text(each):
                what = f"stripes of new files in {each.directory}"
                steps.append(Step(what, before, wanted_text(each), partial(self._set, each)))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        return Verdict([self._check(node, each, missing) for each in self.wanted])

    def _check(self, node: Node, each: Stripes, missing: str) -> Check:
        wanted, subject, point = wanted_text(each), each.directory, self._point(each)
        try:
            layout = None
            if not missing and point in self.kernel.points():
                layout = self._layout(each)
        except CommandError as error:
            return Check(STRIPES, wanted, "unknown", FAILED, subject, str(error))
        if layout is None:
            why = missing or f"{point} is not mounted now, which its own check judges"
            return not_applicable(STRIPES, wanted, why, subject=subject)
        why = "lfs getstripe -d shows another default"
        found, check_mode = layout.text(each), node.check_mode
        return compare(STRIPES, wanted, found, subject=subject, check_mode=check_mode, reason=why)

    def _set(self, each: Stripes) -> None:
        layout = self._layout(each)
        if layout is None or layout.text(each) == wanted_text(each):
            return  # that it is not mounted, the check of the mount reports
        # What is not given goes back to the file system's default: give what is set there.
        now = self._layout(each, "--raw")
        kept = now if now is not None and not now.composite else Layout()
        words = {
            "-c": each.count or kept.count,
            "-S": each.size_mib * MIB or kept.size,
            "-p": each.pool or kept.pool,
        }
        given = [word for key, value in words.items() if value for word in (key, str(value))]
        self.kernel.look(["lfs", "setstripe", *given, each.directory])

    def _layout(self, each: Stripes, *more: str) -> Optional[Layout]:
        """None where it is not mounted. Raises CommandError where it is not known."""
        point = self._point(each)
        if not self._is_mounted(point):
            return None
        if point in self._silent:
            raise CommandError(f"{self._silent[point]}: not queried again")
        argv = ["lfs", "getstripe", "-d", "-y", *more, each.directory]
        try:
            result = self.kernel.look(argv)
        except NoAnswerError as error:
            self._silent[point] = f"{error}: a server of {point} does not answer"
            raise
        layout = read_layout(result.stdout)
        if layout is None:
            raise CommandError(f"{' '.join(argv)}: no layout in {result.stdout[-500:]!r}")
        return layout

    def _point(self, each: Stripes) -> str:
        """The innermost mount point of Lustre that the directory lies in."""
        return max((p for p in self.points if within(each.directory, p)), key=len)

    def _is_armed(self, point: str) -> bool:
        return table.trap(table.read(self.kernel.root), point) is not None

    def _is_mounted(self, point: str) -> bool:
        """What waits for its first use is mounted."""
        if point in self.kernel.points():
            return True
        if self._is_armed(point) and point not in self._silent:
            try:
                self.kernel.look(["systemctl", "start", units.unit_name(point, units.MOUNT)])
            except NoAnswerError as error:
                self._silent[point] = str(error)
            except CommandError:
                pass  # the check of the mount shows it, with the error of systemd
        return point in self.kernel.points()


# Health


@dataclass(frozen=True)
class Import:
    """A connection of this client to one target."""

    target: str
    """`lustre-OST0003`; `MGS` of the management service."""
    trouble: str
    """Its state, where that is not well; empty where it is."""
    connection: str = ""
    """NID of the server that was tried last."""

    @property
    def file_system(self) -> str:
        """`lustre` of `lustre-OST0003`; empty for the management service."""
        matched = _TARGET.fullmatch(self.target)
        return matched[2] if matched else ""

    def check(self) -> Check:
        found = f"{self.trouble} ({self.connection})" if self.connection else self.trouble
        remedy = _REMEDIES.get(self.trouble, _WAIT)
        return Check(TARGET, CONNECTED, found, FAILED, self.target, remedy)


def read_imports(text: str) -> list[Import]:
    """Of `lctl get_param *.*.import`."""
    found = []
    for chunk in re.split(r"^\S+\.import=", text, flags=re.MULTILINE)[1:]:
        result: dict[str, str] = {}
        for key, value in pairs(chunk):
            result.setdefault(key, value)  # the outer ones come first
        state, nid = result.get("state"), result.get("current_connection", "")
        if state:
            inactive = "deactive" in re.split(r"[\s,\[\]]+", result.get("import_flags", ""))
            trouble = INACTIVE if inactive else "" if state in WELL else state
            target = result.get("target", "").removesuffix("_UUID")
            found.append(Import(target, trouble, "" if nid == "<none>" else nid))
    return found


def read_check(text: str) -> list[Import]:
    """Of `lfs check servers`: targets with what is wrong with them."""
    found = []
    for line in text.splitlines():
        name, _blank, why = line.strip().rpartition(" ")
        failed = _CHECKED.search(line)
        if failed is not None:
            name, why = failed["name"], failed["why"].strip()
        elif why.rstrip(".") == INACTIVE:
            why = INACTIVE
        else:
            continue
        matched = _TARGET.fullmatch(name)  # `lustre-OST0003-osc-ffff9c5c`
        found.append(Import(matched[1] if matched else name, why))
    return found


@dataclass
class HealthPart:
    settings: LustreSettings
    filesystems: Sequence[FileSystem]
    kernel: Kernel

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        points = [] if missing else self.kernel.points()
        why = missing or "it is not mounted now, which its own check judges"
        checks = [
            not_applicable(TARGETS, CONNECTED, why, subject=fs.mount)
            for fs in self.filesystems
            if fs.mount not in points
        ]
        if not missing and self.kernel.has_lnet:
            sources = [read_source(fs.source) for fs in self.filesystems]
            checks += [self._pinged(each) for each in {x.servers: x for x in sources}.values()]
        here = [fs for fs in self.filesystems if fs.mount in points]
        return Verdict(checks + self._connections(here) if here else checks)

    def _pinged(self, source: Source) -> Check:
        """One of its servers is enough; of each, one NID."""
        nets = {each.net for each in self.settings.networks}
        nets.update(net for net, _router in self.settings.routes)
        subject = str(source).partition(":/")[0]
        silent, why = [], ""
        for server in source.servers:
            problem = "it is in no network of this host"
            for nid in server:
                if problem and nid.net in nets:
                    problem = self._ping(str(nid))
            if problem:
                silent.append(",".join(map(str, server)))
                why = problem
        if len(silent) < len(source.servers):
            why = f"without an answer: {', '.join(silent)}: {why}" if silent else ""
            return Check(MGS, ANSWERS, ANSWERS, OK, subject, why)
        why = (
            f"{why}. Is the server up, does lctl list_nids there show this NID, and does a plain "
            "ping of its address from this node's rails answer"
        )
        return Check(MGS, ANSWERS, "none", FAILED, subject, why)

    def _ping(self, nid: str) -> str:
        """Why there was no answer; empty where there was one."""
        result, problem = self._ask(["lnetctl", "ping", "--timeout", str(PING_S), nid])
        if result is None or (result.rc == 0 and "primary nid" in result.stdout):
            return problem
        reason = dict(pairs(f"{result.stdout}\n{result.stderr}")).get("descr")
        return reason or f"lnetctl ping {nid}: exit status {result.rc}"

    def _connections(self, here: Sequence[FileSystem]) -> list[Check]:
        """A file system that is mounted at several places is looked at once."""
        result, problem = self._ask(
            ["lctl", "get_param", "mgc.*.import", "mdc.*.import", "osc.*.import"]
        )
        imports = read_imports(result.stdout) if result is not None else []
        names = {read_source(fs.source).name: fs for fs in here}
        wrong = [each for each in imports if each.trouble and each.file_system in ("", *names)]
        troubled = {each.target: each for each in wrong}
        checks = [each.check() for each in troubled.values()]
        for name, fs in names.items():
            mine = {each.target for each in imports if each.file_system == name}
            if not mine:
                why = problem or "lctl shows no connection of this file system"
                checks.append(Check(TARGETS, CONNECTED, "unknown", FAILED, fs.mount, why))
            elif mine.intersection(troubled):
                why = "not queried: the targets that are named do not answer"
                checks.append(not_applicable(SERVERS, ANSWERS, why, subject=fs.mount))
            else:
                found = f"{CONNECTED} ({len(mine)} targets)"
                checks.append(Check(TARGETS, CONNECTED, found, OK, fs.mount))
                checks += self._asked(fs)
        return checks

    def _asked(self, fs: FileSystem) -> list[Check]:
        """What takes an answer of the servers; nothing more after the first that does not come."""
        result, problem = self._ask(["lfs", "check", "servers", fs.mount])
        if result is None:
            why = f"{problem}. Programs that use it wait as well: see dmesg, and the servers"
            return [Check(SERVERS, ANSWERS, "none in time", FAILED, fs.mount, why)]
        wrong = {x.target: x for x in read_check(f"{result.stdout}\n{result.stderr}")}
        if wrong:
            return [each.check() for each in wrong.values()]
        if result.rc:
            why = f"lfs check servers: exit status {result.rc}: {result.stderr.strip()[-500:]}"
            return [Check(SERVERS, ANSWERS, "unknown", FAILED, fs.mount, why)]
        return [Check(SERVERS, ANSWERS, ANSWERS, OK, fs.mount), *self._room(fs)]

    def _room(self, fs: FileSystem) -> list[Check]:
        limit = self.settings.full_percent
        if not limit:
            return []
        wanted = f"below {limit} %"
        result, problem = self._ask(["lfs", "df", fs.mount])
        # Targets that do not answer have other lines.
        rooms = [(x[0], int(x[1])) for x in _ROOM.findall(result.stdout if result else "")]
        if not rooms:
            why = problem or "lfs df shows no target"
            return [Check(ROOM, wanted, "unknown", FAILED, fs.mount, why)]
        most = max(percent for _target, percent in rooms)
        if most < limit:
            return [Check(ROOM, wanted, f"{most} % at most", OK, fs.mount)]
        why = (
            "writes to files on it end with 'no space left' although the file system has space: "
            "spread files (lfs migrate), or remove some"
        )
        return [
            Check(ROOM, wanted, f"{percent} %", FAILED, target, why)
            for target, percent in rooms
            if percent >= limit
        ]

    def _ask(self, argv: Sequence[str]) -> tuple[Optional[Result], str]:
        """The answer, or None and why there is none."""
        try:
            return self.kernel.look(argv, check=False), ""
        except CommandError as error:
            return None, str(error)
