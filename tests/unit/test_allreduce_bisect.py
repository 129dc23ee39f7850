# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The search finds any faulty node, pair or small group within few runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.mpi.allreduce import bisect
from hypothesis import given
from hypothesis import strategies as st

counts = st.integers(2, 60)


def names_of(count: int) -> list[str]:
    return [f"node{number:02d}" for number in range(count)]


def search(
    names: Sequence[str], fails: Callable[[set[str]], bool], budget: int = 1000
) -> bisect.Culprit:
    seen = set()

    def run(part: Sequence[str]) -> bool:
        assert frozenset(part) not in seen, "no duplicate runs"
        seen.add(frozenset(part))
        assert list(part) == [name for name in names if name in part], "in the model's order"
        return fails(set(part))

    return bisect.find(names, run, budget)


@given(counts, st.data())
def test_a_node_that_fails_alone_is_found(count: int, data: st.DataObject) -> None:
    names = names_of(count)
    bad = data.draw(st.sampled_from(names))
    found = search(names, lambda part: bad in part)
    assert (found.kind, found.nodes) == (bisect.NODE, (bad,))
    assert found.runs <= 2 * math.ceil(math.log2(count)) + 3


@given(st.integers(3, 60), st.data())
def test_a_node_that_fails_with_everybody_is_found(count: int, data: st.DataObject) -> None:
    """A node whose links are down passes without others."""
    names = names_of(count)
    bad = data.draw(st.sampled_from(names))
    found = search(names, lambda part: bad in part and len(part) > 1)
    assert (found.kind, found.nodes) == (bisect.NODE, (bad,))
    assert found.runs <= 6 * math.ceil(math.log2(count)) + 8


@given(counts, st.data())
def test_a_pair_is_found(count: int, data: st.DataObject) -> None:
    names = names_of(count)
    pair = set(data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)))
    found = search(names, lambda part: pair <= part)
    assert (found.kind, set(found.nodes)) == (bisect.PAIR, pair)
    assert found.runs <= 6 * math.ceil(math.log2(count)) + 8


@given(counts, st.data())
def test_a_group_is_found_and_is_minimal(count: int, data: st.DataObject) -> None:
    names = names_of(count)
    size = min(4, count)
    group = set(data.draw(st.lists(st.sampled_from(names), min_size=size, unique=True)))
    found = search(names, lambda part: group <= part)
    assert set(found.nodes) == group


@given(st.integers(3, 60), st.data())
def test_of_two_bad_nodes_both_are_found(count: int, data: st.DataObject) -> None:
    names = names_of(count)
    bad = set(data.draw(st.lists(st.sampled_from(names), min_size=2, max_size=2, unique=True)))
    found = search(names, lambda part: bool(bad & part))
    assert found.kind == bisect.NODE
    assert set(found.nodes) == bad


@given(counts)
def test_what_fails_everywhere_is_nobodys_fault(count: int) -> None:
    """The time limit of short runs is too small for the machine."""
    found = search(names_of(count), lambda part: True)
    assert found.kind == bisect.COMMON


@given(counts, st.data())
def test_nobody_is_accused_before_the_others_pass(count: int, data: st.DataObject) -> None:
    names = names_of(count)
    bad = data.draw(st.sampled_from(names))
    passed: set[str] = set()

    def fails(part: set[str]) -> bool:
        if bad in part:
            return True
        passed.update(part)
        return False

    search(names, fails)
    assert passed == set(names) - {bad}


@given(counts, st.integers(0, 12), st.data())
def test_the_budget_holds_and_the_culprit_stays_suspect(
    count: int, budget: int, data: st.DataObject
) -> None:
    names = names_of(count)
    bad = data.draw(st.sampled_from(names))
    found = search(names, lambda part: bad in part, budget)
    assert found.runs <= budget
    assert bad in found.nodes


def test_an_intermittent_fault_names_no_node() -> None:
    found = search(names_of(4), lambda part: False)
    assert (found.kind, found.nodes, found.runs) == (bisect.NOT_REPRODUCED, (), 1)


def test_two_nodes_that_pass_alone_are_a_pair() -> None:
    found = search(names_of(2), lambda part: len(part) == 2)
    assert found.kind == bisect.PAIR
    assert "node00, node01" in found.sentence()
