# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which of the cluster's file systems one host mounts, and how."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Optional

from ..dataclass import dataclass
from . import mount_flags, nfs_options
from .file_system import LUSTRE, NFS, FileSystem
from .mount_kind import Difference, MountKind
from .mounted import Mount, on, place
from .units import MountUnit

BIND = "none"
NOFAIL = "nofail"
"""A disk that died keeps nothing but its own from booting: systemd would wait for it otherwise."""


@dataclass(frozen=True)
class WantedMount:
    """A file system at its mount point on this host."""

    fs: FileSystem
    unit: MountUnit
    kind: Optional[MountKind]
    """None for a bind mount of what this host serves itself."""

    @property
    def point(self) -> str:
        return self.fs.mount

    @property
    def source(self) -> str:
        return self.unit.what

    @property
    def device(self) -> str:
        """Of a directory that this host serves itself; empty where it is served as it is."""
        return self.fs.serve.device if self.kind is None and self.fs.serve is not None else ""

    def is_source(self, running: Mount, mounts: Collection[Mount]) -> bool:
        """Whether what runs is of the wanted file system and directory."""
        if self.kind is None:
            # What shows the directory below a device that is still to come shows another one then.
            awaited = self.device and on(mounts, self.source) is None
            return not awaited and place(mounts, self.source) == (running.device, running.root)
        return running.kind in self.kind.TYPES and self.kind.same_source(
            self.source, running.source
        )

    def of_this_kind(self, running: Mount) -> bool:
        """Whether an earlier state of the same mount may look like that."""
        if self.kind is None:
            return running.kind in nfs_options.TYPES
        return running.kind in self.kind.TYPES

    def differences(self, running: Mount) -> tuple[Difference, ...]:
        words = self.unit.options
        found = [mount_flags.unasked_read_only(words, running)]
        if self.kind is not None:
            found += self.kind.differences(self.fs, running)
        else:
            found += [mount_flags.difference(word, running) for word in words]
        return tuple(each for each in found if each is not None)


def wanted_mounts(
    filesystems: Iterable[FileSystem],
    host: str,
    groups: Collection[str],
    timeout_s: int,
    kinds: Mapping[str, MountKind],
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
            flags = tuple(word for word in fs.options if word in mount_flags.FLAGS)
            unit = MountUnit(fs.name, fs.path, fs.mount, BIND, ("bind", NOFAIL, *flags), timeout_s)
            if fs.path != fs.mount:
                found.append(WantedMount(fs, unit, None))
            continue
        kind = kinds[fs.type]
        after = lustre_after if fs.type == LUSTRE else ()
        words = kind.options(fs, timeout_s)
        unit = MountUnit(
            fs.name, kind.source(fs), fs.mount, kind.TYPE, tuple(words), timeout_s, after
        )
        found.append(WantedMount(fs, unit, kind))
    return tuple(sorted(found, key=lambda each: each.point.count("/")))
