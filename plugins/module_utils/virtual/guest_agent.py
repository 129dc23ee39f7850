# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Programs run inside a machine through QEMU's guest agent: the way in that needs no network.

It is what `podman exec` is for containers. So a node's SSH host key is read from the node itself
before anybody connects to it, and what keeps a node from coming up can be asked.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..core.commands import CommandError, Result

POLL_S = 0.1


class GuestAgent:
    """The agent behind one unix socket. Each question is a connection of its own."""

    def __init__(self, path: Path, timeout_s: float = 5.0) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> Result:
        """Run a program as root; its exit status is in the result.

        Raises CommandError while the agent does not answer: the machine is off, or still booting.
        """
        deadline = time.monotonic() + timeout_s
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._timeout_s)
                connection.connect(str(self._path))
                talk = _Conversation(connection)
                started = talk.ask(
                    "guest-exec",
                    {"path": argv[0], "arg": list(argv[1:]), "capture-output": True},
                )
                while True:
                    status = talk.ask("guest-exec-status", {"pid": started["pid"]})
                    if status["exited"]:
                        return Result(
                            tuple(argv),
                            status.get("exitcode", -1),
                            _text(status.get("out-data")),
                            _text(status.get("err-data")),
                        )
                    if time.monotonic() > deadline:
                        raise CommandError(f"{' '.join(argv)}: no answer within {timeout_s:g} s")
                    time.sleep(POLL_S)
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(f"guest agent at {self._path}: {error}") from error


class _Conversation:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb")
        # What a former conversation left unread comes before the answer to this; 0xff ends any
        # half a question the agent may hold.
        token = secrets.randbelow(2**31)
        connection.sendall(b"\xff" + _question("guest-sync-delimited", {"id": token}))
        while True:
            line = self._line().rpartition(b"\xff")[2]
            if line and json.loads(line).get("return") == token:
                return

    def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        self._connection.sendall(_question(command, arguments))
        answer = json.loads(self._line())
        if "error" in answer:
            raise CommandError(f"guest agent: {command}: {answer['error'].get('desc')}")
        return answer["return"]

    def _line(self) -> bytes:
        line = self._stream.readline()
        if not line:
            raise OSError("the connection was closed")
        return line


def _question(command: str, arguments: dict[str, Any]) -> bytes:
    return json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n"


def _text(encoded: Any) -> str:
    return base64.b64decode(encoded or "").decode(errors="replace")
