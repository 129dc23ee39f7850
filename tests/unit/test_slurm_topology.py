# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm's expressions of names, and the fabric as a tree of its switches."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm import (
    texts,
    topology,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.cluster import (
    SlurmCluster,
    compile_cluster,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.slurm.hostlist import (
    compress,
    expand,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.slurm_cluster import ROOT, cluster, example, hosts_of, mixed, with_slurm

EXAMPLES = [
    "b300",
    *(f"examples/{path.parent.name}" for path in sorted(ROOT.glob("inventories/examples/*/*.yml"))),
]
NAME = st.from_regex(r"[a-z][a-z0-9.-]{0,8}[0-9]{0,5}", fullmatch=True)


@given(st.lists(NAME, unique=True))
def test_an_expression_has_its_names_in_order(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(st.integers(0, 2000), st.integers(1, 300), st.sampled_from(["{}", "{:02d}", "{:04d}"]))
def test_consecutive_names_are_one_range(first: int, count: int, form: str) -> None:
    names = [f"node{form.format(number)}" for number in range(first, first + count)]
    text = compress(names)
    assert expand(text) == names
    # Numbers of one range have one width, or no padding.
    assert text.count("-") <= 1 and len(text) <= len("node[0000-0000]") + 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]),
        ("n[08-10],m[1,2]-ib", ["n08", "n09", "n10", "m1-ib", "m2-ib"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
    ],
)
def test_expressions_of_slurm(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n]", "n[3-1]", "n[a-b]", "n[]", "n[0-999999999]", "a[0-999]b[0-999]", "[1]" * 2000],
)
def test_bad_or_endless_expressions_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"names|range|bracket"):
        expand(text)


@given(st.text(alphabet="n[]0123456789,-", max_size=30))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert len(expand(text, 50)) <= 50


# The tree


def leaf_sets_of_model(hosts: dict[str, dict[str, Any]]) -> set[frozenset[str]]:
    """Nodes with the same leaf, from the cables of the model."""
    found: dict[str, set[str]] = {}
    for name, own in hosts.items():
        for group in own.get("cluster_ports", ()) if own["cluster_role"] == "leaf" else ():
            if group["kind"] == "host":
                found.setdefault(name, set()).update(group["peers"].values())
    return {frozenset(nodes) for nodes in found.values()}


def check_tree(made: SlurmCluster) -> None:
    leaves = [switch for switch in made.switches if not switch.level]
    assert Counter(name for switch in leaves for name in switch.nodes) == Counter(
        node.name for node in made.nodes
    )
    names = [switch.name for switch in made.switches]
    assert len(names) == len({*names})
    levels = {switch.name: switch.level for switch in made.switches}
    children = Counter(name for switch in made.switches for name in switch.switches)
    assert not children or max(children.values()) == 1
    for switch in made.switches:
        assert bool(switch.nodes) != bool(switch.switches)
        if switch.switches:
            assert len(switch.switches) > 1
            assert switch.level == 1 + max(levels[name] for name in switch.switches)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_node_is_in_its_leaf_set_once(name: str) -> None:
    made = cluster(name)
    check_tree(made)
    sets = {frozenset(switch.nodes) for switch in made.switches if not switch.level}
    assert sets == leaf_sets_of_model(example(name))


@pytest.mark.parametrize(
    ("name", "upper"),
    [
        ("b300", {}),
        ("examples/superpod-b300-1su", {"fabric01": "set[01-02]"}),
        (
            "examples/superpod-b300-4su",
            {
                **{f"unit0{n}": f"set[0{2 * n - 1}-0{2 * n}]" for n in range(1, 5)},
                "fabric01": "unit[01-04]",
            },
        ),
        ("examples/superpod-b300-twin-4su", {"fabric01": "set[01-04]"}),
        ("examples/unequal-pods", {"fabric01": "set[01-02]"}),
        (
            "examples/three-tiers",
            {
                **{f"unit{n:02d}": f"set[{192 * n - 191:04d}-{192 * n:04d}]" for n in range(1, 9)},
                "fabric01": "unit[01-08]",
            },
        ),
    ],
)
def test_switches_above_leaf_sets(name: str, upper: dict[str, str]) -> None:
    made = cluster(name)
    assert {
        switch.name: compress(switch.switches) for switch in made.switches if switch.level
    } == upper


PODS = """\
plugin: baremetal.mpi_roce.cluster
name: pods
scheduler: slurm
management: {subnet: 10.0.0.0/16}
nodes:
  count: %(nodes)d
  cpu: {sockets: 1, cores: 8, threads: 1, memory_mb: 1000}
  management_first: 10.0.1.1
  slots: 1
rails: {count: %(rails)d, planes: %(planes)d, speed_gbps: 400}
addresses: {pool: 10.128.0.0/9, prefix: 24}
leaves:
  count: %(leaves)d
  ports: 64
  nodes_per_set: %(per_set)d
  sets_per_unit: %(per_unit)d
  management_first: 10.0.8.1
spines: {count: %(spines)d, ports: 256, management_first: 10.0.9.1, divided_by: %(divided)s}
%(tier)s
launcher: {name: launcher01, management: 10.0.0.10}
"""
TIER = "super_spines: {count: 2, ports: 512, management_first: 10.0.10.1, divided_by: []}"


@given(
    st.integers(1, 4), st.integers(1, 2), st.integers(1, 6), st.integers(1, 3), st.integers(1, 5),
    st.booleans(), st.booleans(),
)  # fmt: skip
def test_any_shape_is_a_tree(
    rails: int, planes: int, sets: int, per_unit: int, per_set: int, units: bool, tier: bool
) -> None:
    divided = (["unit"] if units else []) + (["plane"] if planes > 1 else [])
    several = -(-sets // per_unit) if units else 1
    nodes = sets * per_set - (per_set - 1)
    text = PODS % {
        "nodes": nodes, "rails": rails, "planes": planes, "leaves": rails * planes * sets,
        "per_set": per_set, "per_unit": per_unit, "spines": 2 * several * planes,
        "divided": divided, "tier": TIER if tier else "",
    }  # fmt: skip
    hosts = hosts_of(text)
    made = compile_cluster(hosts)
    check_tree(made)
    assert {frozenset(switch.nodes) for switch in made.switches if not switch.level} == (
        leaf_sets_of_model(hosts)
    )
    below = texts.nodes_below(made)
    together = {frozenset(below[switch.name]) for switch in made.switches}
    whole = frozenset(node.name for node in made.nodes)
    connected = sets == 1 or not units or tier or several == 1
    assert (whole in together) is connected
    assert SlurmCluster.of_text(made.as_text()) == made


def test_nodes_without_rails_are_apart() -> None:
    made = mixed()
    check_tree(made)
    last = made.switches[-1]
    assert (last.name, last.level, last.nodes) == ("without_rails", 0, ("cpu-01", "cpu-02"))
    assert "without_rails" not in {name for each in made.switches for name in each.switches}


@given(st.lists(st.frozensets(st.integers(1, 8), min_size=1), max_size=8))
def test_any_cables_become_a_tree(groups: list[frozenset[int]]) -> None:
    """Also spines that connect overlapping parts of the leaf sets."""
    names = {number: f"set{number}" for number in range(1, 9)}
    leaves = [topology.Switch(name, 0, (f"node{number}",)) for number, name in names.items()]
    found = topology._upper(names, groups, {})
    made = SlurmCluster("a", (), (), (*leaves, *found))
    children = Counter(name for switch in found for name in switch.switches)
    assert not children or max(children.values()) == 1
    below = [texts.nodes_below(made)[switch.name] for switch in found]
    for group in groups:
        nodes = {f"node{number}" for number in group}
        assert len(group) == 1 or any(nodes <= each for each in below)
    assert len({*below}) == len(below)


def test_overlapping_groups_are_one_switch() -> None:
    names = {number: f"set{number}" for number in range(1, 5)}
    first, second = topology._upper(
        names, [frozenset([2, 3]), frozenset([1, 2]), frozenset(names)], {}
    )
    assert (first.switches, first.level) == (("set1", "set2", "set3"), 1)
    assert (second.switches, second.level) == (("fabric01", "set4"), 2)


# topology.yaml


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("b300", [4]),
        ("examples/superpod-b300-4su", [32, 64]),
        ("examples/superpod-b300-twin-4su", [64]),
        ("examples/unequal-pods", [16]),
        ("examples/three-tiers", [2]),
    ],
)
def test_blocks_are_leaf_sets_and_units(name: str, sizes: list[int]) -> None:
    made = cluster(name)
    text = texts.texts(made, texts.Settings((25, 5)))[texts.TOPOLOGY_YAML]
    tree, block = yaml.safe_load(text)
    assert (tree["topology"], block["topology"]) == ("tree", "block")
    assert tree["cluster_default"] and not block["cluster_default"]
    switches = tree["tree"]["switches"]
    assert [each["switch"] for each in switches] == [each.name for each in made.switches]
    for written, switch in zip(switches, made.switches):
        assert expand(written.get("nodes", "")) == [*switch.nodes]
        assert expand(written.get("children", "")) == [*switch.switches]
    assert block["block"]["block_sizes"] == sizes
    blocks = [expand(each["nodes"]) for each in block["block"]["blocks"]]
    assert blocks == [[*each.nodes] for each in texts.leaf_sets(made)]
    # Each block must have at least the nodes of the smallest size (topology.conf(5)).
    assert min(map(len, blocks)) >= sizes[0]


def test_units_that_a_missing_set_would_shift_are_no_blocks() -> None:
    text = with_slurm(
        (ROOT / "inventories/examples/superpod-b300-4su/cluster.yml").read_text(encoding="utf-8")
    )
    model = yaml.safe_load(text)
    model["nodes"]["absent"] = [f"node{number:04d}" for number in range(33, 65)]
    made = compile_cluster(hosts_of(yaml.safe_dump(model)))
    assert texts.block_sizes(made) == [32]
    assert "set02" not in {switch.name for switch in made.switches}
    assert "unit01" not in {switch.name for switch in made.switches}
