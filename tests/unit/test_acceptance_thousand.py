# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A thousand nodes with twelve faults: all are named, and nothing else. Noise of 1 % is a guess."""

from __future__ import annotations

import random
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import rounds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    CABLE,
    NODE,
    NOT_REPRODUCED,
    RAIL,
    SPINE,
    Direction,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.search import Search

from tests.unit.acceptance_fabric import Fabric, fabric

TOPOLOGY = fabric(25, 40, rails=8, spines=32)
CHANCE = random.Random(1000)
NODES = CHANCE.sample(TOPOLOGY.nodes, 7)
CABLES = CHANCE.sample(TOPOLOGY.cables, 4)
THE_SPINE = CHANCE.choice(
    sorted({cable.upper for cable in TOPOLOGY.cables} - {cable.upper for cable in CABLES})
)
RAILS = [(NODES[3], "rail1"), (NODES[4], "rail7"), (NODES[5], "rail0"), (NODES[6], "rail3")]
SLOW: dict[Any, float] = {
    **dict(zip(NODES, (0.5, 0.8, 0.3))),
    **dict(zip(RAILS, (0.5, 0.85, 0))),
    (*RAILS[3], "receives"): 0.4,
    **dict.fromkeys(CABLES[:2], 0.1),
    Direction(CABLES[2], True): 0.1,
    Direction(CABLES[3], False): 0.1,
    THE_SPINE: 0.2,
}
EXPECTED = {
    *((NODE, node) for node in NODES[:3]),
    *((RAIL, " ".join(end)) for end in RAILS),
    *((CABLE, str(cable)) for cable in CABLES),
    (SPINE, THE_SPINE),
}


def found(slow: dict[Any, float]) -> set[tuple[str, str]]:
    bed = Fabric(TOPOLOGY, slow, both=True)
    search = Search(TOPOLOGY, 1000, bed.run(rounds.probes(TOPOLOGY, 10)))
    while search.next():
        search.take(bed.run(search.next()))
    return {(verdict.kind, verdict.subject) for verdict in search.verdicts()}


def test_twelve_faults_are_named_and_nothing_else() -> None:
    assert len(EXPECTED) == 12
    assert found(SLOW) == EXPECTED


def test_a_healthy_thousand_needs_no_search() -> None:
    assert found({}) == {(NOT_REPRODUCED, "")}
