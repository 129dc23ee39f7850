# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each switch has to do, from model and contract, and everything that no switch can do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.compiler import (
    compile_switch,
    fabric_findings,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.headroom import headroom
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.intent import (
    PortIntent,
    SwitchIntent,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.system import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (
    compile_model,
    inventory_of,
    load,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    Contract,
    fabric_intent,
    read_contract,
)

from tests.bench.inventory import model as big_model
from tests.unit.told import brief

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = read_contract({})
PORTS: list[dict[str, Any]] = [
    {
        "kind": "host",
        "peer_interface": "rail0",
        "speed_gbps": 800,
        "mtu": 9000,
        "rail": 0,
        "plane": 0,
        "prefix": 24,
        "address": "10.0.0.1",
        "peers": {"Ethernet0": "node01", "Ethernet8": "node02", "Ethernet16": "node03"},
        "addresses": {},
    },
    {
        "kind": "uplink",
        "peer_interface": "Ethernet0",
        "speed_gbps": 800,
        "mtu": 9000,
        "peers": {"Ethernet496": "spine01", "Ethernet504": "spine02"},
    },
    {
        "kind": "storage",
        "peer_interface": "ens1",
        "speed_gbps": 400,
        "mtu": 9000,
        "peers": {"Ethernet80": "storage01"},
    },
]


def leaf(contract: Contract = CONTRACT, **changes: Any) -> SwitchIntent:
    values: dict[str, Any] = {
        "name": "leaf01",
        "role": "leaf",
        "system": "sonic",
        "asic": "spectrum4",
        "asics": {},
        "ports": PORTS,
    }
    return compile_switch(**{**values, **changes}, contract=contract)


def group(**changes: Any) -> list[dict[str, Any]]:
    return [{**PORTS[0], **changes}, *PORTS[1:]]


def cluster_switches(text: str | None = None, name: str = "b300") -> list[SwitchIntent]:
    """All switches of a model, through the variables that Ansible has of them."""
    cluster = (
        load(str(ROOT / f"inventories/{name}/cluster.yml"))
        if text is None
        else compile_model(read("cluster.yml", text))
    )
    inventory = inventory_of(cluster)
    contract = read_contract(inventory.group_variables["all"]["roce_qos"])
    return [
        compile_switch(
            host.name,
            host.groups[0],
            host.variables["cluster_system"] or "nvue",
            host.variables["cluster_asic"],
            inventory.group_variables["all"]["cluster_asics"],
            host.variables["cluster_ports"],
            contract,
        )
        for host in inventory.hosts
        if host.groups[0] in ("leaf", "spine")
    ]


def test_ports_are_in_the_order_of_the_switch_with_the_cables_of_their_kind() -> None:
    contract = read_contract({"cable_metres": {"to_nodes": 7, "between_switches": 70}})
    switch = leaf(contract)
    assert [port.name for port in switch.ports] == [
        *("Ethernet0", "Ethernet8", "Ethernet16", "Ethernet80", "Ethernet496", "Ethernet504"),
    ]
    assert switch.ports[1] == PortIntent("Ethernet8", "host", 800, 7, "node02", "rail0")
    assert switch.ports[3] == PortIntent("Ethernet80", "storage", 400, 7, "storage01", "ens1")
    assert switch.ports[5] == PortIntent("Ethernet504", "uplink", 800, 70, "spine02", "Ethernet0")
    assert (switch.name, switch.role, switch.system) == ("leaf01", "leaf", "sonic")
    assert switch.fabric == fabric_intent(contract)


def test_the_chip_has_what_the_inventory_says_of_it() -> None:
    row = {"speed_gbps": 800, "cable_metres": 50, "size_bytes": 9, "xon_bytes": 2, "xoff_bytes": 7}
    switch = leaf(asic="mine", asics={"mine": {"headroom": [row]}})
    assert headroom(switch.asic, 800, 50, switch.fabric.mtu_frame).xoff_bytes == 7


def test_the_reference_cluster_is_lossless_on_every_port() -> None:
    switches = cluster_switches()
    assert len(switches) == 12
    assert {switch.system for switch in switches} == {"sonic"}
    for switch in switches:
        cables = 32 if switch.role == "spine" else 4 + 16 + (switch.name == "leaf01")
        assert len(switch.ports) == cables, "and one to storage01"
        for port in switch.ports:
            wanted = headroom(
                switch.asic, port.speed_gbps, port.cable_metres, switch.fabric.mtu_frame
            )
            assert wanted.xoff_bytes == (393216 if port.kind in ("host", "storage") else 544768)


def test_the_virtual_fabric_has_every_system_and_both_ends_of_each_link() -> None:
    switches = {switch.name: switch for switch in cluster_switches(name="virtual")}
    assert {switch.system for switch in switches.values()} == {"sonic", "nvue", "eos"}
    ends = {
        (switch.name, port.name): (port.peer, port.peer_interface)
        for switch in switches.values()
        for port in switch.ports
    }
    between = {here: there for here, there in ends.items() if there[0] in switches}
    assert len(between) == 2 * 8 * 2
    assert all(ends[there] == here for here, there in between.items())


def test_every_port_of_a_large_fabric_is_there_once() -> None:
    """How long it takes: tests/bench/fabric.py."""
    switches = cluster_switches(big_model(512))
    assert sum(len(switch.ports) for switch in switches) == 512 * 8 + 2 * 16 * 32


HALF = {"speed_gbps": 800, "cable_metres": 5, "size_bytes": 9, "xon_bytes": 2}
REFUSED: tuple[tuple[Any, ...], ...] = (
    ({"system": "cumulus"}, "fabric.unknown_system leaf01.cluster_system 'cumulus'"),
    (
        {"asic": "spectrum44", "asics": {"mine": {}}},
        "fabric.unknown_chip leaf01.cluster_asic 'spectrum44'",
    ),
    ({"ports": []}, "fabric.no_ports leaf01.cluster_ports"),
    (
        {"ports": [{**PORTS[0], "peers": {}}]},
        "fabric.ports_without_peers leaf01.cluster_ports[0].peers",
    ),
    (
        {"ports": group(speed_gbps=1600)},
        "fabric.port_speed leaf01 Ethernet0, Ethernet8, Ethernet16 1600",
    ),
    (
        {"ports": group(speed_gbps=80), "asic": ""},
        "fabric.port_speed leaf01 Ethernet0, Ethernet8, Ethernet16 80",
    ),
    (
        {"ports": group(mtu=9199)},
        "fabric.peer_mtu leaf01 Ethernet0, Ethernet8, Ethernet16 (9199, 9198)",
    ),
    (
        {"ports": [PORTS[0], {**PORTS[1], "peers": {"Ethernet8": "spine01"}}]},
        "fabric.port_twice leaf01 Ethernet8 ('node02', 'spine01')",
    ),
    ({"ports": group(kind="hots")}, "model.not_a_choice leaf01.cluster_ports[0].kind 'hots'"),
    (
        {"ports": [{"kind": "host", "peers": {"Ethernet0": "node01"}}]},
        "model.missing_key leaf01.cluster_ports[0].peer_interface",
        "model.missing_key leaf01.cluster_ports[0].speed_gbps",
        "model.missing_key leaf01.cluster_ports[0].mtu",
    ),
    ({"ports": "Ethernet0"}, "model.not_a_list leaf01.cluster_ports 'Ethernet0'"),
    (
        {"asics": {"spectrum4": {"headroom": [HALF]}}},
        "model.missing_key leaf01.cluster_asics.spectrum4.headroom[0].xoff_bytes",
    ),
    (
        {"system": "", "ports": group(speed_gbps=80)},
        "fabric.unknown_system leaf01.cluster_system ''",
        "fabric.port_speed leaf01 Ethernet0, Ethernet8, Ethernet16 80",
    ),
)


def refused(*args: Any, **changes: Any) -> list[str]:
    with pytest.raises(WantedError) as raised:
        leaf(*args, **changes)
    return brief(raised.value.findings)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case[1])
def test_what_no_switch_can_do_is_refused(case: tuple[Any, ...]) -> None:
    changes, *told = case
    assert refused(**changes) == told


def roce(**changes: Any) -> Contract:
    """A contract that could not be read: what somebody built past the rules."""
    return replace(CONTRACT, roce=replace(CONTRACT.roce, **changes))


@pytest.mark.parametrize(
    ("contract", "told"),
    [
        (roce(traffic_class=8), "fabric.class_number roce_qos, class roce 8"),
        (roce(traffic_class=6), "fabric.traffic_class_twice roce_qos, class cnp 6"),
        (roce(priority=0), "fabric.priority_group_twice roce_qos, class best_effort 0"),
    ],
)
def test_a_contract_past_the_rules_is_refused(contract: Contract, told: str) -> None:
    assert told in refused(contract)


def test_a_second_priority_with_pfc_and_a_cnp_queue_that_waits_are_refused() -> None:
    fabric = fabric_intent(CONTRACT)
    assert fabric_findings(fabric) == []
    lax = tuple(replace(queue, strict=queue.name != "cnp") for queue in fabric.queues)
    spoilt = replace(fabric, pfc_priorities=(3, 4), queues=lax)
    assert brief(fabric_findings(spoilt)) == [
        "fabric.cnp_not_strict roce_qos, class cnp",
        "fabric.pfc_not_lossless roce_qos 4",
    ]
