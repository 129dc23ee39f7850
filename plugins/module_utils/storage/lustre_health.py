# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the servers of Lustre respond: the management server is pinged; for targets, the kernel's
record of its connections is read, which never blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.commands import CommandError
from ..core.part import Node, Plan, Verdict
from .file_system import FileSystem
from .lnet import pairs
from .lustre import LustreKernel, LustreSettings, LustreSource, net_of, read_nid, read_source

TARGETS, MGS = "lustre_targets", "lustre_mgs"
CONNECTED = "connected"
ANSWERS = "an answer"
PING_S = 5
"""Time limit of an LNet ping in seconds; a healthy server responds within a millisecond."""
WELL = ("FULL", "IDLE")
"""Unused object targets are disconnected (IDLE) and reconnected on demand."""
INACTIVE = "inactive"
_REMEDY = (
    "every access to them waits, for minutes while a server recovers. EVICTED: unwritten data is "
    "lost. inactive: lctl set_param osc.*.active=1"
)
_TARGET = re.compile(r"(.+)-(?:OST|MDT)[0-9a-f]{4}")
MGC = "MGC"
"""Prefix of management clients: `MGC10.0.0.1@o2ib`, with the first NID of the mount's source
(lustre_start_mgc of lustre/obdclass/obd_mount.c)."""


@dataclass(frozen=True)
class Import:
    """A connection to a target. A target has one connection per mount."""

    target: str
    """`lustre-OST0003`; `MGS` for every management service."""
    trouble: str
    """Its state if it is unhealthy, else empty."""
    connection: str = ""
    """NID of the server last tried."""
    device: str = ""
    """Device name: `lustre-OST0003-osc-ffff9068ea7c9000`, `MGC10.0.0.1@o2ib`."""

    @property
    def file_system(self) -> str:
        """`lustre` for `lustre-OST0003`; empty for the management service."""
        matched = _TARGET.fullmatch(self.target)
        return matched[1] if matched else ""

    @property
    def nids(self) -> set[str]:
        """NIDs by which this client knows a management service."""
        known = (self.device.removeprefix(MGC), self.connection)
        return {read_nid(nid) for nid in known if "@" in nid}

    def text(self) -> str:
        name = self.target if self.file_system else self.device or self.target
        return f"{name} {self.trouble} ({self.connection or 'no server'})"


def read_imports(text: str) -> list[Import]:
    imports = []
    parts = re.split(r"^\w+\.(\S+)\.import=", text, flags=re.MULTILINE)[1:]
    for device, chunk in zip(parts[::2], parts[1::2]):
        result: dict[str, str] = {}
        for key, value in pairs(chunk):
            result.setdefault(key, value)  # outer keys come first
        state, nid = result.get("state"), result.get("current_connection", "")
        if state:
            inactive = "deactive" in re.split(r"[\s,\[\]]+", result.get("import_flags", ""))
            trouble = INACTIVE if inactive else "" if state in WELL else state
            target = result.get("target", "").removesuffix("_UUID")
            imports.append(Import(target, trouble, "" if nid == "<none>" else nid, device))
    return imports


@dataclass
class HealthPart:
    settings: LustreSettings
    filesystems: Sequence[FileSystem]
    kernel: LustreKernel

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        points = [] if missing else self.kernel.points()
        reason = missing or "it is not mounted, which another check reports"
        checks = [
            not_applicable(TARGETS, CONNECTED, reason, subject=fs.mount)
            for fs in self.filesystems
            if fs.mount not in points
        ]
        if not missing and self.kernel.has_lnet:
            sources = [read_source(fs.source) for fs in self.filesystems]
            checks += [self._pinged(source) for source in {x.servers: x for x in sources}.values()]
        mounted = [fs for fs in self.filesystems if fs.mount in points]
        return Verdict(checks + self._connections(mounted) if mounted else checks)

    def _pinged(self, source: LustreSource) -> Check:
        """Ping the management service; one NID of one server must answer."""
        nets = {network.net for network in self.settings.networks}
        nets.update(net for net, _router in self.settings.routes)
        subject = str(source).partition(":/")[0]
        silent, reason = [], ""
        for server in source.servers:
            problem = "it is in none of this host's networks"
            for nid in server:
                if problem and net_of(nid) in nets:
                    problem = self._ping(nid)
            if problem:
                silent.append(",".join(server))
                reason = problem
        if len(silent) < len(source.servers):
            reason = f"without an answer: {', '.join(silent)}: {reason}" if silent else ""
            return Check(MGS, ANSWERS, ANSWERS, OK, subject, reason)
        return Check(MGS, ANSWERS, "none", FAILED, subject, reason)

    def _ping(self, nid: str) -> str:
        """Ping a NID; returns the error, or an empty string."""
        argv = ["lnetctl", "ping", "--timeout", str(PING_S), nid]
        try:
            result = self.kernel.look(argv, check=False)
        except CommandError as error:
            return str(error)
        if result.rc == 0 and "primary nid" in result.stdout:
            return ""
        reason = dict(pairs(f"{result.stdout}\n{result.stderr}")).get("descr")
        return reason or f"{' '.join(argv)}: exit status {result.rc}"

    def _connections(self, mounted: Sequence[FileSystem]) -> list[Check]:
        """Check the connections of each file system once, however often it is mounted."""
        imports, problem = [], "lctl shows no connection of this file system"
        try:
            argv = ["lctl", "get_param", "mgc.*.import", "mdc.*.import", "osc.*.import"]
            imports = read_imports(self.kernel.look(argv, check=False).stdout)
        except CommandError as error:
            problem = str(error)
        checks = []
        sources = {fs.mount: read_source(fs.source) for fs in mounted}
        managers = [entry for entry in imports if not entry.file_system]
        # A management service may have other NIDs than the source, for example behind a router.
        unclaimed = [x for x in managers if not any(x.nids & s.nids for s in sources.values())]
        by_source = {(s.servers, s.name): (mount, s) for mount, s in sources.items()}
        for mount, source in by_source.values():
            targets = [entry for entry in imports if entry.file_system == source.name]
            own = [*([x for x in managers if x.nids & source.nids] or unclaimed), *targets]
            count = len({entry.target for entry in targets})
            wrong = list(dict.fromkeys(entry.text() for entry in own if entry.trouble))
            if not count:
                checks.append(Check(TARGETS, CONNECTED, "unknown", FAILED, mount, problem))
                continue
            good = (f"{CONNECTED} ({count} targets)", OK, mount)
            words = (wrong, FAILED, mount, _REMEDY) if wrong else good
            checks.append(Check(TARGETS, CONNECTED, *words))
        return checks
