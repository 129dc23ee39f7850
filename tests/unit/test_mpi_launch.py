# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Launching: time limits, readiness of nodes, commands over ssh, and the sweep after a run."""

from __future__ import annotations

import base64
import errno
import hashlib
import os
import shlex
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    NoAnswerError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import launch
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import (
    hosts,
    readiness,
    scripts,
    unit,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
    Srun,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import (
    LaunchNode,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.ssh import paths

from tests.waiting import deadline

pytestmark = pytest.mark.slow

RECORD = 'allreduce-record {"kind": "%s"}'


def alive(word: str) -> list[str]:
    """Ids of other processes with `word` in their command line."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in text and int(entry.parent.name) != os.getpid():
            found.append(entry.parent.name)
    return found


def mpirun(tmp_path: Path, script: str, mark: str) -> list[str]:
    """Command of a fake mpirun, with a mark in its command line."""
    program = tmp_path / f"mpirun-{mark}"
    program.write_text(script)
    return ["/bin/sh", str(program)]


def test_launch_streams_records_and_keeps_other_output(tmp_path: Path) -> None:
    script = (
        f"echo welcome\necho '{RECORD % 'size'}'\necho 'it failed' >&2\n"
        f"echo '{RECORD % 'end'}'\nexit 3\n"
    )
    seen: list[str] = []
    result = launch.launch(
        mpirun(tmp_path, script, "a"),
        deadline(20),
        progress=lambda one: seen.append(one["kind"]),
    )
    assert seen == ["size", "end"]
    assert (result.complete, result.timed_out, result.rc) == (True, False, 3)
    assert "it failed" in result.complaints and "welcome" in result.complaints


@pytest.mark.parametrize(
    "kind", ["", "x" * 99 + "\n", RECORD % "size" + "\n"], ids=["line", "lines", "records"]
)
def test_launch_bounds_output_in_memory(kind: str, tmp_path: Path) -> None:
    """60 MB on standard output, then a message of the launcher on standard error."""
    part = kind or "x"
    code = f"import os; part = {part.encode()!r} * {1_000_000 // len(part)}\n"
    program = tmp_path / "prints.py"
    program.write_text(f"{code}for _ in range(60): os.write(1, part)\nos.write(2, b'it failed')")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = peak_kb()
    result = launch.launch([sys.executable, str(program)], deadline(120))
    assert result.rc == 0 and result.complaints.endswith("it failed")
    too_many = "ranks sent records of more than 8 MiB" in result.complaints
    assert too_many == kind.startswith(launch.MARK)
    assert sum(len(RECORD % one["kind"]) for one in result.records) <= launch.MAX_RECORDS
    assert peak_kb() - before < 200_000


def peak_kb() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def test_a_launcher_that_hangs_is_stopped(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    script = f"echo '{RECORD % 'size'}'\nsleep 300\n"
    begin, stopped = time.monotonic(), []
    stop = lambda: stopped.append("stop")  # noqa: E731
    result = launch.launch(mpirun(tmp_path, script, mark), deadline(5), stop=stop)
    assert time.monotonic() - begin < deadline(60) and stopped == ["stop"]
    assert result.timed_out and not result.complete
    assert [one["kind"] for one in result.records] == ["size"] and alive(mark) == []


def test_a_launcher_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "GRACE_S", 1.0)
    mark = uuid.uuid4().hex
    script = "trap '' TERM\nwhile true; do sleep 0.2; done\n"
    result = launch.launch(mpirun(tmp_path, script, mark), deadline(5))
    assert (result.timed_out, result.rc, alive(mark)) == (True, -9, [])


def test_a_quiet_run_continues_until_a_node_is_lost(tmp_path: Path) -> None:
    """`lost` is called after each silence, and not while records arrive."""
    answers = [False, False, True]
    script = f"echo '{RECORD % 'size'}'\nsleep 300\n"
    asked: list[bool] = []

    def lost() -> bool:
        asked.append(answers[len(asked)])
        return asked[-1]

    argv = mpirun(tmp_path, script, "q")
    result = launch.launch(argv, deadline(200), lost=lost, quiet_s=0.2)
    assert asked == answers
    assert result.timed_out and result.seconds < deadline(100)
    assert [one["kind"] for one in result.records] == ["size"]


def test_the_unit_has_the_limit() -> None:
    argv = unit.bounded(["mpirun", "x"], "smoke-1", 310)
    assert argv[0] == "systemd-run"
    assert "--property=RuntimeMaxSec=310" in argv
    assert "--unit=smoke-1" in argv
    assert argv[-2:] == ["mpirun", "x"]


@pytest.mark.parametrize(
    ("launcher", "count", "said", "wanted"),
    [
        (OPEN_MPI, 700, "files 10", {}),  # not asked
        (OPEN_MPI, 1000, "files 1024", {"files": (1256, 1024)}),
        (OPEN_MPI, 1000, "files 1256\nprocesses 100", {"": "ok"}),  # ssh ends after the start
        (OPEN_MPI, 1000, "files unlimited", {"": "ok"}),
        (HYDRA, 200, "files 1024\nprocesses 2048", {"files": (1056, 1024)}),
        (HYDRA, 2000, "files 9000\nprocesses max\nprocesses 2048\nprocesses 9000",
         {"processes": (2256, 2048)}),
        (Srun(), 5000, "files 10", {}),
    ],
)  # fmt: skip
def test_limits_of_the_launcher_are_checked_before_they_are_met(launcher, count, said, wanted):
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str], *, check: bool = True) -> Result:
        asked.append(argv)
        lines = ["Welcome", *(f"mpi-ready {line}" for line in said.splitlines())]
        return Result(tuple(argv), 0, "\n".join(lines), "")

    checks = readiness.limits(run, "root", launcher, count)
    found = {
        each.subject: "ok" if each.status == "ok" else (each.wanted, each.found) for each in checks
    }
    assert found == wanted and {each.name for each in checks} <= {"launcher_limits"}
    assert len(asked) == bool(wanted)
    for argv in asked:  # where the launcher will run
        assert argv[0] == "systemd-run" and "runuser" in argv


def test_the_limits_that_the_script_reports_are_those_of_its_process(tmp_path: Path) -> None:
    (tmp_path / "limits").write_text(scripts.LIMITS)
    shell = ["bash", "-c", f"ulimit -n 77; ulimit -u 5000; exec sh {tmp_path}/limits"]
    found = hosts.report(subprocess.run(shell, capture_output=True, text=True, check=True).stdout)
    assert found["files"] == ["77"]
    numbers = [int(line) for line in found["processes"] if line.isdigit()]
    assert numbers[-1] == int(Path("/proc/sys/kernel/threads-max").read_text())


def test_records_among_other_lines() -> None:
    record = '{"kind": "size", "bytes": 4}'
    lines = [f"{launch.MARK}{text}" for text in (record, '{"kind": "si', "7", "[" * 100_000)]
    found = [launch.record(line) for line in ["Welcome", *lines, f" {launch.MARK}{record}"]]
    assert [one for one in found if one] == [{"kind": "size", "bytes": 4}]


class FakeSsh:
    """Fake ssh: by host, a string is printed and an exception is raised."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers
        self.argvs: list[list[str]] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        self.argvs.append(list(argv))
        host = next((word for word in argv if word in self.answers), "the launcher")
        answer = self.answers.get(host, "mpi-ready killed 0 left 0")
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            return Result(tuple(argv), 255, "", answer[0])
        return Result(tuple(argv), 0, str(answer), "")


def answered(program: str = "abc", daemon: str = "yes", *more: str) -> str:
    lines = [f"program {program}", f"daemon {daemon}", *more, "end"]
    return "".join(f"mpi-ready {line}\r\n" for line in lines)


def asked(answers: dict[str, object], transport: str = "tcp") -> tuple[dict[str, str], FakeSsh]:
    ssh = FakeSsh(answers)
    nodes = [LaunchNode(name, 2, ("rail0", "rail1", "rail3")) for name in answers]
    problems, _nodes = readiness.preflight(ssh, "mpi", nodes, transport, sha256="abc")
    return problems, ssh


def test_preflight_names_each_node_with_a_remedy() -> None:
    found, ssh = asked(
        {
            "node01": "PATH=/opt/bin\nuptime=3 days\nmissing\n" + answered() + "bye=bye\n",
            "node02": ("Host key verification failed.\nConnection to node02 closed.\n",),
            "node03": answered("missing"),
            "node04": answered("0ld"),
            "node05": answered("abc", "no"),
            "node07": answered("abc", "yes", "rail rail1 down", "rail rail3 missing"),
            "node06": NoAnswerError("runuser -u mpi -- ssh -o BatchMode=yes node06", 60.0),
            "node08": answered().partition("mpi-ready end")[0],
        }
    )
    assert set(found) == {f"node0{number}" for number in range(2, 9)}
    assert found["node07"] == "rail1 is down, rail3 is missing; run --tags rails --limit node07"
    assert "Host key verification failed." in found["node02"]
    assert found["node03"].endswith("not found; run --tags rails,mpi --limit node03")
    assert "different version" in found["node04"]
    assert "orted" in found["node05"]
    assert "within 60 s" in found["node06"]
    assert "cut short" in found["node08"]
    assert all("-oBatchMode=yes" in argv for argv in ssh.argvs)
    # Without a terminal, programs that a login file has started outlive the connection.
    assert all("-tt" in argv for argv in ssh.argvs)
    # The node's own ssh settings verify host keys; no option here may weaken them.
    words = [word for argv in ssh.argvs for word in argv]
    assert not [word for word in words if "hostkey" in word.lower() or "knownhosts" in word.lower()]


def calling(launcher: int, management: int, rail: int) -> str:
    """Answer of a node: errno of its connections to the launcher and to the next node."""
    lines = ["launcher 10.0.0.1", "peer next 10.0.0.2", "peer next-rail1 10.1.1.2"]
    codes = {"10.0.0.1": launcher, "10.0.0.2": management, "10.1.1.2": rail}
    lines += [f"back {address} {code}" for address, code in codes.items()]
    return answered("abc", "yes", *lines)


REFUSED = errno.ECONNREFUSED
WELL = calling(0, REFUSED, REFUSED)


@pytest.mark.parametrize("code", [errno.ETIMEDOUT, errno.EHOSTUNREACH, REFUSED])
def test_an_unreachable_launcher_is_named_for_every_node(code: int) -> None:
    why = calling(code, REFUSED, REFUSED)
    found, ssh = asked({"node01": why, "node02": why})
    assert set(found) == {"node01", "node02"}
    for text in found.values():
        assert "(10.0.0.1)" in text and paths.told(code) in text
        assert "os_baseline_firewall" in text
    looked = [argv for argv in ssh.argvs if argv[0] == "ip"]
    assert looked == [["ip", "-j", "-4", "address", "show"]]


def test_a_node_that_its_predecessor_cannot_reach_is_named() -> None:
    filtered = calling(0, REFUSED, errno.ETIMEDOUT)
    found, ssh = asked({"node01": WELL, "node02": WELL, "node03": calling(0, 0, REFUSED)})
    assert found == {} and len(ssh.argvs) == 3, "refused is reached, and no filters are read"
    found = asked({"node01": WELL, "node02": filtered, "node03": WELL})[0]
    assert set(found) == {"node03"}
    assert "node02 -> next-rail1 (10.1.1.2): ETIMEDOUT" in found["node03"]
    assert "os_baseline_firewall: open, then run --tags os --limit node03" in found["node03"]
    own = calling(0, errno.EPERM, REFUSED)
    assert set(asked({"node01": WELL, "node02": own, "node03": WELL})[0]) == {"node02"}
    away = calling(errno.ENETUNREACH, REFUSED, REFUSED)
    assert "outgoing traffic on node01" in asked({"node01": away, "node02": WELL})[0]["node01"]
    # A node with another fault is reported once.
    down = answered("abc", "yes", "rail rail1 down")
    found = asked({"node01": WELL, "node02": filtered, "node03": down})[0]
    assert found == {"node03": "rail1 is down; run --tags rails --limit node03"}


def test_lines_of_login_files_are_not_part_of_an_answer() -> None:
    text = "Welcome:  removed me\nmpi-ready removed /dev/shm/a b\n mpi-ready end\n"
    assert hosts.report(text) == {"removed": ["/dev/shm/a b"]}


def test_malformed_connections_are_ignored() -> None:
    lines = ("launcher -batch", "peer next; 10.0.0.2", "peer next -x", "back 10.0.0.2 99999")
    here = readiness.answer(answered("abc", "yes", *lines))
    assert (here.launcher, dict(here.peers), dict(here.called)) == ("", {"next": ""}, {})


def test_each_node_connects_to_the_next_over_tcp_rails() -> None:
    def names(transport: str, count: int) -> list[str]:
        nodes = [f"node0{number}" for number in range(1, count + 1)]
        _found, ssh = asked(dict.fromkeys(nodes, WELL), transport)
        scripts = [sent(argv) for argv in ssh.argvs if "ssh" in argv]
        return sorted(shlex.split(script.splitlines()[0])[7] for script in scripts)

    def sent(argv: Sequence[str]) -> str:
        word = next(word for word in argv if word.startswith("echo "))
        return base64.b64decode(word.split()[1]).decode()

    first, second = (f"{name} {name}-rail0 {name}-rail1 {name}-rail3" for name in NAMES)
    assert names("tcp", 2) == [first, second]
    assert names("rc", 2) == list(NAMES)
    assert names("tcp", 1) == [""]


NAMES = ("node01", "node02")


def test_connections_back_have_a_time_limit() -> None:
    by = ["env", "SSH_CONNECTION=127.0.0.1 50000 127.0.0.1 22"]
    nowhere = ready_here("", by=["env", "SSH_CONNECTION=fe80::1 2 fe80::2 22"])
    assert (nowhere.launcher, dict(nowhere.called), nowhere.whole) == ("", {}, True)
    with paths.Listener({}) as listener:
        here = ready_here("", by=by, calls=(paths.CALL, str(listener.port), "localhost"))
    assert (here.launcher, here.peers) == ("127.0.0.1", {"localhost": "127.0.0.1"})
    assert here.called == {"127.0.0.1": 0}
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        refusing = ready_here("", by=by, calls=(paths.CALL, str(listener.port), ""))
        assert refusing.called == {"127.0.0.1": REFUSED}
        waiting = []  # beyond the backlog, packets of further connections are dropped
        for _unused in range(4):
            waiting.append(socket.socket())
            waiting[-1].setblocking(False)
            waiting[-1].connect_ex(("127.0.0.1", port))
        begin = time.monotonic()
        hanging = ready_here("", by=by, calls=(paths.CALL, str(port), ""))
        assert hanging.called == {"127.0.0.1": errno.ETIMEDOUT}
        assert time.monotonic() - begin < deadline(paths.WAIT_S + 3)
        for connection in waiting:
            connection.close()


OLD, NEW = "(Open MPI) 4.1.6", "(Open MPI) 4.1.9a1"
HPCX = f"{NEW} in /opt/hpcx/ompi"


@pytest.mark.parametrize(
    ("word", "usual", "other", "told"),
    [
        ("ucx", "1.13.1", "1.16.0", "UCX has version 1.16.0, and 1.13.1"),
        ("version", NEW, OLD, f"mpirun has version {OLD}, and {NEW}"),
        ("version", HPCX, NEW, f"mpirun has version {NEW}, and {HPCX}"),
    ],
)
def test_a_node_with_another_version_is_refused(
    word: str, usual: str, other: str, told: str
) -> None:
    """Ranks of HPC-X and of the same Open MPI from elsewhere wait for each other forever."""
    answers: dict[str, object] = {
        f"node0{number}": answered("abc", "yes", f"{word} {version}")
        for number, version in enumerate((usual, other, usual), 1)
    }
    wanted = {"node02": f"{told} on most nodes; run --tags mpi --limit node02"}
    assert asked(answers)[0] == wanted
    answers["node02"] = answered("abc", "no", f"{word} {other}")
    assert "orted not found" in asked(answers)[0]["node02"], "it explains the other version"


RDMA_LINES = (
    *(f"device mlx5_{k}:1 rail{k}" for k in (0, 1, 3)),
    *(f"port mlx5_{k}:1 ACTIVE" for k in (0, 1, 3)),
)


def without(*words: str) -> list[str]:
    return [line for line in RDMA_LINES if not any(word in line for word in words)]


def test_a_node_without_rdma_is_refused_for_rc_only() -> None:
    answers: dict[str, object] = {
        "node01": answered("abc", "yes", *RDMA_LINES),
        "node02": answered("abc", "yes", *without("device mlx5_1")),
        "node03": answered("abc", "yes", *without("port mlx5_3"), "port mlx5_3:1 DOWN"),
    }
    assert asked(answers)[0] == {}
    found = asked(answers, "rc")[0]
    assert set(found) == {"node02", "node03"}
    assert found["node02"] == "rail1 has no RDMA device; run --tags rails,mpi --limit node02"
    assert found["node03"].startswith("mlx5_3:1 of rail3 is DOWN; run --tags rails,mpi")


@pytest.mark.parametrize(
    ("answers", "status", "found", "reason"),
    [
        (
            {"node01": "Welcome to node01\nkilled 9 left 9\nmpi-ready killed 0 left 0\n"},
            "ok",
            0,
            "",
        ),
        ({"node02": "mpi-ready killed 3 left 0"}, "ok", 0, "3 killed: node02 3"),
        ({"node02": "mpi-ready killed 3 left 1"}, "failed", 1, "node02: 1 left"),
        ({"node03": ("no route\n",)}, "failed", "unknown on 1 node", "node03: unknown (no route)"),
        (
            {"node04": "Welcome to node04\n", "node05": "mpi-ready killed x left y\n"},
            "failed",
            "unknown on 2 nodes",
            "node04: unknown (unexpected answer), node05: unknown (unexpected answer)",
        ),
    ],
)
def test_sweep_counts_by_node_despite_login_files(
    answers: dict[str, object], status: str, found: object, reason: str
) -> None:
    ssh = FakeSsh(answers)
    check = hosts.sweep(ssh, "mpi", list(answers), "id7")
    assert (check.status, check.found, check.reason) == (status, found, reason)
    assert len(ssh.argvs) == len(answers) + 1, "including the launcher"


CSH = r"""
import subprocess, sys
text, quote = sys.argv[2], ""
for letter in text:
    if quote and letter == "\n":
        sys.exit(f"Unmatched '{quote}'.")
    if letter in "'\"" and quote in ("", letter):
        quote = "" if quote else letter
    if letter == "!" or (not quote and letter in "*?[]{}~$"):
        sys.exit(f"{letter}: csh reads it otherwise")
sys.exit(subprocess.run(["/bin/sh", "-c", text]).returncode)
"""
"""csh allows no line break inside quotes, and has history expansion."""


@pytest.mark.parametrize("shell", [[sys.executable, "-c", CSH], ["/bin/sh"], ["/bin/bash"]])
def test_scripts_run_under_any_login_shell(shell: list[str]) -> None:
    words = ["it's", "a\nb", "$HOME *", '"!x"', ""]
    script = """for word in "$@"; do echo "mpi-ready [$word]"; done\nread -r line || echo closed"""
    done = subprocess.run(
        [*shell, "-c", hosts.remote(script, words)], capture_output=True, text=True, check=False
    )
    wanted = "".join(f"mpi-ready [{word}]\n" for word in words) + "closed\n"
    assert (done.stdout, done.returncode, done.stderr) == (wanted, 0, "")
    assert subprocess.run([*shell, "-c", hosts.remote("exit 3")], check=False).returncode == 3


def test_a_terminal_merges_errors_into_output() -> None:
    """With -tt, errors of the remote side arrive on standard output."""

    def merged(argv: Sequence[str], **_unused: object) -> Result:
        return Result(
            tuple(argv), 1, "Welcome\nUnmatched quote.\n", "Connection to node01 closed.\n"
        )

    found = hosts.ask_all(merged, "mpi", {"node01": ["true"]}, options=["-tt"])
    assert found == {"node01": (None, "Unmatched quote.")}


@pytest.mark.parametrize(
    ("space", "why"),
    [
        ("/tmp 0 4096 500 1000", "/tmp has 0 B and 500 files free"),
        ("/dev/shm 900000 4096 3 1000", "/dev/shm has 3.43 GiB and 3 files free"),
        ("/tmp 900000 4096 0 0", ""),
        ("/tmp 900000 4096 500 1000", ""),
        ("/tmp", ""),
    ],
)
def test_a_node_without_free_space_is_refused(space: str, why: str) -> None:
    found = asked({"node01": answered("abc", "yes", f"space {space}")})[0]
    assert found.get("node01", "").startswith(why) and bool(found) == bool(why)


@pytest.mark.parametrize(
    ("version", "daemon", "named"),
    [
        ("(Open MPI) 10.1.0 in /opt/x", False, "Open MPI 10.1.0 starts"),
        ("(Open MPI) 5.0.10", True, ""),
        ("(Open MPI) 4.1.4", False, "Open MPI's orted not found; run --tags rails,mpi"),
    ],
)
def test_open_mpi_5_is_refused(version: str, daemon: bool, named: str) -> None:
    said = f"mpi-ready version {version}\nmpi-ready daemon {'yes' if daemon else 'no'}\n"
    here = readiness.answer(f"{said}mpi-ready program abc\nmpi-ready end\n")
    why = readiness.obstacle(here, LaunchNode("node01", 2), "abc", "tcp")
    assert why.startswith(named) and bool(why) == bool(named)


CALLS_NONE = (paths.CALL, "1", "")


def ready_here(
    program: str,
    *rails: str,
    daemon: str = "orted",
    calls: Sequence[str] = CALLS_NONE,
    by: Sequence[str] = (),
    edit: tuple[str, str] = ("", ""),
) -> readiness.NodeReport:
    """Answer of READY on this machine; `edit` replaces a directory in it."""
    script = scripts.READY.replace(*edit) if edit[0] else scripts.READY
    words = [program, "all_reduce_perf", daemon, *calls, *rails]
    argv = [*by, "/bin/sh", "-c", script, "sh", *words]
    return readiness.answer(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)


def test_a_node_reports_its_program_and_its_rails(tmp_path: Path) -> None:
    program = tmp_path / "allreduce.py"
    program.write_text("x")
    here = ready_here(str(program), "lo", "nosuch0")
    assert [ready_here("", daemon=name).daemon for name in ("sh", "no-daemon")] == [True, False]
    assert here.program == hashlib.sha256(b"x").hexdigest()
    assert here.down == ("nosuch0 is missing",)
    assert here.whole
    assert ready_here(str(tmp_path / "absent")).program == "missing"


def test_a_node_reports_its_rdma_devices(tmp_path: Path) -> None:
    for device, slots in (("mlx5_0", {"0": "rail0", "1": "rail0"}), ("mlx5_8", {"0": "storage0"})):
        table = tmp_path / device / "ports/1/gid_attrs/ndevs"
        table.mkdir(parents=True)
        (tmp_path / device / "ports/1/state").write_text("4: ACTIVE\n")
        (tmp_path / device / "device").mkdir()
        for slot, name in slots.items():
            (table / slot).write_text(name + "\n")
    edit = ("/sys/class/infiniband", str(tmp_path))
    here = ready_here("/absent", edit=edit)
    assert here.devices == (("mlx5_0:1", "rail0"), ("mlx5_8:1", "storage0"))
    assert here.ports == {"mlx5_0:1": "ACTIVE", "mlx5_8:1": "ACTIVE"}
    assert not here.software
    (tmp_path / "mlx5_8/device").rmdir()
    assert ready_here("/absent", edit=edit).software, "no device behind it: Soft-RoCE"


def sweep_here(run_id: str) -> list[str]:
    command = hosts.remote(scripts.SWEEP, [run_id])
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=True)
    return done.stdout.split()[1:]


def test_sweep_kills_only_processes_with_the_run_id() -> None:
    run_id, other = uuid.uuid4().hex, uuid.uuid4().hex
    code = "import time; time.sleep(300)"
    by_name = subprocess.Popen([sys.executable, "-c", code, "--run-id", run_id])
    by_environment = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "OMPI_MCA_baremetal_run_id": run_id}
    )
    stranger = subprocess.Popen([sys.executable, "-c", code, "--run-id", other])
    root = {"user": 65534} if os.geteuid() == 0 else {}  # only root can start another user's
    user = subprocess.Popen(["sleep", "300"], env={"RUN": run_id if root else ""}, **root)
    try:
        assert sweep_here(run_id) == ["killed", "2", "left", "0"]
        assert by_name.wait(deadline(60)) == -9
        assert by_environment.wait(deadline(60)) == -9
        assert stranger.poll() is user.poll() is None
        assert sweep_here(run_id) == ["killed", "0", "left", "0"]
    finally:
        for process in (by_name, by_environment, stranger, user):
            process.kill()
            process.wait()


@pytest.mark.parametrize("run_id", ["", "0", "\n", "/"])
def test_the_sweep_kills_nothing_without_a_run_id(run_id: str) -> None:
    """Every command line contains the empty string: as root, all processes would be killed."""
    done = subprocess.run(
        ["/bin/sh", "-c", hosts.remote("kill() { echo killing >&2; }\n" + scripts.SWEEP, [run_id])],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("no run id")
