# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Runs with --limit, or with a node down: what they leave out, and its repair by the next run.

Files that describe the whole cluster are parsed here, without the collection's code.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.nodes import Nodes

pytestmark = pytest.mark.nodes

HOSTFILE = "/etc/baremetal-mpi-roce/hostfile"


def hosts_table(nodes: Nodes, host: str) -> dict[str, set[str]]:
    """Return every name in /etc/hosts of a node, with its addresses."""
    table: dict[str, set[str]] = {}
    text = nodes.on(host).file("/etc/hosts").content_string
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        for name in names:
            table.setdefault(name, set()).add(address)
    return table


def every_name(nodes: Nodes) -> dict[str, set[str]]:
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
    slots = {host: nodes.of(host)["cluster_slots"] for host in nodes.group("compute")}
    return [f"{host} slots={count} max_slots={count}" for host, count in slots.items()]


def forget(nodes: Nodes, *hosts: str) -> None:
    for host in hosts:
        nodes.on(host).check_output("sed -i '/BEGIN baremetal/,/END baremetal/d' /etc/hosts")
        assert not knows_everybody(nodes, host)


# --limit chooses where files are written, never their content.


def test_a_limit_to_one_node_teaches_it_all_names(nodes: Nodes) -> None:
    first, *_, last = nodes.group("compute")
    forget(nodes, first, last)
    run = nodes.play("site.yml", f"--limit={last}")
    assert set(run.recap) - {"localhost"} == {last}
    assert knows_everybody(nodes, last)
    assert not knows_everybody(nodes, first), "a host outside of the limit was changed"
    nodes.play("site.yml", f"--limit={first}", "--tags=names")
    assert knows_everybody(nodes, first)


def test_a_limit_to_the_launcher_writes_the_hostfile_of_all(nodes: Nodes) -> None:
    launcher = nodes.group("launcher")[0]
    nodes.on(launcher).check_output(f"rm {HOSTFILE}")
    nodes.play("site.yml", f"--limit={launcher}", "--tags=hostfile")
    assert hostfile_lines(nodes) == whole_hostfile(nodes)


# One node is down: the others converge, the run fails and names it, the files still list it.


@pytest.fixture(scope="module")
def dead(nodes: Nodes) -> Iterator[str]:
    node = nodes.group("compute")[-1]
    nodes.stop(node)
    yield node
    container = f"{nodes.of(node)['cluster_name']}.{node}"
    running = ["podman", "ps", "--quiet", f"--filter=name=^{container}$"]
    if not subprocess.run(running, check=True, capture_output=True).stdout:
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
    assert not run.hosts_with("failed") & set(compute), "a node failed because of another"


def test_when_it_is_back_one_run_takes_it_in(nodes: Nodes, dead: str) -> None:
    nodes.state(present=True)
    nodes.play("site.yml", f"--limit={dead}")
    assert knows_everybody(nodes, dead)
