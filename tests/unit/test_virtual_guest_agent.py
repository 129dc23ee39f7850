# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The way into a machine without a network: one program, its output, its exit status."""

from __future__ import annotations

import base64
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import CommandError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.virtual.qemu import GuestAgent

from tests.waiting import deadline


class Server:
    """The agent behind QEMU's socket. Its channel keeps what a former client did not read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stale = b'{"return": {"pid": 1}}\n'
        self.runs = 2
        self.asked: list[dict[str, Any]] = []
        self.error = ""
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rwb") as stream:
                stream.write(self.stale)
                for line in stream:
                    stream.write(self._answer(json.loads(line.lstrip(b"\xff"))))
                    stream.flush()

    def _answer(self, question: dict[str, Any]) -> bytes:
        name, given = question["execute"], question["arguments"]
        if name == "guest-sync-delimited":
            return b"\xff" + json.dumps({"return": given["id"]}).encode() + b"\n"
        self.asked.append(question)
        if self.error:
            return json.dumps({"error": {"desc": self.error}}).encode() + b"\n"
        answer: dict[str, Any] = {"pid": 7}
        if name == "guest-exec-status":
            self.runs -= 1
            answer = {"exited": self.runs <= 0}
            if self.runs <= 0:
                text = base64.b64encode(b"running\n").decode()
                answer.update({"exitcode": 3, "out-data": text})
        return json.dumps({"return": answer}).encode() + b"\n"

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "agent")
    yield server
    server.close()


def agent(server: Server) -> GuestAgent:
    return GuestAgent(server.path, timeout_s=deadline(60))


def test_a_programs_output_and_status(server: Server) -> None:
    done = agent(server).run(["systemctl", "is-system-running"])
    assert (done.rc, done.stdout, done.stderr) == (3, "running\n", "")
    assert server.asked[0]["arguments"]["path"] == "systemctl"
    assert server.asked[0]["arguments"]["arg"] == ["is-system-running"]


def test_what_it_refuses_is_told(server: Server) -> None:
    server.error = "Guest agent command failed: no such program"
    with pytest.raises(CommandError, match="no such program"):
        agent(server).run(["nothing"])


def test_one_that_runs_for_ever_is_given_up(server: Server) -> None:
    server.runs = 10**6
    with pytest.raises(CommandError, match="no answer within"):
        agent(server).run(["sleep", "infinity"], timeout_s=0.1)


def test_a_machine_that_is_off_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="guest agent at"):
        GuestAgent(tmp_path / "nobody").run(["true"])


def test_one_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "agent"))
        silent.listen()
        with pytest.raises(CommandError, match="timed out"):
            GuestAgent(tmp_path / "agent", timeout_s=0.1).run(["true"])
