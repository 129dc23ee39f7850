# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host serves: a file system of the cluster, and the hosts that mount it.

These are let in by their addresses, and nobody else. An address, never a name: what a name resolves
to is decided by whoever answers, and a server that has to ask serves nobody while the answer is
missing. Never a network: it has more than the nodes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.dataclass import dataclass
from ..file_system import NFS, RDMA, FileSystem
from .exports_file import MOUNTED, OPTIONS, Block

VERSION_3 = "3"
NFS_PORT = 2049


class ClientError(ValueError):
    """Not a client that can be let in; the text says which, and why."""


def read_clients(entries: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """The addresses of `{name, addresses}`, each once, in the order of addresses: that of hosts may
    be another one tomorrow. Raises ClientError, with a line for each mistake."""
    found, wrong = set(), []
    for entry in entries:
        name, addresses = entry.get("name") or "?", entry.get("addresses")
        if not addresses:
            wrong.append(f"client {name}: it has no address")
        for text in addresses or ():
            try:
                found.add(_address(str(text)))
            except ValueError:
                wrong.append(
                    f"client {name}: {str(text)!r} is no address of one host, and exports are to "
                    "single addresses only. Correct the inventory"
                )
    if wrong:
        raise ClientError("\n".join(wrong))
    return tuple(sorted(found, key=_key))


def _address(text: str) -> str:
    address = ipaddress.ip_address(text)
    if address.is_unspecified or address.is_multicast or address.is_loopback:
        raise ValueError(text)
    return str(address)


def _key(text: str) -> tuple[int, int]:
    address = ipaddress.ip_address(text)
    return address.version, int(address)


@dataclass(frozen=True)
class Served:
    system: FileSystem
    addresses: tuple[str, ...]
    """All that requests of the hosts that mount it may come from."""

    @property
    def path(self) -> str:
        return self.system.path

    @property
    def device(self) -> str:
        return self.system.serve.device if self.system.serve else ""

    def block(self, *, mounted: bool = True) -> Block:
        """`mounted`: whether the device, where there is one, is mounted by us."""
        options = (*OPTIONS, MOUNTED) if self.device and mounted else OPTIONS
        system = self.system
        return Block(system.name, system.mount, self.path, self.addresses, options)


@dataclass(frozen=True)
class Wire:
    """What the server has to listen on, and to speak."""

    ports: tuple[int, ...] = ()
    """Of TCP."""
    rdma_ports: tuple[int, ...] = ()
    version_3: bool = False


def wire(served: Sequence[Served]) -> Wire:
    systems = [each.system for each in served]
    rdma = {each.nfs.port for each in systems if each.nfs.transport == RDMA}
    tcp = {each.nfs.port for each in systems if each.nfs.transport != RDMA}
    return Wire(
        tuple(sorted(tcp)),
        tuple(sorted(rdma)),
        any(each.nfs.version == VERSION_3 for each in systems),
    )


def served_by(
    host: str, systems: Sequence[FileSystem], addresses: Mapping[str, Sequence[str]]
) -> list[Served]:
    """What a host serves. `addresses`: by file system, of the hosts that mount it from this one."""
    return [
        Served(each, tuple(addresses.get(each.name, ())))
        for each in systems
        if each.type == NFS and each.serve is not None and each.serve.host == host
    ]
