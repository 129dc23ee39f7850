# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compilation of models: the reference inventory, then single properties."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.names import is_host_name
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    Cluster,
    Inventory,
    ModelError,
    compile_model,
    inventory_of,
    load,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.facts import build, names
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.programs import program
from tests.unit.small_model import compiled, doubts, edited

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).parent / "golden" / "cluster_b300.json"
INVENTORIES = ("b300", "virtual", "virtual-mixed", "virtual-planes", "virtual-acceptance")

MODEL = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/20}
nodes: {%(nodes)s, management_first: 10.0.1.0}
gpus: {count: %(gpus)d}
rails: {count: %(rails)d, planes: %(planes)d, speed_gbps: 400}
addresses: {plan: %(plan)s, pool: 10.128.0.0/9, prefix: 22}
leaves: {count: %(leaves)d, ports: 64, management_first: 10.0.8.1%(leaf_keys)s}
spines: {count: 2, ports: 512, management_first: 10.0.12.1, links_per_leaf: 2}
launcher: {name: launcher01, management: 10.0.0.10}
"""


def small(**changes: Any) -> Cluster:
    values: dict[str, Any] = {
        "nodes": "count: 3",
        "gpus": 2,
        "rails": 2,
        "planes": 1,
        "plan": "subnet_per_rail",
        "leaf_keys": "",
    }
    values.update(changes)
    values.setdefault("leaves", values["rails"] * values["planes"])
    return compile_model(read("cluster.yml", MODEL % values))


def reference() -> Cluster:
    return load(str(ROOT / "inventories/b300/cluster.yml"))


def variables(inventory: Inventory, name: str) -> dict[str, Any]:
    """All variables of a host, merged as by Ansible."""
    return inventory.merged(next(host for host in inventory.hosts if host.name == name))


def test_the_reference_compiles_to_the_golden_file() -> None:
    inventory = inventory_of(reference())
    compiled = {
        "groups": inventory.group_variables,
        "hosts": {host.name: host.groups for host in inventory.hosts},
        "variables": {
            name: variables(inventory, name)
            for name in ("node01", "node04", "launcher01", "storage01", "leaf08", "spine04")
        },
    }
    text = json.dumps(compiled, indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", INVENTORIES)
def test_the_inventories_compile_without_a_word_to_say(name: str) -> None:
    cluster = load(str(ROOT / f"inventories/{name}/cluster.yml"))
    assert cluster.name == name
    assert len(cluster.nodes) == {"virtual-planes": 8, "virtual-acceptance": 5}.get(name, 4)


def test_the_virtual_clusters_can_be_up_together() -> None:
    clusters = [load(str(ROOT / f"inventories/{name}/cluster.yml")) for name in INVENTORIES[1:]]
    addresses = [
        {node.management["address"] for node in cluster.nodes}
        | {rail.address for node in cluster.nodes for rail in node.rails}
        for cluster in clusters
    ]
    assert len(set().union(*addresses)) == sum(map(len, addresses))


def test_hosts_have_exactly_the_documented_variables() -> None:
    contract = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    inventory = inventory_of(reference())
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| ([\w, ]+) \|", contract, re.M)
    assert len(rows) > 6
    everywhere = re.findall(r"`((?:cluster|roce)_\w+)`\s\(", contract)
    for name, role in (
        ("node01", "compute"),
        ("launcher01", "launcher"),
        ("storage01", "storage"),
        ("leaf01", "leaf"),
        ("spine01", "spine"),
    ):
        here = [keys for keys, on in rows if on == "all" or role in on.split(", ")]
        wanted = set(re.findall(r"\w+", " ".join(here)))
        assert set(variables(inventory, name)) == wanted | set(everywhere)


def test_rails_have_the_keys_of_the_contract() -> None:
    contract = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    paragraph = re.search(r"One entry of `cluster_rails`: (.*?)\n\n", contract, re.S)
    assert paragraph is not None
    named = re.findall(r"`([a-z_]+)`", paragraph[1])
    inventory = inventory_of(reference())
    assert list(variables(inventory, "node01")["cluster_rails"][0]) == named


def test_values_of_one_node_are_host_variables() -> None:
    inventory = inventory_of(
        small(
            nodes="count: 3, drained: [node02], overrides: {node03: {slots: 1, rack: B-7.1, "
            "gpu_pci: [0000:14:00.0, 0000:32:00.0], vars: {family: el}, management: 10.0.0.99}}"
        )
    )
    assert set(inventory.hosts[0].variables) == {
        *("ansible_host", "cluster_management", "cluster_index", "cluster_rails")
    }
    node01, node02, node03 = (variables(inventory, f"node0{number}") for number in (1, 2, 3))
    assert [node["cluster_drained"] for node in (node01, node02, node03)] == [False, True, False]
    assert [node["cluster_slots"] for node in (node01, node02, node03)] == [2, 2, 1]
    assert [node["cluster_rack"] for node in (node01, node02, node03)] == ["r01", "r01", "B-7.1"]
    assert node01["cluster_gpus"][1] == {"index": 1, "pci": None, "numa": None}
    assert node03["cluster_gpus"][1] == {"index": 1, "pci": "0000:32:00.0", "numa": None}
    assert node03["ansible_host"] == node03["cluster_management"]["address"] == "10.0.0.99"
    assert inventory.hosts[2].groups == ("compute", "rack_B_7_1")
    assert inventory.hosts[2].site_variables == {"family": "el"}


def test_listed_nodes_are_themselves() -> None:
    cluster = small(
        nodes="list: [{name: big, pci: [0000:11:00.0, 0000:2f:00.0], slots: 5, drained: true}, "
        "{name: little, management: 10.0.0.77}]"
    )
    big, little = cluster.nodes
    assert (big.slots, big.drained, big.management["address"]) == (5, True, "10.0.1.0")
    assert [rail.pci for rail in big.rails] == ["0000:11:00.0", "0000:2f:00.0"]
    assert (little.slots, little.drained, little.management["address"]) == (2, False, "10.0.0.77")


def test_an_unquoted_pci_address_is_text() -> None:
    assert read("m", "a: 0000:11:00.0").data == {"a": 660.0}, "YAML's own opinion"
    cluster = small(nodes="list: [{name: a, pci: [0000:11:00.0, 0000:dA:00.0]}]")
    assert [rail.pci for rail in cluster.nodes[0].rails] == ["0000:11:00.0", "0000:da:00.0"]


def test_planes_are_interfaces_of_their_own() -> None:
    devices = "[[0000:11:00.0, 0000:11:00.1], [0000:2f:00.0, 0000:2f:00.1]]"
    cluster = small(planes=2, nodes=f"list: [{{name: a, pci: {devices}}}]")
    rails = cluster.nodes[0].rails
    assert [(rail.rail, rail.plane, rail.interface, rail.pci) for rail in rails] == [
        (0, 0, "rail0p0", "0000:11:00.0"),
        (0, 1, "rail0p1", "0000:11:00.1"),
        (1, 0, "rail1p0", "0000:2f:00.0"),
        (1, 1, "rail1p1", "0000:2f:00.1"),
    ]
    assert len({rail.network for rail in rails}) == len({rail.leaf for rail in rails}) == 4


def test_rails_may_share_a_leaf() -> None:
    cluster = small(rails=4, gpus=4, leaves=2, leaf_keys=", rail_to_leaf: [0, 0, 1, 1]")
    second = cluster.nodes[1].rails
    assert [(rail.leaf, rail.leaf_port) for rail in second] == [
        ("leaf01", "Ethernet2"),
        ("leaf01", "Ethernet3"),
        ("leaf02", "Ethernet2"),
        ("leaf02", "Ethernet3"),
    ]


def test_a_second_leaf_set_has_separate_subnets() -> None:
    cluster = small(leaves=4, leaf_keys=", nodes_per_set: 2")
    first, third = cluster.nodes[0].rails[0], cluster.nodes[2].rails[0]
    assert (first.leaf, first.leaf_port, first.gateway) == ("leaf01", "Ethernet0", "10.128.0.1")
    assert (third.leaf, third.leaf_port, third.gateway) == ("leaf03", "Ethernet0", "10.128.8.1")
    everybody = inventory_of(cluster).group_variables["all"]
    assert everybody["cluster_rail_networks"] == ["10.128.0.0/9"], "routed to the other set"


def test_no_route_is_needed_within_one_leaf_set() -> None:
    assert "cluster_rail_networks" not in inventory_of(small()).group_variables["all"]


def test_point_to_point_gateways() -> None:
    cluster = small(plan="point_to_point")
    rail = cluster.nodes[1].rails[1]
    assert (rail.address, rail.prefix, rail.network) == ("10.128.0.7", 31, "10.128.0.6/31")
    assert rail.gateway == "10.128.0.6"
    ports = cluster.leaves[1].ports[0]
    assert ports.addresses[rail.leaf_port] == rail.gateway
    assert ports.address is None
    everybody = inventory_of(cluster).group_variables["all"]
    assert everybody["cluster_rail_networks"] == ["10.128.0.0/9"], "routed through the gateways"


@pytest.mark.parametrize(
    ("edits", "wanted"),
    [
        ("rails.gpu: [3, null]", [(3, 1), (None, None)]),
        ("rails.numa: [5, null]", [(0, 5), (1, None)]),
    ],
)
def test_gpu_and_numa_node_of_a_rail(edits: str, wanted: list[Any]) -> None:
    text = edited(f"gpus: {{count: 4, numa: [0, 0, 1, 1]}}; {edits}")
    rails = compile_model(read("m", text)).nodes[0].rails
    assert [(rail.gpu, rail.numa) for rail in rails] == wanted


def test_an_absent_node_keeps_its_place_free() -> None:
    full, without = small(), small(nodes="count: 3, absent: [node02]")
    assert [node.name for node in without.nodes] == ["node01", "node03"]
    assert without.nodes[1] == full.nodes[2]
    assert without.leaves[0].ports[0].peers == {"Ethernet0": "node01", "Ethernet2": "node03"}


shapes = st.fixed_dictionaries(
    {
        "nodes": st.integers(1, 40),
        "rails": st.integers(1, 8),
        "planes": st.integers(1, 2),
        "plan": st.sampled_from(["subnet_per_rail", "point_to_point"]),
        "sets": st.integers(1, 4),
    }
)


def shaped(shape: dict[str, Any], nodes: int) -> Cluster:
    return small(
        nodes=f"count: {nodes}",
        gpus=8,
        rails=shape["rails"],
        planes=shape["planes"],
        plan=shape["plan"],
        leaves=shape["rails"] * shape["planes"] * shape["sets"],
        leaf_keys=", nodes_per_set: 41" if shape["sets"] == 1 else ", nodes_per_set: 21",
    )


@settings(max_examples=30)
@given(shapes)
def test_another_node_changes_nothing_of_the_others(shape: dict[str, Any]) -> None:
    before, after = shaped(shape, shape["nodes"]), shaped(shape, shape["nodes"] + 1)
    assert after.nodes[:-1] == before.nodes
    assert [leaf.management for leaf in after.leaves] == [leaf.management for leaf in before.leaves]
    for old, new in zip(before.leaves, after.leaves):
        for one in old.ports:
            same = [other for other in new.ports if other.peer_interface == one.peer_interface]
            assert len(same) == 1
            assert one.peers.items() <= same[0].peers.items()


@settings(max_examples=30)
@given(shapes)
def test_both_ends_of_every_cable_agree_and_addresses_are_unique(shape: dict[str, Any]) -> None:
    cluster = shaped(shape, shape["nodes"])
    ends = {}
    for switch in (*cluster.leaves, *cluster.spines):
        for group in switch.ports:
            for port, peer in group.peers.items():
                assert (switch.name, port) not in ends
                ends[switch.name, port] = (peer, group.peer_interface)
    for node in cluster.nodes:
        for rail in node.rails:
            assert ends.pop((rail.leaf, rail.leaf_port)) == (node.name, rail.interface)
    for end, other in ends.items():
        assert ends[other] == end
    # Every leaf has two links to the spines of its plane.
    planes = shape["planes"]
    assert len(ends) == 2 * len(cluster.leaves) * len(cluster.spines) // planes * 2
    hosts = [*cluster.nodes, *cluster.launchers, *cluster.leaves, *cluster.spines]
    addresses = [host.management["address"] for host in hosts]
    addresses += [rail.address for node in cluster.nodes for rail in node.rails]
    gateways = {rail.gateway for node in cluster.nodes for rail in node.rails}
    assert len(set(addresses)) == len(addresses)
    assert not gateways & set(addresses)


SPINE = "spines: {count: 1, ports: 64, management_first: 10.0.0.90"
OVER = ["10 model.oversubscribed spines.links_per_leaf '4:1'"]
TIERS = "spines: {count: 1, ports: 128, management_first: 10.0.0.90, links_per_leaf: 32}; "
TIERS += "super_spines: {count: 1, ports: 64, management_first: 10.0.0.91, links_per_spine: "
CHIPS = "leaves.ports: 16; leaves.asic: [spectrum4,spectrum2]; rails.speed_gbps: 200"
UNCONTROLLED = "congestion_control: {notification_point: false, reaction_point: false}"
NOTHING_SLOWS = "qos.nothing_slows roce_qos.congestion_control"
LONG = "nodes.count: 64; leaves.asic: spectrum4; roce_qos: {cable_metres: {to_nodes: 300}"
LOSSLESS = "bandwidth_percent: 9, lossless: true"
TWO = f"{{name: s, dscps: [20], priority: 4, {LOSSLESS}}}"
THREE = f"{TWO}, {{name: t, dscps: [21], priority: 5, {LOSSLESS}}}"
BELOW = "qos.below_packet roce_qos.ecn.minimum_bytes"
ABOVE = "qos.above_buffer roce_qos.ecn.maximum_bytes"


@pytest.mark.parametrize(
    ("edits", "wanted"),
    [
        ("name: small", []),
        ("addresses.pool: 100.64.0.0/16", []),
        ("addresses.pool: 11.0.0.0/16", ["7 model.public_pool addresses.pool '11.0.0.0/16'"]),
        ("nodes.drained: [node01, node02]", ["4 model.all_drained nodes.drained 2"]),
        ("domain: mpi.local", ["10 model.local_domain domain 'mpi.local'"]),
        ("domain: local.example.net", []),
        ("mpi: {uid: 1000}", ["10 model.first_uid mpi.uid 1000"]),
        ("mpi: {uid: 1001}", []),
        (
            "nodes.absent: [node02]; nodes.overrides: {node02: {drained: true}}",
            ["4 model.drained_and_absent nodes.absent[0] 'node02'"],
        ),
        (
            "nodes.absent: [b]; nodes.count; nodes.list: [{name: a}, {name: b, drained: true}]",
            ["4 model.drained_and_absent nodes.absent[0] 'b'"],
        ),
        ("nodes.absent: [node02]; nodes.overrides: {node02: {drained: false}}", []),
        (
            "nodes.overrides: {node01: {rack: R1}, node02: {rack: r1}}",
            ["4 model.differ_in_case nodes.overrides.node02.rack ('R1', 'r1')"],
        ),
        (
            "kinds: {b300: {}, B300: {}}; nodes.kind: b300",
            [
                "10 model.differ_in_case kinds.B300 ('b300', 'B300')",
                "10 model.kind_unused kinds.B300 'B300'",
            ],
        ),
        ("kinds: {b300: {}}; nodes.absent: [node02]", []),
        ("nodes.slots: 3", ["4 model.slots_per_gpu nodes.slots (3, 2)"]),
        ("nodes.slots: 1", []),
        ("nodes.slots: 6", []),
        ("nodes.overrides: {node02: {slots: 5}}", ["4 model.slots_per_gpu nodes.slots (5, 2)"]),
        ("gpus; nodes.slots: 7", []),
        ("rails.gpu: [0, 0]", ["6 model.gpu_without_rail rails.gpu (0, 1)"]),
        ("rails.gpu: [0, ~]", []),
        ("gpus.count: 1; rails.gpu: [0, 0]", []),
        ("rails.count: 1", ["8 model.idle_switches leaves.count ('leaf02', 1)"]),
        ("gpus.count: 4; rails.gpu: [0, 2]", []),
        (
            "gpus.numa: [0, 1]; rails.numa: [0, 0]",
            ["6 model.numa_of_rail rails.numa (1, 1, 1)"],
        ),
        ("gpus.numa: [0, 1]; rails.numa: [0, 1]", []),
        ("gpus.numa: [0, 1]; rails.numa: [0, ~]", []),
        ("gpus.numa: [0, 1]; rails.gpu: [1,0]; rails.numa: [1,0]", []),
        ("rails.interface: 'ib{rail}'", ["6 model.interface_of_system rails.interface 'ib0'"]),
        (
            "rails.interface: 'enp{rail}s0f0np0'",
            ["6 model.interface_of_system rails.interface 'enp0s0f0np0'"],
        ),
        ("rails.interface: 'ens{rail}'", ["6 model.interface_of_system rails.interface 'ens0'"]),
        ("rails.interface: 'ibrail{rail}'", []),
        ("rails.interface: 'rdma{rail}'", []),
        ("rails.interface: 'energy{rail}'", []),
        ("nodes.absent: [node02]; leaves.count: 4", []),
        (
            "nodes.count: 3; leaves.count: 4; leaves.nodes_per_set: 2",
            ["8 model.leaves_apart leaves ('leaf01', 'leaf03')"],
        ),
        ("leaves.count: 4", ["8 model.idle_switches leaves.count ('leaf03', 2)"]),
        (
            "leaves.count: 4; storage: [{name: s1, management: 10.0.0.9, links: "
            "[{leaf: leaf04, port: Ethernet8, interface: e}]}]",
            ["8 model.idle_switches leaves.count ('leaf03', 1)"],
        ),
        (
            f"{SPINE}, links_per_leaf: 15}}",
            ["10 model.oversubscribed spines.links_per_leaf '3.27:1'"],
        ),
        (f"{SPINE}, links_per_leaf: 16}}", []),
        (f"{TIERS}4}}", ["11 model.oversubscribed super_spines.links_per_spine '16:1'"]),
        (f"{TIERS}5}}", []),
        (f"{SPINE}}}; leaves.nodes_per_set: 3", []),
        (f"{SPINE}}}; leaves.nodes_per_set: 4", OVER),
        (f"{SPINE}, speed_gbps: 1600}}; leaves.nodes_per_set: 6", []),
        ("roce_qos: {ecn: {minimum_bytes: 4209}}", [f"10 {BELOW} (4209, 4210)"]),
        (f"roce_qos: {{roce: {{lossless: false}}, {UNCONTROLLED}}}", [f"10 {NOTHING_SLOWS}"]),
        (f"roce_qos: {{{UNCONTROLLED}}}", []),
        (f"{LONG}, classes: [{TWO}]}}", []),
        (
            f"{LONG}, classes: [{THREE}]}}",
            ["10 qos.headroom_above_buffer roce_qos.cable_metres (230227968, 158229504)"],
        ),
        (f"leaves.asic: {LONG.partition('asic: ')[2]}, classes: [{THREE}]}}", []),
        ("roce_qos: {ecn: {minimum_bytes: 4210}}", []),
        (
            "roce_qos: {pfc: {xoff_bytes: 4000}, ecn: {minimum_bytes: 3000, maximum_bytes: 3500}}",
            [
                f"10 {BELOW} (3000, 4210)",
                "10 qos.below_packet roce_qos.ecn.maximum_bytes (3500, 4210)",
                "10 qos.below_packet roce_qos.pfc.xoff_bytes (4000, 4210)",
            ],
        ),
        (f"{CHIPS}; roce_qos: {{pfc: {{xoff_bytes: 34287552}}}}", []),
        (
            f"{CHIPS}; roce_qos: {{pfc: {{xoff_bytes: 34287553}}}}",
            ["10 qos.above_buffer roce_qos.pfc.xoff_bytes (34287553, 34287552)"],
        ),
        ("roce_qos: {ecn: {maximum_bytes: 268435457}}", [f"10 {ABOVE} (268435457, 268435456)"]),
        ("roce_qos: {ecn: {maximum_bytes: 268435456}}", []),
        (
            "leaves.asic: spectrum6; roce_qos: {ecn: {maximum_bytes: 268435457}}",
            [f"10 {ABOVE} (268435457, 268435456)"],
        ),
        ("leaves.asic: j2; asics: {j2: {}}; roce_qos: {ecn: {maximum_bytes: 268435457}}", []),
    ],
)
def test_doubts_are_told_and_refuse_nothing(edits: str, wanted: list[str]) -> None:
    assert doubts(edited(edits)) == wanted


@settings(max_examples=60)
@given(
    st.sampled_from(["node{}", "{}", "a-{}", "n{:05d}", "a" * 57 + "{}", "rail0-{}"]),
    st.sampled_from(["rail{rail}", "r_{rail}", "r.{rail}", ".{rail}", "r{rail}-", "{rail}"]),
    st.sampled_from(["login", "localhost", "1", "a-1-rail0", "n00001-0", "n-1", "rail0"]),
)
def test_names_of_a_model_are_unique_host_names(node: str, interface: str, launcher: str) -> None:
    edits = f"nodes.name: '{node}'; rails.interface: '{interface}'; launcher.name: '{launcher}'"
    with contextlib.suppress(ModelError):
        inventory = compiled(edited(edits))
        hosts = {host.name: inventory.merged(host) for host in inventory.hosts}
        own = [name for each in names(build(hosts), "")["own"].values() for name in each]
        assert len(set(own)) == len(own)
        assert all(map(is_host_name, own))


def test_the_page_of_keys_is_not_stale() -> None:
    generator = program("docs/generate_cluster_model.py")
    written = (ROOT / "docs/cluster-model.md").read_text(encoding="utf-8")
    assert written == generator.page(), "run docs/generate_cluster_model.py"
