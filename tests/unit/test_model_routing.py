# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""AS numbers, loopbacks, VLANs and addresses of links: checked, and passed on as variables."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.cluster import NAMES
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.small_model import MODEL, compiled, doubts, edited, refused
from tests.unit.test_cluster_wiring import KINDS
from tests.unit.test_model_cases import text

GIVEN = ("cluster_asn", "cluster_loopback", "cluster_vlans", "cluster_storage_links")
SPINES = "{count: 2, ports: 64, management_first: 10.0.0.201, links_per_leaf: 2}"
ROUTED = edited(
    "leaves.asn: [65001,65002]; leaves.loopback_first: 10.2.0.1; leaves.uplink_pool: 10.3.0.0/24; "
    f"leaves.uplink_ports: 16; rails.vlan: [101,102]; spines: {SPINES}; "
    "spines.asn: 65000; spines.loopback_first: 10.2.1.1"
)


def stored(address: str, more: str = "", port: int = 30) -> str:
    """Storage with one link to leaf01."""
    link = f"{{leaf: leaf01, port: Ethernet{port}, interface: ens1, address: {address}}}"
    return f"[{{name: storage01, management: 10.0.0.9, links: [{link}{more}]}}]"


def variables(model: str) -> dict[str, dict[str, Any]]:
    inventory = compiled(model)
    return {host.name: inventory.merged(host) for host in inventory.hosts}


def uplinks(model: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Both ends of links between switches, by host and port, with peer and address."""
    return {
        (name, port): (peer, group["addresses"].get(port, ""))
        for name, own in variables(model).items()
        for group in own.get("cluster_ports", ())
        if group["kind"] in ("uplink", "downlink")
        for port, peer in group["peers"].items()
    }


def test_only_given_values_become_variables() -> None:
    assert set(GIVEN) <= set(NAMES)
    assert not [own for own in variables(MODEL).values() if set(GIVEN) & set(own)]
    hosts = variables(edited("rails.vlan: 900; leaves.asn: 65001"))
    assert [hosts[name]["cluster_vlans"] for name in ("leaf01", "leaf02")] == [
        {"rail0": 900},
        {"rail1": 900},
    ]
    assert [hosts[name]["cluster_asn"] for name in ("leaf01", "leaf02")] == [65001, 65001]


def test_a_vlan_per_rail_and_plane() -> None:
    hosts = variables(edited("rails.planes: 2; rails.vlan: [1,2,3,4]; leaves.count: 4"))
    found = [hosts[f"leaf0{number}"]["cluster_vlans"] for number in (1, 2, 3, 4)]
    assert found == [{"rail0p0": 1}, {"rail0p1": 2}, {"rail1p0": 3}, {"rail1p1": 4}]


def test_values_of_switches() -> None:
    hosts = variables(ROUTED)
    names = ("leaf01", "leaf02", "spine01", "spine02")
    assert [hosts[name]["cluster_asn"] for name in names] == [65001, 65002, 65000, 65000]
    loopbacks = ["10.2.0.1", "10.2.0.2", "10.2.1.1", "10.2.1.2"]
    assert [hosts[name]["cluster_loopback"] for name in names] == loopbacks
    assert hosts["leaf02"]["cluster_vlans"] == {"rail1": 102}
    assert not set(GIVEN) & set(hosts["node01"])
    assert variables(edited("leaves.asn_first: 65001"))["leaf02"]["cluster_asn"] == 65002


def test_both_ends_of_an_uplink_have_the_addresses_of_a_31() -> None:
    found = uplinks(ROUTED)
    assert len(found) == 2 * 2 * 2 * 2
    by_address = {IPv4Address(address): ends for ends, (_peer, address) in found.items()}
    assert len(by_address) == len(found)
    for (name, port), (peer, address) in found.items():
        other = by_address[IPv4Address(int(IPv4Address(address)) ^ 1)]
        assert (other[0], found[other][0]) == (peer, name), port
        assert (int(IPv4Address(address)) % 2 == 1) == name.startswith("leaf")
    groups = [each for own in variables(ROUTED).values() for each in own.get("cluster_ports", ())]
    assert {each["prefix"] for each in groups if each["kind"] != "host"} == {31}
    assert found["leaf01", "Ethernet48"] == ("spine01", "10.3.0.97")


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2), st.integers(1, 3))
def test_another_spine_leaf_set_or_link_moves_no_address(
    spines: int, sets: int, more: int, links: int
) -> None:
    def model(spines: int, sets: int) -> str:
        top = f"{{count: {spines}, ports: 64, management_first: 10.0.0.201}}"
        edits = f"spines: {top}; spines.links_per_leaf: {links}; leaves.uplink_ports: 16; "
        return edited(f"{edits}leaves.count: {2 * sets}; leaves.uplink_pool: 10.3.0.0/16")

    before, after = uplinks(model(spines, sets)), uplinks(model(spines + more, sets + 1))
    kept = {ends: after[ends] for ends in before}
    assert kept == before


def test_links_of_storage() -> None:
    model = edited(f"storage: {stored('10.1.0.250')}; rails.mtu: 4200")
    unknown = variables(model.replace(", address: 10.1.0.250", ""))
    assert "cluster_storage_links" not in unknown["storage01"]
    assert variables(model)["storage01"]["cluster_storage_links"] == [
        {
            "interface": "ens1",
            "address": "10.1.0.250",
            "prefix": 24,
            "network": "10.1.0.0/24",
            "gateway": "10.1.0.1",
            "mtu": 4200,
            "speed_gbps": 800,
            "leaf": "leaf01",
            "leaf_port": "Ethernet30",
        }
    ]
    slow = variables(model.replace("ens1,", "ens1, speed_gbps: 400,"))["storage01"]
    assert slow["cluster_storage_links"][0]["speed_gbps"] == 400
    model = edited(f"addresses.plan: point_to_point; storage: {stored('10.1.0.251')}")
    (link,) = variables(model)["storage01"]["cluster_storage_links"]
    assert (link["network"], link["gateway"], link["prefix"]) == ("10.1.0.250/31", "10.1.0.250", 31)


OTHER = ", {leaf: leaf02, port: Ethernet30, interface: ens2, address: %s}"


@pytest.mark.parametrize(
    ("edits", "wanted"),
    [
        ("leaves.asn: [65001]", ["8 model.values_for_switches leaves.asn 1"]),
        ("leaves.asn: 0", ["8 model.out_of_range leaves.asn (0, 1, 4294967294)"]),
        ("leaves.asn: [65001,65535]", ["8 model.reserved_asn leaves.asn[1] 65535"]),
        ("leaves.asn_first: 65534", ["8 model.reserved_asn leaves.asn_first 65535"]),
        ("leaves.asn_first: 4294967294", ["8 model.reserved_asn leaves.asn_first 4294967295"]),
        ("leaves.asn_first: 1; leaves.asn: 2", ["8 model.asn_and_first leaves.asn"]),
        ("leaves.asn: 23456", ["8 model.reserved_asn leaves.asn 23456"]),
        (
            "leaves.loopback_first: 10.0.0.250",
            ["8 model.range_taken leaves.loopback_first ('10.0.0.250', '10.0.0.251')"],
        ),
        (
            "leaves.loopback_first: 10.0.255.255",
            ["8 model.range_taken leaves.loopback_first ('10.0.255.255', '10.1.0.0')"],
        ),
        (
            "leaves.loopback_first: 127.0.0.1",
            ["8 model.no_loopback leaves.loopback_first '127.0.0.1'"],
        ),
        (
            "leaves.loopback_first: 126.255.255.255",
            ["8 model.no_loopback leaves.loopback_first '126.255.255.255'"],
        ),
        (
            "leaves.loopback_first: 255.255.255.255",
            ["8 model.no_loopback leaves.loopback_first '255.255.255.255'"],
        ),
        (
            f"leaves.loopback_first: 10.2.0.1; spines: {SPINES}; spines.loopback_first: 10.2.0.2",
            ["10 model.range_taken spines.loopback_first ('10.2.0.2', '10.2.0.3')"],
        ),
        (
            "leaves.loopback_first: 10.2.0.1; filesystems: [{name: a, type: nfs, mount: /mnt/a, "
            "purpose: scratch, source: '10.2.0.2:/a'}]",
            ["10 storage.source_address filesystems[0].source '10.2.0.2'"],
        ),
        (
            "leaves.uplink_pool: 10.3.0.0/25",
            ["8 model.uplink_pool_size leaves.uplink_pool (64, 128)"],
        ),
        (
            "leaves.uplink_pool: 10.1.128.0/20",
            ["8 model.range_taken leaves.uplink_pool ('10.1.128.0', '10.1.143.255')"],
        ),
        (
            "management.bmc_subnet: 10.9.0.0/24; leaves.loopback_first: 10.9.0.7",
            ["8 model.range_taken leaves.loopback_first ('10.9.0.7', '10.9.0.8')"],
        ),
        (
            "networks: [{name: s, subnet: 10.8.0.0/24, interface: s0}]; "
            "leaves.uplink_pool: 10.8.0.0/16",
            ["8 model.range_taken leaves.uplink_pool ('10.8.0.0', '10.8.255.255')"],
        ),
        ("rails.vlan: [101]", ["6 model.values_for_devices rails.vlan 1"]),
        ("rails.vlan: 4095", ["6 model.out_of_range rails.vlan (4095, 1, 4094)"]),
        ("rails.vlans: [101]", ["6 model.unknown_key rails.vlans"]),
        (
            "rails.vlan: 900; addresses.plan: point_to_point",
            ["6 model.vlan_without_subnet rails.vlan 900"],
        ),
    ],
)
def test_refused(edits: str, wanted: list[str]) -> None:
    assert refused(edited(edits)) == wanted


@pytest.mark.parametrize(
    "address",
    ["10.1.0.1", "10.1.0.2", "10.1.0.0", "10.1.0.255", "10.1.1.250", "10.0.0.9", "192.0.2.1"],
)
def test_an_address_of_a_link_is_a_free_one_of_its_leaf(address: str) -> None:
    wanted = [f"10 model.link_address storage[0].links[0].address '{address}'"]
    assert refused(edited(f"storage: {stored(address)}")) == wanted


def test_links_have_different_addresses_each_of_its_leaf() -> None:
    model = edited(f"storage: {stored('10.1.1.250', OTHER % '10.1.0.250')}")
    paths = ["storage[0].links[0].address '10.1.1.250'", "storage[0].links[1].address '10.1.0.250'"]
    assert refused(model) == [f"10 model.link_address {path}" for path in paths]
    plan = "addresses.plan: point_to_point; "
    for other in ("10.1.0.250", "10.1.0.251"):
        model = edited(f"{plan}storage: {stored('10.1.0.250', OTHER % other)}")
        wanted = f"10 model.link_address storage[0].links[1].address '{other}'"
        assert refused(model) == [wanted]
    assert refused(edited(f"{plan}storage: {stored('10.1.0.2')}")) == [
        "10 model.link_address storage[0].links[0].address '10.1.0.2'"
    ]


def test_a_file_system_is_at_an_address_of_its_server() -> None:
    second = "{leaf: leaf01, port: Ethernet31, interface: ens1, address: 10.1.0.251}"
    hosts = f"{stored('10.1.0.250')[:-1]}, {{name: storage02, management: 10.0.0.8, links: "
    model = edited(f"storage: {hosts}[{second}]}}]")
    nfs = "{name: a, type: nfs, source: '%s:/srv/a', mount: /mnt/a, purpose: scratch, serve: "
    served = f"{model}filesystems: [{nfs}{{host: storage01}}}}]\n"
    assert compiled(served % "10.1.0.250").hosts
    wanted = ["11 storage.source_address filesystems[0].source '10.1.0.251'"]
    assert refused(served % "10.1.0.251") == wanted
    twice = refused(model.replace("10.1.0.251", "10.1.0.250"))
    assert twice == ["10 model.link_address storage[0].links[0].address '10.1.0.250'"]


def test_rails_of_one_leaf_on_one_vlan_are_a_doubt() -> None:
    shared = "leaves.rail_to_leaf: [0,0]; leaves.count: 1; rails.vlan: "
    assert doubts(edited(f"{shared}[101,102]")) == []
    wanted = ["6 model.vlan_shared rails.vlan 900"]
    assert doubts(edited(f"{shared}900")) == wanted
    several = edited(f"{shared}900; leaves.nodes_per_set: 1").replace("count: 1,", "count: 2,")
    assert len({leaf for leaf in variables(several) if leaf.startswith("leaf")}) == 2
    assert doubts(several) == [*wanted, "8 model.leaves_apart leaves ('leaf01', 'leaf02')"]


def test_addresses_of_uplinks_without_uplinks_are_a_doubt() -> None:
    wanted = ["8 model.no_uplinks leaves.uplink_pool '10.3.0.0/16'"]
    assert doubts(edited("leaves.uplink_pool: 10.3.0.0/16")) == wanted
    assert "model.no_uplinks" not in str(doubts(ROUTED))


def test_one_as_among_others_is_a_doubt() -> None:
    spines = "leaves.ports: 4; spines: {count: 2, ports: 64, management_first: 10.0.0.201}; "
    for asns in ("leaves.asn: 65000", "leaves.asn: [65001,65002]", "leaves.asn: [65001,65001]"):
        assert doubts(edited(f"{spines}spines.asn: 65000; {asns}")) == []
    assert doubts(edited(f"{spines}leaves.asn: 65000")) == []
    above = "super_spines: {count: 2, ports: 64, management_first: 10.0.0.211}; "
    same = edited(f"{spines}{above}spines.asn: 65000; leaves.asn: 65000")
    assert "model.shared_asn" not in str(doubts(same))
    wanted = ["8 model.shared_asn leaves.asn_first ('leaf02', 'spine01', 65000)"]
    assert doubts(edited(f"{spines}spines.asn: 65000; leaves.asn_first: 64999")) == wanted
    wanted = ["8 model.shared_asn leaves.asn ('leaf02', 'spine01', 65000)"]
    assert doubts(edited(f"{spines}spines.asn: 65000; leaves.asn: [65001,65000]")) == wanted


def test_groups_of_switches_have_values_of_the_group() -> None:
    model = KINDS.replace("speed_gbps: 400}", "speed_gbps: 400, vlan: [11, 12, 21, 22]}")
    given = "asn: 65001, uplink_pool: 10.3.0.0/24, loopback_first: 10.4.0.1, pool: 10.5.0.0/16,"
    model = model.replace("old: {", f"old: {{{given} ")
    hosts = variables(model)
    assert [hosts[name]["cluster_vlans"] for name in ("twin04", "old01", "old02")] == [
        {"rail1p1": 22},
        {"rail0": 11},
        {"rail1": 21},
    ]
    more = model.replace("rails: {count: 2, planes: 1", "rails: {count: 4, planes: 1")
    more = more.replace("old: {", "old: {rail_to_leaf: [0, 0, 1, 1], ").replace("21, 22", "21, 21")
    assert variables(more)["old01"]["cluster_vlans"] == {"rail0": 11, "rail1": 21}
    assert variables(more)["old02"]["cluster_vlans"] == {}
    assert hosts["old02"]["cluster_asn"] == 65001 and "cluster_asn" not in hosts["twin01"]
    found = uplinks(model)
    numbered = {ends for ends, (_peer, address) in found.items() if address}
    assert {name for name, _port in numbered} == {"old01", "old02", "spine01", "spine02"}
    assert len(numbered) == 2 * 2 * 2
    wanted = ["14 model.range_taken switches.old.loopback_first ('10.5.0.1', '10.5.0.2')"]
    assert refused(model.replace("10.4.0.1", "10.5.0.1")) == wanted


def test_the_model_with_a_vlan_of_all_rails() -> None:
    hosts = variables(text("d10-vlan-rails"))
    assert hosts["leaf08"]["cluster_vlans"] == {"rail7": 900}
