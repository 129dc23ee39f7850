# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A virtual node behaves as a machine: booted to the end, with rails and a login."""

from __future__ import annotations

import json


def test_it_has_booted_to_the_end(node):
    assert node.check_output("ps -p 1 -o comm=") == "systemd"
    assert node.run("systemctl is-system-running --wait").stdout.strip() == "running"


def test_it_has_its_rails_and_nothing_on_them(compute, nodes):
    links = {link["ifname"]: link for link in json.loads(compute.check_output("ip -j address"))}
    for rail in nodes.of(compute.backend.hostname)["cluster_rails"]:
        found = links[rail["interface"]]
        assert [a for a in found["addr_info"] if a["family"] == "inet"] == []


def test_an_unprivileged_account_logs_in_and_becomes_root(node, nodes):
    plain = nodes.on(node.backend.hostname, sudo=False)
    assert plain.check_output("id -un") != "root"
    assert node.check_output("id -un") == "root"


def test_families_are_what_the_inventory_asks_for(node, nodes):
    family = nodes.of(node.backend.hostname).get("virtual_nodes_family", "ubuntu")
    wanted = {"ubuntu": ("ubuntu", "apt-get"), "el": ("rocky", "dnf")}[family]
    assert node.system_info.distribution == wanted[0]
    assert node.exists(wanted[1])


def test_management_reaches_every_node(launcher, nodes):
    for name in nodes.group("compute"):
        address = nodes.of(name)["cluster_management"]["address"]
        launcher.check_output("ping -c 1 -W 2 %s", address)
