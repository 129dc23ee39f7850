# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages that roles install are read back from the package manager of the distribution."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.packages.installed import (
    QUERY,
    Installed,
)

DPKG = "jq\tinstalled\t\nchrony\tinstalled\ttime-daemon, ntp-server (= 4)\nhwloc\tconfig-files\t\n"
RPM = {
    "--whatprovides": "jq-1.6\nno package provides hwloc\nno package provides jq-1.6\n",
    "--query": "package hwloc is not installed\njq-1.6-15.el9.x86_64\n",
}
RELEASES = {"debian": "ID=debian\nVERSION_ID=12\n", "rocky": "ID=rocky\nVERSION_ID=9.4\n"}


def node(root: Path, release: str, check_mode: bool) -> Any:
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/os-release").write_text(RELEASES[release])
    # Each family may have the other's package manager too, with packages that do not count.
    (root / "var/lib/dpkg").mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").write_text("")

    def look(argv: Any, **_more: Any) -> Any:
        assert (argv[0] == "dpkg-query") is (release == "debian")
        return SimpleNamespace(stdout=DPKG if tuple(argv) == QUERY else RPM[argv[2]])

    return SimpleNamespace(root=root, look=look, check_mode=check_mode)


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    ("release", "names", "missing"),
    [
        ("debian", ["jq", "time-daemon", "ntp-server", "hwloc", "jq=1.6"], ["hwloc"]),
        ("debian", ["jq:amd64", "numactl"], ["numactl"]),
        ("rocky", ["jq", "hwloc", "jq-1.6"], ["hwloc"]),
    ],
)
def test_a_missing_package_is_named(
    tmp_path: Path, release: str, names: list[str], missing: list[str], check_mode: bool
) -> None:
    checks = Installed(names).verify(node(tmp_path, release, check_mode)).checks
    wrong = "pending" if check_mode else "failed"
    assert {check.subject: check.status for check in checks} == {
        name: wrong if name in missing else "ok" for name in names
    }


def test_a_group_or_a_file_is_not_read(tmp_path: Path) -> None:
    names = ["@development", "/tmp/x.deb", "lib*"]
    checks = Installed(names).verify(node(tmp_path, "debian", False)).checks
    assert [(check.subject, check.status) for check in checks] == [
        (name, "not_applicable") for name in names
    ]
