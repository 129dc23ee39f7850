# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Repeated kill -9, on the way from new nodes to a verified cluster.

The last run converges the nodes for all other tests.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

import pytest

from tests import waiting
from tests.nodes import CLUSTER, Nodes
from tools.run_tests import descendants

pytestmark = pytest.mark.nodes

UNTOLD = ("Look the whole cluster up", "Read the")
"""Tasks of a role that run only on the controller, before it changes a node."""


LONG = pytest.mark.long
KILLS = [
    pytest.param("cluster_hosts", "names", 0.4, True, marks=LONG),
    pytest.param("os_baseline", "os", 1.5, False, marks=LONG),
    pytest.param("roce_rails", "rails", 1.0, True),
    pytest.param("mpi_stack", "mpi", 2.0, False),
    pytest.param("mpi_stack", "mpi", 1.0, True, marks=LONG),
    pytest.param("mpi_hostfile", "hostfile", 0.4, True, marks=LONG),
    pytest.param("ssh_trust", "ssh", 1.5, True),
    pytest.param("mpi_smoke", "smoke", 4.0, True, marks=LONG),
]
"""Role, tag, seconds and `workers` of `kill_a_run`. Files, packages and keys are killed while each
of them is written, in every run of the tests."""


def kill_a_run(nodes: Nodes, role: str, tag: str, after_s: float, workers: bool) -> None:
    """Send SIGKILL a few seconds after the first task of a role that reaches the nodes has started.

    With `workers` all child processes are killed as well, as when the controller loses power;
    otherwise its workers finish their tasks. It is an error if the run finishes earlier.
    """
    process = nodes.start("site.yml", f"--tags={tag}")
    assert process.stdout is not None
    begun = f"TASK [baremetal.mpi_roce.{role} : "
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(begun) and not line[len(begun) :].startswith(UNTOLD):
            break
    else:
        process.wait()
        raise AssertionError(f"the run finished before its task:\n{''.join(lines)}")
    time.sleep(after_s)
    for pid in descendants(process.pid) if workers else [process.pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if process.wait() != -signal.SIGKILL:
        lines.append(process.stdout.read())
        raise AssertionError(f"the run finished before the kill:\n{''.join(lines)}")
    process.stdout.close()


@pytest.fixture(scope="module")
def bare(fresh_nodes: Nodes) -> Iterator[Nodes]:
    """New nodes: a killed run must have been in progress."""
    CLUSTER.used()
    yield fresh_nodes


@pytest.mark.parametrize(("role", "tag", "after_s", "workers"), KILLS)
def test_a_run_is_killed(bare: Nodes, role: str, tag: str, after_s: float, workers: bool) -> None:
    kill_a_run(bare, role, tag, after_s, workers)
    for host in bare.group("compute", "launcher"):
        table = hosts_file(bare, host)
        assert "localhost" in table
        assert table.count("BEGIN baremetal") == table.count("END baremetal")


def hosts_file(nodes: Nodes, host: str) -> str:
    """Read /etc/hosts. The killed run may have let sshd reload, which then rejects connections."""

    def text() -> str:
        try:
            return str(nodes.on(host).file("/etc/hosts").content_string)
        except RuntimeError:
            return ""

    return waiting.until(text, f"{host} rejects all logins", 60)


def test_after_the_kills_one_run_converges_and_nothing_is_left(bare: Nodes) -> None:
    CLUSTER.converge()
    user = bare.of(bare.group("launcher")[0])["cluster_mpi_user"]
    for host in bare.group("compute", "launcher"):
        assert bare.on(host).run(f"pgrep -u {user} -a -f 'mpirun|orted|allreduce'").stdout == ""
        half = "find /etc /etc/baremetal-mpi-roce -maxdepth 1 -name '.host*.*'"
        assert bare.on(host).check_output(half) == ""
