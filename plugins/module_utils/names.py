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
from typing import Any

from .core import resolve
from .core.checks import compare, not_applicable
from .core.files import replace_block
from .core.part import Node, Plan, PlanError, Step, StepError, Verdict
from .core.text import some

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


def parse(line: str) -> tuple[str, list[str]]:
    """Address, in its canonical spelling, and names of a line; as glibc, nothing of any other."""
    words = line.partition("#")[0].split()
    try:
        return str(ipaddress.ip_address(words[0])), words[1:]
    except (IndexError, ValueError):
        return "", []


def addresses(text: str) -> dict[str, set[str]]:
    """Every address each name has in a hosts file. Names in lower case: they know no case."""
    found: dict[str, set[str]] = {}
    for address, names in map(parse, text.splitlines()):
        for name in names:
            found.setdefault(name.lower(), set()).add(address)
    return found


def wrong_names(text: str, wanted: Mapping[str, str]) -> list[str]:
    """Names with another address, several, or none: with their lines in a hosts file."""
    lines: dict[str, list[str]] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        for name in parse(raw)[1]:
            lines.setdefault(name.lower(), []).append(f"line {number}: {raw.strip()!r}")
    found = addresses(text)
    return [
        f"{name} is {address}, found {some(lines.get(name.lower(), ['no line']))}"
        for name, address in wanted.items()
        if found.get(name.lower()) != {address}
    ]


def plan(
    text: str, table: Sequence[tuple[str, ...]], own: str, *, ipv6: bool = True
) -> tuple[str, list[str]]:
    """The hosts file with the block of `table`, and the operator's lines that were changed for it.

    `own` is this host's name. Raises PlanError with every conflict at once, by line.
    """
    wanted = {name.lower(): address for address, *names in table for name in names}
    findings: list[str] = []
    removed: list[str] = []
    kept: list[str] = []
    has_localhost: set[str] = set()
    inside = False
    for number, raw in enumerate(text.splitlines(), start=1):
        inside = raw == BEGIN or (inside and raw != END)
        address, names = ("", []) if inside else parse(raw)
        where = f"line {number}: {raw.strip()!r}"
        if LOCALHOST in names:
            has_localhost.add(address)
            if not _is_loopback(address):
                findings.append(f"{where}: localhost has to be a loopback address: correct it")
        bad = [name for name in names if wanted.get(name.lower(), address) != address]
        if not bad:
            kept.append(raw)
        elif _is_loopback(address) and all(_is_own(name, own) for name in bad):
            removed.append(f"line {number}: {raw.strip()}")
            rest = [name for name in names if not _is_own(name, own)]
            if rest:
                comment = raw.partition("#")[2]
                kept.append(" ".join([address, *rest]) + (f" #{comment}" if comment else ""))
        else:
            findings.extend(
                f"{where}: maps {name} to {address}, the inventory to {wanted[name.lower()]}:"
                " remove the name from that line, or correct the inventory"
                for name in bad
            )
    if inside or kept.count(BEGIN) > 1:
        findings.append(f"{BEGIN!r} ... {END!r} must be there once: delete all that is between")
    if findings:
        raise PlanError("\n".join([f"{HOSTS}:", *findings]))
    block = [f"{address} {' '.join(names)}" for address, *names in table]
    for address in ("::1", "127.0.0.1") if ipv6 else ("127.0.0.1",):
        if address not in has_localhost:
            block.insert(0, f"{address} {LOCALHOST}")
    body = "\n".join(kept) + "\n" if kept else ""
    return replace_block(body, block, BLOCK), removed


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
        self.removed: list[str] = []

    def plan(self, node: Node) -> Plan:
        ipv6 = node.path(IPV6).exists()
        text, self.removed = plan(node.read(HOSTS) or "", self.table, self.name, ipv6=ipv6)
        files = [node.record(HOSTS, text)]
        if node.path(CLOUD_DIRECTORY).is_dir():
            files.append(node.file(f"{CLOUD_DIRECTORY}/99-baremetal-mpi-roce.cfg", CLOUD_INIT))
        files.append(node.record(HOSTNAME, f"{self.name}\n"))
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

        def check(name: str, wanted: Any, found: Any, reason: str = "") -> Any:
            return compare(name, wanted, found, check_mode=node.check_mode, reason=reason)

        wanted = {each: address for address, *names in self.table for each in names}
        wrong = wrong_names(node.read(HOSTS) or "", wanted)
        shown = some(wrong, resolve.MAX_LISTED_NAMES)
        checks = [
            check("host_name", self.name, os.uname().nodename),
            check("names_in_table", len(wanted), len(wanted) - len(wrong), shown),
            source := resolve.source_check(node.root),
        ]
        if source.by_hand:  # a server that does not answer costs seconds for each name
            why = f"not asked for before {source.subject} is corrected"
            skipped = ("names_resolve", "localhost_resolves")
            return Verdict([*checks, *(not_applicable(name, True, why) for name in skipped)])
        found, quick = resolve.timed([*self.own, LOCALHOST])
        localhost = "127.0.0.1" in found.pop(LOCALHOST, ())
        checks.append(quick)
        if quick.reason:
            why = f"not asked for after the one that took {quick.found}"
            return Verdict([*checks, not_applicable("names_resolve", True, why)])
        return Verdict(
            [
                *checks,
                *resolve.name_checks(self.own, found, check_mode=node.check_mode),
                check("localhost_resolves", True, localhost),
            ]
        )
