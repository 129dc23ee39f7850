# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A twin-planar cluster with two kinds of nodes and two launchers: inventories/virtual-planes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.fabric import switch
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
    try:
        yield PLANES.converged()
    finally:
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


def test_unbound_traffic_stays_on_the_plane(nodes: Nodes) -> None:
    for rail in nodes.of("node05")["cluster_rails"]:
        name = rail["interface"]
        done = nodes.on("node01").check_output(f"ip route get {rail['address']}")
        assert f" dev {name} " in done
        assert nodes.on("node01").run(f"ping -c1 -W2 node05-{name}").rc == 0


def test_cables_swapped_across_planes_are_named(nodes: Nodes) -> None:
    heard: dict[str, dict[str, dict[str, str]]] = {}
    wanted = set()
    for pair in SWAPPED:
        first, second = (cable(nodes, *ends) for ends in pair)
        for one, other in ((first, second), (second, first)):
            for (name, port), (neighbour, at) in zip(one, other):
                if not name.startswith("node"):
                    heard.setdefault(name, {})[port] = known(nodes, neighbour)[at]
        wanted.add(" and ".join(f"{name} {port}" for name, port in (first[0], second[0])))
    for name, lldp in heard.items():
        switch(nodes, name).fault(lldp=lldp)
    try:
        done = nodes.play("playbooks/links.yml", expect=2)
    finally:
        for name in heard:
            switch(nodes, name).well()
    wrong = done.failed("links")
    assert {check["subject"] for check in wrong} == wanted
    assert all("swapped" in check["reason"] for check in wrong)
    assert nodes.play("playbooks/links.yml").failed("links") == []


def cable(nodes: Nodes, leaf: str, peer: str) -> list[tuple[str, str]]:
    """Both ends of the cable between a leaf and its peer."""
    return next(
        [(leaf, port), (peer, group["peer_interface"])]
        for group in nodes.of(leaf)["cluster_ports"]
        for port, name in group["peers"].items()
        if name == peer
    )


def known(nodes: Nodes, name: str) -> dict[str, dict[str, str]]:
    """The LLDP neighbours of a switch, by port, before its cables are swapped."""
    described = json.loads(switch(nodes, name).shell("cat /etc/virtual-switch/switch.json"))
    return {
        port["name"]: {"system": port["peer"], "port": port["peer_interface"]}
        for port in described["ports"]
    }


@pytest.mark.parametrize(("kind", "ranks"), [("all", RANKS), ("cpu", 2)])
def test_a_job_runs_from_the_second_launcher(nodes: Nodes, kind: str, ranks: int) -> None:
    words = ["sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK"]
    variables = {"mpi_job_program": words, "mpi_job_kind": kind}
    named = "--extra-vars=mpi_job_launcher=launcher02"
    done = nodes.play("playbooks/run.yml", f"--extra-vars={json.dumps(variables)}", named)
    assert len(set(re.findall(r"rank (\d+)", done.output))) == ranks
    assert re.search(r"^job \w+: /\S+ on launcher02$", done.output, re.MULTILINE)
