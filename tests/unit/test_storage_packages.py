# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of mounting and serving NFS, on both families."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import OK, PENDING
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.engine import settle
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import Node
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.options import (
    CLIENT,
    SERVER,
    Packages,
)

DEBIAN, REDHAT = "debian", "redhat"


class Machine:
    """dpkg and rpm as they answer, apt-get and dnf that install."""

    def __init__(self, root: Path, family: str, *installed: str) -> None:
        self.root = root
        release = "ID=debian\nVERSION_ID=12\n" if family == DEBIAN else "ID=rocky\nVERSION_ID=9.4\n"
        (root / "etc").mkdir(parents=True, exist_ok=True)
        (root / "etc/os-release").write_text(release)
        # EPEL has dpkg: the family is read from the release.
        (root / "usr/bin").mkdir(parents=True)
        (root / "usr/bin/dpkg-query").touch()
        self.installed = set(installed)
        self.removed: set[str] = set()
        self.calls: list[list[str]] = []
        self.unable = ""

    def run(self, argv, *, check=True, stdin=None):
        self.calls.append(list(argv))
        rc, text = getattr(self, f"_{argv[0].replace('-', '_')}")(list(argv))
        if check and rc:
            raise CommandError(f"{argv[0]}: {text}")
        return Result(tuple(argv), rc, text, "")

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
        node = Node(
            layer="storage",
            root=self.root,
            run=self.run,
            container=None,
            boot_id="b",
            check_mode=check_mode,
            uid=os.getuid(),
            gid=os.getgid(),
        )
        return settle([Packages(purposes, self.run)], node)

    def changed(self) -> list[list[str]]:
        return [call for call in self.calls if call[0] in ("apt-get", "dnf")]


@pytest.mark.parametrize("family", [DEBIAN, REDHAT])
def test_what_is_missing_is_installed_once(tmp_path, family):
    machine = Machine(tmp_path, family)
    shown = machine.settle(CLIENT, SERVER, "xfs", check_mode=True)
    assert shown.changed and {check.status for check in shown.checks} == {PENDING}
    assert not machine.changed()
    first = machine.settle(CLIENT, SERVER)
    assert first.changed and not first.errors
    assert {check.status for check in first.checks} == {OK}
    done = len(machine.changed())
    second = machine.settle(CLIENT, SERVER)
    assert not second.changed and len(machine.changed()) == done


def test_only_what_is_missing_is_asked_for(tmp_path):
    """Otherwise a run would upgrade what is there."""
    machine = Machine(tmp_path, DEBIAN, "nfs-common")
    machine.settle(CLIENT, SERVER)
    assert machine.changed()[-1][-2:] == ["install", "nfs-kernel-server"]
    assert "--no-remove" in machine.changed()[-1]


def test_what_was_removed_and_left_its_settings_is_not_there(tmp_path):
    machine = Machine(tmp_path, DEBIAN)
    machine.removed = {"nfs-common"}
    assert machine.settle(CLIENT).changed and "nfs-common" in machine.installed


def test_what_the_package_manager_says_of_a_failure_is_told(tmp_path):
    machine = Machine(tmp_path, REDHAT)
    machine.unable = "No match for argument: nfs-utils"
    assert machine.unable in machine.settle(CLIENT).errors[0]
