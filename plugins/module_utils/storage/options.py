# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Turn the module's options into parts, in the order of execution. Packages for NFS are not pinned,
as they work with kernels and servers of any version."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..core.checks import compare
from ..core.commands import CommandError, Runner, run
from ..core.distribution import DEBIAN, read_distribution
from ..core.part import Node, Part, Plan, Step, StepError, Verdict
from ..rails import BOOT_UNIT
from . import service
from .device import Device
from .exports import Exports, Served, ServedDirectory, User, served_by
from .file_system import LUSTRE, NFS, FileSystem, of_variable
from .lnet import LnetPart
from .lustre import LustreKernel, LustreSettings, read_settings
from .lustre_health import HealthPart
from .mounts import Mounts
from .service import THREADS, NfsService
from .units import WantedMount, wanted_mounts

CHECK = "storage_package"
_OF_FORMAT = {"xfs": "xfsprogs", "ext4": "e2fsprogs"}
INSTALL_S = 3600.0
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "UCF_FORCE_CONFFOLD": "1",
    "NEEDRESTART_SUSPEND": "1",  # it would restart services while the layer runs
}
APT = (
    "APT::Get::AllowUnauthenticated=false",  # whatever the operator's apt.conf allows
    "Acquire::AllowInsecureRepositories=false",
    "Acquire::AllowWeakRepositories=false",
    "Dpkg::Options::=--force-confdef",
    "Dpkg::Options::=--force-confold",
    "DPkg::Lock::Timeout=300",
    "APT::Install-Recommends=false",
)


@dataclass
class SystemPackages:
    """Packages from the distribution. `install` runs the package manager, which may take long."""

    names: Sequence[str]
    debian: bool
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
        missing, check_mode = self._missing(node), node.check_mode
        states = {x: "not installed" if x in missing else "installed" for x in self.names}
        return Verdict(
            [
                compare(CHECK, "installed", state, subject=name, check_mode=check_mode)
                for name, state in states.items()
            ]
        )

    def _missing(self, node: Node) -> list[str]:
        argv = ["rpm", "-q", "--qf", "%{NAME} ok installed\\n", *self.names]
        if self.debian:
            argv = ["dpkg-query", "-W", "-f", "${Package} ${Status}\\n", *self.names]
        # For missing packages `rpm -q` prints a sentence, and `dpkg-query` lists removed ones.
        rows = [line.split() for line in node.look(argv, check=False).stdout.splitlines()]
        installed = {row[0] for row in rows if len(row) > 2 and row[-2:] == ["ok", "installed"]}
        return [name for name in self.names if name not in installed]

    def _install(self, missing: Sequence[str]) -> None:
        options = [word for setting in APT for word in ("-o", setting)]
        try:
            if not self.debian:
                weak = "--setopt=install_weak_deps=False"
                self.install(["dnf", "-y", "-q", weak, "install", *missing])
                return
            # The node's package lists may be outdated or missing.
            self.install(["apt-get", "-q", *options, "update"], check=False)
            self.install(["apt-get", "-y", "-q", *options, "--no-remove", "install", *missing])
        except CommandError as error:
            raise StepError(str(error)) from error


def storage(options: Mapping[str, Any], node: Node) -> tuple[list[Part], list[str]]:
    """The parts for a host, and notes on stand-ins. Raises PlanError."""
    filesystems = [of_variable(entry) for entry in options["filesystems"]]
    host, absent = options["host"], options["absent"]
    filesystems = [fs for fs in filesystems if fs.managed]
    mounts = wanted_mounts(filesystems, host, options["groups"], options["mount_timeout_s"])
    served = served_by(host, filesystems, options["clients"])
    lustre = [mount.fs for mount in mounts if mount.fs.type == LUSTRE]
    settings = read_settings(options["lustre"], options["rails"], lustre)
    root = Path(options["lustre_root"])
    is_stand_in, look = root != Path("/"), partial(run, timeout_s=settings.time_limit_s)
    kernel = LustreKernel(root if is_stand_in else node.root, look, is_stand_in)
    before, after = lustre_parts(settings, lustre, options["rails"], kernel)
    wait: Runner = partial(run, timeout_s=options["mount_wait_s"])
    user, restart = User(options["user"], options["uid"]), options["server_restart"]
    devices = [directory.path for directory in served if directory.device]
    parts: list[Part] = [
        *_packages(mounts, served, node),
        *server_parts(served, user, options["server_threads"], absent, restart),
        *before,
        Mounts(mounts, absent, wait, options["mount_wait_s"], devices),
        *after,
    ]
    line = f"Lustre and LNet are read below {kernel.root}: stand-ins, not this machine's kernel"
    return parts, [line] if is_stand_in and lustre else []


def server_parts(
    served: Sequence[Served],
    user: User,
    threads: int = THREADS,
    absent: Collection[str] = (),
    restart: bool = False,
) -> list[Part]:
    """Parts for every host, as formerly served directories must be reported as well. `absent` are
    directories that are unmounted everywhere; otherwise nodes would lose unwritten data."""
    exports = Exports(served, frozenset(map(posixpath.normpath, absent)))
    parts: list[Part] = []
    for directory in served:
        fs, serve, path = directory.fs, directory.fs.serve, directory.path
        if serve is not None and serve.device:
            parts.append(Device(fs.name, serve.device, serve.format, path))
        parts.append(ServedDirectory(path, fs.owner, fs.group, fs.mode, user, directory.device))
    parts.append(exports)
    if served:
        parts.append(NfsService([directory.fs for directory in served], threads, restart))
    else:
        parts.append(ServesNothing(exports))
    return parts


@dataclass(frozen=True)
class ServesNothing:
    """Remove the server's settings with the last export. The server continues to run."""

    exports: Exports

    def plan(self, node: Node) -> Plan:
        if self.exports.left(node):
            return Plan()
        names = (service.CONF, service.MODULES_FILE)
        return Plan([node.file(name, None) for name in names if node.path(name).exists()])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


def _packages(
    mounts: Sequence[WantedMount], served: Sequence[Served], node: Node
) -> Iterator[SystemPackages]:
    client = any(mount.kind == NFS for mount in mounts)
    server = served and not node.container  # a container's kernel does not serve NFS
    if not client and not server:
        return
    debian = read_distribution(node.root).family is DEBIAN  # EPEL has dpkg, too
    names = ["nfs-common" if debian else "nfs-utils"] if client else []
    if server:
        names.append("nfs-kernel-server" if debian else "nfs-utils")
        formats = [x.fs.serve.format for x in served if x.fs.serve and x.fs.serve.format]
        names += [_OF_FORMAT[name] for name in formats]
    install = partial(run, timeout_s=INSTALL_S, env=ENVIRONMENT)
    yield SystemPackages(list(dict.fromkeys(names)), debian, install)


def lustre_parts(
    settings: LustreSettings,
    filesystems: Sequence[FileSystem],
    rails: Sequence[Mapping[str, Any]],
    kernel: LustreKernel,
) -> tuple[list[Part], list[Part]]:
    if not filesystems:
        return [], []
    of_rails = {rail["interface"] for rail in rails}
    on_rails = any(of_rails.intersection(network.interfaces) for network in settings.networks)
    return (
        [LnetPart(settings, kernel, (BOOT_UNIT,) if on_rails else ())],
        [HealthPart(settings, filesystems, kernel)],
    )
