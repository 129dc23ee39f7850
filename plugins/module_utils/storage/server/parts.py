# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From what this host serves to the parts, in the order in which they are done."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping, Sequence

from ...node.part import Node, Part
from ..file_system import NFS, FileSystem
from .clients import Client
from .device import Device, LeftDevices
from .directory import Directory, User
from .exports import Exports, Withdrawn
from .nfs_conf import THREADS, NfsConf
from .served import Served, wire
from .services import Services


def served_by(
    host: str, systems: Sequence[FileSystem], clients: Mapping[str, Sequence[Client]]
) -> list[Served]:
    """What a host serves. `clients`: by file system, the hosts that mount it from this one."""
    return [
        Served(each, tuple(clients.get(each.name, ())))
        for each in systems
        if each.type == NFS and each.serve is not None and each.serve.host == host
    ]


def server_parts(
    served: Sequence[Served],
    user: User,
    *,
    threads: int = THREADS,
    absent: Collection[str] = (),
    restart: bool = False,
) -> list[Part]:
    """Of every host, also of one that serves nothing: what it served once is found and named.

    `absent`: served directories that are gone for good and unmounted everywhere: nodes would lose
    what they have not written yet. `restart`: the server may be restarted under its clients.
    """
    absent = frozenset(map(posixpath.normpath, absent))
    exports = Exports(served, absent)
    wanted = wire(served) if served else None

    def leaves(node: Node) -> bool:
        return bool(exports.left(node))

    parts: list[Part] = []
    for each in served:
        parts += _place(each, user)
    parts += [
        Withdrawn(exports),
        exports,
        NfsConf(wanted, threads, leaves),
        Services(wanted, threads, restart, leaves),
        LeftDevices([each.path for each in served if each.device], absent),
    ]
    return parts


def _place(each: Served, user: User) -> list[Part]:
    """The device, where there is one, and the directory that is served."""
    system, serve = each.system, each.system.serve
    parts: list[Part] = []
    if serve is not None and serve.device:
        parts.append(Device(system.name, serve.device, serve.format, each.path))
    directory = Directory(each.path, system.owner, system.group, system.mode, user, each.device)
    return [*parts, directory]
