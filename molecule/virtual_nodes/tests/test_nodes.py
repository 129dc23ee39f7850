# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Virtual nodes boot completely and reach each other.

tests/bed/tests/integration covers families, rails and logins.
"""

from __future__ import annotations


def test_it_has_booted_to_the_end(node):
    assert node.check_output("ps -p 1 -o comm=") == "systemd"
    assert node.run("systemctl is-system-running --wait").stdout.strip() == "running"


def test_management_reaches_every_node(launcher, nodes):
    for name in nodes.group("compute"):
        address = nodes.of(name)["cluster_management"]["address"]
        launcher.check_output("ping -c 1 -W 2 %s", address)
