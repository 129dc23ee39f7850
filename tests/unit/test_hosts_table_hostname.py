"""The host's own name: files planned under a root, and what keeps them from being replaced."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.names import host_name


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc/self").mkdir(parents=True)
    return tmp_path


def test_the_name_is_one_line(root: Path) -> None:
    (root / "etc/hostname").write_text("localhost.localdomain\n")
    planned = host_name.plan_hostname("node01", root)
    assert (planned.before, planned.after) == ("localhost.localdomain\n", "node01\n")


def test_no_cloud_init_no_file(root: Path) -> None:
    assert host_name.plan_cloud_init(root) == []


def test_cloud_init_is_told_to_leave_both_alone(root: Path) -> None:
    (root / "etc/cloud/cloud.cfg.d").mkdir(parents=True)
    (planned,) = host_name.plan_cloud_init(root)
    assert planned.path == root / "etc/cloud/cloud.cfg.d/99-baremetal-mpi-roce.cfg"
    assert "preserve_hostname: true\nmanage_etc_hosts: false\n" in (planned.after or "")


def test_a_mount_over_a_file_is_seen(root: Path) -> None:
    (root / "proc/self/mountinfo").write_text(
        "1 0 0:1 / / rw - overlay overlay rw\n"
        "2 1 0:2 /x/hosts /etc/hosts rw - tmpfs tmpfs rw\n"
        "3 1 0:2 /etc/hostname /somewhere rw - tmpfs tmpfs rw\n"
    )
    paths = [root / "etc/hosts", root / "etc/hostname"]
    assert host_name.mounted_over(paths, root) == [root / "etc/hosts"]


def test_without_mountinfo_nothing_is_mounted_over(root: Path) -> None:
    assert host_name.mounted_over([root / "etc/hosts"], root) == []


def test_a_refusal_of_the_kernel_says_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_name: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "sethostname", refuse)
    with pytest.raises(host_name.HostNameError, match=r"'node01'.*not permitted.*SYS_ADMIN"):
        host_name.set_running_name("node01")
