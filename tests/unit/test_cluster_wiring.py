# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links between tiers of switches: planes, units, groups, three tiers; what stays where it is."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    Cluster,
    ModelError,
    compile_model,
    inventory_of,
    layout,
    read,
    wiring,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.findings import brief
from tests.unit.small_model import refused
from tests.unit.test_model_cases import text

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/16}
nodes: {count: %(nodes)d, management_first: 10.0.1.1}
gpus: {count: 4}
rails: {count: 4, planes: %(planes)d, speed_gbps: 400}
addresses: {pool: 172.16.0.0/12}
leaves: {count: %(leaves)d, ports: 64, management_first: 10.0.200.1%(leaf_keys)s}
spines: {count: %(spines)d, ports: 256, links_per_leaf: 2, management_first: 10.0.210.1%(keys)s}
launcher: {name: launcher01, management: 10.0.0.10}
"""
SUPER = "super_spines: {count: %d, ports: 256, management_first: 10.0.220.1%s}\n"


def model(super_spines: str = "", **changes: Any) -> str:
    values = {"nodes": 4, "planes": 1, "leaves": 4, "leaf_keys": "", "spines": 4, "keys": ""}
    values.update(changes)
    return MODEL % values + super_spines


def small(*args: Any, **changes: Any) -> Cluster:
    return compile_model(read("cluster.yml", model(*args, **changes)))


def cables(cluster: Cluster) -> dict[tuple[str, str], tuple[str, str]]:
    """Every port between switches, and its peer; both ends agree."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for switch in cluster.switches:
        for group in switch.ports:
            if group.kind in ("uplink", "downlink"):
                for port, peer in group.peers.items():
                    assert (switch.name, port) not in found
                    found[switch.name, port] = (peer, group.peer_interface)
    assert all(found[there] == here for here, there in found.items())
    return found


def peers(cluster: Cluster) -> dict[str, list[str]]:
    """The switches above each switch, in order of ports."""
    found: dict[str, list[str]] = {}
    for switch in cluster.switches:
        ups = [group for group in switch.ports if group.kind == "uplink"]
        ports = {port: peer for group in ups for port, peer in group.peers.items()}
        order = sorted(ports, key=lambda port: int("".join(filter(str.isdigit, port))))
        found[switch.name] = list(dict.fromkeys(ports[port] for port in order))
    return found


def case(name: str) -> Cluster:
    return compile_model(read("cluster.yml", text(name)))


def test_planes_are_apart() -> None:
    cluster = case("d01-superpod-b300-twin-planar-1su")
    found = peers(cluster)
    assert found["leaf01"] == found["leaf15"] == ["spine01", "spine02", "spine03", "spine04"]
    assert found["leaf02"] == found["leaf16"] == ["spine05", "spine06", "spine07", "spine08"]
    assert len(cables(cluster)) == 2 * 16 * 4 * 8
    hosts = {host.name: host for host in inventory_of(cluster).hosts}
    assert hosts["leaf02"].groups == ("leaf", "plane_1")
    assert hosts["spine05"].groups == ("spine", "plane_1")
    assert hosts["spine05"].variables["cluster_plane"] == 1
    assert hosts["node01"].groups == ("compute", "rack_r01")


def networks(text: str) -> dict[str, set[str]]:
    """What nodes reach by each interface; empty if the model leaves it to the whole cluster."""
    found: dict[str, set[str]] = {}
    for node in compile_model(read("cluster.yml", text)).nodes:
        for rail in node.rails:
            for network in vars(rail).get("networks", ()):
                found.setdefault(rail.interface, set()).add(network)
    return found


def test_a_rail_reaches_its_plane_only_if_planes_are_apart() -> None:
    two_sets = {"nodes": 4, "planes": 2, "leaves": 16, "leaf_keys": ", nodes_per_set: 2"}
    apart = model(**two_sets)
    found = networks(apart)
    assert found["rail0p0"] == {"172.16.0.0/24", "172.16.8.0/24"}
    assert found["rail0p1"] == {"172.16.1.0/24", "172.16.9.0/24"}
    by_rail = networks(apart.replace("{pool:", "{order: rail, pool:"))
    assert len(by_rail) == 8 and all(len(one) == 1 for one in by_rail.values())
    assert by_rail["rail0p1"] != by_rail["rail0p0"]
    assert networks(model(**two_sets, keys=", divided_by: []")) == {}
    joined = model(SUPER % (2, ""), **two_sets)
    assert networks(joined) == found, "super spines of each plane"
    joined = model(SUPER % (2, ", divided_by: []"), **two_sets)
    assert networks(joined) == {}
    assert networks(model(planes=2, leaves=8)) == {}, "one set"


def test_each_plane_has_one_prefix_of_the_pool_by_order_of_planes() -> None:
    """One set of leaves, two, and links by which planes have a path to each other."""
    for sets in (1, 2):
        apart = model(
            nodes=2 * sets, planes=2, leaves=8 * sets, leaf_keys=", nodes_per_set: 2"
        ).replace("count: 8, ports: 64", f"count: {16 * sets}, ports: 64", 1)
        cluster = compile_model(read("c", apart.replace("{pool:", "{order: plane, pool:")))
        for rail in (rail for node in cluster.nodes for rail in node.rails):
            prefix = IPv4Network(rail.plane_network)
            assert IPv4Network(rail.network).subnet_of(prefix)
            assert str(prefix) == ("172.16.0.0/13", "172.24.0.0/13")[rail.plane]
            assert bool(rail.networks) == (sets == 2)
    for rail in compile_model(read("c", apart)).nodes[0].rails:
        assert not hasattr(rail, "plane_network") and rail.networks
    joined = model(planes=2, leaves=16, keys=", divided_by: []")
    rail = (
        compile_model(read("c", joined.replace("{pool:", "{order: plane, pool:"))).nodes[0].rails[0]
    )
    assert not hasattr(rail, "plane_network") and not hasattr(rail, "networks")


def test_many_routes_of_planes_are_a_doubt() -> None:
    point_to_point = model(nodes=70, planes=2, leaves=8, leaf_keys=", nodes_per_set: 40")
    point_to_point = point_to_point.replace("count: 8, ports: 64", "count: 16, ports: 64")
    point_to_point = point_to_point.replace("{pool:", "{plan: point_to_point, pool:")
    found = compile_model(read("cluster.yml", point_to_point)).doubts
    assert "7 model.plane_routes addresses.order 70" in brief(found)
    by_rail = point_to_point.replace("{plan:", "{order: rail, plan:")
    assert "plane_routes" not in str(brief(compile_model(read("cluster.yml", by_rail)).doubts))


def test_groups_of_spines() -> None:
    cluster = case("d02-superpod-b300-8su-spine-groups-as-meant")
    found = peers(cluster)
    first = [f"spine{number:02d}" for number in range(1, 33)]
    second = [f"spine{number:02d}" for number in range(33, 65)]
    assert [found[f"leaf{number:02d}"] for number in range(1, 9)] == [first] * 4 + [second] * 4
    assert found["leaf128"] == second
    assert len(cables(cluster)) == 2 * 128 * 32


def test_a_third_tier() -> None:
    cluster = case("d03-three-tiers")
    found = peers(cluster)
    tops = [f"superspine{number:02d}" for number in range(1, 5)]
    assert found["leaf01"] == ["spine01", "spine02", "spine03", "spine04"]
    assert [found[f"spine0{number}"] for number in range(1, 5)] == [tops] * 4
    assert found["superspine01"] == []
    inventory = inventory_of(cluster)
    top = next(host for host in inventory.hosts if host.name == "superspine01")
    assert top.groups == ("spine", "super_spine")
    assert inventory.merged(top)["cluster_role"] == "spine"
    [ports] = top.variables["cluster_ports"]
    assert (ports["kind"], ports["peer_interface"]) == ("downlink", "Ethernet60")


def test_a_spine_that_is_added_moves_nothing_if_its_ports_are_reserved() -> None:
    name = "d16-spine-added-as-meant"
    after = case(name)
    before = compile_model(read("m", text(name).replace("spines: {count: 5", "spines: {count: 4")))
    assert cables(before).items() < cables(after).items()
    assert [node.rails for node in before.nodes] == [node.rails for node in after.nodes]


def test_units_have_spines_apart_and_super_spines_in_common() -> None:
    keys = {"leaf_keys": ", nodes_per_set: 2, sets_per_unit: 1", "keys": ", divided_by: [unit]"}
    above = ", divided_by: [group], groups: 2, links_per_spine: 3"
    cluster = small(SUPER % (4, above), leaves=8, nodes=3, **keys)
    found = peers(cluster)
    assert found["leaf01"] == found["leaf04"] == ["spine01", "spine02"]
    assert found["leaf05"] == found["leaf08"] == ["spine03", "spine04"]
    assert found["spine01"] == found["spine03"] == ["superspine01", "superspine02"]
    assert found["spine02"] == found["spine04"] == ["superspine03", "superspine04"]
    assert len(cables(cluster)) == 2 * (8 * 2 * 2 + 4 * 2 * 3)
    hosts = {host.name: host for host in inventory_of(cluster).hosts}
    assert hosts["leaf05"].groups == ("leaf", "unit_2")
    assert hosts["spine03"].groups == ("spine", "unit_2")
    assert hosts["superspine01"].groups == ("spine", "super_spine")
    assert hosts["node03"].groups == ("compute", "rack_r01", "unit_2")
    assert hosts["node03"].variables["cluster_unit"] == 2
    assert hosts["leaf05"].variables["cluster_set"] == hosts["node03"].variables["cluster_set"] == 2
    assert "cluster_unit" not in hosts["superspine01"].variables


def test_groups_hold_leaves_of_every_plane() -> None:
    found = peers(small(planes=2, leaves=8, keys=", divided_by: [group, plane], groups: 2"))
    assert [found[f"leaf0{number}"] for number in range(1, 9)] == [
        *([["spine01"], ["spine03"]] * 2 + [["spine02"], ["spine04"]] * 2)
    ], "plane before group, whatever the order in the model"


def test_planes_that_share_leaves_share_spines() -> None:
    found = peers(small(planes=2, leaves=4, leaf_keys=", rail_to_leaf: [0, 0, 1, 1, 2, 2, 3, 3]"))
    assert len(found["leaf01"]) == 4
    assert len(peers(small(planes=2, leaves=8, keys=", divided_by: []"))["leaf01"]) == 4


def test_reserved_ports_limit_the_nodes_of_a_set() -> None:
    keys = ", uplink_ports: 61"
    assert refused(model(leaf_keys=keys)) == ["8 model.more_nodes_than_ports leaves.count (4, 3)"]
    assert [rail.leaf_port for rail in small(leaf_keys=keys, nodes=3).nodes[2].rails] == [
        *(["Ethernet2"] * 4)
    ]


shapes = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 12),
        "planes": st.integers(1, 2),
        "sets": st.integers(1, 3),
        "each": st.integers(1, 2),
        "divided": st.lists(st.sampled_from(["unit", "plane", "group"]), max_size=3, unique=True),
        "above": st.lists(st.sampled_from(["unit", "plane", "group"]), max_size=3, unique=True),
    }
)


def shaped(shape: dict[str, Any], sets: int, nodes: int, more_spines: int = 0) -> Cluster:
    """As many spines in each class, and as many switches above, as the shape says."""
    divided = shape["divided"]
    above = [one for one in shape["above"] if one in (*divided, "group")]
    sizes = {"unit": sets, "plane": shape["planes"], "group": 2}
    spines = super_spines = shape["each"]
    for one in divided:
        spines *= sizes[one]
    for one in above:
        super_spines *= sizes[one]
    dealt_below, dealt_above = "group" in divided, "group" in above and "group" not in divided
    if dealt_above:
        spines *= 2
    keys = f", divided_by: [{', '.join(divided)}], uplink_ports: 32"
    keys += ", groups: 2" if dealt_below else ""
    tops = f", divided_by: [{', '.join(above)}]" + (", groups: 2" if dealt_above else "")
    return small(
        SUPER % (super_spines, tops),
        nodes=nodes,
        planes=shape["planes"],
        leaves=4 * shape["planes"] * sets,
        leaf_keys=", nodes_per_set: 4, uplink_ports: 32",
        spines=spines + more_spines,
        keys=keys,
    )


@settings(max_examples=60)
@given(shapes)
def test_what_is_added_at_the_end_moves_nothing(shape: dict[str, Any]) -> None:
    sets = shape["sets"]
    nodes = min(shape["nodes"], 4 * sets)
    before, after = shaped(shape, sets, nodes), shaped(shape, sets + 1, nodes + 1)
    below = [cables(cluster).items() for cluster in (before, after)]
    assert below[0] <= below[1]
    assert [node.rails for node in after.nodes[:nodes]] == [node.rails for node in before.nodes]
    if not shape["divided"] and "group" not in shape["above"]:
        after = shaped(shape, sets, nodes, more_spines=1)
        assert below[0] <= cables(after).items()
        assert [node.rails for node in after.nodes] == [node.rails for node in before.nodes]


@settings(max_examples=60)
@given(shapes)
def test_switches_connect_if_they_agree(shape: dict[str, Any]) -> None:
    cluster = shaped(shape, shape["sets"], 1)
    by_name = {switch.name: switch for switch in cluster.switches}
    uppers = peers(cluster)
    for lower in cluster.leaves:
        assert uppers[lower.name]
        for name in uppers[lower.name]:
            for one in set(shape["divided"]) - {"group"}:
                assert getattr(by_name[name], one) == getattr(lower, one)
    counts = {len(uppers[leaf.name]) for leaf in cluster.leaves}
    assert len(counts) == 1, "leaves have equal numbers of uplinks"


CASES: tuple[tuple[str, ...], ...] = (
    (model(planes=2, leaves=8, spines=3), "9 model.undivided spines.count (3, 2)"),
    (
        model(
            planes=2,
            leaf_keys=", rail_to_leaf: [0, 0, 1, 1, 2, 2, 3, 3]",
            keys=", divided_by: [plane]",
        ),
        "9 model.divided_by spines.divided_by 'plane'",
    ),
    (model(keys=", divided_by: [rail]"), "9 model.not_a_choice spines.divided_by[0] 'rail'"),
    (model(keys=", divided_by: [group]"), "9 model.divided_by spines.divided_by 'group'"),
    (model(keys=", groups: 2"), "9 model.switch_groups spines.groups 2"),
    (model(keys=", divided_by: [group], groups: 3"), "9 model.switch_groups spines.groups 3"),
    (
        model(SUPER % (4, ", divided_by: [unit]")),
        "11 model.divided_by super_spines.divided_by 'unit'",
    ),
    (
        model(
            SUPER % (4, ", divided_by: [group], groups: 4"), keys=", divided_by: [group], groups: 2"
        ),
        "11 model.switch_groups super_spines.groups 4",
    ),
    (
        model(SUPER % (256, "")).replace("spines: {count: 4", "spines: {count: 1"),
        "9 model.spine_ports spines.ports (8, 256)",
    ),
    (
        model(SUPER % (2, ", links_per_spine: 65")),
        "11 model.spine_ports super_spines.ports (260, 256)",
    ),
    (
        "".join(
            line for line in model(SUPER % (2, "")).splitlines(True) if not line.startswith("spine")
        ),
        "10 model.tier_missing super_spines",
    ),
    (model(leaf_keys=", uplink_ports: 7"), "8 model.uplink_ports leaves.uplink_ports (7, 8)"),
    (
        model(SUPER % (4, ""), keys=", uplink_ports: 3"),
        "9 model.uplink_ports spines.uplink_ports (3, 4)",
    ),
    (model("vars: {unit_2: {a: 1}}\n"), "11 model.unknown_group vars.unit_2 'unit_2'"),
)


@pytest.mark.parametrize(("broken", "wanted"), CASES)
def test_refused(broken: str, wanted: str) -> None:
    assert refused(broken) == [wanted]


def test_groups_of_switches_have_variables() -> None:
    keys = {"keys": ", divided_by: [unit]", "leaf_keys": ", nodes_per_set: 2"}
    small("vars: {unit_2: {a: 1}, leaf: {b: 1}}\n", leaves=8, **keys)
    small(SUPER % (1, "") + "vars: {super_spine: {a: 1}}\n")


FULL = """\
plugin: baremetal.mpi_roce.cluster
name: full
management: {subnet: 10.0.0.0/16}
nodes: {count: 10, management_first: 10.0.1.1}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 400}
addresses: {pool: 172.16.0.0/16, plan: %(plan)s}
launcher: {name: launcher01, management: 10.0.0.10}
switches:
  big: {tier: leaf, count: 4, ports: 16, management_first: 10.0.200.1, nodes_per_set: 4, nodes: 7}
  little: {tier: leaf, count: 1, ports: 16, management_first: 10.0.9.1, rail_to_leaf: [0, 0]%(p)s}
  spine: {tier: spine, count: 2, ports: 16, management_first: 10.0.210.1}
  small-spine: {tier: spine, count: 1, ports: 16, management_first: 10.0.211.1, speed_gbps: 800}
  core: {tier: core, count: 2, ports: 16, management_first: 10.0.220.1}
links:
- {from: big, to: spine, count: 2}
- {from: little, to: small-spine, count: 3}
- {from: [spine, small-spine], to: core}
"""


def full(plan: str = "subnet_per_rail", pool: str = "", **changes: str) -> str:
    written = FULL % {"plan": plan, "p": pool}
    for old, new in changes.items():
        assert old in written
        written = written.replace(old, new)
    return written


def test_pods_of_unequal_size_share_a_core() -> None:
    cluster = compile_model(read("m", full()))
    found = peers(cluster)
    assert found == {
        **{f"big0{number}": ["spine01", "spine02"] for number in range(1, 5)},
        "little01": ["small-spine01"],
        **{name: ["core01", "core02"] for name in ("spine01", "spine02", "small-spine01")},
        **{"core01": [], "core02": []},
    }
    assert len(cables(cluster)) == 2 * (4 * 2 * 2 + 3 + 3 * 2)
    by_name = {switch.name: switch for switch in cluster.switches}
    [three] = {group.speed_gbps for group in by_name["little01"].ports if group.kind == "uplink"}
    assert three == 800
    nodes = [[(rail.leaf, rail.leaf_port, rail.address) for rail in n.rails] for n in cluster.nodes]
    assert nodes[6] == [
        ("big03", "Ethernet2", "172.16.2.4"),
        ("big04", "Ethernet2", "172.16.3.4"),
    ]
    assert nodes[7] == [
        ("little01", "Ethernet0", "172.16.4.2"),
        ("little01", "Ethernet1", "172.16.5.2"),
    ], "the place of an eighth node of the first group is free"
    hosts = {host.name: host for host in inventory_of(cluster).hosts}
    assert hosts["core01"].groups == ("spine", "core")
    assert [hosts[name].variables["cluster_set"] for name in ("big03", "node08")] == [2, 3]


@pytest.mark.parametrize("plan", ["subnet_per_rail", "point_to_point"])
def test_a_group_with_a_pool_is_where_it_is_whatever_precedes_it(plan: str) -> None:
    text = full(plan, pool=", pool: 10.9.0.0/16")
    before = compile_model(read("m", text))
    assert before.nodes[7].rails[0].network in ("10.9.0.0/24", "10.9.0.0/31")
    more = text.replace("big: {tier: leaf, count: 4", "big: {tier: leaf, count: 6")
    after = compile_model(read("m", more))
    assert [node.rails for node in after.nodes] == [node.rails for node in before.nodes]


def test_units_are_counted_across_groups() -> None:
    text = full().replace("from: big, to: spine, count: 2", "from: [big, little], to: spine")
    text = text.replace("to: spine}", "to: spine, divided_by: [unit]}")
    text = text.replace("tier: spine, count: 2", "tier: spine, count: 3")
    text = "".join(line for line in text.splitlines(keepends=True) if "from: little" not in line)
    cluster = compile_model(read("m", text))
    found = peers(cluster)
    assert [found[name] for name in ("big01", "big03", "little01")] == [
        *(["spine01"], ["spine02"], ["spine03"]),
    ]
    units = {host.name: host.variables.get("cluster_unit") for host in inventory_of(cluster).hosts}
    assert [units[name] for name in ("big03", "little01", "spine03", "node07", "node08")] == [
        *(2, 3, 3, 2, 3),
    ]


def test_places_of_switches_that_the_model_writes() -> None:
    text = full().replace("nodes: 7", "nodes: 4")
    text = text.replace("rails: {count: 2,", "rails: {count: 2, planes: 2,")
    text = text.replace("rail_to_leaf: [0, 0]", "rail_to_leaf: [0, 0, 0, 0]")
    text = text.replace(
        "count: 2, ports: 16, management_first: 10.0.210.1",
        "count: 2, ports: 16, management_first: 10.0.210.1, plane: 1",
    )
    found = peers(compile_model(read("m", text.replace("count: 10", "count: 7"))))
    assert [found[f"big0{number}"] for number in range(1, 5)] == [[], ["spine01", "spine02"]] * 2


FULL_CASES = (
    (
        full(
            **{
                "core, count: 2": "core, count: 10000",
                "core: {": """core2: {
    tier: core, count: 10000, ports: 1, management_first: 10.1.0.1}
  core3: {tier: core, count: 10000, ports: 1, management_first: 10.1.0.1}
  core: {""",
            }
        ),
        "9 model.too_many_switches switches 30008",
    ),
    (full(**{"to: core": "to: cores"}), "18 model.unknown_switches links[2].to 'cores'"),
    (full(**{"from: big": "from: bug"}), "16 model.unknown_switches links[0].from 'bug'"),
    (
        full(**{"from: big, to: spine": "from: spine, to: big"}),
        "16 model.links_down links[0] 'big'",
    ),
    (full(**{"to: core}": "to: spine}"}), "18 model.links_down links[2] 'spine'"),
    (full(**{"tier: core": "tier: all"}), "14 model.wrong_form switches.core.tier 'all'"),
    (full(**{"tier: core, ": ""}), "14 model.missing_key switches.core.tier"),
    (
        full(**{"tier: core": "tier: core, nodes: 4"}),
        "14 model.key_of_other_tier switches.core.nodes 'nodes'",
    ),
    (
        full(**{"tier: leaf, count: 1": "tier: leaf, plane: 1, count: 1"}),
        "11 model.key_of_other_tier switches.little.plane 'plane'",
    ),
    (full(**{"nodes: 7": "nodes: 9"}), "10 model.nodes_of_leaves switches.big.nodes (9, 8)"),
    (
        full() + "leaves: {count: 2, ports: 4, management_first: 10.0.3.1}\n",
        "15 model.leaves_or_switches links ('leaves', 'switches', 'links')",
    ),
    (
        full(pool=", pool: 10.1.0.0/24")
        .replace("tier: leaf, ", "tier: core, ", 2)
        .replace("nodes_per_set: 4, nodes: 7", "plane: 0")
        .replace("rail_to_leaf: [0, 0], pool: 10.1.0.0/24", "plane: 0"),
        "9 model.no_leaves switches",
    ),
    (
        full(pool=", pool: 172.16.8.0/21"),
        "11 model.pool_in_management switches.little.pool '172.16.8.0/21'",
    ),
    (
        full(**{"count: 10": "count: 99"}),
        "11 model.more_nodes_than_ports switches.little.count (99, 13)",
    ),
    (
        full(**{"tier: core, ": "tier: core, system: [nvue], "}),
        "14 model.values_for_switches switches.core.system 1",
    ),
    (
        full(**{"tier: core, ": "tier: core, name: [a, b, c], "}),
        "14 model.values_for_switches switches.core.name 3",
    ),
    (
        full(**{"tier: core, ": "tier: core, name: [core, b], "}),
        "14 model.name_reserved switches.core.name[0] 'core'",
    ),
    (
        full(**{"tier: core, ": "tier: core, name: [node01, b], "}),
        "14 model.name_taken switches.core.name[0] 'node01'",
    ),
)


@pytest.mark.parametrize(("broken", "wanted"), FULL_CASES)
def test_the_full_form_refused(broken: str, wanted: str) -> None:
    assert refused(broken) == [wanted]


def test_sizes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is made of them."""
    monkeypatch.setattr(wiring, "_MAX_ENTRIES", 2)
    assert refused(full()) == [
        "9 model.too_many_switches switches 5",
        "15 model.too_many_switches links 3",
    ]
    monkeypatch.setattr(layout, "MAX_LINKS", 32)
    assert len(small().switches) == 8
    monkeypatch.setattr(layout, "MAX_LINKS", 31)
    assert refused(model()) == ["9 model.too_many_links spines 32"]


def test_one_of_both_forms() -> None:
    link = "links: [{from: a, to: b}]\n"
    assert refused(model(link)) == [
        "11 model.leaves_or_switches links ('leaves', 'spines', 'links')"
    ]
    text = "".join(line for line in model().splitlines(True) if not line.startswith("leaves"))
    assert refused(text) == ["8 model.leaves_or_switches spines ('spines',)"]
    assert refused(text.replace("spines", "x-spines")) == ["1 model.leaves_or_switches ()"]
    nothing = full(**{"from: big": "from: []"})
    assert refused(nothing) == ["16 model.unknown_switches links[0].from ''"]


def test_leaves_and_spines_below_a_core_have_no_unit_in_common() -> None:
    text = full(**{"from: [spine, small-spine], to: core": "from: [big, spine], to: core"})
    assert refused(text.replace("to: core", "to: core, divided_by: [unit]")) == [
        "18 model.divided_by links[2].divided_by 'unit'"
    ]


def test_names_of_groups_are_plain() -> None:
    assert refused(full(**{"core: {": "'{0}': {"})) == [
        "14 model.name_of_switches switches.{0} '{0}'",
        "18 model.unknown_switches links[2].to 'core'",
    ]


KINDS = """\
plugin: baremetal.mpi_roce.cluster
name: kinds
management: {subnet: 10.0.0.0/16}
kinds: {h100: {gpus: {count: 2}, rails: {count: 2, planes: 1, speed_gbps: 800}}}
nodes:
- {count: 3, management_first: 10.0.1.1, name: "b{}"}
- {count: 2, management_first: 10.0.2.1, name: "h{}", kind: h100}
gpus: {count: 2}
rails: {count: 2, planes: 2, speed_gbps: 400}
addresses: {pool: 172.16.0.0/16}
launcher: {name: launcher01, management: 10.0.0.10}
switches:
  twin: {tier: leaf, count: 4, ports: 16, management_first: 10.0.200.1, nodes: 3}
  old: {tier: leaf, count: 2, ports: 16, management_first: 10.0.201.1, kind: h100}
  spine: {tier: spine, count: 2, ports: 16, management_first: 10.0.210.1}
links:
- {from: twin, to: spine, count: 2}
- {from: old, to: spine, divided_by: []}
"""


def test_a_kind_with_other_planes_has_leaves_apart() -> None:
    cluster = compile_model(read("m", KINDS))
    rails = {node.name: node.rails for node in cluster.nodes}
    assert [(rail.interface, rail.leaf, rail.speed_gbps) for rail in rails["b3"]] == [
        ("rail0p0", "twin01", 400),
        ("rail0p1", "twin02", 400),
        ("rail1p0", "twin03", 400),
        ("rail1p1", "twin04", 400),
    ]
    assert [
        (rail.interface, rail.leaf, rail.leaf_port, rail.speed_gbps) for rail in rails["h2"]
    ] == [
        ("rail0", "old01", "Ethernet1", 800),
        ("rail1", "old02", "Ethernet1", 800),
    ]
    addresses = [rail.address for node in cluster.nodes for rail in node.rails]
    assert len(set(addresses)) == 3 * 4 + 2 * 2
    found = peers(cluster)
    assert found["twin01"] == ["spine01"] and found["twin02"] == ["spine02"]
    assert found["old01"] == ["spine01", "spine02"]
    assert len(cables(cluster)) == 2 * (4 * 2 + 2 * 2)
    planes = {switch.name: switch.plane for switch in cluster.switches}
    assert [planes[name] for name in ("twin01", "twin02", "old01")] == [0, 1, 0]
    assert planes["spine01"] is None, "of both the planes and the other leaves"


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        (
            "kind: h100}\n  spine",
            "kind: h200}\n  spine",
            "14 model.kind_not_found switches.old.kind 'h200'",
        ),
        ("nodes: 3", "nodes: 4", "13 model.kind_of_leaves switches.twin.nodes ('h1', 1)"),
        ("nodes: 3", "nodes: 2", "14 model.kind_of_leaves switches.old.nodes ('b3', 1)"),
    ],
)
def test_leaves_of_a_kind(old: str, new: str, wanted: str) -> None:
    assert wanted in refused(KINDS.replace(old, new))


@pytest.mark.parametrize(
    ("more", "keys", "remedy"),
    [
        ("pods: 4\n", "", "links"),
        ("planes: 2\n", "", "rails.planes"),
        ("", ", planes: 2", "divided_by: [plane]"),
        ("", ", pods: 2", "divided_by: [unit]"),
        ("", ", spine_groups: 2", "divided_by: [group]"),
        ("", ", bond: bond1", "port_channel: true"),
    ],
)
def test_words_of_others_for_a_division(more: str, keys: str, remedy: str) -> None:
    with pytest.raises(ModelError) as refusal:
        small(more, keys=keys)
    [finding] = refusal.value.findings
    assert (finding.code, remedy in finding.remedy) == ("model.unknown_key", True)


def test_switches_without_links() -> None:
    """They are idle, which is a doubt."""
    lines = full().splitlines(keepends=True)
    text = "".join(line for line in lines if "from: little" not in line)
    cluster = compile_model(read("m", text))
    found = peers(cluster)
    assert found["little01"] == []
    assert found["small-spine01"] == ["core01", "core02"]
    assert brief(cluster.doubts) == [
        "13 model.idle_switches switches.small-spine.count ('small-spine01', 1)",
        "17 model.leaves_apart links[1] ('big01', 'little01')",
    ]
    none = compile_model(read("m", text.partition("links:")[0]))
    assert not cables(none)


def test_groups_that_are_connected_twice() -> None:
    again = full() + "- {from: big, to: spine}\n"
    assert brief(compile_model(read("m", again)).doubts) == [
        "19 model.links_twice links[3] ('big', 'spine')"
    ]


def test_leaves_of_a_plane_without_spines() -> None:
    """Both groups of spines are written for plane 0."""
    head = UNITS.partition("leaves:")[0]
    spines = "{tier: spine, count: 2, ports: 8, plane: %d, management_first: 10.0.21%d.1}"
    group = "{tier: leaf, count: 4, ports: 8, management_first: 10.0.200.1, nodes_per_set: 2}"
    links = "links: [{from: a, to: b}, {from: a, to: c}]\n"
    for plane in (0, 1):
        switches = f"{{a: {group}, b: {spines % (0, 0)}, c: {spines % (plane, 1)}}}"
        found = brief(compile_model(read("m", f"{head}switches: {switches}\n{links}")).doubts)
        assert ("9 model.no_uplink links[1] ('a02', 2)" in found) is (plane == 0)
        assert not plane or found == []


UNITS = """\
plugin: baremetal.mpi_roce.cluster
name: units
management: {subnet: 10.0.0.0/16}
rails: {count: 1, planes: 2, speed_gbps: 400}
addresses: {pool: 172.16.0.0/16}
launcher: {name: launcher01, management: 10.0.0.10}
nodes: {count: 4, management_first: 10.0.1.1, slots: 8}
leaves: {count: 4, ports: 8, management_first: 10.0.200.1, nodes_per_set: 2}
spines: {count: 4, ports: 8, management_first: 10.0.210.1, divided_by: [%s]}
"""


@pytest.mark.parametrize(
    ("divided_by", "more", "wanted"),
    [
        ("", "", []),
        ("plane", "", []),
        (
            "unit",
            "",
            [
                "9 model.planes_connected spines.divided_by 'spines'",
                "9 model.leaves_apart spines ('leaf01', 'leaf03')",
            ],
        ),
        ("unit, plane", "", ["9 model.leaves_apart spines ('leaf01', 'leaf03')"]),
        (
            "unit, plane",
            "super_spines: {count: 2, ports: 8, management_first: 10.0.220.1}",
            [],
        ),
        (
            "",
            "super_spines: {count: 2, ports: 8, management_first: 10.0.220.1}",
            ["10 model.tier_without_path super_spines 'super_spines'"],
        ),
    ],
)
def test_planes_and_units_that_links_connect_or_leave_apart(
    divided_by: str, more: str, wanted: list[str]
) -> None:
    assert brief(compile_model(read("m", UNITS % divided_by + more)).doubts) == wanted


@pytest.mark.parametrize("order", ["node", "rail"])
@pytest.mark.parametrize("plan", ["subnet_per_rail", "point_to_point"])
def test_groups_that_share_a_pool_have_separate_networks(plan: str, order: str) -> None:
    text = full(plan).partition("switches:")[0].replace("count: 10", "count: 6")
    text = text.replace("plan:", f"order: {order}, plan:")
    line = (
        "  {0}: {{tier: leaf, count: 4, ports: 8, management_first: 10.0.20{1}.1, nodes: 2{2}}}\n"
    )
    sizes = (", nodes_per_set: 1", "", ", rail_to_leaf: [0, 0]")
    text += "switches:\n" + "".join(
        line.format(name, number, sizes[number]) for number, name in enumerate("abc")
    )
    nodes = compile_model(read("m", text)).nodes
    networks = [rail.network for node in nodes for rail in node.rails]
    shared = 4 if plan == "subnet_per_rail" else 0  # of b and c, whose nodes have one set
    assert len(set(networks)) == len(networks) - shared
    by_rail = [[node.rails[rail].network for node in nodes] for rail in (0, 1)]
    if order == "rail":
        addresses = [[IPv4Network(network) for network in own] for own in by_rail]
        halves = list(IPv4Network("172.16.0.0/16").subnets())
        assert all(
            network.subnet_of(half) for own, half in zip(addresses, halves) for network in own
        )


def test_spines_that_are_added_to_planes_move_nothing() -> None:
    """The full form of a model whose spines are dealt to planes, with one more in each."""
    pinned = ", nodes_per_set: 8, uplink_ports: 16"
    before = small(planes=2, leaves=8, leaf_keys=pinned)
    head = model(planes=2, leaves=8).partition("leaves:")[0]
    names = (
        "low: {count: 2, name: [spine01, spine02], management_first: 10.0.210.1, plane: 0",
        "high: {count: 2, name: [spine03, spine04], management_first: 10.0.210.3, plane: 1",
        "more: {count: 2, name: [spine05, spine06], management_first: 10.0.210.5",
    )
    text = f"{head}launcher: {{name: launcher01, management: 10.0.0.10}}\nswitches:\n"
    text += (
        "  leaf: {tier: leaf, count: 8, ports: 64, management_first: 10.0.200.1" + pinned + "}\n"
    )
    text += "".join(f"  {name}, tier: spine, ports: 256}}\n" for name in names) + "links:\n"
    text += "".join(f"- {{from: leaf, to: {name}, count: 2}}\n" for name in ("low", "high", "more"))
    after = compile_model(read("m", text))
    assert cables(before).items() < cables(after).items()
    assert [node.rails for node in before.nodes] == [node.rails for node in after.nodes]
    assert peers(after)["leaf01"] == ["spine01", "spine02", "spine05"]
    addresses = {switch.name: switch.management["address"] for switch in after.switches}
    assert all(addresses[switch.name] == switch.management["address"] for switch in before.switches)


def test_sets_are_no_units_unless_the_model_says_so() -> None:
    hosts = inventory_of(small(leaves=8, leaf_keys=", nodes_per_set: 2")).hosts
    assert {host.groups for host in hosts if host.name.startswith("leaf")} == {("leaf",)}
    assert all("cluster_unit" not in host.variables for host in hosts)


def test_chips_have_the_speed_of_the_kind_on_their_leaves() -> None:
    """400G on spectrum3, which has no ports of 800G, and 800G on spectrum4."""
    text = KINDS.partition("links:")[0].replace("ports: 16", "ports: 32")
    text = text.replace("twin: {", "twin: {asic: spectrum3, ")
    compile_model(read("m", text.replace("old: {", "old: {asic: spectrum4, ")))
    assert refused(text.replace("old: {", "old: {asic: spectrum3, ")) == [
        "14 model.chip_speed switches.old.asic ('spectrum3', 800)",
    ]


def test_a_spine_of_each_plane_by_name_and_address() -> None:
    """Lists of names and addresses in the order of planes: those of before stay where they are."""
    pinned = ", nodes_per_set: 8, uplink_ports: 16"
    before = small(planes=2, leaves=8, leaf_keys=pinned)
    listed = model(planes=2, leaves=8, leaf_keys=pinned, spines=6).replace(
        "management_first: 10.0.210.1",
        "name: [spine01, spine02, spine05, spine03, spine04, spine06], management_first: "
        "[10.0.210.1, 10.0.210.2, 10.0.210.5, 10.0.210.3, 10.0.210.4, 10.0.210.6]",
    )
    after = compile_model(read("m", listed))
    assert cables(before).items() < cables(after).items()
    addresses = {switch.name: switch.management["address"] for switch in after.switches}
    assert all(addresses[switch.name] == switch.management["address"] for switch in before.switches)
    assert addresses["spine05"] == "10.0.210.5"
    assert refused(listed.replace(", 10.0.210.6]", "]")) == [
        "9 model.values_for_switches spines.management_first 5"
    ]
    assert refused(listed.replace("10.0.210.6]", "10.0.210.5]")) == [
        "9 model.management_address_twice spines.management_first[5] ('10.0.210.5', 1, 'spine05')"
    ]


def test_another_word_for_bonded_rails() -> None:
    with pytest.raises(ModelError) as refusal:
        compile_model(read("m", model().replace("planes: 1", "planes: 2, lacp: true")))
    assert "bonded: true" in refusal.value.findings[0].remedy
