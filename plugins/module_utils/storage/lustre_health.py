# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stripe defaults of Lustre, and whether its servers are there; each look is bounded.

A management server is pinged. Of targets, the kernel's record of its connections is read, which
never waits; that they answer is shown by the use of the file system.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Optional

from ..core import mounts as table
from ..core.checks import FAILED, OK, Check, compare, not_applicable
from ..core.commands import CommandError, NoAnswerError
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Step, Verdict
from . import units
from .file_system import FileSystem, Lustre
from .lnet import pairs
from .lustre import Kernel, LustreSettings, Source, read_source

STRIPES, TARGETS, MGS = "lustre_stripes", "lustre_targets", "lustre_mgs"
CONNECTED = "connected"
ANSWERS = "an answer"
PING_S = 5
"""Seconds that a ping of LNet has; a healthy server takes a thousandth of one."""
WELL = ("FULL", "IDLE")
"""An object target that was not used for a while is disconnected, and connected when needed."""
INACTIVE = "inactive"
_REMEDY = (
    "every access to them waits. A server that recovers its clients is through within minutes; "
    "else: is it up (lctl ping NID), and the target mounted on it or on its partner? EVICTED: what "
    "programs had not written is lost (dmesg). inactive: lctl set_param osc.*.active=1"
)
_TARGET = re.compile(r"(.+)-(?:OST|MDT)[0-9a-f]{4}")
MIB = 1 << 20
_VALUE = re.compile(r"(?:^|\s)(?:lmm_)?(stripe_count|stripe_size|pool):\s*(\S+)")
_MANY = ("65535", "4294967295")
"""How releases print -1."""

# Stripe defaults of the mount points: where new files are spread. Others keep their layout.


@dataclass(frozen=True)
class Layout:
    count: int = 0
    size: int = 0
    """Bytes."""
    pool: str = ""
    composite: bool = False
    """PFL; then the rest is meaningless."""

    def text(self, wanted: Lustre) -> str:
        """The part of it that is wanted."""
        if self.composite:
            return "composite layout"
        whole, rest = divmod(self.size, MIB)
        size = f"size {f'{self.size} bytes' if rest else f'{whole} MiB'}"
        words = (
            f"count {self.count}" if wanted.stripe_count else "",
            size if wanted.stripe_size_mib else "",
            f"pool {self.pool or 'none'}" if wanted.pool else "",
        )
        return ", ".join(word for word in words if word)


def wanted_text(wanted: Lustre) -> str:
    """Empty where nothing is wanted."""
    return Layout(wanted.stripe_count, wanted.stripe_size_mib * MIB, wanted.pool).text(wanted)


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


@dataclass
class StripesPart:
    """Comes after the part that mounts. `filesystems` are all of Lustre on this host."""

    filesystems: Sequence[FileSystem]
    kernel: Kernel
    _silent: dict[str, str] = field(default_factory=dict, init=False)
    """Mount point to what did not answer there: it is not queried again."""

    def plan(self, node: Node) -> Plan:
        steps = []
        for fs in self._wanted() if not self.kernel.missing(node) else ():
            try:
                layout = self._layout(fs.mount)
            except CommandError:
                continue  # which its check reports
            if layout is None and (node.container or self._is_armed(fs.mount)):
                continue  # what cannot be mounted by this run: its own check reports why
            before = "not mounted yet" if layout is None else layout.text(fs.lustre)
            wanted = wanted_text(fs.lustre)
            if before != wanted:
                what = f"stripes of new files in {fs.mount}"
                steps.append(Step(what, before, wanted, partial(self._set, fs)))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        return Verdict([self._check(node, fs, missing) for fs in self._wanted()])

    def _wanted(self) -> list[FileSystem]:
        return [fs for fs in self.filesystems if wanted_text(fs.lustre)]

    def _check(self, node: Node, fs: FileSystem, missing: str) -> Check:
        wanted, subject = wanted_text(fs.lustre), fs.mount
        try:
            there = not missing and subject in self.kernel.points()
            layout = self._layout(subject) if there else None
        except CommandError as error:
            return Check(STRIPES, wanted, "unknown", FAILED, subject, str(error))
        if layout is None:
            why = missing or "it is not mounted now, which its own check judges"
            return not_applicable(STRIPES, wanted, why, subject=subject)
        why = "lfs getstripe -d shows another default"
        found, check_mode = layout.text(fs.lustre), node.check_mode
        return compare(STRIPES, wanted, found, subject=subject, check_mode=check_mode, reason=why)

    def _set(self, fs: FileSystem) -> None:
        wanted = fs.lustre
        layout = self._layout(fs.mount)
        if layout is None or layout.text(wanted) == wanted_text(wanted):
            return  # that it is not mounted, the check of the mount reports
        # What is not given goes back to the file system's default: give what is set there.
        now = self._layout(fs.mount, "--raw")
        kept = now if now is not None and not now.composite else Layout()
        words = {
            "-c": wanted.stripe_count or kept.count,
            "-S": wanted.stripe_size_mib * MIB or kept.size,
            "-p": wanted.pool or kept.pool,
        }
        given = [word for key, value in words.items() if value for word in (key, str(value))]
        self.kernel.look(["lfs", "setstripe", *given, fs.mount])

    def _layout(self, point: str, *more: str) -> Optional[Layout]:
        """None where it is not mounted. Raises CommandError where it is not known."""
        if point in self._silent:
            raise CommandError(f"{self._silent[point]}: not queried again")
        argv = ["lfs", "getstripe", "-d", "-y", *more, point]
        try:
            if not self._is_mounted(point):
                return None
            result = self.kernel.look(argv)
        except NoAnswerError as error:
            self._silent[point] = f"{error}: a server of {point} does not answer"
            raise
        layout = read_layout(result.stdout)
        if layout is None:
            raise CommandError(f"{' '.join(argv)}: no layout in {result.stdout[-500:]!r}")
        return layout

    def _is_armed(self, point: str) -> bool:
        return table.trap(table.read(self.kernel.root), point) is not None

    def _is_mounted(self, point: str) -> bool:
        """What waits for its first use is mounted. Raises NoAnswerError."""
        if point not in self.kernel.points() and self._is_armed(point):
            # Otherwise the check of the mount shows it, with the error of systemd.
            self.kernel.look(
                ["systemctl", "start", units.unit_name(point, units.MOUNT)], check=False
            )
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
        return matched[1] if matched else ""


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
        try:
            result = self.kernel.look(
                ["lnetctl", "ping", "--timeout", str(PING_S), nid], check=False
            )
        except CommandError as error:
            return str(error)
        if result.rc == 0 and "primary nid" in result.stdout:
            return ""
        reason = dict(pairs(f"{result.stdout}\n{result.stderr}")).get("descr")
        return reason or f"lnetctl ping {nid}: exit status {result.rc}"

    def _connections(self, here: Sequence[FileSystem]) -> list[Check]:
        """A file system that is mounted at several places is judged once."""
        imports, problem = [], "lctl shows no connection of this file system"
        try:
            words = ["lctl", "get_param", "mgc.*.import", "mdc.*.import", "osc.*.import"]
            imports = read_imports(self.kernel.look(words, check=False).stdout)
        except CommandError as error:
            problem = str(error)
        checks = []
        for name, fs in {read_source(fs.source).name: fs for fs in here}.items():
            mine = {each.target: each for each in imports if each.file_system in (name, "")}
            count = sum(each.file_system == name for each in mine.values())
            wrong = [
                f"{each.target} {each.trouble} ({each.connection or 'no server'})"
                for each in mine.values()
                if each.trouble
            ]
            if not count:
                checks.append(Check(TARGETS, CONNECTED, "unknown", FAILED, fs.mount, problem))
            elif wrong:
                checks.append(Check(TARGETS, CONNECTED, wrong, FAILED, fs.mount, _REMEDY))
            else:
                found = f"{CONNECTED} ({count} targets)"
                checks.append(Check(TARGETS, CONNECTED, found, OK, fs.mount))
        return checks
