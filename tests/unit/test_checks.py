# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The read-back's verdicts: a difference is never ok, and an excuse needs a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import checks, machine
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    run,
)

from tests.unit.ended import Ended, Module
from tests.waiting import until


def test_compare_is_ok_only_when_equal():
    assert checks.compare("mtu", 9000, 9000).status == checks.OK
    assert checks.compare("mtu", 9000, 1500).status == checks.FAILED
    assert checks.compare("mtu", 9000, "9000").status == checks.FAILED
    assert checks.compare("mtu", 9000, 1500, check_mode=True).status == checks.PENDING


def test_what_is_pending_has_failed_where_a_cluster_is_to_be_proved(monkeypatch):
    monkeypatch.setenv(checks.STRICT, "1")
    assert checks.compare("mtu", 9000, 1500, check_mode=True).status == checks.FAILED
    assert checks.Check("mtu", 9000, 1500, checks.PENDING).status == checks.FAILED
    assert checks.compare("mtu", 9000, 9000, check_mode=True).status == checks.OK


def test_not_applicable_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        checks.Check("mtu", 9000, None, checks.NOT_APPLICABLE)
    with pytest.raises(ValueError, match="unknown status"):
        checks.Check("mtu", 9000, None, "passed")


def test_the_failure_message_names_each_failed_promise_and_the_way_out():
    found = [
        checks.compare("rail_mtu", 9000, 1500, subject="rail3", reason="the driver refused it"),
        checks.compare("rail_mtu", 9000, 9000, subject="rail4"),
    ]
    message = checks.failure_message("rails", found, "Look at dmesg.", applied=True)
    assert message == (
        "rails: 1 check failed after apply:\n"
        "  rail_mtu rail3: wanted 9000, found 1500 (the driver refused it)\n"
        "Look at dmesg."
    )
    assert checks.failure_message("rails", found[1:], "") is None


def test_a_container_is_told_from_a_machine(tmp_path):
    assert machine.container(tmp_path) is None
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/container").write_text("podman\n")
    assert machine.container(tmp_path) == "podman"


def test_a_program_that_fails_hangs_or_is_missing_says_so():
    assert run(["cat"], stdin="in").stdout == "in"
    with pytest.raises(CommandError, match=r"exit status 3: told you"):
        run(["sh", "-c", "echo told you >&2; exit 3"])
    assert run(["sh", "-c", "exit 3"], check=False).rc == 3
    with pytest.raises(CommandError, match=r"sleep infinity: no answer within 0.2 s"):
        run(["sleep", "infinity"], timeout_s=0.2)
    with pytest.raises(CommandError, match="no-such-program: not installed"):
        run(["no-such-program"])


def test_a_program_that_hangs_takes_what_it_started_with_it(tmp_path, monkeypatch):
    child = tmp_path / "child"
    popen = subprocess.Popen

    def begun(*words, **more):
        """The limit begins when there is a child to be ended with it."""
        process = popen(*words, **more)
        until(lambda: child.exists() and child.read_text().endswith("\n"), "the child")
        return process

    monkeypatch.setattr(subprocess, "Popen", begun)
    with pytest.raises(CommandError, match=r"no answer within 0.1 s"):
        run(["sh", "-c", f"sleep infinity & echo $! > {child}; wait"], timeout_s=0.1)
    stat = Path(f"/proc/{child.read_text().strip()}/stat")
    # Killed, it may stay a moment as a zombie until it is reaped.
    until(lambda: not runs(stat), "the end of what it started")


def runs(stat):
    try:
        return stat.read_text().split()[2] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


HOLDS = checks.Check("rail_mtu", 9000, 9000, "ok", "rail0")
BROKEN = checks.Check("rail_mtu", 9000, 1500, "failed", "rail1")


def ended(*found: checks.Check, **result: Any) -> Ended:
    with pytest.raises(Ended) as caught:
        checks.end(Module(), "rails", found, "Run it again.", **result)
    return caught.value


def test_promises_that_hold_end_well_with_all_that_was_found() -> None:
    done = ended(HOLDS, changed=True, names=3)
    assert not done.failed
    assert (done.result["changed"], done.result["layer"], done.result["names"]) == (
        True,
        "rails",
        3,
    )
    assert [check["subject"] for check in done.result["checks"]] == ["rail0"]


def test_one_broken_promise_fails_the_module_and_is_named() -> None:
    done = ended(HOLDS, BROKEN, changed=True)
    assert done.failed
    assert "rail_mtu rail1: wanted 9000, found 1500" in done.result["msg"]
    assert done.result["msg"].endswith("Run it again.")
    assert (done.result["changed"], len(done.result["checks"])) == (True, 2)


def test_what_could_not_be_tried_fails_as_well() -> None:
    done = ended(HOLDS, errors=["disk full"])
    assert done.failed
    assert done.result["msg"] == "rails: not everything was applied:\n  disk full"
    assert "disk full" in ended(BROKEN, errors=["disk full"]).result["msg"]


def test_who_says_nothing_changed_nothing() -> None:
    assert ended(HOLDS).result["changed"] is False
