# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Connections with an NFS server (`nconnect`): the kernel has one set for all mounts from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from . import nfs_options
from .mount_kind import Difference
from .mounted import Mount
from .wanted_mounts import WantedMount


def hint(differences: Sequence[Difference]) -> str:
    if "nconnect" not in {each.option for each in differences}:
        return ""
    return "all mounts from one server share its connections, whose number the first of them sets"


def _server(each: WantedMount) -> tuple[str, str, str, int]:
    nfs = each.fs.nfs
    server = nfs_options.source(each.fs).rpartition(":/")[0]
    return server, nfs.version, nfs.transport, nfs.port


def shared(wanted: Sequence[WantedMount]) -> list[str]:
    first: dict[tuple[str, str, str, int], WantedMount] = {}
    found = []
    for each in wanted:
        if each.kind is not nfs_options:
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
        if "nconnect" not in {one.option for one in moves.get(each.point, ())}:
            continue
        server = _server(each)[0]
        stays = [
            mount.point
            for mount in table
            if mount.kind in nfs_options.TYPES
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
