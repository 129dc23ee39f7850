# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, and their order."""

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

from tests.unit.storage_node import Host, StorageNode, served

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


# Packages

DEBIAN, REDHAT = "debian", "redhat"


class Machine(Host):
    """dpkg and rpm as they answer, apt-get and dnf that install."""

    def __init__(self, root: Path, family: str, *installed: str) -> None:
        super().__init__(root)
        release = "ID=debian\nVERSION_ID=12\n" if family == DEBIAN else "ID=rocky\nVERSION_ID=9.4\n"
        (root / "etc").mkdir(parents=True, exist_ok=True)
        (root / "etc/os-release").write_text(release)
        # EPEL has dpkg: the family is read from the release.
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/dpkg-query").touch()
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

    def settle(self, *purposes: str, check_mode: bool = False):
        return settle([packages.Packages(purposes, self.run)], self.node(check_mode))

    def changed(self) -> list[list[str]]:
        return [call for call in self.calls if call[0] in ("apt-get", "dnf")]


@pytest.mark.parametrize("family", [DEBIAN, REDHAT])
def test_what_is_missing_is_installed_once(tmp_path, family):
    machine = Machine(tmp_path, family)
    shown = machine.settle(packages.CLIENT, packages.SERVER, "xfs", check_mode=True)
    assert shown.changed and {check.status for check in shown.checks} == {PENDING}
    assert not machine.changed()
    first = machine.settle(packages.CLIENT, packages.SERVER)
    assert first.changed and not first.errors
    assert {check.status for check in first.checks} == {OK}
    done = len(machine.changed())
    second = machine.settle(packages.CLIENT, packages.SERVER)
    assert not second.changed and len(machine.changed()) == done


def test_only_what_is_missing_is_asked_for(tmp_path):
    """Otherwise a run would upgrade what is there."""
    machine = Machine(tmp_path, DEBIAN, "nfs-common")
    machine.settle(packages.CLIENT, packages.SERVER)
    assert machine.changed()[-1][-2:] == ["install", "nfs-kernel-server"]
    assert "--no-remove" in machine.changed()[-1]


def test_what_was_removed_and_left_its_settings_is_not_there(tmp_path):
    machine = Machine(tmp_path, DEBIAN)
    machine.removed = {"nfs-common"}
    assert machine.settle(packages.CLIENT).changed and "nfs-common" in machine.installed


def test_the_message_of_the_package_manager_is_passed_on(tmp_path):
    machine = Machine(tmp_path, REDHAT)
    machine.unable = "No match for argument: nfs-utils"
    assert machine.unable in machine.settle(packages.CLIENT).errors[0]
