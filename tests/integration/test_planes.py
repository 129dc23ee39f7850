# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A twin-planar cluster with two kinds of nodes and two launchers: inventories/virtual-planes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.fabric import failed_links, switch
from tests.nodes import TOP, Cluster, Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

PLANES = Cluster(TOP / "inventories/virtual-planes")
RANKS = 6 * 2 + 2
"""Of six nodes with GPUs and of two without."""
SWAPPED = [
    (("leaf01", "node01"), ("leaf02", "node01")),
    (("leaf03", "spine01"), ("leaf04", "spine03")),
    (("leaf05", "spine02"), ("leaf06", "spine04")),
]
"""Two cables of different planes each, by leaf and peer, on every system."""


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    yield PLANES.converged()
    PLANES.down()


def test_the_smoke_test_passes_on_both_kinds(nodes: Nodes) -> None:
    done = nodes.play("playbooks/smoke.yml")
    hosts = done.report["layers"]["smoke"]["hosts"]
    assert [host for host in hosts if done.checks("smoke", host)] == ["launcher01"]
    assert done.failed("smoke") == []
    assert f"{RANKS} ranks on 8 nodes" in done.output


def test_a_second_run_changes_nothing(nodes: Nodes) -> None:
    done = nodes.play("site.yml")
    assert done.hosts_with("changed") == set()


def test_rails_of_a_plane_reach_the_other_unit(nodes: Nodes) -> None:
    for near, far in (("node01", "node05"), ("node04", "node05"), ("node08", "node04")):
        for rail in nodes.of(near)["cluster_rails"]:
            name = rail["interface"]
            done = nodes.on(near).run(f"ping -c1 -W2 -M do -s 8972 -I {name} {far}-{name}")
            assert done.rc == 0, done.stdout


Ports = dict[str, dict[str, str]]
"""LLDP neighbours that a switch reports, by port."""


def test_cables_swapped_across_planes_are_named(nodes: Nodes) -> None:
    heard: dict[str, Ports] = {}
    wanted: dict[str, list[str]] = {}
    for pair in SWAPPED:
        cables = []
        for leaf, peer in pair:
            at = next(
                port
                for group in nodes.of(leaf)["cluster_ports"]
                for port, name in group["peers"].items()
                if name == peer
            )
            cables.append((leaf, at, known(nodes, leaf)[at]))
        for (leaf, port, _), (_, _, neighbour) in zip(cables, reversed(cables)):
            heard.setdefault(leaf, {})[port] = neighbour
        subject = " and ".join(f"{leaf} {port}" for leaf, port, _ in cables)
        wanted[subject] = [leaf for leaf, _ in pair]
    for name, lldp in heard.items():
        switch(nodes, name).fault(lldp=lldp)
    try:
        done = nodes.play("playbooks/links.yml", expect=2)
    finally:
        for name in heard:
            switch(nodes, name).well()
    wrong = done.failed("links")
    assert {check["subject"] for check in wrong} == set(wanted)
    assert all("swapped" in check["reason"] for check in wrong)
    assert set(failed_links(done)) == {host for hosts in wanted.values() for host in hosts}


def known(nodes: Nodes, leaf: str) -> Ports:
    described = json.loads(switch(nodes, leaf).shell("cat /etc/virtual-switch/switch.json"))
    return {
        port["name"]: {"system": port["peer"], "port": port["peer_interface"]}
        for port in described["ports"]
    }


def test_a_job_runs_from_the_second_launcher(nodes: Nodes) -> None:
    words = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK"]
    variables = json.dumps({"mpi_job_launcher": "launcher02", "mpi_job_program": words})
    done = nodes.play("playbooks/run.yml", f"--extra-vars={variables}")
    assert len(set(re.findall(r"rank (\d+)", done.output))) == RANKS
    assert re.search(r"^job \w+: /\S+ on launcher02$", done.output, re.MULTILINE)
