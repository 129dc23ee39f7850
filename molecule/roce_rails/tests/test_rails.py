# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Each rail has its address, MTU and route, and full-size packets cross every leaf."""

from __future__ import annotations

import json

import pytest


def rails_of(nodes, host) -> list[dict]:
    return nodes.of(host.backend.hostname)["cluster_rails"]


def test_each_rail_has_its_one_address_and_mtu(compute, nodes):
    links = {link["ifname"]: link for link in json.loads(compute.check_output("ip -j address"))}
    for rail in rails_of(nodes, compute):
        link = links[rail["interface"]]
        addresses = [
            (entry["local"], entry["prefixlen"])
            for entry in link["addr_info"]
            if entry["family"] == "inet"
        ]
        assert addresses == [(rail["address"], rail["prefix"])]
        assert link["mtu"] == rail["mtu"] == 9000
        assert link["operstate"] == "UP"


def test_each_rail_leaves_by_itself(compute, nodes):
    """Packets from a rail's address leave by that rail, whatever their destination."""
    for rail in rails_of(nodes, compute):
        route = json.loads(
            compute.check_output("ip -j route get 192.0.2.1 from %s", rail["address"])
        )[0]
        assert (route["dev"], route["gateway"]) == (rail["interface"], rail["gateway"])


def test_the_main_way_out_is_not_a_rail(compute):
    for route in json.loads(compute.check_output("ip -j route show default")):
        assert not route["dev"].startswith("rail")


def test_a_rail_answers_for_itself_alone(compute, nodes):
    for rail in rails_of(nodes, compute):
        settings = compute.check_output(
            "cd /proc/sys/net/ipv4/conf/%s && cat arp_ignore arp_announce rp_filter",
            rail["interface"],
        )
        assert settings.split() == ["1", "2", "2"]


@pytest.mark.parametrize("payload", [8972])  # 9000 bytes minus the IP and ICMP headers
def test_full_packets_cross_every_leaf(compute, nodes, payload):
    names = nodes.group("compute")
    here = compute.backend.hostname
    peer = names[(names.index(here) + 1) % len(names)]
    for mine, theirs in zip(rails_of(nodes, compute), nodes.of(peer)["cluster_rails"]):
        compute.check_output(
            "ping -c 1 -W 2 -M do -s %s -I %s %s",
            str(payload),
            mine["address"],
            theirs["address"],
        )


def test_rails_survive_a_reboot(compute, nodes):
    """The files of the node's network service contain every address."""
    text = compute.check_output(
        "cat /etc/netplan/*.yaml /etc/NetworkManager/system-connections/*.nmconnection "
        "/etc/systemd/network/*.network 2>/dev/null; true"
    )
    for rail in rails_of(nodes, compute):
        assert f"{rail['address']}/{rail['prefix']}" in text
