# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the ranks do on shared storage after the allreduce, how it is judged, shown and saved."""

from __future__ import annotations

import errno
import json
import queue
import shlex
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils import commands
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce import (
    checkpoint,
    checkpoint_table,
    saving,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce import (
    launch as module_of_launch,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.launch import launch
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.allreduce.plan import (
    Checkpoint,
    Node,
    Plan,
    specification,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage import directories
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
    Serve,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.use import bounded, probe
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_allreduce as module

from tests.unit import programs

PROGRAM = "roles/mpi_stack/files/allreduce.py"
HOSTS = ("node01", "node02", "node03")
SIZE = 1 << 20
UNDEFINED = -1
LONG_S, SHORT_S = 60, 0.2
MOUNT = "/mnt/checkpoints"
FS = FileSystem("checkpoints", "nfs", "10.10.2.1:/export/a", MOUNT, "checkpoints")
PLAN = Plan(tuple(Node(name, 2) for name in HOSTS), "tcp", checkpoint=Checkpoint("c", SIZE, LONG_S))


# ---- the ranks


class World:
    """As many nodes as threads, of one rank each: what MPI does between their leaders."""

    def __init__(self, count: int) -> None:
        self.barrier = threading.Barrier(count)
        self.boxes = [queue.Queue() for _unused in range(count)]  # type: ignore[var-annotated]
        self.gathered: list[Any] = [None] * count
        self.count = count
        self.lock = threading.Lock()
        self.parts: dict[int, World] = {}


class Comm:
    def __init__(self, world: World, rank: int) -> None:
        self.world, self.rank = world, rank

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.world.count

    def Split(self, color: Any, key: int) -> Optional[Comm]:
        """Those of a color by themselves; None, as the tests have it, for those of none."""
        self.world.gathered[self.rank] = color
        self.Barrier()
        same = [rank for rank, of in enumerate(self.world.gathered) if of == color]
        with self.world.lock:
            if same[0] not in self.world.parts or len(same) != self.world.parts[same[0]].count:
                self.world.parts[same[0]] = World(len(same))
            part = self.world.parts[same[0]]
        self.Barrier()
        return None if color == UNDEFINED else Comm(part, same.index(self.rank))

    def Barrier(self) -> None:
        self.world.barrier.wait(LONG_S)

    def sendrecv(self, value: Any, dest: int, source: int) -> Any:
        self.world.boxes[dest].put((self.rank, value))
        sender, found = self.world.boxes[self.rank].get(timeout=LONG_S)
        assert sender == source
        return found

    def gather(self, value: Any) -> Optional[list[Any]]:
        self.world.gathered[self.rank] = json.loads(json.dumps(value))
        self.Barrier()
        return self.world.gathered if self.rank == 0 else None


class Report:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def write(self, kind: str, **values: Any) -> None:
        self.records.append({"kind": kind, **values})


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program of the ranks; its probe takes a directory for a mount point."""
    module = programs.program(PROGRAM)
    stand_in = tmp_path / "storage-probe.py"
    stand_in.write_text(
        Path(str(probe.__file__))
        .read_text()
        .replace("def is_mount_point(", "def is_mount_point(*_rest): return True\n\n\ndef _was(")
    )
    monkeypatch.setattr(module, "PROBE", stand_in)
    monkeypatch.setattr(module, "host_name", lambda: threading.current_thread().name)
    return module


def ranks(
    program: ModuleType, hosts: tuple[str, ...], limit_s: float, plain_on: str = ""
) -> list[dict[str, Any]]:
    world, report = World(len(hosts)), Report()
    wanted = {"cluster": "c", "bytes": SIZE, "share": 0.5, "limit_s": limit_s, "plain_on": plain_on}

    def one(rank: int) -> None:
        comm = Comm(world, rank)
        local = Comm(World(1), 0)
        given = {"checkpoint": wanted}
        program.checkpoint(given, "run7", comm, local, None, UNDEFINED, report)

    threads = [
        threading.Thread(target=one, args=(rank,), name=host, daemon=True)
        for rank, host in enumerate(hosts)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    return report.records


@pytest.mark.parametrize("hosts", [HOSTS, HOSTS[:1]])
def test_each_node_reads_what_the_next_one_wrote(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hosts: tuple[str, ...]
) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    monkeypatch.setenv("CLUSTER_CHECKPOINT_DIR", str(mount))
    found = ranks(program, hosts, LONG_S)
    following = dict(zip(hosts, [*hosts[1:], hosts[0]]))
    assert {one["name"]: one["neighbour"] for one in found} == following
    plan = replace(PLAN, nodes=tuple(Node(name, 1) for name in hosts))
    fs = replace(FS, mount=str(mount))
    judged = checkpoint.judge(plan, found, fs, ended=True)
    assert [check.status for check in judged] == [OK, OK]
    assert list((mount / ".baremetal-mpi-roce/c").iterdir()) == []  # nothing accumulates
    shown = checkpoint.figures(plan, found, fs)
    assert shown is not None and shown["read"]["bytes"] == SIZE * len(hosts)


def test_a_file_system_that_hangs_ends_with_its_limit(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.PROBE.write_text(
        "import os, sys\n"
        'os.write(1, b\'{"step": "opening /mnt/checkpoints"}\\n\')\n'
        "os.read(os.pipe()[0], 1)\n"
    )
    monkeypatch.setenv("CLUSTER_CHECKPOINT_DIR", MOUNT)
    found = ranks(program, HOSTS, SHORT_S)
    writing, reading = checkpoint.judge(PLAN, found, FS, ended=True)
    assert (writing.status, reading.status) == (FAILED, NOT_APPLICABLE)
    assert "mpi_smoke_checkpoint_limit_s" in writing.reason
    assert checkpoint.figures(PLAN, found, FS) is None


def test_a_node_whose_environment_says_nothing(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLUSTER_CHECKPOINT_DIR", raising=False)
    found = ranks(program, HOSTS, LONG_S)
    for one in found:
        one["container"] = False
    writing = checkpoint.judge(PLAN, found, FS, ended=True)[0]
    assert writing.status == FAILED and "--tags mpi" in writing.reason


def test_a_node_without_storage_is_nobodys_neighbour(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of three is of no group that mounts it: the others read each other's."""
    mount = str(tmp_path)
    here = {"CLUSTER_CHECKPOINT_DIR": mount}
    environ = SimpleNamespace(
        get=lambda name, other: (
            "" if threading.current_thread().name == HOSTS[1] else here.get(name, other)
        )
    )
    monkeypatch.setattr(
        program,
        "os",
        SimpleNamespace(**{**vars(program.os), "environ": environ}),
    )
    found = ranks(program, HOSTS, LONG_S)
    neighbours = {one["name"]: one.get("neighbour") for one in found}
    assert neighbours == {"node01": "node03", "node02": None, "node03": "node01"}
    fs = replace(FS, mount=mount, hosts=("storing",))
    nodes = tuple(replace(node, checkpoints=node.name != HOSTS[1]) for node in PLAN.nodes)
    judged = checkpoint.judge(replace(PLAN, nodes=nodes), found, fs, ended=True)
    assert [check.status for check in judged] == [OK, OK]
    assert "each of 2 nodes" in judged[0].wanted
    assert checkpoint.judge(PLAN, found, fs, ended=True)[0].status == FAILED
    none = tuple(replace(node, checkpoints=False) for node in PLAN.nodes)
    judged = checkpoint.judge(replace(PLAN, nodes=none), found, fs, ended=True)
    assert {check.status for check in judged} == {NOT_APPLICABLE}
    assert "hosts of checkpoints: storing" in judged[0].reason


def test_a_node_that_serves_it_at_the_same_path_has_nothing_mounted(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.PROBE.write_text(Path(str(probe.__file__)).read_text())  # which looks for a mount
    monkeypatch.setenv("CLUSTER_CHECKPOINT_DIR", str(tmp_path))
    plain = replace(FS, source=f"{HOSTS[0]}:{tmp_path}", mount=str(tmp_path), serve=Serve(HOSTS[0]))
    assert directories.plain_on(plain) == HOSTS[0]
    found = ranks(program, HOSTS, LONG_S, directories.plain_on(plain))
    told = {one["name"]: one for one in found}
    assert told["node01"]["wrote"]["renamed"]
    assert told["node02"]["wrote"]["refused"] and told["node03"]["wrote"]["refused"]
    device = replace(plain, serve=Serve(HOSTS[0], device="/dev/disk/by-id/a"))
    assert directories.plain_on(device) == ""  # its device has to be mounted there
    assert directories.plain_on(replace(plain, mount="/mnt/a")) == ""
    assert directories.plain_on(FS) == ""


def test_containers_whose_server_is_one_of_them() -> None:
    refused = {"answered": True, "step": "", "refused": True, "end": True}
    others = [told(name, container=True, wrote=refused, read={}) for name in HOSTS[1:]]
    every = [told(HOSTS[0], container=True), *others]
    wanted = replace(PLAN.checkpoint, plain_on=HOSTS[0])  # type: ignore[type-var]
    judged = checkpoint.judge(replace(PLAN, checkpoint=wanted), every, FS, ended=True)
    assert {check.status for check in judged} == {NOT_APPLICABLE}


def test_the_run_id_is_in_the_command_line_of_the_probe(
    program: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By it the sweep finds a probe that was left behind, and no_orphans names it."""
    program.PROBE.write_text(
        "import json, os, sys\n"
        "print(json.dumps({'argv': sys.argv, 'std': os.readlink('/proc/self/fd/2')}))\n"
    )
    told = program.probe({"limit_s": LONG_S}, "4f1c0e1b2a3d")
    assert "4f1c0e1b2a3d" in told["argv"]
    assert told["std"] == "/dev/null"
    assert told["answered"]


# ---- judging


def told(name: str, **changes: Any) -> dict[str, Any]:
    took = {"bytes": SIZE, "seconds": 0.5, "began": 1.0, "ended": 1.5}
    base = {
        "kind": "checkpoint",
        "name": name,
        "directory": MOUNT,
        "container": False,
        "neighbour": "",
        "wrote": {"answered": True, "step": "", "renamed": True, "wrote": took, "end": True},
        "read": {"answered": True, "step": "", "read_right": True, "read": took, "end": True},
    }
    return {**base, **changes}


def judged(*changed: dict[str, Any], fs: Optional[FileSystem] = FS) -> list[Check]:
    others = [told(name) for name in HOSTS[len(changed) :]]
    return checkpoint.judge(PLAN, [*changed, *others], fs, ended=True)


def test_all_is_well() -> None:
    assert [check.status for check in judged()] == [OK, OK]
    assert judged()[0].wanted == "1 MiB on each of 3 nodes"


@pytest.mark.parametrize(
    ("wrote", "says"),
    [
        ({"answered": False, "step": "fsync of node01.checkpoint"}, "while fsync of node01"),
        (
            {"answered": True, "step": "s", "error": {"number": errno.ENOSPC, "text": "No space"}},
            "full: No space",
        ),
        (
            {"answered": True, "step": "s", "error": {"number": errno.ESTALE, "text": "Stale"}},
            "stale handle",
        ),
        ({"answered": True, "step": "", "refused": True, "end": True}, "not mounted"),
        ({"answered": True, "step": ""}, "ended early"),
    ],
)
def test_a_node_that_cannot_write_is_named(wrote: dict[str, Any], says: str) -> None:
    writing, reading = judged(told("node01", wrote=wrote, read={}))
    assert writing.status == FAILED
    assert writing.reason.startswith("node01: ") and says in writing.reason
    assert reading.status == OK and "1 not read: see checkpoint_write" in reading.reason


def test_wrong_bytes_are_the_readers_finding() -> None:
    wrong = {"answered": True, "step": "", "wrong": {"about": "content", "text": "differs at 7"}}
    writing, reading = judged(told("node01", read=wrong))
    assert (writing.status, reading.status) == (OK, FAILED)
    assert "node01: differs at 7" in reading.reason


def test_a_node_that_says_nothing_has_not_passed() -> None:
    writing = checkpoint.judge(PLAN, [told(name) for name in HOSTS[1:]], FS, ended=True)[0]
    assert writing.status == FAILED and "node01: its rank reported nothing" in writing.reason


def test_in_containers_it_is_not_applicable() -> None:
    gone = {"number": errno.ENOENT, "text": "No such file or directory"}
    refusals = [
        {"answered": True, "step": "", "refused": True, "end": True},
        {"answered": True, "step": f"opening {MOUNT}", "error": gone},
    ]
    for wrote in refusals:
        every = [told(name, container=True, wrote=wrote, read={}) for name in HOSTS]
        assert {check.status for check in judged(*every)} == {NOT_APPLICABLE}
        assert "containers" in judged(*every)[0].reason
        every[0]["container"] = False  # a machine that has it not mounted is no container
        assert judged(*every)[0].status == FAILED


@pytest.mark.parametrize(
    ("plan", "fs", "ended", "says"),
    [
        (PLAN, None, True, "purpose checkpoints"),
        (replace(PLAN, checkpoint=None), FS, True, "mpi_smoke_checkpoint_mib"),
        (PLAN, FS, False, "did not come to its end"),
    ],
)
def test_where_there_is_nothing_to_judge(
    plan: Plan, fs: Optional[FileSystem], ended: bool, says: str
) -> None:
    found = checkpoint.judge(plan, [], fs, ended=ended)
    assert [check.name for check in found] == ["checkpoint_write", "checkpoint_read"]
    assert {check.status for check in found} == {NOT_APPLICABLE}
    assert says in found[0].reason


def test_figures_stand_beside_what_is_expected() -> None:
    fs = replace(FS, expect=Expectation(write_gb_s=1.0, together_read_gb_s=9.0))
    every = [told(name) for name in HOSTS]
    figures = checkpoint.figures(PLAN, every, fs)
    assert figures == json.loads(json.dumps(figures))
    lines = checkpoint_table.lines({"checkpoint": figures, "virtual": True})
    assert lines[0] == "checkpoint of 1 MiB a node on /mnt/checkpoints"
    assert "1 GB/s, none" in lines[2] and "none, 9 GB/s" in lines[3]
    assert "nominal" in lines[-1]
    assert checkpoint_table.lines({"checkpoint": None, "virtual": True}) == []


def test_a_node_that_serves_it_measures_its_own_disk() -> None:
    fast = {"bytes": SIZE, "seconds": 1e-6, "began": 1.0, "ended": 1.0}
    done = {"answered": True, "step": "", "end": True, "wrote": fast, "read": fast}
    every = [told(name) for name in HOSTS[1:]]
    every.append(told(HOSTS[0], wrote={**done, "renamed": True}, read={**done, "read_right": True}))
    figures = checkpoint.figures(PLAN, every, replace(FS, serve=Serve(HOSTS[0])))
    assert figures is not None
    for what in ("write", "read"):
        assert figures[what]["bytes"] == 2 * SIZE
        assert figures[what]["fastest_host"] != HOSTS[0]
    assert "node01" in figures["by_node"]
    note = checkpoint_table.lines({"checkpoint": figures, "virtual": False})[-1]
    assert note.endswith("node01 serves it and is not in the figures")
    every = [told(name) for name in HOSTS]
    figures = checkpoint.figures(PLAN, every, replace(FS, serve=Serve("store01")))
    assert figures is not None and figures["left_out"] == []


# ---- the plan and its time


def test_ranks_are_told_and_short_runs_are_not() -> None:
    spec = json.loads(specification(PLAN, 300))
    assert spec["checkpoint"]["bytes"] == SIZE and spec["checkpoint"]["cluster"] == "c"
    # The one who waits loses patience before the ranks' own clocks ring.
    assert spec["checkpoint"]["further_s"] > PLAN.further_s >= 2 * LONG_S
    assert "checkpoint" not in json.loads(specification(PLAN.subset(["node01"]), 300))
    assert PLAN.subset(["node01"]).further_s == 0


SAYS_END = 'printf \'allreduce-record {"kind": "end"}\\n\''


@pytest.mark.parametrize(
    ("further_s", "then", "timed_out"),
    [(0.0, "exec sleep 600", True), (200.0, "sleep 0.05", False)],
)
def test_what_comes_after_the_verdict_has_time_of_its_own(
    monkeypatch: pytest.MonkeyPatch, further_s: float, then: str, timed_out: bool
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(module_of_launch, "time", clock)

    def progress(record: dict[str, Any]) -> None:
        now[0] = 150.0  # past the limit of the run

    argv = ["sh", "-c", f"{SAYS_END}; {then}"]
    found = launch(argv, 100.0, further_s=further_s, progress=progress)
    assert found.complete
    assert found.timed_out is timed_out


# ---- the result


def answer(**found: Any) -> Callable[..., bounded.Answer]:
    return lambda *_rest, **_more: bounded.Answer(found, "opening", True)


def save(within: Callable[..., bounded.Answer], **more: Any) -> Check:
    return saving.save({"checks": []}, MOUNT, "c", LONG_S, within=within, **more)


def test_the_result_is_saved_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "is_mount_point", lambda line, mount: True)
    monkeypatch.setattr(bounded, "LEFT_BEHIND", tmp_path / "records")
    check = saving.save({"seconds": 1.5}, str(tmp_path), "c", LONG_S)
    assert check.status == OK
    assert json.loads(Path(check.found).read_text()) == {"seconds": 1.5}


def test_a_result_that_could_not_be_saved() -> None:
    hung = bounded.Answer({}, f"opening {MOUNT}", False, left_behind=4711)
    check = save(lambda *_rest, **_more: hung)
    assert check.status == FAILED and "4711" in check.reason
    full = {"number": errno.ENOSPC, "text": "No space left on device"}
    assert "No space" in save(answer(error=full)).reason
    assert save(answer(refused=True)).status == FAILED
    assert save(answer(refused=True), container="podman").status == NOT_APPLICABLE
    assert save(answer(error=full), container="podman").status == FAILED


class Ssh:
    """Runs on this machine what a node is told over ssh."""

    def __init__(self, program: Path, prints: str = "Welcome to node01\n7\n") -> None:
        self.program, self.prints = program, prints
        self.hosts: list[str] = []

    def __call__(self, argv: Sequence[str], **given: Any) -> commands.Result:
        assert list(argv[:4]) == ["runuser", "-u", "mpi", "--"]
        *_ssh, host, text = argv
        self.hosts.append(host)
        words = shlex.split(text)
        assert words[1] == saving.PROGRAM
        done = commands.run([sys.executable, str(self.program), *words[2:]], **given)
        return replace(done, stdout=self.prints + done.stdout)


@pytest.fixture
def on_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Check]:
    """What comes of saving where the launcher has no storage: node01 wrote nothing, node02 did."""
    (tmp_path / "mount").mkdir()

    def save(run: Callable[..., commands.Result], wrote: str = HOSTS[1]) -> Check:
        fs = replace(FS, mount=str(tmp_path / "mount"))
        monkeypatch.setattr(module, "checkpoints_of", lambda params: fs)
        hostfile = tmp_path / "hostfile"
        hostfile.write_text("".join(f"{name}-rail0 slots=2\n" for name in HOSTS))
        rails = [{"interface": "rail0"}]
        params = {
            "nodes": [{"name": name, "slots": 2, "rails": rails} for name in HOSTS],
            **{"checkpoint_mib": 1, "checkpoint_limit_s": LONG_S, "cluster": "c"},
            **{"user": "mpi", "python": "/usr/bin/python3", "run_id": "4f1c0e1b2a3d"},
            **{"hostfile": str(hostfile), "host": "launcher01"},
        }
        by_node = {name: {"wrote": {"bytes": 1} if name == wrote else None} for name in HOSTS}
        result = {
            **{"figures": {"checkpoint": {"by_node": by_node}}, "checks": [], "message": ""},
            "padding": "x" * 200_000,  # longer than an argument may be
        }
        monkeypatch.setattr(module, "commands", SimpleNamespace(run=run))
        monkeypatch.setattr(
            module.mpi_environment, "ENVIRONMENT_FILE", str(tmp_path / "no-environment")
        )
        return Check(**module.saved(params, result)["checks"][-1])

    return save


def test_a_node_saves_where_the_launcher_has_no_storage(
    program: ModuleType, tmp_path: Path, on_a_node: Callable[..., Check]
) -> None:
    ssh = Ssh(program.PROBE)
    check = on_a_node(ssh)
    assert check.status == OK
    assert ssh.hosts == ["node02-rail0"]  # by the hostfile's name, the first that had written
    host, _colon, path = check.found.partition(":")
    assert host == HOSTS[1]
    assert len(json.loads(Path(path).read_text())["padding"]) == 200_000
    assert on_a_node(ssh, wrote="").status == NOT_APPLICABLE


def test_a_node_that_does_not_save(tmp_path: Path, on_a_node: Callable[..., Check]) -> None:
    def no_login(argv: Sequence[str], **_given: Any) -> commands.Result:
        return commands.Result(tuple(argv), 255, "", "ssh: connect to host: refused\n")

    def hangs(argv: Sequence[str], **given: Any) -> commands.Result:
        assert given["timeout_s"] > LONG_S
        raise commands.NoAnswerError("ssh", given["timeout_s"])

    check = on_a_node(no_login)
    assert check.status == FAILED and "node02: ssh: connect to host: refused" in check.reason
    check = on_a_node(hangs)
    assert check.status == FAILED and "node02" in check.reason
    check = on_a_node(Ssh(Path(str(probe.__file__))))  # which looks for a mount
    assert check.status == FAILED and "not mounted" in check.reason


def test_a_launcher_that_serves_it_saves_where_nothing_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "LEFT_BEHIND", tmp_path / "records")
    assert saving.save({}, str(tmp_path), "c", LONG_S).status == FAILED
    assert saving.save({}, str(tmp_path), "c", LONG_S, plain=True).status == OK
