# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Mistakes of operators in a model: each message has the value that was probably meant."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.port_names import expanded
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import ModelError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema import meant
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import dotted
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.findings import brief
from tests.unit.small_model import compiled, doubts, edited

GROUPS = "leaves; switches: {a: {tier: %s, count: 2, ports: 64, management_first: 10.0.0.101}}"
NVUE = "leaves.system: nvue; leaves.asic: spectrum4; leaves.ports: {nodes: '%s'}"


@pytest.mark.parametrize(
    ("edits", "finding", "remedy"),
    [
        ("roce_qos: {roce: {dscp: 106}}", "qos.dscp_number roce_qos.roce.dscp 106", "26"),
        ("roce_qos: {roce: {dscp: AF31}}", "qos.dscp_number roce_qos.roce.dscp 'AF31'", "26"),
        ("roce_qos: {roce: {dscp: cs3}}", "qos.dscp_number roce_qos.roce.dscp 'cs3'", "24"),
        ("roce_qos: {cnp: {dscp: EF}}", "qos.dscp_number roce_qos.cnp.dscp 'EF'", "46"),
        (
            "roce_qos: {roce: {also_dscps: [AF43]}}",
            "qos.dscp_number roce_qos.roce.also_dscps[0] 'AF43'",
            "38",
        ),
        ("rails.speed_gbps: 800G", "model.not_a_number rails.speed_gbps '800G'", "800"),
        ("rails.speed_gbps: 1.6T", "model.not_a_number rails.speed_gbps '1.6T'", "1600"),
        (
            "rails.speed_gbps: 800000",
            "model.out_of_range rails.speed_gbps (800000, 1, 3200)",
            "800 (Gb/s)",
        ),
        ("rails.mtu: jumbo", "model.not_a_number rails.mtu 'jumbo'", "9000"),
        ("rails.mtu: 9k", "model.not_a_number rails.mtu '9k'", "9000"),
        (
            "roce_qos: {ecn: {minimum_bytes: 150KiB}}",
            "model.not_a_number roce_qos.ecn.minimum_bytes '150KiB'",
            "153600",
        ),
        (
            "roce_qos: {roce: {bandwidth_percent: 50%}}",
            "model.not_a_number roce_qos.roce.bandwidth_percent '50%'",
            "50",
        ),
        (
            "roce_qos: {cable_metres: {to_nodes: 5m}}",
            "model.not_a_number roce_qos.cable_metres.to_nodes '5m'",
            "5",
        ),
        (
            "rails.pci: ['11:00.0']; rails.count: 1; leaves.count: 1",
            "model.wrong_form rails.pci[0] '11:00.0'",
            "0000:11:00.0",
        ),
        (
            "rails.pci: [mlx5_0]; rails.count: 1; leaves.count: 1",
            "model.wrong_form rails.pci[0] 'mlx5_0'",
            "its bus-info of `ethtool -i`: 0000:11:00.0 (domain:bus:device.function)",
        ),
        (
            "nodes.management_first: 10.0.000.011",
            "model.address nodes.management_first '10.0.000.011'",
            "10.0.0.11",
        ),
        ("nodes.name: gpu%02d", "model.pattern nodes.name 'gpu%02d'", "gpu{:02d}"),
        ("nodes.name: 'gpu[001:064]'", "model.pattern nodes.name 'gpu[001:064]'", "gpu{:03d}"),
        ("name: My Cluster", "model.wrong_form name 'My Cluster'", "my-cluster"),
        ("domain: Example.NET", "model.wrong_form domain 'Example.NET'", "example.net"),
        ("addresses.prefix: /24", "model.not_a_number addresses.prefix '/24'", "24"),
        ("gpus: 8", "model.count_only gpus 8", "{count: 8}"),
        ("kinds: {x: {rails: 0}}", "model.count_only kinds.x.rails 0", "{count: 0}"),
        ("leaves.asic: Spectrum-4", "model.chip_word leaves.asic 'Spectrum-4'", "spectrum4"),
        ("leaves.asic: SN5600", "model.chip_word leaves.asic 'SN5600'", "spectrum4"),
        ("leaves.asic: SN4700", "model.chip_word leaves.asic 'SN4700'", "spectrum3"),
        ("leaves.asic: TH5", "model.chip_word leaves.asic 'TH5'", "tomahawk5"),
        ("leaves.asic: BCM78900", "model.chip_word leaves.asic 'BCM78900'", "tomahawk5"),
        (NVUE % "swp[64-1]", "model.port_names leaves.ports.nodes[0] 'swp[64-1]'", "swp[1-64]"),
        (NVUE % "swp[01-64]", "model.port_names leaves.ports.nodes[0] 'swp[01-64]'", "swp[1-64]"),
        ("superspines: {count: 2}", "model.unknown_key superspines", "super_spines"),
        ("leaf: {count: 2}", "model.unknown_key leaf", "leaves"),
        (GROUPS % "super-spine", "model.tier_word switches.a.tier 'super-spine'", "super_spine"),
        (GROUPS % "SuperSpine", "model.tier_word switches.a.tier 'SuperSpine'", "super_spine"),
        (GROUPS % "leaves", "model.tier_word switches.a.tier 'leaves'", "leaf"),
        (GROUPS % "tor", "model.tier_word switches.a.tier 'tor'", "leaf"),
    ],
)
def test_the_value_that_was_meant_is_the_remedy(edits: str, finding: str, remedy: str) -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(edited(edits))
    found = {
        line.split(" ", 1)[1]: each.remedy
        for line, each in zip(brief(refusal.value.findings), refusal.value.findings)
    }
    assert found[finding] == f"Write {remedy}"


@pytest.mark.parametrize(
    ("edits", "path", "word"),
    [
        ("nodes.overrides: {node01: {ip: 10.0.0.9}}", "nodes.overrides.node01.ip", "management"),
        ("launcher: {name: a, ip: 10.0.0.9}", "launcher.ip", "management"),
        (
            "nodes: {list: [{name: node01, management: 10.0.0.11, absent: true}]}",
            "nodes.list[0].absent",
            "nodes.absent",
        ),
        ("vars: {node01: {x: 1}}", "vars.node01", "nodes.overrides.node01"),
        ("nodes.name: 'knöten{:02d}'", "nodes.name", "U+00F6"),
    ],
)
def test_another_place_is_named(edits: str, path: str, word: str) -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(edited(edits))
    remedies = {dotted(each.path): each.remedy for each in refusal.value.findings}
    assert word in remedies[path]


def test_a_value_of_any_length_has_a_short_message() -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(edited(f"name: {'a' * 100_000}"))
    assert len(str(refusal.value)) < 1000


def test_leaves_are_counted_from_0() -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(edited("leaves.count: 1; leaves.rail_to_leaf: [1, 1]"))
    (finding,) = refusal.value.findings
    assert finding.code == "model.rail_to_leaf" and finding.remedy.split(": ")[1] == "[0, 0]"


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        ("rails.mtu: 1500", ["6 model.small_mtu rails.mtu 1500"]),
        ("rails.mtu: 4191", ["6 model.small_mtu rails.mtu 4191"]),
        ("rails.mtu: 4192", []),
        ("rails.mtu: 1500; roce_qos: {mtu: {roce_path: 1024}}", []),
    ],
)
def test_small_packets_are_a_doubt(edits: str, found: list[str]) -> None:
    assert doubts(edited(edits)) == found


def test_a_host_name_with_a_domain_names_both_keys() -> None:
    with pytest.raises(ModelError) as refusal:
        compiled(edited("nodes.name: 'GPU{:02d}.example.net'"))
    (finding,) = refusal.value.findings
    assert finding.remedy.split(": ")[1:] == ["gpu01, with domain", "example.net at the top"]


def test_a_port_beyond_the_lanes_of_its_cage_is_no_line_card() -> None:
    leaves = (
        "leaves.system: eos; leaves.asic: tomahawk5; leaves.ports: {nodes: 'Ethernet[1-9]/[%s]'}"
    )
    speed = "; rails.speed_gbps: 400"
    with pytest.raises(ModelError) as refusal:
        compiled(edited(leaves % "1,9" + speed))
    assert brief(refusal.value.findings)[0].split()[1] == "model.port_of_line_card"
    assert doubts(edited(leaves % "1,5" + speed)) == []
    assert doubts(edited(leaves.replace("tomahawk5", "tomahawk4") % "1,9" + speed)) == []


def test_switches_in_several_networks_have_listed_bmcs() -> None:
    text = edited("leaves.bmc_first: [10.0.0.201, 10.0.0.99]")
    bmcs = [host.variables.get("cluster_bmc") for host in compiled(text).hosts]
    assert bmcs[-2:] == ["10.0.0.201", "10.0.0.99"]
    for addresses, found in (
        ("[10.0.0.201]", "8 model.values_for_switches leaves.bmc_first 1"),
        ("[10.0.0.201, 10.0.0.11]", "8 model.address_twice leaves.bmc_first[1]"),
    ):
        with pytest.raises(ModelError) as refusal:
            compiled(edited(f"leaves.bmc_first: {addresses}"))
        assert brief(refusal.value.findings)[0].startswith(found)


@given(st.integers(0, 63))
def test_a_tos_byte_has_the_dscp_in_its_upper_six_bits(dscp: int) -> None:
    for ecn in range(4):
        if dscp << 2 | ecn > 63:
            assert meant.dscp(dscp << 2 | ecn) == dscp


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from(["swp[{}-{}]", "swp{{{}..{}}}"]))
def test_a_range_in_order_denotes_the_same_ports(first: int, last: int, form: str) -> None:
    text = form.format(f"{first:02d}", last)
    ordered = expanded(meant.port_range(text) or text)
    assert ordered == [f"swp{number}" for number in range(min(first, last), max(first, last) + 1)]


@pytest.mark.parametrize(
    ("value", "unit", "number"),
    [
        ("0o17", "", 15),
        ("1e3", "", 1000),
        ("4.5", "", 4.5),
        ("5 MB", "bytes", 5_000_000),
        ("400Gbps", "Gb/s", 400),
        ("400 m", "Gb/s", None),
        ("4x", "bytes", None),
        ("many", "", None),
    ],
)
def test_numbers_with_units(value: str, unit: str, number: object) -> None:
    assert meant.number(value, unit) == number


@pytest.mark.parametrize(
    ("value", "pci"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("1b:00.1", "0000:1b:00.1"),
        ("0001:1b:00", "0001:1b:00.0"),
        ("1b:00.9", None),
        ("pci0000:1b", None),
    ],
)
def test_addresses_of_devices(value: str, pci: object) -> None:
    assert meant.pci(value) == pci


@pytest.mark.parametrize("value", ["10.0.0", "10.0.0.256", "a.b.c.d", "10.0.0.1.1", ""])
def test_no_address_is_meant(value: str) -> None:
    assert meant.address(value) is None
