# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Properties of address plans: unique, in the pool, never a gateway."""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import addresses
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.addresses import (
    AddressPlan,
    Exhausted,
    PointToPoint,
    Subnet,
    SubnetPerRail,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st

quick = settings(max_examples=60)


@st.composite
def subnet_plans(draw: st.DrawFn) -> tuple[AddressPlan, int]:
    """A plan and a number of nodes that it can hold."""
    prefix = draw(st.integers(20, 30))
    pool_prefix = draw(st.integers(8, prefix))
    plan = SubnetPerRail(
        pool=Subnet(ipv4("10.0.0.0"), pool_prefix),
        lanes=draw(st.integers(1, 16)),
        nodes_per_set=draw(st.integers(1, 80)),
        prefix=prefix,
        first_host=draw(st.integers(2, 40)),
    )
    return plan, fitting(draw, plan)


@st.composite
def point_to_point_plans(draw: st.DrawFn) -> tuple[AddressPlan, int]:
    pool = Subnet(ipv4("10.0.0.0"), draw(st.integers(8, 30)))
    plan = PointToPoint(pool=pool, lanes=draw(st.integers(1, 16)))
    return plan, fitting(draw, plan)


def fitting(draw: st.DrawFn, plan: AddressPlan) -> int:
    nodes = draw(st.integers(1, 150))
    try:
        plan.require_capacity(nodes)
    except Exhausted:
        assume(False)
    return nodes


plans = st.one_of(subnet_plans(), point_to_point_plans())


def ipv4(address: str) -> int:
    return int(ipaddress.IPv4Address(address))


def every(plan: AddressPlan, nodes: int) -> list[tuple[int, int]]:
    return [(node, lane) for node in range(nodes) for lane in range(plan.lanes)]


@quick
@given(plans)
def test_addresses_are_unique(case: tuple[AddressPlan, int]) -> None:
    plan, nodes = case
    hosts = [plan.address(*place) for place in every(plan, nodes)]
    gateways = {plan.gateway(*place) for place in every(plan, nodes)}
    assert len(set(hosts)) == len(hosts)
    assert not gateways & set(hosts)
    assert [plan.holder(host, nodes) for host in hosts] == every(plan, nodes)
    assert all(isinstance(plan.holder(gateway, nodes), str) for gateway in gateways)


@quick
@given(plans)
def test_addresses_are_in_the_network(
    case: tuple[AddressPlan, int],
) -> None:
    plan, nodes = case
    for place in every(plan, nodes):
        network = ipaddress.IPv4Network(str(plan.network(*place)))
        assert network.prefixlen == plan.prefix
        for number in (plan.address(*place), plan.gateway(*place)):
            address = ipaddress.IPv4Address(number)
            assert address in network
            if plan.prefix < 31:
                assert address not in (network.network_address, network.broadcast_address)


@quick
@given(plans)
def test_networks_are_in_the_pool(case: tuple[AddressPlan, int]) -> None:
    plan, nodes = case
    networks = sorted({plan.network(*place) for place in every(plan, nodes)}, key=lambda n: n.first)
    assert all(not one.overlaps(other) for one, other in zip(networks, networks[1:]))
    assert networks[0].first >= plan.pool.first
    assert networks[-1].last <= plan.pool.last


@pytest.mark.parametrize(
    ("plan", "nodes"),
    [
        (SubnetPerRail(Subnet(ipv4("10.0.0.0"), 21), 8, 64, 24, 11), 64),
        (SubnetPerRail(Subnet(ipv4("10.0.0.0"), 16), 8, 512, 24, 11), 244),
        (PointToPoint(Subnet(ipv4("10.0.0.0"), 24), 8), 16),
    ],
)
def test_the_capacity_of_a_pool(plan: AddressPlan, nodes: int) -> None:
    plan.require_capacity(nodes)
    with pytest.raises(Exhausted):
        plan.require_capacity(nodes + 1)


def test_the_reference_addresses() -> None:
    plan = SubnetPerRail(Subnet(ipv4("10.100.0.0"), 16), 8, 48, 24, 11)
    assert addresses.text(plan.address(0, 0)) == "10.100.0.11"
    assert addresses.text(plan.address(3, 7)) == "10.100.7.14"
    assert addresses.text(plan.gateway(3, 7)) == "10.100.7.1"
    assert str(plan.network(48, 0)) == "10.100.8.0/24", "a second leaf set has separate subnets"
