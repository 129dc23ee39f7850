# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A thousand nodes with twelve faults, at the noise of measured pairs: all are named, and nothing
else. `./test --bench search` has more seeds and other noise."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import rounds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    NOT_REPRODUCED,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.search import Search

from tests.unit.acceptance_fabric import PAIRS, REPEATED, Fabric, fabric, planted

TOPOLOGY = fabric(25, 40, rails=8, spines=32)


def found(slow: dict[Any, float], seed: int) -> set[tuple[str, str]]:
    bed = Fabric(TOPOLOGY, slow, both=True, seed=seed, noise=REPEATED, pairs=PAIRS)
    search = Search(TOPOLOGY, 1000, bed.run(rounds.probes(TOPOLOGY, 10)))
    while search.next():
        search.take(bed.run(search.next()))
    return {(verdict.kind, verdict.subject) for verdict in search.verdicts()}


@pytest.mark.parametrize("seed", [4, pytest.param(5, marks=pytest.mark.slow)])
def test_twelve_faults_are_named_and_nothing_else(seed: int) -> None:
    slow, expected = planted(TOPOLOGY, seed)
    assert len(expected) == 12
    assert found(slow, seed) == expected


def test_a_healthy_thousand_needs_no_search() -> None:
    assert found({}, 0) == {(NOT_REPRODUCED, "")}
