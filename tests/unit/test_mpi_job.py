# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A job: its command, refusals before the start, the rank that failed, and the clean-up."""

from __future__ import annotations

import base64
import contextlib
import json
import mmap
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.action import mpi_job as action
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.locks import HeldError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.job import (
    plan,
    readiness,
    run,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch import hosts, scripts
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.launcher import (
    HYDRA,
    OPEN_MPI,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.launch.node import LaunchNode
from ansible_collections.baremetal.mpi_roce.plugins.modules import mpi_allreduce, mpi_job

from tests.unit.action_plays import ROOT, run_play
from tests.unit.ended import Ended, Module

NODES = (LaunchNode("node01", 2, ("rail0",)), LaunchNode("node02", 2, ("rail0",)))
MIXED = (replace(NODES[0], kind="b300"), replace(NODES[1], kind="cpu"))
ENTRIES = [{"name": "node01", "role": "compute", "slots": 2, "drained": False, "rails": []}]
SCARCE = "mpi-ready written 1700000000 1000000\n"
OTHER = "mpi-ready storage CLUSTER_CHECKPOINT_DIR=/other\n"
READY = "mpi-ready program abc\nmpi-ready daemon yes\nmpi-ready version 4.1.6\nmpi-ready end\n"


def a_job(folder: Path, **given: Any) -> plan.Job:
    hostfile = folder / "hostfile"
    hostfile.write_text("node01 slots=2\nnode02 slots=2\n", encoding="utf-8")
    return replace(
        plan.Job(
            nodes=NODES,
            program=("python3", "train.py", "--name", "it's"),
            user="root",
            run_id="0123456789ab",
            directory=folder / "jobs" / "0123456789ab",
            hostfile=hostfile,
        ),
        **given,
    )


def decoded(command: str) -> str:
    """The script that a command line of hosts.remote runs."""
    coded = re.match(r"echo (\S+) \| /usr/bin/base64 -d ", command)
    return base64.b64decode(coded[1]).decode() if coded else ""


class Nodes:
    """Fake ssh: by host, a problem, or the output of a script. STORAGE prints SCARCE and OTHER."""

    def __init__(self, **problems: str) -> None:
        self.problems = problems
        self.launcher = True
        """mpirun is installed."""

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        host = next((node.name for node in NODES if node.name in argv), "")
        problem = self.problems.get(host, "")
        if problem == "silent":
            return Result(tuple(argv), 255, "", "Connection refused")
        if "command -v mpirun" in argv[-1] and not self.launcher:
            return Result(tuple(argv), 127, "", "")
        script = decoded(argv[-1])
        if "asked=$1" not in script and problem in (SCARCE, OTHER):
            problem = ""
        lines = f"mpi-ready problem {problem}\n" if problem else ""
        lines = problem if problem.startswith("mpi-ready") else lines
        return Result(tuple(argv), 0, READY if "program=" in script else lines, "")


def test_the_script_is_private_and_runs_the_command(tmp_path: Path) -> None:
    one = a_job(tmp_path, environment={"TOKEN": "x y z"}, ranks=3, parameters={"pml": "ucx"})
    plan.prepare(one, NODES, os.getuid(), os.getgid())
    script = one.directory / plan.SCRIPT
    text = script.read_text(encoding="utf-8")
    assert "export TOKEN='x y z'\n" in text and "-x TOKEN" in text and "-np 3" in text
    assert text.endswith("""rail-bind python3 train.py --name 'it'"'"'s'\n""")
    assert "--mca pml ucx" in text and "x y z" not in " ".join(one.command(NODES))
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert (one.directory / plan.HOSTS).read_text() == "node01 slots=2\nnode02 slots=2\n"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


def test_the_user_cannot_replace_what_root_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: dict[str, tuple[int, int]] = {}
    given = lambda path, uid, gid: owners.update({path.name: (uid, gid)})  # noqa: E731
    monkeypatch.setattr(plan.os, "chown", given)
    one = a_job(tmp_path)
    before = os.umask(0o077)
    try:
        plan.prepare(one, NODES, 2000, 2001)
    finally:
        os.umask(before)
    assert owners.pop(one.run_id) == (-1, 2001) and set(owners.values()) == {(2000, 2001)}
    jobs = one.directory.parent
    assert [stat.S_IMODE(path.stat().st_mode) for path in (jobs, one.directory)] == [0o755, 0o750]
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in one.directory.iterdir()}
    assert modes == {0}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (("b300",), ["node01"]),
        (("cpu", "b300"), ["node01", "node02"]),
        (("all",), ["node01", "node02"]),
    ],
)
def test_a_job_runs_on_the_requested_kinds(
    tmp_path: Path, kind: tuple[str, ...], names: list[str]
) -> None:
    job = a_job(tmp_path, nodes=MIXED, kind=kind)
    assert [node.name for node in plan.chosen(job, MIXED)] == names


@pytest.mark.parametrize(
    ("given", "problems", "words"),
    [
        ({"ranks": 5}, {}, "5 ranks requested"),
        ({}, {}, run.INTERRUPTED),
        ({}, {"node02": "program train not found"}, "node02: program train not found"),
        ({"launcher": False}, {}, "run --tags mpi"),
        ({"checkpoint_room_gb": 2}, {"node01": SCARCE}, "node01: 1.0 GB free"),
        ({}, {"node02": OTHER}, "node02: CLUSTER_CHECKPOINT_DIR=/other, "),
        ({}, {"node01": "silent", "node02": "silent"}, "  node01, node02: no answer"),
        ({"nodes": NODES[:1]}, {}, "node02: in the hostfile"),
        ({"places": {"node02": 3}}, {}, "3 ranks on node02"),
        ({"places": {"node03": 1}}, {}, "1 ranks on node03"),
        ({"kind": ("h100",)}, {}, "mpi_job_kind: h100: no such nodes; the model has no kinds"),
        ({"nodes": MIXED}, {}, "b300 (1 node), cpu (1 node); choose with mpi_job_kind"),
        ({"nodes": MIXED, "kind": ("cpu",), "places": {"node01": 1}}, {}, "1 ranks on node01"),
    ],
)
def test_a_job_that_cannot_run_is_refused(
    tmp_path: Path, given: dict[str, Any], problems: dict[str, str], words: str
) -> None:
    nodes = Nodes(**problems)
    nodes.launcher = given.pop("launcher", True)
    one = a_job(tmp_path, **given)
    ended = words == run.INTERRUPTED
    with pytest.raises(PlanError) as refused:
        run.run(one, nodes, lambda text: None, os.getuid(), os.getgid(), lambda: ended)
    assert words in str(refused.value)
    assert not one.directory.exists()


@pytest.mark.parametrize("kind", [mpi_job, mpi_allreduce])
def test_another_run_on_the_launcher_is_named(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = Module()
    module.params = {name: option.get("default") for name, option in kind.ARGUMENTS.items()}
    module.params.update(nodes=ENTRIES, user="root", program=["true"])

    @contextlib.contextmanager
    def held(*_given: Any, **_named: Any) -> Any:
        raise HeldError("held by process 7 (mpirun)")
        yield

    monkeypatch.setattr(kind, "AnsibleModule", lambda **_given: module)
    monkeypatch.setattr(kind, "alone", held)
    monkeypatch.setattr(kind, "progress", lambda _run: contextlib.nullcontext(print))
    monkeypatch.setattr("signal.signal", lambda *_given: None)
    with pytest.raises(Ended) as caught:
        kind.main()
    assert caught.value.failed and "process 7 (mpirun)" in caught.value.result["msg"]


def test_a_job_without_storage_needs_no_free_space(tmp_path: Path) -> None:
    one = a_job(tmp_path, checkpoint_room_gb=2, storage=False)
    left, missing, storage = readiness.ready(one, NODES, Nodes(node01=SCARCE), lambda text: None)
    assert (left, missing) == (NODES, {}) and not storage.directory and not storage.checks


@pytest.mark.parametrize(("places", "transport"), [({"cpu01": 1}, "tcp"), ({"node01": 1}, "rc")])
def test_the_hostfile_lacks_nodes_without_rails_which_use_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, places: dict[str, int], transport: str
) -> None:
    seen: list[str] = []

    def ready(job: plan.Job, *_given: object) -> None:
        seen.append(job.transport)
        raise PlanError("enough")

    monkeypatch.setattr(run, "ready", ready)
    one = a_job(tmp_path, nodes=(*NODES, LaunchNode("cpu01", 2)), places=places, transport="rc")
    with pytest.raises(PlanError, match=r"^enough$"):
        run.run(one, Nodes(), lambda text: None, os.getuid(), os.getgid())
    assert seen == [transport]


class Slept:
    """A process that has exited, or that exits when its unit is stopped."""

    def __init__(self, rc: int) -> None:
        self.rc = rc

    def poll(self) -> Optional[int]:
        return self.rc

    def wait(self, timeout: float) -> int:
        return self.rc


@pytest.mark.parametrize("sweep", [CommandError("ssh: none"), OSError("No space left")])
def test_a_failure_after_the_run_is_reported_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sweep: Exception
) -> None:
    def fails(*_given: object) -> None:
        raise sweep

    monkeypatch.setattr(run, "start", lambda _job: Slept(3))
    monkeypatch.setattr(run.hosts, "sweep", fails)
    with pytest.raises(run.JobError) as told:
        run.run(a_job(tmp_path), Nodes(), lambda text: None, os.getuid(), os.getgid())
    text = str(told.value)
    assert "status 3" in text and str(sweep) in text and "node01, node02" in text
    assert "pgrep -fa 0123456789ab" in text


@pytest.mark.parametrize(
    ("age_s", "quiet_s", "lost", "stopped"),
    [
        (0, 60, "", ""),
        (None, 60, "", "its directory cannot be read"),
        (90, 60, "", "lost this host for 60 s"),
        (0, 0, "node02", "node02 no longer responds: no route"),
        (0, 60, "node02", ""),
    ],
)
def test_a_job_is_stopped_when_its_lease_expires_or_a_node_is_lost(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    age_s: Optional[float],
    quiet_s: float,
    lost: str,
    stopped: str,
) -> None:
    one = a_job(tmp_path, lease_s=60)
    one.directory.mkdir(parents=True)
    (one.directory / plan.OUTPUT).write_text("step 1\n")
    if age_s is not None:
        (one.directory / plan.LEASE).touch()
        os.utime(one.directory / plan.LEASE, (time.time() - age_s,) * 2)
    states = iter([None, None, 0, 0])
    process = Slept(0)
    process.poll = lambda: next(states)  # type: ignore[method-assign]
    monkeypatch.setattr(run, "_POLL_S", 0)
    monkeypatch.setattr(run, "_QUIET_S", quiet_s)
    monkeypatch.setattr(run.hosts, "lost", lambda *_given: {lost: "no route"} if lost else {})
    ended: list[str] = []
    runner = lambda argv, **_given: ended.extend(argv)  # noqa: E731
    end = run.watch(one, NODES, process, runner, lambda: False)
    assert stopped in end.stopped and bool(end.stopped) == bool(stopped)
    assert ended == (["systemctl", "stop", one.unit] if stopped else [])


def test_a_job_at_its_time_limit_names_the_option(tmp_path: Path) -> None:
    one = a_job(tmp_path, time_limit_s=0)
    end = run.watch(one, NODES, Slept(0), Nodes(), lambda: False)
    assert "mpi_job_time_limit_s" in end.stopped


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"PATH": "$HOME/bin:/usr/bin"}, "PATH"),
        ({"LD_LIBRARY_PATH": "/a:${LD_LIBRARY_PATH}"}, "LD_LIBRARY_PATH"),
        ({"PYTHONPATH": "/a:$PYTHONPATH"}, "PYTHONPATH"),
    ],
)
def test_values_with_shell_expansion_are_refused(environment: dict[str, str], name: str) -> None:
    with pytest.raises(PlanError) as refused:
        plan.environment_of(environment)
    message = refused.value.args[0]
    assert (message.code, message.values["name"]) == ("job.environment_expansion", name)


@pytest.mark.parametrize("launcher", [OPEN_MPI, HYDRA])
def test_ranks_get_the_path_of_the_job_and_mpirun_does_not(tmp_path: Path, launcher: Any) -> None:
    """Runs the script with a fake mpirun, which must be found and must find env."""
    environment = {"PATH": "/srv/venv/bin", "LD_PRELOAD": "/srv/x.so", "PASS": "a$b $PATHS $PASSE"}
    one = a_job(tmp_path, environment=environment, launcher=launcher)
    plan.prepare(one, NODES, os.getuid(), os.getgid())
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\nenv; printf "word %s\\n" "$@"\n')
    mpirun.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    words = ["sh", str(one.directory / plan.SCRIPT)]
    done = subprocess.run(words, env={"PATH": path}, check=True, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert f"PATH={path}" in lines and "PASS=a$b $PATHS $PASSE" in lines
    assert not [line for line in lines if line.startswith("LD_PRELOAD")]
    given = [line[5:] for line in lines if line.startswith("word ")]
    pairs = list(zip(given, given[1:]))
    if launcher is HYDRA:
        assert ("-genv", "PATH") in pairs and ("PATH", "/srv/venv/bin") in pairs
        assert ("-genvlist", "PASS") in pairs
    else:
        assert ("-x", "PATH=/srv/venv/bin") in pairs and ("-x", "LD_PRELOAD=/srv/x.so") in pairs
        assert ("-x", "PASS") in pairs


def test_the_program_is_searched_for_in_the_jobs_path(tmp_path: Path) -> None:
    (tmp_path / "only-here").symlink_to("/bin/true")

    def problems(program: str, path: str) -> list[str]:
        words = ["/tmp", program, "", "exit 0", "", path]
        argv = ["sh", "-c", scripts.JOB_READY, "sh", *words]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        return [line for line in text.splitlines() if "program" in line]

    assert problems("only-here", str(tmp_path)) == []
    assert problems("sh", "") == []
    assert problems("sh", str(tmp_path)) == [
        f"mpi-ready problem program sh not found in PATH {tmp_path}, that of mpi_job_environment"
    ]


def test_a_job_on_some_nodes_has_its_ranks_there(tmp_path: Path) -> None:
    one = a_job(tmp_path, places={"node02": 1})
    nodes = plan.chosen(one, NODES)
    assert [(node.name, node.slots) for node in nodes] == [("node02", 1)]
    several = replace(one, nodes=MIXED)
    assert [node.name for node in plan.chosen(several, MIXED)] == ["node02"]
    assert "-np 1 " in " ".join(one.command(nodes)) and plan.chosen(a_job(tmp_path), NODES) == NODES


@pytest.mark.parametrize(
    ("program", "script"),
    [
        (("/usr/bin/python3.11", "/srv/train.py", "x"), "/srv/train.py"),
        (("python3", "train.py"), ""),
        (("python3",), ""),
        (("/srv/train", "/data"), ""),
    ],
)
def test_a_script_with_a_path_must_exist(
    tmp_path: Path, program: tuple[str, ...], script: str
) -> None:
    one = a_job(tmp_path, program=program)
    assert one.script_of_program == script
    argv = ["sh", "-c", scripts.JOB_READY, "sh", "/", "sh", one.script_of_program, "", ""]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    assert ("program /srv/train.py not found" in text) == bool(script)


def test_nodes_are_left_out_only_on_request(tmp_path: Path) -> None:
    one = a_job(tmp_path, allow_missing=True)
    left, missing, _storage = readiness.ready(one, NODES, Nodes(node01="silent"), lambda text: None)
    assert [node.name for node in left] == ["node02"] and set(missing) == {"node01"}
    with pytest.raises(PlanError, match="2 of 2"):
        readiness.ready(one, NODES, Nodes(node01="silent", node02="silent"), lambda text: None)


@pytest.mark.parametrize(
    "given", [{"program": ()}, {"environment": {"CLUSTER_CHECKPOINT_DIR": "run7"}}]
)
def test_invalid_jobs_are_refused(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        a_job(tmp_path, **given)
    with pytest.raises(PlanError, match="A-B"):
        plan.environment_of({"A-B": "1"})
    assert plan.texts({"N": 8, "E": ""}, "x") == {"N": "8", "E": ""}
    with pytest.raises(PlanError, match="mpi_job_environment: A, B: no value"):
        plan.environment_of({"A": None, "N": 8, "B": None})


# Output of Open MPI 4.1 with --tag-output.
SIGNAL = """\
[1,0]<stdout>:step 10
[1,3]<stderr>:out of memory
--------------------------------------------------------------------------
mpirun noticed that process rank 3 with PID 771 on node node02 exited on signal 9 (Killed).
"""
STATUS = """\
[1,1]<stderr>:ValueError: loss is nan
[1,0]<stdout>:step 20
mpirun detected that one or more processes exited with non-zero status, thus causing
the job to be terminated. The first process to do so was:

  Process name: [[42,1],1]
  Exit code:    1
"""


@pytest.mark.parametrize(
    ("output", "rank", "line"),
    [(SIGNAL, 3, "out of memory"), (STATUS, 1, "ValueError: loss is nan")],
)
def test_the_rank_that_failed_first_is_quoted(
    tmp_path: Path, output: str, rank: int, line: str
) -> None:
    one = a_job(tmp_path)
    found, lines = run.last_lines(one, NODES, output, 1)
    assert found == rank and lines[0].endswith(line)
    assert not [each for each in lines if "step" in each]
    assert run.last_lines(one, NODES, output, 0)[0] is None


def test_only_the_end_of_a_large_output_is_read(tmp_path: Path) -> None:
    path = tmp_path / plan.OUTPUT
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: no memory holds it
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + SIGNAL.replace("out of memory", "x" * 5000).encode())
    output = run.output_of(path, run.MAX_BYTES)
    found, lines = run.last_lines(a_job(tmp_path), NODES, output, 1)
    assert found == 3 and len(lines[0]) == run.MAX_LINE and len(output) == run.MAX_BYTES


def test_a_node_reports_what_it_lacks_and_running_jobs(tmp_path: Path) -> None:
    """orted is another job, and the prted of an idle DVM is not."""
    for name in ("orted", "prted"):
        (tmp_path / name).symlink_to("/bin/sh")
    others = [
        subprocess.Popen(
            [str(tmp_path / name), "-c", "read line; :", "--prtemca", "ess_base_nspace", space],
            stdin=subprocess.PIPE,
        )
        for name, space in (("orted", "-"), ("prted", "prterun-n1-7@0"), ("prted", "prte-n1-8@0"))
    ]
    try:
        check = scripts.JOB_READY.replace("KILL 20", "KILL 0.2")
        words = [str(tmp_path / "none"), "no-such-program", "", "sleep 60", ""]
        argv = ["sh", "-c", check, "sh", *words]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    finally:
        for each in others:
            each.kill()
            each.wait()
    assert f"mpi-ready problem directory {tmp_path}/none not found" in text
    assert "problem program no-such-program" in text
    told = [f"mpi-ready problem another MPI job runs: {each.pid} " in text for each in others]
    assert told == [True, True, False]
    assert text.endswith("file systems do not answer within 20 s\nmpi-ready end\n")


KINDS = ("nccl-aB3", "torch_12_3", "sem.mp-x1", "cuda.shm.0.1", "psm2_shm.1", "a b", "-rf")
OTHERS = ("two\nlines", "m\u00fcll", "copied-with-its-time", "renamed")
SESSION = f"ompi.node01.{os.getuid()}"
"""Name of Open MPI 4; PRRTE's contains tool, node and process."""


def shared(folder: Path) -> tuple[Path, Path]:
    """A fake /dev/shm with leftovers of a job, and a fake /proc."""
    shm, proc = folder / "shm", folder / "proc"
    for place in (proc / "7", proc / "8", shm / "directory", folder / "tmp" / SESSION / "0"):
        place.mkdir(parents=True)
    for name in (*KINDS, *OTHERS, "vader_segment.node01"):
        (shm / name).write_text("data")
    for name in OTHERS[2:]:
        os.utime(shm / name, (0, 0))
    (shm / "link").symlink_to(shm / "directory")
    os.mkfifo(shm / "pipe")
    for pid in ("7", "8"):
        (proc / pid / "environ").write_text("A=1\0OLD_PMI_RANK=2\0")
    return shm, proc


def tidied(folder: Path, since: str = "60", pgrep: int = 1) -> set[str]:
    """Names that the script removed, with this exit status of pgrep."""
    (folder / "pgrep").write_text(f"#!/bin/sh\nexit {pgrep}\n")
    (folder / "pgrep").chmod(0o755)
    path = {"PATH": f"{folder}:{os.environ['PATH']}"}
    places = [str(folder / name) for name in ("shm", "proc", "tmp")]
    words = ["sh", "-c", scripts.TIDY, "sh", scripts.LEFTOVERS, since, *places]
    before = {path for name in ("shm", "tmp") for path in (folder / name).iterdir()}
    done = subprocess.run(words, env=path, check=True, capture_output=True, text=True)
    gone = {path for path in before if not os.path.lexists(path)}
    said = "".join(f"mpi-ready removed {path}\n" for path in sorted(gone))
    assert "".join(sorted(done.stdout.splitlines(keepends=True))) == said
    return {path.name for path in gone}


def test_leftovers_of_a_job_are_removed(tmp_path: Path) -> None:
    shared(tmp_path)
    prrte = f"prterun.node01.77.{os.getuid()}"
    for name in (prrte, "ompi.build-tree", f"ompi.node01.{os.getuid() + 1}"):
        (tmp_path / "tmp" / name).mkdir()
    assert tidied(tmp_path) == {*KINDS, "vader_segment.node01", SESSION, prrte}


@pytest.mark.parametrize(("path", "since"), [("/dev/shm/", "-60"), ("/dev/shm/a", "5"), ("", "5")])
def test_checkpoints_in_shared_memory_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, since: str
) -> None:
    asked: list[str] = []
    runner = lambda argv, **_given: asked.extend(argv)  # noqa: E731
    job, begin = a_job(tmp_path, environment={"CLUSTER_CHECKPOINT_DIR": path}), 1000.0
    monkeypatch.setattr(run.time, "monotonic", lambda: begin + 4.2)
    run.tidy(job, [], runner, begin)
    assert f" {since} /dev/shm /proc /tmp\n" in decoded(asked[-1])


def test_a_late_login_misses_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of the job is that of each node's turn, and a node whose login was slow is asked
    again."""
    now, asked, slow = [1000.0], [], [9.0, 0.0]
    monkeypatch.setattr(run.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(hosts, "MAX_CONNECTIONS", 1)

    def runner(argv: Sequence[str], **_given: Any) -> Result:
        host = next((node.name for node in NODES if node.name in argv), "")
        asked.append((host, decoded(argv[-1]).split(" /dev/shm /proc")[0].split()[-1]))
        now[0] += slow.pop(0) if host == "node01" else 1.0
        return Result(tuple(argv), 0, f"mpi-ready removed /dev/shm/{len(asked)}\n", "")

    removed = run.tidy(a_job(tmp_path), NODES, runner, 998.0)
    assert asked == [("", "2"), ("node01", "3"), ("node02", "12"), ("node01", "13")]
    assert removed == {"node01": ["/dev/shm/2", "/dev/shm/4"], "node02": ["/dev/shm/3"]}


def test_files_older_than_the_job_are_kept(tmp_path: Path) -> None:
    _shm, proc = shared(tmp_path)
    (proc / "8/environ").write_text("A=1\0PMI_RANK=2\0")
    assert tidied(tmp_path) == {"vader_segment.node01"}, "another launcher"
    (proc / "8/environ").write_text("A=1\0")
    assert tidied(tmp_path, "-60") == {SESSION}


@pytest.mark.parametrize("how", ["open", "mapped"])
def test_files_in_use_are_kept(tmp_path: Path, how: str) -> None:
    """By any process, which /proc may hide, and with the names of MPI too."""
    shm, _proc = shared(tmp_path)
    used = {KINDS[0], "vader_segment.node01"}
    with contextlib.ExitStack() as stack:
        for name in used:
            file = stack.enter_context((shm / name).open("rb"))
            if how == "mapped":
                memory = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
                stack.callback(memory.close)
                file.close()
        assert tidied(tmp_path) == {*KINDS[1:], SESSION}
    assert tidied(tmp_path) == used


def test_nothing_is_removed_if_processes_cannot_be_listed(tmp_path: Path) -> None:
    _shm, proc = shared(tmp_path)
    assert tidied(tmp_path, pgrep=0) == set(), "another MPI runs"
    assert tidied(tmp_path, pgrep=3) == set(), "pgrep failed"
    (proc / "9").write_text("")  # an error other than that of a process that exited
    assert tidied(tmp_path) == set()


@pytest.mark.parametrize("name", ["orted", "prted", "mpirun", "prterun", "hydra_pmi_proxy"])
def test_nothing_is_removed_while_another_mpi_runs(tmp_path: Path, name: str) -> None:
    """A fake pgrep finds a process of that name; a fake timeout records whether it is called."""
    pgrep = f'#!/bin/sh\nfor names; do :; done\necho {name} | grep -qxE "$names"\n'
    for program, text in (("pgrep", pgrep), ("timeout", f"#!/bin/sh\ntouch {tmp_path}/removed\n")):
        (tmp_path / program).write_text(text, encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", scripts.TIDY, "sh", scripts.LEFTOVERS], env=path, check=True)
    assert not (tmp_path / "removed").exists()


def storage(folder: Path, asked: str = "", **places: object) -> dict[str, list[str]]:
    """Report of STORAGE on a node that is not a container and mounts `shared`."""
    script = scripts.STORAGE.replace("/run/systemd/container", str(folder / "container"))
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "mountpoint").write_text(f'#!/bin/sh\n[ "$*" = "-q {folder}/shared" ]\n')
    (programs / "mountpoint").chmod(0o755)
    found = {**os.environ, **{name: str(place) for name, place in places.items()}}
    found["PATH"] = f"{programs}:{found['PATH']}"
    argv = ["sh", "-c", script, "sh", asked]
    done = subprocess.run(argv, env=found, check=True, capture_output=True, text=True)
    return hosts.report(done.stdout)


def test_a_shared_file_system_must_be_mounted_and_writable(tmp_path: Path) -> None:
    assert storage(tmp_path)["problem"] == []
    shared, other = tmp_path / "shared", tmp_path / "other"
    for place in (shared, other):
        place.mkdir()
    found = storage(tmp_path, CLUSTER_CHECKPOINT_DIR=shared, CLUSTER_DATASETS_DIR=shared)
    assert found["problem"] == []
    ((when, free),) = (line.split() for line in found["written"])
    assert abs(int(when) - time.time()) < 100 and int(free) > 0
    assert not list(shared.iterdir())
    known = readiness.storage_of(a_job(tmp_path), found)
    assert known.directory == str(shared) and [check.status for check in known.checks] == ["ok"]
    for name in ("CLUSTER_CHECKPOINT_DIR", "CLUSTER_DATASETS_DIR"):
        (problem,) = storage(tmp_path, **{name: other})["problem"]
        assert problem.startswith(f"{name}: {other} ") and "--tags storage" in problem
        (problem,) = storage(tmp_path, **{name: "/none"})["problem"]
        assert "/none" in problem and "(No such file" in problem
    (tmp_path / "file").touch()
    (problem,) = storage(tmp_path, f"{tmp_path}/file")["problem"]
    assert f"{tmp_path}/file: Not a directory" in problem


def test_a_container_may_use_a_directory_instead_of_a_mount(tmp_path: Path) -> None:
    (tmp_path / "container").touch()
    here = storage(tmp_path, CLUSTER_CHECKPOINT_DIR=tmp_path)
    assert here["problem"] == here["written"] == [] and here["container"]
    lacking = readiness.storage_of(a_job(tmp_path), here)
    assert [check.status for check in lacking.checks] == ["not_applicable"]
    assert "mpi_job_checkpoint_directory" in lacking.unmounted
    failed = [Check("job_ended", 0, 1, FAILED)]
    assert lacking.unmounted in run.failure(a_job(tmp_path), failed, [], {}, lacking.unmounted)
    given = str(tmp_path / "run7")
    one = a_job(tmp_path, environment={"CLUSTER_CHECKPOINT_DIR": given})
    assert readiness.storage_of(one, storage(tmp_path, given)).directory == given
    (problem,) = storage(tmp_path, f"{given}/further")["problem"]
    assert problem.endswith("run7: No such file or directory")


def test_the_newest_checkpoint_is_reported(tmp_path: Path) -> None:
    one, node = a_job(tmp_path), NODES[0]
    place = tmp_path / "their checkpoints"
    place.mkdir()

    def found(since: float) -> dict[str, Any]:
        def here(argv: Sequence[str], **given: Any) -> Result:
            done = subprocess.run(argv[-1], shell=True, capture_output=True, text=True, check=True)
            return Result(tuple(argv), 0, done.stdout, "")

        return run.newest(one, node, readiness.JobStorage(str(place), since), here)

    assert run.checkpoint_line(found(0)) == f"no checkpoint in {place} (no file)"
    for step, age in ((5, 300), (10, 200), (15, 900)):
        path = place / f"step {step}"
        path.write_bytes(b"x" * 1_000_000 * step)
        os.utime(path, (time.time() - age,) * 2)
    (place / ".partial").touch()
    (place / "step\nmpi-ready newest 99999999999 x y").touch()
    newest = found(time.time() - 250)
    assert newest["path"] == str(place / "step 10") and newest["own"]
    assert newest["bytes"] == 10_000_000 and 200 <= newest["age_s"] < 300
    assert run.checkpoint_line(found(time.time())).endswith("(none by this job)")
    assert run.newest(one, node, readiness.JobStorage(), Nodes()) == {}


def test_a_program_as_text_is_refused_on_the_controller() -> None:
    plugin = action.ActionModule.__new__(action.ActionModule)  # no call of a host succeeds
    with pytest.raises(action.AnsibleActionFail, match=r"\['python3', '/srv/a,b.py'\]"):
        plugin.job({"program": "python3 /srv/a,b.py"}, {})


@pytest.mark.parametrize("count", ["all", True])
def test_the_ranks_of_a_node_are_a_number(count: Any) -> None:
    assert plan.places_of({"node01": "8", "node02": 4}) == {"node01": 8, "node02": 4}
    with pytest.raises(PlanError, match=f"mpi_job_places: node01: {count!r} is no"):
        plan.places_of({"node01": count})


class Shown:
    """The action plugin, reading the output of a job."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines: list[str] = []
        self.output = folder / "output.log"
        monkeypatch.setattr(action.display, "display", self.lines.append)
        self.plugin = action.ActionModule.__new__(action.ActionModule)
        self.plugin._place, self.plugin._offset, self.plugin._shown = str(folder), 0, ""

    def look(self, output: bytes) -> list[str]:
        self.output.write_bytes(output)
        del self.lines[:]
        argv = ["sh", "-c", self.plugin.more("/none")]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
        self.plugin.seen(text)
        return list(self.lines)


def test_output_is_shown_once_and_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = Shown(tmp_path, monkeypatch)
    text = b"\x1b[2Jred\x1b[0m\r\nLatin \xe9\n"
    assert shown.look(text + b"half") == ["\\x1b[2Jred\\x1b[0m", "Latin \ufffd"]
    lease = tmp_path / "lease"
    assert not lease.exists(), "the module creates it"
    lease.touch()
    os.utime(lease, (0, 0))
    assert shown.look(text + b"half\nwhole\n") == ["half", "whole"]
    assert shown.look(text + b"half\nwhole\n") == [] and lease.stat().st_mtime > 0


def test_a_line_without_an_end_is_shown_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(tmp_path, monkeypatch)
    bar = b"x" * action.LOOK_BYTES
    assert shown.look(bar + b"y\n") == [bar.decode()] and shown.plugin._behind
    assert shown.look(bar + b"y\n") == ["y"] and not shown.plugin._behind


@pytest.mark.slow
def test_a_missing_file_stops_the_run_before_any_host(tmp_path: Path) -> None:
    """Relative paths are resolved in the current directory, like job.yml."""
    (tmp_path / "train.py").touch()
    files = [{"src": name, "dest": f"/srv/{name}"} for name in ("train.py", "data.npz")]
    variables = {"mpi_job_files": files, "mpi_job_program": ["python3", "/srv/train.py"]}
    play = f"- import_playbook: {ROOT}/playbooks/run.yml"
    options = ("--extra-vars", json.dumps(variables))
    rc, output = run_play(tmp_path, play, ROOT / "inventories/b300", *options)
    assert rc == 2 and "unreachable=1" not in output
    assert f"mpi_job_files: {tmp_path}/data.npz not found" in output
    assert f"{tmp_path}/train.py not found" not in output


PLACES = {
    " drwxr-xr-x root root srv": "",
    " drwxrwxrwt root root tmp": "",
    " lrwxrwxrwx root root bin -> usr/bin": "",
    " -rw-r--r-- mpi mpi train.py": "",
    " drwxr-xr-x mpi mpi home": "mpi home",
    " lrwxrwxrwx mpi mpi run -> /etc": "mpi run",
    " drwxrwxr-x root mpi shared": "root shared",
    " drwxrwxr-x root root acl": "root acl",  # namei shows an access control list this way
    " drwxr-xrwx root root open": "root open",
    " drwxrwxr-t root mpi kept": "",
    "                      ddp.py - No such file or directory": "",
    "                      lib.sh - No such file or directory": "",
    "                      data.json - Not a directory": "",
    "                      d--w--w--w - No such file or directory": "",
    "     drwxrwxr-x root root train.py": "root train.py",
}
"""Lines of namei (util-linux 2.38), and the output of the check."""


@pytest.mark.parametrize("awk", [*filter(shutil.which, ("awk", "mawk", "gawk", "busybox"))])
def test_paths_writable_by_others_are_found(tmp_path: Path, awk: str) -> None:
    text = (ROOT / "roles/mpi_job/tasks/files.yml").read_text(encoding="utf-8")
    look = next(task for task in yaml.safe_load(text) if "ansible.builtin.command" in task)
    (tmp_path / "awk").symlink_to(str(shutil.which(awk)))
    (tmp_path / "lines").write_text("\n".join(["f: /srv/train.py", *PLACES, ""]))
    namei = tmp_path / "namei"
    namei.write_text('#!/bin/sh\n[ "$*" = "-om -- /srv/a b" ] && cat lines\nexit 1\n')
    namei.chmod(0o755)

    def found() -> subprocess.CompletedProcess[str]:
        words = ["sh", "-c", look["vars"]["__mpi_job_places"], "sh", "/srv/a b"]
        path = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(words, env=path, cwd=tmp_path, capture_output=True, text=True)

    assert found().stdout.splitlines() == [*filter(None, PLACES.values())]
    assert found().returncode == 0
    namei.write_text("#!/bin/sh\nexit 127\n")
    assert found().returncode == 1, "without namei"


def test_a_relative_destination_is_refused(tmp_path: Path) -> None:
    place = "~mpi/train.py"
    (tmp_path / "hosts").write_text("localhost ansible_connection=local\n", encoding="utf-8")
    play = f"""
    - hosts: localhost
      gather_facts: false
      vars: {{mpi_job_files: [{{src: play.yml, dest: {place}}}]}}
      tasks:
        - ansible.builtin.include_role: {{name: baremetal.mpi_roce.mpi_job, tasks_from: files}}
    """
    rc, output = run_play(tmp_path, play, tmp_path / "hosts")
    assert rc == 2
    assert f"mpi_job_files: dest {place} " in output
