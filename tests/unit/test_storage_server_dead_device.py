# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A disk that does not answer or cannot be read: it is named, and never blank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import NoAnswerError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError

from tests.unit.storage_server import DISK, ServerHost, found, system, wrong

BLANK = system(device=DISK, format="xfs")


@pytest.fixture
def host(tmp_path: Path) -> ServerHost:
    return ServerHost(tmp_path)


def hangs(host: ServerHost, program: str, after: int = 0) -> None:
    """Once it has answered so many times."""
    run, calls = host.run, []

    def answers(argv: Any, **given: Any) -> Any:
        if argv[0] == program:
            calls.append(argv)
            if len(calls) > after:
                raise NoAnswerError(program, 60)
        return run(argv, **given)

    host.run = answers  # type: ignore[method-assign]


@pytest.mark.parametrize("program", ["blkid", "cmp"])
def test_one_that_does_not_answer_is_named_and_never_formatted(
    host: ServerHost, program: str
) -> None:
    host.disk()
    hangs(host, program)
    with pytest.raises(PlanError) as error:
        host.settle(BLANK)
    assert str(error.value).startswith(f"{DISK} does not answer: {program}: no answer within 60 s")
    assert not host.ran("mkfs.xfs") and host.etab == []


def test_one_that_cannot_be_read_is_not_blank(host: ServerHost) -> None:
    disk = host.disk()
    host.blkid = (2, "")
    disk.unlink()
    disk.mkdir()  # reading it fails, as of a failed disk
    with pytest.raises(PlanError, match=f"{DISK}: cannot be read"):
        host.settle(BLANK)
    assert not host.ran("mkfs.xfs")


def test_one_that_dies_right_before_it_is_formatted(host: ServerHost) -> None:
    host.disk()
    hangs(host, "cmp", after=2)
    outcome = host.settle(BLANK)
    assert not host.ran("mkfs.xfs")
    assert any("does not answer" in error for error in outcome.errors)
    assert found(outcome, "nfs_device")["/srv/checkpoints"].status == "failed"


def test_one_that_is_mounted_is_not_read(host: ServerHost) -> None:
    host.disk()
    assert wrong(host.settle(BLANK)) == []
    host.calls.clear()
    outcome = host.settle(BLANK)
    assert wrong(outcome) == [] and not outcome.changed and not host.ran("cmp")
