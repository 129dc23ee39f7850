# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples on the nodes: ranks that die at any step, and the same weights in the end."""

from __future__ import annotations

import random
import shlex
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests import waiting
from tests.jobs import END, Job, falls
from tests.nodes import TOP, Nodes

pytestmark = pytest.mark.nodes

PROGRAM = "/opt/examples/train.py"
CHECKPOINTS = "/var/tmp/train-test"
RUN = (
    "cd / && mpirun -np {ranks} --hostfile /etc/baremetal-mpi-roce/hostfile "
    f"python3 {PROGRAM} --deterministic --steps=200 --every=7 --report=1 --checkpoints={{folder}}"
)


def ssh(nodes: Nodes, host: str, *command: str) -> list[str]:
    return ["ssh", "-F", str(nodes.ssh_config), host, shlex.join(["sudo", *command])]


def start(nodes: Nodes, ranks: int, folder: str) -> Job:
    """On the launcher, by the MPI user in a login shell."""
    launcher = nodes.group("launcher")[0]
    user = nodes.of(launcher)["cluster_mpi_user"]
    line = RUN.format(ranks=ranks, folder=folder)
    return Job(ssh(nodes, launcher, "runuser", "-l", user, "-c", line))


@pytest.fixture(scope="module")
def examples(nodes: Nodes) -> Iterator[Nodes]:
    hosts = nodes.group("compute", "launcher")
    for host in hosts:
        put = ssh(nodes, host, "install", "-D", "--mode=644", "/dev/stdin", PROGRAM)
        subprocess.run(put, input=(TOP / "docs/examples/train.py").read_bytes(), check=True)
    yield nodes
    for host in hosts:
        nodes.on(host).check_output(f"rm -rf {CHECKPOINTS}-* /opt/examples")


@pytest.fixture(scope="module")
def uninterrupted(examples: Nodes) -> str:
    """The weights that every other run has to end with."""
    output = start(examples, 16, f"{CHECKPOINTS}-whole").end()
    assert falls(output)
    [(step, ranks, digest)] = END.findall(output)
    assert (step, ranks) == ("200", "16")
    return str(digest)


def a_rank(nodes: Nodes) -> tuple[str, str]:
    """A host, and what kills a rank there."""
    host = random.choice(nodes.group("compute"))
    user = nodes.of(host)["cluster_mpi_user"]
    ranks = nodes.on(host).check_output(f"pgrep -u {user} -f {PROGRAM}").split()
    assert len(ranks) == 4, f"{host}: {ranks}"
    return host, f"kill -KILL {random.choice(ranks)}"


def mpirun(nodes: Nodes) -> tuple[str, str]:
    """The launcher, and what ends mpirun there."""
    launcher = nodes.group("launcher")[0]
    user = nodes.of(launcher)["cluster_mpi_user"]
    return launcher, f"pkill -TERM -u {user} -x mpirun"


@pytest.mark.parametrize("victim", [a_rank, mpirun])
def test_a_job_that_ends_at_any_step_leaves_nothing_and_goes_on_to_the_same_weights(
    victim: Callable[[Nodes], tuple[str, str]], examples: Nodes, uninterrupted: str
) -> None:
    name = f"{CHECKPOINTS}-{victim.__name__}"
    job = start(examples, 16, name)
    job.until_step(1)
    host, end = victim(examples)  # before that step: the kill itself takes a moment only
    step = random.randrange(8, 120)
    job.until_step(step)
    examples.on(host).check_output(end)
    job.end(good=False)
    for host in examples.group("compute", "launcher"):
        user = examples.of(host)["cluster_mpi_user"]
        left = f"pgrep -u {user} -a -f 'mpirun|orted|{PROGRAM}'"
        ended = f"the end of all processes on {host}"
        waiting.until(lambda h=host, c=left: examples.on(h).run(c).stdout == "", ended, 30)
    output = start(examples, 10, name).end()
    assert "from step 0\n" not in output, f"stopped at step {step}"
    assert END.findall(output) == [("200", "10", uninterrupted)], f"stopped at step {step}"


def test_a_directory_that_cannot_have_checkpoints_is_named(examples: Nodes) -> None:
    host, folder = examples.group("compute")[0], f"{CHECKPOINTS}-small"
    node = examples.on(host)
    node.check_output(f"mkdir {folder} && mount -t tmpfs -o size=64k,mode=1777 small {folder}")
    try:
        for reason in ("No space left on device", "Read-only file system"):
            output = start(examples, 2, folder).end(good=False)
            wanted = f"train.py: rank 0 on {host}: no checkpoints can be written to {folder}: "
            assert wanted + reason in output
            node.check_output(f"mount -o remount,ro {folder}")
    finally:
        node.check_output(f"umount {folder}")
