# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Positions of nodes: a node with one has its ports and addresses, wherever it is listed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.small_model import compiled, edited, refused
from tests.unit.test_model_cases import text

Plan = dict[str, tuple[int, str, str, str, str]]


def plan(edits: str) -> Plan:
    return plan_of(edited(edits))


def plan_of(model: str) -> Plan:
    """Index, management address, rack, address and port of each node's first rail."""
    found = {}
    for host in compiled(model).hosts:
        own = host.variables
        if "cluster_rails" in own:
            rail = own["cluster_rails"][0]
            found[host.name] = (
                own["cluster_index"],
                own["ansible_host"],
                host.groups[1],
                rail["address"],
                f"{rail['leaf']} {rail['leaf_port']}",
            )
    return found


def test_a_listed_node_is_on_the_port_of_its_position() -> None:
    found = plan("nodes.count; nodes.list: [{name: a}, {name: b, position: 17}, {name: c}]")
    assert found == {
        "a": (0, "10.0.0.11", "rack_r01", "10.1.0.2", "leaf01 Ethernet0"),
        "c": (2, "10.0.0.13", "rack_r01", "10.1.0.4", "leaf01 Ethernet2"),
        "b": (17, "10.0.0.28", "rack_r01", "10.1.0.19", "leaf01 Ethernet17"),
    }
    assert list(found) == ["a", "c", "b"]


def test_a_counted_node_is_on_the_port_of_its_position() -> None:
    before = plan("nodes.count: 3")
    after = plan("nodes.count: 3; nodes.overrides: {node02: {position: 9}}")
    assert after == {
        **before,
        "node02": (9, "10.0.0.20", "rack_r01", "10.1.0.11", "leaf01 Ethernet9"),
    }


def test_positions_fill_leaf_sets_and_racks() -> None:
    sets = "; leaves.count: 4; leaves.nodes_per_set: 4; nodes.nodes_per_rack: 4"
    found = plan(f"nodes.count: 2; nodes.overrides: {{node02: {{position: 4}}}}{sets}")
    assert found["node02"] == (4, "10.0.0.15", "rack_r02", "10.1.2.2", "leaf03 Ethernet0")


TWICE = "model.position_twice nodes"


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        (
            "nodes.count; nodes.list: [{name: a}, {name: b, position: 0}]",
            f"4 {TWICE}.list[1].position 0",
        ),
        (
            "nodes.count; nodes.list: [{name: a, position: 5}, {name: b, position: 5}]",
            f"4 {TWICE}.list[1].position 5",
        ),
        ("nodes.overrides: {node01: {position: 1}}", f"4 {TWICE}.overrides.node01.position 1"),
        (
            "nodes.absent: [node02]; nodes.overrides: {node01: {position: 1}}",
            f"4 {TWICE}.overrides.node01.position 1",
        ),
        (
            "nodes.overrides: {node01: {position: -1}}",
            "4 model.out_of_range nodes.overrides.node01.position (-1, 0, 99999)",
        ),
    ],
)
def test_no_two_nodes_have_a_position(nodes: str, wanted: str) -> None:
    assert refused(edited(nodes)) == [wanted]


def test_two_nodes_swap_their_positions() -> None:
    first, second = plan("nodes.count: 2").values()
    found = plan("nodes.overrides: {node01: {position: 1}, node02: {position: 0}}")
    assert found == {"node02": first, "node01": second}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 59), min_size=1, max_size=12, unique=True), st.randoms())
def test_a_list_with_positions_has_no_order(positions: list[int], chance: random.Random) -> None:
    nodes = [f"{{name: n{position}, position: {position}}}" for position in positions]

    def found() -> Any:
        return plan(f"nodes.count; nodes.list: [{', '.join(nodes)}]")

    before = found()
    chance.shuffle(nodes)
    assert found() == before
    whole = plan("nodes.count: 60")
    assert {name: own[0] for name, own in before.items()} == {f"n{n}": n for n in positions}
    assert all(own == [*whole.values()][own[0]] for own in before.values())


def test_a_node_of_a_model_is_on_the_port_that_its_operator_meant() -> None:
    found = plan_of(text("d13-port-of-a-node-as-meant"))
    assert found["node01"] == (17, "10.0.1.1", "rack_r01", "172.16.0.19", "leaf01 Ethernet136")


def test_a_node_behind_an_absent_one_stays() -> None:
    found = plan_of(text("d17-node-removed-from-list-as-meant"))
    assert found["node03"] == (2, "10.0.1.3", "rack_r01", "172.16.0.4", "leaf01 Ethernet16")
