# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A disk that never answers: nobody waits for it without end, and it is never blank."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import NoAnswerError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import bounded
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import (
    device as blank,
)

from tests.unit.storage_server import DISK, ServerHost, found, system, wrong
from tests.waiting import deadline

BLANK = system(device=DISK, format="xfs")
RECORD = "run/baremetal-mpi-roce/storage/device-nvme1n1"
SHORT_S = 0.05


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerHost:
    monkeypatch.setattr(blank, "READ_S", deadline(60))
    return ServerHost(tmp_path)


def dies(host: ServerHost) -> None:
    """Whoever opens it waits: nothing ever writes on it."""
    disk = host.root / "dev/nvme1n1"
    disk.unlink()
    os.mkfifo(disk)
    host.blkid = (2, "")


def refused(host: ServerHost) -> str:
    with pytest.raises(PlanError) as error:
        host.settle(BLANK)
    assert not host.ran("mkfs.xfs") and host.etab == []
    return str(error.value)


def test_one_that_does_not_answer_is_named_and_never_formatted(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blank, "READ_S", SHORT_S)
    host.disk()
    dies(host)
    told = refused(host)
    assert told.startswith(f"{DISK} does not answer: its size could not be read within 0.05 s")
    assert "dmesg" in told and "replace it" in told


def test_who_waits_for_it_still_is_named_and_nobody_waits_beside(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.disk()
    host.write(RECORD, f"{os.getpid()} {bounded.born(os.getpid())}\n")
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("another one was begun"))
    assert f"process {os.getpid()} of an earlier run still waits for it" in refused(host)


def test_one_that_cannot_be_read_is_not_blank(host: ServerHost) -> None:
    disk = host.disk()
    host.blkid = (2, "")
    disk.unlink()
    disk.mkdir()  # opening it fails, as one of a failed disk does
    assert f"{DISK}: cannot be read: Is a directory" in refused(host)


@pytest.mark.parametrize(
    "told",
    [
        bounded.Answer(answered=True),
        bounded.Answer({"size": 8 << 20}, answered=True),
        bounded.Answer({"edges": []}, answered=True),
        bounded.Answer({"size": 8 << 20, "edges": []}, answered=False),
    ],
)
def test_a_look_that_came_to_no_end_says_nothing_of_it(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch, told: bounded.Answer
) -> None:
    host.disk()
    monkeypatch.setattr(bounded, "within", lambda *given, **more: told)
    assert DISK in refused(host)


def test_one_that_dies_right_before_it_is_formatted(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.disk()
    looks: list[int] = []
    within = bounded.within

    def second_hangs(limit_s: float, work: Callable[..., Any], **given: Any) -> bounded.Answer:
        looks.append(1)
        return within(deadline(60), work, **given) if len(looks) == 1 else bounded.Answer()

    monkeypatch.setattr(bounded, "within", second_hangs)
    outcome = host.settle(BLANK)
    assert not host.ran("mkfs.xfs") and len(looks) == 2 + 1  # planned, before mkfs, read back
    assert any("does not answer" in error for error in outcome.errors)
    assert found(outcome, "nfs_device")["/srv/checkpoints"].status == "failed"


def test_a_blkid_that_does_not_answer_says_of_which_disk(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.disk()
    run = host.run

    def hangs(argv: Any, **given: Any) -> Any:
        if argv[0] == "blkid":
            raise NoAnswerError("blkid -p", 60)
        return run(argv, **given)

    host.run = hangs  # type: ignore[method-assign]
    assert f"{DISK} does not answer: blkid -p: no answer within 60 s" in refused(host)
    assert not (host.root / RECORD).exists()  # nobody was left behind


def test_a_blkid_that_was_left_behind_stays_the_only_one(
    host: ServerHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a mounted device, of which nothing else is read, at each run and each verification."""
    host.disk()
    assert wrong(host.settle(BLANK)) == []
    run, looks = host.run, []

    def hangs(argv: Any, **given: Any) -> Any:
        if argv[0] != "blkid":
            return run(argv, **given)
        looks.append(argv)
        raise NoAnswerError("blkid -p", 60, os.getpid())

    host.run = hangs  # type: ignore[method-assign]
    with pytest.raises(PlanError, match="no answer within 60 s"):
        host.settle(BLANK)
    for _again in range(2):
        with pytest.raises(PlanError, match=f"process {os.getpid()} of an earlier run still waits"):
            host.settle(BLANK)
    assert len(looks) == 1


def test_one_that_is_mounted_is_not_read(host: ServerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    host.disk()
    assert wrong(host.settle(BLANK)) == []
    monkeypatch.setattr(bounded, "within", lambda *given, **more: pytest.fail("it was read"))
    outcome = host.settle(BLANK)
    assert wrong(outcome) == [] and not outcome.changed
