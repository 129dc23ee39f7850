# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run that is limited, killed, or short of a node: what it leaves, and that the next repairs it.

Files that describe the whole cluster are read here with readers of their own, not the collection's.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.nodes import TOP, Nodes, Run

pytestmark = pytest.mark.nodes

HOSTFILE = "/etc/baremetal-mpi-roce/hostfile"
UNTOLD = ("Validating arguments", "Look the whole cluster up", "Read the")
"""Tasks of a role that run on the controller alone, before it does anything to a node."""


@dataclass(frozen=True)
class Kill:
    """SIGKILL, some seconds after the first task of a role that reaches the nodes has begun.

    With `workers` the whole process group goes, as when the controller loses power; else the main
    process alone, which leaves its workers to end what they had begun.
    """

    role: str
    after_s: float
    workers: bool


KILLS = [
    Kill("cluster_hosts", 0.4, workers=True),
    Kill("os_baseline", 1.5, workers=False),
    Kill("roce_rails", 1.0, workers=True),
    Kill("mpi_stack", 2.0, workers=False),
    Kill("mpi_stack", 5.0, workers=True),
    Kill("mpi_hostfile", 0.4, workers=True),
    Kill("ssh_trust", 1.5, workers=True),
    Kill("mpi_smoke", 4.0, workers=True),
]
USUALLY = ("roce_rails", "mpi_stack", "ssh_trust")
"""Files, packages, keys: a kill while each of them is written, in every run of the tests."""


def case(kill: Kill) -> pytest.ParameterSet:
    usual = kill == next(each for each in KILLS if each.role == kill.role) and kill.role in USUALLY
    marks = () if usual else pytest.mark.long
    return pytest.param(kill, marks=marks, id=f"{kill.role}-{kill.after_s:g}s")


def kill_a_run(nodes: Nodes, kill: Kill) -> str:
    """Start the site and kill it there. Returns what it had printed; to end earlier is an error."""
    process = subprocess.Popen(
        nodes.command("site.yml"),
        cwd=TOP,
        env=nodes.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    begun = f"TASK [baremetal.mpi_roce.{kill.role} : "
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(begun) and not line[len(begun) :].startswith(UNTOLD):
            break
    else:
        process.wait()
        raise AssertionError(f"the run ended before it was killed:\n{''.join(lines)}")
    time.sleep(kill.after_s)
    if kill.workers:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL, "the run had ended before it was killed"
    return "".join(lines)


def hosts_file(nodes: Nodes, host: str) -> str:
    """/etc/hosts of a node, whose sshd may just read its files: what was killed may have asked it
    to, and until it listens again, connections are refused."""
    until = time.monotonic() + 60
    while True:
        try:
            return str(nodes.on(host).file("/etc/hosts").content_string)
        except RuntimeError as refused:
            assert time.monotonic() < until, refused
        time.sleep(0.5)


def hosts_table(nodes: Nodes, host: str) -> dict[str, set[str]]:
    """Every name in /etc/hosts of a node, with its addresses."""
    table: dict[str, set[str]] = {}
    for line in hosts_file(nodes, host).splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            table.setdefault(name, set()).add(address)
    return table


def every_name(nodes: Nodes) -> dict[str, set[str]]:
    """The names of the whole inventory, as each node has to know them."""
    wanted = {}
    for host in nodes.group("compute", "launcher", "storage"):
        variables = nodes.of(host)
        wanted[host] = {variables["cluster_management"]["address"]}
        for rail in variables.get("cluster_rails", []):
            wanted[f"{host}-{rail['interface']}"] = {rail["address"]}
    return wanted


def knows_everybody(nodes: Nodes, host: str) -> bool:
    table = hosts_table(nodes, host)
    return all(table.get(name) == addresses for name, addresses in every_name(nodes).items())


def hostfile_lines(nodes: Nodes) -> list[str]:
    text = nodes.on(nodes.group("launcher")[0]).file(HOSTFILE).content_string
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def whole_hostfile(nodes: Nodes) -> list[str]:
    return [
        f"{host} slots={slots} max_slots={slots}"
        for host in nodes.group("compute")
        for slots in [nodes.of(host)["cluster_slots"]]
    ]


def forget(nodes: Nodes, *hosts: str) -> None:
    """By hand: the names of the cluster, gone from /etc/hosts."""
    for host in hosts:
        nodes.on(host).check_output("sed -i '/BEGIN baremetal/,/END baremetal/d' /etc/hosts")
        assert not knows_everybody(nodes, host)


def changes(run: Run) -> list[str]:
    """What a run changed: `task: host`, for a message that tells more than a number."""
    found, task = [], ""
    for line in run.output.splitlines():
        if line.startswith("TASK ["):
            task = line[len("TASK [") :].partition("] *")[0]
        elif line.startswith("changed: ["):
            found.append(f"{task}: {line.partition('[')[2].partition(']')[0]}")
    return found


# --limit chooses where files are written, never what is in them.


def test_a_limit_to_one_node_teaches_it_all_names(nodes: Nodes) -> None:
    first, *_, last = nodes.group("compute")
    forget(nodes, first, last)
    run = nodes.play("site.yml", f"--limit={last}")
    assert set(run.recap) - {"localhost"} == {last}
    assert knows_everybody(nodes, last)
    assert not knows_everybody(nodes, first), "the limit was not kept"
    nodes.play("site.yml", f"--limit={first}", "--tags=names")
    assert knows_everybody(nodes, first)


def test_a_limit_to_the_launcher_writes_the_hostfile_of_all(nodes: Nodes) -> None:
    launcher = nodes.group("launcher")[0]
    nodes.on(launcher).check_output(f"rm {HOSTFILE}")
    nodes.play("site.yml", f"--limit={launcher}", "--tags=hostfile")
    assert hostfile_lines(nodes) == whole_hostfile(nodes)


# One node is dead: the others converge, the run fails and names it, the files still list it.


@pytest.fixture(scope="module")
def dead(nodes: Nodes) -> Iterator[str]:
    node = nodes.group("compute")[-1]
    container = f"{nodes.of(node)['cluster_name']}.{node}"
    subprocess.run(["podman", "stop", "--time=5", container], check=True, capture_output=True)
    yield node
    nodes.state(present=True)


def test_without_one_node_the_others_converge(nodes: Nodes, dead: str) -> None:
    others = [host for host in nodes.group("compute", "launcher") if host != dead]
    forget(nodes, *others)
    nodes.on(nodes.group("launcher")[0]).check_output(f"rm {HOSTFILE}")

    run = nodes.play("site.yml", expect=None)

    assert run.rc != 0
    assert run.hosts_with("unreachable") == {dead}
    assert dead in run.output.partition("SUMMARY")[2]
    assert [host for host in others if not knows_everybody(nodes, host)] == []
    assert hostfile_lines(nodes) == whole_hostfile(nodes)
    compute = [host for host in others if host in nodes.group("compute")]
    assert not run.hosts_with("failed") & set(compute), "a node failed for another's sake"


def test_when_it_is_back_one_run_takes_it_in(nodes: Nodes, dead: str) -> None:
    nodes.state(present=True)
    nodes.play("site.yml")
    assert changes(nodes.play("site.yml")) == []


# kill -9, again and again, on the way from nodes as the image made them to a verified cluster.


@pytest.fixture(scope="module")
def bare(fresh_nodes: Nodes) -> Nodes:
    """The nodes made anew: a killed run has to have been doing something."""
    fresh_nodes.state(present=False)
    fresh_nodes.state(present=True)
    return fresh_nodes


@pytest.mark.parametrize("kill", [case(kill) for kill in KILLS])
def test_a_run_is_killed(bare: Nodes, kill: Kill) -> None:
    kill_a_run(bare, kill)
    for host in bare.group("compute", "launcher"):
        table = hosts_file(bare, host)
        assert "localhost" in table
        assert table.count("BEGIN baremetal") == table.count("END baremetal")


def test_after_the_kills_one_run_converges(bare: Nodes) -> None:
    bare.play("site.yml")
    hosts = bare.group("compute", "launcher")
    assert [host for host in hosts if not knows_everybody(bare, host)] == []
    assert hostfile_lines(bare) == whole_hostfile(bare)


def test_the_run_after_that_changes_nothing(bare: Nodes) -> None:
    assert changes(bare.play("site.yml")) == []


def test_no_killed_run_left_processes_or_half_files(bare: Nodes) -> None:
    user = bare.of(bare.group("launcher")[0])["cluster_mpi_user"]
    for host in bare.group("compute", "launcher"):
        assert bare.on(host).run(f"pgrep -u {user} -a -f 'mpirun|orted|allreduce'").stdout == ""
        half = "find /etc /etc/baremetal-mpi-roce -maxdepth 1 -name '.host*.*'"
        assert bare.on(host).check_output(half) == ""
