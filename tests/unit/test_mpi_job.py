# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A job: what runs, what keeps it from starting, which rank failed, and what is left of it."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import Result
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi import job
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce.plan import Node

NODES = (Node("node01", 2, ("rail0",)), Node("node02", 2, ("rail0",)))
READY = "mpi-ready program abc\nmpi-ready orted yes\nmpi-ready version 4.1.6\nmpi-ready end\n"


def wanted(folder: Path, **given: Any) -> job.Job:
    hostfile = folder / "hostfile"
    hostfile.write_text("node01 slots=2\nnode02 slots=2\n", encoding="utf-8")
    return replace(
        job.Job(
            nodes=NODES,
            program=("python3", "train.py", "--name", "it's"),
            user="mpi",
            run_id="0123456789ab",
            directory=folder / "jobs" / "0123456789ab",
            hostfile=hostfile,
        ),
        **given,
    )


class Nodes:
    """Answers over ssh, by host."""

    def __init__(self, **problems: str) -> None:
        self.problems = problems
        self.started: list[Sequence[str]] = []

    def __call__(
        self, argv: Sequence[str], *, check: bool = True, stdin: Optional[str] = None
    ) -> Result:
        host = next((node.name for node in NODES if node.name in argv), "")
        problem = self.problems.get(host, "")
        if problem == "silent":
            return Result(tuple(argv), 255, "", "Connection refused")
        lines = f"mpi-ready problem {problem}\n" if problem else ""
        return Result(tuple(argv), 0, READY if "program=" in " ".join(argv) else lines, "")


def test_the_script_is_the_command_and_its_environment_for_the_user_alone(tmp_path: Path) -> None:
    one = wanted(tmp_path, environment={"TOKEN": "x y z"}, ranks=3, parameters={"pml": "ucx"})
    job.prepare(one, NODES, os.getuid(), os.getgid())
    script = one.directory / job.SCRIPT
    text = script.read_text(encoding="utf-8")
    assert "export TOKEN='x y z'\n" in text and "-x TOKEN" in text and "-np 3" in text
    assert text.endswith("""rail-bind python3 train.py --name 'it'"'"'s'\n""")
    assert "--mca pml ucx" in text and "x y z" not in " ".join(one.command(NODES))
    assert stat.S_IMODE(script.stat().st_mode) == 0o700
    assert stat.S_IMODE(one.directory.stat().st_mode) == 0o700
    assert (one.directory / job.HOSTS).read_text() == "node01 slots=2\nnode02 slots=2\n"
    assert subprocess.run(["sh", "-n", str(script)], check=False).returncode == 0


@pytest.mark.parametrize(
    ("given", "problems", "words"),
    [
        ({"ranks": 5}, {}, "5 ranks asked for, and 2 nodes have 4 slots"),
        ({}, {"node02": "program train not found"}, "node02: program train not found"),
        ({}, {"node01": "silent"}, "1 of 2 nodes cannot take part:\n  node01: no answer over ssh"),
        ({"nodes": NODES[:1]}, {}, "node02: in the hostfile, and not in the model"),
    ],
)
def test_what_cannot_run_is_not_started(
    tmp_path: Path, given: dict[str, Any], problems: dict[str, str], words: str
) -> None:
    one = wanted(tmp_path, **given)
    with pytest.raises(PlanError) as refused:
        job.run(one, Nodes(**problems), lambda text: None, os.getuid(), os.getgid())
    assert words in str(refused.value)
    assert not one.directory.exists()


def test_an_interruption_before_the_start_starts_nothing(tmp_path: Path) -> None:
    one = wanted(tmp_path)
    with pytest.raises(PlanError, match=job.INTERRUPTED):
        job.run(one, Nodes(), lambda text: None, os.getuid(), os.getgid(), lambda: True)
    assert not one.directory.exists()


def test_nodes_are_left_out_only_when_asked_and_by_name(tmp_path: Path) -> None:
    one = wanted(tmp_path, allow_missing=True)
    left, missing = job._ready(one, NODES, Nodes(node01="silent"), lambda text: None)
    assert [node.name for node in left] == ["node02"] and set(missing) == {"node01"}
    with pytest.raises(PlanError, match="2 of 2 nodes cannot take part"):
        job._ready(one, NODES, Nodes(node01="silent", node02="silent"), lambda text: None)


@pytest.mark.parametrize("given", [{"program": ()}, {"environment": {"A-B": "1"}}])
def test_a_job_without_a_program_or_with_a_wrong_name_is_refused(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    with pytest.raises(PlanError):
        wanted(tmp_path, **given)


# As Open MPI 4.1 prints them with --tag-output.
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
def test_the_rank_that_failed_first_speaks(output: str, rank: int, line: str) -> None:
    found, lines = job.last_lines(output, 1)
    assert found == rank and lines[0].endswith(line)
    assert not [each for each in lines if "step" in each]
    assert job.last_lines(output, 0)[0] is None


def test_a_node_says_what_it_lacks_and_which_job_runs(tmp_path: Path) -> None:
    """The script as sh runs it; a process called orted is another job."""
    fake = tmp_path / "orted"
    fake.symlink_to("/bin/sleep")
    running = subprocess.Popen([str(fake), "60"])
    try:
        argv = ["sh", "-c", job.CHECK, "sh", str(tmp_path / "none"), "no-such-program"]
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    finally:
        running.kill()
        running.wait()
    assert f"mpi-ready problem directory {tmp_path}/none not found" in text
    assert "mpi-ready problem program no-such-program not found" in text
    assert f"mpi-ready problem another MPI job runs: {running.pid} " in text
    assert text.endswith("mpi-ready end\n")
