# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of rails: each apart from the others, every fault named before anything is touched."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import (
    MAIN_TABLE,
    PlanError,
    Route,
    Rule,
    plan_rails,
)

from tests.unit.rails_host import rail


def test_a_rail_routes_by_its_own_address_and_table():
    (plan,) = plan_rails([rail(3)])
    assert plan.cidr == "10.100.3.11/24"
    assert plan.rule == Rule(10030, "10.100.3.11", 1030)
    assert plan.routes == (
        Route(1030, "10.100.3.0/24"),
        Route(1030, "default", "10.100.3.1"),
    )


def test_numbers_of_tables_and_rules_are_the_operators_to_choose():
    plans = plan_rails([rail(0), rail(1, plane=1)], table_base=5000, priority_base=20000)
    assert [plan.rule for plan in plans] == [
        Rule(20000, "10.100.0.11", 5000),
        Rule(20011, "10.100.1.11", 5011),
    ]


def test_without_gateway_there_is_no_default_route():
    (plan,) = plan_rails([rail(0, gateway=None)])
    assert plan.routes == (Route(1000, "10.100.0.0/24"),)
    assert plan.rule is not None


def test_arp_routing_has_neither_tables_nor_rules():
    (plan,) = plan_rails([rail(0, gateway=None)], routing="arp")
    assert plan.routes == ()
    assert plan.rule is None


def test_links_of_two_addresses_route_the_pool_for_unbound_traffic():
    ends = [
        rail(k, address=f"10.0.{k}.1", prefix=31, network=f"10.0.{k}.0/31", gateway=f"10.0.{k}.0")
        for k in range(2)
    ]
    plans = plan_rails(ends, networks=["10.0.0.0/16"])
    assert plans[1].routes == (
        Route(1010, "10.0.1.0/31"),
        Route(1010, "default", "10.0.1.0"),
        Route(MAIN_TABLE, "10.0.0.0/16", "10.0.1.0", 1010),
    )
    metrics = [route.metric for plan in plans for route in plan.routes if route.metric]
    assert metrics == [1000, 1010], "two routes to one network need different metrics"


@pytest.mark.parametrize(("table", "priority"), [(0, 10000), (254, 10000), (1000, 32766)])
def test_the_kernels_own_tables_and_rules_are_refused(table, priority):
    with pytest.raises(PlanError, match="rail0"):
        plan_rails([rail(0)], table_base=table, priority_base=priority)


@pytest.mark.parametrize("network", ["10.128.0.1/9", "banana"])
def test_what_is_no_network_is_refused_by_its_variable(network):
    with pytest.raises(PlanError, match=f"roce_rails_networks: .*{network}"):
        plan_rails([rail(0)], networks=[network])


def test_an_address_is_a_network_as_the_kernel_shows_it():
    (plan,) = plan_rails([rail(0)], networks=["10.9.9.9"])
    assert plan.routes[-1] == Route(MAIN_TABLE, "10.9.9.9/32", "10.100.0.1", 1000)


def test_arp_routing_with_a_gateway_is_refused():
    with pytest.raises(PlanError, match="roce_rails_routing"):
        plan_rails([rail(0)], routing="arp")
