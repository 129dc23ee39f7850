# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Options of the module, and the order of the parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import OK, PENDING
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import options as packages
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.exports import (
    Exports,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import Serve
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.mounts import Mounts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.options import storage

from tests.unit.storage_node import StorageHost, StorageNode, filesystem, served

DEBIAN, REDHAT = "ID=debian\nVERSION_ID=12\n", "ID=rocky\nVERSION_ID=9.4\n"
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
    host = StorageNode(tmp_path)
    host.write("etc/os-release", DEBIAN)
    return storage(GIVEN, host.node())[0]


def only(parts: Sequence[Any], kind: type) -> Any:
    (found,) = [part for part in parts if isinstance(part, kind)]
    return found


def test_nothing_is_mounted_or_installed_for_a_mount_of_others(tmp_path: Path) -> None:
    host = StorageNode(tmp_path)
    host.write("etc/os-release", DEBIAN)
    others = [
        replace(filesystem(), managed=False).as_variable(),
        {**filesystem("w").as_variable(), "type": "lustre", "nfs": None, "managed": False},
    ]
    found = storage({**GIVEN, "filesystems": others}, host.node())[0]
    assert only(found, Mounts).wanted == ()
    assert [type(part).__name__ for part in found] == ["Exports", "ServesNothing", "Mounts"]


def test_exports_are_removed_before_their_mounts(parts: Sequence[Any]) -> None:
    exports, mounts = only(parts, Exports), only(parts, Mounts)
    assert (exports.absent, mounts.absent) == ({"/mnt/old", "/srv/old"}, ABSENT)
    assert parts.index(exports) < parts.index(mounts)


@pytest.mark.parametrize(
    ("container", "release", "names"),
    [
        (None, DEBIAN, ["nfs-kernel-server", "xfsprogs"]),
        (None, REDHAT, ["nfs-utils", "xfsprogs"]),
        ("podman", DEBIAN, []),
    ],
)
def test_no_server_is_installed_in_a_container(
    tmp_path: Path, container: Optional[str], release: str, names: list[str]
) -> None:
    fs = replace(served(), serve=Serve("storage01", "/dev/disk/by-id/nvme-A1", "xfs"))
    given = {**GIVEN, "filesystems": [fs.as_variable()], "host": "storage01", "groups": []}
    host = StorageNode(tmp_path, container=container)
    host.write("etc/os-release", release)
    # EPEL has dpkg: the family is read from the release.
    host.write("usr/bin/dpkg-query", "")
    given["clients"] = {fs.name: ["10.0.0.11"]}
    parts, _simulated = storage(given, host.node())
    found = [part for part in parts if isinstance(part, packages.SystemPackages)]
    assert [name for part in found for name in part.names] == names
    assert only(parts, Mounts).devices == ["/srv/checkpoints"]


# Packages


class Machine(StorageHost):
    """Simulated dpkg, rpm, apt-get and dnf."""

    def __init__(self, root: Path, release: str, *installed: str) -> None:
        super().__init__(root)
        self.debian = release == DEBIAN
        self.installed = set(installed)
        self.removed: set[str] = set()
        self.unable = ""

    def _dpkg_query(self, argv):
        rows = [f"{name} install ok installed" for name in argv[4:] if name in self.installed]
        rows += [f"{name} deinstall ok config-files" for name in argv[4:] if name in self.removed]
        missing = any(name not in self.installed for name in argv[4:])
        return int(missing), "\n".join(rows)

    def _rpm(self, argv):
        rows = [
            f"{name} ok installed" if name in self.installed else f"package {name} is not installed"
            for name in argv[4:]
        ]
        return sum(name not in self.installed for name in argv[4:]), "\n".join(rows)

    def _apt_get(self, argv):
        if argv[-1] == "update":
            return 100, "no network"
        return self._install(argv)

    _dnf = property(lambda self: self._install)

    def _install(self, argv):
        if self.unable:
            return 100, self.unable
        self.installed |= set(argv[argv.index("install") + 1 :])
        return 0, ""

    def settle(self, *names: str, check_mode: bool = False):
        part = packages.SystemPackages(names, self.debian, self.run)
        return settle([part], self.node(check_mode))

    def changed(self) -> list[list[str]]:
        return [call for call in self.calls if call[0] in ("apt-get", "dnf")]


@pytest.mark.parametrize("release", [DEBIAN, REDHAT])
def test_missing_packages_are_installed_once(tmp_path, release):
    machine = Machine(tmp_path, release, "xfsprogs")
    shown = machine.settle("nfs", "xfsprogs", check_mode=True)
    assert shown.changed and {check.status for check in shown.checks} == {OK, PENDING}
    assert not machine.changed()
    first = machine.settle("nfs", "xfsprogs")
    assert first.changed and not first.errors
    assert {check.status for check in first.checks} == {OK}
    # Installed packages are not requested, which would upgrade them.
    assert machine.changed()[-1][-2:] == ["install", "nfs"]
    done = len(machine.changed())
    second = machine.settle("nfs", "xfsprogs")
    assert not second.changed and len(machine.changed()) == done


def test_a_removed_package_with_settings_is_missing(tmp_path):
    machine = Machine(tmp_path, DEBIAN)
    machine.removed = {"nfs-common"}
    assert machine.settle("nfs-common").changed and "nfs-common" in machine.installed
    assert "--no-remove" in machine.changed()[-1]
    machine.unable = "E: Unable to locate package nfs-utils"
    assert machine.unable in machine.settle("nfs-utils").errors[0]
