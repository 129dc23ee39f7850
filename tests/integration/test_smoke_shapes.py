# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The smoke test on clusters whose shape differs from the shared one's, in a separate instance.

A healthy cluster passes with any number of nodes, ranks, planes and networks, even if both cores
are busy. A rail that is down, or not used by MPI, is named.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.bed.instances import describe
from tests.nodes import Nodes

pytestmark = [pytest.mark.nodes, pytest.mark.long]

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: vnsmoke
mpi: {user: mpi, uid: 2000}
management: {subnet: 10.236.0.0/24, interface: mgmt0}
nodes: {name: "node{:02d}", management_first: 10.236.0.11, %(nodes)s}
gpus: {count: %(gpus)s}
rails: {count: %(gpus)s, speed_gbps: 10, mtu: 9000%(rails)s}
addresses: {pool: 10.136.0.0/16, %(plan)s}
leaves: {count: %(leaves)s, management_first: 10.236.0.101, ports: 64}
%(more)s
%(launchers)s
"""
SUBNETS = "plan: subnet_per_rail, prefix: 24"
RUNS, RUNS_UNDER_LOAD = 8, 2
BUSY = [sys.executable, "-c", "while True: pass"]
SMOKE = "playbooks/smoke.yml"
LAYERS = "names,rails,mpi,hostfile,ssh"
VICTIM = "node02"


@dataclass(frozen=True)
class Shape:
    nodes: str
    gpus: int
    leaves: int
    rails: str = ""
    plan: str = SUBNETS
    more: str = ""
    variables: str = ""
    launchers: str = "launcher: {name: launcher01, management: 10.236.0.10}"
    layers: str = ""
    """Tags in addition to LAYERS."""
    rail: str = "rail1"
    """The interface that is removed."""
    other: str = "rail0"
    """The interface that its rank uses instead."""

    @property
    def model(self) -> str:
        return MODEL % vars(self)


SHAPES = {
    "3 nodes of 2 rails x 2 planes": Shape(
        "count: 3", 2, 4, rails=", planes: 2", rail="rail1p1", other="rail1p0"
    ),
    "3 nodes of 1, 3 and 4 slots, of three systems": Shape(
        "count: 3, overrides: {"
        "node01: {slots: 1, vars: {virtual_nodes_release: '26.04'}}, node02: {slots: 3}, "
        "node03: {slots: 4, vars: {virtual_nodes_family: el, virtual_nodes_release: '10.1'}}}",
        4,
        4,
        layers="os",
    ),
    "4 nodes of 2 slots, routed": Shape(
        "count: 4",
        2,
        2,
        plan="plan: point_to_point",
        more="spines: {count: 2, ports: 64, management_first: 10.236.0.121}",
        variables="virtual_nodes_fabric: routed\n",
    ),
    "3 nodes, one of a kind without GPUs, and 2 launchers": Shape(
        "count: 3, overrides: {node03: {kind: cpu}}",
        2,
        2,
        more="kinds: {cpu: {gpus: {count: 0}, rails: {count: 1}, slots: 3}}",
        launchers="launchers: [{name: launcher01, management: 10.236.0.10}, "
        "{name: launcher02, management: 10.236.0.9}]",
    ),
    "7 nodes of 8 slots": Shape("count: 7", 8, 8),
    "5 nodes of 8 slots": Shape("count: 7, drained: [node06, node07]", 8, 8),
    "3 nodes of 8 slots": Shape("count: 7, drained: [node04, node05, node06, node07]", 8, 8),
}


@pytest.fixture(scope="module", params=SHAPES)
def shape(request: pytest.FixtureRequest) -> Shape:
    return SHAPES[request.param]


@pytest.fixture(scope="module")
def nodes(shape: Shape, tmp_path_factory: pytest.TempPathFactory) -> Nodes:
    folder = tmp_path_factory.mktemp("shape") / "inventory"
    nodes = describe(folder, shape.model, like="virtual-mixed")
    everybody = folder / "group_vars/all.yml"
    everybody.write_text(f"{everybody.read_text()}virtual_nodes_family: ubuntu\n{shape.variables}")
    if "drained" not in shape.nodes:  # those have the nodes of the previous shape
        nodes.state(present=False)
    nodes.state(present=True)
    nodes.play("site.yml", f"--tags={LAYERS},{shape.layers}".rstrip(","))
    return nodes


@pytest.fixture(scope="module", autouse=True)
def _down(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    if not os.environ.get("KEEP_NODES"):
        last = list(SHAPES.values())[-1].model
        describe(tmp_path_factory.mktemp("down") / "inventory", last).state(present=False)


@contextlib.contextmanager
def load(on: bool) -> Iterator[None]:
    busy = [subprocess.Popen(BUSY) for _ in range(os.cpu_count() or 2)] if on else []
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("loaded", [*[False] * RUNS, *[True] * RUNS_UNDER_LOAD])
def test_a_healthy_cluster_passes(nodes: Nodes, loaded: bool) -> None:
    with load(loaded):
        run = nodes.play(SMOKE)
    assert run.failed("smoke") == []


def found(nodes: Nodes, rail: str) -> None:
    run = nodes.play(SMOKE, expect=None)
    lines = [" ".join(map(str, check.values())) for check in run.failed("smoke")]
    assert run.rc != 0
    assert any(VICTIM in line and rail in line for line in lines), lines


def test_a_rail_that_is_down_is_found(nodes: Nodes, shape: Shape) -> None:
    nodes.on(VICTIM).check_output(f"ip link set {shape.rail} down")
    try:
        found(nodes, shape.rail)
    finally:
        nodes.on(VICTIM).check_output(f"ip link set {shape.rail} up")
        nodes.play("site.yml", "--tags=rails")
    nodes.play(SMOKE)


def test_a_rail_that_mpi_does_not_use_is_found(nodes: Nodes, shape: Shape) -> None:
    """Set another rail in the environment of the rail's ranks, by hand.

    On every node: over TCP, UCX before 1.18 sends by the rail whose network the peer is in.
    """
    change = f"/^MPI_ROCE_RAILS_BY_RANK=/s/\\b{shape.rail}\\b/{shape.other}/"
    for name in nodes.group("compute"):
        nodes.on(name).check_output(f"sed -i '{change}' /etc/baremetal-mpi-roce/mpi.env")
    try:
        found(nodes, shape.rail)
    finally:
        nodes.play("site.yml", "--tags=mpi")
