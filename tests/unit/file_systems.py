# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""File systems as operators write them, with changes, for the tests."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import storage
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage import Site
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.storage_keys import (
    FILE_SYSTEMS,
    VARIABLE,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import (
    Findings,
    RefusedError,
)

from tests.unit.findings import brief

NFS: dict[str, Any] = {
    "name": "checkpoints",
    "type": "nfs",
    "source": "storage01:/srv/checkpoints",
    "mount": "/mnt/checkpoints",
    "purpose": "checkpoints",
}
SERVED: dict[str, Any] = {**NFS, "serve": {"host": "storage01"}}
LUSTRE: dict[str, Any] = {
    "name": "scratch",
    "type": "lustre",
    "source": "10.0.0.31@o2ib:/scratch",
    "mount": "/mnt/scratch",
    "purpose": "scratch",
}


SITE = Site(
    groups=("all", "compute", "launcher", "storage", "leaf", "spine", "ungrouped", "rack_r01"),
    hosts=("node01", "launcher01", "storage01"),
)


class StorageError(RefusedError):
    what = f"{VARIABLE} cannot be mounted"


def read_filesystems(value: Any, site: Site = SITE) -> tuple[FileSystem, ...]:
    """The file systems as a model reads them, in the cluster above."""
    findings, path = Findings(), (VARIABLE,)
    checked = FILE_SYSTEMS.check([] if value is None else value, findings, path)
    found = () if findings else storage.read_filesystems(checked, findings, path, site)
    if findings:
        raise StorageError(findings.found)
    return found


def changed(entry: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The entry with other values: `serve__host` is the key `host` of `serve`; DROP removes a
    key.
    """
    made = copy.deepcopy(entry)
    for name, item in changes.items():
        place = made
        *above, key = name.split("__")
        for part in above:
            place = place.setdefault(part, {})
        if item is DROP:
            place.pop(key, None)
        else:
            place[key] = item
    return made


DROP = object()


def one(**changes: Any) -> list[dict[str, Any]]:
    """A list of one file system on an external server."""
    return [changed(NFS, **changes)]


def served(**changes: Any) -> list[dict[str, Any]]:
    """A list of one file system that storage01 serves."""
    return [changed(SERVED, **changes)]


def lustre(**changes: Any) -> list[dict[str, Any]]:
    return [changed(LUSTRE, **changes)]


def two(first: dict[str, Any] = NFS, **changes: Any) -> list[dict[str, Any]]:
    """The first one, and a second one that is compatible with it except for the changes."""
    other = {
        "name": "other",
        "purpose": "scratch",
        "mount": "/mnt/other",
        "source": "storage01:/srv/other",
    }
    return [first, changed(first, **{**other, **changes})]


def refused(value: Any) -> list[str]:
    """Each error in these file systems; asserts that the message has a line for each."""
    with pytest.raises(StorageError) as caught:
        read_filesystems(value)
    assert str(caught.value).count("\n") == len(caught.value.findings)
    assert "hunter2" not in str(caught.value), "a password"
    return brief(caught.value.findings, below=1)
