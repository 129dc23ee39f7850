# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The device of a served directory, which is never formatted if it contains data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import NoAnswerError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.device import (
    Device,
    label,
)

from tests.unit.storage_node import found, wrong
from tests.unit.storage_server import DISK, MIB, ServerHost, system

GOLDEN = Path(__file__).parent / "golden/storage"
UNIT = "etc/systemd/system/srv-checkpoints.mount"
BLANK = system(device=DISK, format="xfs")
AS_IT_IS = system(device=DISK)


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path)


def made(host: ServerHost) -> int:
    return host.ran("mkfs.xfs") + host.ran("mkfs.ext4")


def refused(host: ServerHost, wanted: object) -> str:
    """The refusal; nothing was changed."""
    before = host.snapshot()
    with pytest.raises(PlanError) as error:
        host.settle(wanted)  # type: ignore[arg-type]
    assert host.snapshot() == before and made(host) == 0
    return str(error.value)


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_blank_device_is_formatted_once(host: ServerHost, kind: str) -> None:
    disk = host.disk()
    wanted = system(device=DISK, format=kind)
    outcome = host.settle(wanted)
    assert wrong(outcome) == []
    assert disk.read_bytes().startswith(f"FS {kind} {label('checkpoints')}\n".encode())
    assert host.units["srv-checkpoints.mount"] == "enabled, active"
    assert f"What={DISK}\n" in host.read(UNIT)
    assert f"Type={kind}\n" in host.read(UNIT)

    before = disk.read_bytes()
    outcome = host.settle(wanted)
    assert not outcome.changed and wrong(outcome) == []
    assert made(host) == 1 and disk.read_bytes() == before


def test_check_mode_shows_the_plan(host: ServerHost) -> None:
    disk = host.disk()
    checked = host.settle(BLANK, check_mode=True)
    assert made(host) == 0 and not any(disk.read_bytes())
    assert {check.status for check in checked.checks} <= {"pending", "ok", "not_applicable"}
    done = host.settle(BLANK)
    assert [each["after"] for each in checked.diff] == [each["after"] for each in done.diff]


def test_the_unit_matches_the_golden_file() -> None:
    device = Device("checkpoints", DISK, "xfs", "/srv/checkpoints")
    assert device.unit_text("xfs") == (GOLDEN / "srv-checkpoints.mount").read_text()


def test_labels_fit_both_file_systems_and_differ() -> None:
    names = ["scratch", "checkpoints", "checkpoint-2", "a" * 40, "a" * 41]
    assert label("scratch") == "roce-scratch"
    assert len({label(name) for name in names}) == len(names)
    assert all(len(label(name)) <= 12 for name in names)


Put = Callable[[ServerHost, Path], None]


def signature(*words: str) -> Put:
    def put(host: ServerHost, disk: Path) -> None:
        host.blkid = (0, "".join(f"{word}\n" for word in ("DEVNAME=/dev/nvme1n1", *words)))

    return put


def partitions(host: ServerHost, disk: Path) -> None:
    path = host.root / "sys/class/block/nvme1n1/nvme1n1p1"
    path.mkdir()
    (path / "partition").write_text("1\n")


def holders(host: ServerHost, disk: Path) -> None:
    (host.root / "sys/class/block/nvme1n1/holders/dm-0").mkdir()


def mounted(host: ServerHost, disk: Path) -> None:
    host.mount("/data")


def swap(host: ServerHost, disk: Path) -> None:
    host.write("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme1n1 partition 1 0 -2\n")


def byte_at(offset: int) -> Put:
    def put(host: ServerHost, disk: Path) -> None:
        data = bytearray(disk.read_bytes())
        data[offset] = 1
        disk.write_bytes(bytes(data))

    return put


def answering(status: int, text: str = "") -> Put:
    def put(host: ServerHost, disk: Path) -> None:
        host.blkid = (status, text)

    return put


def content(host: ServerHost, disk: Path) -> None:
    host.write("srv/checkpoints/step-1", "weights")


def another(host: ServerHost, disk: Path) -> None:
    host.mount("/srv/checkpoints", "8:16", "/dev/sdb")


def gone(host: ServerHost, disk: Path) -> None:
    (host.root / DISK.lstrip("/")).unlink()


def no_medium(host: ServerHost, disk: Path) -> None:
    (host.root / "sys/class/block/nvme1n1/size").write_text("0\n")


@pytest.mark.parametrize(
    ("put", "part"),
    [
        (signature("TYPE=xfs", "UUID=u", "LABEL=data"), "blkid finds LABEL=data TYPE=xfs UUID=u"),
        (signature("PTTYPE=gpt", "PTUUID=p"), "blkid finds PTTYPE=gpt PTUUID=p"),
        (signature("TYPE=LVM2_member", "UUID=u"), "TYPE=LVM2_member"),
        (answering(8), "TYPE=more than one"),
        (partitions, "it has partitions: nvme1n1p1"),
        (holders, "it is part of dm-0 (LVM, RAID or encryption)"),
        (mounted, "is mounted at /data"),
        (swap, "it is swap space in use"),
        (byte_at(0), "its first MiB is not all zero"),
        (byte_at(MIB - 1), "its first MiB is not all zero"),
        (byte_at(-1), "its last MiB is not all zero"),
        (byte_at(7 * MIB), "its last MiB is not all zero"),
        *(
            (answering(status, text), f"blkid cannot read it (exit status {status})")
            for status, text in ((4, ""), (0, ""), (0, "DEVNAME=/dev/nvme1n1\n"), (-9, ""))
        ),
        (gone, "device not found"),
        (no_medium, "has no size"),
        (content, "/srv/checkpoints is not empty"),
        (another, "/dev/sdb is mounted there"),
    ],
)
def test_a_device_that_is_not_blank_is_refused(host: ServerHost, put: Put, part: str) -> None:
    put(host, host.disk())
    why = refused(host, BLANK)
    assert part in why and DISK in why


def test_data_written_after_planning_is_kept(host: ServerHost) -> None:
    disk = host.disk()
    parted: list[str] = []
    run = host.run

    def racing(argv, **given):  # type: ignore[no-untyped-def]
        result = run(argv, **given)
        if argv[0] == "cmp" and argv[4] != "0:0" and not parted:
            parted.append("once")
            disk.write_bytes(b"somewhat" + disk.read_bytes()[8:])
        return result

    host.run = racing  # type: ignore[method-assign]
    outcome = host.settle(BLANK)
    assert made(host) == 0 and disk.read_bytes().startswith(b"somewhat")
    assert any("no longer blank" in error for error in outcome.errors)
    assert host.etab == [] and "nfs-server.service" not in host.units  # nothing is served


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_an_existing_file_system_is_used(host: ServerHost, kind: str) -> None:
    disk = host.disk()
    disk.write_bytes(f"FS {kind} data\n".encode() + disk.read_bytes())
    before = disk.read_bytes()
    assert wrong(host.settle(AS_IT_IS)) == []
    assert made(host) == 0 and disk.read_bytes() == before
    assert f"Type={kind}\n" in host.read(UNIT)


@pytest.mark.parametrize(
    ("signatures", "put", "part"),
    [
        ("TYPE=btrfs\nUUID=u\n", None, "no xfs or ext4"),
        ("", None, "it is blank"),
        ("TYPE=xfs\nUUID=u\n", mounted, "mounted at /data instead"),
        ("TYPE=xfs\nUUID=u\n", holders, "cannot be served: it is part of dm-0"),
        ("TYPE=xfs\nUUID=u\n", partitions, "cannot be served: it has partitions: nvme1n1p1"),
    ],
)
def test_an_unusable_device_is_refused(
    host: ServerHost, signatures: str, put: Optional[Put], part: str
) -> None:
    disk = host.disk()
    host.blkid = (0, signatures) if signatures else (2, "")
    if put:
        put(host, disk)
    assert part in refused(host, AS_IT_IS)


def test_a_file_system_of_this_role_is_recognised(host: ServerHost, tmp_path: Path) -> None:
    disk = host.disk()
    host.settle(BLANK)
    (tmp_path / "again").mkdir()
    again = ServerHost(tmp_path / "again")  # the host was reinstalled
    again.disk().write_bytes(disk.read_bytes())
    assert wrong(again.settle(BLANK)) == []
    assert made(again) == 0


def test_an_unmounted_device_is_mounted_again(host: ServerHost) -> None:
    host.disk()
    host.settle(BLANK)
    host.unmount("/srv/checkpoints")
    (host.root / "srv/checkpoints").rmdir()
    host.units["srv-checkpoints.mount"] = "enabled, failed"
    checked = host.settle(BLANK, check_mode=True)
    assert found(checked, "nfs_device")["/srv/checkpoints"].status == "pending"
    assert wrong(host.settle(BLANK)) == [] and made(host) == 1


def test_a_container_has_no_devices(tmp_path: Path) -> None:
    host = ServerHost(tmp_path, container="podman")
    outcome = host.settle(BLANK)
    check = found(outcome, "nfs_device")["/srv/checkpoints"]
    assert check.status == "not_applicable" and wrong(outcome) == []
    assert "mountpoint" not in host.read("etc/exports.d/baremetal-mpi-roce.exports")


# A disk that does not answer or cannot be read


def hangs(host: ServerHost, program: str, after: int = 0) -> None:
    """The device fails after this many answers."""
    run, calls = host.run, []

    def answers(argv: Any, **given: Any) -> Any:
        if argv[0] == program:
            calls.append(argv)
            if len(calls) > after:
                raise NoAnswerError(program, 60)
        return run(argv, **given)

    host.run = answers  # type: ignore[method-assign]


@pytest.mark.parametrize("program", ["blkid", "cmp"])
def test_an_unresponsive_device_is_reported(host: ServerHost, program: str) -> None:
    host.disk()
    hangs(host, program)
    with pytest.raises(PlanError) as error:
        host.settle(BLANK)
    assert str(error.value).startswith(f"{DISK} does not respond: {program}: no answer within 60 s")
    assert not host.ran("mkfs.xfs") and host.etab == []


def test_an_unreadable_device_is_not_blank(host: ServerHost) -> None:
    disk = host.disk()
    host.blkid = (2, "")
    disk.unlink()
    disk.mkdir()  # reading it fails, as of a failed disk
    with pytest.raises(PlanError, match=f"{DISK}: cannot be read"):
        host.settle(BLANK)
    assert not host.ran("mkfs.xfs")


def test_a_device_that_fails_before_mkfs(host: ServerHost) -> None:
    host.disk()
    hangs(host, "cmp", after=2)
    outcome = host.settle(BLANK)
    assert not host.ran("mkfs.xfs")
    assert any("does not respond" in error for error in outcome.errors)
    assert found(outcome, "nfs_device")["/srv/checkpoints"].status == "failed"


def test_a_mounted_device_is_not_read(host: ServerHost) -> None:
    host.disk()
    assert wrong(host.settle(BLANK)) == []
    host.calls.clear()
    outcome = host.settle(BLANK)
    assert wrong(outcome) == [] and not outcome.changed and not host.ran("cmp")


def test_a_drop_in_of_the_device_is_reported(host: ServerHost) -> None:
    host.disk()
    host.settle(BLANK)
    host.write(f"{UNIT}.d/site.conf", "[Mount]\nOptions=ro\n")
    check = found(host.settle(BLANK), "storage_drop_in")["/srv/checkpoints"]
    assert check.found == [f"/{UNIT}.d/site.conf: Options=ro"]
