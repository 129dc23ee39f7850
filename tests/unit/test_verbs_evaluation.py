# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figures and packets as checks, and as a table."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.checks import (
    FAILED,
    NOT_APPLICABLE,
    OK,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import RETRIES
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs import endpoints, evaluation
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.verbs.exchanges import (
    EXCHANGES,
    Half,
    Options,
    VerifyRequest,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import verbs as table

SETTINGS = host_settings(read_contract({}))
TOS = SETTINGS.traffic_class
PRIORITY = SETTINGS.dscp_to_priority[TOS >> 2]
REQUEST = VerifyRequest(
    "run",
    "node01",
    SETTINGS,
    drives=(Half("rail3", "10.3.0.1", "node02", "10.3.0.2", 18515, 3),),
    options=Options(min_write_share=0.9375, max_latency_us=5, min_gpu_write_share=0.9),
)


def wire(packets: int = 100, wrong: int = 0, first: str = "") -> dict[str, Any]:
    one = {"packets": packets, "wrong": wrong, "tos_seen": [TOS]}
    if wrong:
        one = {**one, "tos_seen": [0, TOS], "first_wrong": first}
    return {"out": one, "in": one}


def exchange(name: str, **more: Any) -> dict[str, Any]:
    figure = {"gbits_s": 781.2, "bytes": 65536, "iterations": 100000, "path_mtu": 4096}
    if name == "write_lat":
        figure = {"median_us": 3.1, "p99_us": 4.2, "bytes": 2, "iterations": 1000}
    return {**figure, "wire": wire(), "growth": {}, **more}


def pair(software: bool = False, **changed: dict[str, Any]) -> dict[str, Any]:
    return {
        "host": "node01",
        "rail": "rail3",
        "peer": "node02",
        "device": "mlx5_3",
        "software": software,
        "line_rate_gbits_s": 800,
        "exchanges": {name: {**exchange(name), **changed.get(name, {})} for name in EXCHANGES},
    }


def of(found: list[Check], name: str, subject: Optional[str] = None) -> Check:
    (one,) = [each for each in found if each.name == name and subject in (None, each.subject)]
    return one


def test_a_sound_rail_passes() -> None:
    counted = {"growth": {f"tx_prio{PRIORITY}_bytes": 10**12}}
    found = evaluation.driven(REQUEST, [pair(write_bw=counted)])
    assert {check.status for check in found if check.name != "send_bw"} == {OK}
    check = of(found, "write_bw")
    assert check.subject == "rail3 -> node02"
    assert check.wanted == "at least 750 Gb/s (93.75% of 800)"
    assert check.found == "781.2 Gb/s (97.7% of 800 Gb/s)"
    sent = [check for check in found if check.name == "wire_sent"]
    assert [check.subject for check in sent] == [f"rail3 -> node02 {name}" for name in EXCHANGES]
    # Without a threshold for sends, the figure is still reported.
    assert of(found, "send_bw").status == NOT_APPLICABLE
    assert of(found, "send_bw").found == "781.2 Gb/s (97.7% of 800 Gb/s)"
    assert of(found, "send_bw").reason == "no threshold set"


@pytest.mark.parametrize(
    ("exchange_", "figures", "name", "status"),
    [
        ("write_bw", {"gbits_s": 750.0}, "write_bw", OK),
        ("write_bw", {"gbits_s": 749.9}, "write_bw", FAILED),
        ("write_bw", {"gbits_s": 0.0}, "write_bw", FAILED),
        ("write_bw", {"path_mtu": 1024}, "roce_mtu", FAILED),
        ("write_lat", {"median_us": 5.0}, "write_lat", OK),
        ("write_lat", {"median_us": 5.1}, "write_lat", FAILED),
    ],
)
def test_each_figure_has_its_limit(
    exchange_: str, figures: dict[str, float], name: str, status: str
) -> None:
    check = of(evaluation.driven(REQUEST, [pair(**{exchange_: figures})]), name)
    assert check.status == status
    if name == "write_lat":
        assert check.found == f"median {figures['median_us']:g} us, p99 4.2 us"


def test_soft_roce_has_no_thresholds() -> None:
    found = evaluation.driven(REQUEST, [pair(software=True, write_bw={"gbits_s": 0.3})])
    check = of(found, "write_bw")
    assert check.status == NOT_APPLICABLE
    assert check.found == "300 Mb/s (0.0% of 800 Gb/s)"
    assert "Soft-RoCE" in check.reason
    # Its packets are evaluated all the same.
    assert of(found, "ucx").status == OK
    assert of(found, "wire_sent", "rail3 -> node02 ucx").status == OK


@pytest.mark.parametrize(("software", "status"), [(True, NOT_APPLICABLE), (False, FAILED)])
def test_a_missing_figure_does_not_pass(software: bool, status: str) -> None:
    found = evaluation.driven(
        REQUEST,
        [pair(software, write_bw={"gbits_s": None}, write_lat={"median_us": None, "p99_us": None})],
    )
    assert of(found, "write_bw").status == of(found, "write_lat").status == status
    assert of(found, "write_lat").found == "1000 messages without a time"
    assert "-  " in table.lines([pair(write_bw={"gbits_s": None})], "")[2]


def test_a_wrong_mark_fails_and_names_its_sender() -> None:
    first = "10.3.0.1 -> 10.3.0.2 TOS 0 (DSCP 0, Not-ECT)"
    spoilt = {"wire": wire(100, 12, first), "environment": {"UCX_IB_TRAFFIC_CLASS": "96"}}
    found = evaluation.driven(REQUEST, [pair(ucx=spoilt, write_bw={"wire": wire(100, 12, first)})])
    ucx = of(found, "wire_sent", "rail3 -> node02 ucx")
    assert ucx.status == FAILED
    assert ucx.wanted == "UDP 4791, TOS 106 (DSCP 26, ECT(0))"
    assert ucx.found == (
        "88 of 100 packets; seen: TOS 0 (DSCP 0, Not-ECT), TOS 106 (DSCP 26, ECT(0)); first: "
        + first
    )
    assert "has UCX_IB_TRAFFIC_CLASS=96" in ucx.reason
    assert "asks for 106" in ucx.reason
    assert "--tags mpi --limit node01" in ucx.reason
    perftest = of(found, "wire_sent", "rail3 -> node02 write_bw")
    assert perftest.status == FAILED
    assert "--tags rails" in perftest.reason
    assert of(found, "wire_sent", "rail3 -> node02 send_bw").status == OK


def test_missing_packets_fail() -> None:
    found = evaluation.driven(REQUEST, [pair(ucx={"wire": wire(0)})])
    check = of(found, "wire_sent", "rail3 -> node02 ucx")
    assert check.status == FAILED
    assert "another path" in check.reason


PAYLOAD = 65536 * 100000


@pytest.mark.parametrize("name", ["write_bw", "ucx"])
@pytest.mark.parametrize(
    ("growth", "status"),
    [
        ({f"tx_prio{PRIORITY}_bytes": PAYLOAD, "tx_prio0_bytes": 5000}, OK),
        ({f"tx_prio{PRIORITY}_bytes": 900, "tx_prio0_bytes": PAYLOAD}, FAILED),
        ({}, FAILED),
    ],
)
def test_counters_prove_the_class_of_a_nic(name: str, growth: dict[str, int], status: str) -> None:
    sent = {"wire": None, "growth": growth, "environment": {"UCX_IB_TRAFFIC_CLASS": "0"}}
    found = evaluation.driven(REQUEST, [pair(**{name: sent})])
    check = of(found, "class_sent")
    assert of(found, "wire_sent", f"rail3 -> node02 {name}").status == NOT_APPLICABLE
    assert (check.status, check.subject) == (status, f"rail3 -> node02 {name}")
    assert (check.found == "not counted") is not bool(growth)
    if growth and status == FAILED:
        assert "priority 0: 6.55e+09 bytes" in check.found
        assert ("--tags mpi --limit node01" in check.reason) is (name == "ucx")


def test_a_peer_that_hangs_is_reported() -> None:
    hung = pair(write_lat={"problem": "not finished within 30 s"})
    del hung["exchanges"]["send_bw"], hung["exchanges"]["ucx"]
    found = evaluation.driven(REQUEST, [hung])
    check = of(found, "write_lat")
    assert (check.status, check.subject) == (FAILED, "rail3 -> node02")
    assert "ping -I rail3 10.3.0.2" in check.reason
    # Skipped exchanges do not pass.
    assert of(found, "send_bw").status == of(found, "ucx").status == FAILED
    assert of(found, "write_bw").status == OK


def arrived(**changed: Any) -> dict[str, Any]:
    outcome = {"rc": 0, "log": "", "wire": wire()}
    return {
        "rail3": {
            "peer": "node02",
            "exchanges": {name: {**outcome, **changed.get(name, {})} for name in EXCHANGES},
            "growth": changed.get("growth", {}),
        }
    }


def test_arrived_packets_are_checked() -> None:
    found = evaluation.served(REQUEST, arrived())
    assert {check.status for check in found} == {OK}
    assert [check.name for check in found].count("wire_arrived") == len(EXCHANGES)
    assert [check.name for check in found].count("wire_answered") == len(EXCHANGES)
    first = "10.3.0.2 -> 10.3.0.1 TOS 98 (DSCP 24, ECT(0))"
    spoilt = {"wire": {"in": wire(10, 10, first)["in"], "out": wire()["out"]}}
    found = evaluation.served(REQUEST, arrived(write_bw=spoilt))
    (bad,) = [check for check in found if check.status == FAILED]
    assert (bad.name, bad.subject) == ("wire_arrived", "rail3 <- node02 write_bw")
    assert "a switch" in bad.reason


def test_failed_and_unused_servers_are_reported() -> None:
    gone = {"rc": 1, "log": "noise\nCouldn't listen to port 18515\nnoise"}
    found = evaluation.served(REQUEST, arrived(ucx=gone))
    (bad,) = [check for check in found if check.status == FAILED]
    assert bad.reason == "the server exited with status 1: Couldn't listen to port 18515"
    found = evaluation.served(REQUEST, arrived(ucx={"rc": None, "wire": wire(0)}))
    (unused,) = [check for check in found if check.status == NOT_APPLICABLE]
    assert "node02" in unused.reason


@pytest.mark.parametrize(
    ("growth", "status"),
    [
        ({f"rx_prio{PRIORITY}_bytes": 10**10, "rx_prio0_bytes": 10**6}, OK),
        ({f"rx_prio{PRIORITY}_bytes": 10**6, "rx_prio0_bytes": 10**10}, FAILED),
        ({}, FAILED),
    ],
)
def test_a_receiver_counts_the_class_that_arrived(growth: dict[str, int], status: str) -> None:
    unseen = {name: {"wire": None} for name in EXCHANGES}
    found = evaluation.served(REQUEST, arrived(**unseen, growth=growth))
    assert of(found, "class_arrived").status == status


@pytest.mark.parametrize(
    ("growth", "status"),
    [
        ({}, OK),
        ({"np_ecn_marked_roce_packets": 5, "np_cnp_sent": 1}, OK),
        ({"np_ecn_marked_roce_packets": 5}, FAILED),
        ({"rp_cnp_handled": 5, "rp_cnp_ignored": 1}, OK),
        ({"rp_cnp_ignored": 1}, FAILED),
    ],
)
def test_congestion_is_answered_at_both_ends(growth: dict[str, int], status: str) -> None:
    found = evaluation.driven(REQUEST, [pair(write_bw={"growth": growth})])
    assert of(found, "rail_congestion").status == status
    health = asdict(Check("rail_health", {}, {}, OK, "rail3"))
    seen = {"peer": "node02", "exchanges": {}, "health": health, "growth": growth}
    found = evaluation.served(REQUEST, {"rail3": seen})
    assert of(found, "rail_congestion", "rail3 <- node02").status == status


def test_grown_error_counters_are_shown() -> None:
    growth = {"rp_cnp_handled": 3, "rx_prio3_pause": 7, "rx_prio3_bytes": 9}
    assert endpoints.events(growth) == {"rp_cnp_handled": 3, "rx_prio3_pause": 7}
    errors = {"link_down_events_phy": 1, "rx_corrected_bits_phy": 9}
    assert endpoints.events(errors) == {"link_down_events_phy": 1}
    lines = table.lines([pair(write_bw={"growth": growth})], "TOS 106 (DSCP 26, ECT(0))")
    assert lines[-1] == "  counted meanwhile: rp_cnp_handled 3, rx_prio3_pause 7"
    assert table.lines([pair()], "")[-1] == "  counted meanwhile: no errors, no pauses, no CNP"


def test_the_table_starts_with_the_slowest_pair() -> None:
    slow = {**pair(software=True, write_bw={"gbits_s": 0.19}), "rail": "rail0"}
    lost = {"host": "node02", "rail": "rail1", "peer": "node01", "exchanges": {}, "lost": True}
    fast = pair(gpu_write_bw={"gbits_s": 731.5})
    lines = table.lines([fast, slow, lost], "TOS 106 (DSCP 26, ECT(0))")
    assert lines[0] == "verbs: 3 pairs of rails; contract: TOS 106 (DSCP 26, ECT(0))"
    assert lines[2].split()[:4] == ["rail1", "node02", "->", "node01"]
    assert lines[2].endswith("peer lost")
    assert "190 Mb/s" in lines[3]
    assert "781.2 Gb/s" in lines[4]
    assert lines[4].endswith("731.5 Gb/s  500 packets, TOS 106")
    assert "is nominal: with Soft-RoCE" in lines[5]
    assert table.lines([pair()], "", 4)[0].startswith("verbs: 1 of 4 pairs")
    many = table.lines([pair()] * 100, "")
    assert any("the slowest 40 of 100" in line for line in many)


@pytest.mark.parametrize(
    ("packets", "again", "status"),
    [(0, 9, OK), (100, 10, FAILED), (4_000_000, 40, OK), (4_000_000, 41, FAILED)],
)
def test_few_retries_are_tolerated(packets: int, again: int, status: str) -> None:
    growth = {"tx_prio3_packets": packets, "local_ack_timeout_err": again}
    check = evaluation.retries(REQUEST, "rail3 <- node02", "rail3", growth)
    assert (check.name, check.status) == ("rail_retries", status)
    assert ("of rail3 on node01: ethtool -S rail3" in check.reason) is (status == FAILED)


@pytest.mark.parametrize("name", RETRIES)
def test_packets_are_counted_on_arrival(name: str) -> None:
    seen = with_port(arrived(growth={f"rx_prio{PRIORITY}_packets": 1000, name: 50}))
    request = replace(REQUEST, health={"new_errors": None})
    check = of(evaluation.served(request, seen), "rail_retries")
    assert (check.status, check.subject) == (FAILED, "rail3 <- node02")
    assert (check.found, check.reason[: len(name) + 4]) == ("50 of 1000 packets", f"{name} 50;")


@pytest.mark.parametrize(
    ("growth", "limit", "status"),
    [
        ({}, 0, OK),
        ({"rx_prio0_discards": 9, "rx_discards_phy": 9}, 0, OK),
        ({f"rx_prio{PRIORITY}_discards": 1}, 0, FAILED),
        ({f"rx_prio{PRIORITY}_buf_discard": 1}, 0, FAILED),
        ({"rx_discards_phy": 1}, 0, FAILED),
        ({"rx_discards_phy": 1}, 1, OK),
        ({"rx_discards_phy": 1}, None, NOT_APPLICABLE),
        ({"rx_global_pause": 1}, 0, FAILED),
        ({"tx_pause_storm_error_events": 1}, 0, FAILED),
    ],
)
def test_losses_are_checked_at_both_ends(
    growth: dict[str, int], limit: Optional[int], status: str
) -> None:
    request = replace(REQUEST, health={"new_errors": limit})
    many = {f"tx_prio{PRIORITY}_bytes": 10**12, f"rx_prio{PRIORITY}_bytes": 10**12}
    one = pair(write_bw={"wire": None, "growth": {**many, **growth}})
    near = of(evaluation.driven(request, [one]), "rail_losses")
    far = of(
        evaluation.served(request, with_port(arrived(growth={**many, **growth}))), "rail_losses"
    )
    assert (near.status, near.subject) == (status, "rail3 -> node02")
    assert (far.status, far.subject) == (status, "rail3 <- node02")
    if status == FAILED:
        assert all(name in each.reason for name in growth for each in (near, far))
    software = evaluation.driven(request, [pair(software=True, write_bw={"growth": growth})])
    assert "rail_losses" not in {check.name for check in software}


def test_losses_without_counters_are_not_applicable() -> None:
    """ethtool failed, or the driver has no per-priority counters."""
    request = replace(REQUEST, health={"new_errors": 0})
    near = evaluation.driven(request, [pair(write_bw={"wire": None, "growth": {}})])
    far = evaluation.served(request, with_port(arrived(growth={"rx_corrected_bits_phy": 5})))
    for check in (of(near, "rail_losses"), of(far, "rail_losses")):
        assert (check.status, check.found) == (NOT_APPLICABLE, "not counted")


def with_port(seen: dict[str, Any]) -> dict[str, Any]:
    seen["rail3"]["health"] = {"name": "rail_health", "wanted": 0, "found": 0, "status": OK}
    return seen
