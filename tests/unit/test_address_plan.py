# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Properties of address plans: unique, in the pool, never a gateway."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.addresses import (
    AddressPlan,
    Subnet,
    point_to_point,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings
from hypothesis import assume, given, settings
from hypothesis import strategies as st

quick = settings(max_examples=60)


@st.composite
def subnet_plans(draw: st.DrawFn) -> tuple[AddressPlan, int]:
    """A plan and a number of nodes that it can hold."""
    prefix = draw(st.integers(20, 30))
    pool_prefix = draw(st.integers(8, prefix))
    plan = AddressPlan(
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
    plan = point_to_point(pool, draw(st.integers(1, 16)))
    return plan, fitting(draw, plan)


def fits(plan: AddressPlan, nodes: int) -> bool:
    findings = Findings()
    plan.check_capacity(nodes, findings, ())
    return not findings


def fitting(draw: st.DrawFn, plan: AddressPlan) -> int:
    nodes = draw(st.integers(1, 150))
    assume(fits(plan, nodes))
    return nodes


@st.composite
def placed_plans(draw: st.DrawFn) -> tuple[AddressPlan, int]:
    """A plan whose nodes, and whose networks, are not the first of the cluster and of the pool."""
    plan, _nodes = draw(st.one_of(subnet_plans(), point_to_point_plans()))
    first = draw(st.integers(0, 9))
    networks = plan.pool.size // plan.size
    span = draw(st.sampled_from([0, networks // plan.lanes]))
    plan = replace(plan, first_node=first, first_network=draw(st.integers(0, 5)), lane_span=span)
    nodes = draw(st.integers(first + 1, first + 150))
    end = draw(st.sampled_from([plan.end, nodes]))
    assume(fits(plan, nodes))
    return replace(plan, end=end), nodes


@st.composite
def plans_by_plane(draw: st.DrawFn) -> tuple[AddressPlan, int]:
    rails, planes, sets = (draw(st.integers(*ends)) for ends in ((1, 9), (2, 5), (1, 4)))
    pool = Subnet(ipv4("10.0.0.0"), 8)
    plan = AddressPlan(pool, rails * planes, 3, 24, 11, planes=planes, lane_span=4)
    return plan, 3 * sets


plans = st.one_of(subnet_plans(), point_to_point_plans(), placed_plans(), plans_by_plane())


def ipv4(address: str) -> int:
    return int(ipaddress.IPv4Address(address))


@quick
@given(plans)
def test_every_address_is_unique_and_in_its_network(case: tuple[AddressPlan, int]) -> None:
    plan, nodes = case
    places = [(node, lane) for node in range(plan.first_node, nodes) for lane in range(plan.lanes)]
    hosts = [plan.address(*place) for place in places]
    gateways = {plan.gateway(*place) for place in places}
    assert len(set(hosts)) == len(hosts)
    assert not gateways & set(hosts)
    assert [plan.holder(host, nodes) for host in hosts] == places
    assert all(isinstance(plan.holder(gateway, nodes), str) for gateway in gateways)
    for place in places:
        network = ipaddress.IPv4Network(str(plan.network(*place)))
        assert network.prefixlen == plan.prefix
        ends = {network.network_address, network.broadcast_address} if plan.prefix < 31 else set()
        for number in (plan.address(*place), plan.gateway(*place)):
            address = ipaddress.IPv4Address(number)
            assert address in network and address not in ends
    networks = sorted({plan.network(*place) for place in places}, key=lambda n: n.first)
    assert all(not one.overlaps(other) for one, other in zip(networks, networks[1:]))
    assert networks[0].first >= plan.pool.first
    assert networks[-1].last <= plan.pool.last


@quick
@given(plans_by_plane())
def test_each_plane_has_one_prefix(case: tuple[AddressPlan, int]) -> None:
    plan, nodes = case
    planes = [plan.plane_network(plane) for plane in range(plan.planes)]
    for lane in range(plan.lanes):
        for node in range(nodes):
            inside = [plan.network(node, lane).overlaps(prefix) for prefix in planes]
            assert inside == [plane == lane % plan.planes for plane in range(plan.planes)]


@pytest.mark.parametrize(
    ("plan", "nodes"),
    [
        (AddressPlan(Subnet(ipv4("10.0.0.0"), 21), 8, 64, 24, 11), 64),
        (AddressPlan(Subnet(ipv4("10.0.0.0"), 16), 8, 512, 24, 11), 244),
        (point_to_point(Subnet(ipv4("10.0.0.0"), 24), 8), 16),
        (replace(point_to_point(Subnet(ipv4("10.0.0.0"), 24), 8), lane_span=16), 16),
        (replace(point_to_point(Subnet(ipv4("10.0.0.0"), 24), 8), first_network=64), 8),
        (replace(point_to_point(Subnet(ipv4("10.0.0.0"), 24), 8), first_node=4), 20),
    ],
)
def test_the_capacity_of_a_pool(plan: AddressPlan, nodes: int) -> None:
    assert fits(plan, nodes) and not fits(plan, nodes + 1)


def test_addresses_that_no_node_of_a_plan_has() -> None:
    pool = Subnet(ipv4("10.0.0.0"), 24)
    plan = replace(point_to_point(pool, 8), first_node=4, end=6, first_network=64)
    assert plan.holder(ipv4("10.0.0.129"), 9) == (4, 0)
    assert plan.holder(ipv4("10.0.0.127"), 9) == "", "of other leaves"
    assert plan.holder(ipv4("10.0.0.161"), 9) == "", "of the node after the last"
    rails = replace(point_to_point(pool, 6), lane_span=16, first_network=4)
    assert rails.holder(ipv4("10.0.0.9"), 9) == (0, 0)
    assert rails.holder(ipv4("10.0.0.7"), 9) == "", "of other leaves"
    assert rails.holder(ipv4("10.0.0.201"), 9) == "", "after the last rail"


def test_a_pool_with_fewer_networks_than_rails() -> None:
    plan = replace(point_to_point(Subnet(ipv4("10.0.0.0"), 29), 8), lane_span=1)
    assert not fits(plan, 1)


def test_a_pool_without_a_part_for_each_plane() -> None:
    plan = AddressPlan(Subnet(ipv4("10.0.0.0"), 20), 15, 4, 24, 11, planes=3, lane_span=1)
    assert not fits(plan, 1), "5 rails of 3 planes need 21 of 16 networks"
    assert fits(replace(plan, pool=Subnet(ipv4("10.0.0.0"), 19)), 4)
