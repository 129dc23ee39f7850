# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines on this host: found by their folders, restarted when off, and removed completely."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils import nodes
from ansible_collections.baremetal.bed.plugins.module_utils import qemu as module
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import (
    RailCable,
    VirtualError,
    VirtualNode,
)
from ansible_collections.baremetal.bed.plugins.module_utils.machines import (
    Machine,
    plan_machine,
)
from ansible_collections.baremetal.bed.plugins.module_utils.nodes import (
    ExistingHost,
    Work,
    plan_work,
)
from ansible_collections.baremetal.bed.plugins.module_utils.qemu import (
    KVM,
    TCG,
    GuestAgent,
    Qemu,
    choose,
    newest_emulator,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)

from tests.waiting import deadline


def machine(name: str = "node01", memory: int = 1024) -> Machine:
    rails = (RailCable("rail0", "leaf1", "", "10.1.0.0/24", None),)
    node = VirtualNode(name, "10.99.0.11", 24, "mgmt0", rails, machine=True)
    return plan_machine("test", node, memory_mib=memory, image="/images/a.raw", login_key="key")


class Host:
    """Runs the commands of Qemu. A QEMU that starts writes its process id and appears in /proc."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.calls: list[list[str]] = []
        self.loose: list[str] = []
        self.refuses = False
        self.stubborn = False
        self.signals: list[int] = []
        self._pids = itertools.count(101)  # machines are started in parallel threads
        monkeypatch.setattr(os, "kill", self.kill)

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        self.calls.append(words)
        if words[:2] == ["ip", "-n"]:
            links = [{"ifname": name, "flags": ["UP"]} for name in self.loose]
            links.append({"ifname": "node01-mgmt0", "flags": ["UP", "LOWER_UP"]})
            return Result(tuple(words), 0, json.dumps(links), "")
        if words[0] == "qemu-img":
            Path(words[-1]).touch()
        if words[:3] == ["ip", "netns", "exec"]:
            if self.refuses:
                raise CommandError("exit status 1: no KVM")
            pid = next(self._pids)
            Path(words[words.index("-pidfile") + 1]).write_text(f"{pid}\n")
            self.process(pid, words[4:])
        return Result(tuple(words), 0, "", "")

    def process(self, pid: int, words: Sequence[str]) -> None:
        place = self.root / f"proc/{pid}"
        place.mkdir(parents=True)
        (place / "cmdline").write_bytes("\0".join(words).encode())

    def kill(self, pid: int, number: int) -> None:
        self.signals.append(number)
        if self.stubborn and number == signal.SIGTERM:
            return
        (self.root / f"proc/{pid}/cmdline").unlink()

    @property
    def qemu(self) -> Qemu:
        return Qemu("test", self, state=self.state, root=self.root, sleep=lambda _seconds: None)

    def apply(self, *machines: Machine) -> Work:
        wanted = {each.name: each for each in machines}
        specifications = {each.name: each.specification for each in machines}
        work = plan_work(specifications, self.qemu.found())
        self.qemu.apply(work, wanted, emulator=["qemu"], accelerator=["-accel", "tcg"])
        return work


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_the_network_is_created_once(host: Host) -> None:
    assert host.apply(machine()) == Work(create=("node01",))
    assert host.qemu.found() == [ExistingHost("node01", machine().specification, running=True)]
    assert (host.state / "test/node01/given-name").read_text() == "node01\n"
    before = len(host.calls)
    assert host.apply(machine()) == Work()
    assert not [words for words in host.calls[before:] if "qemu" in words[0]]


def test_one_that_ended_is_started_on_the_same_disk(host: Host) -> None:
    host.apply(machine())
    disk = host.state / "test/node01/disk.qcow2"
    disk.write_text("what it wrote")
    host.kill(101, signal.SIGKILL)
    assert host.qemu.found()[0].running is False
    assert host.apply(machine()) == Work(start=("node01",))
    assert disk.read_text() == "what it wrote"
    assert host.qemu.found()[0].running is True


def test_another_process_with_its_number_is_not_the_machine(host: Host) -> None:
    host.apply(machine())
    host.kill(101, signal.SIGKILL)
    (host.root / "proc/101/cmdline").write_bytes(b"sshd\0-D")
    host.signals.clear()
    assert host.qemu.found()[0].running is False
    host.apply(machine())
    assert host.signals == []


def test_one_whose_cable_was_cut_is_started_again(host: Host) -> None:
    host.apply(machine())
    host.loose = ["node01-rail0"]
    assert host.apply(machine()) == Work(start=("node01",))
    assert host.signals == [signal.SIGTERM]


def test_another_specification_makes_it_anew(host: Host) -> None:
    host.apply(machine())
    (host.state / "test/node01/disk.qcow2").write_text("what it wrote")
    assert host.apply(machine(memory=2048)) == Work(remove=("node01",), create=("node01",))
    assert (host.state / "test/node01/disk.qcow2").read_text() == ""


def test_a_creation_that_was_killed_is_done_again(host: Host) -> None:
    host.apply(machine())
    host.kill(101, signal.SIGKILL)
    (host.state / "test/node01/specification").unlink()
    assert host.apply(machine()) == Work(remove=("node01",), create=("node01",))


def test_one_that_left_the_inventory_goes(host: Host) -> None:
    host.apply(machine(), machine("node02"))
    assert host.apply(machine()) == Work(remove=("node02",))
    assert [path.name for path in (host.state / "test").iterdir()] == ["node01"]


def test_one_that_does_not_end_is_made_to(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.apply(machine())
    host.stubborn = True
    monkeypatch.setattr(module, "END_S", 0.01)
    host.qemu.remove(["node01"])
    assert host.signals[-1] == signal.SIGKILL
    assert not (host.state / "test").exists()


def test_a_qemu_that_refuses_is_named(host: Host) -> None:
    host.refuses = True
    with pytest.raises(VirtualError, match=r"node01: QEMU(?s:.*)no KVM"):
        host.apply(machine())


class Agent:
    """Answers like a machine in this state."""

    def __init__(self, state: str) -> None:
        self.state = state

    def run(self, argv: Sequence[str], timeout_s: float = 0) -> Result:
        words = list(argv)
        if not self.state:
            raise CommandError("no answer")
        answer = {
            "is-system-running": self.state,
            "list-units": "bad.service loaded failed",
            "/etc/ssh/ssh_host_ed25519_key.pub": "ssh-ed25519 AAAA root@node01",
        }[words[1]]
        return Result(tuple(words), 0, f"{answer}\n", "")


def wait(host: Host, monkeypatch: pytest.MonkeyPatch, state: str, **options: Any) -> dict[str, str]:
    monkeypatch.setattr(module, "GuestAgent", lambda _path: Agent(state))
    monkeypatch.setattr(nodes, "answers_ssh", lambda _address: options.get("ssh", True))
    return host.qemu.wait([machine()], options.get("timeout_s", 0))


def test_a_machine_that_is_up_shows_its_key(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.apply(machine())
    assert wait(host, monkeypatch, "running") == {"node01": "ssh-ed25519 AAAA"}


@pytest.mark.parametrize(
    ("state", "ssh", "messages"),
    [
        ("degraded", True, "degraded, failed: bad.service"),
        ("starting", True, "systemd: starting; sshd at 10.99.0.11: responds"),
        ("running", False, "sshd at 10.99.0.11: no response"),
        ("", False, "systemd: no response(?s:.*)Kernel panic"),
    ],
)
def test_the_reason_of_a_failed_boot_is_reported(
    host: Host, monkeypatch: pytest.MonkeyPatch, state: str, ssh: bool, messages: str
) -> None:
    host.apply(machine())
    (host.state / "test/node01/console.log").write_text("Loading\nKernel panic: no init\n\n")
    with pytest.raises(VirtualError, match=messages):
        wait(host, monkeypatch, state, ssh=ssh, timeout_s=-1)


def test_a_machine_that_terminates_while_booting_is_not_waited_for(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.apply(machine())
    host.kill(101, signal.SIGKILL)
    with pytest.raises(VirtualError, match="node01: terminated"):
        wait(host, monkeypatch, "", ssh=False, timeout_s=3600)


# Guest agent: one program, its output, its exit status.


class Server:
    """The agent behind QEMU's socket. Data that an earlier client did not read stays in its
    channel."""

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


def agent_of(server: Server) -> GuestAgent:
    return GuestAgent(server.path, timeout_s=deadline(60))


def test_a_programs_output_and_status(server: Server) -> None:
    done = agent_of(server).run(["systemctl", "is-system-running"])
    assert (done.rc, done.stdout, done.stderr) == (3, "running\n", "")
    assert server.asked[0]["arguments"]["path"] == "systemctl"
    assert server.asked[0]["arguments"]["arg"] == ["is-system-running"]


def test_one_that_runs_for_ever_is_given_up(server: Server) -> None:
    server.runs = 10**6
    with pytest.raises(CommandError, match="no result within"):
        agent_of(server).run(["sleep", "infinity"], timeout_s=0.1)


# Choice of QEMU and of KVM.


class Apt:
    """Fakes apt-get and dpkg-deb. `igb`: whether the system's QEMU has the card."""

    def __init__(self, igb: bool = False) -> None:
        self.igb = igb
        self.fails = ""
        self.calls: list[list[str]] = []
        self.source = ""

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        words = list(argv)
        self.calls.append(words)
        if self.fails and self.fails in words:
            raise CommandError(f"{self.fails}: exit status 100")
        printed = ""
        if "indextargets" in words:
            printed = "https://mirror/debian/"
        if words[-1] == "update":
            folder = next(word for word in words if "sourcelist" in word).partition("=")[2]
            self.source = Path(folder).read_text()
        if "download" in words:
            debs = Path(words[4])
            (debs / "qemu-system-x86_10.deb").touch()
        if words[0] == "dpkg-deb":
            program = Path(words[-1]) / "usr/bin/qemu-system-x86_64"
            program.parent.mkdir(parents=True)
            program.touch()
        if words[-1] == "igb,help" and ("env" in words or self.igb):
            printed = "igb options:\n"
        return Result(tuple(words), 0, printed, "")


@pytest.fixture
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "one_builder", nullcontext)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    return tmp_path


SYSTEMS = ("qemu-system-x86_64",)


def newest(apt: Apt, root: Path, sriov: bool = True) -> tuple[str, ...]:
    return newest_emulator(apt, sriov=sriov, root=root, folder=root / "var/qemu")


def test_the_systems_is_taken_where_it_has_the_card(debian: Path) -> None:
    assert newest(Apt(igb=True), debian) == SYSTEMS


def test_a_newer_qemu_is_fetched_once_from_backports(debian: Path) -> None:
    apt = Apt()
    words = newest(apt, debian)
    assert apt.source.endswith(" https://mirror/debian/ bookworm-backports main\n")
    assert "signed-by=" in apt.source
    assert Path(words[2]) == debian / "var/qemu/usr/bin/qemu-system-x86_64"
    assert words[1].startswith("QEMU_MODULE_DIR=")
    assert [path.name for path in (debian / "var").iterdir()] == ["qemu"]
    apt.source = ""
    assert (newest(apt, debian), apt.source) == (words, "")


@pytest.mark.parametrize("fails", ["update", "download", "dpkg-deb", ""])
def test_without_a_newer_one_the_systems_runs_machines_without_sriov(
    debian: Path, fails: str
) -> None:
    apt = Apt()
    apt.fails = fails
    if not fails:
        (debian / "etc/os-release").write_text("ID=ubuntu\nVERSION_CODENAME=jammy\n")
    assert newest(apt, debian, sriov=False) == SYSTEMS
    with pytest.raises(VirtualError, match="virtual_nodes_sriov_rails needs a QEMU"):
        newest(apt, debian)
    assert list((debian / "var").iterdir()) == []


@pytest.mark.parametrize(
    ("printed", "words"),
    [("[ 0.0] Linux version 6.1\nKernel panic", KVM), ("", TCG), (None, TCG)],
)
def test_kvm_is_taken_where_a_kernel_runs_on_it(
    monkeypatch: pytest.MonkeyPatch, printed: Optional[str], words: tuple[str, ...]
) -> None:
    def trial(argv: Sequence[str], *, timeout_s: float = 0) -> Result:
        if printed is None:
            raise CommandError("no answer within 12 s")
        return Result(tuple(argv), 0, printed, "")

    monkeypatch.setattr(module, "run_program", trial)
    assert choose("auto", ["qemu"], Path("/images/a.kernel")) == words
    assert choose("kvm", ["qemu"], Path("/images/a.kernel")) == KVM
    assert choose("tcg", ["qemu"], Path("/images/a.kernel")) == TCG
