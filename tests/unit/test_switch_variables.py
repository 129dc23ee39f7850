# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports and chips of switches in an inventory written by hand: refused before a host is touched."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.cluster_model.switch_variables import (  # noqa: E501
    check_switches,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.schema.findings import Findings

from tests.unit.link_fabric import Fabric

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
    return [finding.text() for finding in findings.found]


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
    ("change", "line"),
    [
        ({"kind": "node"}, "[0].kind: 'node' is not a choice. Known here: host, storage, uplink, "),
        ({"speed_gbps": "400"}, "[0].speed_gbps: '400' is text, not a number. Write 400 without "),
        ({"mtu": None}, "[0].mtu: an empty value is not a whole number."),
        ({"peers": {}}, "[0].peers: has no ports. Write each, or leave the group out."),
        ({"peers": []}, "[0].peers: a list is not a mapping."),
        ({"peers": {"Ethernet0": ""}}, "[0].peers.Ethernet0: '' is not a name without blanks."),
        ({"rail": "0"}, "[0].rail: '0' is text, not a number. Write 0 without quotes."),
        ({"rail": None}, "[0].rail: is missing: two leaves of one rail of a node are never"),
        ({"speed": 400}, "[0].speed: unknown key."),
    ],
    ids=str,
)
def test_a_group_of_ports_is_refused_by_host_and_key(change: dict[str, Any], line: str) -> None:
    (found,) = told(leaf01={"cluster_ports": [{**GOOD, **change}]})
    assert found.startswith(f"leaf01.cluster_ports{line}")


def test_every_key_that_is_missing_is_told() -> None:
    found = told(leaf01={"cluster_ports": [GOOD, {"kind": "uplink"}]})
    assert [line.partition(":")[0] for line in found] == [
        f"leaf01.cluster_ports[1].{key}" for key in ("peer_interface", "speed_gbps", "mtu", "peers")
    ]


def test_ports_that_are_no_list_are_refused_and_none_at_all_are_not() -> None:
    assert told(
        leaf01={"cluster_ports": "Ethernet0"},
        leaf02={"cluster_ports": [None]},
        leaf03={"cluster_ports": [], "cluster_system": "sonic"},
    ) == [
        "leaf01.cluster_ports: 'Ethernet0' is not a list. Write a list of a section with kind, "
        "peer_interface, speed_gbps, mtu, peers.",
        "leaf02.cluster_ports[0]: an empty value is not a mapping. Write keys below it.",
    ]


def test_chips_that_everybody_has_are_told_of_once() -> None:
    wrong = {"cluster_asics": {"mine": {"headroom": [{"speed_gbps": "fast"}]}}}
    found = told(leaf01=wrong, leaf02=copy.deepcopy(wrong), leaf03={"cluster_asics": []})
    assert [line.partition(":")[0] for line in found] == [
        *(
            f"leaf01.cluster_asics.mine.headroom[0].{key}"
            for key in ("speed_gbps", "cable_metres", "size_bytes", "xon_bytes", "xoff_bytes")
        ),
        "leaf03.cluster_asics",
    ]
