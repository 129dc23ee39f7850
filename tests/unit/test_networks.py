# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Networks other than rails, several management subnets, and BMCs in a model."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.addresses import (
    Subnet,
    Subnets,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.small_model import MODEL, compiled, doubts, refused

NETWORK: dict[str, Any] = {"name": "storage", "subnet": "10.60.0.0/24", "interface": "bond0"}
WHOLE: dict[str, Any] = {
    **NETWORK,
    "members": ["ens1f0np0", "ens1f1np1"],
    "gateway": "10.60.0.1",
    "speed_gbps": 400,
    "mtu": 9000,
    "lossless": True,
    "leaves": ["sleaf01", "sleaf02"],
}


def model(
    *networks: dict[str, Any],
    nodes: str = "networks: {storage: 10.60.0.11}",
    management: str = "subnet: 10.0.0.0/24",
    launcher: str = "",
    more: str = "",
) -> str:
    """Line 3 is the management, 4 the nodes, 9 the launcher, 10 the networks."""
    text = MODEL.replace("management_first: 10.0.0.11", f"management_first: 10.0.0.11, {nodes}")
    text = text.replace("subnet: 10.0.0.0/24", management)
    text = text.replace("management: 10.0.0.10", f"management: 10.0.0.10{launcher}")
    return f"{text}networks: {json.dumps(list(networks))}\n{more}"


def variables(text: str) -> dict[str, dict[str, Any]]:
    inventory = compiled(text)
    return {host.name: inventory.merged(host) for host in inventory.hosts}


def test_a_network_is_compiled_for_its_hosts() -> None:
    found = variables(model(WHOLE, launcher=", networks: {storage: 10.60.0.5}"))
    assert found["node02"]["cluster_networks"] == [
        {**WHOLE, "address": "10.60.0.12", "prefix": 24},
    ]
    assert found["launcher01"]["cluster_networks"][0]["address"] == "10.60.0.5"
    assert all("cluster_networks" not in found[name] for name in ("leaf01", "leaf02"))
    plain = variables(model(NETWORK))["node01"]["cluster_networks"][0]
    assert (plain["mtu"], plain["lossless"], plain["members"]) == (1500, False, [])
    assert (plain["gateway"], plain["speed_gbps"], plain["leaves"]) == (None, None, [])


def test_a_node_has_its_own_address_or_none() -> None:
    nodes = "networks: {storage: 10.60.0.11}, overrides: {node02: {networks: {storage: 10.60.0.9}}}"
    found = variables(
        model(
            NETWORK,
            {**NETWORK, "name": "ns", "subnet": "10.61.0.0/24", "interface": "ns0"},
            nodes=nodes,
        )
    )
    assert [each["address"] for each in found["node02"]["cluster_networks"]] == ["10.60.0.9"]
    assert [each["address"] for each in found["node01"]["cluster_networks"]] == ["10.60.0.11"]
    nodes = "absent: [node01], networks: {storage: 10.60.0.11}"
    assert variables(model(NETWORK, nodes=nodes))["node02"]["cluster_networks"][0]["address"] == (
        "10.60.0.12"
    )


def test_bmcs_are_compiled_for_their_hosts() -> None:
    nodes = "bmc_first: 10.9.0.11, overrides: {node02: {bmc: 10.9.0.200}}"
    text = model(management="subnet: 10.0.0.0/24, bmc_subnet: 10.9.0.0/24", nodes=nodes)
    text = text.replace(
        "management_first: 10.0.0.101", "bmc_first: 10.9.0.101, management_first: 10.0.0.101"
    )
    found = variables(text)
    assert {name: own["cluster_bmc"] for name, own in found.items() if "cluster_bmc" in own} == {
        "node01": "10.9.0.11",
        "node02": "10.9.0.200",
        "leaf01": "10.9.0.101",
        "leaf02": "10.9.0.102",
    }
    each = text.replace("bmc_first: 10.9.0.101", "bmc_first: [10.9.0.150, 10.9.0.120]")
    found = variables(each)
    assert (found["leaf01"]["cluster_bmc"], found["leaf02"]["cluster_bmc"]) == (
        "10.9.0.150",
        "10.9.0.120",
    )
    assert refused(each.replace(", 10.9.0.120", "")) == [
        "8 model.values_for_switches leaves.bmc_first 1"
    ]
    assert refused(each.replace("10.9.0.150", "10.9.0.11")) == [
        "8 model.address_twice leaves.bmc_first[0] ('10.9.0.11', 1, 'BMC of node01')"
    ]
    shared = variables(model(nodes="bmc_first: 10.0.0.61"))
    assert shared["node02"]["cluster_bmc"] == "10.0.0.62", "in the management network"


def test_every_host_has_the_prefix_of_its_management_subnet() -> None:
    nodes = "overrides: {node02: {management: 10.8.0.5}}"
    text = model(management="subnet: [10.8.0.0/16, 10.0.0.0/24]", nodes=nodes)
    found = variables(text)
    prefixes = {name: own["cluster_management"]["prefix"] for name, own in found.items()}
    assert prefixes == {**dict.fromkeys(found, 24), "node02": 16}
    assert found["node01"]["cluster_management_networks"] == ["10.0.0.0/24", "10.8.0.0/16"]
    assert "cluster_management_networks" not in variables(model(NETWORK))["node01"]


def test_vlans_of_a_bond_share_its_members() -> None:
    ports = {"members": WHOLE["members"]}
    first = {**NETWORK, **ports, "interface": "bond0.100"}
    assert variables(model(first, {**OTHER, **ports, "interface": "bond0.200"}))
    assert refused(model(first, {**OTHER, **ports, "interface": "bond1.100"})) == [
        f"10 model.interface_twice networks[1].members[{index}] {name!r}"
        for index, name in enumerate(ports["members"])
    ]
    assert refused(model(first, {**OTHER, **ports, "interface": "bond0.100"})) == [
        "10 model.interface_twice networks[1].interface 'bond0.100'"
    ]


OTHER = {**NETWORK, "name": "other", "interface": "other0", "subnet": "10.61.0.0/24"}
BMC = "subnet: 10.0.0.0/24, bmc_subnet: 10.9.0.0/24"
REFUSED: tuple[tuple[str, list[str]], ...] = (
    (model(), ["4 model.unknown_network nodes.networks.storage 'storage'"]),
    (
        model(NETWORK, launcher=", networks: {storge: 10.60.0.5}"),
        ["9 model.unknown_network launcher.networks.storge 'storge'"],
    ),
    (
        model({**NETWORK, "subnet": "10.0.0.0/16"}, nodes=""),
        ["10 model.networks_overlap networks[0].subnet '10.0.0.0/16'"],
    ),
    (
        model({**NETWORK, "subnet": "10.1.7.0/24"}, nodes=""),
        ["10 model.networks_overlap networks[0].subnet '10.1.7.0/24'"],
    ),
    (
        model({**NETWORK, "subnet": "10.9.0.0/25"}, nodes="", management=BMC),
        ["10 model.networks_overlap networks[0].subnet '10.9.0.0/25'"],
    ),
    (
        model(NETWORK, {**OTHER, "subnet": "10.60.0.0/16"}),
        ["10 model.networks_overlap networks[1].subnet '10.60.0.0/16'"],
    ),
    (
        model(NETWORK, {**OTHER, "name": "storage"}),
        [
            "4 model.outside_network nodes.networks.storage ('10.60.0.11', 2)",
            "10 model.network_twice networks[1].name 'storage'",
        ],
    ),
    (
        model(NETWORK).replace("ports: 64,", "ports: 64, loopback_first: 10.60.0.200,"),
        ["8 model.range_taken leaves.loopback_first ('10.60.0.200', '10.60.0.201')"],
    ),
    (
        model({**NETWORK, "interface": "rail1"}),
        ["10 model.interface_twice networks[0].interface 'rail1'"],
    ),
    (
        model(NETWORK, {**OTHER, "members": ["bond0"]}),
        ["10 model.interface_twice networks[1].members[0] 'bond0'"],
    ),
    (
        model(NETWORK, management="subnet: 10.0.0.0/24, interface: bond0"),
        ["10 model.interface_twice networks[0].interface 'bond0'"],
    ),
    (
        model({**NETWORK, "gateway": "10.61.0.1"}),
        ["10 model.gateway networks[0].gateway '10.61.0.1'"],
    ),
    (
        model({**NETWORK, "gateway": "10.60.0.12"}),
        ["4 model.address_twice nodes.networks.storage ('10.60.0.12', 1, 'the gateway')"],
    ),
    (
        model(NETWORK, nodes="networks: {storage: 10.60.0.254}"),
        ["4 model.outside_network nodes.networks.storage ('10.60.0.255', 1)"],
    ),
    (
        model(NETWORK, launcher=", networks: {storage: 10.60.0.12}"),
        ["4 model.address_twice nodes.networks.storage ('10.60.0.12', 1, 'launcher01')"],
    ),
    (
        model(nodes="bmc_first: 10.0.0.100"),
        ["4 model.address_twice nodes.bmc_first ('10.0.0.101', 1, 'leaf01')"],
    ),
    (
        model(nodes="bmc_first: 10.0.0.11"),
        ["4 model.address_twice nodes.bmc_first ('10.0.0.11', 2, 'node01')"],
    ),
    (
        model(nodes="bmc_first: 10.0.0.61", launcher=", bmc: 10.9.0.5", management=BMC),
        [
            "4 model.outside_network nodes.bmc_first ('10.0.0.61', 2)",
        ],
    ),
    (
        model(nodes="slots: 2", launcher=", bmc: 10.9.0.5"),
        ["9 model.outside_network launcher.bmc ('10.9.0.5', 1)"],
    ),
    (
        model(nodes="slots: 2", management="subnet: [10.0.0.0/24, 10.0.0.128/25]"),
        ["3 model.subnets_overlap management.subnet '10.0.0.128/25'"],
    ),
    (
        model(nodes="slots: 2", management="subnet: []"),
        ["3 model.no_subnet management.subnet"],
    ),
    (
        model(nodes="slots: 2", management="subnet: [10.8.0.0/24, 10.0.0.0/26]"),
        ["8 model.outside_management leaves.management_first ('10.0.0.101', 2)"],
    ),
    (
        model(nodes="slots: 2", management="subnet: [10.0.0.0/24, 10.1.0.0/24]"),
        ["7 model.pool_in_management addresses.pool '10.1.0.0/16'"],
    ),
    (
        model(nodes="slots: 2", management="subnet: 10.0.0.0/24, bmc_subnet: 10.1.1.0/24"),
        ["7 model.pool_in_management addresses.pool '10.1.0.0/16'"],
    ),
)  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), REFUSED)
def test_refused(text: str, wanted: list[str]) -> None:
    assert refused(text) == wanted


def test_no_server_has_the_address_of_a_bmc() -> None:
    entry = {"name": "a", "type": "nfs", "mount": "/mnt/a", "purpose": "scratch"}
    for serve in ({}, {"serve": {"host": "node01"}}):
        own = {**entry, "source": "10.0.0.61:/srv/a", **serve}
        more = f"filesystems: [{json.dumps(own)}]\n"
        assert refused(model(nodes="bmc_first: 10.0.0.61", more=more)) == [
            "11 storage.source_address filesystems[0].source '10.0.0.61'"
        ]


def test_servers_have_the_addresses_of_their_networks() -> None:
    entry = {"name": "a", "type": "nfs", "mount": "/mnt/a", "purpose": "scratch"}
    of_node = {**entry, "source": "10.60.0.11:/srv/a"}
    text = model(NETWORK, more=f"filesystems: [{json.dumps(of_node)}]\n")
    assert refused(text) == ["11 storage.source_address filesystems[0].source '10.60.0.11'"]
    served = {**of_node, "serve": {"host": "node01"}}
    text = model(NETWORK, more=f"filesystems: [{json.dumps(served)}]\n")
    assert doubts(text) == []
    storage = "storage: [{name: s1, management: 10.0.0.20, networks: {storage: 10.60.0.20}}]\n"
    rdma = {**entry, "source": "10.60.0.20:/srv/a", "serve": {"host": "s1"}, "hosts": ["compute"]}
    rdma["nfs"] = {"transport": "rdma"}
    assert doubts(model(NETWORK, more=f"{storage}filesystems: [{json.dumps(rdma)}]\n")) == []
    served["serve"] = {"host": "node02"}
    text = model(NETWORK, more=f"filesystems: [{json.dumps(served)}]\n")
    assert refused(text) == ["11 storage.source_address filesystems[0].source '10.60.0.11'"]


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(8, 30)), min_size=1, max_size=6),
    st.integers(0, (1 << 32) - 1),
    st.integers(-2, 2),
)
def test_an_address_is_in_the_network_that_contains_it(
    given_nets: list[tuple[int, int]], address: int, near: int
) -> None:
    nets: list[IPv4Network] = []
    for octet, prefix in given_nets:
        net = IPv4Network((octet << 24, prefix))
        if not any(net.overlaps(other) for other in nets):
            nets.append(net)
    each = sorted((int(net.network_address), net.prefixlen) for net in nets)
    subnets = Subnets(tuple(Subnet(*one) for one in each))
    edge = int(nets[0].broadcast_address) + near
    for one in (address, min(max(edge, 0), (1 << 32) - 1)):
        around = next((net for net in nets if IPv4Address(one) in net), None)
        assert str(subnets.around(one) or None) == str(around)
        hosts = around and IPv4Address(one) not in (
            around.network_address,
            around.broadcast_address,
        )
        assert subnets.has_host(one) is bool(hosts)
