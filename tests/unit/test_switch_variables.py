# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports and chips of switches in an inventory written by hand: refused before a host is touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.findings import Findings
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.contracts import (
    check_switches,
)

from tests.unit.link_fabric import Fabric
from tests.unit.told import brief

GOOD: dict[str, Any] = {
    "kind": "host",
    "peer_interface": "rail0",
    "speed_gbps": 400,
    "mtu": 9000,
    "rail": 0,
    "peers": {"Ethernet0": "node01"},
}


def told(**switches: dict[str, Any]) -> list[str]:
    findings = Findings()
    check_switches(switches.items(), findings)
    return brief(findings.found)


def test_what_a_model_compiles_is_right() -> None:
    fabric = Fabric()
    names = ("cluster_ports", "cluster_system")
    switches = {
        name: {each: copy.deepcopy(fabric.variables[name][each]) for each in names}
        for name in fabric.switches
    }
    assert told(**switches) == []


def test_a_switch_of_which_nothing_is_said_is_nobodys_business() -> None:
    assert told(leaf01={}, leaf02={"cluster_ports": [], "cluster_system": ""}) == []


@pytest.mark.parametrize(
    ("change", "told_of"),
    [
        ({"kind": "node"}, "model.not_a_choice %s.kind 'node'"),
        ({"speed_gbps": "400"}, "model.number_in_quotes %s.speed_gbps '400'"),
        ({"mtu": None}, "model.not_a_whole_number %s.mtu"),
        ({"peers": {}}, "fabric.ports_without_peers %s.peers"),
        ({"peers": []}, "model.not_a_mapping %s.peers list"),
        ({"peers": {"Ethernet0": ""}}, "model.wrong_form %s.peers.Ethernet0 ''"),
        ({"rail": "0"}, "model.number_in_quotes %s.rail '0'"),
        ({"rail": None}, "fabric.ports_without_rail %s.rail"),
        ({"speed": 400}, "model.unknown_key %s.speed"),
    ],
    ids=str,
)
def test_a_group_of_ports_is_refused_by_host_and_key(change: dict[str, Any], told_of: str) -> None:
    found = told(leaf01={"cluster_ports": [{**GOOD, **change}]})
    assert found == [told_of % "leaf01.cluster_ports[0]"]


def test_every_key_that_is_missing_is_told() -> None:
    assert told(leaf01={"cluster_ports": [GOOD, {"kind": "uplink"}]}) == [
        f"model.missing_key leaf01.cluster_ports[1].{key}"
        for key in ("peer_interface", "speed_gbps", "mtu", "peers")
    ]


def test_ports_that_are_no_list_are_refused_and_none_at_all_are_not() -> None:
    assert told(
        leaf01={"cluster_ports": "Ethernet0"},
        leaf02={"cluster_ports": [None]},
        leaf03={"cluster_ports": [], "cluster_system": "sonic"},
    ) == [
        "model.not_a_list leaf01.cluster_ports 'Ethernet0'",
        "model.not_a_mapping leaf02.cluster_ports[0]",
    ]


def test_chips_that_everybody_has_are_told_of_once() -> None:
    wrong = {"cluster_asics": {"mine": {"headroom": [{"speed_gbps": "fast"}]}}}
    assert told(leaf01=wrong, leaf02=copy.deepcopy(wrong), leaf03={"cluster_asics": []}) == [
        "model.not_a_whole_number leaf01.cluster_asics.mine.headroom[0].speed_gbps 'fast'",
        *(
            f"model.missing_key leaf01.cluster_asics.mine.headroom[0].{key}"
            for key in ("cable_metres", "size_bytes", "xon_bytes", "xoff_bytes")
        ),
        "model.not_a_mapping leaf03.cluster_asics list",
    ]
