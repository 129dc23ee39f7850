# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The output of a shell command starts at its marker, after output of sudo and login files."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible_collections.baremetal.mpi_roce.plugins.action import (
    cluster_preflight,
    cluster_reboot,
    cluster_verify,
    mpi_bench,
    mpi_job,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.marked import (
    MARK,
    answer,
    question,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.reboot.host import RebootingHost

LECTURE = """
We trust you have received the usual lecture from the local System
Administrator. It usually boils down to these three things:

    #1) Respect the privacy of others.

"""
BEFORE = {
    "nothing": "",
    "the empty line after a password": "\r\n",
    "a wrong password first": "\r\nSorry, try again.\r\n",
    "a lecture": LECTURE.replace("\n", "\r\n"),
    "a banner with possible answers": "ready\nrunning\nfinished\n{}\n",
    "half a line": "Welcome to launcher01",
}
before = pytest.mark.parametrize("printed", BEFORE.values(), ids=BEFORE.keys())


def said(command: str, printed: str) -> dict[str, Any]:
    """The result of a command over a connection with a terminal."""
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
    text = printed + done.stdout.replace("\n", "\r\n")
    return {"rc": done.returncode, "stdout": text, "stderr": done.stderr}


def plugin(kind: type, printed: str) -> Any:
    made = kind.__new__(kind)
    made._low_level_execute_command = lambda command, **_given: said(command, printed)
    made._connection = SimpleNamespace(
        has_option=lambda _name: False, set_option=lambda *_given: None, reset=lambda: None
    )
    return made


@before
def test_text_after_the_marker_is_the_answer(printed: str) -> None:
    text = said(question("echo one; echo; echo 'two  three'"), printed)["stdout"]
    assert answer(text) == "one\n\ntwo  three\n"


def test_the_first_marker_counts() -> None:
    assert answer(f"{MARK}\na\n{MARK}\nb\n") == f"a\n{MARK}\nb\n"
    assert answer("") is answer("running\n") is answer(f"say {MARK}\nx") is None
    assert answer(MARK) == ""


@before
def test_every_action_uses_the_marker(printed: str, tmp_path: Any) -> None:
    job = tmp_path / "job"
    job.write_text('{"changed": false}')
    detached = plugin(mpi_job.ActionModule, printed)
    detached._place, detached._offset = str(tmp_path), 0
    assert detached._look(str(job), "/nonexistent") == ("finished", '{"changed": false}')
    bench = plugin(mpi_bench.ActionModule, printed)
    (tmp_path / "output.log").write_text("# Size\n1  2.0\n")
    assert bench._output(str(tmp_path)) == "# Size\n1  2.0\n"
    rebooting = RebootingHost(plugin(cluster_reboot.ActionModule, printed), {})
    boot_id, problem = rebooting.boot_id()
    assert (len(boot_id), problem) == (36, "")


@before
def test_a_host_is_ready_only_by_its_answer(printed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = plugin(cluster_verify.ActionModule, printed)
    verify._task = SimpleNamespace(args={})
    assert verify._unreachable() == ""
    refused = {"rc": 1, "stdout": f"{printed}sudo: not ready", "stderr": ""}
    monkeypatch.setattr(verify, "_low_level_execute_command", lambda _command: refused)
    assert "sudo: not ready" in verify._unreachable()
    refused["stdout"] = f"{printed}\n{MARK}\r\nready\r\nERROR: ld.so: cannot be preloaded\r\n"
    assert verify._unreachable() == ""


def test_truncated_output_is_requested_again() -> None:
    job = plugin(mpi_job.ActionModule, "")
    shown: list[str] = []
    job._offset, job._shown, job.show = 0, "", shown.append
    job.seen(f"{mpi_job.MARK}\nMTIzNDU2Nzg5MAo")
    assert (job._offset, shown) == (0, [])
    job.seen(f"{mpi_job.MARK}\nMTIzNDU2Nzg5MAo=")
    assert (job._offset, shown) == (11, ["1234567890"])


class Connection:
    def has_option(self, _name: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        # ansible/ansible issue 86849, Ubuntu 26.04.
        ("Timeout (12s) waiting for privilege escalation prompt: ", "ansible_become_exe"),
        ("Timeout (12s) waiting for something else", "console"),
        ("Incorrect sudo password", "-K"),
    ],
)
def test_a_missing_prompt_does_not_mean_a_dead_host(
    monkeypatch: pytest.MonkeyPatch, said: str, remedy: str
) -> None:
    def refuse(*_given: Any, **_more: Any) -> Any:
        raise AnsibleError(said)

    reach = cluster_verify.ActionModule.__new__(cluster_verify.ActionModule)
    reach._task, reach._connection = SimpleNamespace(args={}), Connection()
    monkeypatch.setattr(reach, "_low_level_execute_command", refuse)
    assert remedy in reach._unreachable()
    read = cluster_preflight.ActionModule.__new__(cluster_preflight.ActionModule)
    read._task = SimpleNamespace(args={})
    monkeypatch.setattr(read, "_execute_module", refuse)
    [check] = read._look({})
    assert (check["name"], check["status"]) == ("node_read", "failed")
    assert ("ansible_become_exe" in check["reason"]) is ("ansible_become_exe" in remedy)
