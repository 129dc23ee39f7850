# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Conditions that would stop the first run, on nodes without any role: three faults, and none."""

from __future__ import annotations

import subprocess

import pytest

from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

PLAYBOOK = "playbooks/preflight.yml"
DEAD = "/etc/apt/sources.list.d/dead.list"
CLAIM = "/etc/netplan/99-site.yaml"


def mounts(nodes: Nodes, name: str, *words: str) -> None:
    """Mount on the host: containers must not mount."""
    container = f"{nodes.of(name)['cluster_name']}.{name}"
    argv = ["podman", "inspect", "--format", "{{.State.Pid}}", container]
    pid = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run(["nsenter", "--target", pid, "--mount", *words], check=True)


def test_healthy_nodes_have_no_finding(fresh_nodes: Nodes) -> None:
    hosts = len({*fresh_nodes.group("compute", "launcher", "storage")})
    for words in ((), ("--check",)):
        done = fresh_nodes.play(PLAYBOOK, *words)
        assert f"preflight: {hosts} hosts, " in done.output
        assert "STOPS  " not in done.output and "  note  " not in done.output
        assert done.total("changed") == 0


def test_three_faults_are_reported_together(fresh_nodes: Nodes) -> None:
    nodes = fresh_nodes
    first, second, third = nodes.group("compute")[:3]
    # No key is needed, so that the missing response is the only fault.
    dead = "deb [trusted=yes] http://127.0.0.1:9/dead ./"  # nothing listens, so nothing is fetched
    rail = nodes.of(second)["cluster_rails"][1]["interface"]
    claim = f"printf 'network:\\n  ethernets:\\n    {rail}: {{}}\\n' >{CLAIM}"
    mounts(nodes, third, "mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", "/opt")
    try:
        with (
            nodes.by_hand(first, f"echo '{dead}' >{DEAD}", f"rm {DEAD}"),
            nodes.by_hand(second, f"mkdir -p /etc/netplan && {claim}", f"rm {CLAIM}"),
        ):
            done = nodes.play(PLAYBOOK, expect=2)
            limited = nodes.play(PLAYBOOK, f"--limit={second}", expect=2)
    finally:
        mounts(nodes, third, "umount", "/opt")
    assert done.output.count("STOPS  ") == 3
    assert f"STOPS  repository_answers http://127.0.0.1:9/dead/./InRelease: {first}" in done.output
    assert f"STOPS  rail_claim {rail}: {second}" in done.output
    assert f"STOPS  disk_space /opt: {third}" in done.output
    assert "preflight: 1 host, " in limited.output and limited.output.count("STOPS  ") == 1
    nodes.play(PLAYBOOK)
