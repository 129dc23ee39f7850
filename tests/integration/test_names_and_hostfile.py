# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names and hostfile on real nodes: lines written by hand, drained nodes, wrong names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

HOSTS = "/etc/hosts"
HOSTFILE = "/etc/baremetal-mpi-roce/hostfile"


@contextmanager
def by_hand(nodes: Nodes, host: str, command: str) -> Iterator[str]:
    """Edit /etc/hosts with `command`; the file is restored afterwards."""
    before = nodes.on(host).file(HOSTS).content_string
    nodes.on(host).check_output(f"cp {HOSTS} /root/hosts.before && {command}")
    try:
        yield nodes.on(host).file(HOSTS).content_string
    finally:
        nodes.on(host).check_output(f"mv /root/hosts.before {HOSTS}")
        assert nodes.on(host).file(HOSTS).content_string == before


def names(nodes: Nodes, host: str, *words: str, expect: int = 0) -> str:
    run = nodes.play("playbooks/names.yml", f"--limit={host}", *words, expect=expect)
    return run.output


@pytest.mark.parametrize("which", [0, -1], ids=["first family", "last family"])
def test_an_installers_loopback_line_goes_and_an_operators_stays(nodes: Nodes, which: int) -> None:
    host = nodes.group("compute")[which]
    lines = f"127.0.1.1 {host}.example {host}\\n10.9.9.9 archive # ours\\n"
    with by_hand(nodes, host, f"printf '{lines}' >>{HOSTS}"):
        shown = names(nodes, host, "--check", "--diff")
        assert f"-127.0.1.1 {host}.example {host}" in shown
        names(nodes, host)
        text = nodes.on(host).file(HOSTS).content_string
        assert "127.0.1.1" not in text
        assert "10.9.9.9 archive # ours" in text.splitlines()
        found = nodes.on(host).check_output(f"getent ahosts {host}").split()[0]
        assert found == nodes.of(host)["cluster_management"]["address"]


def test_a_conflict_is_refused_by_line_and_nothing_is_written(nodes: Nodes) -> None:
    host, other = nodes.group("compute")[0], nodes.group("compute")[-1]
    command = f"sed -i 1i'10.9.9.9 {other}' {HOSTS} && hostname elsewhere"
    with by_hand(nodes, host, command) as left:
        messages = names(nodes, host, expect=2)
        assert f"line 1: '10.9.9.9 {other}': maps {other} to 10.9.9.9" in messages
        assert nodes.on(host).file(HOSTS).content_string == left
        assert nodes.on(host).check_output("hostname") == "elsewhere"
    names(nodes, host)
    assert nodes.on(host).check_output("hostname") == host


def test_a_wrong_name_on_the_launcher_is_told_with_both_addresses(nodes: Nodes) -> None:
    launcher, node = nodes.group("launcher")[0], nodes.group("compute")[0]
    address = nodes.of(node)["cluster_management"]["address"]
    with by_hand(nodes, launcher, f"echo '10.9.9.9 {node}' >>{HOSTS}"):
        run = nodes.play("playbooks/hostfile.yml", expect=2)
        assert f"name_resolves {node}: wanted '{address}', found" in run.output
        assert "10.9.9.9" in run.output
    assert nodes.play("playbooks/hostfile.yml").total("changed") == 0


def test_a_drained_node_is_left_out_until_it_returns(nodes: Nodes, tmp_path: Path) -> None:
    launcher, (node, *others) = nodes.group("launcher")[0], nodes.group("compute")
    drained = nodes.changed(tmp_path, lambda model: model["nodes"].update(drained=[node]))
    drained.play("playbooks/hostfile.yml")
    lines = nodes.on(launcher).file(HOSTFILE).content_string.splitlines()
    assert f"# drained: {node}" in lines
    assert [line.split()[0] for line in lines if not line.startswith("#")] == others

    nodes.play("playbooks/hostfile.yml")
    text = nodes.on(launcher).file(HOSTFILE).content_string
    assert "# drained:" not in text
    assert f"\n{node} slots=" in text


def test_a_rankfile_comes_with_known_cores_only_and_goes_again(nodes: Nodes) -> None:
    launcher = nodes.group("launcher")[0]
    rankfile = nodes.on(launcher).file("/etc/baremetal-mpi-roce/rankfile")
    wanted = "--extra-vars=mpi_hostfile_rankfile=true"
    messages = nodes.play("playbooks/hostfile.yml", wanted, expect=2).output
    assert "cluster_numa_cores" in messages
    assert not rankfile.exists

    cores = '--extra-vars={"cluster_numa_cores": {"0": "0-7", "1": "8-15"}}'
    nodes.play("playbooks/hostfile.yml", wanted, cores)
    lines = rankfile.content_string.splitlines()[2:]
    slots = sum(nodes.of(node)["cluster_slots"] for node in nodes.group("compute"))
    assert len(lines) == slots
    assert lines[0] == f"rank 0={nodes.group('compute')[0]} slot=0-3"

    nodes.play("playbooks/hostfile.yml")
    assert not rankfile.exists
