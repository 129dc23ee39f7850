# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Connections with an NFS server: the kernel has one set for all mounts from it.

From version 4.1 on a client knows a server by what it says of itself, not by its address. A second
mount of the same version, by another address or transport, silently goes over the connections of
the first, and is told with the first one's address. Another version is another client to both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import rdma_module
from .file_system import RDMA
from .mount_options import Difference
from .mounted import Mount
from .wanted_mounts import NFS_TYPES, WantedMount

_ONE_WAY = frozenset(("proto", "port"))
"""What two mounts of one version from one server cannot have otherwise."""


def hint(differences: Sequence[Difference]) -> str:
    if not {each.subject for each in differences} & _ONE_WAY:
        return ""
    return (
        "is another address or transport of the same server mounted by the same version? From "
        "4.1 on the kernel takes the connections it has: write another nfs.version for one"
    )


def not_mounted(each: WantedMount) -> str:
    """What to look at first where a mount did not come about, besides what the mount said."""
    if not each.is_nfs:
        return ""
    nfs = each.fs.nfs
    if nfs.transport == RDMA:
        return f"; over RDMA the module {rdma_module.RPCRDMA} is needed: see {rdma_module.CHECK}"
    return f"; is port {nfs.port} of {each.fs.server} open for this host (firewall-cmd --list-all)?"


def _identity(each: WantedMount) -> tuple[str, str]:
    """The server as the kernel will know it, as far as the model says: who serves, and how."""
    serve = each.fs.serve
    return (f"host {serve.host}" if serve else _server(each)[0]), each.fs.nfs.version


def one_way(wanted: Sequence[WantedMount]) -> list[str]:
    """Two ways to one server that the kernel would make one of."""
    first: dict[tuple[str, str], WantedMount] = {}
    found = []
    for each in wanted:
        if not each.is_nfs or not each.fs.nfs.version.startswith("4"):
            continue
        other = first.setdefault(_identity(each), each)
        if _server(other) != _server(each):
            found.append(
                f"{each.point}: from {_way(each)}, and {other.point} from {_way(other)}: that is "
                f"one server, and version {each.fs.nfs.version} would take the connections of "
                "whichever is mounted first for both. Write the same address, transport and port, "
                "or another version for one of them (nfs.version: 4.1 beside 4.2)"
            )
    return found


def _way(each: WantedMount) -> str:
    server, _version, transport, port = _server(each)
    return f"{server} by {transport}, port {port}"


def _server(each: WantedMount) -> tuple[str, str, str, int]:
    nfs = each.fs.nfs
    server = each.source.rpartition(":/")[0]
    return server, nfs.version, nfs.transport, nfs.port


def shared(wanted: Sequence[WantedMount]) -> list[str]:
    first: dict[tuple[str, str, str, int], WantedMount] = {}
    found = []
    for each in wanted:
        if not each.is_nfs:
            continue
        other = first.setdefault(_server(each), each)
        if other.fs.nfs.connections != each.fs.nfs.connections:
            found.append(
                f"{each.point}: {each.fs.nfs.connections} connections with {each.fs.server}, and "
                f"{other.fs.nfs.connections} for {other.point}: all mounts from one server share "
                "them. Write the same number (nfs.connections) for both"
            )
    return found


def kept(
    wanted: Sequence[WantedMount],
    moves: Mapping[str, Sequence[Difference]],
    table: Sequence[Mount],
) -> list[str]:
    """A number of connections that cannot change: another mount from the server stays."""
    found = []
    for each in wanted:
        if "nconnect" not in {one.subject for one in moves.get(each.point, ())}:
            continue
        server = _server(each)[0]
        stays = [
            mount.point
            for mount in table
            if mount.kind in NFS_TYPES
            and mount.source.lower().rpartition(":/")[0] == server
            and mount.point not in moves
        ]
        if stays:
            found.append(
                f"{each.point}: the number of its connections can only change when nothing is "
                f"mounted from {server}, and {', '.join(sorted(set(stays)))} stays. Unmount that "
                "as well, or leave nfs.connections as it was"
            )
    return found
