# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What `ip -j` and networkctl printed on a host with three rails, and what is made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails import networkd, state
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.rails.plan import (
    MAIN_TABLE,
    Route,
    Rule,
)

GOLDEN = Path(__file__).parent / "golden/rails"


def recorded(name):
    return json.loads((GOLDEN / name).read_text())


def test_links_as_recorded():
    links = state.parse_links(recorded("ip_address.json"))
    rail = links["rail0"]
    assert (rail.mtu, rail.up, rail.carrier) == (9000, True, True)
    assert rail.addresses == ("10.77.0.11/24",), "the kernel's link-local address is not counted"
    assert rail.mac.count(":") == 5


def test_routes_as_recorded():
    routes = state.parse_routes(recorded("ip_route.json"))
    assert routes["rail0"] == (
        Route(1000, "10.77.0.0/24"),
        Route(1000, "default", "10.77.0.1"),
    ), "routes that the kernel makes of an address are not counted"


def test_rules_as_recorded():
    assert state.parse_rules(recorded("ip_rule.json"))[0] == Rule(10000, "10.77.0.11", 1000)


def test_networkctl_as_recorded():
    text = (GOLDEN / "networkctl_status.txt").read_text()
    files = networkd.parse_status(text)
    assert files["rail0"] == "/run/systemd/network/10-netplan-rail0.network"
    assert files["rail1"] == "/run/systemd/network/10-netplan-rail1.network"


def test_a_failed_link_is_not_taken_for_configured():
    text = "* 3: rail0\n  Network File: /etc/a.network\n  State: routable (failed)\n"
    assert networkd.parse_status(text) == {"rail0": "/etc/a.network, routable (failed)"}


def test_a_failed_dhcp_leaves_an_address_that_counts():
    info = {"family": "inet", "local": "169.254.7.7", "prefixlen": 16}
    link = {"ifname": "rail0", "ifindex": 2, "mtu": 1500, "addr_info": [info]}
    assert state.parse_links([link])["rail0"].addresses == ("169.254.7.7/16",)


def test_a_global_ipv6_address_counts():
    info = {"family": "inet6", "local": "2001:db8::1", "prefixlen": 64}
    link = {"ifname": "rail0", "ifindex": 2, "mtu": 1500, "addr_info": [info]}
    assert state.parse_links([link])["rail0"].addresses == ("2001:db8::1/64",)


def test_metrics_matter_in_the_main_table_only():
    routes = state.parse_routes(
        [
            {
                "dst": "default",
                "gateway": "10.0.0.1",
                "dev": "rail0",
                "metric": 104,
                "table": "1000",
            },
            {"dst": "10.0.0.0/8", "gateway": "10.0.0.1", "dev": "rail0", "metric": 1000},
            {"dst": "10.9.9.9", "dev": "rail0"},
        ]
    )
    assert set(routes["rail0"]) == {
        Route(1000, "default", "10.0.0.1"),
        Route(MAIN_TABLE, "10.0.0.0/8", "10.0.0.1", 1000),
        Route(MAIN_TABLE, "10.9.9.9/32", None, 0),
    }


def test_rules_that_do_not_choose_by_source_are_not_ours_to_judge():
    rules = state.parse_rules(
        [
            {"priority": 1000, "src": "all", "table": "255"},
            {"priority": 5, "src": "10.0.0.0", "srclen": 8, "table": "7"},
        ]
    )
    assert rules == (Rule(5, "10.0.0.0/8", 7),)


def test_what_a_vlan_or_a_route_uses_is_in_use():
    links = state.parse_links(
        [
            {"ifname": "ens1", "ifindex": 2, "mtu": 1500},
            {"ifname": "ens1.7", "ifindex": 3, "mtu": 1500, "link": "ens1"},
        ]
    )
    routes = {"ens2": (Route(MAIN_TABLE, "default", "10.0.0.1"),)}
    assert state.State(links, routes).in_use == {"ens1", "ens2"}


def test_an_answer_that_is_no_json_names_the_command():
    with pytest.raises(CommandError, match="ip -N -j address show: printed no JSON"):
        state.read_state(lambda argv, **more: Result(tuple(argv), 0, "Device", ""))
