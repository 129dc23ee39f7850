# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the servers of a mounted Lustre are there, reported once per target, each look bounded.

What the kernel knows of its connections is read first: that never waits. Servers are queried only
where it knows of no trouble, and no further query goes to a file system that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from ...core.checks import FAILED, OK, Check, not_applicable
from ...core.commands import CommandError, Result
from ...core.dataclass import dataclass
from ...core.part import Node, Plan, Verdict
from ..file_system import FileSystem
from .lnet import Kernel, pairs
from .settings import LustreSettings, Source, read_source

TARGETS, TARGET, SERVERS, MGS, ROOM = (
    "lustre_targets", "lustre_target", "lustre_servers", "lustre_mgs", "lustre_target_room"
)  # fmt: skip
CONNECTED = "connected"
ANSWERS = "an answer"
PING_S = 5
"""Seconds that a ping of LNet has; a healthy server takes a thousandth of one."""
WELL = ("FULL", "IDLE")
"""An object target that was not used for a while is disconnected, and connected when needed."""
INACTIVE = "inactive"
EVICTED = "EVICTED"
_REMEDIES = {
    INACTIVE: "it is switched off here (lctl set_param osc.*.active=0, or the mount option "
    "exclude): switch it on again, or take the target out of the file system",
    EVICTED: "the servers evicted this client, and what programs had not written is lost: see "
    "LustreError in dmesg, look at the network of the rails, and start the jobs anew",
}
_WAIT = (
    "every access to it waits. A server that recovers its clients is through within minutes; else: "
    "is it up (lctl ping NID), and the target mounted on it or on its partner"
)
_CHECKED = re.compile(r"check '?(?P<name>[^'\s:]+)'?: (?P<why>.+)$")
_ROOM = re.compile(r"^(\S+)_UUID\s+\d+\s+\d+\s+\d+\s+(\d+)%\s", re.MULTILINE)
_TARGET = re.compile(r"((.+)-(?:OST|MDT)[0-9a-f]{4})(?:-.*)?")


@dataclass(frozen=True)
class Import:
    """A connection of this client to one target."""

    target: str
    """`lustre-OST0003`; `MGS` of the management service."""
    trouble: str
    """Its state, where that is not well; empty where it is."""
    connection: str = ""
    """NID of the server that was tried last."""

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


def read_check(text: str) -> dict[str, str]:
    """Of `lfs check servers`: target to what is wrong with it."""
    found = {}
    for line in text.splitlines():
        name, _blank, state = line.strip().rpartition(" ")
        failed = _CHECKED.search(line)
        if failed is not None:
            found[target_of(failed["name"])] = failed["why"].strip()
        elif state.rstrip(".") == INACTIVE and name:
            found[target_of(name)] = INACTIVE
    return found


def target_of(device: str) -> str:
    """`lustre-OST0003` of `lustre-OST0003-osc-ffff9c5c`."""
    matched = _TARGET.fullmatch(device)
    return matched[1] if matched else device


def file_system_of(target: str) -> str:
    """`lustre` of `lustre-OST0003`; empty for the management service."""
    matched = _TARGET.fullmatch(target)
    return matched[2] if matched else ""


def read_df(text: str) -> dict[str, int]:
    """Of `lfs df`: used percent by target; those that do not answer have other lines."""
    return {target: int(percent) for target, percent in _ROOM.findall(text)}


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
            sources = {str(read_source(fs.source).servers): fs for fs in self.filesystems}
            checks += [self._pinged(read_source(fs.source)) for fs in sources.values()]
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
        said = dict(pairs(f"{result.stdout}\n{result.stderr}")).get("descr")
        return said or f"lnetctl ping {nid}: exit status {result.rc}"

    def _connections(self, here: Sequence[FileSystem]) -> list[Check]:
        """A file system that is mounted at several places is looked at once."""
        result, problem = self._ask(
            ["lctl", "get_param", "mgc.*.import", "mdc.*.import", "osc.*.import"]
        )
        imports = read_imports(result.stdout) if result is not None else []
        names = {read_source(fs.source).name: fs for fs in here}
        troubled = {
            each.target: each
            for each in imports
            if each.trouble and file_system_of(each.target) in ("", *names)
        }
        checks = [each.check() for each in troubled.values()]
        for name, fs in names.items():
            mine = {each.target for each in imports if file_system_of(each.target) == name}
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
        wrong = read_check(f"{result.stdout}\n{result.stderr}")
        if wrong:
            return [Import(target, why).check() for target, why in wrong.items()]
        if result.rc:
            why = f"lfs check servers: exit status {result.rc}: {result.stderr.strip()[-500:]}"
            return [Check(SERVERS, ANSWERS, "unknown", FAILED, fs.mount, why)]
        answers = Check(SERVERS, ANSWERS, ANSWERS, OK, fs.mount)
        return [answers, *self._room(fs)]

    def _room(self, fs: FileSystem) -> list[Check]:
        limit = self.settings.full_percent
        if not limit:
            return []
        wanted = f"below {limit} %"
        result, problem = self._ask(["lfs", "df", fs.mount])
        rooms = read_df(result.stdout) if result is not None else {}
        if not rooms:
            why = problem or "lfs df shows no target"
            return [Check(ROOM, wanted, "unknown", FAILED, fs.mount, why)]
        if max(rooms.values()) < limit:
            return [Check(ROOM, wanted, f"{max(rooms.values())} % at most", OK, fs.mount)]
        why = (
            "writes to files on it end with 'no space left' although the file system has space: "
            "spread files (lfs migrate), or remove some"
        )
        return [
            Check(ROOM, wanted, f"{percent} %", FAILED, target, why)
            for target, percent in rooms.items()
            if percent >= limit
        ]

    def _ask(self, argv: Sequence[str]) -> tuple[Optional[Result], str]:
        """The answer, or None and why there is none."""
        try:
            return self.kernel.look(argv, check=False), ""
        except CommandError as error:
            return None, str(error)
