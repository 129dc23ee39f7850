# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a host serves: a file system of the cluster, and the hosts that mount it."""

from __future__ import annotations

from collections.abc import Sequence

from ...dataclass import dataclass
from ..file_system import RDMA, FileSystem
from .clients import Client, addresses_of
from .exports_file import MOUNTED, OPTIONS, Block

VERSION_3 = "3"
NFS_PORT = 2049


@dataclass(frozen=True)
class Served:
    system: FileSystem
    clients: tuple[Client, ...]

    @property
    def path(self) -> str:
        return self.system.path

    @property
    def device(self) -> str:
        return self.system.serve.device if self.system.serve else ""

    def block(self, *, mounted: bool = True) -> Block:
        """`mounted`: whether the device, where there is one, is mounted by us."""
        options = (*OPTIONS, MOUNTED) if self.device and mounted else OPTIONS
        return Block(
            self.system.name, self.system.mount, self.path, addresses_of(self.clients), options
        )


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
