# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Check mode on new switches: it reports changes and their traffic impact, and changes nothing."""

from __future__ import annotations

from tests.fabric import switch


def test_check_mode_tells_and_changes_nothing(nodes):
    switches = [switch(nodes, name) for name in nodes.group("leaf", "spine")]
    before = [(each.state(), each.log()) for each in switches]
    run = nodes.play("playbooks/fabric.yml", "--check", "--diff")
    assert run.hosts_with("changed") == {each.name for each in switches}
    assert "go down and come up again" in run.output
    assert [(each.state(), each.log()) for each in switches] == before
