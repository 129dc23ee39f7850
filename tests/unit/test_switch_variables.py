# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Ports and chips of switches in an inventory written by hand: refused before a host is touched."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model.contracts import (
    check_switches,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema.findings import Findings

from tests.unit.link_fabric import Fabric
from tests.unit.told import brief


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
