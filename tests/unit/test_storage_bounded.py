# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work that may never end: who waits for it waits so long, and holds nothing of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import bounded

from tests.waiting import deadline, until

Tell = Callable[[dict[str, Any]], None]
Work = Callable[[Tell], None]
LONG_S = deadline(60)
SHORT_S = 0.05


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "REAP_S", LONG_S)


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Work that hangs, and that time is up for when it does."""
    there = tmp_path / "hangs"
    listen = bounded._listen

    def once_it_hangs(reading: int, _until: float) -> Any:
        until(there.exists, "the work to hang")
        return listen(reading, time.monotonic() + SHORT_S)

    def work(tell: Tell) -> None:
        tell({"line": "what was found before"})
        tell({"step": "writing node01.data"})
        there.touch()
        reading, _writing = os.pipe()
        os.read(reading, 1)

    monkeypatch.setattr(bounded, "_listen", once_it_hangs)
    return work


@pytest.fixture
def immortal() -> Any:
    """As a process in uninterruptible sleep: nothing that is sent to it ends it."""
    left: list[int] = []

    def kill(pid: int, number: int) -> None:
        left.append(pid)

    yield kill
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_what_was_told_comes_back() -> None:
    def work(tell: Tell) -> None:
        tell({"step": "one"})
        tell({"a": 1})
        tell({"step": "two"})
        tell({"b": "x" * 200_000})

    found = bounded.within(LONG_S, work)
    assert found.answered and not found.left_behind
    assert (found.found["a"], len(found.found["b"]), found.step) == (1, 200_000, "two")


def test_it_returns_within_the_limit_and_says_what_hung(hangs: Work) -> None:
    found = bounded.within(SHORT_S, hangs)
    assert not found.answered
    assert found.step == "writing node01.data"
    assert found.found == {"line": "what was found before"}
    assert found.left_behind == 0  # it could be ended


def test_what_cannot_be_ended_is_left_behind_and_no_second_one_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: Work, immortal: Any
) -> None:
    monkeypatch.setattr(bounded, "REAP_S", 0.0)
    record = tmp_path / "run" / "mnt-a.pid"
    first = bounded.within(SHORT_S, hangs, record=record, kill=immortal)
    assert first.left_behind > 0 and not first.earlier
    begun = []
    second = bounded.within(LONG_S, lambda tell: begun.append(1), record=record)
    assert (second.left_behind, second.earlier, second.answered) == (first.left_behind, True, False)
    assert begun == []


def test_a_process_that_went_does_not_keep_the_next_from_beginning(tmp_path: Path) -> None:
    record = tmp_path / "mnt-a.pid"
    for text in (f"{os.getpid()} 1\n", "999999999 5\n", "nonsense", ""):
        record.write_text(text)
        assert bounded.still_waiting(record) == 0
    record.write_text(f"{os.getpid()} {bounded.born(os.getpid())}\n")
    assert bounded.still_waiting(record) == os.getpid()


def test_it_holds_no_pipe_and_no_directory_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, hangs: Work, immortal: Any
) -> None:
    """Whoever waits for the end of the module's output would wait for the dead server."""
    monkeypatch.setattr(bounded, "REAP_S", 0.0)
    reading, writing = os.pipe()
    try:
        pid = bounded.within(SHORT_S, hangs, kill=immortal).left_behind
    finally:
        os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
    proc = Path(f"/proc/{pid}")
    assert str((proc / "cwd").readlink()) == "/"
    assert {str((proc / f"fd/{n}").readlink()) for n in (0, 1, 2)} == {"/dev/null"}


def test_an_error_is_told_with_its_number() -> None:
    def work(tell: Tell) -> None:
        raise OSError(116, "Stale file handle")

    error = bounded.within(LONG_S, work).found["error"]
    assert error["number"] == 116


def test_rights_are_given_up_before_anything_is_done() -> None:
    order: list[str] = []

    def become() -> None:
        order.append("become")

    def work(tell: Tell) -> None:
        tell({"order": [*order, "work"]})

    assert bounded.within(LONG_S, work, become=become).found["order"] == ["become", "work"]


def test_who_cannot_become_the_user_does_nothing() -> None:
    def become() -> None:
        raise PermissionError(1, "not allowed")

    found = bounded.within(LONG_S, lambda tell: tell({"done": True}), become=become).found
    assert "done" not in found and found["error"]["number"] == 1
