# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# ruff: noqa: E501  (messages stand here as the operator sees them, in one line)
"""What each switch has to do, from model and contract, and everything that no switch can do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.cluster_model import (
    compile_model,
    inventory_of,
    load,
    read,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.compiler import (
    compile_switch,
    fabric_findings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.headroom import headroom
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.intent import (
    PortIntent,
    SwitchIntent,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.fabric.system import WantedError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import (
    Contract,
    fabric_intent,
    read_contract,
)

from tests.bench.inventory import model as big_model

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


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    (
        "unknown system",
        {"system": "cumulus"},
        [
            "leaf01.cluster_system: 'cumulus' is no system that switches are spoken to in. Known here: sonic, nvue, eos."
        ],
    ),
    (
        "unknown chip",
        {"asic": "spectrum44", "asics": {"mine": {}}},
        [
            "leaf01.cluster_asic: 'spectrum44' is no chip that is known. Did you mean 'spectrum4'? Known here: spectrum4, spectrum2, spectrum3, tomahawk3, tomahawk4, tomahawk5, mine. Introduce another one in the model: asics."
        ],
    ),
    (
        "no ports",
        {"ports": []},
        [
            "leaf01.cluster_ports: it has no ports, so nothing could be set on it. Say what is plugged into it, or take it out of the inventory."
        ],
    ),
    (
        "ports without peers",
        {"ports": [{**PORTS[0], "peers": {}}]},
        ["leaf01.cluster_ports[0].peers: has no ports. Write each, or leave the group out."],
    ),
    (
        "a speed that the chip does not have",
        {"ports": group(speed_gbps=1600)},
        [
            "leaf01 Ethernet0, Ethernet8, Ethernet16: spectrum4 has no port of 1600G. Correct speed_gbps: it is one of 1, 10, 25, 40, 50, 100, 200, 400, 800."
        ],
    ),
    (
        "a speed that no port has",
        {"ports": group(speed_gbps=80), "asic": ""},
        [
            "leaf01 Ethernet0, Ethernet8, Ethernet16: Ethernet has no port of 80G. Correct speed_gbps: it is one of 1, 10, 25, 40, 50, 100, 200, 400, 800, 1600."
        ],
    ),
    (
        "rails above the fabric",
        {"ports": group(mtu=9199)},
        [
            "leaf01 Ethernet0, Ethernet8, Ethernet16: what is plugged in sends IP packets of 9199 bytes, and the fabric carries 9198: longer ones vanish. Write rails.mtu of at most 9198, or raise roce_qos.mtu.fabric."
        ],
    ),
    (
        "a port that is used twice",
        {"ports": [PORTS[0], {**PORTS[1], "peers": {"Ethernet8": "spine01"}}]},
        [
            "leaf01 Ethernet8: two cables are plugged in, from node02 rail0 and from spine01 Ethernet0. Give each link a port of its own."
        ],
    ),
    (
        "a kind that there is not",
        {"ports": group(kind="hots")},
        [
            "leaf01.cluster_ports[0].kind: 'hots' is not a choice. Did you mean 'host'? Known here: host, storage, uplink, downlink."
        ],
    ),
    (
        "keys that are missing",
        {"ports": [{"kind": "host", "peers": {"Ethernet0": "node01"}}]},
        [
            "leaf01.cluster_ports[0].peer_interface: is missing. Add it: a name without blanks.",
            "leaf01.cluster_ports[0].speed_gbps: is missing. Add it: integer 1..3200, Gb/s.",
            "leaf01.cluster_ports[0].mtu: is missing. Add it: integer 1280..9978, bytes, layer 3.",
        ],
    ),
    (
        "ports as nobody writes them",
        {"ports": "Ethernet0"},
        [
            "leaf01.cluster_ports: 'Ethernet0' is not a list. Write a list of a section with kind, peer_interface, speed_gbps, mtu, peers."
        ],
    ),
    (
        "half a row of headroom",
        {
            "asics": {
                "spectrum4": {
                    "headroom": [
                        {"speed_gbps": 800, "cable_metres": 5, "size_bytes": 9, "xon_bytes": 2}
                    ]
                }
            }
        },
        [
            "leaf01.cluster_asics.spectrum4.headroom[0].xoff_bytes: is missing. Add it: integer 1..1000000000, bytes.",
        ],
    ),
    (
        "two things at once",
        {"system": "", "ports": group(speed_gbps=80)},
        [
            "leaf01.cluster_system: '' is no system that switches are spoken to in. Known here: sonic, nvue, eos.",
            "leaf01 Ethernet0, Ethernet8, Ethernet16: spectrum4 has no port of 80G. Correct speed_gbps: it is one of 1, 10, 25, 40, 50, 100, 200, 400, 800.",
        ],
    ),
]


@pytest.mark.parametrize(
    ("changes", "lines"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_refused_in_these_words(changes: dict[str, Any], lines: list[str]) -> None:
    with pytest.raises(WantedError) as raised:
        leaf(**changes)
    assert str(raised.value).splitlines() == lines


def roce(**changes: Any) -> Contract:
    """A contract that could not be read: what somebody built past the rules."""
    return replace(CONTRACT, roce=replace(CONTRACT.roce, **changes))


@pytest.mark.parametrize(
    ("contract", "line"),
    [
        (
            roce(traffic_class=8),
            "roce_qos, class roce: there is no traffic class 8. Write one from 0 to 7.",
        ),
        (
            roce(traffic_class=CONTRACT.cnp.traffic_class),
            "roce_qos, class cnp: traffic class 6 is also that of roce. Give each its own.",
        ),
        (
            roce(priority=0),
            "roce_qos, class best_effort: its priority group 0 is the lossless one of roce, whose buffer it would fill. Give one of them another priority.",
        ),
    ],
)
def test_a_contract_past_the_rules_is_refused(contract: Contract, line: str) -> None:
    with pytest.raises(WantedError) as raised:
        leaf(contract)
    assert line in str(raised.value).splitlines()


def lines(findings: list[Any]) -> list[str]:
    return [finding.text() for finding in findings]


def test_a_second_priority_with_pfc_is_refused() -> None:
    fabric = fabric_intent(CONTRACT)
    assert fabric_findings(fabric) == []
    assert lines(fabric_findings(replace(fabric, pfc_priorities=(3, 4)))) == [
        "roce_qos: PFC is on for priority 4, which has no lossless priority group: its packets are paused, and dropped all the same. Leave it out."
    ]


def test_a_cnp_queue_that_waits_is_refused() -> None:
    fabric = fabric_intent(CONTRACT)
    lax = tuple(
        replace(queue, strict=False) if queue.name == "cnp" else queue for queue in fabric.queues
    )
    assert lines(fabric_findings(replace(fabric, queues=lax))) == [
        "roce_qos, class cnp: its queue is not strict, so that it waits behind what it is about. Write roce_qos.cnp.strict: true, or leave it out."
    ]
