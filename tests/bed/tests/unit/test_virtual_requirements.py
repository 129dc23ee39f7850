# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Missing requirements of virtual nodes are listed with their remedy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils import host_network
from ansible_collections.baremetal.bed.plugins.modules.virtual_requirements import (
    KEYRING,
    missing,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        KEYRING: "",
        "sys/fs/cgroup/cgroup.controllers": "",
        "proc/sys/fs/inotify/max_user_instances": "128\n",
        "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 2048000 kB\n",
        "var/lib/containers/x": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


class Machine:
    """A machine that meets all requirements, except those that a test removes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lacks: set[str] = set()
        self.refuses = ""
        self.uid = 0

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        if self.refuses and self.refuses in " ".join(argv):
            raise CommandError(f"{argv[0]}: Operation not permitted")
        return Result(tuple(argv), 0, "", "")

    def missing(
        self,
        nodes: int = 5,
        machines: Optional[dict[str, int]] = None,
        *,
        switches: int = 0,
        is_up: bool = False,
    ) -> str:
        wanted = {
            "nodes": nodes,
            "machines": machines or {},
            "switches": switches,
        }
        problems = missing(
            wanted,
            is_up=is_up,
            run=self,
            root=self.root,
            which=lambda name: None if name in self.lacks else f"/usr/bin/{name}",
            uid=lambda: self.uid,
        )
        return "\n".join(problems)


@pytest.fixture
def machine(root: Path) -> Machine:
    return Machine(root)


@pytest.fixture
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a container the limits of its host: /proc/sys is read-only."""
    monkeypatch.setattr(host_network.os, "access", lambda *_: False)


def test_without_root(machine: Machine) -> None:
    machine.uid = 1000
    assert machine.missing().startswith("root: uid 1000")


def test_every_missing_program_is_named_with_its_package(machine: Machine) -> None:
    machine.lacks = {"podman", "ip"}
    lines = machine.missing().splitlines()
    assert lines == [
        "program ip is missing: apt-get install iproute2",
        "program podman is missing: apt-get install podman",
    ]


def test_bootstrapping_needs_the_keys_of_debian(machine: Machine) -> None:
    machine.lacks = {"mmdebstrap"}
    (machine.root / KEYRING).unlink()
    assert "apt-get install mmdebstrap" in machine.missing()
    assert "debian-archive-keyring" in machine.missing()


def test_runc_is_needed_with_cgroup_v1(machine: Machine) -> None:
    machine.lacks = {"runc"}
    assert machine.missing() == ""
    (machine.root / "sys/fs/cgroup/cgroup.controllers").unlink()
    assert "apt-get install runc" in machine.missing()


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("--mount", "namespaces: "),
        ("type bridge", "modprobe veth bridge"),
        ("podman info", "podman info"),
    ],
)
def test_what_the_kernel_refuses(machine: Machine, command: str, says: str) -> None:
    machine.refuses = command
    assert says in machine.missing()
    assert "Operation not permitted" in machine.missing()


def watching(root: Path, pid: int, instances: int, *, uid: int = 0) -> None:
    """Add a process with this many inotify instances."""
    folder = root / f"proc/{pid}/fd"
    folder.mkdir(parents=True)
    (folder.parent / "status").write_text(f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    for number in range(instances):
        (folder / str(number)).symlink_to("anon_inode:inotify")
    (folder / "none").symlink_to("/dev/null")


@pytest.mark.usefixtures("fixed")
def test_inotify_instances_of_root_are_counted(machine: Machine) -> None:
    watching(machine.root, 12, 60)
    watching(machine.root, 13, 40)
    watching(machine.root, 14, 50, uid=1000)
    assert machine.missing(nodes=2) == ""
    said = machine.missing(nodes=5)
    assert "28 of 128 free (needed: 50)" in said
    assert "sysctl -w fs.inotify.max_user_instances=1024" in said
    assert "/etc/sysctl.d/" in said


def test_a_limit_that_can_be_raised_suffices_up_to_its_maximum(machine: Machine) -> None:
    watching(machine.root, 12, 100)
    assert machine.missing(nodes=5) == ""
    watching(machine.root, 13, 900)
    said = machine.missing(nodes=5)
    assert "24 of 1024 free (needed: 50)" in said
    assert "max_user_instances=2100" in said


def test_memory_is_counted_per_node(machine: Machine) -> None:
    assert "memory: 2000 MiB available (needed: 2100)" in machine.missing(nodes=21)


@pytest.mark.usefixtures("fixed")
def test_switches_need_less_than_nodes(machine: Machine) -> None:
    """The kernel's default limit suffices for the demo: five nodes and ten switches."""
    assert machine.missing(nodes=5, switches=10) == ""
    said = machine.missing(nodes=5, switches=26)
    assert "128 of 128 free (needed: 154)" in said
    assert "memory: 2000 MiB available (needed: 2060)" in said


def test_memory_of_machines_is_counted_and_once_only(machine: Machine) -> None:
    wanted = {"node01": 1024, "node02": 1024}
    said = machine.missing(nodes=1, machines=wanted)
    assert "memory: 2000 MiB available (needed: 2448)" in said
    assert machine.missing(nodes=1, machines=wanted, is_up=True) == ""


def test_switches_need_openssl(machine: Machine) -> None:
    machine.lacks = {"openssl"}
    assert machine.missing() == ""
    assert "apt-get install openssl" in machine.missing(switches=1)


def test_machines_need_qemu_and_what_makes_their_disk(machine: Machine) -> None:
    machine.lacks = {"qemu-system-x86_64", "qemu-img", "mkfs.ext4"}
    assert machine.missing() == ""
    said = machine.missing(machines={"node01": 512})
    for package in ("qemu-system-x86", "qemu-utils", "e2fsprogs"):
        assert f"apt-get install {package}" in said


def test_machines_need_taps(machine: Machine) -> None:
    machine.refuses = "tuntap"
    assert machine.missing() == ""
    said = machine.missing(machines={"node01": 512})
    assert "/dev/net/tun" in said and "virtual_nodes_kind" in said
