# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Fixtures of every scenario: its nodes and its converge playbook.

Molecule runs the tests of one scenario on the nodes that it created. ./test runs the tests of many
scenarios on the converged clusters of tests/integration; each test still gets the playbook of its
scenario.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed.stand_ins.cluster import STAND_INS
from tests.nodes import CLUSTER, INVENTORY, MACHINES, TOP, Nodes

ON_STAND_INS = ("lustre_client", "nvidia_gpu", "rdma_stack")
"""Scenarios on nodes that imitate GPU nodes or Lustre clients: tests/bed/stand_ins/README.md."""


def scenario() -> Path | None:
    """Return the folder of the scenario that Molecule runs."""
    folder = os.environ.get("MOLECULE_SCENARIO_DIRECTORY")
    return Path(folder) if folder else None


def inventory(folder: Path) -> Path:
    if (folder / "inventory").exists():
        return folder / "inventory"
    if folder.name in ON_STAND_INS:
        return STAND_INS.nodes.inventory
    return MACHINES if folder.name == "site_rdma" else INVENTORY


RUNS = scenario()
NODES = Nodes(inventory(RUNS)) if RUNS else CLUSTER.nodes


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> Iterator[None]:
    yield
    CLUSTER.down()
    STAND_INS.down()


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest) -> Nodes:
    if RUNS:
        return NODES
    if request.path.parents[1].name in ON_STAND_INS:
        return STAND_INS.converged()
    return CLUSTER.fresh() if request.path.parent.name == "fresh" else CLUSTER.converged()


@pytest.fixture(scope="module")
def converge(request: pytest.FixtureRequest) -> str:
    """Return the converge playbook of the test's scenario."""
    of_it = request.path.parents[1] / "converge.yml"
    shared = TOP / "molecule/site/converge.yml"
    return str(RUNS / "converge.yml" if RUNS else of_it if of_it.exists() else shared)


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(TOP / "molecule"):
            item.add_marker(pytest.mark.nodes)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `compute`, `launcher` or `node` once on each host of that kind."""
    groups = {"compute": ["compute"], "launcher": ["launcher"], "node": ["compute", "launcher"]}
    for name, members in groups.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, NODES.group(*members), indirect=True, scope="module")


def _host(request: pytest.FixtureRequest, nodes: Nodes):
    return nodes.on(request.param)


compute = pytest.fixture(scope="module", name="compute")(_host)
launcher = pytest.fixture(scope="module", name="launcher")(_host)
node = pytest.fixture(scope="module", name="node")(_host)
