# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Examples of models: their switches and cables are those of the published designs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    Cluster,
    inventory_of,
    load,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import PortGroup

EXAMPLES = Path(__file__).resolve().parents[2] / "inventories" / "examples"
NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/cluster.yml"))


def example(name: str) -> Cluster:
    return load(str(EXAMPLES / name / "cluster.yml"))


def groups(cluster: Cluster, kind: str) -> Iterator[tuple[str, PortGroup]]:
    for switch in cluster.switches:
        for group in switch.ports:
            if group.kind == kind:
                yield switch.name, group


def cables(cluster: Cluster, kind: str) -> int:
    return sum(len(group.peers) for _name, group in groups(cluster, kind))


def per_switch(cluster: Cluster, kind: str) -> dict[str, int]:
    """Gb/s of the ports of each switch."""
    found: Counter[str] = Counter()
    for name, group in groups(cluster, kind):
        found[name] += len(group.peers) * group.speed_gbps
    return found


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_valid_and_both_ends_agree(name: str) -> None:
    cluster = example(name)
    assert not cluster.doubts
    assert cluster.name == name
    ends = {
        (switch.name, port): (peer, group.peer_interface)
        for switch in cluster.switches
        for group in switch.ports
        if group.kind != "storage"
        for port, peer in group.peers.items()
    }
    for node in cluster.nodes:
        for rail in node.rails:
            for each in vars(rail).get("members", [vars(rail)]):
                assert ends.pop((each["leaf"], each["leaf_port"])) == (node.name, each["interface"])
    assert all(ends[there] == here for here, there in ends.items())
    hosts = [host.name for host in inventory_of(cluster).hosts]
    assert len(hosts) == len(set(hosts))


# docs.nvidia.com/dgx-superpod/reference-architecture/scalable-infrastructure-b300, table 3:
# units, nodes, GPUs, leaves, spines, cables from nodes to leaves and from leaves to spines.
TABLE_3 = {
    1: (64, 512, 16, 8, 512, 512),
    4: (256, 2048, 64, 32, 2048, 2048),
    8: (512, 4096, 128, 64, 4096, 4096),
    16: (1024, 8192, 256, 128, 8192, 8192),
}
SUPERPODS = [name for name in NAMES if name.startswith("superpod-b300-")]


def test_every_row_of_the_table_has_an_example() -> None:
    single = [f"superpod-b300-{units}su" for units in TABLE_3]
    assert sorted([*single, "superpod-b300-twin-1su", "superpod-b300-twin-4su"]) == SUPERPODS


@pytest.mark.parametrize("name", SUPERPODS)
def test_superpods_have_the_published_counts(name: str) -> None:
    cluster = example(name)
    units = int(name.removesuffix("su").rpartition("-")[2])
    planes = 2 if "twin" in name else 1
    assert (
        len(cluster.nodes),
        sum(len(node.gpus) for node in cluster.nodes),
        len(cluster.leaves),
        len(cluster.spines),
        cables(cluster, "host") // planes,  # both planes of a GPU share a cable of 800G
        cables(cluster, "uplink"),
    ) == TABLE_3[units]
    # No blocking: as much to spines as to nodes, and all 64 ports of spines.
    assert per_switch(cluster, "host") == per_switch(cluster, "uplink")
    assert set(per_switch(cluster, "host").values()) == {32 * 800}
    assert set(per_switch(cluster, "downlink").values()) == {64 * 800}


@pytest.mark.parametrize("name", [name for name in SUPERPODS if "twin" in name])
def test_planes_of_a_superpod_have_no_switch_in_common(name: str) -> None:
    cluster = example(name)
    plane_of = {switch.name: switch.plane for switch in cluster.switches}
    assert Counter(plane_of[spine.name] for spine in cluster.spines) == {
        0: len(cluster.spines) // 2,
        1: len(cluster.spines) // 2,
    }
    for leaf, group in groups(cluster, "uplink"):
        assert {plane_of[spine] for spine in group.peers.values()} == {plane_of[leaf]}
    for node in cluster.nodes:
        assert all(plane_of[rail.leaf] == rail.plane for rail in node.rails)


def test_rails_of_a_superpod_unit_share_a_leaf() -> None:
    """Rails are aligned in groups of 64 nodes (network-fabrics.html, compute fabric)."""
    cluster = example("superpod-b300-twin-4su")
    for rail in range(16):
        of_leaf = Counter(node.rails[rail].leaf for node in cluster.nodes)
        assert list(of_leaf.values()) == [64] * 4
    units = Counter(group for host in inventory_of(cluster).hosts for group in host.groups)
    assert [units[f"unit_{number}"] for number in range(1, 5)] == [64 + 16] * 4


def test_racks_and_pods_of_llama_3() -> None:
    """arXiv 2407.21783, section 3.3.1."""
    pod, cluster = example("rack-switches"), example("three-tiers")
    assert len(pod.leaves) == 192
    assert sum(len(node.gpus) for node in pod.nodes) == 3072
    assert set(Counter(rail.leaf for node in pod.nodes for rail in node.rails).values()) == {16}
    assert per_switch(pod, "host") == per_switch(pod, "uplink")
    assert sum(len(node.gpus) for node in cluster.nodes) == 24_576
    pods = Counter(leaf.unit for leaf in cluster.leaves)
    assert list(pods.values()) == [192] * 8
    down, up = per_switch(cluster, "downlink"), per_switch(cluster, "uplink")
    middle = [spine.name for spine in cluster.spines if spine.unit is not None]
    assert {round(down[name] / up[name]) for name in middle} == {7}
    for leaf, group in groups(cluster, "uplink"):
        if leaf.startswith("rack0193"):
            assert set(group.peers.values()) <= {f"cluster{number:03d}" for number in range(17, 33)}


def test_pods_of_unequal_size() -> None:
    cluster = example("unequal-pods")
    leaves = {node.name: {rail.leaf for rail in node.rails} for node in cluster.nodes}
    assert {len(leaves[f"node{number:02d}"]) for number in range(1, 33)} == {8}
    assert {len(leaves[f"node{number:02d}"]) for number in range(33, 49)} == {4}
    assert not leaves["node32"] & leaves["node33"]
    units = {host.name: host.variables.get("cluster_unit") for host in inventory_of(cluster).hosts}
    names = ("node32", "leaf-a08", "spine-a01", "node33", "leaf-b01", "spine-b02", "core01")
    assert [units[name] for name in names] == [1, 1, 1, 2, 2, 2, None]
    assert per_switch(cluster, "host") == {
        name: speed for name, speed in per_switch(cluster, "uplink").items() if "leaf" in name
    }


def test_64_nodes_with_four_gpus() -> None:
    """cloudswit.ch/?p=23330: four leaves with 64 ports of 400G and 32 of 800G, two spines."""
    cluster = example("leaf-spine-64x4")
    assert sum(len(node.gpus) for node in cluster.nodes) == 256
    assert set(per_switch(cluster, "host").values()) == {64 * 400}
    assert set(per_switch(cluster, "uplink").values()) == {32 * 800}
    assert set(per_switch(cluster, "downlink").values()) == {64 * 800}


def test_stripes_of_juniper() -> None:
    cluster = example("juniper-stripes")
    assert (len(cluster.leaves), len(cluster.spines)) == (16, 4)
    # Table of leaf-to-spine links: 25.6 Tb/s to spines, and as much to eight servers.
    assert sum(per_switch(cluster, "uplink").values()) == 25_600
    assert sum(per_switch(cluster, "host").values()) == 25_600
    nodes = {node.name: node for node in cluster.nodes}
    rails = {(node.name, rail.interface): rail for node in cluster.nodes for rail in node.rails}
    # GPU servers to leaf nodes connections, of both stripes.
    for server, interface, leaf, port, gateway, address in (
        ("server1", "rail0", "stripe1-leaf1", "et-0/0/0:0", "10.200.0.0", "10.200.0.1"),
        ("server1", "rail7", "stripe1-leaf8", "et-0/0/0:0", "10.200.0.14", "10.200.0.15"),
        ("server2", "rail1", "stripe1-leaf2", "et-0/0/1:0", "10.200.0.18", "10.200.0.19"),
        ("server5", "rail0", "stripe2-leaf1", "et-0/0/0:0", "10.200.1.0", "10.200.1.1"),
    ):
        rail = rails[server, interface]
        assert (rail.leaf, rail.leaf_port, rail.gateway, rail.address) == (
            *(leaf, port, gateway, address),
        )
    assert len(nodes) == 8


def test_addresses_in_the_order_of_rails() -> None:
    cluster = example("rail-order")
    rails = [[rail.network for rail in node.rails[:2]] for node in cluster.nodes[:2]]
    assert rails == [["172.16.0.0/31", "172.18.0.0/31"], ["172.16.0.2/31", "172.18.0.2/31"]]


def test_ports_of_the_enterprise_reference() -> None:
    """Links of su-01-node-01 and -02 from eth3 to eth10 in ERA-289-topology.json."""
    nodes = {node.name: node.rails for node in example("enterprise-2-8-9-400").nodes}
    ports = [f"{rail.leaf} {rail.leaf_port}" for rail in nodes["su-01-node-01"]]
    assert ports == [
        *("core-01 swp4s0", "core-02 swp4s0", "core-02 swp4s1", "core-01 swp4s1"),
        *("core-01 swp5s0", "core-02 swp5s0", "core-02 swp5s1", "core-01 swp5s1"),
    ]
    assert [rail.leaf_port for rail in nodes["su-01-node-02"][::7]] == ["swp6s0", "swp7s1"]


def test_bonds_and_links_between_the_switches_of_the_enterprise_reference() -> None:
    """ERA-289-topology.json; bond57s0 to bond57s5 of both exported configurations."""
    cluster = example("enterprise-2-8-9-400")
    assert cables(cluster, "peer") == 2 * 48
    for switch, group in groups(cluster, "peer"):
        [(port, peer)] = group.peers.items()
        assert (group.peer_interface, {switch, peer}) == (port, {"core-01", "core-02"})
    bonds: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
    for switch, group in groups(cluster, "storage"):
        for port, peer in group.peers.items():
            assert group.channels == {port: ""} and group.speed_gbps == 100
            bonds.setdefault((peer, group.bond), set()).add((switch, port, group.peer_interface))
    assert len(bonds) == 6
    assert bonds["storage-02", "bond1"] == {
        ("core-01", "swp57s3", "eth2"),
        ("core-02", "swp57s3", "eth5"),
    }


def test_bonds_of_two_planes() -> None:
    """doi.org/10.1145/3651890.3672265: a segment of HPN has 1024 GPUs, and 1.067:1."""
    cluster = example("bonded-planes")
    assert sum(len(node.gpus) for node in cluster.nodes) == 1024
    assert (cables(cluster, "host"), len(cluster.leaves)) == (128 * 8 * 2, 16)
    down, up = per_switch(cluster, "host"), per_switch(cluster, "uplink")
    assert {round(down[name] / up[name], 3) for name in down} == {1.067}
    plane_of = {switch.name: switch.plane for switch in cluster.switches}
    for node in cluster.nodes:
        assert len({rail.address for rail in node.rails}) == 8
        for rail in node.rails:
            assert [plane_of[member["leaf"]] for member in rail.members] == [0, 1]
            assert rail.speed_gbps == 400
    for leaf, group in groups(cluster, "uplink"):
        assert {plane_of[spine] for spine in group.peers.values()} == {plane_of[leaf]}


def test_port_channels_of_two_links() -> None:
    """topo_t1-64-lag.yml: two links to each of four switches, with one /31."""
    cluster = example("port-channels")
    for leaf in cluster.leaves:
        channels: dict[tuple[str, str, str], list[str]] = {}
        for group in (group for group in leaf.ports if group.kind == "uplink"):
            for port, peer in group.peers.items():
                key = (peer, group.channels[port], group.addresses[port])
                channels.setdefault(key, []).append(port)
        assert [len(members) for members in channels.values()] == [2] * 4
        assert [(peer, name) for peer, name, _address in channels] == [
            (f"spine{number:02d}", f"PortChannel1{number:02d}") for number in range(1, 5)
        ]
