# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A shared file system as one value: an entry of `cluster_filesystems` with every default."""

from __future__ import annotations

from dataclasses import asdict, field
from typing import Any, Optional

from ..dataclass import dataclass

NFS, LUSTRE = "nfs", "lustre"
TCP, RDMA = "tcp", "rdma"
CHECKPOINTS, DATASETS, HOME, SOFTWARE, SCRATCH = (
    "checkpoints", "datasets", "home", "software", "scratch"
)  # fmt: skip
PURPOSES = (CHECKPOINTS, DATASETS, HOME, SOFTWARE, SCRATCH)


@dataclass(frozen=True)
class Nfs:
    """How the server is spoken to. `hard` is not a choice: soft mounts lose what jobs wrote."""

    version: str = "4.2"
    """`4.2`, `4.1` or `3`."""
    transport: str = TCP
    """`tcp` or `rdma`."""
    port: int = 2049
    """Of the server; 20049 is usual for RDMA."""
    connections: int = 8
    """`nconnect`: connections, 1 to 16."""


@dataclass(frozen=True)
class Lustre:
    flock: bool = True
    stripe_count: int = 0
    """Objects that a new file of this file system is spread over: -1 for all, 0 to leave it."""
    stripe_size_mib: int = 0
    """0 to leave it."""
    pool: str = ""


@dataclass(frozen=True)
class Serve:
    """This cluster's own NFS server of it. The directory is the path of `source`."""

    host: str
    """Host of the inventory that serves it."""
    device: str = ""
    """Block device under the directory, as /dev/disk/by-id/...; empty: the directory as it is."""
    format: str = ""
    """`xfs` or `ext4`: made on the device only where that has nothing at all on it."""


@dataclass(frozen=True)
class Expectation:
    """What the verification compares figures with; 0 for no threshold. Bytes are GB = 10^9."""

    write_gb_s: float = 0.0
    """One node alone."""
    read_gb_s: float = 0.0
    together_write_gb_s: float = 0.0
    """All nodes at once."""
    together_read_gb_s: float = 0.0


@dataclass(frozen=True)
class FileSystem:
    name: str
    type: str
    """`nfs` or `lustre`."""
    source: str
    """`server:/path`; of Lustre `nid[:nid...]:/fsname[/subdirectory]`."""
    mount: str
    """Absolute path of the mount point, the same on every host."""
    purpose: str
    owner: str = ""
    """Owner of the file system's top directory; empty: the MPI user."""
    group: str = ""
    mode: str = "0770"
    space_gib: int = 0
    """Free space wanted; 0: not judged."""
    files: int = 0
    """Free inodes wanted; 0: not judged."""
    hosts: tuple[str, ...] = ("compute", "launcher")
    """Groups that mount it."""
    options: tuple[str, ...] = ()
    """Further mount options."""
    nfs: Nfs = field(default_factory=Nfs)
    lustre: Lustre = field(default_factory=Lustre)
    serve: Optional[Serve] = None
    expect: Expectation = field(default_factory=Expectation)

    @property
    def server(self) -> str:
        """Host or address of an NFS server, brackets of IPv6 kept."""
        return self.source.rpartition(":/")[0]

    @property
    def path(self) -> str:
        """The directory there."""
        return "/" + self.source.rpartition(":/")[2]

    def as_variable(self) -> dict[str, Any]:
        """One entry of `cluster_filesystems`; reading it gives this file system again.

        Of `nfs` and `lustre` only the one that it is: what is said of the other is a mistake.
        """
        value = asdict(self)
        del value[LUSTRE if self.type == NFS else NFS]
        return {**value, "hosts": list(self.hosts), "options": list(self.options)}
