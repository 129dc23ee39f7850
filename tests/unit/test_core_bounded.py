# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Work that may never finish: the parent waits for a limited time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import bounded
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.bounded import Report

from tests.waiting import deadline, until

Work = Callable[[Report], None]
LONG_S = deadline(60)
SHORT_S = 0.05


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "REAP_S", LONG_S)


@pytest.fixture
def hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    """Work that hangs; its time is up immediately afterwards."""
    there = tmp_path / "hangs"
    listen = bounded._listen

    def once_it_hangs(children: Any, _until: float) -> None:
        until(there.exists, "the work to hang")
        listen(children, time.monotonic() + SHORT_S)

    def work(report: Report) -> None:
        report({"line": "what was found before"})
        report({"step": "writing node01.data"})
        there.touch()
        reading, _writing = os.pipe()
        os.read(reading, 1)

    monkeypatch.setattr(bounded, "_listen", once_it_hangs)
    return work


@pytest.fixture
def immortal() -> Iterator[Callable[[int, int], None]]:
    """Behave as a process in uninterruptible sleep, which no signal terminates."""
    left: list[int] = []
    yield lambda pid, _number: left.append(pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_reports_are_returned() -> None:
    def work(report: Report) -> None:
        report({"step": "one"})
        report({"a": 1})
        report({"step": "two"})
        report({"b": "x" * 200_000})

    found = bounded.within(LONG_S, work)
    assert found.answered and not found.left_behind
    assert (found.found["a"], len(found.found["b"]), found.step) == (1, 200_000, "two")


def test_the_limit_and_the_hanging_step(hangs: Work) -> None:
    found = bounded.within(SHORT_S, hangs)
    assert not found.answered
    assert found.step == "writing node01.data"
    assert found.found == {"line": "what was found before"}
    assert found.left_behind == 0  # it was killed


def test_an_unkillable_child_holds_nothing_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, hangs: Work, immortal: Any
) -> None:
    """Otherwise readers of the module's output would wait for the dead server."""
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


def test_privileges_are_dropped_first() -> None:
    order: list[str] = []

    def become() -> None:
        order.append("become")

    def work(report: Report) -> None:
        report({"order": [*order, "work"]})

    assert bounded.within(LONG_S, work, become=become).found["order"] == ["become", "work"]


def test_nothing_runs_without_dropping_privileges() -> None:
    def become() -> None:
        raise PermissionError(1, "not allowed")

    found = bounded.within(LONG_S, lambda report: report({"done": True}), become=become).found
    assert "done" not in found and found["error"]["number"] == 1


def test_works_run_at_the_same_time_and_a_late_one_stops_no_other(
    hangs: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "SHORT_S", 2.0)  # the others may start later

    def quick(report: Report) -> None:
        report({"a": 1})

    found = bounded.all_within(SHORT_S, {"hangs": hangs, "quick": quick, "fails": lambda _r: 1 / 0})
    assert found["quick"] == bounded.WorkResult({"a": 1}, "", True)
    assert (found["hangs"].answered, found["hangs"].step) == (False, "writing node01.data")
    assert found["fails"].answered and "division" in found["fails"].found["error"]["text"]


def test_programs_of_a_late_child_are_killed_or_named(tmp_path: Path) -> None:
    there = tmp_path / "pid"

    def work(report: Report) -> None:
        program = subprocess.Popen(["sleep", "600"], start_new_session=True)
        there.write_text(str(program.pid))
        program.wait()

    left: list[int] = []
    immortal = bounded.all_within(0.5, {"": work}, kill=lambda pid, _n: left.append(pid), reap_s=0)
    program = int(there.read_text())
    assert immortal[""].programs == (program,) and program in left
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    there.unlink()
    assert bounded.all_within(0.5, {"": work})[""].programs == ()
    stat = Path("/proc") / there.read_text() / "stat"
    assert not stat.exists() or ") Z " in stat.read_text()
