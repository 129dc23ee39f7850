# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The search names planted faults of a simulated fabric, and nothing in a healthy one."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import rounds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    ALIKE,
    CABLE,
    NODE,
    NOT_REPRODUCED,
    RAIL,
    SPINE,
    UNFINISHED,
    Direction,
    Figure,
    Topology,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.search import Search

from tests.unit.acceptance_fabric import Fabric, fabric, uniform

FOUR = fabric(2, 2, rails=2, spines=2)
EIGHT = fabric(2, 4, rails=4, spines=4)
PLANES = fabric(4, 16, rails=2, spines=16, planes=2)
GROUPS = fabric(8, 29, rails=8, spines=32)
"""232 nodes."""
RUNS = 400


def searched(bed: Fabric, given: tuple[Figure, ...] = (), **options: Any) -> Search:
    options = {"max_runs": RUNS, "both": bed.both, **options}
    search = Search(bed.topology, given=given, **options)
    while search.next():
        nodes = [
            node for probe in search.next() for node in {n for pair in probe.pairs for n in pair}
        ]
        assert len(nodes) == len({*nodes})  # of one list, simultaneously
        search.take(bed.run(search.next()))
    return search


def named(search: Search) -> list[tuple[str, str]]:
    return [(verdict.kind, verdict.subject) for verdict in search.verdicts()]


def measured(bed: Fabric, count: int | None = None) -> tuple[Figure, ...]:
    return tuple(bed.run(rounds.probes(bed.topology, count)))


def cable(topology: Topology) -> Any:
    return topology.cables[3]


FAULTS: list[tuple[Any, str, Any]] = [
    (lambda topology: {topology.nodes[1]: 0.5}, NODE, lambda t: t.nodes[1]),
    (
        lambda topology: {(topology.nodes[1], topology.rails[-1]): 0.4},
        RAIL,
        lambda t: f"{t.nodes[1]} {t.rails[-1]}",
    ),
    (lambda topology: {cable(topology): 0.1}, CABLE, lambda t: str(cable(t))),
    (lambda topology: {Direction(cable(topology), True): 0.1}, CABLE, lambda t: str(cable(t))),
    (lambda topology: {Direction(cable(topology), False): 0.1}, CABLE, lambda t: str(cable(t))),
    (lambda topology: {cable(topology).upper: 0.1}, SPINE, lambda t: cable(t).upper),
]


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("slow", "kind", "subject"), FAULTS)
@pytest.mark.parametrize("topology", [FOUR, EIGHT, PLANES])
def test_one_fault_is_named(
    topology: Topology, slow: Any, kind: str, subject: Any, given: bool
) -> None:
    bed = Fabric(topology, slow(topology), seed=1)
    search = searched(bed, measured(bed, 8) if given else ())
    if (kind, given, topology) != (SPINE, True, FOUR):  # half of all figures of four nodes are low
        assert named(search) == [(kind, subject(topology))]


@pytest.mark.parametrize(("slow", "kind", "subject"), FAULTS)
def test_232_nodes_take_at_most_55_runs(slow: Any, kind: str, subject: Any) -> None:
    search = searched(Fabric(GROUPS, slow(GROUPS), seed=2, both=True))
    assert named(search) == [(kind, subject(GROUPS))]
    assert search.runs <= 55


@pytest.mark.parametrize("noise", [None, uniform(0.25)])
@pytest.mark.parametrize("topology", [FOUR, EIGHT, PLANES])
def test_a_healthy_cluster_has_no_verdict(topology: Topology, noise: Any) -> None:
    for seed in range(20):
        bed = Fabric(topology, seed=seed, **({"noise": noise} if noise else {}))
        search = searched(bed, measured(bed, 8) if seed % 2 else ())
        assert [kind for kind, _subject in named(search)] == [NOT_REPRODUCED], seed


def test_all_pairs_below_the_expectation() -> None:
    slow = dict.fromkeys(EIGHT.nodes, 0.5)
    bed = Fabric(EIGHT, slow)
    assert [kind for kind, _ in named(searched(bed, measured(bed), least=0.8))] == [ALIKE]
    bed = Fabric(EIGHT)
    assert [kind for kind, _ in named(searched(bed, measured(bed), least=0.8))] != [UNFINISHED]


def test_the_budget_is_kept() -> None:
    for most in range(0, 36, 5):
        search = searched(Fabric(GROUPS, {"node0007": 0.5}, both=True), max_runs=most)
        assert search.runs <= most
        (verdict,) = search.verdicts()
        assert verdict.kind == UNFINISHED
        assert verdict.runs == search.runs
    assert "node0007 rail0" in verdict.candidates
