# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compliant switches for tests to change, read by the code of each system."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.reading import (
    Present as EosPresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.reading import (
    Present as NvuePresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.sonic.reading import (
    Present as SonicPresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    SwitchIntent,
    compile_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS

from tests.unit.link_fabric import Fabric, mac
from tests.unit.sonic_switch import after, new_switch

_MADE: dict[str, tuple[Fabric, Any]] = {}
"""Created once and copied for each test."""

ASICS = {"sonic": "spectrum4", "nvue": "spectrum4", "eos": "tomahawk5"}
LEAF = "leaf01"


def intent_of(fabric: Fabric, **changes: Any) -> SwitchIntent:
    values: dict[str, Any] = {
        "name": LEAF,
        "system": fabric.system,
        "asic": fabric.asic,
        "asics": {},
        "ports": fabric.variables[LEAF]["cluster_ports"],
        "contract": fabric.contract,
    }
    return compile_switch(**{**values, **changes})


def on_switch(system: str, spoil: Callable[[Any], Any]) -> tuple[Fabric, Any]:
    """A fabric whose first leaf runs this system, and the state of that leaf.

    `spoil` changes the reading in place, or returns a replacement.
    """
    if system not in _MADE:
        whole = Fabric(system=system, asic=ASICS[system])
        _MADE[system] = (whole, _PRESENT[system](whole))
    fabric, present = copy.deepcopy(_MADE[system])
    changed = spoil(present)
    return fabric, present if changed is None else changed


def judged(system: str, spoil: Callable[[Any], Any]) -> Fabric:
    """The fabric with the report of the first leaf made by its system."""
    fabric, present = on_switch(system, spoil)
    report = SYSTEMS[system].driver.report(intent_of(fabric), present).as_dict()
    fabric.change_switch(LEAF, report=json.loads(json.dumps(report)))
    return fabric


def planned(system: str, spoil: Callable[[Any], Any], **changes: Any) -> Any:
    """The difference of the first leaf."""
    fabric, present = on_switch(system, spoil)
    intent = intent_of(fabric, **changes)
    driver = SYSTEMS[system].driver
    return driver.difference(intent, driver.wanted(intent), present)


def _sonic(fabric: Fabric) -> SonicPresent:
    intent = intent_of(fabric)
    config = new_switch()
    for row in config["PORT"].values():
        row["speed"] = "400000"
    driver = SYSTEMS["sonic"].driver
    before = SonicPresent(config=config, version="simulation", asic_type="mellanox")
    config = copy.deepcopy(
        after(config, driver.difference(intent, driver.wanted(intent), before).steps)
    )
    return SonicPresent(
        config=config,
        version="simulation",
        asic_type="mellanox",
        ports={port.name: {"oper_status": "up", "speed": "400000"} for port in intent.ports},
        neighbours={
            port.name: {
                "lldp_rem_sys_name": "" if port.kind == "host" else port.peer,
                "lldp_rem_port_id": mac(port.peer, port.peer_interface)
                if port.kind == "host"
                else port.peer_interface,
            }
            for port in intent.ports
        },
    )


def _nvue(fabric: Fabric) -> NvuePresent:
    intent = intent_of(fabric)
    written = _said(SYSTEMS["nvue"].driver.wanted(intent))
    ports = {
        port.name: {
            "link": {"state": {"up": {}}, "oper-status": "up", "mtu": 9198, "speed": "400G"},
            "lldp": {"neighbor": _nvue_neighbour(port)},
        }
        for port in intent.ports
    }
    return NvuePresent(
        "Cumulus Linux 5.12.1 (simulation)", written, copy.deepcopy(written["qos"]), ports=ports
    )


def _nvue_neighbour(port: Any) -> dict[str, Any]:
    if port.kind != "host":
        port_id = {"type": "interface", "name": port.peer_interface}
        return {port.peer: {"chassis": {"system-name": port.peer}, "port": port_id}}
    address = mac(port.peer, port.peer_interface)
    return {address: {"chassis": {}, "port": {"type": "mac", "name": address}}}


def _said(tree: Any) -> Any:
    """Without the keys that must be absent."""
    if not isinstance(tree, dict):
        return tree
    return {key: _said(value) for key, value in tree.items() if value is not None}


def _eos(fabric: Fabric) -> EosPresent:
    intent = intent_of(fabric)
    text = SYSTEMS["eos"].driver.wanted(intent).text
    interfaces = {
        port.name: {"linkStatus": "connected", "bandwidth": port.speed_gbps * 10**9}
        for port in intent.ports
    }
    neighbours = tuple(
        {
            "port": port.name,
            "neighborDevice": "" if port.kind == "host" else port.peer,
            "neighborPort": mac(port.peer, port.peer_interface)
            if port.kind == "host"
            else port.peer_interface,
        }
        for port in intent.ports
    )
    return EosPresent("simulation 4.33.1F", text, text, interfaces, neighbours, queue="tx-queue")


_PRESENT: dict[str, Callable[[Fabric], Any]] = {"sonic": _sonic, "nvue": _nvue, "eos": _eos}
