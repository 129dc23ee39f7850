# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which of the cluster's file systems one host mounts, and how.

The kernel has one set of connections for all mounts from an NFS server. From version 4.1 on it
knows a server by what it says of itself, not by its address: a second mount of the same version,
by another address or transport, silently goes over the connections of the first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..core.dataclass import dataclass
from . import rdma_module
from .file_system import LUSTRE, NFS, RDMA, FileSystem
from .lustre.source import read_source, same_source
from .mount_options import FLAGS, Difference, options
from .mounted import Mount, on, place
from .source import plain_nfs
from .units import MountUnit

BIND = "none"
NFS_TYPES = ("nfs", "nfs4")
"""What the kernel calls it."""
NOFAIL = "nofail"
"""A disk that died keeps nothing but its own from booting: systemd would wait for it otherwise."""


@dataclass(frozen=True)
class WantedMount:
    """A file system at its mount point on this host."""

    fs: FileSystem
    unit: MountUnit

    @property
    def is_nfs(self) -> bool:
        """And no bind mount of what this host serves itself."""
        return self.unit.kind == NFS

    @property
    def point(self) -> str:
        return self.fs.mount

    @property
    def source(self) -> str:
        return self.unit.what

    @property
    def device(self) -> str:
        """Of a directory that this host serves itself; empty where it is served as it is."""
        return self.fs.serve.device if self.unit.is_bind and self.fs.serve is not None else ""

    def is_source(self, running: Mount, mounts: Collection[Mount]) -> bool:
        """Whether what runs is of the wanted file system and directory."""
        if self.unit.is_bind:
            # What shows the directory below a device that is still to come shows another one then.
            awaited = self.device and on(mounts, self.source) is None
            return not awaited and place(mounts, self.source) == (running.device, running.root)
        if not self.of_this_kind(running):
            return False
        if self.fs.type == LUSTRE:
            return same_source(self.source, running.source)
        return plain_nfs(self.source) == plain_nfs(running.source)

    def of_this_kind(self, running: Mount) -> bool:
        """Whether an earlier state of the same mount may look like that."""
        return running.kind in ((LUSTRE,) if self.fs.type == LUSTRE else NFS_TYPES)


def wanted_mounts(
    filesystems: Iterable[FileSystem],
    host: str,
    groups: Collection[str],
    timeout_s: int,
    lustre_after: tuple[str, ...] = (),
) -> tuple[WantedMount, ...]:
    """Those of a host in `groups`, in the order of the list, outer mount points before inner ones.

    Where the host serves a file system itself it gets a bind mount: a client whose server is the
    same kernel waits for itself when memory is short.
    """
    found = []
    for fs in filesystems:
        if not set(fs.hosts) & set(groups):
            continue
        if fs.type == NFS and fs.serve is not None and fs.serve.host == host:
            flags = tuple(word for word in fs.options if word in FLAGS)
            unit = MountUnit(fs.name, fs.path, fs.mount, BIND, ("bind", NOFAIL, *flags), timeout_s)
            if fs.path != fs.mount:
                found.append(WantedMount(fs, unit))
            continue
        # In the kernel's spelling, so that a unit and the kernel's table can be compared by eye.
        source = str(read_source(fs.source)) if fs.type == LUSTRE else plain_nfs(fs.source)
        after = lustre_after if fs.type == LUSTRE else ()
        words = options(fs, timeout_s)
        unit = MountUnit(fs.name, source, fs.mount, fs.type, words, timeout_s, after)
        found.append(WantedMount(fs, unit))
    return tuple(sorted(found, key=lambda each: each.point.count("/")))


def at_one_server(wanted: Sequence[WantedMount]) -> list[str]:
    """Two ways to one server that the kernel would make one of, and two numbers of connections."""
    first: dict[tuple[str, str], WantedMount] = {}
    counts: dict[tuple[str, str, str, int], WantedMount] = {}
    found = []
    for each in wanted:
        if not each.is_nfs:
            continue
        nfs, serve = each.fs.nfs, each.fs.serve
        identity = f"host {serve.host}" if serve else _server(each)[0]
        other = first.setdefault((identity, nfs.version), each)
        if nfs.version.startswith("4") and _server(other) != _server(each):
            found.append(
                f"{each.point}: from {_way(each)}, and {other.point} from {_way(other)}: that is "
                f"one server, and version {nfs.version} would take the connections of whichever is "
                "mounted first for both. Write the same address, transport and port, or another "
                "version for one of them (nfs.version: 4.1 beside 4.2)"
            )
        other = counts.setdefault(_server(each), each)
        if other.fs.nfs.connections != nfs.connections:
            found.append(
                f"{each.point}: {nfs.connections} connections with {each.fs.server}, and "
                f"{other.fs.nfs.connections} for {other.point}: all mounts from one server share "
                "them. Write the same number (nfs.connections) for both"
            )
    return found


def _way(each: WantedMount) -> str:
    server, _version, transport, port = _server(each)
    return f"{server} by {transport}, port {port}"


def _server(each: WantedMount) -> tuple[str, str, str, int]:
    nfs = each.fs.nfs
    return each.source.rpartition(":/")[0], nfs.version, nfs.transport, nfs.port


def one_way_hint(differences: Sequence[Difference]) -> str:
    if not {each.subject for each in differences} & {"proto", "port"}:
        return ""
    return (
        "is another address or transport of the same server mounted by the same version? From "
        "4.1 on the kernel takes the connections it has: write another nfs.version for one"
    )


def look_first(each: WantedMount) -> str:
    """What to look at first where a mount did not come about, besides what the mount said."""
    if not each.is_nfs:
        return ""
    nfs = each.fs.nfs
    if nfs.transport == RDMA:
        return f"; over RDMA the module {rdma_module.RPCRDMA} is needed: see {rdma_module.CHECK}"
    return f"; is port {nfs.port} of {each.fs.server} open for this host (firewall-cmd --list-all)?"
