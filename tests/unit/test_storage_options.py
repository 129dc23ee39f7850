# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import options as packages
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.exports import (
    Exports,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Serve
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.mounts import Mounts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.options import storage

from tests.unit.storage_node import StorageNode, served

ABSENT = ["/mnt/old/", "/srv/old"]
GIVEN: dict[str, Any] = {
    "filesystems": [served().as_variable()],
    "host": "node01",
    "groups": ["compute"],
    "clients": {},
    "user": "mpi",
    "uid": None,
    "absent": ABSENT,
    "mount_timeout_s": 600,
    "mount_wait_s": 7,
    "server_threads": 16,
    "server_restart": False,
    "lustre": {},
    "lustre_root": "/",
    "rails": [],
}


@pytest.fixture
def parts(tmp_path: Path) -> Sequence[Any]:
    node = StorageNode(tmp_path).node()
    return storage(GIVEN, node).parts


def only(parts: Sequence[Any], kind: type) -> Any:
    (found,) = [part for part in parts if isinstance(part, kind)]
    return found


def test_exports_end_before_the_mounts_below_them(parts: Sequence[Any]) -> None:
    exports, mounts = only(parts, Exports), only(parts, Mounts)
    assert (exports.absent, mounts.absent) == ({"/mnt/old", "/srv/old"}, ABSENT)
    assert parts.index(exports) < parts.index(mounts)


@pytest.mark.parametrize(("container", "purposes"), [(None, ["server", "xfs"]), ("podman", [])])
def test_no_server_is_installed_in_a_container(
    tmp_path: Path, container: Optional[str], purposes: list[str]
) -> None:
    fs = replace(served(), serve=Serve("storage01", "/dev/disk/by-id/nvme-A1", "xfs"))
    given = {**GIVEN, "filesystems": [fs.as_variable()], "host": "storage01", "groups": []}
    node = StorageNode(tmp_path, container=container).node()
    given["clients"] = {fs.name: ["10.0.0.11"]}
    parts = storage(given, node).parts
    assert only(parts, packages.Packages).purposes == purposes
    assert only(parts, Mounts).devices == ["/srv/checkpoints"]
