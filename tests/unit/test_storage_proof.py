# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both rounds on one host: writes, checks, and each fault once."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import bounded
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    PENDING,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    probe,
    proof,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
    Serve,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.proof import Proof, Target
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import (
    wanted_mounts,
)

from tests.waiting import deadline

MOUNT = "/mnt/checkpoints"
SIZE = 1 << 20
FS = FileSystem("checkpoints", "nfs", "10.10.2.1:/export/a", MOUNT, "checkpoints")
LINE = f"71 28 0:50 / {MOUNT} rw,relatime shared:3 - nfs4 10.10.2.1:/export/a rw,addr=10.10.2.1"
TRAP = f"70 28 0:49 / {MOUNT} rw,relatime - autofs systemd-1 rw,fd=5"
OTHER = LINE.replace("10.10.2.1:/export/a", "10.10.2.9:/export/a")
TIMES = {"bytes": SIZE, "seconds": 0.5, "ended": 10.5}
LOOKED = {
    "line": LINE,
    "right": True,
    "free_bytes": 100 << 30,
    "free_files": 1000,
    "all_files": 2000,
    "read_only": False,
    "own_address": "10.10.1.1",
}
WRITTEN = {**LOOKED, "wrote": TIMES, "owner": 1000}
HAS_READ = {**LOOKED, "read": TIMES, "owner": 1000}


def target(fs: FileSystem = FS, host: str = "node01", **changes: Any) -> Target:
    (wanted,) = wanted_mounts([fs], host, ["compute"], 30)
    base = Target(
        wanted=wanted,
        host=host,
        cluster="c",
        token="run1",
        user="mpi",
        uid=1000,
        size=SIZE,
        limit_s=7,
        writers=3,
        neighbour="node02",
        neighbour_bytes=SIZE,
    )
    return replace(base, **changes)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the probe report `found`; returns its arguments."""

    def put(found: Any) -> list[str]:
        asked: list[str] = []

        def ask(target: Target, do: str) -> bounded.WorkResult:
            asked.append(do)
            ended = isinstance(found, bounded.WorkResult)
            return found if ended else bounded.WorkResult(found, "end", True)

        monkeypatch.setattr(proof, "_ask", ask)
        return asked

    return put


@pytest.fixture
def writing(answers: Any) -> Any:
    def write(found: Any, given: Target = target(), do: Any = proof.write) -> Proof:  # noqa: B008
        answers(found)
        return do(given)  # type: ignore[no-any-return]

    return write


@pytest.fixture
def reading(writing: Any) -> Any:
    return partial(writing, do=proof.read)


def statuses(done: Proof) -> dict[str, str]:
    return {name.removeprefix("storage_"): check.status for name, check in done.checks.items()}


def failed(done: Proof) -> list[Check]:
    return [check for check in done.checks.values() if check.status == FAILED]


def one_fault(done: Proof) -> Check:
    """The only failure, with a remedy; dependent checks refer to it."""
    (check,) = failed(done)
    assert check.subject == MOUNT
    assert len(check.reason) > 20
    for each in done.checks.values():
        if each.reason.startswith("not read"):
            assert each.reason == f"not read: see {check.name}"
    return check


# Both rounds


def test_a_healthy_file_system(answers: Any) -> None:
    assert answers(WRITTEN) == []
    wrote = proof.write(target())
    assert statuses(wrote) == {
        **dict.fromkeys(("mounted", "answers", "read_only", "write", "owner"), OK),
        **dict.fromkeys(("space", "files", "write_rate"), NOT_APPLICABLE),  # none is wanted
    }
    assert wrote.figures == {"wrote": TIMES, "own_address": "10.10.1.1", "served_here": False}
    asked = answers(HAS_READ)
    read = proof.read(target())
    assert asked == ["read"]
    assert statuses(read) == {"neighbour": OK, "owner": OK, "read_rate": NOT_APPLICABLE}
    assert read.figures["read"] == TIMES


def test_check_mode_writes_nothing(answers: Any) -> None:
    asked = answers(LOOKED)
    done = proof.write(target(check_mode=True))
    assert asked == ["look"] and not failed(done)
    assert set(done.checks) == set(proof.PROMISES)
    found = statuses(done)
    assert [found[name] for name in ("answers", "write", "neighbour")] == [
        OK,
        *[NOT_APPLICABLE] * 2,
    ]


@pytest.mark.parametrize(
    ("changes", "status"),
    [({}, FAILED), ({"check_mode": True}, PENDING), ({"container": "podman"}, NOT_APPLICABLE)],
)
@pytest.mark.parametrize("line", ["", TRAP, "28 1 8:1 / / rw - ext4 /dev/sda1 rw"])
def test_nothing_is_written_without_mount(
    writing: Any, line: str, changes: dict[str, Any], status: str
) -> None:
    done = writing({"line": line, "right": False}, target(**changes))
    assert statuses(done).pop("mounted") == status
    assert set(statuses(done).values()) == {status, NOT_APPLICABLE}
    assert len(done.checks) == len(proof.PROMISES)
    if status == FAILED:
        assert "mnt-checkpoints.mount" in one_fault(done).reason


def test_another_server_is_not_written(writing: Any) -> None:
    check = one_fault(writing({**LOOKED, "line": OTHER, "right": False}))
    assert (check.name, check.wanted) == ("storage_mounted", "10.10.2.1:/export/a")
    assert str(check.found).startswith("10.10.2.9:/export/a")


WEKA = FileSystem("w", "wekafs", "backend/fs", MOUNT, "scratch", managed=False)
WEKA_LINE = f"71 28 0:50 / {MOUNT} rw,relatime - wekafs default rw"


@pytest.mark.parametrize(
    ("line", "reported"),
    [(LINE, "10.10.2.1:/export/a (nfs4)"), (TRAP, "not mounted"), ("", "not mounted")],
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_mount_of_others_is_missing(
    answers: Any, line: str, reported: str, check_mode: bool
) -> None:
    answers({**LOOKED, "line": line, "right": False})
    found = proof.write(target(WEKA, check_mode=check_mode)).checks["storage_mounted"]
    assert (found.status, found.found) == (FAILED, reported)
    assert "wekafs" in found.reason


def test_a_mount_of_others_is_known_by_its_type() -> None:
    wanted = target(WEKA).wanted
    for line, right in ((WEKA_LINE, True), (LINE, False)):
        running = target(WEKA).mounted(line)
        assert running is not None and wanted.is_source(running, [running]) is right
    nfs = target(replace(FS, managed=False, source="vast.example.net:/data"))
    running = nfs.mounted(LINE)
    assert running is not None and nfs.wanted.is_source(running, [running])


@pytest.mark.parametrize("line", [LINE, OTHER, LINE.replace("nfs4", "ext4"), None])
def test_both_rounds_with_the_real_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: Optional[str]
) -> None:
    """Two hosts, and a directory instead of a mount; None as after an unmount."""
    fs = replace(FS, mount=str(tmp_path))
    if line:
        monkeypatch.setattr(probe, "mount_line", lambda _handle: line.replace(MOUNT, str(tmp_path)))

    def of(host: str, **seat: Any) -> Target:
        return target(fs, host, uid=os.geteuid(), limit_s=deadline(60), writers=2, **seat)

    hosts = ("node01", "node02")
    wrote = {host: proof.write(of(host)) for host in hosts}
    if line != LINE:
        assert failed(wrote["node01"])[0].name == "storage_mounted"
        assert list(tmp_path.iterdir()) == []
        return
    for host, other in zip(hosts, reversed(hosts)):
        size = wrote[other].figures["wrote"]["bytes"]
        found = proof.read(of(host, neighbour=other, neighbour_bytes=size))
        assert not failed(found), failed(found)
        assert found.figures["read"]["bytes"] == SIZE


# File systems of others

NOT_ALLOWED = bounded.WorkResult(
    {**LOOKED, "error": {"number": errno.EACCES, "text": "Permission denied"}},
    "opening the directory .baremetal-mpi-roce",
    True,
)
HOMES = replace(FS, purpose="home")


@pytest.mark.parametrize(
    "fs", [replace(FS, owner="root", mode="0755"), HOMES, replace(FS, purpose="software")]
)
def test_directories_of_others_are_not_written(writing: Any, fs: FileSystem) -> None:
    done = writing(NOT_ALLOWED, target(fs))
    assert not failed(done)
    found = statuses(done)
    assert {found[name] for name in ("mounted", "answers", "read_only")} == {OK}
    assert found["write"] == found["neighbour"] == NOT_APPLICABLE
    assert ".baremetal-mpi-roce" in done.checks["storage_write"].reason
    closed = {"error": NOT_ALLOWED.found["error"]}
    closed_step = replace(NOT_ALLOWED, step=f"opening {MOUNT}", found=closed)
    assert not failed(writing(closed_step, target(fs)))  # it must not even be accessed


@pytest.mark.parametrize(
    "fs",
    [
        FS,
        replace(FS, owner="mpi"),
        replace(FS, owner="1000"),
        replace(HOMES, serve=Serve("store01")),  # without an owner, the MPI user's
    ],
)
def test_the_mpi_user_must_be_able_to_write(writing: Any, fs: FileSystem) -> None:
    assert one_fault(writing(NOT_ALLOWED, target(fs))).name == "storage_write"
    elsewhere = replace(NOT_ALLOWED, step="writing node01.data")
    assert one_fault(writing(elsewhere, target(HOMES))).name == "storage_write"


# Faults of the first round


@pytest.mark.parametrize(
    ("number", "step", "name"),
    [
        (errno.ESTALE, "opening /mnt/checkpoints", "storage_mounted"),
        (errno.ESTALE, "writing node01.data", "storage_mounted"),
        (errno.EHOSTDOWN, "opening /mnt/checkpoints", "storage_mounted"),
        (errno.EROFS, "writing node01.data", "storage_read_only"),
        (errno.ENOSPC, "fsync of node01.data", "storage_space"),
        (errno.EDQUOT, "writing node01.data", "storage_space"),
        (errno.EACCES, "opening the directory c", "storage_write"),
        (errno.EIO, "fsync of node01.data", "storage_write"),
    ],
)
def test_an_error_is_one_finding(writing: Any, number: int, step: str, name: str) -> None:
    looked = {} if step.startswith("opening /") else LOOKED
    error = {"number": number, "text": os.strerror(number)}
    check = one_fault(writing(bounded.WorkResult({**looked, "error": error}, step, True)))
    assert check.name == name
    assert step in str(check.found) and errno.errorcode[number] in str(check.found)


def test_a_hung_server_is_reported(writing: Any) -> None:
    check = one_fault(writing(bounded.WorkResult({}, "opening /mnt/checkpoints", False, 4711)))
    assert check.name == "storage_answers"
    assert "within 7 s while opening /mnt/checkpoints" in str(check.found)
    assert "process 4711" in str(check.found)
    assert "10.10.2.1" in check.reason and "umount -f -l /mnt/checkpoints" in check.reason


def test_read_only_mounts(writing: Any, answers: Any) -> None:
    check = one_fault(writing({**LOOKED, "read_only": True}))
    assert (check.name, check.found) == ("storage_read_only", "read-only")
    asked = answers({**LOOKED, "read_only": True})
    done = proof.write(target(replace(FS, options=("ro",))))
    assert asked == ["look"] and not failed(done)
    assert statuses(done)["write"] == NOT_APPLICABLE


@pytest.mark.parametrize("uid", [65534, 4294967294, 1001])
def test_a_wrong_owner_is_reported(writing: Any, reading: Any, uid: int) -> None:
    for check in (
        one_fault(writing({**WRITTEN, "owner": uid})),
        one_fault(reading({**HAS_READ, "owner": uid})),
    ):
        assert check.name == "storage_owner"
        assert str(uid) in str(check.found)
        assert ("nobody" in str(check.found)) == (uid != 1001)
    assert "file of node02" in str(check.found)


def test_low_space_does_not_prevent_other_checks(writing: Any) -> None:
    done = writing(WRITTEN, target(replace(FS, space_gib=200, files=5000)))
    assert {check.name for check in failed(done)} == {"storage_space", "storage_files"}
    assert statuses(done)["write"] == OK
    enough = target(replace(FS, space_gib=100, files=1000))
    assert not failed(writing(WRITTEN, enough))
    none = {**WRITTEN, "all_files": 0, "free_files": 0}
    assert statuses(writing(none, enough))["files"] == NOT_APPLICABLE


def test_a_killed_probe_fails(writing: Any, reading: Any) -> None:
    for done in (writing({}), writing(LOOKED), reading(LOOKED)):
        assert one_fault(done).found == "its process exited early"


# ContentError answers


@pytest.mark.parametrize(
    ("about", "name"),
    [
        (probe.OWN, "storage_write"),
        (probe.RENAME, "storage_write"),
        (probe.TOKEN, "storage_neighbour"),
        (probe.CONTENT, "storage_neighbour"),
    ],
)
def test_wrong_contents_are_reported(writing: Any, reading: Any, about: str, name: str) -> None:
    found = {**LOOKED, "wrong": {"about": about, "text": "differs at 7"}}
    check = one_fault((writing if name == "storage_write" else reading)(found))
    assert (check.name, check.found) == (name, "differs at 7")


def test_links_of_users_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere/c").mkdir(parents=True)
    (tmp_path / probe.DIRECTORY).symlink_to("elsewhere")
    handle = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(OSError):
        probe.directory(handle, "c", lambda _step: None, make=False)
    os.close(handle)


def test_a_missing_file_of_the_neighbour(reading: Any) -> None:
    found = {**LOOKED, "error": {"number": errno.ENOENT, "text": "No such file or directory"}}
    check = one_fault(reading(bounded.WorkResult(found, "reading node02.probe", True)))
    assert check.name == "storage_neighbour" and "same export" in check.reason


def test_a_single_host_has_no_neighbour(reading: Any) -> None:
    done = reading({**LOOKED, "owner": None}, target(neighbour="", writers=1))
    assert statuses(done) == {"neighbour": NOT_APPLICABLE, "read_rate": NOT_APPLICABLE}


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, NOT_APPLICABLE),  # together with others
        ({"alone": True}, FAILED),
        ({"writers": 1}, FAILED),
    ],
)
def test_rates_are_compared_only_without_concurrency(
    writing: Any, reading: Any, changes: dict[str, Any], status: str
) -> None:
    given = target(replace(FS, expect=Expectation(write_gb_s=1.0, read_gb_s=0.001)), **changes)
    assert statuses(writing(WRITTEN, given))["write_rate"] == status  # 1 MiB in half a second
    right = OK if status == FAILED else status
    assert statuses(reading(HAS_READ, given))["read_rate"] == right
