# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Waiting for a condition: tests/waiting.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import waiting


class Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    monkeypatch.setenv(waiting.VARIABLE, "3")
    return clock


def test_the_first_true_answer_is_returned_and_nothing_waited_after_it(clock: Clock) -> None:
    answers = iter([None, "", "there", "never asked"])
    assert waiting.until(lambda: next(answers), "it", every=0.5) == "there"
    assert clock.now == 101.0


def test_the_deadline_scales_and_the_failure_says_what_was_waited_for(clock: Clock) -> None:
    with pytest.raises(AssertionError, match=r"waited 6\.0 s for a sign \(2 s x .* 3\).*: \[\]"):
        waiting.until(lambda: [], "a sign", 2, every=0.5)
    assert clock.now == 106.0
    assert waiting.deadline(2) == 6.0


def test_a_test_that_got_no_time_asks_once_more(clock: Clock) -> None:
    asked = []

    def after_a_pause() -> bool:
        asked.append(clock.now)
        clock.now += 1000  # the machine gave this test no CPU time for that long
        return len(asked) == 2

    assert waiting.until(after_a_pause, "it", 1)


SLEEPS = (
    "tests/waiting.py",
    "tests/unit/test_waiting.py",  # has the text that is searched for
    "tests/unit/test_cluster_reboot_action.py",  # advances a simulated clock
    "tests/unit/test_fabric_nvue_simulation.py",  # paces the polling of a driver
    "tests/unit/test_fabric_https",  # a slow switch
    "tests/bed/",  # polls nodes; simulates slow switches and programs
    "tests/integration/test_kills.py",  # the moment of the kill
    "tests/integration/test_srun.py",  # times of files in a program of a user
    *(
        f"tests/unit/test_{name}.py"
        for name in (
            "cluster_audit",
            "mpi_launch",
            "node_check_program",
            "ssh_authorized",
            "ssh_parts",
        )
    ),
    "tests/bench/controller.py",  # the interval of a measurement
    "tests/integration/test_storage.py",  # the length of an outage
)
"""Files in which `time.sleep` is allowed. Those without a comment simulate what hangs."""


def test_no_test_waits_for_time_to_pass() -> None:
    """A time that is enough here is too short on a busy machine, so tests wait for a condition."""
    top = Path(__file__).resolve().parents[2]
    found = {
        name
        for path in (top / "tests").rglob("*.py")
        if re.search(r"\btime\.sleep\(|from time import .*\bsleep\b", path.read_text())
        and not (name := str(path.relative_to(top))).startswith(SLEEPS)
    }
    assert found == set(), "wait by tests.waiting.until"


def test_the_job_of_the_measurement_runs() -> None:
    waiting._job()
