# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""In which order switches are changed: one at a time, and never two that somebody needs both of."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.order import (
    Member,
    batches,
    member,
)
from hypothesis import given
from hypothesis import strategies as st


def ports(kind: str, rail: Any, *peers: str) -> dict[str, Any]:
    named = {f"Ethernet{8 * number}": peer for number, peer in enumerate(peers)}
    return {"kind": kind, "rail": rail, "peers": named}


def leaf(name: str, *groups: dict[str, Any]) -> Member:
    return member(name, "leaf", groups)


def spine(name: str) -> Member:
    return member(name, "spine", [ports("downlink", None, "leaf01", "leaf02")])


def fabric() -> list[Member]:
    """Two rails of two planes each, two spines."""
    planes = [(rail, plane) for rail in range(2) for plane in range(2)]
    return [
        *(
            leaf(
                f"leaf{number:02d}",
                ports("host", rail, "node01", "node02"),
                ports("uplink", None, "spine01"),
            )
            for number, (rail, _plane) in enumerate(planes, 1)
        ),
        spine("spine01"),
        spine("spine02"),
    ]


def test_one_at_a_time_and_the_spines_before_the_leaves() -> None:
    assert batches(fabric()) == [
        ["spine01"],
        ["spine02"],
        ["leaf01"],
        ["leaf02"],
        ["leaf03"],
        ["leaf04"],
    ]


def test_more_at_once_are_those_that_no_node_needs_both_of() -> None:
    assert batches(fabric(), 4) == [
        ["spine01"],
        ["spine02"],
        ["leaf01", "leaf03"],
        ["leaf02", "leaf04"],
    ]


def test_leaves_of_other_nodes_are_no_pair() -> None:
    sets = [leaf("leaf01", ports("host", 0, "node01")), leaf("leaf02", ports("host", 0, "node02"))]
    assert batches(sets, 2) == [["leaf01", "leaf02"]]


def test_leaves_of_one_storage_host_are_a_pair() -> None:
    both = [
        leaf("leaf01", ports("host", 0, "node01"), ports("storage", None, "storage01")),
        leaf("leaf02", ports("host", 1, "node01"), ports("storage", None, "storage01")),
    ]
    assert batches(both, 2) == [["leaf01"], ["leaf02"]]


def test_ports_without_a_rail_are_one_rail() -> None:
    """A hand-written inventory need not say it."""
    group = {"kind": "host", "peers": {"swp1": "node01"}}
    assert batches([leaf("leaf01", group), leaf("leaf02", group)], 2) == [["leaf01"], ["leaf02"]]


def test_nobody_to_change_is_no_batch() -> None:
    assert batches([]) == []


@pytest.mark.parametrize("at_once", [0, -1])
def test_less_than_one_at_once_is_refused(at_once: int) -> None:
    with pytest.raises(ValueError, match="switch_qos_at_once"):
        batches(fabric(), at_once)


SERVES = st.frozensets(st.tuples(st.sampled_from("abcd"), st.integers(0, 1)), max_size=4)
MEMBERS = st.lists(st.tuples(st.sampled_from(["leaf", "spine"]), SERVES), max_size=12).map(
    lambda rows: [Member(f"s{number}", *row) for number, row in enumerate(rows)]
)


@given(MEMBERS, st.integers(1, 5))
def test_the_laws_of_every_order(members: list[Member], at_once: int) -> None:
    found = batches(members, at_once)
    by_name = {each.name: each for each in members}
    assert sorted(name for batch in found for name in batch) == sorted(by_name)
    kinds = [{by_name[name].role for name in batch} for batch in found]
    assert all(len(kind) == 1 for kind in kinds)
    assert kinds == sorted(kinds, key=lambda kind: kind == {"leaf"})
    for batch in found:
        assert 0 < len(batch) <= (1 if by_name[batch[0]].role == "spine" else at_once)
        served = [each for name in batch for each in by_name[name].serves]
        assert len(served) == len(set(served)), "a node would lose both its leaves"


@given(MEMBERS)
def test_one_at_a_time_keeps_the_order_of_the_inventory(members: list[Member]) -> None:
    for role in ("leaf", "spine"):
        names = [each.name for each in members if each.role == role]
        assert [name for (name,) in batches(members) if name in names] == names
