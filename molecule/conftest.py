# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the tests of every scenario get: the scenario's nodes and its converge playbook."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.nodes import INVENTORY, MACHINES, TOP, Nodes

SCENARIO = Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
OWN = SCENARIO / "inventory"
SHARED = MACHINES if SCENARIO.name == "site_rdma" else INVENTORY
STAND_INS = ("lustre_client", "nvidia_gpu", "rdma_stack")
"""Scenarios on nodes that play GPU nodes, or Lustre clients: tests/stand_ins/README.md."""
if SCENARIO.name in STAND_INS:
    SHARED = TOP / "build/stand-ins/inventory"
NODES = Nodes(OWN if OWN.exists() else SHARED)


@pytest.fixture(scope="session")
def nodes() -> Nodes:
    return NODES


@pytest.fixture(scope="session")
def converge() -> str:
    """The playbook of the scenario whose tests these are."""
    return str(SCENARIO / "converge.yml")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `compute`, `launcher` or `node` runs once on each host of that kind."""
    groups = {"compute": ["compute"], "launcher": ["launcher"], "node": ["compute", "launcher"]}
    for name, members in groups.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, NODES.group(*members), indirect=True, scope="session")


def _host(request: pytest.FixtureRequest):
    return NODES.on(request.param)


compute = pytest.fixture(scope="session", name="compute")(_host)
launcher = pytest.fixture(scope="session", name="launcher")(_host)
node = pytest.fixture(scope="session", name="node")(_host)
