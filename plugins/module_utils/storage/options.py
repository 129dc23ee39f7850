# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, in the order in which they are done."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner, run
from ..core.dataclass import dataclass
from ..core.part import Node, Part, Plan, PlanError, Verdict
from ..core.system import manager_of
from ..packages.apt import node_runner
from ..packages.manager import Manager
from ..packages.package import PackageSet
from ..software.distribution import Distribution
from .file_system import LUSTRE, RDMA, FileSystem
from .lustre.client import AFTER, LustreParts, NotKnown, client_packages, lustre_parts
from .lustre.keys import PRESENT
from .lustre.left import without_lnet
from .lustre.settings import LustreError, LustreSettings, read_settings
from .mounts import Mounts
from .packages import EXT4, NFS_CLIENT, NFS_SERVER, XFS, Packages
from .rdma_module import RdmaModule
from .reading import StorageError, read_filesystems
from .server import nfs_conf, services
from .server.device import Device, LeftDevices
from .server.directory import Directory, User
from .server.exports import Exports, Withdrawn
from .server.nfs_conf import THREADS, NfsConf
from .server.served import ClientError, Served, read_clients, served_by, wire
from .server.services import Services
from .wanted_mounts import WantedMount, wanted_mounts

_MAKING = {"xfs": XFS, "ext4": EXT4}
_RELEASE = "proc/sys/kernel/osrelease"


@dataclass
class Storage:
    """What one host does: serve, be a client of Lustre, mount."""

    parts: list[Part]
    mounts: tuple[WantedMount, ...]
    served: list[Served]
    simulated: list[str]


def storage(
    options: Mapping[str, Any], node: Node, distribution: Distribution, closing: ExitStack
) -> Storage:
    """Raises PlanError with every mistake in the options. `closing` ends what was opened."""
    findings: list[str] = []
    try:
        filesystems = read_filesystems(options["filesystems"])
    except StorageError as error:
        raise PlanError(str(error)) from error
    mounts = wanted_mounts(
        filesystems,
        options["host"],
        options["groups"],
        options["mount_timeout_s"],
        AFTER,
    )
    mine = [each.fs for each in mounts]
    served = served_by(options["host"], filesystems, _clients(options["clients"], findings))
    settings = LustreSettings()
    try:
        settings = read_settings(options["lustre"], options["rails"], mine)
    except LustreError as error:
        findings.append(str(error))
    if findings:
        raise PlanError("\n".join(findings))

    root = Path(options["lustre_root"])
    lustre = _lustre(options, settings, mine, node, distribution, root, closing)
    absent = without_lnet(options["absent"])
    wait: Runner = partial(run, timeout_s=options["mount_wait_s"])
    by_rdma = any(each.is_nfs and each.fs.nfs.transport == RDMA for each in mounts)
    parts: list[Part] = [
        Packages(distribution.family, frozenset(_purposes(mounts, served, node)), node_runner()),
        *server_parts(
            served,
            User(options["user"], options["uid"]),
            threads=options["server_threads"],
            absent=absent,
            restart=options["server_restart"],
        ),
        *lustre.before,
        Mounts(mounts, absent, wait, options["mount_wait_s"], options["servers"]),
        *([RdmaModule(distribution.family)] if by_rdma else []),  # loaded by the first of them
        *lustre.after,
    ]
    return Storage(parts, mounts, served, lustre.simulated)


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
    parts: list[Part] = []
    for each in served:
        system, serve = each.system, each.system.serve
        if serve is not None and serve.device:
            parts.append(Device(system.name, serve.device, serve.format, each.path))
        owner = (system.owner, system.group, system.mode, user)
        parts.append(Directory(each.path, *owner, each.device))
    parts += [Withdrawn(exports), exports]
    if served:
        parts += [NfsConf(wire(served), threads), Services(wire(served), threads, restart)]
    else:
        parts.append(ServesNothing(exports))
    return [*parts, LeftDevices([each.path for each in served if each.device], absent)]


@dataclass(frozen=True)
class ServesNothing:
    """The settings of a server go with the last export of ours; the server itself stays."""

    exports: Exports

    def plan(self, node: Node) -> Plan:
        if self.exports.left(node):
            return Plan()
        names = (nfs_conf.FILE, services.MODULES_FILE)
        return Plan([node.file(name, None) for name in names if node.path(name).exists()])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def _clients(
    value: Mapping[str, Iterable[Mapping[str, Any]]], findings: list[str]
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, entries in value.items():
        try:
            found[name] = read_clients(entries)
        except ClientError as error:
            findings.append(f"{name}: {error}")
    return found


def _purposes(mounts: Iterable[WantedMount], served: Sequence[Served], node: Node) -> Iterable[str]:
    if any(each.is_nfs for each in mounts):
        yield NFS_CLIENT
    if node.container:  # whose kernel serves nothing: the server's unit would only fail
        return
    if served:
        yield NFS_SERVER
    for each in served:
        if each.system.serve is not None and each.system.serve.format:
            yield _MAKING[each.system.serve.format]


def _lustre(
    options: Mapping[str, Any],
    settings: LustreSettings,
    mine: Sequence[FileSystem],
    node: Node,
    distribution: Distribution,
    root: Path,
    closing: ExitStack,
) -> LustreParts:
    manager: Optional[Manager] = None
    wanted: Optional[PackageSet] = None
    here = any(fs.type == LUSTRE for fs in mine)
    if here and settings.packages.method != PRESENT:
        try:
            key = base64.b64decode(options["lustre_key"], validate=True)
            release = _release(root)
            wanted = client_packages(settings, distribution, release, key, options["rdma_source"])
        except binascii.Error as error:
            raise PlanError(f"lustre_key: not in base64 ({error})") from error
        except NotKnown as error:
            raise PlanError(str(error)) from error
        manager = closing.enter_context(manager_of(distribution, wanted, node.layer))
    return lustre_parts(
        settings,
        mine,
        options["rails"],
        node,
        look=partial(run, timeout_s=settings.time_limit_s),
        manager=manager,
        packages=wanted,
        user=options["user"],
        root=root,
        absent=options["absent"],
    )


def _release(root: Path) -> str:
    """Of the kernel that the modules are for: a stand-in's, where one stands for it."""
    try:
        return (root / _RELEASE).read_text().strip()
    except OSError as error:
        raise PlanError(
            f"{root / _RELEASE}: {error.strerror}, and Lustre's modules are for one kernel. "
            "shared_storage_lustre_root is / on every machine but those of tests"
        ) from error
