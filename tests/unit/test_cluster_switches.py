# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Switches of a model: systems, chips, port names, and cables to storage hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import (
    Headroom,
    asic_named,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import (
    headroom as headroom_of,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.port_names import expanded
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    Cluster,
    compile_model,
    inventory_of,
    read,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.headroom_rows import Row, rows
from tests.unit.small_model import edited, refused

BASE = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/24}
nodes: {count: 3, management_first: 10.0.0.11}
gpus: {count: 3}
rails: {count: 3, speed_gbps: 400}
addresses: {pool: 10.1.0.0/16}
leaves: {count: 3, ports: 64, management_first: 10.0.0.101}
spines: {count: 2, ports: 64, management_first: 10.0.0.121, links_per_leaf: 2}
launcher: {name: launcher01, management: 10.0.0.10}
storage: [{name: storage01, management: 10.0.0.20}]
"""
MIXED = {
    "leaves": "system: [sonic, nvue, eos], asic: [spectrum4, spectrum4, tomahawk5]",
    "spines": "system: [eos, sonic], asic: [tomahawk5, spectrum4]",
}


def model(leaves: str = "", spines: str = "", storage: str = "", more: str = "") -> str:
    text = BASE
    for section, keys in (("leaves", leaves), ("spines", spines)):
        if keys:
            text = text.replace(f"{section}: {{", f"{section}: {{{keys}, ")
    if storage:
        text = text.replace("10.0.0.20}]", f"10.0.0.20, links: [{storage}]}}]")
    return text + more


def small(*args: str, **changes: str) -> Cluster:
    return compile_model(read("cluster.yml", model(*args, **changes)))


def ends(cluster: Cluster) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Every port of every switch: its kind, and its peer."""
    found: dict[tuple[str, str], tuple[str, str, str]] = {}
    for switch in (*cluster.leaves, *cluster.spines):
        for group in switch.ports:
            for port, peer in group.peers.items():
                assert (switch.name, port) not in found
                found[switch.name, port] = (group.kind, peer, group.peer_interface)
    return found


def assert_both_ends_agree(cluster: Cluster) -> None:
    found = ends(cluster)
    for node in cluster.nodes:
        for rail in node.rails:
            assert found.pop((rail.leaf, rail.leaf_port)) == ("host", node.name, rail.interface)
    for here, (kind, *there) in found.items():
        other, *back = found[tuple(there)]  # type: ignore[index]
        assert tuple(back) == here
        assert {kind, other} == {"uplink", "downlink"}


def test_systems_of_spectrum_x() -> None:
    mode = "roce_qos: {fabric_mode: spectrum_x}\n"
    assert refused(model(MIXED["leaves"], MIXED["spines"], more=mode)) == [
        "8 model.spectrum_x_system leaves.system 'eos'",
        "8 model.spectrum_x_system leaves.system 'sonic'",
        "9 model.spectrum_x_system spines.system 'eos'",
        "9 model.spectrum_x_system spines.system 'sonic'",
    ]
    nvue = small("system: nvue, asic: spectrum4", more=mode)
    assert {switch.system for switch in (*nvue.leaves, *nvue.spines)} == {"nvue", ""}


def test_models_without_systems() -> None:
    cluster = small()
    assert [rail.leaf_port for rail in cluster.nodes[2].rails] == ["Ethernet2"] * 3
    assert {switch.system + switch.asic for switch in cluster.leaves} == {""}
    links = cluster.leaves[1].ports[1:]
    assert [(group.peer_interface, group.peers) for group in links] == [
        ("Ethernet2", {"Ethernet60": "spine01", "Ethernet62": "spine02"}),
        ("Ethernet3", {"Ethernet61": "spine01", "Ethernet63": "spine02"}),
    ]
    links = cluster.spines[1].ports
    assert [(group.peer_interface, list(group.peers)) for group in links] == [
        ("Ethernet62", ["Ethernet0", "Ethernet2", "Ethernet4"]),
        ("Ethernet63", ["Ethernet1", "Ethernet3", "Ethernet5"]),
    ]


def test_port_names_follow_the_system() -> None:
    cluster = small(**MIXED)
    assert [rail.leaf_port for rail in cluster.nodes[1].rails] == [
        *("Ethernet8", "swp2", "Ethernet2/1")
    ]
    found = ends(cluster)
    assert found["leaf02", "swp61"] == ("uplink", "spine01", "Ethernet3/1")
    assert found["leaf02", "swp63"] == ("uplink", "spine02", "Ethernet16")
    assert found["spine02", "Ethernet16"] == ("downlink", "leaf02", "swp63")
    assert found["spine02", "Ethernet40"] == ("downlink", "leaf03", "Ethernet64/1")
    assert_both_ends_agree(cluster)


def test_variables_for_systems_and_chips() -> None:
    row = "{speed_gbps: 400, cable_metres: 50, size_bytes: 9, xon_bytes: 2, xoff_bytes: 7}"
    more = f"asics: {{tomahawk5: {{eos_queue: uc-tx-queue, headroom: [{row}]}}}}\n"
    inventory = inventory_of(small(**MIXED, more=more))
    hosts = {host.name: host.variables for host in inventory.hosts}
    assert (hosts["leaf03"]["cluster_system"], hosts["leaf03"]["cluster_asic"]) == (
        "eos",
        "tomahawk5",
    )
    assert hosts["spine02"]["cluster_system"] == "sonic"
    assert inventory.group_variables["all"]["cluster_asics"] == {
        "tomahawk5": {
            "headroom": [
                {
                    "speed_gbps": 400,
                    "cable_metres": 50,
                    "size_bytes": 9,
                    "xon_bytes": 2,
                    "xoff_bytes": 7,
                    "threshold": None,
                    "xon_offset_bytes": None,
                }
            ],
            "eos_queue": "uc-tx-queue",
            "eos_ecn_count": False,
        }
    }


@pytest.mark.parametrize("size", [9, 2])
def test_a_chip_needs_only_headroom(size: int) -> None:
    row = f"speed_gbps: 400, cable_metres: 50, size_bytes: {size}, xon_bytes: 2, xoff_bytes: 7"
    more = f"asics: {{mine: {{headroom: [{{{row}}}]}}}}\n"
    inventory = inventory_of(small("system: eos, asic: mine", more=more))
    asics = inventory.group_variables["all"]["cluster_asics"]
    chip = asic_named("mine", asics)
    assert chip is not None and headroom_of(chip, 400, 50, 9216) == Headroom(size, 2, 7)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("system: sonic, asic: spectrum4", ["Ethernet0", "Ethernet8"]),
        ("system: sonic, asic: spectrum4, port_step: 4", ["Ethernet0", "Ethernet4"]),
        (
            "system: sonic, asic: spectrum4, port_start: 8, port_step: 4",
            ["Ethernet8", "Ethernet12"],
        ),
        ("system: sonic, asic: spectrum4, port: 'Ethernet{}'", ["Ethernet0", "Ethernet8"]),
        ("system: sonic, port_step: 2", ["Ethernet0", "Ethernet2"]),
        ("system: nvue", ["swp1", "swp2"]),
        ("system: nvue, port: 'swp{}s0'", ["swp1s0", "swp2s0"]),
        ("system: eos", ["Ethernet1/1", "Ethernet2/1"]),
        ("system: eos, port: 'Ethernet{}', port_start: 5", ["Ethernet5", "Ethernet6"]),
        # Ports of 800G split into two of 400G, in the notation of Cumulus Linux
        # (nv set interface swp1-64 link breakout 2x) and in the lane numbers of EOS.
        ("system: nvue, port: ['swp{1..32}s{0..1}']", ["swp1s0", "swp1s1", "swp2s0"]),
        ("system: eos, port: ['Ethernet{1..32}/{1,5}']", ["Ethernet1/1", "Ethernet1/5"]),
        # From sonic-buildimage for 32 x 800G and 64 x 400G; 32 of the latter are listed here
        # (device/arista/x86_64-arista_7060x6_64pe/Arista-7060X6-64PE-P32O64/port_config.ini).
        (
            "system: sonic, port: ['Ethernet{0..248..8}', 'Ethernet{256..380..4}']",
            ["Ethernet0", "Ethernet8", "Ethernet16"],
        ),
        ("asic: spectrum4", ["Ethernet0", "Ethernet1"]),
        ("port_step: 8", ["Ethernet0", "Ethernet8"]),
    ],
)
def test_keys_override_port_names_of_the_system(keys: str, names: list[str]) -> None:
    peers = list(small(leaves=keys).leaves[0].ports[0].peers)
    assert peers[: len(names)] == names[: len(peers)]


def test_uplinks_have_the_last_names_of_a_list() -> None:
    """Mixed ports: nodes at the first speed, spines at the second."""
    cluster = small(leaves="system: sonic, port: ['Ethernet{0..248..8}', 'Ethernet{256..380..4}']")
    uplinks = [port for group in cluster.leaves[0].ports[1:] for port in group.peers]
    assert sorted(uplinks) == ["Ethernet368", "Ethernet372", "Ethernet376", "Ethernet380"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("swp7", ["swp7"]),
        ("swp{1..2}s{0..1}", ["swp1s0", "swp1s1", "swp2s0", "swp2s1"]),
        ("Ethernet{1..2}/{1,5}", ["Ethernet1/1", "Ethernet1/5", "Ethernet2/1", "Ethernet2/5"]),
        ("Ethernet{0..16..8}", ["Ethernet0", "Ethernet8", "Ethernet16"]),
        ("swp[1-2]s[0-1]", ["swp1s0", "swp1s1", "swp2s0", "swp2s1"]),
        ("Ethernet[1-2]/[1,5]", ["Ethernet1/1", "Ethernet1/5", "Ethernet2/1", "Ethernet2/5"]),
        ("Ethernet[0-16/8]", ["Ethernet0", "Ethernet8", "Ethernet16"]),
        ("Ethernet[0,8-24/8,512]", [f"Ethernet{n}" for n in (0, 8, 16, 24, 512)]),
        ("swp[3]s{0,1}", ["swp3s0", "swp3s1"]),
        ("swp{}", []),
        ("swp1,2", []),
        ("swp{1..5000}", []),
        ("swp{1..4096}s{0..1}", []),
        ("swp[1-5000]", []),
        ("swp[1-4096]s[0-1]", []),
        ("swp[1-99999,1-99999]", []),
        ("swp[]", []),
        ("swp[4-1]", []),
        ("swp[1-8/0]", []),
        ("swp[01-08]", []),
        ("swp[1,1]", []),
        ("swp[1", []),
        ("swp[[1-2]]", []),
    ],
)
def test_ranges_are_names_as_shells_make_them(text: str, names: list[str]) -> None:
    assert expanded(text) == names


@pytest.mark.parametrize(
    ("chip", "ports", "speed", "step"),
    [
        # sonic-net/sonic-buildimage 086b03bd, device/*/*/*/port_config.ini
        ("spectrum4", 64, 800, 8),  # ACS-SN5600
        ("spectrum4", 128, 400, 4),  # Mellanox-SN5600-O128
        ("spectrum6", 128, 800, 4),  # Mellanox-SN6600_LD-P128C2
        ("mine", 64, 800, 8),  # a guess, verified on the switch
    ],
)
def test_names_count_the_lanes_of_the_chip(chip: str, ports: int, speed: int, step: int) -> None:
    more = "asics: {mine: {}}\n"
    text = model(f"system: sonic, asic: {chip}", more=more)
    text = text.replace("ports: 64", f"ports: {ports}", 1)
    text = text.replace("speed_gbps: 400", f"speed_gbps: {speed}")
    inventory = inventory_of(compile_model(read("cluster.yml", text)))
    leaf = next(host for host in inventory.hosts if host.name == "leaf01").variables
    assert list(leaf["cluster_ports"][0]["peers"])[:2] == ["Ethernet0", f"Ethernet{step}"]
    assert leaf["cluster_port_step"] == step


def test_only_computed_names_are_compared_with_the_switch() -> None:
    for keys in ("system: sonic, asic: spectrum4, port_step: 4", "system: nvue", "port_step: 8"):
        inventory = inventory_of(small(keys))
        assert all("cluster_port_step" not in host.variables for host in inventory.hosts)


@settings(max_examples=60)
@given(rows(), st.sampled_from(["tomahawk5", "mine"]))
def test_every_shape_of_published_headroom_is_taken(row: Row, chip: str) -> None:
    more = f"asics: {{{chip}: {{headroom: [{row.keys}]}}}}\n"
    asics = inventory_of(small("system: sonic, port_step: 8", more=more)).group_variables["all"]
    known = asic_named(chip, asics["cluster_asics"])
    assert known is not None
    assert headroom_of(known, row.speed_gbps, row.metres, 9216) == Headroom(
        row.size, row.xon, row.xoff, row.threshold, row.offset
    )


def test_ports_of_storage_hosts() -> None:
    links = (
        "{leaf: leaf02, port: swp10, interface: ens1f0np0, speed_gbps: 200}, "
        "{leaf: leaf03, port: Ethernet60/1, interface: ens1f1np1}"
    )
    cluster = small(**MIXED, storage=links)
    assert [vars(leaf.ports[-1]) for leaf in cluster.leaves[1:]] == [
        {
            "kind": "storage",
            "peer_interface": interface,
            "speed_gbps": speed,
            "mtu": 9000,
            "rail": None,
            "plane": None,
            "prefix": None,
            "address": None,
            "peers": {port: "storage01"},
            "addresses": {},
        }
        for port, interface, speed in (
            ("swp10", "ens1f0np0", 200),
            ("Ethernet60/1", "ens1f1np1", 400),
        )
    ]
    assert cluster.leaves[0].ports[-1].kind == "uplink"


def test_ports_of_absent_nodes_are_reserved() -> None:
    link = "{leaf: leaf01, port: Ethernet1, interface: ens1}"
    text = model(storage=link).replace(
        "count: 3, management", "count: 3, absent: [node02], management"
    )
    assert refused(text) == ["11 model.port_taken storage[0].links[0].port ('Ethernet1', 3, 60)"]
    last = text.replace("[node02]", "[node03]").replace("Ethernet1,", "Ethernet2,")
    assert refused(last) == ["11 model.port_taken storage[0].links[0].port ('Ethernet2', 3, 60)"]


@pytest.mark.parametrize("node", [2, 3])
def test_addresses_of_absent_nodes_are_reserved(node: int) -> None:
    link = f"{{leaf: leaf01, port: Ethernet8, interface: ens1, address: 10.1.0.{node + 1}}}"
    text = edited(
        f"nodes.count: 3; nodes.absent: [node0{node}]; "
        f"storage: [{{name: st, management: 10.0.0.9, links: [{link}]}}]"
    )
    assert refused(text) == [
        f"10 model.link_address storage[0].links[0].address '10.1.0.{node + 1}'"
    ]


def test_three_rails_on_one_leaf() -> None:
    link = "{leaf: leaf02, port: Ethernet8, interface: ens1}"
    compile_model(
        read("cluster.yml", model("rail_to_leaf: [0, 0, 0], nodes_per_set: 2", storage=link))
    )
    assert refused(model("rail_to_leaf: [0, 0, 0]", storage=link.replace("02", "01"))) == [
        "11 model.port_taken storage[0].links[0].port ('Ethernet8', 9, 60)"
    ]


systems = st.sampled_from(["sonic", "nvue", "eos"])


@settings(max_examples=30)
@given(
    leaves=st.lists(systems, min_size=3, max_size=3),
    spines=st.lists(systems, min_size=2, max_size=2),
)
def test_both_ends_agree_in_mixed_fabrics(leaves: Any, spines: Any) -> None:
    def chips(systems: list[str]) -> str:
        chip = {"eos": "tomahawk5"}
        names = ", ".join(chip.get(system, "spectrum4") for system in systems)
        return f"system: [{', '.join(systems)}], asic: [{names}]"

    cluster = small(chips(leaves), chips(spines))
    assert_both_ends_agree(cluster)
    assert len(ends(cluster)) == 3 * 3 + 2 * 3 * 2 * 2


def cable(leaf: str, port: str) -> str:
    return model(storage=f"{{leaf: {leaf}, port: {port}, interface: ens1}}")


ROW = "{speed_gbps: 400, cable_metres: 5, size_bytes: 9, xon_bytes: 2, xoff_bytes: 7}"
PORTS = "8 model.port_names leaves.port"
CASES: tuple[tuple[str, ...], ...] = (
    (model("port: ['swp{1..64}s{0..1}']"), "8 model.port_count leaves.port (128, 64)"),
    (model("port: ['swp{1..64}', 'swp{}']"), f"{PORTS}[1] 'swp{{}}'"),
    (
        model("port: ['a{1..64}-{1..64}', 'b{1..64}-{1..64}', 'c{1..9}']"),
        "8 model.port_count leaves.port (8192, 64)",
    ),
    (model("port: ['swp{1..64}'], port_step: 8"), "8 model.port_key leaves.port_step"),
    (model("port: ['swp{1..63}', swp5]"), "8 model.port_name_twice leaves.port[1] 'swp5'"),
    (model("port: [swp1-64]"), "8 model.port_range leaves.port[0] 'swp1-64'"),
    (model("port: [swp1-32s0-1]"), "8 model.port_range leaves.port[0] 'swp1-32s0-1'"),
    (model("port: ['swp 1']"), "8 model.wrong_form leaves.port[0] 'swp 1'"),
    (model("system: cumulus"), "8 model.system_word leaves.system 'cumulus'"),
    (model("system: [sonic, nvu, eos]"), "8 model.not_a_choice leaves.system[1] 'nvu'"),
    (model("system: [nvue, eos]"), "8 model.values_for_switches leaves.system 2"),
    (
        model(spines="asic: [spectrum4, spectrum4, spectrum4]"),
        "9 model.values_for_switches spines.asic 3",
    ),
    (
        model("asic: [spectrum4, spectrum7, spectrum4]"),
        "8 model.unknown_chip leaves.asic[1] 'spectrum7'",
    ),
    (model("asic: Spectrum-4"), "8 model.chip_word leaves.asic 'Spectrum-4'"),
    (
        model("asic: spectrum3").replace("speed_gbps: 400", "speed_gbps: 800"),
        "8 model.chip_speed leaves.asic ('spectrum3', 800)",
    ),
    (
        model(spines="asic: [spectrum4, spectrum3], speed_gbps: 800"),
        "9 model.chip_speed spines.asic[1] ('spectrum3', 800)",
    ),
    (
        model("asic: spectrum4").replace("ports: 64", "ports: 129", 1),
        "8 model.chip_lanes leaves.ports (129, 400)",
    ),
    (
        model("system: sonic, asic: tomahawk5")
        .replace("speed_gbps: 400", "speed_gbps: 800")
        .replace("ports: 64", "ports: 72", 1),
        "8 model.chip_lanes leaves.ports (72, 800)",
    ),
    (model("system: sonic"), "8 model.port_step leaves.port_step"),
    (
        model(more=f"asics: {{mine: {{headroom: [{ROW}, {ROW}]}}}}\n"),
        "12 fabric.headroom_twice asics.mine.headroom[1] (400, 5)",
    ),
    (
        model(more="asics: {mine: {eos_queue: queue}}\n"),
        "12 model.not_a_choice asics.mine.eos_queue 'queue'",
    ),
    (cable("leaf1", "Ethernet9"), "11 model.unknown_leaf storage[0].links[0].leaf 'leaf1'"),
    (
        cable("leaf01", "Ethernet64"),
        "11 model.port_taken storage[0].links[0].port ('Ethernet64', 3, 60)",
    ),
    (
        cable("leaf02", "Ethernet2"),
        "11 model.port_taken storage[0].links[0].port ('Ethernet2', 3, 60)",
    ),
    (
        cable("leaf02", "Ethernet60"),
        "11 model.port_taken storage[0].links[0].port ('Ethernet60', 3, 60)",
    ),
    (
        cable("leaf02", "Ethernet2").replace("count: 3, ports: 64", "count: 3, ports: 7"),
        "11 model.port_taken storage[0].links[0].port ('Ethernet2', 3, 3)",
    ),
    (
        model(storage=2 * "{leaf: leaf02, port: Ethernet9, interface: ens1}, "),
        "11 model.cable_twice storage[0].links[1].interface 'ens1'",
        "11 model.port_twice storage[0].links[1].port 'Ethernet9'",
    ),
    (
        model(storage="{leaf: leaf02}"),
        "11 model.missing_key storage[0].links[0].port",
        "11 model.missing_key storage[0].links[0].interface",
    ),
)


@pytest.mark.parametrize("port", ["Ethernet3", "Ethernet59"])
def test_the_range_of_free_ports(port: str) -> None:
    compile_model(read("cluster.yml", cable("leaf02", port)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[1])
def test_what_switches_cannot_be_is_refused(case: tuple[str, ...]) -> None:
    text, *messages = case
    assert refused(text) == messages
