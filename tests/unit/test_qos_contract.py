# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One contract, with the same value for every consumer."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import (
    RdmaPort,
    mpi_environment,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    Contract,
    fabric_intent,
    host_settings,
    read_contract,
)
from hypothesis import given

from tests.unit.qos_contracts import STORAGE, contracts

GOLDEN = Path(__file__).parent / "golden" / "qos_contract.json"
PORT = RdmaPort("mlx5_0", 1, 3, "rail0")


def contract(**roce: Any) -> Contract:
    return read_contract({"roce": roce})


@pytest.mark.parametrize("nothing", [None, {}])
def test_nothing_said_is_the_contract_of_the_field(nothing: Any) -> None:
    """A changed default changes every cluster that relies on it."""
    value = read_contract(nothing).as_variable()
    assert value == json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert json.loads(json.dumps(value)) == value


def test_a_site_may_say_everything() -> None:
    value = read_contract(STORAGE).as_variable()
    for section in ("roce", "ecn", "mtu", "cable_metres", "congestion_control"):
        assert value[section] == STORAGE[section]
    assert value["cnp"] == {"dscp": 46, "priority": 7, "traffic_class": 7}
    assert value["best_effort"] == {"priority": 0, "traffic_class": 0, "bandwidth_percent": 20}
    assert [(entry["name"], entry["traffic_class"]) for entry in value["classes"]] == [
        ("storage", 2),
        ("backup", 1),
    ]
    assert value["pfc"] == STORAGE["pfc"]


@given(contracts())
def test_the_normal_form_is_read_as_the_same_contract(value: dict[str, Any]) -> None:
    written = copy.deepcopy(value)
    first = read_contract(value)
    assert value == written, "reading changes nothing of the inventory"
    assert read_contract(first.as_variable()) == first
    assert read_contract(first.as_variable()).as_variable() == first.as_variable()
    assert hash(first) == hash(read_contract(value))


# DSCP to the byte of the IP header: shifted by two, ECN-capable. 26, 24 and 41 are in use by sites.
BYTES = [(26, 106), (24, 98), (41, 166), (1, 6), (63, 254)]


@pytest.mark.parametrize(("dscp", "byte"), BYTES)
def test_every_consumer_gets_the_same_byte(dscp: int, byte: int) -> None:
    one = contract(dscp=dscp)
    assert one.traffic_class_byte == byte
    assert host_settings(one).traffic_class == byte
    environment = mpi_environment(host_settings(one), [PORT])
    assert environment["UCX_IB_TRAFFIC_CLASS"] == str(byte)
    assert environment["NCCL_IB_TC"] == str(byte)
    assert fabric_intent(one).queue("roce").dscps == (byte >> 2,)


@pytest.mark.parametrize(
    ("value", "byte"),
    [
        ({"fabric_mode": "roce"}, 106),
        ({"fabric_mode": "spectrum_x"}, 96),
        ({"fabric_mode": "spectrum_x", "roce": {"dscp": 24}}, 96),
    ],
)
def test_each_mode_has_its_dscp_and_ecn(value: dict[str, Any], byte: int) -> None:
    """96: the type of service of NVIDIA's profile for Spectrum-X, see ROCE_DSCP."""
    one = read_contract(value)
    host, fabric = host_settings(one), fabric_intent(one)
    assert host.fabric_mode == fabric.fabric_mode == one.fabric_mode == value["fabric_mode"]
    assert host.traffic_class == byte
    roce = one.fabric_mode == "roce"
    assert (fabric.queue("roce").ecn is not None) == bool(host.ecn_priorities) == roce
    assert fabric.queue("roce").lossless and host.pfc_priorities == (3,), "paused in both modes"


@given(contracts())
def test_data_has_one_mark_class_and_priority_in_each_mode(value: dict[str, Any]) -> None:
    """At the NIC, the switch, UCX and NCCL."""
    one = read_contract(value)
    host, queue = host_settings(one), fabric_intent(one).queue("roce")
    environment = mpi_environment(host, [PORT])
    byte, priority = host.traffic_class, host.service_level
    assert byte & 3 == (2 if value["fabric_mode"] == "roce" else 0), "ECT where switches mark"
    assert environment["UCX_IB_TRAFFIC_CLASS"] == environment["NCCL_IB_TC"] == str(byte)
    assert environment["UCX_IB_SL"] == environment["NCCL_IB_SL"] == str(priority)
    assert queue.dscps == (byte >> 2,) and host.dscp_to_priority[byte >> 2] == priority
    assert queue.priority == priority and host.priority_to_tc[priority] == queue.traffic_class
    assert host.pfc_priorities == fabric_intent(one).pfc_priorities
    assert host.lossless == queue.lossless == one.roce.lossless


@given(contracts())
def test_nics_sort_packets_as_switches_do(value: dict[str, Any]) -> None:
    """The two ends of a link have the same class for each DSCP, and the same service for each
    class.
    """
    one = read_contract(value)
    host, fabric = host_settings(one), fabric_intent(one)
    assert list(host.dscp_to_priority) == list(range(64))
    assert len(fabric.dscp_to_traffic_class) == 64
    for dscp in range(64):
        priority = host.dscp_to_priority[dscp]
        assert host.priority_to_tc[priority] == fabric.dscp_to_traffic_class[dscp]
    for queue in fabric.queues:
        service = host.ets[queue.traffic_class]
        assert (service.tsa == "strict") == queue.strict
        assert service.percent == queue.weight_percent
        assert (queue.priority in host.pfc_priorities) == queue.lossless


@given(contracts())
def test_a_port_is_shared_out_whole(value: dict[str, Any]) -> None:
    host = host_settings(read_contract(value))
    assert len(host.ets) == len(host.priority_to_tc) == 8
    assert sum(service.percent for service in host.ets) == 100
    assert [service.tsa for service in host.ets].count("strict") == 1
    assert all(service.percent == 0 for service in host.ets if service.tsa == "strict")
    assert all(0 <= number <= 7 for number in host.priority_to_tc)
    # Every priority is served: none leads to a traffic class without a share.
    for number in host.priority_to_tc:
        assert host.ets[number].tsa == "strict" or host.ets[number].percent > 0


@given(contracts())
def test_nics_pause_what_the_contract_calls_lossless(value: dict[str, Any]) -> None:
    one = read_contract(value)
    host = host_settings(one)
    entries = [entry for entry in (one.roce, *one.classes) if entry.lossless]
    assert host.pfc_priorities == tuple(sorted(entry.priority for entry in entries))
    lossless = [
        dscp for dscp, priority in host.dscp_to_priority.items() if priority in host.pfc_priorities
    ]
    further = [dscp for entry in one.classes if entry.lossless for dscp in entry.dscps]
    assert lossless == sorted([*([one.roce.dscp] if one.roce.lossless else []), *further])
    assert host.priority_to_tc.count(one.roce.traffic_class) == 1


def test_what_a_nic_is_set_to() -> None:
    host = host_settings(read_contract(STORAGE))
    assert host.trust == "dscp"
    mapped = {8: 1, 10: 2, 12: 2, 24: 4, 27: 4, 46: 7}
    assert {dscp: prio for dscp, prio in host.dscp_to_priority.items() if prio} == mapped
    assert host.priority_to_tc == (0, 1, 2, 0, 5, 0, 0, 7)
    assert [service.percent for service in host.ets] == [20, 5, 15, 0, 0, 60, 0, 0]
    assert [service.tsa for service in host.ets] == ["ets"] * 7 + ["strict"]
    assert (host.cnp_dscp, host.cnp_priority) == (46, 7)
    assert host.ecn_priorities == (), "another congestion control runs"
    assert host.roce_mtu == 2048
