# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""/etc/hosts: every node and every rail in one managed block, the operator's lines as they are.

A name that stands twice with two addresses is worse than one that is missing: glibc returns both,
and MPI connects to either. So the operator's lines are read as well. The one conflict that
installers make themselves, the host's own name on a loopback address (Debian's
`127.0.1.1 node01`), is removed; any other is refused with its line.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from ..core.dataclass import dataclass
from ..core.files import replace_block
from ..mpi.hostfile import HostfileError

BLOCK = "names"
"""What the managed block is called in its markers."""
BEGIN = f"# BEGIN baremetal.mpi_roce {BLOCK}"
END = f"# END baremetal.mpi_roce {BLOCK}"
LOCALHOST = "localhost"


class HostsTableError(HostfileError):
    """Lines of the operator that contradict the cluster's names."""


@dataclass(frozen=True)
class Line:
    """One mapping of a hosts file: an address and its names, the canonical one first."""

    number: int
    address: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class TablePlan:
    """The wanted file, and what had to be taken out of the operator's lines, for the operator."""

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
    """The hosts file with the block of `table`, free of names that have a second address.

    `own` is this host's name. Raises HostsTableError with every conflict at once, by line.
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
        raise HostsTableError(findings)
    block = [f"{address} {' '.join(names)}" for address, *names in table]
    for address in ("::1", "127.0.0.1") if ipv6 else ("127.0.0.1",):
        if address not in has_localhost:
            block.insert(0, f"{address} {LOCALHOST}")
    body = "\n".join(kept) + "\n" if kept else ""
    return TablePlan(replace_block(body, block, BLOCK), tuple(removed))


def _managed_lines(text: str) -> set[int]:
    """The numbers of the lines between our markers. Raises HostsTableError on a broken block."""
    lines = text.splitlines()
    begins = [number for number, line in enumerate(lines, start=1) if line == BEGIN]
    ends = [number for number, line in enumerate(lines, start=1) if line == END]
    if not begins and not ends:
        return set()
    if len(begins) != 1 or len(ends) != 1 or ends[0] < begins[0]:
        where = ", ".join(str(number) for number in sorted(begins + ends))
        raise HostsTableError(
            [
                f"line {where}: the markers of the managed block ({BEGIN!r} ... {END!r}) do not "
                "stand once and in this order: delete them and what is between them"
            ]
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
