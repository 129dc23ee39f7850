# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Physical health of a rail: growth of counters between two readings, and its module.

Names of counters are those of Linux' mlx5/counters.rst; their numbers are made up.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import health
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.health import (
    PortCounters,
    PortReading,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.port_settings import Ethtool
from jinja2.nativetypes import NativeEnvironment

from tests.unit.nic_host import PCI, FakeNode
from tests.unit.test_nics import machine

DISCARDS = "rx_discards_phy"
NO_ISSUE = "No issue was observed"
ROLES = Path(__file__).parents[2] / "roles"
LIMITS = {
    "new_errors": 0,
    "raw_ber": 2.4e-4,
    "effective_ber": 1e-15,
    "module_celsius": None,
    "power_margin_db": 1.0,
}
COUNTED = {
    "link_down_events_phy": 3,
    "rx_symbol_err_phy": 386,
    "rx_pcs_symbol_err_phy": 386,
    "rx_corrected_bits_phy": 17750739,
    "rx_err_lane_0_phy": 28116,
    "rx_err_lane_3_phy": 17722623,
}
GOOD = 1_000_000
"""Corrected bits in 2 s: at 800 Gb/s a ratio of 6.2e-7."""
MEASURED = {
    "Operational Info": {"State": "Active", "FEC": "Standard_RS-FEC - (544,514)"},
    "Troubleshooting Info": {"Status Opcode": "0", "Recommendation": NO_ISSUE},
    "Physical Counters and BER Info": {
        "Time Since Last Clear [Min]": "348349.5",
        "Effective Physical Errors": "0",
        "Effective Physical BER": "15E-255",
        "Raw Physical Errors Per Lane": {
            "values": ["3946476397", "5120336064", "7692183445", "3026261414"]
        },
        "PortReading Down Counter": "0",
        "Raw Physical BER": "2E-9",
    },
    "Module Info": {
        "Temperature [C]": "54 [-5..75]",
        "Voltage [mV]": "3261.2 [2970..3630]",
        "Bias Current [mA]": "8.380,8.380,8.380,8.380 [2..15]",
        "Rx Power Current [dBm]": "1.886,1.989,2.281,1.976 [-10.41..6]",
        "Tx Power Current [dBm]": "1.562,1.427,1.559,1.761 [-8.508..5]",
        "Identifier": "OSFP",
    },
}
"""Values of a 400G port: scitix/sichek 0897af10, components/transceiver/collector/
mlxlink_dom_test.go. Their JSON form, and the text of FEC: Mellanox/mstflint b9d9e844,
mlxlink/modules/printutil/mlxlink_cmd_print.cpp, mlxlink_maps.cpp."""
NO_MODULE = {"Temperature [C]": "N/A", "Rx Power Current [dBm]": "N/A", "Identifier": "N/A"}
COPPER = {"Temperature [C]": "0 [0..0]", "Rx Power Current [dBm]": "0,0,0,0 [0..0]"}
"""A passive copper cable with MFT 4.35.0, from the notes of a site with two ConnectX-7."""
ODD = {"Temperature [C]": 45, "Rx Power Current [dBm]": {"values": ["1.8", "1.9"]}}
LINK = PortReading({"fec": "Standard_RS-FEC - (544,514)"}, 57.0, 70.0)


def mlxlink(sections, rc=0):
    answer = {"result": {"output": sections}, "status": {"code": rc, "message": "success"}}
    return f"{json.dumps(answer, indent=3)}\n\n"


def judge(grown, link=LINK, limits=LIMITS, *, quiet=True, before=COUNTED, seconds=2.0, **more):
    now = {name: count + grown.get(name, 0) for name, count in before.items()}
    now = {name: count + grown.get(name, 0) for name, count in COUNTED.items()} | now
    looks = PortCounters(before, 10.0), PortCounters(now, 10.0 + seconds)
    return health.check("rail0", *looks, 800.0, link, limits, quiet=quiet, **more)


LOSSES = (
    *("rx_discards_phy", "rx_prio3_discards", "rx_prio3_buf_discard", "rx_prio3_cong_discard"),
    *("tx_discards_phy", "tx_pause_storm_error_events", "rx_global_pause", "tx_global_pause"),
    *("rx_pause_ctrl_phy", "tx_pause_ctrl_phy", "rx_crc_errors_phy", "rx_oversize_pkts_phy"),
    "tx_errors_phy",
)
NO_LOSSES = (
    *("rx_prio0_discards", "rx_prio3_pause", "rx_prio3_pause_duration", "rx_out_of_buffer"),
    *("tx_pause_storm_warning_events", "rx_buffer_passed_thres_phy", "rx_oversize_pkts_buffer"),
    *("rx_prio3_bytes", "rx_packets_phy", "rx_prio3_marked"),
)
"""Linux 16f448d47a86, mlx5/counters.rst; of a priority: mlx5/core/en_stats.c."""


@pytest.mark.parametrize("name", [*LOSSES, *NO_LOSSES])
def test_packets_that_a_lossless_class_lost_are_found_by_any_counter(name):
    before = health.of_port({**COUNTED, **dict.fromkeys((*LOSSES, *NO_LOSSES), 4711)})
    check = judge({name: 7}, before=before, lossless=(3,))
    assert check.status == ("failed" if name in LOSSES else "ok")
    assert (f"{name} 7: " in check.reason) is (name in LOSSES)
    # Another check covers them.
    assert judge({name: 7}, before=before, lossless=()).status == "ok"
    raised = {**LIMITS, "new_errors": 7}
    for limits in (raised, {**LIMITS, "new_errors": None}):
        assert judge({name: 7}, limits=limits, before=before, lossless=(3,)).status == "ok"
    loud = judge({name: 7}, before=before, lossless=(3,), quiet=False)
    assert loud.status == "not_applicable"


@pytest.mark.parametrize(
    ("grown", "status"),
    [
        ({"np_ecn_marked_roce_packets": 9}, "failed"),
        ({"np_ecn_marked_roce_packets": 9, "np_cnp_sent": 1}, "ok"),
        ({"rp_cnp_ignored": 3}, "failed"),
        ({"rp_cnp_ignored": 3, "rp_cnp_handled": 1}, "ok"),
        ({"out_of_sequence": 3}, "ok"),
    ],
)
def test_congestion_must_be_answered(grown, status):
    before = {**COUNTED, **dict.fromkeys(health.OF_DEVICE, 5)}
    check = judge(grown, before=before, notified=True)
    assert check.status == status
    assert check.found["new"] == grown
    assert judge(grown, before=before).status == "ok"
    assert judge(grown, before=before, notified=True, quiet=False).status == "not_applicable"


@pytest.mark.parametrize(
    ("grown", "lost"),
    [
        ({"rx_discards_phy": 9, "rx_prio0_discards": 9}, {}),
        ({"rx_discards_phy": 58591428329, "rx_prio0_discards": 58591314012}, {}),
        ({"rx_discards_phy": 9, "rx_prio0_discards": 5, "rx_prio0_buf_discard": 5}, {DISCARDS: 4}),
        ({"rx_discards_phy": 9, "rx_prio3_discards": 9}, {DISCARDS: 9, "rx_prio3_discards": 9}),
        ({"rx_pause_ctrl_phy": 9, "rx_prio3_pause": 9}, {}),
        ({"rx_pause_ctrl_phy": 9, "tx_prio3_pause": 9}, {"rx_pause_ctrl_phy": 9}),
        ({"rx_global_pause": 9}, {"rx_global_pause": 9}),
    ],
)
def test_drops_of_another_class_and_pauses_of_pfc_are_none(grown, lost):
    found = health.findings(grown, (3,))
    assert {name: count for name, (count, _remedy) in found.items()} == lost
    # The NIC has counters of priorities with PFC only (mlx5e_query_pfc_combined).
    assert ("link_pfc" in health.told(found)) is ("rx_pause_ctrl_phy" in lost)


@pytest.mark.parametrize(
    ("grown", "status", "words"),
    [
        ({"rx_corrected_bits_phy": GOOD}, "ok", ""),
        ({"rx_pcs_symbol_err_phy": 2}, "failed", "in 2.0 s: rx_pcs_symbol_err_phy 2. Clean"),
        ({"rx_symbol_err_phy": -386}, "failed", "counters were reset"),
        ({"link_down_events_phy": 1}, "failed", "in 2.0 s: link_down_events_phy 1"),
        ({"rx_corrected_bits_phy": 960 * GOOD}, "failed", "raw_ber 0.0006"),
    ],
)
def test_growth_of_counters_is_evaluated(grown, status, words):
    check = judge(grown)
    assert (check.name, check.subject, check.status) == ("rail_health", "rail0", status)
    assert words in check.reason
    assert check.found["rx_err_lane_3_phy"] == 17722623 and check.found["new"] == grown
    assert check.found["fec"] == "Standard_RS-FEC - (544,514)"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (replace(LINK, celsius=70.0), "module is at 70 degrees"),
        (PortReading({"rx_dbm": "0,2,-10,0 [-8..6]"}), "receives 0,2,-10,0 [-8..6] dBm"),
        (PortReading({"tx_dbm": "2,8 [-6..6]"}), "sends 2,8 [-6..6] dBm"),
        (PortReading({"rx_dbm": "0,-1.2e-05,-inf,0 [-8..6]"}), "receives 0,-1.2e-05,-inf,0"),
        (PortReading({"rx_dbm": "0,2,-9,0 [-8..6]"}), ""),
        (PortReading({"rx_dbm": "0,0,0,0 [0..0]", "tx_dbm": "N/A"}), ""),
        (PortReading({"rx_dbm": "1.8,,- [-8..6]", "tx_dbm": ". [1.2.3..6]"}), ""),
        (PortReading(), ""),
    ],
)
def test_a_module_is_evaluated_by_its_limits(link, words):
    check = judge({}, link)
    assert (check.status == "failed") is bool(words)
    assert words in check.reason


def test_limits_may_be_raised_or_left_out():
    bad = {"rx_pcs_symbol_err_phy": 2, "rx_corrected_bits_phy": 1000 * GOOD}
    raised = {**LIMITS, "new_errors": 2, "raw_ber": 1e-3, "effective_ber": 2e-12}
    assert judge(bad, limits=raised).status == "ok"
    dark = PortReading({"rx_dbm": "-40,2 [-8..6]"}, 60.0, 70.0)
    assert judge(bad, dark, dict.fromkeys(LIMITS)).status == "ok"
    hot = judge({}, dark, {**dict.fromkeys(LIMITS), "module_celsius": 55.0})
    assert hot.status == "failed" and hot.wanted["module_celsius"] == 55.0


def test_a_ratio_needs_time_for_one_error():
    """One error at 800 Gb/s is 1e-15 of the bits of 1250 s."""
    one, lenient = {"rx_pcs_symbol_err_phy": 1}, {**LIMITS, "new_errors": 5}
    assert judge(one, limits=lenient, seconds=600).status == "ok"
    assert judge(one, limits=lenient, seconds=1300).status == "ok"
    three = judge({"rx_pcs_symbol_err_phy": 3}, limits=lenient, seconds=1300)
    assert three.status == "failed" and "effective_ber 2.9e-15" in three.reason


def test_link_errors_during_setup_are_no_finding():
    check = judge({"link_down_events_phy": 1}, quiet=False)
    assert check.status == "not_applicable" and check.found["new"] == {"link_down_events_phy": 1}
    assert judge({}, replace(LINK, celsius=71.0), quiet=False).status == "failed"
    check = judge({"link_down_events_phy": 1}, before={})
    assert check.status == "not_applicable" and "at first" in check.reason


def link_of(answer, tools=("mlxlink", "mstlink")):
    def run(argv, **_more):
        assert argv == (tools[0], "-d", PCI.format(16), "-m", "-c", "--json")
        if isinstance(answer, CommandError):
            raise answer
        return Result(argv, *answer)

    which = {name: f"/usr/bin/{name}" for name in tools}.get
    return PortReading.of(PCI.format(16), run, which)


def test_figures_are_taken_as_the_tool_prints_them():
    link = link_of((0, mlxlink(MEASURED), ""), ["mstlink"])
    assert link.shown == {
        "fec": "Standard_RS-FEC - (544,514)",
        "recommendation": NO_ISSUE,
        "minutes_since_clear": "348349.5",
        "raw_ber_since_clear": "2E-9",
        "effective_ber_since_clear": "15E-255",
        "celsius": "54 [-5..75]",
        "rx_dbm": "1.886,1.989,2.281,1.976 [-10.41..6]",
        "tx_dbm": "1.562,1.427,1.559,1.761 [-8.508..5]",
    }
    assert (link.celsius, link.celsius_limit, link.unread) == (54.0, 75.0, "")
    assert judge({}, link).status == "ok"


@pytest.mark.parametrize("module", [NO_MODULE, COPPER, ODD])
def test_a_cable_without_sensors_is_not_evaluated(module):
    link = link_of((0, mlxlink({**MEASURED, "Module Info": module}), ""))
    assert link.celsius is None and judge({}, link).status == "ok"
    assert all(isinstance(value, str) for value in link.shown.values())


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((1, "\n", "-E- Device is not supported\n"), "status 1: -E- Device is not supported"),
        ((0, mlxlink("N/A"), ""), '"output": "N/A"'),
        (CommandError("mlxlink -d: no answer within 60 s"), "no answer within 60 s"),
    ],
)
def test_a_tool_without_an_answer_is_no_fault_of_the_rail(answer, reason):
    check = judge({}, link_of(answer))
    assert check.status == "not_applicable" and reason in check.reason
    assert check.found["rx_symbol_err_phy"] == 386


def test_a_run_reads_ports_and_modules_twice(tmp_path, monkeypatch):
    node = FakeNode(tmp_path, 3)
    names = {PCI.format(16 + number): [f"rail{number}"] for number in (0, 1, 2)}
    machine(monkeypatch, names)
    for name in ("rail0", "rail1", "rail2"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    node.ethtool.counters = {"rail0": dict(COUNTED), "rail1": {}, "rail2": dict(COUNTED)}
    node.ethtool.counters["rail0"]["rx_prio3_discards"] = 2
    ignored = tmp_path / "sys/class/infiniband/mlx5_0/ports/1/hw_counters/rp_cnp_ignored"
    ignored.parent.mkdir(parents=True)
    ignored.write_text("4\n")
    nics = node.nics(health=LIMITS)
    nics.look({name: name for name in ("rail0", "rail1", "rail2")})
    node.ethtool.counters["rail0"]["rx_pcs_symbol_err_phy"] += 1
    node.ethtool.counters["rail0"]["rx_prio3_discards"] += 4
    ignored.write_text("9\n")
    nics.look({name: name for name in ("rail0", "rail1", "rail2")})
    checks = {check.subject: check for check in nics.rail_checks({}, check_mode=True)[:3]}
    assert checks["rail0"].status == "failed"
    # 3 is the contract's.
    assert "rx_prio3_discards 4" in checks["rail0"].reason
    assert "rail_ecn_rp" in checks["rail0"].reason
    assert checks["rail0"].found["new"]["rp_cnp_ignored"] == 5
    # Another driver's counters.
    assert checks["rail1"].status == "not_applicable"
    assert checks["rail2"].status == "not_applicable"
    assert "neither mlxlink nor mstlink" in checks["rail2"].reason


def test_counters_come_by_the_call_of_ethtool(monkeypatch):
    answers = {
        0x03: lambda question: question[:180] + (2).to_bytes(4, "little") + question[184:],
        0x1B: lambda question: (
            question[:12] + b"rx_a ".ljust(32, b"\0") + b"b_phy".ljust(32, b"\0")
        ),
        0x1D: lambda question: question[:8] + bytes([7, *[0] * 7, 9, *[0] * 7]),
    }
    monkeypatch.setattr(Ethtool, "_ask", staticmethod(lambda _name, q: answers[q[0]](q)))
    assert Ethtool().statistics("rail0") == {"rx_a": 7, "b_phy": 9}


def test_both_layers_have_the_same_limits():
    rails, verbs = (
        yaml.safe_load((ROLES / role / "defaults/main.yml").read_text(encoding="utf-8"))
        for role in ("roce_rails", "rdma_verify")
    )
    default = NativeEnvironment().from_string(verbs["rdma_verify_health"]).render()
    assert default == rails["roce_rails_health"] == LIMITS
