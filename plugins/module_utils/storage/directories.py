# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""How programs find the shared file systems: one variable of their environment for each purpose."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    CHECKPOINTS,
    DATASETS,
    NFS,
    FileSystem,
)

CHECKPOINT_DIRECTORY = "CLUSTER_CHECKPOINT_DIR"
VARIABLES = {CHECKPOINTS: CHECKPOINT_DIRECTORY, DATASETS: "CLUSTER_DATASETS_DIR"}
"""By purpose. What is for homes and software is found by its path."""


def of_purpose(
    filesystems: Iterable[FileSystem], purpose: str, groups: Optional[Collection[str]] = None
) -> Optional[FileSystem]:
    """The first of the list that is for it; of those that a host in `groups` has, if given."""
    return next(
        (
            fs
            for fs in filesystems
            if fs.purpose == purpose and (groups is None or set(fs.hosts) & set(groups))
        ),
        None,
    )


def plain_on(fs: FileSystem) -> str:
    """The host where its mount point is a plain directory: it serves that very path. Empty where
    there is none, and where the directory is a device's, which is mounted there."""
    if fs.type != NFS or fs.serve is None or fs.serve.device or fs.path != fs.mount:
        return ""
    return fs.serve.host


def environment(filesystems: Iterable[FileSystem], groups: Collection[str]) -> dict[str, str]:
    """The variables of a host in `groups`: mount points, the same on every host."""
    every = tuple(filesystems)
    found = {name: of_purpose(every, purpose, groups) for purpose, name in VARIABLES.items()}
    return {name: fs.mount for name, fs in found.items() if fs is not None}
