# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The search names planted faults of a simulated fabric, and nothing in a healthy one."""

from __future__ import annotations

import contextlib
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import rounds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    ALIKE,
    CABLE,
    LOSSY,
    NODE,
    NOT_REPRODUCED,
    RAIL,
    SPINE,
    UNFINISHED,
    Direction,
    Figure,
    Port,
    Topology,
    Uplink,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.measured import Measured
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.outliers import analyse
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.search import (
    Search,
    StateError,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import acceptance_fabric
from tests.unit.acceptance_fabric import Fabric, fabric, gauss, uniform
from tests.unit.small_model import places

FOUR = fabric(2, 2, rails=2, spines=2)
EIGHT = fabric(2, 4, rails=4, spines=4)
PLANES = fabric(4, 16, rails=2, spines=16, planes=2)
GROUPS = fabric(8, 29, rails=8, spines=32)
"""232 nodes."""
RUNS = 400


def searched(bed: Fabric, known: tuple[Figure, ...] = (), **options: Any) -> Search:
    options = {"max_runs": RUNS, "both": bed.both, **options}
    search = Search(bed.topology, given=known, **options)
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


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("slow", "kind", "subject"), FAULTS)
@pytest.mark.parametrize("topology", [FOUR, EIGHT, PLANES])
def test_one_fault_is_named(
    topology: Topology, slow: Any, kind: str, subject: Any, known: bool
) -> None:
    bed = Fabric(topology, slow(topology), seed=1)
    search = searched(bed, measured(bed, 8) if known else ())
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


def five() -> Topology:
    """As inventories/virtual-acceptance: both rails of two nodes on a leaf, of which the last has
    one node; two spines."""
    sets = fabric(3, 2, rails=1, spines=2)
    first = {node: ports["rail0"] for node, ports in [*sets.ports.items()][:5]}
    ports = {
        node: {rail: port._replace(speed_gbps=400.0) for rail in ("rail0", "rail1")}
        for node, port in first.items()
    }
    return Topology(ports, sets.cables, sets.speeds)


FIVE = five()
ENDS = [(node, rail) for node in FIVE.nodes for rail in FIVE.rails]
PARTS: list[tuple[Any, float, str, str, int]] = [
    *((each, 0.1, CABLE, str(each), 8) for each in FIVE.cables),
    *((end, 0.1, RAIL, " ".join(end), 7) for end in ENDS),
    *((node, 0.2, NODE, node, 8) for node in FIVE.nodes),
    *((node, 0.42, NODE, node, 14) for node in FIVE.nodes),
]


@pytest.mark.parametrize(("part", "share", "kind", "subject", "runs"), PARTS)
def test_parts_of_five_nodes_with_one_connection_are_named(
    part: Any, share: float, kind: str, subject: str, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the pairs on a leaf have the slow node, and a cable the flows of one or two nodes."""
    monkeypatch.setattr(acceptance_fabric, "DEFAULT_QUEUE_PAIRS", 1)
    count = 0
    for seed in range(5):
        bed = Fabric(FIVE, {part: share}, noise=gauss(0.05), seed=seed, both=True)
        search = searched(bed, measured(bed))
        assert named(search) == [(kind, subject)], seed
        count += search.runs
    assert count <= 5 * runs


def bursts(chance: random.Random) -> float:
    """One measurement of ten is delayed, as on a machine with other work."""
    return chance.uniform(0.6, 0.9) if chance.random() < 0.1 else chance.gauss(1.0, 0.002)


@pytest.mark.parametrize("slow", FIVE.cables)
def test_delayed_flows_name_no_further_cable(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance_fabric, "DEFAULT_QUEUE_PAIRS", 1)
    for seed in range(10):
        bed = Fabric(FIVE, {slow: 0.1}, noise=bursts, seed=seed, both=True)
        assert named(searched(bed, measured(bed))) == [(CABLE, str(slow))], seed


def test_pairs_over_a_lossy_cable_are_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are."""
    monkeypatch.setattr(acceptance_fabric, "DEFAULT_QUEUE_PAIRS", 1)
    lossy, slow = FIVE.cables[0], FIVE.cables[5]
    bed = Fabric(FIVE, {lossy: 0.1}, both=True)
    search = searched(bed, measured(bed), lossy=[lossy])
    assert (search.runs, named(search)) == (0, [(LOSSY, "")])
    bed = Fabric(FIVE, {lossy: 0.1, slow: 0.1}, both=True)
    assert (CABLE, str(slow)) in named(searched(bed, measured(bed), lossy=[lossy]))


def test_a_pair_without_a_figure_over_a_lossy_cable_makes_no_leaf_suspect() -> None:
    """As measured: one packet of 50 lost, and all other pairs as fast as usual."""
    first, second = FIVE.nodes[4], FIVE.nodes[1]
    figures = [
        replace(one, gbits_s=None, error="no answer") if one.pair == (first, second) else one
        for one in measured(Fabric(FIVE, both=True))
    ]
    assert searched(Fabric(FIVE, both=True), tuple(figures)).runs
    search = searched(Fabric(FIVE, both=True), tuple(figures), lossy=[FIVE.cables[4]])
    assert (search.runs, named(search)) == (0, [(LOSSY, "")])


def test_the_usual_value_is_that_of_pairs_without_the_slow_node() -> None:
    """Its pair is one of two on a leaf, or the only one, which is slower than across spines."""
    slow = FIVE.nodes[1]
    for nodes in (FIVE.nodes, [*FIVE.nodes[:3], FIVE.nodes[4]]):
        topology = Topology({node: FIVE.ports[node] for node in nodes}, FIVE.cables, FIVE.speeds)
        figures = measured(Fabric(topology, {slow: 0.42}, both=True))
        found = Measured(topology, analyse(figures, topology), figures)
        assert found.usual("rail0")[1] > 0.6 * 400, nodes


def test_five_healthy_nodes_with_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance_fabric, "DEFAULT_QUEUE_PAIRS", 1)
    for seed in range(20):
        bed = Fabric(FIVE, noise=gauss(0.05), seed=seed, both=True)
        assert [kind for kind, _subject in named(searched(bed, measured(bed)))] == [NOT_REPRODUCED]


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


def test_an_interrupted_search_continues() -> None:
    bed = Fabric(EIGHT, {("node0001", "rail1"): 0.4, cable(EIGHT): 0.1}, seed=3)
    search = Search(EIGHT, RUNS, measured(bed), both=False)
    while search.next():
        state = json.loads(json.dumps(search.state()))
        resumed = Search.resumed(EIGHT, state)
        assert resumed.next() == search.next()
        assert resumed.runs == search.runs
        search = resumed
        search.take(bed.run(search.next()))
    assert named(search) == [(RAIL, "node0001 rail1"), (CABLE, str(cable(EIGHT)))]
    assert Search.resumed(EIGHT, search.state()).verdicts() == search.verdicts()


def test_a_state_of_another_search_is_refused() -> None:
    bed = Fabric(EIGHT, {"node0001": 0.4})
    search = Search(EIGHT, RUNS, measured(bed))
    search.take(bed.run(search.next()))
    state = json.loads(json.dumps(search.state()))
    for other in (FOUR, PLANES):
        with pytest.raises(StateError):
            Search.resumed(other, state)
    del state["taken"][0][0]
    with pytest.raises(StateError):
        Search.resumed(EIGHT, state)


HOSTILE = st.sampled_from([None, True, -1, 1 << 70, 0.5, float("nan"), "", "node0000", [], {}])


@given(st.data())
def test_a_damaged_state_is_refused_or_read(data: st.DataObject) -> None:
    bed = Fabric(FOUR, {cable(FOUR): 0.1})
    search = Search(FOUR, 40, measured(bed), both=False)
    for _turn in range(2):
        search.take(bed.run(search.next()))
    state = json.loads(json.dumps(search.state()))
    path = data.draw(st.sampled_from(places(state)[1:]))
    value = data.draw(HOSTILE)
    where: Any = state
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    with contextlib.suppress(StateError):
        Search.resumed(FOUR, state).verdicts()


def test_without_counters_the_candidates_are_named() -> None:
    topology = fabric(4, 4, rails=2, spines=4)
    bed = Fabric(topology, {Direction(topology.cables[3], True): 0.1}, counters=False, both=True)
    (verdict,) = searched(bed).verdicts()
    assert verdict.kind == CABLE
    assert str(topology.cables[3]) in verdict.candidates


def test_two_nodes_cannot_be_told_apart() -> None:
    topology = fabric(1, 2, rails=2)
    bed = Fabric(topology, {("node0000", "rail1"): 0.3}, both=True)
    (verdict,) = searched(bed).verdicts()
    assert (verdict.kind, {*verdict.candidates}) == (RAIL, {"node0000 rail1", "node0001 rail1"})


def test_drops_separate_the_cables_of_two_leaves() -> None:
    """All flows between two leaves over one spine use the same two cables."""
    topology = two_leaves()
    slow = Direction(topology.cables[0], True)
    bed = Fabric(topology, {slow: 0.1}, both=True)
    (verdict,) = searched(bed).verdicts()
    assert len(verdict.candidates) > 1
    bed = Fabric(topology, {slow: 0.1}, both=True, lossy=True)
    assert named(searched(bed)) == [(CABLE, str(topology.cables[0]))]


def two_leaves() -> Topology:
    """Two leaves for both rails, two spines, two nodes a leaf."""
    cables = tuple(
        Uplink(leaf, f"up{spine}", f"spine{spine}", f"down-{leaf}")
        for leaf in ("leaf0", "leaf1")
        for spine in (0, 1)
    )
    ports = {
        f"node{number}": {rail: Port(f"leaf{number // 2}", 10.0) for rail in ("rail0", "rail1")}
        for number in range(4)
    }
    return Topology(ports, cables, dict.fromkeys(cables, 10.0))
