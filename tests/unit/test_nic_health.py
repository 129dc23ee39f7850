# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Physical health of a rail: what a run sees its port count, and its module's temperature.

Names are those of Linux' mlx5/counters.rst; the numbers are made up.
"""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import health
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.health import Look
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.nic_settings import Ethtool

from tests.unit.nic_host import PCI, FakeNode
from tests.unit.test_nic_engine import machine

LIMITS = {"new_errors": 0, "raw_ber": 2.4e-4, "module_celsius": None}
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


def judge(grown, module=(57.0, 70.0), limits=LIMITS, *, quiet=True):
    now = {name: count + grown.get(name, 0) for name, count in COUNTED.items()}
    looks = Look(COUNTED, 10.0), Look(now, 12.0)
    return health.check("rail0", *looks, 800.0, module, limits, quiet=quiet)


@pytest.mark.parametrize(
    ("grown", "module", "status", "words"),
    [
        ({"rx_corrected_bits_phy": GOOD}, (57.0, 70.0), "ok", ""),
        ({}, (None, None), "ok", ""),
        ({"rx_pcs_symbol_err_phy": 2}, (57.0, 70.0), "failed", "rx_pcs_symbol_err_phy 2"),
        ({"link_down_events_phy": 1}, (57.0, 70.0), "failed", "in 2.0 s: link_down_events_phy 1"),
        ({"rx_corrected_bits_phy": 960 * GOOD}, (57.0, 70.0), "failed", "ratio 0.0006"),
        ({}, (70.0, 70.0), "failed", "module is at 70 degrees"),
    ],
)
def test_what_grows_in_a_run_is_judged_and_the_rest_is_shown(grown, module, status, words):
    check = judge(grown, module)
    assert (check.name, check.subject, check.status) == ("rail_health", "rail0", status)
    assert words in check.reason
    assert check.found["rx_err_lane_3_phy"] == 17722623 and check.found["new"] == grown


def test_limits_may_be_raised_or_left_out():
    bad = {"rx_pcs_symbol_err_phy": 2, "rx_corrected_bits_phy": 1000 * GOOD}
    assert judge(bad, limits={**LIMITS, "new_errors": 2, "raw_ber": 1e-3}).status == "ok"
    assert judge(bad, limits={**LIMITS, "new_errors": None, "raw_ber": None}).status == "ok"
    hot = judge({}, (60.0, 70.0), {**LIMITS, "module_celsius": 55.0})
    assert hot.status == "failed" and hot.wanted["module_celsius"] == 55.0


def test_errors_while_links_come_up_are_no_finding_but_a_hot_module_is():
    check = judge({"link_down_events_phy": 1}, quiet=False)
    assert check.status == "not_applicable" and check.found["new"] == {"link_down_events_phy": 1}
    assert judge({}, (71.0, 70.0), quiet=False).status == "failed"


def sensors(root, pci):
    """As mlx5 shows them (Linux, mlx5/core/hwmon.c).

    Labels and degrees: my.mbuzztech.com/portal/en/kb/articles/
    how-to-collect-infiniband-transceiver-temperature-non-root-method. The limits are a guess.
    """
    folder = root / "sys/bus/pci/devices" / pci / "hwmon/hwmon4"
    folder.mkdir(parents=True)
    for number, values in enumerate((("asic", 65000, 105000), ("Module0", 62000, 70000)), 1):
        for name, value in zip(("label", "input", "crit"), values):
            (folder / f"temp{number}_{name}").write_text(f"{value}\n")


def test_a_run_reads_ports_and_modules_twice(tmp_path, monkeypatch):
    node = FakeNode(tmp_path, 2)
    names = {PCI.format(16 + number): [f"rail{number}"] for number in (0, 1)}
    machine(monkeypatch, names)
    for name in ("rail0", "rail1"):
        (tmp_path / "sys/class/net" / name).mkdir(parents=True)
    sensors(tmp_path, PCI.format(16))
    node.ethtool.counters = {"rail0": dict(COUNTED), "rail1": {}}
    nics = node.nics(health=LIMITS)
    nics.look({"rail0": "rail0", "rail1": "rail1"})
    node.ethtool.counters["rail0"]["rx_pcs_symbol_err_phy"] += 1
    checks = {check.subject: check for check in nics.rail_checks({}, check_mode=True)[:2]}
    assert checks["rail0"].status == "failed" and checks["rail0"].found["module_celsius"] == 62.0
    assert checks["rail0"].wanted["module_celsius"] == 70.0
    assert checks["rail1"].status == "not_applicable", "another driver's counters"


def test_counters_come_by_the_call_of_ethtool(monkeypatch):
    answers = {
        0x03: lambda question: question[:180] + (2).to_bytes(4, "little") + question[184:],
        0x1B: lambda question: question[:12] + b"rx_a".ljust(32, b"\0") + b"b_phy".ljust(32, b"\0"),
        0x1D: lambda question: question[:8] + bytes([7, *[0] * 7, 9, *[0] * 7]),
    }
    monkeypatch.setattr(Ethtool, "_ask", staticmethod(lambda _name, q: answers[q[0]](q)))
    assert Ethtool().statistics("rail0") == {"rx_a": 7, "b_phy": 9}
