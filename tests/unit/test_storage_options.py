# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts: each is told what it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import options as packages
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.device import (
    LeftDevices,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.exports import (
    Exports,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Serve
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.lnet import LeftLnet
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.mounts import Mounts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.options import storage

from tests.unit.storage_node import StorageNode, served

ABSENT = ["/mnt/old/", "/srv/old", "/etc/lnet.conf"]
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


def test_what_goes_is_told_to_those_who_can_take_it_away(parts: Sequence[Any]) -> None:
    assert only(parts, Mounts).absent == ["/mnt/old/", "/srv/old"]
    for kind in (Exports, LeftDevices):
        assert only(parts, kind).absent == {"/mnt/old", "/srv/old"}
    assert only(parts, LeftLnet).absent == ABSENT


def test_devices_end_before_mounts_take_their_place_and_lnet_after_them(
    parts: Sequence[Any],
) -> None:
    order = [parts.index(only(parts, kind)) for kind in (Exports, LeftDevices, Mounts, LeftLnet)]
    assert order == sorted(order)


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
