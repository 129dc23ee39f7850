# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What finished jobs left behind is decided by what their users cannot change."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import FAILED, OK
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node_check import leftovers

STEPD = "/usr/sbin/slurmstepd-wlm"
V2, V1 = "0::/system.slice/slurmstepd.scope/job_{}/step_0/user", "5:freezer:/slurm/uid_1/job_{}/x"


class Table:
    """Processes of a node: Slurm's daemons belong to root, the others to `uid`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uids: dict[int, int] = {}

    def add(
        self,
        pid: int,
        *argv: str,
        uid: int = 1000,
        parent: int = 50,
        state: str = "S",
        exe: str = "/usr/bin/su",
        group: str = "0::/user.slice",
        **env: str,
    ) -> None:
        folder = self.root / f"proc/{pid}"
        folder.mkdir(parents=True)
        (folder / "cmdline").write_bytes("".join(f"{word}\0" for word in argv).encode())
        (folder / "environ").write_text("".join(f"{key}={value}\0" for key, value in env.items()))
        (folder / "stat").write_text(f"{pid} ({argv[0][:15] if argv else 'k'}) {state} {parent} 1")
        (folder / "cgroup").write_text(f"{group}\n")
        (folder / "exe").symlink_to(exe)
        self.uids[pid] = uid

    def step(self, pid: int, job: int, **more: Any) -> None:
        title = f"slurmstepd: [{job}.0]"
        self.add(pid, title, **{"uid": 0, "exe": STEPD, "parent": 1, **more})

    def read(self) -> list[leftovers.Process]:
        real = Path.stat

        def stat(path: Path, **more: Any) -> Any:
            status = list(real(path, **more))
            if path.parent.name == "proc":
                status[4] = self.uids[int(path.name)]
            return os.stat_result(status)

        with mock.patch.object(Path, "stat", stat):
            return leftovers.read(self.root)

    def orphans(self, finished: str = "") -> list[int]:
        return [each.pid for each in leftovers.orphans(self.read(), finished)]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path)


def test_processes_whose_job_has_finished(table: Table) -> None:
    table.step(10, 77)
    table.add(11, "./solver", SLURM_JOB_ID="77")
    table.add(12, "./solver", SLURM_JOB_ID="76")
    table.add(13, "./rank", parent=1, OMPI_COMM_WORLD_RANK="3")
    table.add(14, "./rank", OMPI_COMM_WORLD_RANK="3")
    table.add(15, "./zombie", state="Z", SLURM_JOB_ID="76")
    table.add(16, "bash", "evil) S 1 (", SLURM_JOB_ID="x")
    table.add(17, "wandb", parent=1, OMPI_COMM_WORLD_RANK="3", SLURM_JOB_ID="77")
    assert table.orphans() == [12, 13] and table.orphans("77") == [11, 12, 13, 17]
    found = table.read()
    assert leftovers.orphans([replace(each, uid=0) for each in found]) == []
    check = leftovers.of_processes(found)
    assert (check.status, check.found) == (FAILED, [12, 13]) and "kill -9 12 13" in check.reason
    assert leftovers.of_processes([found[0]]).status == OK


def test_the_control_group_and_the_parents_decide_before_the_environment(table: Table) -> None:
    table.step(10, 77)
    table.add(11, "in", group=V2.format(77), SLURM_JOB_ID="1")
    table.add(12, "in", group=V1.format(77), parent=1, OMPI_COMM_WORLD_RANK="3")
    table.add(13, "child", parent=10, SLURM_JOB_ID="1")
    table.add(14, "grandchild", parent=13)
    table.add(20, "left", group=V2.format(76), SLURM_JOB_ID="77")
    table.add(21, "left", group=V1.format(76))
    table.add(30, "loop", parent=31)
    table.add(31, "loop", parent=30)
    assert table.orphans() == [20, 21] and table.orphans("77") == [11, 12, 13, 14, 20, 21]


@pytest.mark.parametrize(
    "title", [{"uid": 1000, "exe": STEPD}, {"exe": "/usr/bin/su"}, {"uid": 1000, "exe": "/x/y"}]
)
def test_a_title_makes_no_daemon_of_slurm(title: dict[str, Any], table: Table) -> None:
    table.step(10, 77, **title)
    table.add(11, "./miner", SLURM_JOB_ID="77")
    assert 11 in table.orphans()


@pytest.mark.parametrize(
    "path",
    [
        "/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_77",
        "/user.slice/slurmstepd.scope/job_77",
        "/user.slice/1:x:/slurm/uid_1000/job_77",
    ],
)
def test_groups_and_variables_of_users_make_no_member_of_a_job_of_others(
    path: str, table: Table
) -> None:
    table.step(10, 77)
    table.add(11, "rank", uid=2000, parent=10)
    table.add(12, "ssh", uid=2000, SLURM_JOB_ID="77")  # as mpirun starts by ssh
    table.add(13, "./miner", group=f"0::{path}", SLURM_JOB_ID="77")
    table.add(14, "shell", group=f"0::{path}")
    assert table.orphans() == [13]


def test_shared_memory_of_users_without_a_process(tmp_path: Path) -> None:
    (tmp_path / "dev/shm/deep").mkdir(parents=True)
    files = [("psm_1", 3 << 20, 1000), ("mine", 9 << 20, 1001), ("root", 9 << 20, 0)]
    with mock.patch.object(leftovers, "_files", lambda _top: iter(files)):
        alive = [leftovers.Process(9, 1001, 1, "x")]
        assert leftovers.of_memory(tmp_path, alive, 3).status == OK
        check = leftovers.of_memory(tmp_path, alive, 2)
    assert (check.name, check.status, check.found) == ("node_leftover_memory", FAILED, "3 MiB")
    (tmp_path / "dev/shm/deep/file").write_bytes(b"x" * 8192)
    (tmp_path / "dev/shm/link").symlink_to("/etc/passwd")
    ((name, size, uid),) = leftovers._files(tmp_path / "dev/shm")
    assert (name, uid) == ("file", os.getuid()) and size >= 8192


def test_memory_of_a_gpu_without_a_process() -> None:
    def run(argv: Any, **_more: Any) -> Result:
        used = "00000000:14:00.0, 4000\n00000000:32:00.0, 4000\n00000000:49:00.0, 600\n[N/A], x\n"
        text = used if argv == leftovers.QUERY else "00000000:32:00.0, 4242\n"
        return Result(tuple(argv), 0, text, "")

    checks = leftovers.of_gpus(run, 2048)
    assert [(each.name, each.subject, each.status) for each in checks] == [
        ("node_leftover_gpu", "0000:14:00.0", FAILED)
    ]
