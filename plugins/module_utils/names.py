# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A host's own name, and /etc/hosts with every node and rail in one managed block.

glibc returns every address that a name has in /etc/hosts, and MPI connects to any of them. So the
operator's lines are read as well. The one conflict that installers make, the host's own name on a
loopback address (Debian's `127.0.1.1 node01`), is removed; any other is refused with its line.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .core import mounts, resolve
from .core.checks import compare
from .core.dataclass import dataclass
from .core.files import FilePlan, replace_block
from .core.part import Node, Plan, PlanError, Step, StepError, Verdict

HOSTS = "/etc/hosts"
HOSTNAME = "/etc/hostname"
CLOUD_DIRECTORY = "/etc/cloud/cloud.cfg.d"
CLOUD_INIT = "preserve_hostname: true\nmanage_etc_hosts: false\n"
"""cloud-init sets name and /etc/hosts anew at every boot unless configured not to."""
IPV6 = "/proc/net/if_inet6"
BLOCK = "names"
"""Name of the managed block."""
BEGIN = f"# BEGIN baremetal.mpi_roce {BLOCK}"
END = f"# END baremetal.mpi_roce {BLOCK}"
LOCALHOST = "localhost"


@dataclass(frozen=True)
class Line:
    """One mapping of a hosts file: an address and its names, the canonical one first."""

    number: int
    address: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class TablePlan:
    """The wanted file, and the operator's lines that were changed for it."""

    after: str
    removed: tuple[str, ...]


def parse(text: str) -> list[Line]:
    """The mappings of a hosts file, read as glibc does: it skips what it does not understand."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].split()
        address = _address(words[0]) if len(words) > 1 else ""
        if address:
            lines.append(Line(number, address, tuple(words[1:])))
    return lines


def addresses(text: str) -> dict[str, set[str]]:
    """Every address each name has in a hosts file. Names in lower case: they know no case."""
    found: dict[str, set[str]] = {}
    for line in parse(text):
        for name in line.names:
            found.setdefault(name.lower(), set()).add(line.address)
    return found


def plan(text: str, table: Sequence[tuple[str, ...]], own: str, *, ipv6: bool = True) -> TablePlan:
    """The hosts file with the block of `table`, without names that have a second address.

    `own` is this host's name. Raises PlanError with every conflict at once, by line.
    """
    wanted = {name.lower(): address for address, *names in table for name in names}
    inside = _managed_lines(text)
    findings: list[str] = []
    removed: list[str] = []
    kept: list[str] = []
    has_localhost: set[str] = set()
    parsed = {line.number: line for line in parse(text)}
    for number, raw in enumerate(text.splitlines(), start=1):
        line = parsed.get(number)
        if number in inside or line is None:
            kept.append(raw)
            continue
        bad = [
            name for name in line.names if wanted.get(name.lower(), line.address) != line.address
        ]
        if LOCALHOST in line.names:
            if not _is_loopback(line.address):
                findings.append(
                    f"line {number}: {raw.strip()!r}: localhost has to be a loopback address: "
                    "correct that line"
                )
            has_localhost.add(line.address)
        if not bad:
            kept.append(raw)
        elif _is_loopback(line.address) and all(_is_own(name, own) for name in bad):
            removed.append(f"line {number}: {raw.strip()}")
            rest = [name for name in line.names if not _is_own(name, own)]
            if rest:
                comment = raw.partition("#")[2]
                kept.append(" ".join([line.address, *rest]) + (f" #{comment}" if comment else ""))
        else:
            findings.extend(
                f"line {number}: {raw.strip()!r}: maps {name} to {line.address}, the inventory to "
                f"{wanted[name.lower()]}: remove the name from that line, or correct the inventory"
                for name in bad
            )
    if findings:
        raise PlanError("\n".join([f"{HOSTS}:", *findings]))
    block = [f"{address} {' '.join(names)}" for address, *names in table]
    for address in ("::1", "127.0.0.1") if ipv6 else ("127.0.0.1",):
        if address not in has_localhost:
            block.insert(0, f"{address} {LOCALHOST}")
    body = "\n".join(kept) + "\n" if kept else ""
    return TablePlan(replace_block(body, block, BLOCK), tuple(removed))


def _managed_lines(text: str) -> set[int]:
    """The numbers of the lines between our markers. Raises PlanError on a broken block."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines, start=1) if line == BEGIN]
    ends = [number for number, line in enumerate(lines, start=1) if line == END]
    if not begins and not ends:
        return set()
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        where = ", ".join(str(number) for number in sorted(begins + ends))
        raise PlanError(
            f"{HOSTS}: line {where}: the markers of the managed block ({BEGIN!r} ... {END!r}) must"
            " be there once and in this order: delete them and what is between them"
        )
    return set(range(begins[0], ends[0] + 1))


def _address(word: str) -> str:
    """The address in its one canonical spelling, empty when it is none."""
    try:
        return str(ipaddress.ip_address(word))
    except ValueError:
        return ""


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _is_own(name: str, own: str) -> bool:
    """Whether an installer could have meant this host: its name, with or without some domain."""
    short = own.partition(".")[0].lower()
    return name.lower() == short or name.lower().startswith(f"{short}.")


class Names:
    """The name in the kernel and in /etc/hostname, the table, and cloud-init kept off both."""

    def __init__(self, name: str, table: Sequence[tuple[str, ...]], own: Mapping[str, str]) -> None:
        self.name = name
        self.table = table
        self.own = own
        """This host's names, with the addresses they must resolve to."""
        self.removed: tuple[str, ...] = ()

    def plan(self, node: Node) -> Plan:
        ipv6 = node.path(IPV6).exists()
        planned = plan(node.read(HOSTS) or "", self.table, self.name, ipv6=ipv6)
        self.removed = planned.removed
        files = [node.record(HOSTS, planned.after)]
        if node.path(CLOUD_DIRECTORY).is_dir():
            files.append(node.file(f"{CLOUD_DIRECTORY}/99-baremetal-mpi-roce.cfg", CLOUD_INIT))
        files.append(node.record(HOSTNAME, f"{self.name}\n"))
        _refuse_mounts(files, node.root)
        running = os.uname().nodename
        step = Step("host name", running, self.name, self._set)
        return Plan(files, [step] if running != self.name else [])

    def _set(self) -> None:
        """As hostnamectl does; works where no systemd answers."""
        try:
            socket.sethostname(self.name)
        except OSError as error:
            raise StepError(
                f"cannot set {self.name!r}: {error.strerror}: run as root; a container needs the"
                " capability SYS_ADMIN"
            ) from error

    def verify(self, node: Node) -> Verdict:
        """The running name, the table, and what this host's own names resolve to."""

        def check(name: str, wanted: Any, found: Any) -> Any:
            return compare(name, wanted, found, check_mode=node.check_mode)

        now = addresses(node.read(HOSTS) or "")
        wanted = {each: address for address, *names in self.table for each in names}
        right = sum(now.get(each.lower()) == {address} for each, address in wanted.items())
        found = {each: resolve.system_lookup(each) for each in self.own}
        localhost = "127.0.0.1" in resolve.system_lookup(LOCALHOST)
        return Verdict(
            [
                check("host_name", self.name, os.uname().nodename),
                check("names_in_table", len(wanted), right),
                *resolve.name_checks(self.own, found, check_mode=node.check_mode),
                check("localhost_resolves", True, localhost),
            ]
        )


def _refuse_mounts(files: Sequence[FilePlan], root: Path) -> None:
    """Container engines bind their own /etc/hosts and /etc/hostname over the image's."""
    points = {each.point for each in mounts.read(root)}
    names = [f"/{each.path.relative_to(root)}" for each in files if each.changed]
    mounted = [name for name in names if name in points]
    if mounted:
        raise PlanError(
            f"{', '.join(mounted)}: a mount of its own, as container engines make it, which cannot"
            " be replaced: unmount it, or start the container without (--no-hosts)"
        )
