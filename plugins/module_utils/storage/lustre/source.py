# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NIDs, and the source of a Lustre mount: `nid[,nid][:nid[,nid]]:/fsname[/subdirectory]`.

A colon stands between servers that can take over from one another, a comma between several
NIDs of one server (mount.lustre(8)). What is wrong with a source is found where the model is read.
"""

from __future__ import annotations

import re

from ...core.dataclass import dataclass

TCP, O2IB = "tcp", "o2ib"
_ADDRESS = re.compile(r"[\d.]+")


@dataclass(frozen=True)
class Nid:
    """`net` is as LNet spells it: `o2ib`, never `o2ib0`."""

    address: str
    """IPv4, or the name of a host, which mount.lustre looks up once."""
    net: str

    @property
    def named(self) -> bool:
        return _ADDRESS.fullmatch(self.address) is None

    def __str__(self) -> str:
        return f"{self.address}@{self.net}"


def kind(net: str) -> str:
    """`o2ib` of `o2ib2`."""
    return net.rstrip("0123456789")


def read_net(text: str) -> str:
    """The network in LNet's own spelling, in which the number 0 is left out."""
    number = int(text[len(kind(text)) :] or 0)
    return f"{kind(text)}{number or ''}"


def read_nid(text: str) -> Nid:
    address, _at, net = text.partition("@")
    return Nid(address, read_net(net))


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
    def first(self) -> Nid:
        return self.servers[0][0]

    def __str__(self) -> str:
        servers = ":".join(",".join(map(str, server)) for server in self.servers)
        return f"{servers}:/{self.name}{self.directory}"


def read_source(text: str) -> Source:
    """Any text is read: the kernel's table may hold sources that the model refuses."""
    servers, _sign, path = text.partition(":/")
    name, _slash, below = path.partition("/")
    return Source(
        tuple(tuple(map(read_nid, server.split(","))) for server in servers.split(":")),
        name,
        "".join(f"/{part}" for part in below.split("/") if part),
    )


def same_source(wanted: str, found: str) -> bool:
    """Whether the kernel's source is the wanted one.

    The kernel shows NIDs in its own spelling, and for a name the address that mount.lustre looked
    up, so a name matches any address in the same network. From 2.17 on, where the first server is
    a name, the kernel shows that name alone, and no directory.
    """
    one, other = read_source(wanted), read_source(found)
    if one.first.named and other == Source(((one.first,),), one.name):
        return True
    if (one.name, one.directory) != (other.name, other.directory):
        return False
    if [len(server) for server in one.servers] != [len(server) for server in other.servers]:
        return False
    pairs = (pair for servers in zip(one.servers, other.servers) for pair in zip(*servers))
    return all(
        mine.net == theirs.net and (mine.named or mine.address == theirs.address)
        for mine, theirs in pairs
    )
