# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the servers of a mounted Lustre are there, told once per target, each look bounded.

What the kernel knows of its connections is read first: that never waits. Servers are asked only
where it knows of no trouble, and no further question goes to a file system that did not answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    Check,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    NoAnswerError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import (
    Node,
    Plan,
    Verdict,
)

from ..file_system import FileSystem
from . import targets
from .kernel import Kernel
from .settings import LustreSettings
from .source import Source, read_source

TARGETS, TARGET, SERVERS, MGS, ROOM, QUOTA = (
    "lustre_targets",
    "lustre_target",
    "lustre_servers",
    "lustre_mgs",
    "lustre_target_room",
    "lustre_quota",
)
CONNECTED = "connected"
ANSWERS = "an answer"
PING_S = 5
"""Seconds that a ping of LNet has; a healthy server takes a thousandth of one."""


@dataclass
class HealthPart:
    """`user`: whose quota is judged; empty for nobody's."""

    settings: LustreSettings
    filesystems: Sequence[FileSystem]
    kernel: Kernel
    user: str = ""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        if missing:
            checks = [
                not_applicable(TARGETS, CONNECTED, missing, subject=fs.mount)
                for fs in self.filesystems
            ]
            return Verdict(checks)
        points = {mount.point for mount in self.kernel.mounts()}
        here = [fs for fs in self.filesystems if fs.mount in points]
        checks = [
            not_applicable(
                TARGETS,
                CONNECTED,
                "it is not mounted now, which its own check judges",
                subject=fs.mount,
            )
            for fs in self.filesystems
            if fs.mount not in points
        ]
        if (self.kernel.root / "sys/module/lnet").exists():
            checks += self._management()
        if here:
            checks += self._connections(here)
        return Verdict(checks)

    # Servers

    def _management(self) -> list[Check]:
        """Once per set of servers, however many file systems are mounted from it."""
        checks = []
        seen = set()
        for fs in self.filesystems:
            source = read_source(fs.source)
            if source.servers not in seen:
                seen.add(source.servers)
                checks.append(self._pinged(source))
        return checks

    def _pinged(self, source: Source) -> Check:
        nets = {network.net for network in self.settings.networks}
        nets |= {route.net for route in self.settings.routes}
        silent, told = [], ""
        subject = ":".join(",".join(map(str, server)) for server in source.servers)
        for server in source.servers:
            nids = [str(nid) for nid in server if nid.net in nets]
            problems = []
            for nid in nids:
                problem = self._ping(nid)
                problems.append(problem)
                if not problem:
                    break
            if not nids or problems[-1]:
                silent.append(",".join(map(str, server)))
                told = (problems or ["it is in no network of this host"])[-1]
        if len(silent) < len(source.servers):
            why = f"without an answer: {', '.join(silent)}: {told}" if silent else ""
            return Check(MGS, ANSWERS, ANSWERS, OK, subject, why)
        why = (
            f"{told}. Is the server up, does lctl list_nids there tell this NID, and does a plain "
            "ping of its address from this node's rails answer"
        )
        return Check(MGS, ANSWERS, "none", FAILED, subject, why)

    def _ping(self, nid: str) -> str:
        """Why there was no answer; empty where there was one."""
        try:
            told = self.kernel.look(["lnetctl", "ping", "--timeout", str(PING_S), nid], check=False)
        except CommandError as error:
            return str(error)
        if told.rc == 0 and "primary nid" in told.stdout:
            return ""
        lines = f"{told.stdout}\n{told.stderr}".splitlines()
        said = [line.partition("descr:")[2].strip(' !"') for line in lines if "descr:" in line]
        return said[0] if said else f"lnetctl ping {nid}: exit status {told.rc}"

    # Targets

    def _connections(self, here: Sequence[FileSystem]) -> list[Check]:
        told, problem = self._ask(
            ["lctl", "get_param", "mgc.*.import", "mdc.*.import", "osc.*.import"]
        )
        imports = targets.read_imports(told.stdout) if told is not None else []
        by_name: dict[str, list[targets.Import]] = {}
        for each in imports:
            by_name.setdefault(targets.file_system_of(each.target), []).append(each)
        evicted = self._evictions()
        checks: list[Check] = []
        said: set[str] = set()
        names = {}
        for fs in here:
            name = read_source(fs.source).name
            mine = by_name.get(name, [])
            if not mine:
                why = problem or "lctl tells no connection of this file system"
                checks.append(Check(TARGETS, CONNECTED, "unknown", FAILED, fs.mount, why))
                continue
            names[fs.mount] = name
            for each in [*mine, *by_name.get("", [])]:
                if each.trouble and each.target not in said:
                    said.add(each.target)
                    checks.append(
                        Check(TARGET, CONNECTED, each.found, FAILED, each.target, each.remedy)
                    )
        for fs in here:
            if fs.mount not in names:
                continue
            mine = by_name[names[fs.mount]]
            if any(each.trouble for each in mine):
                why = "not asked: the targets that are named do not answer"
                checks.append(not_applicable(SERVERS, ANSWERS, why, subject=fs.mount))
                continue
            count = len({each.target for each in mine})
            why = _once_evicted(mine, evicted)
            found = f"{CONNECTED} ({count} targets)"
            checks.append(Check(TARGETS, CONNECTED, found, OK, fs.mount, why))
            checks += self._asked(fs, said)
        return checks

    def _evictions(self) -> dict[str, int]:
        told, _problem = self._ask(["lctl", "get_param", "mdc.*.state", "osc.*.state"])
        return targets.read_evictions(told.stdout) if told is not None else {}

    def _asked(self, fs: FileSystem, said: set[str]) -> list[Check]:
        """What takes an answer of the servers; nothing more after the first that does not come."""
        told, problem = self._ask(["lfs", "check", "servers", fs.mount])
        if told is not None and told.rc and _no_argument(told):
            told, problem = self._ask(["lfs", "check", "servers"])  # a release without the path
        if told is None:
            why = f"{problem}. Programs that use it wait as well: see dmesg, and the servers"
            return [Check(SERVERS, ANSWERS, "none in time", FAILED, fs.mount, why)]
        name = read_source(fs.source).name
        wrong = {
            target: why
            for target, why in targets.read_check(told.stdout, told.stderr).items()
            if targets.file_system_of(target) in (name, "") and target not in said
        }
        said |= set(wrong)
        checks = [
            Check(
                TARGET,
                CONNECTED,
                why,
                FAILED,
                target,
                targets.REMEDIES[targets.INACTIVE if why == targets.INACTIVE else "DISCONN"],
            )
            for target, why in wrong.items()
        ]
        if wrong:
            return checks
        checks.append(Check(SERVERS, ANSWERS, ANSWERS, OK, fs.mount))
        return [*checks, *self._room(fs), *self._quota(fs)]

    def _room(self, fs: FileSystem) -> list[Check]:
        limit = self.settings.full_percent
        if not limit:
            return []
        wanted = f"below {limit} %"
        told, problem = self._ask(["lfs", "df", fs.mount])
        rooms = targets.read_df(told.stdout) if told is not None else []
        if not rooms:
            why = problem or "lfs df tells no target"
            return [Check(ROOM, wanted, "unknown", FAILED, fs.mount, why)]
        full = [room for room in rooms if room.used_percent >= limit]
        if not full:
            most = max(room.used_percent for room in rooms)
            return [Check(ROOM, wanted, f"{most} % at most", OK, fs.mount)]
        why = (
            "writes to files on it end with 'no space left' although the file system has space: "
            "spread files (lfs migrate), or remove some"
        )
        return [
            Check(ROOM, wanted, f"{room.used_percent} %", FAILED, room.target, why) for room in full
        ]

    def _quota(self, fs: FileSystem) -> list[Check]:
        if not self.user:
            return []
        told, _problem = self._ask(["lfs", "quota", "-u", self.user, fs.mount])
        quota = targets.read_quota(told.stdout) if told is not None and told.rc == 0 else None
        subject, wanted = f"{fs.mount} {self.user}", "within its limits"
        if quota is None:
            why = "lfs quota tells none: quotas are off there"
            return [not_applicable(QUOTA, wanted, why, subject=subject)]
        if not quota.over:
            return [Check(QUOTA, wanted, wanted, OK, subject)]
        why = "jobs cannot write when the grace time ends: remove files, or raise the limit"
        return [Check(QUOTA, wanted, ", ".join(quota.over), FAILED, subject, why)]

    def _ask(self, argv: Sequence[str]) -> tuple[Optional[Result], str]:
        """The answer, or None and why there is none."""
        try:
            return self.kernel.look(argv, check=False), ""
        except NoAnswerError as error:
            return None, str(error)
        except CommandError as error:
            return None, str(error)


def _once_evicted(imports: Sequence[targets.Import], evicted: dict[str, int]) -> str:
    """Not a fault now: but jobs that ran then may have lost what they wrote."""
    names = sorted({each.target for each in imports if each.name in evicted})
    if not names:
        return ""
    return f"evicted since it was mounted, and back: {', '.join(names)}; see LustreError in dmesg"


def _no_argument(told: Result) -> bool:
    return "usage" in f"{told.stdout}{told.stderr}".lower()
