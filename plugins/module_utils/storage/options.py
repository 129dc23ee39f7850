# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, in the order in which they are done."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core.commands import Runner, run
from ..core.dataclass import dataclass
from ..core.part import Node, Part, Plan, PlanError, Verdict
from ..core.system import manager_of
from ..packages.apt import node_runner
from ..packages.package import Manager, PackageSet
from ..software.distribution import Distribution
from .file_system import LUSTRE, FileSystem, of_variable
from .lustre.client import AFTER, LustreParts, NotKnown, client_packages, lustre_parts
from .lustre.lnet import without_lnet
from .lustre.settings import PRESENT, LustreSettings, read_settings
from .mounts import Mounts
from .packages import CLIENT, SERVER, Packages
from .server import service
from .server.device import Device, LeftDevices
from .server.directory import Directory, User
from .server.exports import Exports, Served, Withdrawn, served_by
from .server.service import THREADS, Service
from .units import WantedMount, wanted_mounts

_RELEASE = "proc/sys/kernel/osrelease"


@dataclass
class Storage:
    """What one host does: serve, be a client of Lustre, mount."""

    parts: list[Part]
    mounts: tuple[WantedMount, ...]
    served: list[Served]
    simulated: list[str]


def storage(options: Mapping[str, Any], node: Node, distribution: Distribution) -> Storage:
    """Raises PlanError."""
    filesystems = [of_variable(entry) for entry in options["filesystems"]]
    host, groups = options["host"], options["groups"]
    mounts = wanted_mounts(filesystems, host, groups, options["mount_timeout_s"], AFTER)
    mine = [each.fs for each in mounts]
    served = served_by(host, filesystems, options["clients"])
    settings = read_settings(options["lustre"], options["rails"], mine)
    root = Path(options["lustre_root"])
    lustre = _lustre(options, settings, mine, node, distribution, root)
    absent = without_lnet(options["absent"])
    wait: Runner = partial(run, timeout_s=options["mount_wait_s"])
    parts: list[Part] = [
        Packages(distribution.family, _purposes(mounts, served, node), node_runner()),
        *server_parts(
            served,
            User(options["user"], options["uid"]),
            threads=options["server_threads"],
            absent=absent,
            restart=options["server_restart"],
        ),
        *lustre.before,
        Mounts(mounts, absent, wait, options["mount_wait_s"]),
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
        fs, serve = each.fs, each.fs.serve
        if serve is not None and serve.device:
            parts.append(Device(fs.name, serve.device, serve.format, each.path))
        parts.append(Directory(each.path, fs.owner, fs.group, fs.mode, user, each.device))
    parts += [Withdrawn(exports), exports]
    if served:
        parts.append(Service([each.fs for each in served], threads, restart))
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
        names = (service.CONF, service.MODULES_FILE)
        return Plan([node.file(name, None) for name in names if node.path(name).exists()])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def _purposes(mounts: Sequence[WantedMount], served: Sequence[Served], node: Node) -> list[str]:
    found = [CLIENT] if any(each.kind == "nfs" for each in mounts) else []
    if served and not node.container:  # whose kernel serves nothing: the server's unit would fail
        found.append(SERVER)
        found += [x.fs.serve.format for x in served if x.fs.serve and x.fs.serve.format]
    return found


def _lustre(
    options: Mapping[str, Any],
    settings: LustreSettings,
    mine: Sequence[FileSystem],
    node: Node,
    distribution: Distribution,
    root: Path,
) -> LustreParts:
    manager: Optional[Manager] = None
    wanted: Optional[PackageSet] = None
    here = any(fs.type == LUSTRE for fs in mine)
    if here and settings.packages.method != PRESENT:
        key = base64.b64decode(options["lustre_key"])
        release = (root / _RELEASE).read_text().strip()
        try:
            wanted = client_packages(settings, distribution, release, key, options["rdma_source"])
        except NotKnown as error:
            raise PlanError(str(error)) from error
        manager = manager_of(distribution, wanted, node.layer)
    return lustre_parts(
        settings,
        mine,
        options["rails"],
        node,
        look=partial(run, timeout_s=settings.time_limit_s),
        manager=manager,
        packages=wanted,
        root=root,
        absent=options["absent"],
    )
