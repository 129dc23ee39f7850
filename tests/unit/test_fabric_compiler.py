# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The intent of each switch, and the order in which switches are changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import model, qos
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric import system
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.fabric.asics import headroom
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = qos.read_contract({})
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


def leaf(contract: qos.Contract = CONTRACT, **changes: Any) -> system.SwitchIntent:
    values: dict[str, Any] = {
        "name": "leaf01",
        "system": "sonic",
        "asic": "spectrum4",
        "asics": {},
        "ports": PORTS,
    }
    return system.compile_switch(**{**values, **changes}, contract=contract)


def cluster_switches(text: str | None = None, name: str = "b300") -> list[system.SwitchIntent]:
    """Intents of all switches of a model, compiled from Ansible variables."""
    cluster = (
        model.load(str(ROOT / f"inventories/{name}/cluster.yml"))
        if text is None
        else model.compile_model(model.read("cluster.yml", text))
    )
    inventory = model.inventory_of(cluster)
    contract = qos.read_contract(inventory.group_variables["all"]["roce_qos"])
    return [
        system.compile_switch(
            host.name,
            host.variables["cluster_system"] or "nvue",
            host.variables["cluster_asic"],
            inventory.group_variables["all"]["cluster_asics"],
            host.variables["cluster_ports"],
            contract,
        )
        for host in inventory.hosts
        if host.groups[0] in ("leaf", "spine")
    ]


def test_ports_are_in_the_order_of_the_switch() -> None:
    contract = qos.read_contract({"cable_metres": {"to_nodes": 7, "between_switches": 70}})
    switch = leaf(contract)
    assert [port.name for port in switch.ports] == [
        *("Ethernet0", "Ethernet8", "Ethernet16", "Ethernet80", "Ethernet496", "Ethernet504")
    ]
    assert switch.ports[1] == system.PortIntent("Ethernet8", "host", 800, 7, "node02", "rail0")
    assert switch.ports[3] == system.PortIntent(
        "Ethernet80", "storage", 400, 7, "storage01", "ens1"
    )
    assert switch.ports[5] == system.PortIntent(
        "Ethernet504", "uplink", 800, 70, "spine02", "Ethernet0"
    )
    assert (switch.name, switch.system) == ("leaf01", "sonic")
    assert switch.fabric == qos.fabric_intent(contract)


def test_the_chip_has_what_the_inventory_says_of_it() -> None:
    row = {"speed_gbps": 800, "cable_metres": 50, "size_bytes": 9, "xon_bytes": 2, "xoff_bytes": 7}
    switch = leaf(asic="mine", asics={"mine": {"headroom": [row]}})
    assert headroom(switch.asic, 800, 50, switch.fabric.mtu_frame).xoff_bytes == 7


def test_the_reference_cluster_is_lossless_on_every_port() -> None:
    switches = cluster_switches()
    assert len(switches) == 12
    assert {switch.system for switch in switches} == {"sonic"}
    for switch in switches:
        cables = 32 if switch.name.startswith("spine") else 4 + 16 + (switch.name == "leaf01")
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


@pytest.mark.parametrize(
    ("port", "kind", "remedy"),
    [
        ("Ethernet8", "host", "A rail is one link"),
        ("Ethernet504", "uplink", "write port_channel"),
        ("Ethernet80", "storage", "write the host's bond"),
    ],
)
def test_a_port_in_a_bundle_is_refused(port: str, kind: str, remedy: str) -> None:
    intent = leaf()
    names = [each.name for each in intent.ports]
    words = f"{port} .{kind} link, .*member of bond7.*{remedy}"
    with pytest.raises(system.SwitchError, match=words) as it:
        system.check_ports(intent, names, {port: "bond7"})
    assert ("a rail" in str(it.value).lower()) == (kind == "host")


def ports(kind: str, rail: Any, *peers: str) -> dict[str, Any]:
    named = {f"Ethernet{8 * number}": peer for number, peer in enumerate(peers)}
    return {"kind": kind, "rail": rail, "peers": named}


PLANES = [
    *(
        (f"leaf{n:02d}", "leaf", [ports("host", rail, "node01", "node02"), ports("uplink", None)])
        for n, rail in enumerate((0, 0, 1, 1), 1)
    ),
    ("spine01", "spine", [ports("downlink", None, "leaf01", "leaf02")]),
    ("spine02", "spine", [ports("downlink", None, "leaf01", "leaf02")]),
]


@pytest.mark.parametrize(
    ("at_once", "leaves"),
    [
        (0, [["leaf01"], ["leaf02"], ["leaf03"], ["leaf04"]]),
        (1, [["leaf01"], ["leaf02"], ["leaf03"], ["leaf04"]]),
        (4, [["leaf01", "leaf03"], ["leaf02", "leaf04"]]),
    ],
)
def test_spines_alone_then_leaves_that_no_node_needs_both_of(
    at_once: int, leaves: list[list[str]]
) -> None:
    assert system.batches(PLANES, at_once) == [["spine01"], ["spine02"], *leaves]


def test_leaves_with_a_common_peer_are_in_different_batches() -> None:
    storage = ports("storage", None, "storage01")
    others = [
        ("leaf01", "leaf", [ports("host", 0, "a")]),
        ("leaf02", "leaf", [ports("host", 0, "b")]),
    ]
    assert system.batches(others, 2) == [["leaf01", "leaf02"]]
    shared = [(name, role, [*groups, storage]) for name, role, groups in others]
    assert system.batches(shared, 2) == [["leaf01"], ["leaf02"]]


SERVES = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 1)), max_size=4, unique=True)
ROWS = st.lists(st.tuples(st.sampled_from(["leaf", "spine"]), SERVES), max_size=12)


@given(ROWS, st.integers(1, 5))
def test_the_laws_of_every_order(rows: list[tuple[str, list[Any]]], at_once: int) -> None:
    members = [
        (f"s{number}", role, [ports("host", rail, peer) for peer, rail in serves])
        for number, (role, serves) in enumerate(rows)
    ]
    found = system.batches(members, at_once)
    served = {name: rows[place][1] for place, (name, _role, _ports) in enumerate(members)}
    role = {name: its for name, its, _ports in members}
    assert sorted(name for batch in found for name in batch) == sorted(role)
    kinds = [{role[name] for name in batch} for batch in found]
    assert kinds == sorted(kinds, key=lambda kind: kind == {"leaf"})
    for batch in found:
        assert 0 < len(batch) <= (1 if role[batch[0]] == "spine" else at_once)
        together = [each for name in batch for each in served[name]]
        assert len(together) == len(set(together)), "a node would be cut off"
