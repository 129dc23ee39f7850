# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The source of a Lustre mount: `nid[,nid][:nid[,nid]]:/fsname[/subdirectory]`.

A colon stands between servers that can take over from one another, a comma between several
NIDs of one server (mount.lustre(8)).
"""

from __future__ import annotations

import re

from ...dataclass import dataclass
from .nid import Nid, NidError, read_nid

EXAMPLE = "10.0.0.1@o2ib0:10.0.0.2@o2ib0:/lustre"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,8}")
_VERSION_6 = re.compile(r"(?:^|[:,])((?:\[|[0-9A-Fa-f]*:[0-9A-Fa-f]*:)[^@]*@\w*)")
_SPECIAL = re.compile(r"[\s\x00-\x1f,'\"\\]")


@dataclass(frozen=True)
class Source:
    """Where a file system is mounted from. `str` spells it as the kernel does."""

    servers: tuple[tuple[Nid, ...], ...]
    """Of the management service (MGS): one tuple of NIDs per server that it may run on."""
    name: str
    """Of the file system, at most eight characters."""
    directory: str = ""
    """Below its top, with a slash in front; empty for the top."""

    @property
    def nids(self) -> tuple[Nid, ...]:
        return tuple(nid for server in self.servers for nid in server)

    def __str__(self) -> str:
        servers = ":".join(",".join(map(str, server)) for server in self.servers)
        return f"{servers}:/{self.name}{self.directory}"


def read_source(text: str) -> Source:
    """Raises NidError."""
    servers, slash, path = text.partition(":/")
    if not slash or not servers or not path:
        raise NidError(
            "lustre.source", f"{text!r} is not a source of Lustre", f"Write one such as {EXAMPLE}"
        )
    # An address of IPv6 has colons of its own: said as what it is, not as many empty servers.
    version_6 = _VERSION_6.search(servers)
    if version_6 is not None:
        read_nid(version_6[1])
    found = tuple(
        tuple(read_nid(nid) for nid in server.split(",")) for server in servers.split(":")
    )
    name, _slash, below = path.partition("/")
    if not _NAME.fullmatch(name):
        raise NidError(
            "lustre.source_name",
            f"{name!r} in {text!r} is not the name of a Lustre file system",
            "It has at most eight letters, digits, - or _, as `lctl dl` on its servers tells",
        )
    parts = [part for part in below.split("/") if part]
    if any(part in (".", "..") for part in parts) or _SPECIAL.search(below):
        raise NidError(
            "lustre.source_directory",
            f"{'/' + below!r} in {text!r} is not a plain directory of the file system",
            "Write its path without .., blanks, commas and quotes",
        )
    source = Source(found, name, "".join(f"/{part}" for part in parts))
    twice = [nid for nid in source.nids if source.nids.count(nid) > 1]
    if twice:
        raise NidError("lustre.nid_twice", f"{twice[0]} is in {text!r} twice", "Name each NID once")
    return source


def same_source(wanted: str, found: str) -> bool:
    """Whether the kernel's source is the wanted one.

    It tells NIDs in its own spelling, and the addresses of names that mount.lustre looked up: those
    cannot be told from here, so that a name stands for any address in the same network. From 2.17
    on, where the first server is a name, it tells that name alone, and no directory.
    """
    try:
        one, other = read_source(wanted), read_source(found)
    except NidError:
        return wanted == found
    if one.nids[0].named and other == Source(((one.nids[0],),), one.name):
        return True
    if (one.name, one.directory) != (other.name, other.directory):
        return False
    if [len(server) for server in one.servers] != [len(server) for server in other.servers]:
        return False
    return all(
        mine.net == theirs.net and (mine.named or mine.address == theirs.address)
        for mine, theirs in zip(one.nids, other.nids)
    )
