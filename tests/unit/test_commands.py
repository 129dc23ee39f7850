# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running programs: found where administrators keep them, and never waited for without a limit."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core import commands


def test_programs_of_the_administrator_are_found_without_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over SSH by an unprivileged login: PATH has no sbin, and mlnx_qos or ip are there."""
    tool = tmp_path / "sbin/hidden-tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\necho $PATH\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(commands, "SYSTEM", ("/usr/bin", str(tool.parent)))
    assert commands.search_path() == f"/usr/bin:/bin:{tool.parent}"
    assert commands.find_program("hidden-tool") == str(tool)
    assert commands.run(["hidden-tool"]).stdout == f"/usr/bin:/bin:{tool.parent}\n"


def test_a_program_that_cannot_be_killed_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """In uninterruptible sleep nothing ends a program: as if the signal had never been sent."""
    asked: list[int] = []
    started: list[subprocess.Popen[str]] = []
    real = subprocess.Popen

    def popen(*words: object, **more: object) -> subprocess.Popen[str]:
        started.append(real(*words, **more))  # type: ignore[call-overload]
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(commands, "REAP_S", 0.2)
    with monkeypatch.context() as patched:
        patched.setattr(os, "killpg", lambda pid, _signal: asked.append(pid))
        with pytest.raises(
            commands.NoAnswerError, match=r"sleep infinity: no answer within 0\.1 s"
        ) as error:
            commands.run(["sleep", "infinity"], timeout_s=0.1)
    try:
        assert error.value.left_behind == started[0].pid
        assert started[0].poll() is None  # nobody waited for its end
        assert asked == [started[0].pid]
        assert started[0].stdout is not None and started[0].stdout.closed
    finally:
        os.killpg(started[0].pid, signal.SIGKILL)
        started[0].wait()
