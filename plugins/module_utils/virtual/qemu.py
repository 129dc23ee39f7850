# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The machines of one cluster on this host: made, started, watched while they boot, removed.

Everything of a machine lies in its folder, and the folder is how it is found again: a process
counts as the machine only while it has that folder in its command line.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

from ..core.commands import CommandError, Runner
from ..core.files import write_atomically
from .guest_agent import GuestAgent
from .login import answers_ssh
from .machines import Folder, Machine, VirtualMachineError, qemu_command
from .names import fabric_namespace
from .work import Work

STATE = Path("/var/lib/baremetal-mpi-roce/virtual/machines")
POLL_S = 0.2
END_S = 5.0
BOOTED = ("running", "degraded")


@dataclass(frozen=True)
class Found:
    """A machine as it is: of another specification, off, or with a cable that nobody holds."""

    name: str
    specification: str
    running: bool
    cut: bool = False


def plan_work(machines: Mapping[str, Machine], found: Sequence[Found]) -> Work:
    """Compare what is wanted, by name, with what is there."""
    there = {each.name: each for each in found}
    same = {
        name
        for name, machine in machines.items()
        if name in there and there[name].specification == machine.specification
    }
    return Work(
        remove=tuple(name for name in there if name not in same),
        create=tuple(name for name in machines if name not in same),
        start=tuple(
            name
            for name in machines
            if name in same and (not there[name].running or there[name].cut)
        ),
    )


class Qemu:
    def __init__(
        self,
        cluster: str,
        run: Runner,
        *,
        state: Path = STATE,
        root: Path = Path("/"),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._run = run
        self._place = state / cluster
        self._root = root
        self._sleep = sleep

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
        return Found(name, specification, running, running and any(tap in loose for tap in taps))

    def _loose_taps(self) -> list[str]:
        """The fabric's interfaces without a carrier: taps that no QEMU holds."""
        shown = self._run(
            ["ip", "-n", fabric_namespace(self._cluster), "-json", "link", "show"], check=False
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
        for name in work.remove:
            self._remove(name)

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
            self._run(["ip", "netns", "exec", fabric_namespace(self._cluster), *command])
        except CommandError as error:
            raise VirtualMachineError(f"{machine.name}: QEMU did not start: {error}") from error

    def _end(self, folder: Folder) -> None:
        """Ask QEMU to end, which it does at once; make it, if not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + END_S
            while (pid := self._process(folder)) is not None and time.monotonic() < deadline:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
                self._sleep(POLL_S)

    def _remove(self, name: str) -> None:
        folder = self.folder(name)
        self._end(folder)
        # First what says that it is whole: a removal that was interrupted is done again.
        folder.specification.unlink(missing_ok=True)
        shutil.rmtree(folder.path)

    def remove_all(self) -> tuple[str, ...]:
        names = tuple(each.name for each in self.found())
        for name in names:
            self._remove(name)
        if self._place.is_dir():
            self._place.rmdir()
        return names

    def wait(self, machines: Sequence[Machine], timeout_s: float) -> dict[str, str]:
        """Each machine's public host key, once systemd is `running` and sshd answers everywhere."""
        deadline = time.monotonic() + timeout_s
        with ThreadPoolExecutor() as pool:
            found = list(pool.map(lambda machine: self._ready(machine, deadline), machines))
        bad = [problem for _key, problem in found if problem]
        if bad:
            raise VirtualMachineError("not every machine came up:\n  " + "\n  ".join(bad))
        return {machine.name: key for machine, (key, _problem) in zip(machines, found)}

    def _ready(self, machine: Machine, deadline: float) -> tuple[str, str]:
        """The host key and what is wrong, one of them empty."""
        folder = self.folder(machine.name)
        state = ""
        while True:
            asked = self._inside(folder, "systemctl", "is-system-running")
            state = asked or state
            if state == "degraded":
                listed = self._inside(
                    folder, "systemctl", "list-units", "--failed", "--plain", "--no-legend"
                )
                units = ", ".join(line.split()[0] for line in listed.splitlines()) or "unknown"
                return "", f"{machine.name}: systemd is degraded, failed: {units}"
            if state == "running" and answers_ssh(machine.address):
                key = self._inside(folder, "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
                if key:
                    return " ".join(key.split()[:2]), ""
            gone = self._process(folder) is None
            if gone or time.monotonic() > deadline:
                answers = "answers" if answers_ssh(machine.address) else "does not answer"
                return "", (
                    f"{machine.name}: {'QEMU ended' if gone else 'time ran out'}; systemd said "
                    f"{state or 'nothing'}, sshd at {machine.address} {answers}. The last of its "
                    f"console ({folder.console}): {_last_line(folder.console)}"
                )
            self._sleep(POLL_S)

    def _inside(self, folder: Folder, *argv: str) -> str:
        try:
            return GuestAgent(folder.agent).run(argv).stdout.strip()
        except CommandError:
            return ""


def _last_line(console: Path) -> str:
    try:
        text = console.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "there is none"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "nothing"
