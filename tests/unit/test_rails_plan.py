# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of rails: each apart from the others, every fault named before anything is touched."""

from __future__ import annotations

import ipaddress

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import (
    MAIN_TABLE,
    Numbers,
    PlanError,
    Route,
    Rule,
    plan_rails,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rails_host import rail


def refused(rails, **more):
    with pytest.raises(PlanError) as caught:
        plan_rails(rails, **more)
    return str(caught.value)


def test_a_rail_routes_by_its_own_address_and_table():
    (plan,) = plan_rails([rail(3)])
    assert plan.cidr == "10.100.3.11/24"
    assert plan.rule == Rule(10030, "10.100.3.11", 1030)
    assert plan.routes == (
        Route(1030, "10.100.3.0/24"),
        Route(1030, "default", "10.100.3.1"),
    )


def test_numbers_of_tables_and_rules_are_the_operators_to_choose():
    plans = plan_rails([rail(0), rail(1, plane=1)], numbers=Numbers(5000, 20000))
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


def test_a_gateway_contradicts_arp_routing():
    assert "gateway 10.100.0.1 has no place with routing 'arp'" in refused([rail(0)], routing="arp")


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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"interface": "a/b"}, "interface 'a/b' is no usable name"),
        ({"interface": "rail0123456789ab"}, "15 characters at most"),
        ({"pci": "5d:00.0"}, "pci '5d:00.0' is no PCI address like 0000:5d:00.0"),
        ({"mtu": 900}, "mtu 900 is not a number from 1280 to 9978"),
        ({"mtu": "9000"}, "mtu '9000' is not a number"),
        ({"address": "10.100.0.300"}, "is no IPv4 address"),
        ({"address": "fd00::1", "prefix": 64}, "is no IPv4 address"),
        ({"network": "10.100.0.0/16"}, "network 10.100.0.0/16 is not that of its address"),
        ({"address": "10.100.0.255"}, "is the network's own or its broadcast address"),
        ({"gateway": "10.99.0.1"}, "gateway 10.99.0.1 is not in the rail's network"),
        ({"gateway": "10.100.0.11"}, "gateway 10.100.0.11 is the rail's own address"),
        ({"rail": -1}, "rail -1 is no number from 0"),
        ({"plane": 10}, "plane 10 is no number from 0 to 9"),
    ],
)
def test_a_fault_is_named_with_its_rail_and_value(change, told):
    text = refused([rail(0, **change)])
    assert told in text
    assert change.get("interface", "rail0") in text


def test_all_faults_are_told_at_once():
    text = refused([rail(0, mtu=1), rail(1, gateway="1.2.3.4")])
    assert "rail0: mtu" in text
    assert "rail1: gateway" in text


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (rail(1, interface="rail0"), "interface rail0 is given twice"),
        (rail(1, pci="0000:5D:00.0"), "PCI address 0000:5d:00.0 is given twice"),
        (rail(1, **{k: rail(0)[k] for k in ("address", "network", "gateway")}), "given twice"),
        (
            rail(0, interface="x", **{k: rail(1)[k] for k in ("address", "network", "gateway")}),
            "routing table 1000 is given twice",
        ),
    ],
)
def test_what_two_rails_share_is_refused(second, told):
    assert told in refused([rail(0, pci="0000:5d:00.0"), second])


def test_the_management_network_is_no_rail():
    management = {"interface": "mgmt0", "address": "10.100.0.11"}
    assert "10.100.0.11 is the management address" in refused([rail(0)], management=management)
    text = refused([rail(0, interface="mgmt0")], management={"interface": "mgmt0"})
    assert "this is the management interface; it cannot be a rail" in text
    text = refused([rail(0)], management={"address": "10.100.0.1", "prefix": 16})
    assert "10.100.0.11 is in the management network 10.100.0.0/16" in text


@pytest.mark.parametrize("base", [0, 253, 254, 255])
def test_the_kernels_own_tables_are_refused(base):
    assert f"routing table {base} is reserved" in refused([rail(0)], numbers=Numbers(base, 10000))


@pytest.mark.parametrize("base", [0, 32766, 40000])
def test_a_rule_has_to_come_before_the_main_table(base):
    assert f"rule priority {base} is not between" in refused([rail(0)], numbers=Numbers(1000, base))


@given(st.integers(1, 64), st.integers(1, 8), st.integers(8, 30))
def test_tables_rules_and_metrics_never_meet(count, planes, prefix):
    size = 1 << (32 - prefix)
    rails = []
    for number in range(count):
        for plane in range(planes):
            first = ipaddress.ip_address("10.0.0.0") + (number * planes + plane) * size
            if int(first) + size > int(ipaddress.ip_address("240.0.0.0")):
                return
            network = str(ipaddress.ip_network(f"{first}/{prefix}"))
            own = {"address": str(first + 2), "gateway": str(first + 1), "network": network}
            name = f"rail{number}p{plane}"
            rails.append(rail(number, plane=plane, interface=name, prefix=prefix, **own))
    plans = plan_rails(rails, networks=["10.0.0.0/8"])
    for pick in (
        lambda plan: plan.rule.table,
        lambda plan: plan.rule.priority,
        lambda plan: plan.routes[-1].metric,
    ):
        assert len({pick(plan) for plan in plans}) == len(plans)
    for plan in plans:
        assert {route.table for route in plan.routes} == {plan.rule.table, MAIN_TABLE}
