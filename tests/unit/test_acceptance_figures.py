# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Nodes, leaf sets and paths of compiled models, as acceptance sees them."""

from __future__ import annotations

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    ACROSS,
    SAME_LEAF,
    Direction,
    Figure,
    Topology,
    Uplink,
)

from tests.unit.small_model import MODEL, compiled, edited

TWO_SETS = edited(
    "nodes: {count: 8, management_first: 10.0.0.11}; leaves: {count: 4, "
    "ports: 64, management_first: 10.0.0.101, nodes_per_set: 4}; spines: {count: 2, ports: 64, "
    "management_first: 10.0.0.201, speed_gbps: 800}; addresses: {pool: 10.1.0.0/16, prefix: 24}",
    MODEL,
)


def topology(text: str) -> Topology:
    inventory = compiled(text)
    return Topology.of({host.name: inventory.merged(host) for host in inventory.hosts})


def test_sets_and_paths_of_a_model() -> None:
    found = topology(TWO_SETS)
    assert [len(nodes) for nodes in found.sets] == [4, 4]
    assert found.rails == ("rail0", "rail1")
    first, second = found.sets
    near = Figure("rail0", first[0], first[1], 1.0)
    far = Figure("rail0", first[0], second[0], 1.0)
    assert (found.path(near), found.path(far)) == (SAME_LEAF, ACROSS)
    up, down = found.hops(found.leaf(first[0], "rail0"), found.leaf(second[0], "rail0"))
    assert {direction.ends[1] for direction in up} == {"spine01", "spine02"}
    assert all(direction.up for direction in up)
    assert {direction.ends[1] for direction in down} == {found.leaf(second[0], "rail0")}
    assert found.hops("leaf01", "leaf01") == ()
    assert found.line_rate(far) == 800


def test_a_path_over_super_spines_has_four_hops() -> None:
    cables = tuple(
        Uplink(lower, f"p{index}", upper, f"q{lower}")
        for lower, *uppers in (
            ("l1", "s1", "s2"),
            ("l2", "s3", "s4"),
            *((f"s{n}", "t1") for n in (1, 2, 3, 4)),
        )
        for index, upper in enumerate(uppers)
    )
    found = Topology({}, cables)
    assert [len(hop) for hop in found.hops("l1", "l2")] == [2, 2, 2, 2]
    assert [direction.ends[1] for direction in found.hops("l1", "l2")[1]] == ["t1", "t1"]
    assert str(Direction(cables[0], False)) == "l1 p0 - s1 ql1 (down)"
    assert found.hops("l1", "elsewhere") == ()
