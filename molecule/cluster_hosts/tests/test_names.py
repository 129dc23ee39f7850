# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every node resolves its name and the names of the others; the loopback entries are unchanged."""

from __future__ import annotations


def test_the_host_has_its_name(node):
    assert node.check_output("hostname") == node.backend.hostname
    assert node.file("/etc/hostname").content_string.strip() == node.backend.hostname


def test_every_node_and_rail_resolves(node, nodes):
    wanted = {}
    for name in nodes.group("compute", "launcher"):
        variables = nodes.of(name)
        wanted[name] = variables["cluster_management"]["address"]
        for rail in variables.get("cluster_rails", []):
            wanted[f"{name}-{rail['interface']}"] = rail["address"]
    found = node.check_output("getent ahostsv4 -- " + " ".join(wanted) + " | awk '/STREAM/'")
    assert [line.split()[0] for line in found.splitlines()] == list(wanted.values())


def test_localhost_is_the_loopback(node):
    assert "127.0.0.1" in node.check_output("getent ahostsv4 localhost")
