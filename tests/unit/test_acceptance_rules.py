# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules of the search, each by the fewest figures that decide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import ends, rounds
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    ACROSS,
    CABLE,
    NODE,
    RAIL,
    SPINE,
    Direction,
    Figure,
    Probe,
    Uplink,
    Verdict,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.outliers import analyse
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.paths import Paths
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.search import Search
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.traces import Traces

from tests.unit.acceptance_fabric import Fabric, fabric

FIVE = fabric(5, 2, rails=1, spines=2)
"""Two nodes on each leaf: node0000 and node0001 on leaf00, and so on."""


def cable(leaf: int, spine: int) -> Uplink:
    (found,) = (
        each
        for each in FIVE.cables
        if each.lower == f"leaf{leaf:02}-rail0" and each.upper == f"spine0-{spine:02}"
    )
    return found


def flows(*given: tuple[int, int, int, float]) -> Paths:
    """Of flows from a node to a node over a spine, with their share of the line rate."""
    paths = Paths(FIVE, {(node, "rail0") for node in FIVE.nodes})
    for first, second, spine, share in given:
        pair = f"node{first:04}", f"node{second:04}"
        way = Direction(cable(first // 2, spine), True), Direction(cable(second // 2, spine), False)
        figure = Figure("rail0", *pair, 800 * share, cables=dict.fromkeys(way, 10**9))
        paths.add(Probe("rail0", (pair,), "", 1, True), [figure])
    paths.mark(0.5)
    return paths


GOOD = [(4, 6, 0, 1.0), (6, 2, 0, 1.0), (2, 4, 0, 1.0), (4, 2, 1, 1.0)]
"""Every cable of leaf01 to leaf03 to spine0-00 in one direction or both."""


def test_one_slow_flow_names_no_cable() -> None:
    named, left = flows(*GOOD, (0, 2, 0, 0.1)).explained()
    assert named == []
    assert [each.cables for each in left] == [{cable(0, 0)}]


def test_slow_flows_of_one_node_name_no_cable() -> None:
    named, _left = flows(*GOOD, (0, 2, 0, 0.1), (0, 4, 0, 0.1)).explained()
    assert named == []


def test_one_slow_flow_that_is_not_explained_is_chance() -> None:
    paths = flows(*GOOD, (0, 2, 0, 0.1))
    assert paths.unexplained(paths.explained()[1]) == []
    paths = flows(*GOOD, (0, 2, 0, 0.1), (0, 4, 0, 0.1))
    (verdict,) = paths.unexplained(paths.explained()[1])
    assert verdict.candidates == (str(cable(0, 0)),)


def test_slow_flows_of_different_nodes_name_their_cable() -> None:
    named, left = flows(*GOOD, (0, 2, 0, 0.1), (1, 4, 0, 0.1)).explained()
    assert [(each.kind, each.subject) for each in named] == [(CABLE, str(cable(0, 0)))]
    assert left == []


def test_a_flow_over_a_slow_spine_tests_no_cable() -> None:
    slow = [(2, 4, 0, 0.1), (6, 8, 0, 0.1), (4, 6, 0, 0.1), (8, 2, 0, 0.1)]
    good = [(2, 4, 1, 1.0), (6, 8, 1, 1.0), (4, 6, 1, 1.0), (8, 2, 1, 1.0)]
    paths = flows(*good, *slow, (0, 2, 0, 0.1))
    named, _left = paths.explained()
    assert [(each.kind, each.subject) for each in named] == [(SPINE, "spine0-00")]
    assert Direction(cable(0, 0), True) in paths.tested([])
    assert Direction(cable(0, 0), True) not in paths.tested(named)


@pytest.mark.parametrize(
    ("near", "far", "usable"),
    [
        ([100.0], [], 0.0),
        ([80.0, 100.0], [], 80.0),
        ([80.0, 125.0, 60.0], [], 80.0),
        ([80.0], [30.0, 90.0], 90.0),
        ([80.0, 100.0, 100.0], [30.0], 100.0),
    ],
)
def test_the_second_best_on_the_leaf_counts(
    near: list[float], far: list[float], usable: float
) -> None:
    suspect = ends._Suspect("node0000", "rail0")
    for values, on_leaf in ((near, True), (far, False)):
        for value in values:
            suspect.take(Figure("rail0", "node0000", "node0001", value), on_leaf)
    assert suspect.usable(True) == usable


def test_the_other_end_of_a_pair_is_suspect_if_the_first_has_passed() -> None:
    """Flows of the first shared cables by chance."""
    topology = fabric(4, 40, rails=2, spines=32)
    known = Fabric(topology, both=True).run(rounds.probes(topology, 6))
    near = [one for one in known if topology.path(one) != ACROSS and one.rail == "rail0"]
    slow, first = near[0].pair
    shown = []
    for one in known:
        if one.rail == "rail0" and {*one.pair} == {slow, first}:
            one = replace(one, gbits_s=560.0)
        elif one.rail == "rail0" and first in one.pair:
            one = replace(one, gbits_s=40.0)
        shown.append(one)
    outliers = [each.subject for each in analyse(shown, topology).outliers if each.kind == RAIL]
    assert outliers == [f"{first} rail0"]
    bed = Fabric(topology, {(slow, "rail0"): 0.7}, both=True)
    search = Search(topology, 100, shown)
    while search.next():
        search.take(bed.run(search.next()))
    assert [(each.kind, each.subject) for each in search.verdicts()] == [(RAIL, f"{slow} rail0")]


def test_cables_that_carry_less_than_others_are_traced() -> None:
    topology = fabric(6, 32, rails=1, spines=16)
    slow = Direction(topology.cables[3], True)
    spine = topology.cables[7].upper
    bed = Fabric(topology, {slow: 0.1, spine: 0.2}, both=True)
    traces = Traces(topology, analyse([], topology), ())
    steps = traces._loaded(["rail0"])
    probes, count = next(steps), 0
    with pytest.raises(StopIteration) as end:
        while True:
            count += len(probes)
            assert all(probe.counters for probe in probes)
            probes = steps.send(bed.run(probes))
    assert count == 3
    assert end.value.value == {slow}


def test_cables_are_not_compared_without_counters() -> None:
    topology = fabric(6, 32, rails=1, spines=16)
    traces = Traces(topology, analyse([], topology), ())
    steps = traces._loaded(["rail0"])
    with pytest.raises(StopIteration) as end:
        steps.send(Fabric(topology, counters=False).run(next(steps)))
    assert end.value.value is None


def test_few_figures_show_no_noise() -> None:
    assert ends._residuals([[100.0, 110.0, 90.0, 95.0], [0.0, 1.0, 2.0, 3.0, 4.0]]) == []
    assert len(ends._residuals([[100.0, 110.0, 90.0, 95.0, 97.0]])) == 5


@pytest.mark.parametrize(
    ("states", "whole", "first", "more"),
    [
        ([True], False, True, False),
        ([True], True, False, False),  # all its rails are suspects already
        ([False], False, False, False),
        ([True, False], True, True, False),
        ([True, True], False, True, False),  # all that were measured are slow: the node
        ([True, True, False], False, True, True),
    ],
)
def test_other_rails_of_a_node_are_measured_if_some_are_slow(
    states: list[bool], whole: bool, first: bool, more: bool
) -> None:
    suspects = {
        ("node0000", f"rail{rail}"): replace(ends._Suspect("node0000", f"rail{rail}"), slow=slow)
        for rail, slow in enumerate(states)
    }
    for most, expected in ((ends.RAILS_OF_NODE, first), (8, more)):
        found = ends.Ends._doubtful(suspects, {"node0000"} if whole else set(), most)
        assert found == ["node0000"] * expected


@pytest.mark.parametrize(
    ("nodes", "slow", "expected"),
    [
        (1, [0, 1], [(NODE, "node0000")]),
        (1, [0], [(CABLE, "leaf00-rail0 uplink0")]),
        (2, [0, 1], [(CABLE, "leaf00-rail0 uplink0"), (CABLE, "leaf00-rail0 uplink1")]),
    ],
)
def test_all_cables_above_a_single_node_are_its_own_fault(
    nodes: int, slow: list[int], expected: list[tuple[str, str]]
) -> None:
    topology = fabric(3, nodes, rails=1, spines=2)
    cables = [each for each in topology.cables if each.lower == "leaf00-rail0"]
    traces = Traces(topology, analyse((), topology), ())
    verdicts = [Verdict(CABLE, str(cables[spine]), ("slow",)) for spine in slow]
    wanted = [
        (kind, str(cables[int(subject[-1])]) if kind == CABLE else subject)
        for kind, subject in expected
    ]
    assert [(each.kind, each.subject) for each in traces._single(verdicts)] == wanted


@pytest.mark.parametrize(
    ("slow", "measured", "expected"),
    [
        (8, 8, [(NODE, "node0000")]),
        (7, 8, [(NODE, "node0000")]),
        (6, 8, [(RAIL, f"node0000 rail{rail}") for rail in range(6)]),
        (2, 3, [(RAIL, "node0000 rail0"), (RAIL, "node0000 rail1")]),
        (3, 3, [(NODE, "node0000")]),
        (2, 2, [(RAIL, "node0000 rail0"), (RAIL, "node0000 rail1")]),
    ],
)
def test_a_node_is_slow_if_almost_all_its_rails_are(
    slow: int, measured: int, expected: list[tuple[str, str]]
) -> None:
    topology = fabric(3, 4, rails=8, spines=2)
    found = ends.Ends(topology, analyse((), topology), ())
    suspects = {}
    for rail in range(measured):
        one = ends._Suspect("node0000", f"rail{rail}", slow=rail < slow)
        one.take(Figure(f"rail{rail}", "node0000", "node0001", 40.0), True)
        suspects["node0000", f"rail{rail}"] = one
    found._name_ends(suspects, set())
    assert [(each.kind, each.subject) for each in found.found] == expected
    assert len(found.slow) == (8 if expected[0][0] == NODE else slow)
