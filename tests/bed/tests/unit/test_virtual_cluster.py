# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hosts of an inventory that become virtual nodes, sorted by kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.bed.plugins.module_utils.inventory import VirtualError
from ansible_collections.baremetal.bed.plugins.plugin_utils.cluster import plan_cluster

from tests.unit.action_plays import run_play

GROUPS = {
    "compute": ["node01", "node02"],
    "launcher": ["launcher01"],
    "leaf": ["leaf01", "leaf02"],
    "spine": ["spine01"],
}
DEFAULTS: dict[str, Any] = {
    "virtual_nodes_kind": "container",
    "virtual_nodes_family": "ubuntu",
    "virtual_nodes_release": "",
    "virtual_nodes_memory_mib": 1024,
    "virtual_nodes_processors": 1,
    "virtual_nodes_sriov_rails": [],
}


def plan(names: Any = None, **changes: dict[str, Any]) -> dict[str, Any]:
    """Plan four servers and switches of which two have a system; `changes` are host variables."""
    hosts: dict[str, dict[str, Any]] = {
        name: {"cluster_management": {"address": f"10.0.0.{number}"}}
        for number, name in enumerate(name for members in GROUPS.values() for name in members)
    }
    for name, system in (("leaf01", "sonic"), ("spine01", "eos")):
        hosts[name]["cluster_system"] = system
    for name, variables in changes.items():
        hosts[name].update(variables)
    return plan_cluster(hosts, GROUPS, DEFAULTS, names)


def test_servers_and_switches_with_a_system_are_selected() -> None:
    result = plan()
    assert result["names"] == ["node01", "node02", "launcher01", "leaf01", "spine01"]
    assert result["switches"] == ["leaf01", "spine01"]
    assert result["servers"] == ["node01", "node02", "launcher01"]
    assert result["image_families"] == ["ubuntu", "switch"]
    assert result["systems"] == {"leaf01": "sonic", "leaf02": "", "spine01": "eos"}


def test_names_replace_the_selection() -> None:
    result = plan(["node02", "leaf02", "node02"])
    assert (result["names"], result["switches"]) == (["node02", "leaf02"], ["leaf02"])
    assert result["management"].keys() == {"node02", "leaf02"}
    assert result["systems"].keys() == {"leaf01", "leaf02", "spine01"}, "LLDP needs all of them"


def test_machines_have_resources_and_no_image() -> None:
    result = plan(
        node01={"virtual_nodes_kind": "machine", "virtual_nodes_memory_mib": 2048},
        leaf01={"virtual_nodes_kind": "machine"},
    )
    assert result["machines"] == ["node01"], "a switch is always a container"
    assert (result["memory_mib"], result["processors"]) == ({"node01": 2048}, {"node01": 1})
    assert "node01" not in {**result["families"], **result["container_management"]}
    assert result["image_families"] == ["ubuntu", "switch", "machine"]


def test_host_variables_choose_family_and_release() -> None:
    result = plan(
        node01={"virtual_nodes_family": "el", "virtual_nodes_release": 10.1},
        leaf01={"virtual_nodes_release": "26.04"},
    )
    assert result["families"]["node01"] == "el" and result["families"]["leaf01"] == "switch"
    assert result["releases"] == {"node01": "10.1"}
    assert result["image_families"] == ["el", "ubuntu", "switch"]


@pytest.mark.parametrize("name", ["node09", "localhost"])
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(VirtualError, match=name):
        plan(["node01", name])


INVENTORY = """\
compute:
  hosts:
    node01:
      cluster_management: {address: 10.0.0.1}
      virtual_nodes_family: "{{ 'el' }}"
"""
PLAY = """\
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - baremetal.bed.virtual_cluster:
        defaults: {virtual_nodes_kind: container, virtual_nodes_release: ""}
      register: cluster
    - ansible.builtin.assert:
        that:
          - cluster.plan.names == ['node01']
          - cluster.plan.families.node01 == 'el'
          - cluster.plan.releases | length == 0
    - baremetal.bed.virtual_cluster:
        names: [node02]
"""


@pytest.mark.slow
def test_the_action_reads_templated_variables_of_all_hosts(tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.yml"
    inventory.write_text(INVENTORY)
    status, output = run_play(tmp_path, PLAY, inventory, "--check")
    assert status == 2
    assert "ok=2 " in output and "node02" in output.partition("FAILED!")[2]
