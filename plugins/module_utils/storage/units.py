# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The file systems that a host mounts, and their systemd units.

Only the automount point is part of the boot, and needs no server. The first access mounts, within
`TimeoutSec=`; later accesses wait for the server in the kernel (`hard`). A host that serves a file
system uses a bind mount: an NFS client of the same kernel can deadlock when memory is scarce.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..core.mounts import Mount, on, place
from ..rails import BOOT_UNIT as RAILS
from .file_system import LUSTRE, NFS, FileSystem
from .lustre import read_source

MOUNT, AUTOMOUNT = "mount", "automount"
DIRECTORY = "etc/systemd/system"
ENABLED = "enabled, active"
OF_CLIENT, OF_DEVICE = (
    f"[X-Baremetal-MPI-RoCE]\nPart={part}" for part in ("client-mount", "served-device")
)
"""Sections that systemd ignores; they mark the mount units of this layer."""
UNLIMITED = "StartLimitIntervalSec=0"
"""Otherwise five refused mounts within ten seconds would stop the automount point, and programs
would see the empty directory below it."""
LNET = "lnet.service"
BIND = "none"
NFS_TYPES = ("nfs", "nfs4")
"""Types in the kernel's mount table."""
NOFAIL = "nofail"
"""Option without which systemd would wait for a dead disk at boot."""

TIMEO, RETRANS = 600, 2
"""Tenths of a second before a request is repeated, and repetitions before it is logged; earlier
repetitions only add load to a slow server."""
LUSTRE_DEFAULTS = ("noatime", "nosuid", "nodev", "user_xattr", "lazystatfs")
"""No access times, device files or set-user-ID programs from a server; extended attributes; a df
that does not wait for a dead target."""
_ACCESS_TIMES = ("noatime", "relatime", "strictatime", "atime")
_OF_BIND = (
    *_ACCESS_TIMES, "ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec",
    "nodiratime", "diratime", "nosymfollow", "symfollow",
)  # fmt: skip
"""Options that also apply to a bind mount, as the kernel stores them per mount."""


@dataclass(frozen=True)
class WantedMount:
    """A file system at its mount point on this host, as in its units. `source` has the kernel's
    spelling; for a bind mount it is a directory, and `kind` (`Type=`) is `none`."""

    fs: FileSystem
    source: str
    kind: str
    options: tuple[str, ...]
    timeout_s: int

    @property
    def point(self) -> str:
        return self.fs.mount

    @property
    def is_bind(self) -> bool:
        return self.kind == BIND

    @property
    def mount_unit(self) -> str:
        return unit_name(self.point, MOUNT)

    @property
    def at_boot(self) -> str:
        """The unit started at boot: the automount point, or the bind mount."""
        return unit_name(self.point, MOUNT if self.is_bind else AUTOMOUNT)

    def texts(self) -> dict[str, str]:
        texts = {self.mount_unit: mount_text(self)}
        return texts if self.is_bind else {**texts, self.at_boot: automount_text(self)}

    def is_source(self, running: Mount, mounts: Collection[Mount]) -> bool:
        if self.is_bind:
            # The directory is a different one once its device is mounted.
            device = self.fs.serve.device if self.fs.serve is not None else ""
            awaited = device and on(mounts, self.source) is None
            return not awaited and place(mounts, self.source) == (running.device, running.root)
        if not self.of_this_kind(running):
            return False
        if not self.fs.managed:
            return True  # clients of other file systems report sources in different forms
        if self.kind == LUSTRE:
            return read_source(self.source) == read_source(running.source)
        return self.source == plain_nfs(running.source)

    def of_this_kind(self, running: Mount) -> bool:
        """Whether the mount may be an earlier state of this one."""
        return running.kind in (NFS_TYPES if self.fs.type == NFS else (self.fs.type,))


def wanted_mounts(
    filesystems: Iterable[FileSystem], host: str, groups: Collection[str], timeout_s: int
) -> tuple[WantedMount, ...]:
    """The mounts of a host in `groups`, including those of others (`managed` is false), outer mount
    points before inner ones."""
    wanted = []
    for fs in filesystems:
        if not mounts(fs, host, groups):
            continue
        if serves(fs, host):
            options = ("bind", NOFAIL, *(word for word in fs.options if word in _OF_BIND))
            wanted.append(WantedMount(fs, fs.path, BIND, options, timeout_s))
            continue
        if not fs.managed:
            wanted.append(WantedMount(fs, fs.source, fs.type, fs.options, timeout_s))
            continue
        source = str(read_source(fs.source)) if fs.type == LUSTRE else plain_nfs(fs.source)
        wanted.append(WantedMount(fs, source, fs.type, _options(fs, timeout_s), timeout_s))
    return tuple(sorted(wanted, key=lambda mount: mount.point.count("/")))


def serves(fs: FileSystem, host: str) -> bool:
    return fs.type == NFS and fs.serve is not None and fs.serve.host == host


def mounts(fs: FileSystem, host: str, groups: Collection[str]) -> bool:
    """Whether a host mounts it. A host that serves it at the same path does not."""
    return bool(set(fs.hosts) & set(groups)) and not (serves(fs, host) and fs.path == fs.mount)


def plain_nfs(source: str) -> str:
    """Normalize a source: single slashes, none at the end, server in lower case."""
    server, colon, path = source.rpartition(":/")
    if not colon:
        return source
    return f"{server.lower()}:{re.sub('/{2,}', '/', '/' + path).rstrip('/') or '/'}"


def subject(word: str) -> str:
    """The subject of a mount option: of two options with the same subject, one takes effect."""
    name = word.partition("=")[0]
    return "atime" if name in _ACCESS_TIMES else name.removeprefix("no")


def _options(fs: FileSystem, timeout_s: int) -> tuple[str, ...]:
    """Default options that the file system does not replace, followed by its own, in order."""
    if fs.type == LUSTRE:  # its client has no time limit
        options = [*LUSTRE_DEFAULTS, "flock" if fs.lustre.flock else "noflock"]
    else:
        nfs = fs.nfs
        options = [
            "hard",
            f"vers={nfs.version}",
            f"proto={nfs.transport}",
            f"port={nfs.port}",
            *([f"nconnect={nfs.connections}"] if nfs.connections > 1 else []),
            f"timeo={TIMEO}",
            f"retrans={RETRANS}",
            # By default mount.nfs gives up after two minutes, before the unit does.
            f"retry={max(1, timeout_s // 60)}",
        ]
    own = {subject(word) for word in fs.options}
    return (*(word for word in options if subject(word) not in own), *fs.options)


def unit_name(path: str, kind: str) -> str:
    """The name by `systemd-escape --path`, for characters that the model permits."""
    name = "-".join(word.replace("-", "\\x2d") for word in path.split("/") if word)
    return f"\\x2e{name[1:]}.{kind}" if name.startswith(".") else f"{name}.{kind}"


def path_of(unit: str) -> str:
    return f"{DIRECTORY}/{unit}"


def mount_text(wanted: WantedMount) -> str:
    after = ["network-online.target", "remote-fs-pre.target", RAILS]
    after += [LNET] if wanted.kind == LUSTRE else []
    order = ["Wants=network-online.target", f"After={' '.join(after)}"]
    lines = [
        *_heading(f"Shared file system {wanted.fs.name}"),
        *([] if wanted.is_bind else order),
        "",
        "[Mount]",
        f"What={wanted.source}",
        f"Where={wanted.point}",
        f"Type={wanted.kind}",
        f"Options={','.join(wanted.options)}",
        "DirectoryMode=0755",
        f"TimeoutSec={wanted.timeout_s}",
        *(["", *_INSTALL] if wanted.is_bind else []),
    ]
    return "".join(f"{line}\n" for line in lines)


def automount_text(wanted: WantedMount) -> str:
    """The automount unit. It needs no network, and is not ordered after it."""
    lines = [
        *_heading(f"Shared file system {wanted.fs.name}, mounted at its first use"),
        "",
        "[Automount]",
        f"Where={wanted.point}",
        # Not unmounted when idle, so that later jobs need not wait.
        "TimeoutIdleSec=0",
        "DirectoryMode=0755",
        "",
        *_INSTALL,
    ]
    return "".join(f"{line}\n" for line in lines)


def _heading(description: str) -> list[str]:
    return [
        OF_CLIENT,
        "",
        "[Unit]",
        f"Description={description}",
        # A container gets its mounts from its host.
        "ConditionVirtualization=!container",
        UNLIMITED,
    ]


_INSTALL = ("[Install]", "WantedBy=remote-fs.target")


def value_of(text: str, key: str) -> str:
    """Value of a key in a unit file of the collection; empty if absent."""
    lines = (line for line in text.split("\n") if line.startswith(f"{key}="))
    return next(lines, "=").partition("=")[2]
