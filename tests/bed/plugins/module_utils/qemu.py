# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Create, start and remove machines on this host, and run programs inside them.

Each machine has a folder with all its files. A process counts as the machine only while that folder
is in its command line. Programs run through QEMU's guest agent, which needs no network: the SSH
host key is read from the node itself before the first connection.

The igb card, which supports SR-IOV, needs QEMU 8. Debian 12 has 7.2: there the package of its
backports is fetched with apt's sources and keys, and unpacked next to the system's.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import BufferedRWPair
from pathlib import Path
from typing import Any, Callable, Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
    Runner,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    run as run_program,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.files import write_atomically
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.waiting import until

from .image import one_builder
from .inventory import VirtualError, fabric_namespace
from .machines import (
    AGENT,
    CONSOLE,
    DISK,
    GIVEN,
    IMAGE,
    MONITOR,
    PID,
    SPECIFICATION,
    Machine,
    qemu_command,
)
from .nodes import ExistingHost, Hosts, Work

PROGRAM = "qemu-system-x86_64"
FETCHED = Path("/var/lib/baremetal-mpi-roce/virtual/qemu")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = ("qemu-system-x86", "qemu-system-common", "qemu-system-data", "seabios")


def newest_emulator(
    run: Runner, *, sriov: bool, root: Path = Path("/"), folder: Path = FETCHED
) -> tuple[str, ...]:
    """Return the command that starts QEMU: one with the igb card, or the system's if sufficient."""
    if _has_igb(run, (PROGRAM,)):
        return (PROGRAM,)
    command = _unpacked(folder)
    try:
        with one_builder():
            # Fetched again if, for instance, an upgrade removed libraries that it needs.
            if not ((folder / f"usr/bin/{PROGRAM}").exists() and _has_igb(run, command)):
                _fetch(run, root, folder)
        return command
    except CommandError as error:
        if sriov:
            raise VirtualError(
                "virtual_nodes_sriov_rails needs a QEMU with the igb card (8 or later); the "
                "system's has no such card, and the one of Debian's backports is not available: "
                f"{error}"
            ) from error
    return (PROGRAM,)


def _unpacked(folder: Path) -> tuple[str, ...]:
    """Return the command of the unpacked QEMU, with its firmware and modules."""
    modules = folder / "usr/lib/x86_64-linux-gnu/qemu"
    share = folder / "usr/share"
    firmware = ("-L", str(share / "seabios"), "-L", str(share / "qemu"))
    return ("env", f"QEMU_MODULE_DIR={modules}", str(folder / f"usr/bin/{PROGRAM}"), *firmware)


def _has_igb(run: Runner, words: tuple[str, ...]) -> bool:
    """Query the one card: listing all cards would load every module."""
    return bool(run([*words, "-device", "igb,help"], check=False).stdout.strip())


def _fetch(run: Runner, root: Path, folder: Path) -> None:
    """Fetch QEMU from Debian's backports, verified by apt, and unpack it into `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="qemu-") as name:
        work = Path(name)
        work.chmod(0o755)
        _unpack(run, _suite(root), work)
        shutil.rmtree(folder, ignore_errors=True)
        (work / "root").replace(folder)


def _suite(root: Path) -> str:
    lines = (root / "etc/os-release").read_text(encoding="utf-8").splitlines()
    release = dict(line.split("=", 1) for line in lines if "=" in line)
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise CommandError("only Debian has backports")
    return release["VERSION_CODENAME"]


def _unpack(run: Runner, suite: str, work: Path) -> None:
    archive = run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
         f"Codename: {suite}"]
    ).stdout.split()  # fmt: skip
    if not archive:
        raise CommandError(f"apt has no package source of {suite}")
    (work / "lists/partial").mkdir(parents=True)
    source = f"deb [signed-by={KEYRING}] {archive[0]} {suite}-backports main\n"
    (work / "sources.list").write_text(source, encoding="utf-8")
    apt = [
        "apt-get", "-q",
        "-o", f"Dir::Etc::sourcelist={work}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null",
        "-o", f"Dir::State::lists={work}/lists", "-o", "Dir::Cache::pkgcache=",
        "-o", "Dir::Cache::srcpkgcache=", "-o", f"Dir::Cache::archives={work}/debs",
        "-o", "Acquire::Languages=none", "-o", "APT::Get::List-Cleanup=false",
    ]  # fmt: skip
    (work / "debs/partial").mkdir(parents=True)
    run([*apt, "update"])
    debs = work / "debs"
    # The download does not resolve dependencies: these four packages are sufficient.
    run(["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(debs), *apt,
         "-o", "APT::Sandbox::User=root", "download",
         *(f"{name}/{suite}-backports" for name in PACKAGES)])  # fmt: skip
    for deb in sorted(debs.glob("*.deb")):
        run(["dpkg-deb", "--extract", str(deb), str(work / "root")])


KVM = ("-accel", "kvm", "-cpu", "host")
# Each vector instruction is translated. Libraries do not use those that the guest does not see.
TCG = (
    "-accel", "tcg,thread=multi",
    "-cpu", "qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2,+popcnt",
)  # fmt: skip
PROBE_S = 12.0


def choose(wanted: str, emulator: Sequence[str], kernel: Path) -> tuple[str, ...]:
    """Return QEMU's arguments for the accelerator: `wanted` is auto, kvm or tcg.

    That /dev/kvm can be opened proves nothing: on some hosts KVM cannot run an ordinary kernel. So
    the image's kernel is started on it without a disk. Where KVM works, the kernel panics after a
    second for lack of a root file system; where it does not, the start times out.
    """
    if wanted != "auto":
        return KVM if wanted == "kvm" else TCG
    command = [
        *emulator, *KVM, "-machine", "q35", "-m", "256", "-nodefaults", "-no-user-config",
        "-display", "none", "-serial", "stdio", "-no-reboot",
        "-kernel", str(kernel), "-append", "console=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        printed = run_program(command, timeout_s=PROBE_S).stdout
    except CommandError:
        return TCG
    return KVM if "Linux version" in printed else TCG


POLL_S = 0.1


class GuestAgent:
    """The guest agent behind one unix socket. Each program is run over a new connection."""

    def __init__(self, path: Path, timeout_s: float = 5.0) -> None:
        self._path = path
        self._timeout_s = timeout_s

    def run(self, argv: Sequence[str], timeout_s: float = 30.0) -> Result:
        """Run a program as root and return its result with the exit status.

        Raises CommandError while the agent does not respond: the machine is off, or still booting.
        """
        words = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(self._timeout_s)
                connection.connect(str(self._path))
                stream = connection.makefile("rwb")
                _synchronize(stream)
                pid = _ask(stream, "guest-exec", words)["pid"]
                status = until(partial(_exited, stream, pid), timeout_s, POLL_S)
        except (OSError, ValueError, KeyError) as error:
            raise CommandError(f"guest agent at {self._path}: {error}") from error
        if status is None:
            raise CommandError(f"{' '.join(argv)}: no result within {timeout_s:g} s")
        out, err = (_text(status.get(name)) for name in ("out-data", "err-data"))
        return Result(tuple(argv), status.get("exitcode", -1), out, err)


def _synchronize(stream: BufferedRWPair) -> None:
    """Discard unread data of an earlier connection; 0xff terminates an incomplete request."""
    token = secrets.randbelow(2**31)
    _send(stream, "guest-sync-delimited", {"id": token}, b"\xff")
    while True:
        line = _line(stream).rpartition(b"\xff")[2]
        if line and json.loads(line).get("return") == token:
            return


def _ask(stream: BufferedRWPair, command: str, arguments: dict[str, Any]) -> Any:
    _send(stream, command, arguments)
    response = json.loads(_line(stream))
    if "error" in response:
        raise CommandError(f"guest agent: {command}: {response['error'].get('desc')}")
    return response["return"]


def _exited(stream: BufferedRWPair, pid: int) -> Optional[dict[str, Any]]:
    """Return the status of a program, or None while it runs."""
    status: dict[str, Any] = _ask(stream, "guest-exec-status", {"pid": pid})
    return status if status["exited"] else None


def _send(
    stream: BufferedRWPair, command: str, arguments: dict[str, Any], before: bytes = b""
) -> None:
    request = json.dumps({"execute": command, "arguments": arguments})
    stream.write(before + request.encode() + b"\n")
    stream.flush()


def _line(stream: BufferedRWPair) -> bytes:
    line = stream.readline()
    if not line:
        raise OSError("the connection was closed")
    return line


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
        self._folder = state / cluster
        self._root = root

    def folder(self, name: str) -> Path:
        return self._folder / name

    def found(self) -> list[ExistingHost]:
        if not self._folder.is_dir():
            return []
        loose = self._loose_taps()
        return [self._look(path.name, loose) for path in sorted(self._folder.iterdir())]

    def _look(self, name: str, loose: Sequence[str]) -> ExistingHost:
        folder = self.folder(name)
        try:
            specification, *taps = (folder / SPECIFICATION).read_text(encoding="utf-8").split()
        except (FileNotFoundError, ValueError):
            specification, taps = "", []  # its creation was interrupted
        running = self._process(folder) is not None
        return ExistingHost(name, specification, running and not any(tap in loose for tap in taps))

    def _loose_taps(self) -> list[str]:
        """Interfaces of the fabric without a carrier: taps that no QEMU process holds."""
        shown = self._run(
            ["ip", "-n", fabric_namespace(self.cluster), "-json", "link", "show"], check=False
        )
        links = json.loads(shown.stdout or "[]") if shown.rc == 0 else []
        return [link["ifname"] for link in links if link and "LOWER_UP" not in link["flags"]]

    def _process(self, folder: Path) -> Optional[int]:
        """Return the process id of the machine's QEMU, checked by its command line."""
        try:
            pid = int((folder / PID).read_text(encoding="ascii"))
            words = (self._root / f"proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if str(folder / PID).encode() in words else None

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
        folder.mkdir(parents=True, mode=0o700)
        backing = ["-b", machine.image, "-F", "raw"]
        self._run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(folder / DISK)])
        for name, text in machine.files.items():
            write_atomically(folder / f"{GIVEN}{name}", text, 0o600, 0, 0)
        write_atomically(folder / IMAGE, f"{machine.image}\n", 0o600, 0, 0)
        taps = " ".join(card.tap for card in machine.cards)
        text = f"{machine.specification} {taps}\n"
        write_atomically(folder / SPECIFICATION, text, 0o600, 0, 0)

    def _start(self, machine: Machine, emulator: Sequence[str], accelerator: Sequence[str]) -> None:
        folder = self.folder(machine.name)
        self._end(folder)
        for file in (PID, AGENT, MONITOR):
            (folder / file).unlink(missing_ok=True)
        command = qemu_command(machine, folder, emulator=emulator, accelerator=accelerator)
        try:
            # The other ends of its taps are in the fabric's namespace, and so is the process.
            self._run(["ip", "netns", "exec", fabric_namespace(self.cluster), *command])
        except CommandError as error:
            raise VirtualError(f"{machine.name}: QEMU did not start: {error}") from error

    def _end(self, folder: Path) -> None:
        """Ask QEMU to quit, which takes effect immediately; kill it if it does not."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            until(partial(self._signalled, folder, number), END_S, POLL_S, sleep=self.sleep)

    def _signalled(self, folder: Path, number: int) -> bool:
        """Send a signal to the machine's QEMU. Returns whether it is gone."""
        pid = self._process(folder)
        if pid is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return pid is None

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            folder = self.folder(name)
            self._end(folder)
            # Removed first: without it an interrupted removal is repeated.
            (folder / SPECIFICATION).unlink(missing_ok=True)
            shutil.rmtree(folder)
        with suppress(OSError):  # missing, or still in use by other machines
            self._folder.rmdir()

    def inside(self, name: str, argv: Sequence[str]) -> str:
        return GuestAgent(self.folder(name) / AGENT).run(argv).stdout

    def terminated(self, name: str) -> bool:
        return self._process(self.folder(name)) is None

    def remark(self, name: str) -> str:
        console = self.folder(name) / CONSOLE
        return f"Last line of its console ({console}): {_last_line(console)}"


def _last_line(console: Path) -> str:
    try:
        text = console.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "no console log"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-200:] if lines else "(empty)"
