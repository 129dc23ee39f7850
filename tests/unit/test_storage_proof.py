# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Both rounds on one host: what is touched, what is told, and each fault once."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import mounts as mounted
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    bounded,
    probe,
    proof,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
    Serve,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.proof import (
    Seat,
    Target,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.units import (
    wanted_mounts,
)

from tests.waiting import deadline

MOUNT = "/mnt/checkpoints"
SIZE = 1 << 20
FS = FileSystem("checkpoints", "nfs", "10.10.2.1:/export/a", MOUNT, "checkpoints")
LINE = f"71 28 0:50 / {MOUNT} rw,relatime shared:3 - nfs4 10.10.2.1:/export/a rw,addr=10.10.2.1"
TRAP = f"70 28 0:49 / {MOUNT} rw,relatime - autofs systemd-1 rw,fd=5"
WROTE = {"bytes": SIZE, "seconds": 0.5, "began": 10.0, "ended": 10.5}
LOOKED = {
    "line": LINE,
    "free_bytes": 100 << 30,
    "free_files": 1000,
    "all_files": 2000,
    "read_only": False,
    "own_address": "10.10.1.1",
}
WRITTEN = {**LOOKED, "wrote": WROTE, "renamed": True, "owner": [1000, 1000], "end": True}
HAS_READ = {
    **LOOKED,
    "seen_owner": [1000, 1000],
    "read": WROTE,
    "read_right": True,
    "seen": 2,
    "missing": [],
    "sizes": {},
    "end": True,
}


def target(fs: FileSystem = FS, host: str = "node01", **changes: Any) -> Target:
    (wanted,) = wanted_mounts([fs], host, ["compute"], 30)
    base = Target(
        wanted=wanted,
        seat=Seat(3, "node02", SIZE, ("node02", "node03")),
        host=host,
        cluster="c",
        token="run1",
        user="mpi",
        uid=1000,
        size=SIZE,
        limit_s=7,
    )
    return replace(base, **changes)


def here(*lines: str, **changes: Any) -> proof.Here:
    return proof.Here(mounts=lambda: mounted.parse("\n".join(lines)), **changes)


def answers(monkeypatch: pytest.MonkeyPatch, *found: Any) -> list[str]:
    """The probe as it would have told; what was asked for comes back."""
    asked: list[str] = []
    left = list(found)

    def ask(target: Target, here: proof.Here, do: str) -> bounded.Answer:
        asked.append(do)
        given = left.pop(0)
        return given if isinstance(given, bounded.Answer) else bounded.Answer(given, "end", True)

    monkeypatch.setattr(proof, "_ask", ask)
    return asked


def statuses(held: proof.Held) -> dict[str, str]:
    return {check["name"]: check["status"] for check in held.checks}


def failed(held: proof.Held) -> list[Check]:
    return [check for check in proof.checks_of([held]) if check.status == FAILED]


def one_fault(held: proof.Held) -> Check:
    """One failure, with something to do; everything that was promised is spoken of."""
    (check,) = failed(held)
    assert check.subject == MOUNT
    assert len(check.reason) > 20
    assert [each["name"] for each in held.checks] == list(proof.EVERY)
    for each in proof.checks_of([held]):
        if each.reason.startswith("not read"):
            assert each.reason == f"not read: see {check.name}"
    return check


def write(given: Target, monkeypatch: pytest.MonkeyPatch, found: Any) -> proof.Held:
    answers(monkeypatch, found)
    return proof.write(given, here(LINE))


NOT_ALLOWED = bounded.Answer(
    {
        **LOOKED,
        "top": {"uid": 0, "gid": 7, "mode": 0o755},
        "groups": [1000],
        "error": {"number": errno.EACCES, "text": "Permission denied"},
    },
    "opening the directory .baremetal-mpi-roce",
    True,
)
HOMES = replace(FS, purpose="home")


@pytest.mark.parametrize(
    "fs",
    [
        replace(FS, owner="root", mode="0755"),
        replace(FS, owner="root", group="staff", mode="2775"),  # the MPI user is not of it
        HOMES,
        replace(FS, purpose="software"),
    ],
)
def test_what_belongs_to_others_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, fs: FileSystem
) -> None:
    held = write(target(fs), monkeypatch, NOT_ALLOWED)
    assert not failed(held)
    says = statuses(held)
    for name in ("mounted", "server", "answers", "read_only"):
        assert says[f"storage_{name}"] == OK
    assert says["storage_write"] == says["storage_neighbour"] == NOT_APPLICABLE
    reason = next(each["reason"] for each in held.checks if each["name"] == "storage_write")
    assert "mpi writes nothing there" in reason and ".baremetal-mpi-roce" in reason
    again = proof.read(target(fs), held, here(LINE))
    assert again.checks == held.checks
    closed = replace(
        NOT_ALLOWED, step=f"opening {MOUNT}", found={"error": NOT_ALLOWED.found["error"]}
    )
    assert not failed(write(target(fs), monkeypatch, closed))  # not even to be looked at


@pytest.mark.parametrize(
    "fs",
    [
        FS,
        replace(FS, owner="mpi"),
        replace(FS, owner="1000"),
        replace(FS, owner="root", mode="1777"),
        replace(HOMES, serve=Serve("store01")),  # ours: without an owner it is the MPI user's
    ],
)
def test_what_is_for_the_mpi_user_has_to_take_what_it_writes(
    monkeypatch: pytest.MonkeyPatch, fs: FileSystem
) -> None:
    check = one_fault(write(target(fs), monkeypatch, NOT_ALLOWED))
    assert check.name == "storage_write"


def test_a_member_of_its_group_is_meant_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    member = replace(NOT_ALLOWED, found={**NOT_ALLOWED.found, "groups": [7, 1000]})
    fs = replace(FS, owner="root", group="staff", mode="2775")
    assert one_fault(write(target(fs), monkeypatch, member)).name == "storage_write"
    elsewhere = replace(NOT_ALLOWED, step="writing node01.data")
    homes = write(target(HOMES), monkeypatch, elsewhere)
    assert one_fault(homes).name == "storage_write"  # it could make its directory


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, WRITTEN, HAS_READ)
    wrote = proof.write(target(), here(LINE))
    assert asked == ["write"]
    assert not failed(wrote)
    found = proof.read(target(), wrote, here(LINE))
    assert asked == ["write", "read"]
    assert not failed(found)
    says = statuses(found)
    assert list(says) == list(proof.EVERY)
    for name in ("mounted", "server", "answers", "write", "rename", "owner", "neighbour", "names"):
        assert says[f"storage_{name}"] == OK
    for name in ("space", "files", "write_rate", "read_rate"):  # nobody asked for any
        assert says[f"storage_{name}"] == NOT_APPLICABLE
    assert set(found.figures) == {"wrote", "read", "own_address", "served_here"}


# ---- what keeps the probe from being started at all


def test_a_mount_point_where_nothing_is_mounted_is_not_touched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answers(monkeypatch)
    check = one_fault(proof.write(target(), here()))
    assert asked == []
    assert (check.name, check.found) == ("storage_mounted", "not mounted")
    assert "mnt-checkpoints.mount" in check.reason


def test_in_a_container_it_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch)
    found = proof.write(target(), here(container="podman"))
    assert asked == []
    assert set(statuses(found).values()) == {NOT_APPLICABLE}
    assert "container (podman): mounts are made by" in found.checks[0]["reason"]


def test_another_server_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch)
    other = LINE.replace("10.10.2.1:/export/a", "10.10.2.9:/export/a")
    check = one_fault(proof.write(target(), here(other)))
    assert asked == []
    assert check.name == "storage_server"
    assert check.wanted == "10.10.2.1:/export/a"
    assert str(check.found).startswith("10.10.2.9:/export/a")


def test_an_automount_point_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, WRITTEN)
    assert not failed(proof.write(target(), here(TRAP)))
    assert asked == ["write"]


# ---- what the open directory turns out to be


@pytest.mark.parametrize(
    ("line", "right"),
    [
        (LINE, True),
        (LINE.replace("10.10.2.1:/export/a", "10.10.2.9:/export/a"), False),
        (LINE.replace("nfs4", "ext4"), False),
        (TRAP, None),
        ("28 1 8:1 / / rw - ext4 /dev/sda1 rw", None),
        ("", None),
    ],
)
def test_only_the_wanted_file_system_is_written_to(line: str, right: Any) -> None:
    assert proof.is_right(target(), line, mounted.parse(line)) is right


def test_unmounted_between_the_look_and_the_write(tmp_path: Path) -> None:
    """The table says mounted, the directory that was opened is one of this node."""
    fs = replace(FS, mount=str(tmp_path))
    line = LINE.replace(MOUNT, str(tmp_path))
    given = replace(target(fs), limit_s=deadline(60))
    found = proof.write(given, here(line, records=tmp_path / "records"))
    (check,) = failed(found)
    assert check.name == "storage_mounted"
    assert list(tmp_path.iterdir()) == []


def test_a_bind_mount_is_known_by_its_place() -> None:
    fs = replace(FS, source="store:/srv/a", serve=Serve("store"))
    given = target(fs, host="store")
    root = "28 1 8:1 / / rw - ext4 /dev/sda1 rw"
    right = f"71 28 8:1 /srv/a {MOUNT} rw - ext4 /dev/sda1 rw"
    wrong = f"71 28 8:1 /srv/b {MOUNT} rw - ext4 /dev/sda1 rw"
    assert proof.is_right(given, right, mounted.parse(f"{root}\n{right}")) is True
    assert proof.is_right(given, wrong, mounted.parse(f"{root}\n{wrong}")) is False
    assert given.wanted.is_bind


# ---- faults, each told once


@pytest.mark.parametrize(
    ("number", "step", "name", "says"),
    [
        (errno.ESTALE, "opening /mnt/checkpoints", "storage_mounted", "stale handle"),
        (errno.ESTALE, "writing node01.data", "storage_mounted", "stale handle"),
        (errno.EROFS, "writing node01.data", "storage_read_only", "read-only"),
        (errno.ENOSPC, "fsync of node01.data", "storage_space", "full"),
        (errno.EDQUOT, "writing node01.data", "storage_space", "quota"),
        (errno.EACCES, "opening the directory c", "storage_write", "not allowed"),
        (errno.EPERM, "writing node01.data", "storage_write", "not allowed"),
        (errno.EIO, "fsync of node01.data", "storage_write", "EIO"),
        (errno.EHOSTDOWN, "opening /mnt/checkpoints", "storage_mounted", "could not be mounted"),
    ],
)
def test_an_error_while_writing_is_one_finding(
    monkeypatch: pytest.MonkeyPatch, number: int, step: str, name: str, says: str
) -> None:
    looked = {} if step.startswith("opening /") else LOOKED
    error = {"number": number, "text": os.strerror(number)}
    answers(monkeypatch, bounded.Answer({**looked, "error": error}, step, True))
    held = proof.write(target(), here(TRAP))
    check = one_fault(held)
    assert check.name == name
    assert says in str(check.found) and step in str(check.found)
    asked = answers(monkeypatch)
    assert failed(proof.read(target(), held, here(LINE))) == [check]  # and not tried again
    assert asked == []


def test_a_hung_server_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = bounded.Answer({}, "opening /mnt/checkpoints", False, left_behind=4711)
    check = one_fault(write(target(), monkeypatch, answer))
    assert check.name == "storage_answers"
    assert "within 7 s while opening /mnt/checkpoints" in str(check.found)
    assert "process 4711" in str(check.found)
    assert "10.10.2.1" in check.reason and "umount -f -l /mnt/checkpoints" in check.reason


def test_read_only_by_the_kernel_and_on_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    read_only = {**LOOKED, "read_only": True, "refused": True, "end": True}
    check = one_fault(write(target(), monkeypatch, read_only))
    assert (check.name, check.found) == ("storage_read_only", "read-only")
    asked = answers(monkeypatch, {**LOOKED, "read_only": True, "end": True})
    wanted = target(replace(FS, options=("ro",)))
    found = proof.write(wanted, here(LINE))
    assert asked == ["look"]
    assert not failed(found)
    assert statuses(found)["storage_write"] == NOT_APPLICABLE


@pytest.mark.parametrize("uid", [65534, 4294967294, 1001])
def test_a_file_that_belongs_to_another(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    check = one_fault(write(target(), monkeypatch, {**WRITTEN, "owner": [uid, uid]}))
    assert check.name == "storage_owner"
    assert str(uid) in str(check.found)
    assert ("nobody" in str(check.found)) == (uid != 1001)


def test_space_and_inodes_are_judged_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = target(replace(FS, space_gib=200, files=5000))
    found = write(given, monkeypatch, WRITTEN)
    assert {check.name for check in failed(found)} == {"storage_space", "storage_files"}
    assert statuses(found)["storage_write"] == OK
    enough = target(replace(FS, space_gib=100, files=1000))
    assert not failed(write(enough, monkeypatch, WRITTEN))
    none = {**WRITTEN, "all_files": 0, "free_files": 0}
    assert statuses(write(enough, monkeypatch, none))["storage_files"] == NOT_APPLICABLE


def test_a_probe_that_was_killed_is_not_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in ({}, dict(LOOKED)):
        check = one_fault(write(target(), monkeypatch, found))
        assert check.found == "its process ended early"


@pytest.mark.parametrize(
    ("about", "name"),
    [("own", "storage_write"), ("rename", "storage_rename")],
)
def test_a_server_that_lies_while_writing(
    monkeypatch: pytest.MonkeyPatch, about: str, name: str
) -> None:
    found = {**LOOKED, "wrong": {"about": about, "text": "other bytes"}}
    check = one_fault(write(target(), monkeypatch, found))
    assert (check.name, check.found) == (name, "other bytes")


# ---- the second round


def second(monkeypatch: pytest.MonkeyPatch, found: Any, **changes: Any) -> proof.Held:
    given = target(**changes)
    answers(monkeypatch, WRITTEN, found)
    return proof.read(given, proof.write(given, here(LINE)), here(LINE))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"about": "token", "text": "stale: of another run"}, "stale"),
        ({"about": "content", "text": "differs at 7"}, "differs at 7"),
    ],
)
def test_what_the_neighbour_wrote_is_not_what_is_read(
    monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], says: str
) -> None:
    check = one_fault(second(monkeypatch, {**LOOKED, "wrong": wrong}))
    assert check.name == "storage_neighbour"
    assert says in str(check.found)


def test_the_neighbours_file_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"number": errno.ENOENT, "text": "No such file or directory"}
    answer = bounded.Answer({**LOOKED, "error": error}, "reading node02.probe", True)
    check = one_fault(second(monkeypatch, answer))
    assert check.name == "storage_neighbour"
    assert "same" in check.reason


def test_the_neighbours_file_belongs_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    check = one_fault(second(monkeypatch, {**HAS_READ, "seen_owner": [65534, 65534]}))
    assert check.name == "storage_owner"
    assert "file of node02" in str(check.found)


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"missing": ["node03.probe"], "seen": 1}, "node03"), ({"sizes": {"node03.probe": 0}}, "0")],
)
def test_names_and_sizes(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], says: str
) -> None:
    check = one_fault(second(monkeypatch, {**HAS_READ, **changes}))
    assert check.name == "storage_names"
    assert says in str(check.found)


def test_one_host_alone_has_no_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    found = second(monkeypatch, {**LOOKED, "read_right": True, "end": True}, seat=Seat(1))
    assert not failed(found)
    assert statuses(found)["storage_neighbour"] == NOT_APPLICABLE


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, NOT_APPLICABLE),  # beside others
        ({"alone": True}, FAILED),
        ({"seat": Seat(1, "node02", SIZE, ("node02", "node03"))}, FAILED),
    ],
)
def test_one_nodes_rate_is_judged_where_it_was_alone(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], status: str
) -> None:
    fs = replace(FS, expect=Expectation(write_gb_s=1.0, read_gb_s=0.001))
    found = second(monkeypatch, HAS_READ, fs=fs, **changes)
    says = statuses(found)
    assert says["storage_write_rate"] == status  # 1 MiB in half a second
    assert says["storage_read_rate"] == (OK if status == FAILED else status)


def test_check_mode_looks_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = answers(monkeypatch, {**LOOKED, "end": True})
    given = target(check_mode=True)
    held = proof.write(given, here(LINE))
    assert asked == ["look"]
    assert not failed(held)
    says = statuses(held)
    assert says["storage_answers"] == OK and says["storage_write"] == NOT_APPLICABLE
    assert proof.read(given, held, here(LINE)).checks == held.checks
    assert asked == ["look"]


def test_the_rounds_with_a_real_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts and a directory in the place of the mount; nothing of the probe is made up."""
    fs = replace(FS, mount=str(tmp_path))
    line = LINE.replace(MOUNT, str(tmp_path))
    monkeypatch.setattr(probe, "mount_line", lambda handle: line)
    there = here(line, records=tmp_path.parent / "records")
    hosts = ("node01", "node02")

    def of(host: str, seat: Seat) -> Target:
        return target(fs, host, seat=seat, uid=os.geteuid(), limit_s=deadline(60))

    held = {host: proof.write(of(host, Seat(2)), there) for host in hosts}
    for host, other in zip(hosts, reversed(hosts)):
        size = held[other].figures["wrote"]["bytes"]
        found = proof.read(of(host, Seat(2, other, size, (other,))), held[host], there)
        assert not failed(found), failed(found)
        assert statuses(found)["storage_neighbour"] == OK
        assert found.figures["read"]["bytes"] == SIZE
