# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs started by a real Slurm: smoke test, jobs, their end, and the example that is requeued.

Slurm is Debian's, installed by the role slurm on a separate cluster.
"""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import waiting
from tests.bed.instances import describe
from tests.jobs import WITH_TORCH, lend_torch
from tests.nodes import TOP, Nodes, Run
from tools.run_tests import descendants

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnsrun
mpi: {user: mpi, uid: 2000}
management: {subnet: 10.238.0.0/24, interface: mgmt0}
scheduler: slurm
nodes:
  count: 2
  name: "node{:02d}"
  management_first: 10.238.0.11
  slots: 2
  cpu: {sockets: 1, cores: 2, threads: 1, memory_mb: 1024}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 10}
addresses: {pool: 10.138.0.0/16, prefix: 24}
leaves: {count: 2, management_first: 10.238.0.101, ports: 64}
launcher: {name: launcher01, management: 10.238.0.10}
"""
LAUNCHER, COMPUTE = "launcher01", ("node01", "node02")
HOSTS = (LAUNCHER, *COMPUTE)
STATES = "sinfo --noheader --Node --format=%T"
QUEUE = "squeue --noheader --format='%j %T'"
LOST = "scontrol update nodename=node02 state=down reason=power"
RESUMED = "scontrol update nodename=node02 state=resume"
PROGRAM = """\
import os, pathlib, signal, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
place = world.rank, world.size, world.allreduce(world.rank)
environment = [os.environ.get(n, "-") for n in ("UCX_NET_DEVICES", "UCX_TLS", "WORD")]
print("rank", *place, *environment, flush=True)
if sys.argv[1:] == ["fail"] and world.rank == 3:
    print("rank three has enough", file=sys.stderr, flush=True)
    os._exit(1)
if sys.argv[1:] == ["wait"]:
    signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), os._exit(143)))
    time.sleep(5)  # the file is then newer than the job on a node that answers late
    pathlib.Path(f"/dev/shm/nccl-test{world.rank}").touch()
    print("parked", flush=True)
    while True:
        signal.pause()
world.Barrier()
"""
LEFT = """
pgrep -u mpi -a
ls -d /tmp/ompi.* /dev/shm/vader* /dev/shm/nccl-test* 2>/dev/null
"""
TRAINED = "/var/tmp/srun-checkpoints"


def put(nodes: Nodes, host: str, path: str, text: str) -> None:
    coded = base64.b64encode(text.encode()).decode()
    nodes.on(host).check_output("echo %s | base64 -d >%s", coded, path)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    nodes = describe(tmp_path_factory.mktemp("srun") / "inventory", MODEL)
    with nodes.new():
        nodes.play("site.yml", "--skip-tags=fabric,links,verbs,smoke")
        for host in HOSTS:
            put(nodes, host, "/srv/program.py", PROGRAM)
            for name in ("train.py", "train_torch.py", "train.sbatch"):
                put(nodes, host, f"/srv/{name}", (TOP / "docs/examples" / name).read_text())
        idle(nodes)
        yield nodes


def idle(nodes: Nodes) -> None:
    on = nodes.on(LAUNCHER)
    waiting.until(
        lambda: on.run(STATES).stdout.split() == ["idle"] * len(COMPUTE),
        "Slurm's nodes to be idle",
    )


def left(nodes: Nodes, *hosts: str) -> dict[str, str]:
    found = {host: str(nodes.on(host).run(LEFT).stdout) for host in hosts or HOSTS}
    return {host: text for host, text in found.items() if text}


def words(*arguments: str, **given: Any) -> list[str]:
    variables = {
        "mpi_job_start_with": "srun",
        "mpi_job_program": ["python3", "/srv/program.py", *arguments],
        "mpi_job_environment": {"WORD": "two words"},
        "mpi_job_checkpoint_directory": "/var/tmp/srun-own",
        **given,
    }
    return ["--extra-vars", json.dumps(variables)]


def result(run: Run) -> dict[str, Any]:
    return {check["name"]: check for check in run.checks("job", LAUNCHER)}


def test_the_smoke_test_is_the_same_by_mpirun_and_by_srun(nodes: Nodes) -> None:
    found = {}
    for program in ("mpirun", "srun"):
        run = nodes.play("playbooks/smoke.yml", f"--extra-vars=mpi_smoke_start_with={program}")
        found[program] = sorted(
            (check["name"], check["subject"], check["status"])
            for check in run.checks("smoke", LAUNCHER)
        )
        assert ("exactness", "ok") in {(name, status) for name, _at, status in found[program]}
        sent = re.findall(r"^  rail\d +(\d+\.\d+) MiB ", run.output, re.MULTILINE)
        assert len(sent) == 2 and min(map(float, sent)) > 1, "both rails carried it"
    assert found["srun"] == found["mpirun"]
    assert left(nodes) == {}


def test_a_job_has_its_nodes_devices_and_its_own_variables(nodes: Nodes) -> None:
    run = nodes.play("playbooks/run.yml", *words())
    lines = re.findall(r"^(\d): rank (\d 4 6 rail\d \S+ .*)$", run.output, re.MULTILINE)
    rank = "{} 4 6 rail{} tcp,sm,self two words"
    assert sorted(lines) == [(str(n), rank.format(n, n % 2)) for n in range(4)]
    statuses = {name: check["status"] for name, check in result(run).items()}
    assert statuses == {"job_ended": "ok", "no_orphans": "ok"}
    own = {"UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "error"}
    run = nodes.play("playbooks/run.yml", *words(mpi_job_environment=own, mpi_job_ranks=3))
    assert run.output.count(" tcp,self -") == 3


def test_the_rank_that_fails_is_named_with_its_words(nodes: Nodes) -> None:
    run = nodes.play("playbooks/run.yml", *words("fail"), expect=2)
    assert result(run)["job_ended"]["reason"] == "rank 3 failed first"
    assert "\n    3: rank three has enough\n" in run.output
    assert left(nodes) == {}
    idle(nodes)


Running = tuple[subprocess.Popen[str], Path, str]


@pytest.fixture
def running(nodes: Nodes, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """A job that waits, next to one that is held: its ansible-playbook, output and run id."""
    on = nodes.on(LAUNCHER)
    held = "runuser -u mpi -- sbatch --parsable --hold --chdir=/tmp --job-name=held --wrap true"
    other = on.check_output(held).strip()
    log, lease = tmp_path / "log", getattr(request, "param", 120)
    with log.open("a") as output:
        own = words("wait", mpi_job_lease_s=lease)
        play = nodes.start("playbooks/run.yml", *own, output=output)
    try:
        waiting.until(
            lambda: log.read_text().count(": parked") == 4 or play.poll() is not None,
            "the job to run",
            60,
        )
        name = re.search(r"^job (\w+): ", log.read_text(), re.MULTILINE)
        assert name is not None and play.poll() is None, log.read_text()
        assert f"baremetal-mpi-{name[1]} RUNNING" in on.check_output(QUEUE)
        yield play, log, name[1]
    finally:
        play.kill()
        play.wait()
        on.check_output(f"scancel {other}")
    idle(nodes)


def nothing_is_left(nodes: Nodes, *lost: str, seconds: float = 30) -> None:
    """Only the other job in the queue, and on hosts in service neither processes nor files."""
    on, hosts = nodes.on(LAUNCHER), [host for host in HOSTS if host not in lost]
    wanted = ["held", "PENDING"]
    # Without srun, slurmstepd tries for some seconds to report the exit of its tasks.
    waiting.until(lambda: on.check_output(QUEUE).split() == wanted, "the end of the job", seconds)
    waiting.until(lambda: left(nodes, *hosts) == {}, "the end of processes and files", seconds)


def test_ctrl_c_ends_exactly_this_job(nodes: Nodes, running: Running) -> None:
    play, log, _run = running
    os.killpg(play.pid, signal.SIGINT)
    assert play.wait(waiting.deadline(60)) == 99
    assert "(ansible-playbook was interrupted)" in log.read_text()
    assert "saved" in log.read_text(), "ranks have time after SIGTERM"
    nothing_is_left(nodes)


def test_systemd_cancels_the_job_of_a_unit_that_was_killed(nodes: Nodes, running: Running) -> None:
    play, _log, run = running
    nodes.on(LAUNCHER).check_output(f"systemctl kill --signal=KILL baremetal-mpi-job-{run}.service")
    assert play.wait(waiting.deadline(90)) == 2
    nothing_is_left(nodes)


def test_a_killed_ansible_playbook_ends_the_job(nodes: Nodes, running: Running) -> None:
    """Only the main process, as the OOM killer does."""
    play, _log, _run = running
    play.kill()
    nothing_is_left(nodes, seconds=60)


@pytest.mark.parametrize("running", [20], indirect=True)
def test_a_job_ends_with_its_controller(nodes: Nodes, running: Running) -> None:
    """Without any process of ansible-playbook, as without a connection, its lease expires."""
    play, _log, _run = running
    for pid in descendants(play.pid):
        os.kill(pid, signal.SIGKILL)
    nothing_is_left(nodes, seconds=150)


def test_a_node_that_slurm_gives_up_is_named(nodes: Nodes, running: Running) -> None:
    play, log, _run = running
    with nodes.by_hand(LAUNCHER, LOST, RESUMED):
        assert play.wait(waiting.deadline(90)) == 2
        assert "(Slurm lost node02: " in log.read_text()
        nothing_is_left(nodes)


def test_a_node_that_loses_power_is_named(nodes: Nodes, running: Running) -> None:
    play, log, _run = running
    nodes.stop("node02", "kill")
    try:
        assert play.wait(waiting.deadline(240)) == 2
        assert "node02 no longer responds" in log.read_text()
        # As after SlurmdTimeout: until then, Slurm waits for the node.
        nodes.on(LAUNCHER).check_output(LOST)
        nothing_is_left(nodes, "node02")
    finally:
        nodes.state(present=True)
        nodes.play("site.yml", "--tags=names,rails", "--limit=node02")
        nodes.on(LAUNCHER).run(RESUMED)


def test_nodes_that_slurm_does_not_offer_are_refused(nodes: Nodes) -> None:
    on = nodes.on(LAUNCHER)
    batch = "runuser -u mpi -- sbatch --parsable --chdir=/tmp --output=/dev/null"
    busy = on.check_output(f"{batch} --nodelist=node01 --exclusive --wrap 'sleep 600'").strip()
    drained = "scontrol update nodename=node02 state=drain reason='bad cable'"
    with nodes.by_hand(LAUNCHER, drained, RESUMED):
        waiting.until(lambda: "allocated" in on.run(STATES).stdout, "the other job")
        run = nodes.play("playbooks/run.yml", *words(), expect=2)
    on.check_output(f"scancel {busy}")
    listed = run.output.partition("nothing was started")[2].partition("repair them")[0]
    assert f"node01: Slurm has it as ALLOCATED (job {busy} of mpi)" in listed
    assert "node02: Slurm has it as IDLE+DRAIN (bad cable)" in listed
    wrong = words(mpi_job_slurm_options=["--partition=none"])
    idle(nodes)
    run = nodes.play("playbooks/run.yml", *wrong, expect=2)
    assert "nothing was started: Slurm refuses it: srun: invalid partition" in run.output


@pytest.mark.parametrize("program", ["train", "train_torch"])
def test_the_examples_are_requeued_and_continue(nodes: Nodes, program: str) -> None:
    on = nodes.on(LAUNCHER)
    for host in COMPUTE:
        nodes.on(host).check_output(f"install -d -o mpi {TRAINED} /opt/bin")
        if program == "train_torch":
            lend_torch(f"vnsrun.{host}")
            put(nodes, host, "/opt/bin/python3", WITH_TORCH)
            nodes.on(host).check_output("chmod 755 /opt/bin/python3")
    variables = f"ALL,CLUSTER_CHECKPOINT_DIR={TRAINED},PATH=/opt/bin:/usr/local/bin:/usr/bin:/bin"
    batch = f"sbatch --parsable --chdir=/tmp --export={variables} --job-name={program}"
    batch += f" --ntasks-per-node=2 --output=/tmp/%x.log /srv/train.sbatch /srv/{program}.py"
    job = on.check_output(f"runuser -u mpi -- {batch} --steps 1000000 --deterministic").strip()

    def text() -> str:
        return str(nodes.on("node01").run(f"cat /tmp/{program}.log").stdout)

    def again(count: int) -> int:
        """Wait for a start, and return the step from which it continues."""
        waiting.until(lambda: f"start {count} of job {job}" in text(), f"start {count}", 60)
        running = rf"start {count} of(?s:.*)from step (\d+)\n(?s:.*)step \d+ loss"
        waiting.until(lambda: re.search(running, text()) is not None, "the next steps", 120)
        return int(re.findall(r"from step (\d+)", text())[-1])

    def stopped(count: int) -> int:
        waiting.until(lambda: text().count("stopped by a signal") == count, "the checkpoint", 30)
        waiting.until(lambda: "PENDING" in on.run(QUEUE).stdout, "the queue", 30)
        on.check_output(f"scontrol update jobid={job} starttime=now")
        return int(re.findall(r"stopped by a signal: step (\d+)", text())[-1])

    try:
        assert again(1) == 0
        on.check_output(f"scontrol requeue {job}")  # SIGTERM, as for preemption
        first = stopped(1)
        assert first > 0 and again(2) == first
        on.check_output(f"scancel --signal=USR1 {job}")  # as before the time limit
        second = stopped(2)
        assert second > first and again(3) == second
        with nodes.by_hand(LAUNCHER, LOST, RESUMED):  # from the last checkpoint, if all nodes die
            waiting.until(lambda: "PENDING" in on.run(QUEUE).stdout, "the queue", 60)
        on.check_output(f"scontrol update jobid={job} starttime=now")
        assert again(4) >= second
        on.check_output(f"scancel {job}")
        waiting.until(lambda: not on.check_output(QUEUE).strip(), "the end of the job", 30)
        assert left(nodes) == {}, "cancelled, and not requeued"
    finally:
        on.run(f"scancel {job}")
