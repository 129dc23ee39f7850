# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One run at a time on a host, with a bounded wait."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import lock, netplan
from ansible_collections.baremetal.mpi_roce.plugins.modules import roce_rails

HOLDER = """
import fcntl, signal, sys
stream = open(sys.argv[1], "w")
fcntl.flock(stream, fcntl.LOCK_EX)
stream.write("4711\\n")
stream.flush()
print("held", flush=True)
signal.pause()
"""


class Time:
    """A clock that moves when one sleeps; `then` happens once while one does."""

    def __init__(self, then=None):
        self.now = 0.0
        self.then = then

    def sleep(self, seconds):
        self.now += seconds
        if self.then:
            self.then()
            self.then = None

    def clock(self):
        return self.now


@pytest.fixture
def holder(tmp_path):
    path = tmp_path / lock.PATH
    path.parent.mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_it_is_held_while_in_use_and_free_afterwards(tmp_path):
    for _again in range(2):
        with lock.alone(tmp_path):
            assert (tmp_path / lock.PATH).read_text() == f"{os.getpid()}\n"
            with pytest.raises(lock.BusyError), lock.alone(tmp_path, 0.0):
                pass


def test_another_run_is_waited_for_and_then_named(tmp_path, holder):
    time = Time()
    with (
        pytest.raises(lock.BusyError) as error,
        lock.alone(tmp_path, 5.0, time.sleep, time.clock),
    ):
        pass
    assert 5.0 <= time.now < 6.0
    for part in ("process 4711", "within 5 s", str(tmp_path / lock.PATH), "run again"):
        assert part in str(error.value)


def test_a_run_that_was_killed_leaves_no_lock(tmp_path, holder):
    def kill():
        holder.kill()
        holder.wait()

    time = Time(kill)
    with lock.alone(tmp_path, 5.0, time.sleep, time.clock):
        assert (tmp_path / lock.PATH).read_text() == f"{os.getpid()}\n"
    assert time.now > 0


def test_the_module_holds_it_from_before_reading_until_the_end(monkeypatch):
    steps = []

    class Lock:
        def __enter__(self):
            steps.append("locked")

        def __exit__(self, *_error):
            steps.append("freed")

    monkeypatch.setattr(roce_rails.lock, "alone", Lock)
    monkeypatch.setattr(roce_rails.detect, "backend_named", lambda *_given: steps.append("backend"))
    monkeypatch.setattr(roce_rails, "converge", lambda *_given, **_more: steps.append("converge"))
    given = {"backend": "networkd", "arp": {}, "check_path": True, "wait": 1, "management": {}}
    roce_rails.converged([], given, check_mode=False)
    assert steps == ["locked", "backend", "converge", "freed"]


def test_the_lock_is_not_taken_for_scratch(tmp_path):
    """It lies in the directory in which netplan's scratch roots of killed runs are cleared."""
    assert not lock.PATH.rsplit("/", 1)[1].startswith(netplan._SCRATCH)
