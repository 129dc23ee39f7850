# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Jobs on nodes of both families: they complete, fail, and are terminated with the controller."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.nodes import TOP, Nodes, Run
from tools.run_tests import descendants

pytestmark = pytest.mark.nodes

RUN = "playbooks/run.yml"
PROGRAM = """\
import os, pathlib, signal, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
print("rank", world.rank, "of", world.size, "sum", total, os.environ["WORD"], flush=True)
if sys.argv[1:] == ["fail"] and world.rank == 3:
    print("rank three has enough", file=sys.stderr, flush=True)
    os._exit(1)  # sys.exit would wait for the others at the end of MPI, as they do for it
if sys.argv[1:] == ["later"]:
    if world.rank == 0:
        place = pathlib.Path(os.environ["CLUSTER_CHECKPOINT_DIR"])
        place.mkdir(exist_ok=True)
        (place / "step 7").write_bytes(bytes(1000000))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, 12)  # two looks of the controller
    signal.sigwait([signal.SIGALRM])
if sys.argv[1:] == ["wait"]:
    pathlib.Path(f"/dev/shm/nccl-test{world.rank}").touch()
    signal.pause()
world.Barrier()
"""
PROFILE = "/etc/profile.d/baremetal-mpi-roce.sh"
CHECKPOINTS, WORK, OWN = "/mnt/checkpoints", "/var/tmp/mpi-job-work", "/var/tmp/mpi-job-own"
SMALL = f"-o size=64k,mode=1777 small {CHECKPOINTS}"
LEFT = """
pgrep -fa 'mpirun|orted|mpi-job-test' | grep -v pgrep
ls -d /tmp/ompi.* /dev/shm/vader* /dev/shm/nccl-test* 2>/dev/null
"""


@pytest.fixture(scope="module")
def job(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Return the command line of a job without its last arguments."""
    source = tmp_path_factory.mktemp("job") / "mpi-job-test.py"
    source.write_text(PROGRAM, encoding="utf-8")
    variables = {
        "mpi_job_files": [{"src": str(source), "dest": "/var/tmp/mpi-job-test.py"}],
        "mpi_job_environment": {"WORD": "two words"},
        "mpi_job_checkpoint_directory": OWN,
    }
    yield ["--extra-vars", json.dumps(variables)]
    nodes.on(nodes.group("compute")[0]).check_output(f"rm -rf {OWN}")


def program(*arguments: str) -> list[str]:
    words = ["python3", "/var/tmp/mpi-job-test.py", *arguments]
    return ["--extra-vars", json.dumps({"mpi_job_program": words})]


def left(nodes: Nodes) -> dict[str, str]:
    hosts = nodes.group("compute", "launcher")
    found = {host: str(nodes.on(host).run(LEFT).stdout) for host in hosts}
    return {host: text for host, text in found.items() if text}


def result(run: Run) -> dict[str, Any]:
    (checks,) = [host["checks"] for host in run.report["layers"]["job"]["hosts"].values()]
    return {check["name"]: check for check in checks}


def test_a_job_runs_on_every_slot_and_saves_its_output(nodes: Nodes, job: list[str]) -> None:
    run = nodes.play(RUN, *job, *program("later"))
    ranks = sum(int(nodes.of(host)["cluster_slots"]) for host in nodes.group("compute"))
    lines = re.findall(r"rank (\d+) of (\d+) sum (\d+) two words", run.output)
    total = str(sum(range(ranks)))
    assert sorted(lines, key=lambda words: int(words[0])) == [
        (str(rank), str(ranks), total) for rank in range(ranks)
    ]
    assert {name: check["status"] for name, check in result(run).items()} == {
        "job_storage": "not_applicable",  # in a container
        "job_ended": "ok",
        "no_orphans": "ok",
    }
    assert re.search(rf"^newest checkpoint: {OWN}/step 7, 1.0 MB, \d+ s old$", run.output, re.M)
    place = re.search(r"^job \w+: (/\S+) on \S+$", run.output, re.MULTILINE)
    assert place is not None
    launcher = nodes.on(nodes.group("launcher")[0])
    again = launcher.check_output(f"runuser -u mpi -- sh -lc 'cd / && {place[1]}/job.sh'")
    assert again.count("two words") == ranks
    # When started by hand, the daemons on the nodes terminate after mpirun.
    waiting.until(lambda: left(nodes) == {}, "the end of the daemons", 30)


@pytest.mark.long
def test_the_documented_example_runs_as_it_is_written(nodes: Nodes) -> None:
    page = (TOP / "docs/jobs.md").read_text(encoding="utf-8").replace("\\\n", "")
    (line,) = re.findall(r"^    (ansible-playbook .* inventories/virtual .*)$", page, re.MULTILINE)
    words = [word for word in shlex.split(line)[2:] if word != "inventories/virtual"]
    words.remove("-i")
    place = words[-1].partition("=")[2]
    try:
        run = nodes.play(RUN, *words)
        assert re.search(rf"^newest checkpoint: {place}/\S+, .* s old$", run.output, re.MULTILINE)
    finally:
        nodes.on(nodes.group("compute")[0]).check_output(f"rm -rf {place}")


def test_the_rank_that_fails_is_named_with_its_words(nodes: Nodes, job: list[str]) -> None:
    run = nodes.play(RUN, *job, *program("fail"), expect=2)
    assert result(run)["job_ended"]["reason"].startswith("rank 3 ")
    assert "[1,3]<stderr>:rank three has enough" in run.output
    assert re.search(r"\d s old", run.output)
    assert left(nodes) == {}


def test_each_node_that_cannot_take_part_is_listed_with_its_reasons(
    nodes: Nodes, job: list[str]
) -> None:
    full, read_only, bare, without = nodes.group("compute")
    orted = nodes.on(without).check_output(f". {PROFILE}; readlink -f $(command -v orted)")
    only = "/usr/local/bin/only-here"
    mount = f"mkdir -p {CHECKPOINTS} {WORK} && mount -t tmpfs {SMALL}"
    read = f"mount -o remount,ro {CHECKPOINTS} && ln -sf /usr/bin/python3 {only}"
    umount = f"umount {CHECKPOINTS} && rmdir {WORK}"
    wanted = {
        "mpi_job_program": ["only-here", "-c", "pass"],
        "mpi_job_work_directory": WORK,
        "mpi_job_checkpoint_directory": "",
    }
    with (
        nodes.by_hand(full, f"{mount} && {{ cat /dev/zero >{CHECKPOINTS}/old; true; }}", umount),
        nodes.by_hand(read_only, f"{mount} && {read}", f"rm {only}; {umount}"),
        nodes.by_hand(without, f"chmod a-x {orted}", f"chmod a+x {orted}"),
    ):
        run = nodes.play(RUN, *job, "--extra-vars", json.dumps(wanted), expect=2)
    listed = run.output.partition("nothing was started")[2].partition("repair them")[0]
    cannot = f"no checkpoints can be written to {CHECKPOINTS}"
    for host, problem in {
        full: f"program only-here not found; {cannot}: No space left on device",
        read_only: f"{cannot}: Read-only file system",
        bare: f"directory {WORK} not found; program only-here not found",
        without: f"Open MPI's orted not found; run --tags rails,mpi --limit {without}",
    }.items():
        assert f"  {host}: {problem}\\n" in listed or f"  {host}: {problem}\n" in listed


@pytest.fixture
def running(
    nodes: Nodes, job: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A waiting job, its ansible-playbook in a separate process group, and its output."""
    path, lease = tmp_path / "log", getattr(request, "param", 120)
    words = [*job, *program("wait"), f"--extra-vars=mpi_job_lease_s={lease}"]
    with path.open("a") as log:
        play = nodes.start(RUN, *words, output=log)
    try:
        waiting.until(
            lambda: "two words" in path.read_text() or play.poll() is not None,
            "the job to run",
            60,
        )
        assert play.poll() is None, path.read_text()
        yield play, path
    finally:
        play.kill()
        play.wait()


def test_ctrl_c_ends_every_rank_at_once(
    nodes: Nodes, running: tuple[subprocess.Popen[str], Path]
) -> None:
    """Send it to the group, as a terminal does. ansible-playbook then waits for the job to end."""
    play, log = running
    began = time.monotonic()
    os.killpg(play.pid, signal.SIGINT)
    assert play.wait(waiting.deadline(60)) == 99
    seconds = time.monotonic() - began
    assert left(nodes) == {}
    output = log.read_text().partition("interrupted")[2]
    assert "(ansible-playbook was interrupted)" in output and "no_orphans" not in output
    assert seconds < waiting.deadline(15)  # long before its lease expires


def test_a_killed_ansible_playbook_ends_every_rank_soon(
    nodes: Nodes, running: tuple[subprocess.Popen[str], Path]
) -> None:
    """Kill the main process only, as the OOM killer does: its worker notices and ends the job."""
    play, _log = running
    play.kill()
    play.wait()
    waiting.until(lambda: left(nodes) == {}, "the job to be terminated", 30, every=1)


@pytest.mark.parametrize("running", [20], indirect=True)
def test_a_job_ends_with_its_controller(
    nodes: Nodes, running: tuple[subprocess.Popen[str], Path]
) -> None:
    play, _log = running
    for pid in descendants(play.pid):
        os.kill(pid, signal.SIGKILL)
    play.wait()
    assert left(nodes) != {}
    waiting.until(lambda: left(nodes) == {}, "the job to be terminated", 150, every=2)
