# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host name, and a managed block in /etc/hosts with every node and rail.

Where the site's resolver has the names, the block contains only those of this host, the launchers
and the storage hosts, so that a new node changes no file of other nodes. A line leaves the block
only if the resolver answers for its name.

glibc returns every address that a name has in /etc/hosts, and MPI may connect to any of them, so
the operator's lines matter too. Installers put the host's own name on a loopback address (Debian's
`127.0.1.1 node01`); that entry is removed. Any other conflict is an error with its line.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from .core import resolve, systemd
from .core.checks import compare, not_applicable
from .core.files import HEADER, replace_block
from .core.part import Node, Plan, PlanError, Step, StepError, Verdict
from .core.text import some

HOSTS = "/etc/hosts"
CLOUD_DIRECTORY = "/etc/cloud/cloud.cfg.d"
CLOUD_INIT = "preserve_hostname: true\nmanage_etc_hosts: false\n"
"""Otherwise cloud-init rewrites the host name and /etc/hosts at every boot."""
BLOCK = "names"
BEGIN = f"# BEGIN baremetal.mpi_roce {BLOCK}"
END = f"# END baremetal.mpi_roce {BLOCK}"
LOCALHOST = "localhost"
DNSMASQ = "dnsmasq.service"
"""It serves the names of /etc/hosts, and reads the file again at SIGHUP: dnsmasq(8)."""
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")


def rail_name(node: str, interface: str) -> str:
    """Host name of one rail of a node: `node01-rail0`, `node01-rail3p1`."""
    return f"{node}-{interface}"


def is_host_name(name: str) -> bool:
    """Whether `name` is a host name (RFC 1123) and not just a number."""
    return len(name) <= 253 and not name.isdigit() and _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class HostsLine:
    """A line of a hosts file, as glibc reads it: it ignores lines without a valid address."""

    number: int
    text: str
    address: str
    """In canonical form; empty for lines that glibc ignores."""
    names: tuple[str, ...]

    @classmethod
    def parse(cls, number: int, text: str) -> HostsLine:
        words = text.partition("#")[0].split()
        try:
            return cls(number, text, str(ipaddress.ip_address(words[0])), tuple(words[1:]))
        except (IndexError, ValueError):
            return cls(number, text, "", ())

    @property
    def is_loopback(self) -> bool:
        return bool(self.address) and ipaddress.ip_address(self.address).is_loopback

    @property
    def label(self) -> str:
        return f"line {self.number}: {self.text.strip()!r}"

    def wrong(self, desired: Mapping[str, str]) -> list[str]:
        """Its names that must have another address."""
        return [
            name for name in self.names if desired.get(name.lower(), self.address) != self.address
        ]

    def without(self, names: Collection[str]) -> str:
        """The line without some of its names; empty if none remain."""
        remaining = [name for name in self.names if name not in names]
        comment = self.text.partition("#")[2]
        line = " ".join([self.address, *remaining]) + (f" #{comment}" if comment else "")
        return line if remaining else ""


def parse(text: str) -> list[HostsLine]:
    return [HostsLine.parse(number, line) for number, line in enumerate(text.splitlines(), 1)]


def addresses(text: str) -> dict[str, set[str]]:
    """Every address of each name in a hosts file. Names are in lower case."""
    found: dict[str, set[str]] = {}
    for line in parse(text):
        for name in line.names:
            found.setdefault(name.lower(), set()).add(line.address)
    return found


def wrong_names(text: str, desired: Mapping[str, str]) -> list[str]:
    """Names with another address, several, or none, each with its lines in a hosts file."""
    lines: dict[str, list[str]] = {}
    for line in parse(text):
        for name in line.names:
            lines.setdefault(name.lower(), []).append(line.label)
    found = addresses(text)
    return [
        f"{name} is {address}, found {some(lines.get(name.lower(), ['no line']))}"
        for name, address in desired.items()
        if found.get(name.lower()) != {address}
    ]


def plan(
    text: str, table: Sequence[tuple[str, ...]], own: str, *, ipv6: bool = True
) -> tuple[str, list[str]]:
    """The hosts file with the block for `table`, and the operator's lines adapted to it.

    `own` is the name of this host. Raises PlanError, listing every conflict by line.
    """
    desired = {name.lower(): address for address, *names in table for name in names}
    lines, conflicts = _outside_block(parse(text))
    kept: list[str] = []
    changed: list[str] = []
    for line in lines:
        if LOCALHOST in line.names and not line.is_loopback:
            conflicts.append(f"{line.label}: localhost must have a loopback address: correct it")
        wrong = line.wrong(desired)
        if wrong and line.is_loopback and all(_is_own(name, own) for name in wrong):
            changed.append(f"line {line.number}: {line.text.strip()}")
            remaining = line.without([name for name in line.names if _is_own(name, own)])
            kept += [remaining] if remaining else []
            continue
        kept.append(line.text)
        conflicts += [
            f"{line.label}: maps {name} to {line.address}, the inventory to "
            f"{desired[name.lower()]}: remove the name from that line, or correct the inventory"
            for name in wrong
        ]
    if conflicts:
        raise PlanError("\n".join([f"{HOSTS}:", *conflicts]))
    local = {line.address for line in lines if LOCALHOST in line.names}
    block = [f"{address} {' '.join(names)}" for address, *names in table]
    for address in ("::1", "127.0.0.1") if ipv6 else ("127.0.0.1",):
        if address not in local:
            block.insert(0, f"{address} {LOCALHOST}")
    body = "\n".join(kept) + "\n" if kept else ""
    return replace_block(body, block, BLOCK), changed


def with_own(table: Sequence[tuple[str, ...]], own: Mapping[str, str]) -> Sequence[tuple[str, ...]]:
    """The table, with the lines of the names in `own` that it lacks."""
    listed = {name for _address, *names in table for name in names}
    lines: dict[str, list[str]] = {}
    for name, address in own.items():
        if name not in listed:
            lines.setdefault(address, []).append(name)
    return [*table, *((address, *names) for address, names in lines.items())]


def zone_text(table: Sequence[tuple[str, ...]]) -> str:
    """The table as records to include in a zone of the cluster's domain (RFC 1035, 5.1). Start and
    serial of the zone are the operator's."""
    lines = [f"; {HEADER}"]
    for address, *names in table:
        kind = "AAAA" if ":" in address else "A"
        short = names[-1]
        lines += [
            f"{name}{'.' if '.' in name else ''} IN {kind} {address}"
            for name in names
            if name == short or not name.startswith(f"{short}.")
        ]
    return "\n".join(lines) + "\n"


def _outside_block(lines: Sequence[HostsLine]) -> tuple[list[HostsLine], list[str]]:
    """The lines, without names in the managed block, and an error if it is damaged."""
    outside: list[HostsLine] = []
    inside = False
    for line in lines:
        inside = line.text == BEGIN or (inside and line.text != END)
        outside.append(replace(line, address="", names=()) if inside else line)
    if inside or sum(line.text == BEGIN for line in lines) > 1:
        return outside, [f"{BEGIN!r} ... {END!r} must occur once: delete everything between"]
    return outside, []


def _is_own(name: str, own: str) -> bool:
    """Whether an installer may have meant this host: its name, with or without a domain."""
    short = own.partition(".")[0].lower()
    return name.lower() == short or name.lower().startswith(f"{short}.")


class Names:
    """Host name, the block in /etc/hosts, and cloud-init's settings."""

    def __init__(
        self,
        name: str,
        table: Sequence[tuple[str, ...]],
        own: Mapping[str, str],
        asked: Mapping[str, str] = MappingProxyType({}),
        zone: str = "",
    ) -> None:
        self.name = name
        self.table = with_own(table, own)
        """The lines of the block. Those of this host are always among them."""
        self.own = own
        """Names of this host, with the addresses to which they must resolve."""
        self.asked = asked
        """The same for names of another host, which may be known to the resolver only."""
        self.zone = zone
        """File for the names as records of a DNS zone, if any."""
        self.removed: list[str] = []

    def plan(self, node: Node) -> Plan:
        ipv6 = node.path("/proc/net/if_inet6").exists()
        before = node.read(HOSTS) or ""
        text, self.removed = plan(before, self.table, self.name, ipv6=ipv6)
        self._keep_unanswered(node, addresses(before), addresses(text))
        files = [node.record(HOSTS, text)]
        steps = [] if before == text else self._reload(node)
        if self.zone:
            files.append(node.record(self.zone, zone_text(self.table)))
        if node.path(CLOUD_DIRECTORY).is_dir():
            files.append(node.file(f"{CLOUD_DIRECTORY}/99-baremetal-mpi-roce.cfg", CLOUD_INIT))
        files.append(node.record("/etc/hostname", f"{self.name}\n"))
        running = os.uname().nodename
        if running != self.name:
            steps.append(Step("host name", running, self.name, self._set))
        return Plan(files, steps)

    def _keep_unanswered(
        self, node: Node, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        """Refuse to remove lines for which the resolver does not answer. Raises PlanError."""
        leave = {
            name: self.asked[name]
            for name in self.asked
            if name.lower() in before and name.lower() not in after
        }
        if not leave:
            return
        sources = resolve.servers(node.root)
        lookup = resolve.server_lookup(node.look, sources) if sources else lambda _name: ()
        found = resolve.find_addresses(list(leave), {}, lookup)
        wrong = [
            f"{name}: {', '.join(found.get(name, ())) or 'nothing'}, not {address}"
            for name, address in leave.items()
            if set(found.get(name, ())) != {address}
        ]
        if wrong:
            raise PlanError(
                f"{HOSTS}: nothing was changed: with cluster_hosts_mode: resolver, lines of other"
                f" hosts leave this file, but {' '.join(sources) or 'no name server'} of"
                f" {resolve.NSSWITCH} resolves {some(wrong, resolve.MAX_LISTED_NAMES)}. Load the"
                " names into the site's DNS, or into dnsmasq on a launcher, first"
            )

    def _reload(self, node: Node) -> list[Step]:
        """Have a dnsmasq on this host read the changed file."""
        if not systemd.installed(node, [DNSMASQ]) or not systemd.active(node, DNSMASQ):
            return []
        act = node.doing("systemctl", "kill", "--signal=HUP", DNSMASQ)
        return [Step(DNSMASQ, f"with its old {HOSTS}", "reloaded", act)]

    def _set(self) -> None:
        """Like hostnamectl, but independent of systemd."""
        try:
            socket.sethostname(self.name)
        except OSError as error:
            raise StepError(
                f"cannot set {self.name!r}: {error.strerror}: run as root; a container needs the"
                " capability SYS_ADMIN"
            ) from error

    def verify(self, node: Node) -> Verdict:
        """Check the running name, the table, and what this host's names resolve to."""

        def check(name: str, wanted: Any, found: Any, reason: str = "") -> Any:
            return compare(name, wanted, found, check_mode=node.check_mode, reason=reason)

        desired = {name: address for address, *names in self.table for name in names}
        wrong = wrong_names(node.read(HOSTS) or "", desired)
        reason = some(wrong, resolve.MAX_LISTED_NAMES)
        checks = [
            check("host_name", self.name, os.uname().nodename),
            check("names_in_table", len(desired), len(desired) - len(wrong), reason),
            source := resolve.source_check(node.root),
        ]
        if source.by_hand:  # a name server that does not respond costs seconds per name
            reason = f"not checked until {source.subject} is corrected"
            skipped = ("names_resolve", "localhost_resolves")
            return Verdict([*checks, *(not_applicable(name, True, reason) for name in skipped)])
        found, quick = resolve.timed([*self.own, LOCALHOST])
        wanted = {**self.asked, **self.own}
        localhost = "127.0.0.1" in found.pop(LOCALHOST, ())
        checks.append(quick)
        if quick.reason:
            reason = f"not checked after a lookup that took {quick.found}"
            return Verdict([*checks, not_applicable("names_resolve", True, reason)])
        if self.asked:
            found.update(resolve.find_addresses(list(self.asked), {}))
        return Verdict(
            [
                *checks,
                *resolve.name_checks(wanted, found, check_mode=node.check_mode),
                check("localhost_resolves", True, localhost),
            ]
        )
