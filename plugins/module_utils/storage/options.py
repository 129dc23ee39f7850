# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, in the order in which they are done."""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ..core.checks import compare
from ..core.commands import CommandError, Runner, run
from ..core.dataclass import dataclass
from ..core.part import Node, Part, Plan, PlanError, Step, StepError, Verdict
from ..core.system import manager_of
from ..packages.apt import SOLVER, TRANSACTION, node_runner
from ..packages.apt import options as apt_words
from ..packages.package import Manager, PackageSet
from ..software.distribution import REDHAT, Distribution
from . import service
from .device import Device, LeftDevices
from .directory import Directory, User
from .exports import Exports, Served, Withdrawn, served_by
from .file_system import LUSTRE, FileSystem, of_variable
from .lustre.client import AFTER, LustreParts, NotKnown, client_packages, lustre_parts
from .lustre.lnet import without_lnet
from .lustre.settings import PRESENT, LustreSettings, read_settings
from .mounts import Mounts
from .service import THREADS, Service
from .units import WantedMount, wanted_mounts

# Programs that mounting and serving NFS takes: the distribution's, present and not pinned, as they
# work with kernels and servers of any version.

CLIENT, SERVER = "client", "server"
_NAMES = {CLIENT: "nfs-common", SERVER: "nfs-kernel-server"}
_OF_FORMAT = {"xfs": "xfsprogs", "ext4": "e2fsprogs"}
CHECK = "storage_package"


def package_names(family: str, purposes: Sequence[str]) -> list[str]:
    """The packages for `client`, `server`, and formats of devices, each once."""
    of_nfs = dict.fromkeys(_NAMES, "nfs-utils") if family == REDHAT else _NAMES
    table = {**of_nfs, **_OF_FORMAT}
    return list(dict.fromkeys(table[each] for each in purposes))


@dataclass
class Packages:
    """`install` runs the package manager, which may take long; `Node.look` only looks."""

    family: str
    purposes: Sequence[str]
    install: Runner

    def plan(self, node: Node) -> Plan:
        missing = self._missing(node)
        if not missing:
            return Plan()
        step = Step(
            "packages of shared storage",
            "\n".join(f"{name}: not installed" for name in missing),
            "\n".join(f"{name}: installed" for name in missing),
            lambda: self._install(missing),
            essential=True,
        )
        return Plan([], [step])

    def verify(self, node: Node) -> Verdict:
        missing = self._missing(node)
        found = {
            name: "not installed" if name in missing else "installed"
            for name in package_names(self.family, self.purposes)
        }
        return Verdict(
            [
                compare(CHECK, "installed", state, subject=name, check_mode=node.check_mode)
                for name, state in found.items()
            ]
        )

    def _missing(self, node: Node) -> list[str]:
        wanted = package_names(self.family, self.purposes)
        if not wanted:
            return []
        if self.family == REDHAT:
            argv = ["rpm", "-q", "--qf", "%{NAME} ok installed\\n", *wanted]
        else:
            argv = ["dpkg-query", "-W", "-f", "${Package} ${Status}\\n", *wanted]
        # `rpm -q` prints a sentence for those that are not there, `dpkg-query` those removed.
        rows = [line.split() for line in node.look(argv, check=False).stdout.splitlines()]
        there = {row[0] for row in rows if len(row) > 2 and row[-2:] == ["ok", "installed"]}
        return [name for name in wanted if name not in there]

    def _install(self, missing: Sequence[str]) -> None:
        try:
            if self.family == REDHAT:
                self.install(
                    ["dnf", "-y", "-q", "--setopt=install_weak_deps=False", "install", *missing]
                )
                return
            # What the node knows of its repositories may be older than they are, or nothing.
            self.install(["apt-get", "-q", *apt_words(TRANSACTION), "update"], check=False)
            words = apt_words((*TRANSACTION, *SOLVER))
            self.install(["apt-get", "-y", "-q", *words, "--no-remove", "install", *missing])
        except CommandError as error:
            raise StepError(str(error)) from error


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
