# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The virtual nodes, started once for all integration tests and removed after them.

KEEP_NODES=1 leaves them running, to examine a failed test.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed.stand_ins.cluster import STAND_INS
from tests.fabric import FABRIC
from tests.nodes import CLUSTER, MACHINES, Nodes


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> Iterator[None]:
    yield
    for cluster in (CLUSTER, FABRIC, STAND_INS):
        cluster.down()


@pytest.fixture(scope="module")
def fresh_nodes(_cluster: None) -> Nodes:
    """Nodes of both families, running, in the state of their images."""
    return CLUSTER.fresh()


@pytest.fixture(scope="module")
def nodes(_cluster: None) -> Nodes:
    """The same nodes after a run of site.yml. A test that changes a node restores it."""
    return CLUSTER.converged()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort tests by the state that they need, so that nodes are recreated as rarely as possible."""

    def turn(item: pytest.Item) -> int:
        if item.path.parent.name == "fresh":
            return 0
        return 1 if "fresh_nodes" in getattr(item, "fixturenames", ()) else 2

    items.sort(key=turn)


@pytest.fixture(scope="session")
def fresh_machines() -> Iterator[Nodes]:
    """Virtual machines with Soft-RoCE, running, in the state of the disk image."""
    with Nodes(MACHINES).new() as nodes:
        yield nodes


@pytest.fixture(scope="session")
def machines(fresh_machines: Nodes) -> Nodes:
    """The same machines after a run of site.yml. A test that changes a machine restores it."""
    fresh_machines.play("site.yml")
    return fresh_machines
