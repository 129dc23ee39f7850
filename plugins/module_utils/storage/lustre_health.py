# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the servers of Lustre are there; each look is bounded.

A management server is pinged. Of targets, the kernel's record of its connections is read, which
never waits; that they answer is shown by the use of the file system.
"""

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


MGC = "MGC"
"""A client of a management service: `MGC10.0.0.1@o2ib`, by the first NID of the mount's source
(lustre_start_mgc of lustre/obdclass/obd_mount.c)."""


@dataclass(frozen=True)
class Import:
    """A connection of this client to one target. A target may have several: one for each mount."""

    target: str
    """`lustre-OST0003`; `MGS` of every management service."""
    trouble: str
    """Its state, where that is not well; empty where it is."""
    connection: str = ""
    """NID of the server that was tried last."""
    device: str = ""
    """Its own name: `lustre-OST0003-osc-ffff9068ea7c9000`, `MGC10.0.0.1@o2ib`."""

    @property
    def file_system(self) -> str:
        """`lustre` of `lustre-OST0003`; empty for the management service."""
        matched = _TARGET.fullmatch(self.target)
        return matched[1] if matched else ""

    @property
    def nids(self) -> set[str]:
        """Of a management service: those by which this client knows it."""
        known = (self.device.removeprefix(MGC), self.connection)
        return {read_nid(nid) for nid in known if "@" in nid}

    def text(self) -> str:
        name = self.target if self.file_system else self.device or self.target
        return f"{name} {self.trouble} ({self.connection or 'no server'})"


def read_imports(text: str) -> list[Import]:
    """Of `lctl get_param *.*.import`."""
    found = []
    parts = re.split(r"^\w+\.(\S+)\.import=", text, flags=re.MULTILINE)[1:]
    for device, chunk in zip(parts[::2], parts[1::2]):
        result: dict[str, str] = {}
        for key, value in pairs(chunk):
            result.setdefault(key, value)  # the outer ones come first
        state, nid = result.get("state"), result.get("current_connection", "")
        if state:
            inactive = "deactive" in re.split(r"[\s,\[\]]+", result.get("import_flags", ""))
            trouble = INACTIVE if inactive else "" if state in WELL else state
            target = result.get("target", "").removesuffix("_UUID")
            found.append(Import(target, trouble, "" if nid == "<none>" else nid, device))
    return found


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

    def _pinged(self, source: LustreSource) -> Check:
        """One of its servers is enough; of each, one NID."""
        nets = {each.net for each in self.settings.networks}
        nets.update(net for net, _router in self.settings.routes)
        subject = str(source).partition(":/")[0]
        silent, why = [], ""
        for server in source.servers:
            problem = "it is in no network of this host"
            for nid in server:
                if problem and net_of(nid) in nets:
                    problem = self._ping(nid)
            if problem:
                silent.append(",".join(server))
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
        named = [(read_source(fs.source), fs) for fs in here]
        managers = [each for each in imports if not each.file_system]
        nobodys = [x for x in managers if not any(x.nids & source.nids for source, _fs in named)]
        for source, fs in {(one.servers, one.name): (one, fs) for one, fs in named}.values():
            targets = [each for each in imports if each.file_system == source.name]
            # A source that names no server as the kernel does: none is known to be another's.
            mine = [*([x for x in managers if x.nids & source.nids] or nobodys), *targets]
            count = len({each.target for each in targets})
            wrong = list(dict.fromkeys(each.text() for each in mine if each.trouble))
            if not count:
                checks.append(Check(TARGETS, CONNECTED, "unknown", FAILED, fs.mount, problem))
            elif wrong:
                checks.append(Check(TARGETS, CONNECTED, wrong, FAILED, fs.mount, _REMEDY))
            else:
                found = f"{CONNECTED} ({count} targets)"
                checks.append(Check(TARGETS, CONNECTED, found, OK, fs.mount))
        return checks
