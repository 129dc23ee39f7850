# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which of the cluster's file systems one host mounts, and the systemd units of each.

A file system has a `.mount` unit, and an `.automount` that waits for its first use. Only the
automount point is part of the boot, and it needs no server. The mount itself is done by the first
access, which waits for it as long as `TimeoutSec=` says; from then on the kernel waits for the
server (`hard`). A host that serves a file system itself gets a bind mount: a client whose server is
the same kernel waits for itself when memory is short.
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
"""A section that systemd ignores: it marks mount units of this layer, by what they mount."""
UNLIMITED = "StartLimitIntervalSec=0"
"""A server that refuses five mounts within ten seconds would cost the automount point itself, and
programs would find the empty directory under it."""
LNET = "lnet.service"
BIND = "none"
NFS_TYPES = ("nfs", "nfs4")
"""What the kernel calls it."""
NOFAIL = "nofail"
"""A disk that died must not keep the host from booting: systemd would wait for it otherwise."""

TIMEO, RETRANS = 600, 2
"""Tenths of a second before a request is sent again, and how often before it is logged. With `hard`
and a connection that keeps order, sending again sooner only doubles the load of a slow server."""
LUSTRE_DEFAULTS = ("noatime", "nosuid", "nodev", "user_xattr", "lazystatfs")
"""Unless the file system has other options: no write for a read, no devices and no set-user-ID
programs from a server, attributes for checkpoint and data set tools, and a df that does not wait
for a dead target."""
_ACCESS_TIMES = ("noatime", "relatime", "strictatime", "atime")
_OF_BIND = frozenset(
    (
        *(*_ACCESS_TIMES, "ro", "rw", "nosuid", "suid", "nodev", "dev", "noexec", "exec"),
        *("nodiratime", "diratime", "nosymfollow", "symfollow"),
    )
)
"""Options that a bind mount can have as well: the kernel keeps them per mount."""


@dataclass(frozen=True)
class WantedMount:
    """A file system at its mount point on this host, as its units have it."""

    fs: FileSystem
    source: str
    """In the kernel's spelling; a directory for a bind mount."""
    kind: str
    """`Type=`: `nfs`, `lustre`, or `none` for a bind mount."""
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
        """What starts at boot: the automount point, or a bind mount itself."""
        return unit_name(self.point, MOUNT if self.is_bind else AUTOMOUNT)

    def texts(self) -> dict[str, str]:
        """Units to their text, without the header."""
        found = {self.mount_unit: mount_text(self)}
        return found if self.is_bind else {**found, self.at_boot: automount_text(self)}

    def is_source(self, running: Mount, mounts: Collection[Mount]) -> bool:
        """Whether what runs is of the wanted file system and directory."""
        if self.is_bind:
            # What shows the directory below a device that is still to come shows another one then.
            device = self.fs.serve.device if self.fs.serve is not None else ""
            awaited = device and on(mounts, self.source) is None
            return not awaited and place(mounts, self.source) == (running.device, running.root)
        if not self.of_this_kind(running):
            return False
        if self.kind == LUSTRE:
            return read_source(self.source) == read_source(running.source)
        return self.source == plain_nfs(running.source)

    def of_this_kind(self, running: Mount) -> bool:
        """Whether an earlier state of the same mount may look like that."""
        return running.kind in ((LUSTRE,) if self.fs.type == LUSTRE else NFS_TYPES)


def wanted_mounts(
    filesystems: Iterable[FileSystem],
    host: str,
    groups: Collection[str],
    timeout_s: int,
) -> tuple[WantedMount, ...]:
    """Those of a host in `groups`, in the order of the list, outer mount points before inner."""
    found = []
    for fs in filesystems:
        if not mounts(fs, host, groups):
            continue
        if serves(fs, host):
            words = ("bind", NOFAIL, *(word for word in fs.options if word in _OF_BIND))
            found.append(WantedMount(fs, fs.path, BIND, words, timeout_s))
        elif fs.type == LUSTRE:
            source = str(read_source(fs.source))
            found.append(WantedMount(fs, source, LUSTRE, _options(fs, timeout_s), timeout_s))
        else:
            source = plain_nfs(fs.source)
            found.append(WantedMount(fs, source, NFS, _options(fs, timeout_s), timeout_s))
    return tuple(sorted(found, key=lambda each: each.point.count("/")))


def serves(fs: FileSystem, host: str) -> bool:
    return fs.type == NFS and fs.serve is not None and fs.serve.host == host


def mounts(fs: FileSystem, host: str, groups: Collection[str]) -> bool:
    """Whether a host mounts it. One that serves it under the same path has nothing to mount."""
    return bool(set(fs.hosts) & set(groups)) and not (serves(fs, host) and fs.path == fs.mount)


def plain_nfs(source: str) -> str:
    """One spelling: no slash at the end, none twice, the server in small letters."""
    server, colon, path = source.rpartition(":/")
    if not colon:
        return source
    return f"{server.lower()}:{re.sub('/{2,}', '/', '/' + path).rstrip('/') or '/'}"


def subject(word: str) -> str:
    """Of two options with one subject only one can hold."""
    name = word.partition("=")[0]
    return "atime" if name in _ACCESS_TIMES else name.removeprefix("no")


def _options(fs: FileSystem, timeout_s: int) -> tuple[str, ...]:
    """Defaults that the file system does not replace, then its own, in its order."""
    if fs.type == LUSTRE:  # its client has no option for a time limit
        words = [*LUSTRE_DEFAULTS, "flock" if fs.lustre.flock else "noflock"]
    else:
        nfs = fs.nfs
        words = [
            "hard",
            f"vers={nfs.version}",
            f"proto={nfs.transport}",
            f"port={nfs.port}",
            *([f"nconnect={nfs.connections}"] if nfs.connections > 1 else []),
            f"timeo={TIMEO}",
            f"retrans={RETRANS}",
            # mount.nfs gives up after two minutes of its own where the unit would wait on.
            f"retry={max(1, timeout_s // 60)}",
        ]
    own = {subject(word) for word in fs.options}
    return (*(word for word in words if subject(word) not in own), *fs.options)


# Names and texts


def unit_name(path: str, kind: str) -> str:
    """As `systemd-escape --path` names it, for a path of the letters that the model allows."""
    name = "-".join(word.replace("-", "\\x2d") for word in path.split("/") if word)
    return f"\\x2e{name[1:]}.{kind}" if name.startswith(".") else f"{name}.{kind}"


def path_of(unit: str) -> str:
    """File of a unit, below the root of the node."""
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
    """No ordering after the network here: the point is there before it, and needs none."""
    lines = [
        *_heading(f"Shared file system {wanted.fs.name}, mounted at its first use"),
        "",
        "[Automount]",
        f"Where={wanted.point}",
        # Never unmounted for want of use: a job that comes back to it would wait once more.
        "TimeoutIdleSec=0",
        "DirectoryMode=0755",
        "",
        *_INSTALL,
    ]
    return "".join(f"{line}\n" for line in lines)


def _heading(description: str) -> list[str]:
    return [
        *(OF_CLIENT, "", "[Unit]", f"Description={description}"),
        # A container has the mounts that its host gives it.
        "ConditionVirtualization=!container",
        UNLIMITED,
    ]


_INSTALL = ("[Install]", "WantedBy=remote-fs.target")


def value_of(text: str, key: str) -> str:
    """Of a unit file that the collection wrote; empty where it has none."""
    lines = (line for line in text.split("\n") if line.startswith(f"{key}="))
    return next(lines, "=").partition("=")[2]
