# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines on this host: made, started and removed, and programs run inside by QEMU's guest agent.

Everything of a machine lies in its folder, and the folder is how it is found again: a process
counts as the machine only while it has that folder in its command line. The guest agent needs no
network, so an SSH host key is read from the node itself before the first connection."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Optional

from ..core.commands import CommandError, Result, Runner
from ..core.files import write_atomically
from .inventory import VirtualError, fabric_namespace
from .machines import Folder, Machine, qemu_command
from .nodes import Found, Hosts, Work

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


STATE = Path("/var/lib/baremetal-mpi-roce/virtual/machines")
END_S = 5.0


class Qemu(Hosts):
    kind = "machines"

    def __init__(
        self,
        cluster: str,
        run: Runner,
        *,
        state: Path = STATE,
        root: Path = Path("/"),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__(cluster, sleep)
        self._run = run
        self._place = state / cluster
        self._root = root

    def folder(self, name: str) -> Folder:
        return Folder(self._place / name)

    def found(self) -> list[Found]:
        if not self._place.is_dir():
            return []
        loose = self._loose_taps()
        return [self._look(path.name, loose) for path in sorted(self._place.iterdir())]

    def _look(self, name: str, loose: Sequence[str]) -> Found:
        folder = self.folder(name)
        try:
            specification, *taps = folder.specification.read_text(encoding="utf-8").split()
        except (FileNotFoundError, ValueError):
            specification, taps = "", []  # its creation was interrupted
        running = self._process(folder) is not None
        return Found(name, specification, running and not any(tap in loose for tap in taps))

    def _loose_taps(self) -> list[str]:
        """The fabric's interfaces without a carrier: taps that no QEMU holds."""
        shown = self._run(
            ["ip", "-n", fabric_namespace(self.cluster), "-json", "link", "show"], check=False
        )
        links = json.loads(shown.stdout or "[]") if shown.rc == 0 else []
        return [link["ifname"] for link in links if link and "LOWER_UP" not in link["flags"]]

    def _process(self, folder: Folder) -> Optional[int]:
        """The machine's QEMU: process ids come round again, so its command line is looked at."""
        try:
            pid = int(folder.pid.read_text(encoding="ascii"))
            words = (self._root / f"proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(folder.pid).encode() in words else None

    def apply(
        self,
        work: Work,
        machines: Mapping[str, Machine],
        *,
        emulator: Sequence[str],
        accelerator: Sequence[str],
    ) -> None:
        self.remove(work.remove)

        def begin(name: str) -> None:
            if name in work.create:
                self._create(machines[name])
            self._start(machines[name], emulator, accelerator)

        with ThreadPoolExecutor() as pool:
            list(pool.map(begin, (*work.create, *work.start)))

    def _create(self, machine: Machine) -> None:
        folder = self.folder(machine.name)
        folder.path.mkdir(parents=True, mode=0o700)
        backing = ["-b", machine.image, "-F", "raw"]
        self._run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(folder.disk)])
        for name, text in machine.files.items():
            write_atomically(folder.given(name), text, 0o600, 0, 0)
        write_atomically(folder.image, f"{machine.image}\n", 0o600, 0, 0)
        taps = " ".join(card.tap for card in machine.cards)
        text = f"{machine.specification} {taps}\n"
        write_atomically(folder.specification, text, 0o600, 0, 0)

    def _start(self, machine: Machine, emulator: Sequence[str], accelerator: Sequence[str]) -> None:
        folder = self.folder(machine.name)
        self._end(folder)
        for path in (folder.pid, folder.agent, folder.monitor):
            path.unlink(missing_ok=True)
        command = qemu_command(machine, folder, emulator=emulator, accelerator=accelerator)
        try:
            # Its taps' other ends are in the fabric, and so is it.
            self._run(["ip", "netns", "exec", fabric_namespace(self.cluster), *command])
        except CommandError as error:
            raise VirtualError(f"{machine.name}: QEMU did not start: {error}") from error

    def _end(self, folder: Folder) -> None:
        """Ask QEMU to end, which it does at once; make it, if not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + END_S
            while (pid := self._process(folder)) is not None and time.monotonic() < deadline:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                self.sleep(POLL_S)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            folder = self.folder(name)
            self._end(folder)
            # First what says that it is whole: a removal that was interrupted is done again.
            folder.specification.unlink(missing_ok=True)
            shutil.rmtree(folder.path)
        with suppress(OSError):  # not there, or with machines that stay
            self._place.rmdir()

    def inside(self, name: str, argv: Sequence[str]) -> str:
        return GuestAgent(self.folder(name).agent).run(argv).stdout

    def ended(self, name: str) -> bool:
        return self._process(self.folder(name)) is None

    def remark(self, name: str) -> str:
        console = self.folder(name).console
        return f"The last of its console ({console}): {_last_line(console)}"


def _last_line(console: Path) -> str:
    try:
        text = console.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "there is none"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "nothing"
