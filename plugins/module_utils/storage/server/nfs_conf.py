# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Settings of the kernel's server in /etc/nfs.conf.d: the next start of it obeys them.

The files there are read after /etc/nfs.conf, in the order of their names, and the last one wins:
what a later file of the operator's says is found, with its line.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...core.checks import FAILED, OK, PENDING, Check
from ...core.dataclass import dataclass
from ...core.part import NAME, Node, Plan, PlanError, Verdict
from . import exports_file
from .served import NFS_PORT, Wire

CHECK = "nfs_conf"
MAIN, DIRECTORY = "etc/nfs.conf", "etc/nfs.conf.d"
FILE = f"{DIRECTORY}/{NAME}.conf"
SECTION = "nfsd"
THREADS = 64
"""One serves one request at a time. The kernel's own 8 to 16 are for a few desktops: with
`nconnect` of 8 and checkpoints, four nodes alone keep some dozens of requests under way."""
MOST_THREADS = 4096


@dataclass(frozen=True)
class NfsConf:
    wire: Wire
    threads: int = THREADS

    def plan(self, node: Node) -> Plan:
        self._possible()
        return Plan([node.file(FILE, render(self._wanted(node)))])

    def verify(self, node: Node) -> Verdict:
        known = effective(node)
        checks = []
        for key, wanted in self._wanted(node).items():
            value, place = known.get(key, ("", ""))
            if value == wanted:
                checks.append(Check(CHECK, wanted, value, OK, key))
                continue
            ours = place in ("", f"/{FILE}") or place.startswith(f"/{MAIN}:")
            status = PENDING if node.check_mode and ours else FAILED
            reason = (
                f"{place} says so after our file, and wins: take that line out" if place else ""
            )
            checks.append(Check(CHECK, wanted, value, status, key, reason))
        return Verdict(checks)

    def _possible(self) -> None:
        wire = self.wire
        if not 1 <= self.threads <= MOST_THREADS:
            raise PlanError(f"threads: {self.threads} is not within 1 and {MOST_THREADS}")
        for what, ports in (("TCP", wire.ports), ("RDMA", wire.rdma_ports)):
            if len(ports) > 1:
                raise PlanError(
                    f"file systems served by this host have ports {', '.join(map(str, ports))} for "
                    f"{what}, and a server has one. Give them the same `port`"
                )
        if wire.ports and wire.ports == wire.rdma_ports:
            raise PlanError(
                f"port {wire.ports[0]} is wanted for TCP and for RDMA, which a server has one each "
                "of: 20049 is usual for RDMA"
            )

    def _wanted(self, node: Node) -> dict[str, str]:
        wire = self.wire
        wanted = {"threads": str(self.threads)}
        if wire.ports and wire.ports[0] != NFS_PORT:
            wanted["port"] = str(wire.ports[0])
        wanted["vers2"] = "n"
        if wire.version_3:
            wanted["vers3"] = "y"
        elif not exports_file.foreign(node):  # the operator's clients may speak it
            wanted["vers3"] = "n"
        if wire.rdma_ports:
            wanted["rdma"] = "y"
            wanted["rdma-port"] = str(wire.rdma_ports[0])
        return wanted


def render(wanted: Mapping[str, str]) -> str:
    return f"[{SECTION}]\n" + "".join(f"{key}={value}\n" for key, value in wanted.items())


def effective(node: Node) -> dict[str, tuple[str, str]]:
    """What the next start will read: key, its value, and the file and line that it is from."""
    directory = node.path(DIRECTORY)
    more = sorted(f"{DIRECTORY}/{path.name}" for path in directory.glob("*.conf"))
    found: dict[str, tuple[str, str]] = {}
    for file in (MAIN, *more):
        found.update(_section(node.read(file) or "", file))
    return found


def overruled(node: Node) -> frozenset[str]:
    """Settings that a file says which is read after ours."""
    known = effective(node).items()
    return frozenset(
        key
        for key, (_value, place) in known
        if place.startswith(f"/{DIRECTORY}/") and place.rpartition(":")[0] > f"/{FILE}"
    )


def _section(text: str, file: str) -> dict[str, tuple[str, str]]:
    found = {}
    inside = False
    for number, line in enumerate(text.split("\n"), 1):
        words = line.strip()
        if words.startswith("["):
            inside = words.strip("[] ").split('"')[0].strip().lower() == SECTION
        elif inside and "=" in words and words[0] not in "#;":
            key, _equals, value = words.partition("=")
            found[key.strip().lower()] = (value.strip(), f"/{file}:{number}")
    return found
