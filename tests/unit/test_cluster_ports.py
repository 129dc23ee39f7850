# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports of switches: names by purpose, and system, chip and names checked together."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import ASICS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.port_names import (
    expanded,
    faults,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import ModelError
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.small_model import compiled, doubts, edited, refused


def leaf(keys: str, edits: str = "") -> str:
    """The small model with these keys of its leaves; their line is 8."""
    own = {"count": "2", "ports": "64", "management_first": "10.0.0.101"}
    own.update(key.split(": ", 1) for key in keys.split("; "))
    leaves = ", ".join(f"{key}: {value}" for key, value in own.items())
    return edited("; ".join([f"leaves: {{{leaves}}}", *filter(None, [edits])]))


TWO_SPINES = "spines: {count: 2, ports: 64, management_first: 10.0.0.121}"
REFUSED = (
    # Systems and chips
    ("system: nvue; asic: tomahawk5", ["8 model.chip_system leaves.asic ('nvue', 'tomahawk5')"]),
    ("system: eos; asic: spectrum4", ["8 model.chip_system leaves.asic ('eos', 'spectrum4')"]),
    (
        "system: [nvue, eos]; asic: [spectrum4, spectrum5]",
        ["8 model.chip_system leaves.asic[1] ('eos', 'spectrum5')"],
    ),
    ("asic: quantum2", ["8 model.unknown_chip leaves.asic 'quantum2'"]),
    ("system: mlnx-os", ["8 model.infiniband leaves.system 'mlnx-os'"]),
    ("system: MLNX-OS 3.11", ["8 model.infiniband leaves.system 'MLNX-OS 3.11'"]),
    ("system: Onyx", ["8 model.other_system leaves.system 'Onyx'"]),
    ("system: junos", ["8 model.other_system leaves.system 'junos'"]),
    ("system: NX-OS", ["8 model.other_system leaves.system 'NX-OS'"]),
    ("system: [nvue, ios_xr]", ["8 model.other_system leaves.system[1] 'ios_xr'"]),
    ("system: dell-os10", ["8 model.other_system leaves.system 'dell-os10'"]),
    ("system: SONiC", ["8 model.system_word leaves.system 'SONiC'"]),
    ("system: arista", ["8 model.system_word leaves.system 'arista'"]),
    ("system: nvos", ["8 model.infiniband leaves.system 'nvos'"]),
    # Names of another system
    ("system: sonic; port: 'swp{}'; asic: spectrum4", ["8 model.port_form leaves.port 'swp0'"]),
    ("system: nvue; port: 'Ethernet{}'", ["8 model.port_form leaves.port 'Ethernet1'"]),
    ("system: eos; port: 'et-0/0/{}'", ["8 model.port_form leaves.port 'et-0/0/1'"]),
    ("system: sonic; port: 'Eth1/{}'; asic: spectrum4", ["8 model.port_form leaves.port 'Eth1/0'"]),
    # Numbers that the system or chip does not have
    (
        "system: sonic; asic: spectrum4; port_start: 1",
        ["8 model.port_lanes leaves.port_start 'Ethernet1'"],
    ),
    (
        "system: sonic; asic: spectrum4; port_start: 8",
        ["8 model.port_lanes leaves.port_start 'Ethernet512'"],
    ),
    (
        "system: sonic; asic: spectrum4; port_step: 4",
        ["8 model.port_lanes leaves.port_step 'Ethernet4'"],
    ),
    (
        "system: sonic; asic: spectrum4; port_step: 16",
        [
            "8 model.port_lanes leaves.port_step 'Ethernet512'",
            "8 model.port_beyond leaves.port_step 'Ethernet560'",
        ],
    ),
    (
        "system: nvue; asic: spectrum4; port_step: 8",
        ["8 model.port_beyond leaves.port_step 'swp73'"],
    ),
    (
        "system: nvue; asic: spectrum4; port_start: 10",
        ["8 model.port_beyond leaves.port_start 'swp67'"],
    ),
    ("system: nvue; port_start: 0", ["8 model.port_form leaves.port_start 'swp0'"]),
    (
        "system: eos; asic: tomahawk5; port: 'Ethernet{}/5'",
        ["8 model.port_lanes leaves.port 'Ethernet1/5'"],
    ),
    (
        "system: nvue; asic: spectrum4; port: 'swp{}s1'",
        ["8 model.port_lanes leaves.port 'swp1s1'"],
    ),
    # Lanes
    ("asic: spectrum4; ports: 128", ["8 model.chip_lanes leaves.ports (128, 800)"]),
    ("asic: spectrum4; ports: 72", ["8 model.chip_lanes leaves.ports (72, 800)"]),
    # By purpose
    ("ports: {uplinks: swp1}", ["8 model.no_ports leaves.ports.nodes"]),
    (
        "ports: {nodes: 'swp[1-4]', downlinks: swp5}",
        ["8 model.port_purpose leaves.ports.downlinks"],
    ),
    (
        "ports: {nodes: 'swp[1-4]', uplinks: [swp9, 'swp[4-5]']}",
        ["8 model.port_name_twice leaves.ports.uplinks[1] 'swp[4-5]'"],
    ),
    ("ports: {nodes: 'swp[1-4'}", ["8 model.port_names leaves.ports.nodes[0] 'swp[1-4'"]),
    (
        "ports: {nodes: 'a[1-3000]', uplinks: 'b[1-3000]', storage: 'c[1-3000]'}",
        ["8 model.too_many_ports leaves.ports 9000"],
    ),
    ("ports: {nodes: 'swp[1-4096]'}", ["8 model.too_many_ports leaves.ports 4096"]),
    ("ports: {nodes: 'swp 1'}", ["8 model.wrong_form leaves.ports.nodes 'swp 1'"]),
    ("ports: 'swp[1-64]'", ["8 model.ports_form leaves.ports 'swp[1-64]'"]),
    ("ports: [swp1]", ["8 model.ports_form leaves.ports list"]),
    ("ports: '64'", ["8 model.not_a_number leaves.ports '64'"]),
    ("ports: {node: swp1}", ["8 model.unknown_key leaves.ports.node"]),
    ("ports: {nodes: 'swp[1-4]'}; port_step: 2", ["8 model.port_key leaves.port_step"]),
    (
        "system: nvue; asic: spectrum4; ports: {nodes: 'swp[1-64]', storage: Ethernet8}",
        ["8 model.port_form leaves.ports.storage 'Ethernet8'"],
    ),
    (
        "asic: spectrum4; ports: {nodes: 'Ethernet[0-512/8]'}",
        ["8 model.lanes_of_ports leaves.ports (520, 512)"],
    ),
    (
        "system: sonic; asic: spectrum4; ports: {nodes: 'Ethernet[0-252/4]'}",
        ["8 model.port_lanes leaves.ports.nodes 'Ethernet4'"],
    ),
    (
        "system: nvue; asic: spectrum4; ports: {nodes: ['swp[1-4]', 'swp[4-8]s0']}",
        ["8 model.port_overlap leaves.ports.nodes 'swp4s0'"],
    ),
    (
        "system: nvue; ports: {nodes: 'swp[1-4]', uplinks: 'swp[4-5]s0'}",
        ["8 model.port_overlap leaves.ports.uplinks 'swp4s0'"],
    ),
    (
        "system: eos; asic: tomahawk5; ports: {nodes: ['Ethernet1', 'Ethernet1/1']}",
        ["8 model.port_overlap leaves.ports.nodes 'Ethernet1/1'"],
    ),
    (
        "ports: {nodes: 'swp[1-4]', uplinks: swp5}; uplink_ports: 1",
        ["8 model.port_key leaves.uplink_ports"],
    ),
)


@pytest.mark.parametrize(("keys", "messages"), REFUSED, ids=lambda case: str(case)[:60])
def test_what_switches_cannot_have_is_refused(keys: str, messages: list[str]) -> None:
    assert refused(leaf(keys)) == messages


SPINES = "spines: {count: 2, ports: 64, management_first: 10.0.0.121, links_per_leaf: 2}"
LINK = "{leaf: leaf02, interface: ens1, port: PORT}"
STORAGE = f"storage: [{{name: storage01, management: 10.0.0.20, links: [{LINK}]}}]"


@pytest.mark.parametrize(
    ("keys", "edits", "messages"),
    [
        (
            "ports: {nodes: 'swp[1-4]', uplinks: 'swp[5-7]'}",
            SPINES,
            ["8 model.uplink_ports leaves.ports.uplinks (3, 4)"],
        ),
        (
            "ports: {nodes: 'swp[1-4]', uplinks: 'swp[5-8]', storage: swp64}",
            "nodes.count: 5",
            ["8 model.more_nodes_than_ports leaves.count (5, 4)"],
        ),
        (
            "ports: {nodes: 'swp[1-4]'}",
            f"{SPINES.replace('ports: 64', 'ports: {downlinks: [a, b, c], uplinks: d}')}",
            [
                "8 model.uplink_ports leaves.ports.uplinks (0, 4)",
                "10 model.spine_ports spines.ports (4, 4)",
            ],
        ),
        (
            "system: sonic; asic: spectrum4; ports: {nodes: 'Ethernet[0,8]', storage: Ethernet36}",
            STORAGE.replace("PORT", "Ethernet36"),
            ["8 model.port_lanes leaves.ports.storage 'Ethernet36'"],
        ),
        (
            "ports: {nodes: 'swp[1-4]', storage: 'swp[63-64]'}",
            STORAGE.replace("PORT", "swp4"),
            ["10 model.port_taken storage[0].links[0].port ('swp4', 2, 4)"],
        ),
    ],
)
def test_ports_for_each_purpose_are_counted(keys: str, edits: str, messages: list[str]) -> None:
    assert refused(leaf(keys, edits)) == messages


def test_parts_of_a_port_that_no_storage_host_uses_are_as_wide_as_the_others() -> None:
    keys = "system: nvue; asic: spectrum4; ports: {nodes: 'swp[1-4]', storage: 'swp[63-64]s[0-1]'}"
    link = STORAGE.replace("PORT", "swp63s0, speed_gbps: 400")
    hosts = {host.name: host.variables for host in compiled(leaf(keys, link)).hosts}
    assert hosts["leaf02"]["cluster_ports"][-1]["peers"] == {"swp63s0": "storage01"}
    third = leaf(keys.replace("[0-1]", "[0-2]"), link)
    assert refused(third) == ["8 model.port_lanes leaves.ports.storage 'swp63s2'"]


@pytest.mark.parametrize(("storage", "port"), [("", "swp4"), (", storage: 'swp[63-64]'", "swp64")])
def test_storage_hosts_have_ports_of_their_purpose(storage: str, port: str) -> None:
    keys = f"ports: {{nodes: 'swp[1-4]'{storage}}}"
    hosts = {
        host.name: host.variables
        for host in compiled(leaf(keys, STORAGE.replace("PORT", port))).hosts
    }
    assert hosts["leaf02"]["cluster_ports"][-1]["peers"] == {port: "storage01"}


def peers(variables: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    groups = [group for group in variables["cluster_ports"] if group["kind"] == kind]
    return [(port, peer) for group in groups for port, peer in group["peers"].items()]


def test_ports_by_purpose_in_any_order() -> None:
    """The first names of a purpose are used first; each tier has its own purposes."""
    nodes = "['swp[3-4]s[0-1]', 'swp[1-2]s[0-1]']"
    keys = f"ports: {{uplinks: ['swp[63-64]', 'swp[61-62]'], nodes: {nodes}}}"
    spines = SPINES.replace("ports: 64", "ports: {uplinks: 'swp[33-34]', downlinks: 'swp[11-16]'}")
    hosts = {
        host.name: host.variables for host in compiled(leaf(f"system: nvue; {keys}", spines)).hosts
    }
    assert peers(hosts["leaf01"], "host") == [("swp3s0", "node01"), ("swp3s1", "node02")]
    assert sorted(peers(hosts["leaf01"], "uplink")) == [
        ("swp61", "spine02"),
        ("swp62", "spine02"),
        ("swp63", "spine01"),
        ("swp64", "spine01"),
    ]
    assert sorted(peers(hosts["spine01"], "downlink")) == [
        ("swp11", "leaf01"),
        ("swp12", "leaf01"),
        ("swp13", "leaf02"),
        ("swp14", "leaf02"),
    ]
    assert "cluster_port_step" not in hosts["leaf01"]
    ranges = [*("swp[3-4]s[0-1]", "swp[1-2]s[0-1]"), *("swp[63-64]", "swp[61-62]")]
    assert hosts["leaf01"]["cluster_port_ranges"] == ranges
    assert hosts["spine01"]["cluster_port_ranges"] == ["swp[33-34]", "swp[11-16]"]


@pytest.mark.parametrize("key", ["uplinks", "breakout", "host_ports"])
def test_the_remedy_for_another_key_of_ports(key: str) -> None:
    with pytest.raises(ModelError) as caught:
        compiled(leaf(f"{key}: 2"))
    (finding,) = caught.value.findings
    assert (finding.code, finding.path) == ("model.unknown_key", ("leaves", key))
    assert "ports: {nodes: " in finding.remedy


MIXED = """\
plugin: baremetal.mpi_roce.cluster
name: small
management: {subnet: 10.0.0.0/16}
nodes: {count: 4, management_first: 10.0.1.1}
gpus: {count: 2}
rails: {count: 2, speed_gbps: 400}
addresses: {pool: 172.16.0.0/12}
switches:
  one:
    {tier: leaf, count: 2, nodes: 2, system: sonic, asic: tomahawk5, management_first: 10.0.2.1,
     ports: {nodes: "Ethernet[256-508/4]", uplinks: "Ethernet[0-248/8]"}}
  other:
    {tier: leaf, count: 2, system: nvue, asic: spectrum4, management_first: 10.0.3.1,
     ports: {nodes: "swp[1-32]s[0-1]", uplinks: "swp[33-64]"}}
  top: {tier: spine, count: 2, ports: 64, system: eos, asic: tomahawk5, management_first: 10.0.4.1}
links: [{from: [one, other], to: top, count: 16, speed_gbps: 800}]
launcher: {name: launcher01, management: 10.0.0.10}
"""


def test_leaves_of_several_systems_and_speeds() -> None:
    """64 ports of 400G and 32 of 800G: Arista-7060X6-64PE-P32O64 in sonic-buildimage 086b03bd, and
    the same on a Spectrum-4."""
    hosts = {host.name: host.variables for host in compiled(MIXED).hosts}
    assert peers(hosts["one01"], "host") == [("Ethernet256", "node01"), ("Ethernet260", "node02")]
    assert peers(hosts["other01"], "host") == [("swp1s0", "node03"), ("swp1s1", "node04")]
    for name, first, last in (("one02", "Ethernet0", "Ethernet248"), ("other02", "swp33", "swp64")):
        uplinks = [port for port, _peer in peers(hosts[name], "uplink")]
        assert (len(uplinks), {first, last} <= {*uplinks}) == (32, True)
    wrong = MIXED.replace("swp[33-64]", "Ethernet[33-64]").replace("[0-248/8]", "[0-252/4]")
    assert refused(wrong) == [
        "11 model.lanes_of_ports switches.one.ports (768, 512)",
        "14 model.port_form switches.other.ports.uplinks 'Ethernet33'",
    ]


def test_long_lists_of_ranges_take_no_memory() -> None:
    tracemalloc.start()
    assert expanded(f"swp[{','.join(['0-99999'] * 1000)}]") == []
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


@pytest.mark.parametrize("ports", [65, 96, 127])
def test_equal_lanes_are_not_guessed(ports: int) -> None:
    """With 64 ports or fewer each has eight lanes, and with 128 four; between, they can differ."""
    keys = f"system: sonic; asic: spectrum4; ports: {ports}"
    slower = "rails.speed_gbps: 400"
    expected = [f"8 model.lanes_unclear leaves.ports ({ports}, 4)"]
    assert refused(leaf(keys, slower)) == expected
    assert compiled(leaf(f"{keys}; port_step: 4", slower))


def test_uplinks_faster_than_equal_ports() -> None:
    keys = "system: nvue; asic: spectrum4; ports: 128; port: 'swp{}s0'"
    faster = f"rails.speed_gbps: 400; {TWO_SPINES[:-1]}, speed_gbps: 800}}"
    assert refused(leaf(keys, faster)) == ["8 model.chip_lanes leaves.ports (128, 800)"]


@pytest.mark.parametrize(
    ("keys", "warnings"),
    [
        # Micas M2-W6940-64OC (Tomahawk 5) has Ethernet1, Ethernet9, ...: sonic-buildimage 086b03bd
        (
            "system: sonic; asic: tomahawk5; port_start: 1",
            ["8 model.port_lanes leaves.port_start 'Ethernet1'"],
        ),
        (
            "system: nvue; asic: spectrum4; ports: 16; port_step: 2",
            ["8 model.port_step_counted leaves.port_step 2"],
        ),
        ("system: sonic; port_start: 4", ["8 model.port_start leaves.port_start 4"]),
        (
            "system: eos; asic: tomahawk6; ports: 128",
            ["8 model.ports_in_whole leaves.ports (128, 4)"],
        ),
        ("system: sonic; asic: tomahawk5", []),
        ("system: eos; asic: tomahawk5; port: 'Ethernet{}'", []),
        ("system: eos; asic: jericho9; port: 'Ethernet3/{}/1'", []),
        ("system: nvue; asic: spectrum4", []),
        ("port: 'et-0/0/{}:0'", []),
    ],
)
def test_unusual_names_are_doubted(keys: str, warnings: list[str]) -> None:
    text = leaf(keys) + "asics: {jericho9: {}}\n"
    assert doubts(text) == warnings


# sonic-buildimage 086b03bd, device/*/*/*/port_config.ini: chip, speeds of the ranges
PUBLISHED = (
    ("spectrum4", [("Ethernet[0-504/8]", 800), ("Ethernet512", 10)]),  # ACS-SN5600
    ("spectrum4", [("Ethernet[0-508/4]", 400), ("Ethernet512", 25)]),  # Mellanox-SN5600-O128
    ("spectrum5", [("Ethernet[0-508/4]", 400), ("Ethernet[512,520]", 25)]),  # SN5640-O128X2
    ("spectrum6", [("Ethernet[0-508/4]", 800), ("Ethernet[512-513]", 100)]),  # ACS-SN6810_LD
    ("spectrum2", [("Ethernet[0-252/4]", 100)]),  # ACS-MSN3800
    ("spectrum3", [("Ethernet[0-188/4]", 200), ("Ethernet[192-248/8]", 400)]),  # SN4700-O8V48
    # Arista-7060X6-64PE-P32O64
    (
        "tomahawk5",
        [("Ethernet[0-248/8]", 800), ("Ethernet[256-508/4]", 400), ("Ethernet[512-513]", 10)],
    ),
    ("tomahawk6", [("Ethernet[0-504/8]", 1600), ("Ethernet[512-513]", 10)]),  # H6-64
    ("tomahawk6-100g", [("Ethernet[0-1016/8]", 800), ("Ethernet1024", 100)]),  # H6-P128
)


@pytest.mark.parametrize(("chip", "ranges"), PUBLISHED, ids=lambda case: str(case)[:40])
def test_published_ports_of_sonic_are_taken(chip: str, ranges: list[tuple[str, int]]) -> None:
    asic = ASICS[chip]
    ports = [(name, asic.fewest_lanes(gbps)) for text, gbps in ranges for name in expanded(text)]
    assert all(asic.has_port(gbps) for _text, gbps in ranges)
    assert list(faults(SYSTEMS["sonic"].naming, asic, ports)) == []


@given(
    st.sampled_from([("sonic", "spectrum4"), ("nvue", "spectrum4"), ("eos", "tomahawk5")]),
    st.lists(st.sampled_from([8, 4, 2, 1]), min_size=1, max_size=64),
    st.data(),
)
def test_lanes_of_any_breakout(system: tuple[str, str], widths: list[int], data: Any) -> None:
    """Every port of a front with any equal breakout per cage fits; one more name does not."""
    name, chip = system
    naming = SYSTEMS[name].naming
    ports = []
    for cage, width in enumerate(widths):
        for part in range(8 // width):
            lane = part * width
            text = {
                "sonic": f"Ethernet{8 * cage + lane}",
                "nvue": f"swp{cage + 1}s{part}" if width < 8 else f"swp{cage + 1}",
                "eos": f"Ethernet{cage + 1}/{lane + 1}",
            }[name]
            ports.append((text, width))
    shuffled = data.draw(st.permutations(ports))
    assert list(faults(naming, ASICS[chip], shuffled)) == []
    again = data.draw(st.sampled_from(ports))
    found = [fault.code for fault in faults(naming, ASICS[chip], [*shuffled, again])]
    assert found == ["model.port_overlap"]
