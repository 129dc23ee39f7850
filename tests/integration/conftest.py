# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The virtual nodes, brought up once for all integration tests and taken down after them.

KEEP_NODES=1 leaves them up, for a look at what a failed test left.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.nodes import INVENTORY, MACHINES, Nodes


@pytest.fixture(scope="session")
def fresh_nodes() -> Iterator[Nodes]:
    """Nodes of both families, up, and as the image made them."""
    yield from _up_and_down(Nodes(INVENTORY))


def _up_and_down(nodes: Nodes) -> Iterator[Nodes]:
    nodes.state(present=False)
    nodes.state(present=True)
    yield nodes
    if not os.environ.get("KEEP_NODES"):
        nodes.state(present=False)


@pytest.fixture(scope="session")
def nodes(fresh_nodes: Nodes) -> Nodes:
    """The same nodes after one run of site.yml. A test that changes one puts it back."""
    fresh_nodes.play("site.yml")
    return fresh_nodes


@pytest.fixture(scope="session")
def fresh_machines() -> Iterator[Nodes]:
    """Machines with kernels of their own and Soft-RoCE, up, and as the disk image made them."""
    yield from _up_and_down(Nodes(MACHINES))


@pytest.fixture(scope="session")
def machines(fresh_machines: Nodes) -> Nodes:
    """The same machines after one run of site.yml. A test that changes one puts it back."""
    fresh_machines.play("site.yml")
    return fresh_machines
