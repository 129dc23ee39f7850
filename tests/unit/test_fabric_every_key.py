# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every documented key that switches depend on, on the simulation of every system.

A schema key without a value here fails: the driver's handling of an option is tested on a
switch that another author wrote from the vendors' documents, not only the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.chip_keys import CHIP
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.eos.reading import (
    Present as EosPresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue import tree
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.reading import (
    Present as NvuePresent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.nvue.reading import _written
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import (
    Difference,
    SwitchIntent,
    compile_switch,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.systems import SYSTEMS
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import schema
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import read_contract
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos.contract import CONTRACT
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.schema import kinds

from tests.bed.simulators.memory import Switch
from tests.bed.simulators.parts import (
    eos_config,
    eos_grammar,
    faults,
    hardware,
    nvue_effective,
    nvue_schema,
    nvue_tree,
    nvue_vendor,
)
from tests.unit import test_fabric_sonic_simulation as on_sonic
from tests.unit.small_model import compiled

pytestmark = pytest.mark.slow

Tree = dict[str, Any]
Said = pytest.CaptureFixture[str]

ROW = {"size_bytes": 900_000, "xon_bytes": 40_000, "xoff_bytes": 860_000}
STORAGE_CLASS = {"name": "storage", "dscps": [10, 12], "priority": 2, "bandwidth_percent": 15}
VALUES: dict[str, Any] = {
    "roce_qos.roce.dscp": 24,
    "roce_qos.roce.also_dscps": [24, 27],
    "roce_qos.roce.priority": 4,
    "roce_qos.roce.traffic_class": 4,
    "roce_qos.roce.bandwidth_percent": 60,
    "roce_qos.roce.lossless": False,
    "roce_qos.cnp.dscp": 46,
    "roce_qos.cnp.priority": 5,
    "roce_qos.cnp.traffic_class": 7,
    "roce_qos.best_effort.priority": 1,
    "roce_qos.best_effort.traffic_class": 1,
    "roce_qos.best_effort.bandwidth_percent": 50,
    "roce_qos.classes": [STORAGE_CLASS],
    "roce_qos.ecn.minimum_bytes": 166_912,
    "roce_qos.ecn.maximum_bytes": 2_000_000,
    "roce_qos.ecn.probability_percent": 5,
    "roce_qos.pfc.xoff_bytes": 3_000_000,
    "roce_qos.pfc.pool_percent": 80,
    "roce_qos.pfc.watchdog.enabled": False,
    "roce_qos.pfc.watchdog.detection_ms": 400,
    "roce_qos.pfc.watchdog.restoration_ms": 800,
    "roce_qos.pfc.watchdog.action": "alert",
    "roce_qos.mtu.fabric": 9018,
    "roce_qos.mtu.fabric_layer": "ip",
    "roce_qos.mtu.roce_path": 2048,
    "roce_qos.cable_metres.to_nodes": 40,
    "roce_qos.cable_metres.between_switches": 40,
    "roce_qos.congestion_control.notification_point": False,
    "roce_qos.congestion_control.reaction_point": False,
    "roce_qos.fabric_mode": "spectrum_x",
    "asics.headroom": [{"speed_gbps": 800, "cable_metres": 50, **ROW}],
    "asics.eos_queue": "uc-tx-queue",
    "asics.eos_ecn_count": True,
    "leaves.port": [],
    "leaves.port_start": 8,
    "leaves.port_step": 16,
    "leaves.asic": "tomahawk5",
    "spines.speed_gbps": 400,
    "spines.links_per_leaf": 2,
}
NOT_OF_SWITCHES = {
    *(f"{section}.{key}" for section in ("leaves", "spines") for key in ("count", "name")),
    *(f"{section}.{key}" for section in ("leaves", "spines") for key in ("rack", "system")),
    "leaves.management_first", "spines.management_first", "leaves.rail_to_leaf",
    "leaves.bmc_first", "spines.bmc_first",
    "leaves.nodes_per_set", "leaves.sets_per_unit", "leaves.uplink_ports", "spines.uplink_ports",
    "spines.divided_by", "spines.groups",
    "spines.port_channel", "spines.mlag",  # compared, never set: test_port_channels.py
    *(
        f"{section}.{key}"
        for section in ("leaves", "spines")
        for key in ("asn", "asn_first", "bmc_first", "loopback_first", "uplink_pool")
    ),
    *(f"leaves.ports.{key.name}" for key in schema.PORTS.keys),
    *(f"spines.ports.{key.name}" for key in schema.PORTS.keys),
}  # fmt: skip
THE_SAME = {f"spines.{key}" for key in ("port", "port_start", "port_step", "asic")}
"""Read by the same code as keys of leaves."""
ALONE = {
    "roce_qos.congestion_control.notification_point": "reaction_point",
    "roce_qos.congestion_control.reaction_point": "notification_point",
}
FEWER = {"leaves.port_start": 32, "leaves.port_step": 4}
"""Ports of a leaf, where 64 would have names that the switch cannot have."""
REFUSED = {
    ("nvue", "roce_qos.pfc.watchdog.action"): "nvue.watchdog_action",
    ("sonic", "roce_qos.roce.traffic_class"): "sonic.lossless_class",
    ("eos", "roce_qos.roce.traffic_class"): "eos.lossless_class",
    ("eos", "roce_qos.mtu.fabric_layer"): "eos.mtu",
}
PORTS = {
    "sonic": ["Ethernet[8-504/8]", "Ethernet0"],
    "nvue": ["swp[2-64]", "swp1"],
    "eos": ["Ethernet[2-64]/1", "Ethernet1/1"],
}
"""Port names by system: the first port is the last one."""


def keys(section: kinds.Section, place: str) -> Iterator[str]:
    for key in section.keys:
        below = kinds.section_in(key.kind)
        if below is None or below.name.endswith(("classes", "asics.headroom")):
            yield f"{place}.{key.name}"
        else:
            yield from keys(below, f"{place}.{key.name}")


DOCUMENTED = {
    *keys(CONTRACT, "roce_qos"),
    *keys(CHIP, "asics"),
    *keys(schema.LEAVES, "leaves"),
    *keys(schema.SPINES, "spines"),
}


def test_every_documented_key_has_a_value_here() -> None:
    assert {*VALUES, *NOT_OF_SWITCHES, *THE_SAME} == DOCUMENTED


def model(system: str, key: str = "", value: Any = None) -> str:
    """A small cluster whose switches run one system, with one key changed."""
    chip = "tomahawk5" if system == "eos" else "spectrum4"
    switches = {"count": 2, "ports": 64, "system": system, "asic": chip}
    data: Tree = {
        "plugin": "baremetal.mpi_roce.cluster",
        "name": "small",
        "management": {"subnet": "10.0.0.0/24"},
        "nodes": {"count": 2, "management_first": "10.0.0.11"},
        "gpus": {"count": 2},
        "rails": {"count": 2, "speed_gbps": 800, "mtu": 4200},
        "addresses": {"pool": "10.1.0.0/16"},
        "leaves": {**switches, "management_first": "10.0.0.101"},
        "spines": {**switches, "management_first": "10.0.0.151"},
        "launcher": {"name": "launcher01", "management": "10.0.0.10"},
        "roce_qos": {},
    }
    if key.startswith("asics."):
        data["asics"] = {chip: {key.partition(".")[2]: value}}
    elif key == "leaves.port":
        data["leaves"]["port"] = PORTS[system]
    elif key:
        *path, last = key.split(".")
        there = data
        for part in path:
            there = there.setdefault(part, {})
        there[last] = value
        data["leaves"]["ports"] = FEWER.get(key, 64)
        if key in ALONE:
            there[ALONE[key]] = value
        if key == "roce_qos.roce.lossless":
            there["priority"] = 5  # SONiC serves queue 3 from a lossless pool
    if key == "leaves.asic" and system != "nvue":
        rows = [{"speed_gbps": 800, "cable_metres": metres, **ROW} for metres in (50, 100)]
        data["asics"] = {"tomahawk5": {"headroom": rows}}
    return str(yaml.safe_dump(data))


def leaf_of(text: str) -> SwitchIntent:
    inventory = compiled(text)
    shared = inventory.group_variables["all"]
    (found,) = [host.variables for host in inventory.hosts if host.name == "leaf01"]
    return compile_switch(
        "leaf01",
        found["cluster_system"],
        found["cluster_asic"],
        shared["cluster_asics"],
        found["cluster_ports"],
        read_contract(shared["roce_qos"]),
    )


class Simulated(Protocol):
    def read(self) -> Any: ...

    def apply(self, difference: Difference) -> None: ...


def described(intent: SwitchIntent) -> list[Tree]:
    return [
        {"name": port.name, "speed_gbps": port.speed_gbps, "peer": port.peer, "peer_interface": "x"}
        for port in intent.ports
    ]


class OnNvue:
    def __init__(self, intents: list[SwitchIntent], _folder: Path, _said: Said) -> None:
        ports = {port["name"]: port for intent in intents for port in described(intent)}
        self._hardware = hardware("nvue", [*ports.values()])
        self._faults = faults.Faults(_folder / "faults.json", _folder)
        self._schema = nvue_schema.root(nvue_vendor.version(self._hardware))
        self._config: Tree = nvue_vendor.factory(self._hardware)

    def read(self) -> Any:
        now = nvue_effective.operational(self._config, self._hardware, self._faults)
        filled = nvue_effective.filled(self._config, self._hardware)
        return NvuePresent(
            now["system"]["build"],
            _written(nvue_tree.in_ranges(self._config)),
            filled["qos"],
            tree.uniform(now["qos"]),
            now["interface"],
        )

    def apply(self, difference: Difference) -> None:
        nvue_schema.check(self._schema, difference.steps)
        result = nvue_tree.merged(self._config, difference.steps)
        self._config = nvue_schema.pruned(self._schema, result)
        nvue_effective.check(self._config, self._hardware)


class OnEos:
    def __init__(self, intents: list[SwitchIntent], _folder: Path, _said: Said) -> None:
        ports = {port["name"]: port for intent in intents for port in described(intent)}
        self._hardware = hardware("eos", [*ports.values()], "tomahawk5")
        self._config = eos_grammar.factory(self._hardware)

    def read(self) -> Any:
        text = "\n".join([*eos_config.written(self._config), "end", ""])
        status = {port.name: {"linkStatus": "connected"} for port in self._hardware.ports}
        return EosPresent("simulation", text, text, status, ())

    def apply(self, difference: Difference) -> None:
        modes = [eos_grammar.Mode("configure", self._config.top)]
        for line in difference.steps:
            eos_grammar.enter(self._config, modes, line, self._hardware)


class OnSonic:
    def __init__(self, intents: list[SwitchIntent], folder: Path, said: Said) -> None:
        ports = {port["name"]: port for intent in intents for port in described(intent)}
        self._switch = Switch(folder, intents[-1].asic.name, [*ports.values()])
        self._said = said

    def read(self) -> Any:
        return on_sonic.read(self._switch, self._said)

    def apply(self, difference: Difference) -> None:
        on_sonic.apply(self._switch, difference, self._said)


SIMULATED: dict[str, Any] = {"sonic": OnSonic, "nvue": OnNvue, "eos": OnEos}


def plan(system: str, switch: Simulated, intent: SwitchIntent) -> Difference:
    driver = SYSTEMS[system].driver
    return driver.difference(intent, driver.wanted(intent), switch.read())


CASES = [
    (key, name)
    for key in VALUES
    for name in SYSTEMS
    # The model refuses it on the others: test_cluster_switches.py.
    if key != "roce_qos.fabric_mode" or SYSTEMS[name].adaptive_routing
    if (key, name) != ("leaves.asic", "nvue")
]


@pytest.mark.parametrize(("key", "name"), CASES)
def test_a_switch_goes_over_to_another_value_and_back(
    key: str, name: str, tmp_path: Path, capsys: Said
) -> None:
    simulated = SIMULATED[name]
    usual, other = leaf_of(model(name)), leaf_of(model(name, key, VALUES[key]))
    if name == "eos":  # it does not show the keyword, which is in the model
        usual, other = (
            replace(
                each,
                asic=replace(each.asic, options={"eos_queue": "tx-queue", **each.asic.options}),
            )
            for each in (usual, other)
        )
    if (name, key) in REFUSED:
        with pytest.raises(WantedError) as refused:
            SYSTEMS[name].driver.wanted(other)
        assert [finding.code for finding in refused.value.findings] == [REFUSED[name, key]]
        return
    if key == "leaves.asic":  # a different switch, not the same one with a different chip
        usual = other
    switch = simulated([usual, other], tmp_path, capsys)
    switch.apply(plan(name, switch, usual))
    for intent in (other, usual):
        difference = plan(name, switch, intent)
        assert (difference.impact.level == "none") == (not difference.changes), (
            "the same on every system"
        )
        switch.apply(difference)
        assert plan(name, switch, intent).changes == ()
