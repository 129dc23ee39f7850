# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rounds of pairs: every pair once, no node twice in a round, other leaf sets first."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, islice
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import rounds as module
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.test_acceptance_figures import TWO_SETS, topology

EXAMPLES = Path(__file__).resolve().parents[2] / "inventories/examples"
NAMES = [f"node{number}" for number in range(40)]


def single(turn: module.Round) -> bool:
    return max(Counter(node for pair in turn for node in pair).values(), default=1) == 1


@given(st.integers(0, 40))
def test_round_robin_has_every_pair_once(size: int) -> None:
    found = module.rounds(NAMES[:size])
    assert len(found) == (size if size % 2 else max(0, size - 1))
    assert all(map(single, found))
    pairs = [frozenset(pair) for turn in found for pair in turn]
    assert sorted(map(sorted, pairs)) == sorted(map(sorted, combinations(NAMES[:size], 2)))


@given(st.integers(2, 40))
def test_every_node_sends_and_receives(size: int) -> None:
    found = [pair for turn in module.rounds(NAMES[:size]) for pair in turn]
    sends = Counter(first for first, _second in found)
    assert size < 3 or all(0 < sends[node] < size - 1 for node in NAMES[:size])


GROUPS = st.lists(st.integers(1, 6), min_size=2, max_size=6)


@given(GROUPS, st.integers(1, 12))
def test_crossing_rounds_leave_at_most_one_node_idle(sizes: list[int], count: int) -> None:
    names = iter(NAMES)
    groups = [[next(names) for _ in range(size)] for size in sizes]
    for turn in islice(module.crossing(groups), count):
        assert single(turn)
        assert len(turn) == sum(sizes) // 2


@given(st.integers(2, 6), st.integers(1, 6))
def test_crossing_rounds_meet_every_other_group(sets: int, size: int) -> None:
    groups = [NAMES[index * size : (index + 1) * size] for index in range(sets)]
    turns = sets if sets % 2 else sets - 1
    met: dict[str, set[int]] = {node: set() for group in groups for node in group}
    for turn in islice(module.crossing(groups), turns):
        for first, second in turn:
            for near, far in ((first, second), (second, first)):
                met[near].add(NAMES.index(far) // size)
    for node, others in met.items():
        assert others >= {*range(sets)} - {NAMES.index(node) // size}


@given(st.sampled_from([2, 4, 6]), st.integers(1, 6))
def test_crossing_and_inside_together_have_every_pair_once(sets: int, size: int) -> None:
    groups = [NAMES[index * size : (index + 1) * size] for index in range(sets)]
    found = [*islice(module.crossing(groups), (sets - 1) * size), *module.inside(groups)]
    pairs = [tuple(sorted(pair)) for turn in found for pair in turn]
    assert sorted(pairs) == sorted(
        tuple(sorted(pair)) for pair in combinations(NAMES[: sets * size], 2)
    )


def test_few_rounds_of_a_model_cross_and_the_last_stays_in_leaves() -> None:
    found = topology(TWO_SETS)
    turns = module.chosen(found, "rail0", 3)
    crossed = [
        {found.leaf(a, "rail0") != found.leaf(b, "rail0") for a, b in turn} for turn in turns
    ]
    assert crossed == [{True}, {True}, {False}]
    assert module.chosen(found, "rail0") == module.rounds(found.nodes)
    assert len(module.probes(found)) == 2 * 7


@pytest.mark.parametrize(
    ("name", "rails"), [("superpod-b300-twin-4su", 16), ("juniper-stripes", 8)]
)
def test_cross_rail_probes_stay_where_the_model_has_a_path(name: str, rails: int) -> None:
    found = topology((EXAMPLES / name / "cluster.yml").read_text(encoding="utf-8"))
    probes = [probe for probe in module.probes(found, 1, cross_rail=True) if probe.second_rail]
    for probe in probes:
        pairs = probe.pairs
        assert all(module.reaches(found, each, probe.rail, probe.far_rail) for each in pairs)
    assert len(probes) == rails
    assert all(probe.rail[5:] == probe.far_rail[5:] for probe in probes)  # one plane
