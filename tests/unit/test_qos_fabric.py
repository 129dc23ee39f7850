# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The contract compiled for switches."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils import qos
from hypothesis import given

from tests.unit.qos_contracts import STORAGE, contracts


def test_the_intent_of_the_contract_of_the_field() -> None:
    intent = qos.fabric_intent(qos.read_contract(None))
    assert intent.trust == "dscp"
    assert [
        (queue.name, queue.traffic_class, queue.priority, queue.priority_group, queue.strict)
        for queue in intent.queues
    ] == [("best_effort", 0, 0, 0, False), ("roce", 3, 3, 3, False), ("cnp", 6, 6, 0, True)]
    assert [queue.weight_percent for queue in intent.queues] == [50, 50, 0]
    assert {dscp: tc for dscp, tc in enumerate(intent.dscp_to_traffic_class) if tc} == {
        26: 3,
        48: 6,
    }
    assert intent.pfc_priorities == (3,)
    assert intent.xoff_bytes is None
    assert (intent.mtu_frame, intent.mtu_ip) == (9216, 9198)
    assert (intent.cable_metres.to_nodes, intent.cable_metres.between_switches) == (50, 100)
    ecn = intent.queue("roce").ecn
    assert ecn is not None
    assert (ecn.minimum_bytes, ecn.maximum_bytes, ecn.probability_percent) == (150000, 1500000, 100)


def test_the_intent_of_a_site_of_its_own() -> None:
    intent = qos.fabric_intent(qos.read_contract(STORAGE))
    assert [(queue.name, queue.traffic_class, queue.dscps) for queue in intent.queues[1:]] == [
        ("backup", 1, (8,)),
        ("storage", 2, (10, 12)),
        ("roce", 5, (24, 27)),
        ("cnp", 7, (46,)),
    ]
    assert intent.queue("roce").priority_group == 4
    assert (intent.mtu_frame, intent.mtu_ip) == (9232, 9214)
    assert intent.xoff_bytes == 300000
    watchdog = intent.watchdog
    assert (watchdog.enabled, watchdog.action) == (False, "alert")
    assert (watchdog.poll_ms, watchdog.detection_ms, watchdog.restoration_ms) == (200, 400, 500)


@given(contracts())
def test_every_packet_is_in_one_queue(value: dict[str, Any]) -> None:
    intent = qos.fabric_intent(qos.read_contract(value))
    dscps = sorted(dscp for queue in intent.queues for dscp in queue.dscps)
    assert dscps == list(range(64))
    for queue in intent.queues:
        assert {intent.dscp_to_traffic_class[dscp] for dscp in queue.dscps} <= {queue.traffic_class}
    numbers = [queue.traffic_class for queue in intent.queues]
    assert numbers == sorted(set(numbers))


@given(contracts())
def test_the_lossless_queue_has_all_that_lossless_needs(value: dict[str, Any]) -> None:
    """PFC without a separate priority group would pause packets without a buffer for them."""
    intent = qos.fabric_intent(qos.read_contract(value))
    lossless = [queue for queue in intent.queues if queue.lossless]
    entries = {"roce": value["roce"], **{each["name"]: each for each in value["classes"]}}
    said = {name: each.get("lossless", name == "roce") for name, each in entries.items()}
    assert {queue.name for queue in lossless} == {name for name, on in said.items() if on}
    assert intent.pfc_priorities == tuple(sorted(queue.priority for queue in lossless))
    assert all(queue.priority_group == queue.priority != 0 for queue in lossless)
    marked = {queue.name for queue in intent.queues if queue.ecn is not None}
    everything = {"roce", *(queue.name for queue in lossless)}
    assert marked == (everything if value["fabric_mode"] == "roce" else set())
    lossy = [queue for queue in intent.queues if not queue.lossless]
    assert {queue.priority_group for queue in lossy} == {0}
    assert intent.watchdog.enabled <= bool(lossless)
    assert [queue.name for queue in intent.queues if queue.strict] == ["cnp"]
    assert sum(queue.weight_percent for queue in intent.queues) == 100


@given(contracts())
def test_the_watchdog_looks_often_enough(value: dict[str, Any]) -> None:
    watchdog = qos.fabric_intent(qos.read_contract(value)).watchdog
    assert 2 * watchdog.poll_ms <= watchdog.detection_ms <= watchdog.restoration_ms
    assert watchdog.poll_ms >= 100, "SONiC takes no less"


@given(contracts())
def test_the_layers_of_the_mtu_count_the_same_packet(value: dict[str, Any]) -> None:
    contract = qos.read_contract(value)
    intent = qos.fabric_intent(contract)
    assert intent.mtu_frame == intent.mtu_ip + 18
    counted = intent.mtu_ip if contract.mtu.fabric_layer == "ip" else intent.mtu_frame
    assert counted == contract.mtu.fabric
    assert contract.mtu.roce_path + 96 <= intent.mtu_ip


def dscps(dscp: int, *also: int) -> qos.Contract:
    return qos.read_contract({"roce": {"dscp": dscp, "also_dscps": list(also)}})


ANOTHER_DSCP = [dscps(26), dscps(26, 24), dscps(24, 26), dscps(24)]
"""The contracts of docs/qos-contract.md, Another DSCP, one after the other."""


def lossless(sender: qos.Contract, switch: qos.Contract, receiver: qos.Contract) -> bool:
    """Whether RoCE data of one host is lossless on a switch, and at the host that receives it."""
    fabric, roce = qos.fabric_intent(switch), qos.fabric_intent(switch).queue("roce")
    marked = qos.host_settings(sender).traffic_class >> 2
    taken = qos.host_settings(receiver)
    return (
        fabric.dscp_to_traffic_class[marked] == roce.traffic_class
        and roce.priority in fabric.pfc_priorities
        and taken.dscp_to_priority[marked] in taken.pfc_priorities
    )


def test_no_state_of_a_change_of_dscp_lacks_its_lossless_class() -> None:
    """For hosts and switches that get the next contract in any order."""
    for former, following in pairwise(ANOTHER_DSCP):
        states = list(product((former, following), repeat=3))
        assert all(lossless(*state) for state in states)
    at_once = list(product((ANOTHER_DSCP[0], ANOTHER_DSCP[-1]), repeat=3))
    assert not all(lossless(*state) for state in at_once)


def test_switches_do_not_change_while_hosts_go_over_to_another_dscp() -> None:
    _former, both, moved, _following = map(qos.fabric_intent, ANOTHER_DSCP)
    assert both == moved
