# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""docs/examples on the nodes: ranks die at any step, and the final weights are the same."""

from __future__ import annotations

import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests import waiting
from tests.jobs import END, EXAMPLES, Job, falls
from tests.nodes import TOP, Nodes

pytestmark = pytest.mark.nodes

PLACE = "/opt/examples"
CHECKPOINTS = "/var/tmp/train-test"
HOSTFILE = "/etc/baremetal-mpi-roce/hostfile"
NUMPY = f"python3 {PLACE}/train.py --steps=200"
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


TREE = TOP / "build/pytorch"
"""python3-torch of the nodes' Debian release, with its dependencies: it is in the nodes'
repositories, and independent of the Python and index that the tests use."""
LEND = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def done(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
tree = done(libc.syscall(428, -100, os.fsencode(sys.argv[2]), 1))  # open_tree, of a clone
done(libc.setns(os.open(f"/proc/{sys.argv[1]}/ns/mnt", os.O_RDONLY), 0))
os.makedirs("/opt/pytorch", exist_ok=True)
done(libc.syscall(429, tree, b"", -100, b"/opt/pytorch", 4))  # move_mount
"""
"""Mount a folder of this machine on a node: 1 GB that no node needs to copy or cache."""
LIBRARIES = [
    "/usr/lib/x86_64-linux-gnu",  # the node's files take precedence
    "/opt/pytorch/usr/lib/x86_64-linux-gnu",
    "/opt/pytorch/usr/lib",
    "/opt/pytorch/lib/x86_64-linux-gnu",
    "/opt/pytorch/usr/lib/x86_64-linux-gnu/blas",
    "/opt/pytorch/usr/lib/x86_64-linux-gnu/lapack",
]
PYTHON = f"""\
#!/bin/sh
export LD_LIBRARY_PATH="${{LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}}{":".join(LIBRARIES)}"
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}/opt/pytorch/usr/lib/python3/dist-packages"
exec python3 "$@"
"""


@pytest.fixture(scope="module")
def torch(examples: Nodes) -> Iterator[Nodes]:
    if not TREE.is_dir():
        partial = TREE.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        TREE.parent.mkdir(exist_ok=True)
        options = ["--variant=extract", '--aptopt=APT::Install-Recommends "false"']
        made = subprocess.run(
            ["mmdebstrap", *options, "--include=python3-torch", "bookworm", partial],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        # The nodes' images come from the same mirror, so it is reachable.
        assert made.returncode == 0, made.stderr.strip()[-500:]
        partial.rename(TREE)
    hosts = examples.group("compute")
    for host in hosts:
        container = f"{examples.of(host)['cluster_name']}.{host}"
        shown = ["podman", "inspect", "--format={{.State.Pid}}", container]
        pid = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip()
        subprocess.run([sys.executable, "-c", LEND, pid, str(TREE)], check=True)
        put(examples, host, "python", PYTHON.encode())
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
    step = random.randrange(8, 70)
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
    assert found == [("200", "10", weights)]


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
