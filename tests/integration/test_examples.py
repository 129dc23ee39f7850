# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples on the nodes: ranks die at any step, and the final weights are the same."""

from __future__ import annotations

import random
import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests import waiting
from tests.jobs import END, EXAMPLES, WITH_TORCH, Job, falls, lend_torch
from tests.nodes import Nodes

pytestmark = pytest.mark.nodes

PLACE = "/opt/examples"
CHECKPOINTS = "/var/tmp/train-test"
HOSTFILE = "/etc/baremetal-mpi-roce/hostfile"
STEPS = 120
NUMPY = f"python3 {PLACE}/train.py --steps={STEPS}"
TORCH = f"{PLACE}/python {PLACE}/train_torch.py --steps=100 --backend="


def ssh(nodes: Nodes, host: str, *command: str) -> list[str]:
    return ["ssh", "-F", str(nodes.ssh_config), host, shlex.join(["sudo", *command])]


def put(nodes: Nodes, host: str, name: str, data: bytes) -> None:
    words = ["install", "-D", "--mode=755", "/dev/stdin", f"{PLACE}/{name}"]
    subprocess.run(ssh(nodes, host, *words), input=data, check=True)


def start(
    nodes: Nodes, ranks: int, folder: str, program: str = NUMPY, hostfile: str = HOSTFILE
) -> Job:
    """Run on the launcher, by the MPI user in a login shell."""
    launcher = nodes.group("launcher")[0]
    user = nodes.of(launcher)["cluster_mpi_user"]
    line = f"cd / && mpirun -np {ranks} --hostfile {hostfile} --map-by node {program}"
    line += f" --deterministic --every=7 --report=1 --checkpoints={folder}"
    return Job(ssh(nodes, launcher, "runuser", "-l", user, "-c", line))


@pytest.fixture(scope="module")
def examples(nodes: Nodes) -> Iterator[Nodes]:
    hosts = nodes.group("compute", "launcher")
    for host in hosts:
        for program in EXAMPLES.glob("*.py"):
            put(nodes, host, program.name, program.read_bytes())
    yield nodes
    for host in hosts:
        nodes.on(host).check_output(f"rm -rf {CHECKPOINTS}-* {PLACE}")


@pytest.fixture(scope="module")
def torch(examples: Nodes) -> Iterator[Nodes]:
    hosts = examples.group("compute")
    for host in hosts:
        lend_torch(f"{examples.of(host)['cluster_name']}.{host}")
        put(examples, host, "python", WITH_TORCH.encode())
        # The first run compiles the modules for all.
        examples.on(host).check_output(f"{PLACE}/python -c 'import torch.distributed, torch.optim'")
        examples.on(host).check_output("mount -o remount,bind,ro /opt/pytorch")
    yield examples
    for host in hosts:
        examples.on(host).check_output("umount /opt/pytorch && rmdir /opt/pytorch")


def whole(nodes: Nodes, ranks: int, program: str) -> str:
    """The weights that every other run must end with."""
    output = start(nodes, ranks, f"{CHECKPOINTS}-whole-{ranks}", program).end()
    assert falls(output)
    [(_, said, digest)] = END.findall(output)
    assert said == str(ranks)
    return str(digest)


@pytest.fixture(scope="module")
def weights(examples: Nodes) -> str:
    return whole(examples, 16, NUMPY)


@pytest.fixture(scope="module")
def torch_weights(torch: Nodes) -> str:
    return whole(torch, 4, f"{TORCH}mpi4py")


def a_rank(nodes: Nodes, ranks: int) -> tuple[str, str]:
    hosts = nodes.group("compute")
    host = random.choice(hosts)
    user = nodes.of(host)["cluster_mpi_user"]
    pids = nodes.on(host).check_output(f"pgrep -u {user} -f {PLACE}/train").split()
    assert len(pids) == ranks // len(hosts), f"{host}: {pids}"
    return host, f"kill -KILL {random.choice(pids)}"


def mpirun(nodes: Nodes, ranks: int) -> tuple[str, str]:
    launcher = nodes.group("launcher")[0]
    user = nodes.of(launcher)["cluster_mpi_user"]
    return launcher, f"pkill -TERM -u {user} -x mpirun"


def ended_and_resumed(
    nodes: Nodes,
    victim: Callable[[Nodes, int], tuple[str, str]],
    first: tuple[int, str],
    second: tuple[int, str],
    hostfile: str = HOSTFILE,
) -> list[tuple[str, str, str]]:
    """Terminate a job of `ranks` ranks at any step, and return the result of the next job."""
    folder = f"{CHECKPOINTS}-{random.getrandbits(32)}"
    job = start(nodes, first[0], folder, first[1], hostfile)
    job.until_step(1)
    host, end = victim(nodes, first[0])  # before that step: the kill takes only a moment
    step = random.randrange(8, 60)
    job.until_step(step)
    nodes.on(host).check_output(end)
    job.end(good=False)
    for host in nodes.group("compute", "launcher"):
        user = nodes.of(host)["cluster_mpi_user"]
        left = f"pgrep -u {user} -a -f 'mpirun|orted|{PLACE}'"
        ended = f"the end of all processes on {host}"
        waiting.until(lambda h=host, c=left: nodes.on(h).run(c).stdout == "", ended, 30)
    output = start(nodes, second[0], folder, second[1], hostfile).end()
    assert "from step 0\n" not in output, f"stopped at step {step}"
    return END.findall(output)


@pytest.mark.parametrize("victim", [a_rank, mpirun])
def test_a_job_killed_at_any_step_resumes_to_the_same_weights(
    victim: Callable[[Nodes, int], tuple[str, str]], examples: Nodes, weights: str
) -> None:
    found = ended_and_resumed(examples, victim, (16, NUMPY), (10, NUMPY))
    assert found == [(str(STEPS), "10", weights)]


def test_a_directory_that_cannot_have_checkpoints_is_named(examples: Nodes) -> None:
    host, folder = examples.group("compute")[0], f"{CHECKPOINTS}-small"
    small = f"mkdir {folder} && mount -t tmpfs -o size=64k,mode=1777 small {folder}"
    with examples.by_hand(host, small, f"umount {folder}") as node:
        for reason in ("No space left on device", "Read-only file system"):
            output = start(examples, 2, folder).end(good=False)
            wanted = f"train.py: rank 0 on {host}: no checkpoints can be written to {folder}: "
            assert wanted + reason in output
            node.check_output(f"mount -o remount,ro {folder}")


OTHER = {"mpi4py": "gloo", "gloo": "mpi4py"}


@pytest.mark.long
@pytest.mark.parametrize("backend", OTHER)
def test_pytorch_killed_at_any_step_resumes_with_another_backend(
    backend: str, torch: Nodes, torch_weights: str
) -> None:
    programs = TORCH + backend, TORCH + OTHER[backend]
    found = ended_and_resumed(torch, a_rank, (4, programs[0]), (3, programs[1]))
    assert found == [("100", "3", torch_weights)]


@pytest.mark.long
@pytest.mark.parametrize("backend", OTHER)
def test_pytorch_does_so_with_32_ranks(backend: str, torch: Nodes, torch_weights: str) -> None:
    hostfile = f"{PLACE}/hostfile"
    lines = "".join(f"{host} slots=8\n" for host in torch.group("compute"))
    put(torch, torch.group("launcher")[0], "hostfile", lines.encode())
    program = TORCH + backend
    found = ended_and_resumed(torch, a_rank, (32, program), (32, program), hostfile)
    assert found == [("100", "32", torch_weights)]


@pytest.mark.long
def test_a_backend_that_pytorch_lacks_is_named(torch: Nodes) -> None:
    output = start(torch, 1, f"{CHECKPOINTS}-none", f"{TORCH}mpi").end(good=False)
    assert f"rank 0 on {torch.group('compute')[0]}: torch 1.13" in output
