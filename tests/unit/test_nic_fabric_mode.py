# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware that is compared but never set: mode of the fabric, and planes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.mlx5 import firmware
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.mlx5.fabric_mode import (
    compared_settings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.nics import Nics
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

from tests.unit import test_nic_firmware
from tests.unit.nic_host import FakeNode, converge, kernel_writes
from tests.unit.qos_contracts import compiled
from tests.unit.test_nic_firmware import CARD, CONNECTX_4_LX, FACTORY, FakeMlxconfig
from tests.unit.test_nics import Store

machine = test_nic_firmware.machine

NEW = {
    **FACTORY,
    "ROCE_ADAPTIVE_ROUTING_EN": 0,
    "USER_PROGRAMMABLE_CC": 0,
    "TX_SCHEDULER_LOCALITY_MODE": 0,
    "ROCE_CC_STEERING_EXT": 0,
    "ROCE_RTT_RESP_DSCP_P1": 0,
    "ROCE_RTT_RESP_DSCP_MODE_P1": 0,
    "NUM_OF_PF": 1,
    "NUM_OF_PLANES_P1": 0,
    "LOAD_BALANCE_MODE_P1": 0,
}
"""Names: nic/mlx5/fabric_mode.py. A new ConnectX-8 is assumed to have 0 in all of them; DOCA's
documentation has USER_PROGRAMMABLE_CC off by default (docs.nvidia.com/doca/sdk/doca-pcc)."""
RA2_0 = {
    "ROCE_ADAPTIVE_ROUTING_EN": 1,
    "USER_PROGRAMMABLE_CC": 1,
    "TX_SCHEDULER_LOCALITY_MODE": 2,
    "ROCE_CC_STEERING_EXT": 2,
    "ROCE_RTT_RESP_DSCP_P1": 0,
    "ROCE_RTT_RESP_DSCP_MODE_P1": 0,
    "SRIOV_EN": 1,
    "NUM_OF_VFS": 1,
}
RA2_2 = {**RA2_0, "ROCE_RTT_RESP_DSCP_P1": 48, "ROCE_RTT_RESP_DSCP_MODE_P1": 1}
"""Mellanox/nic-configuration-operator b4a78227 and 76977935, bindata/spectrum-x, ConnectX-8."""
SPLIT, LAG = "MODULE_SPLIT_M0", "LAG_RESOURCE_ALLOCATION"
MODES = {
    mode: host_settings(read_contract({"fabric_mode": mode})) for mode in ("roce", "spectrum_x")
}


class Nic:
    """Settle one rail with these firmware values and one run-time setting."""

    def __init__(
        self,
        machine,
        mode="roce",
        values=(),
        lanes=(1, 1),
        named=(),
        factory=NEW,
        rail="rail0",
        arrays=(),
        device_id="",
        shared=False,
    ):
        self.tool = FakeMlxconfig(factory={**factory, **dict(values)}, arrays=arrays)
        self.store = Store(dials=("pfc",))
        host, root, tool = MODES[mode], machine.root, self.tool.firmwares
        one = machine(rail, f"{CARD}.{rail[-1]}")
        device = replace(one.device, device_id=device_id)
        self.rails = [replace(one, device=device, shared=shared)]
        wanted = firmware.wanted_parameters(host, dict.fromkeys(named, 0))
        self.providers = [
            self.store.provider,
            partial(firmware.firmware_settings, tool, wanted, named, root),
            partial(compared_settings, host, {rail: lanes} if lanes else {}, tool, named, root),
        ]
        self.run = partial(converge, self.rails, self.providers)

    def checks(self, **more):
        return {check.name: check for check in self.run(**more).checks}


def failed(checks):
    return {name for name, check in checks.items() if check.status == "failed"}


@pytest.mark.parametrize(
    ("mode", "values"),
    [
        ("roce", {}),
        ("roce", {"ROCE_ADAPTIVE_ROUTING_EN": 1}),
        ("roce", {"USER_PROGRAMMABLE_CC": 1}),
        ("spectrum_x", RA2_0),
        ("spectrum_x", RA2_2),
    ],
)
def test_a_nic_in_the_right_mode_is_queried_once(machine, mode, values):
    nic = Nic(machine, mode, values)
    outcome = nic.run()
    assert outcome.written == ["rail0"] and not failed({c.name: c for c in outcome.checks})
    assert outcome.settings["rail0"]["pfc"]["status"] == "ok"
    # Read again after it was set.
    assert nic.tool.counts() == (2, 1)
    written = {word.partition("=")[0] for word in nic.tool.calls[1] if "=" in word}
    spectrum_x = {"SRIOV_EN", "NUM_OF_VFS", "CNP_DSCP_P1", "ROCE_CC_PRIO_MASK_P1"}
    assert bool(written & spectrum_x) is (mode == "roce")
    assert not written & {*NEW} - {*FACTORY}


@pytest.mark.parametrize(
    ("mode", "values", "remedy"),
    [
        ("roce", RA2_0, "fabric_mode: spectrum_x, or: mlxconfig -d 0000:5d:00.0 set USER_PROG"),
        ("spectrum_x", {}, "DOCA SPC-X CC, or: mlxconfig -d 0000:5d:00.0 set ROCE_ADAPTIVE_ROU"),
        (
            "spectrum_x",
            {**RA2_2, "ROCE_RTT_RESP_DSCP_P1": 26},
            "set ROCE_RTT_RESP_DSCP_P1=48, and power-cycle",
        ),
    ],
)
def test_a_nic_in_the_other_mode_keeps_all_of_its_settings(machine, mode, values, remedy):
    nic = Nic(machine, mode, values)
    for check_mode in (True, False):
        outcome = nic.run(check_mode=check_mode)
        assert not outcome.changed and not outcome.written and not outcome.resets
        first = next(check for check in outcome.checks if check.status == "failed")
        assert first.subject == "rail0" and remedy in first.reason
        assert outcome.settings["rail0"]["pfc"]["status"] == "failed"
    assert nic.tool.counts()[1] == 0 and not any(step[0] == "write" for step in nic.store.log)
    nics = Nics(None, None)
    nics.read(nic.rails, nic.providers)
    assert nics.in_other_mode == ["rail0"]


def test_a_nic_without_spectrum_x(machine):
    nic = Nic(machine, "spectrum_x", factory=CONNECTX_4_LX, lanes=None)
    outcome = nic.run()
    reason = next(check.reason for check in outcome.checks if check.status == "failed")
    assert "has no ROCE_ADAPTIVE_ROUTING_EN" in reason
    assert outcome.written == []
    old = {**CONNECTX_4_LX, "LINK_TYPE_P1": 2}
    checks = Nic(machine, rail="rail1", factory=old).checks()
    for name in ("user_programmable_cc", "num_of_planes", "load_balance_mode", "num_of_pf"):
        check = checks[f"rail_firmware_{name}"]
        assert (check.status, "firmware has no" in check.reason) == ("not_applicable", True)


def test_what_the_next_reset_brings_counts(machine):
    nic = Nic(machine, "spectrum_x", RA2_0)
    nic.tool.cards[CARD]["USER_PROGRAMMABLE_CC"] = [0, 0, 1]
    outcome = nic.run()
    waiting = [reason for reason in outcome.resets if "programmable" in reason.subject]
    assert len(waiting) == 1 and outcome.written == ["rail0"]

    leaving = Nic(machine, "spectrum_x", RA2_0, rail="rail1")
    leaving.tool.cards[CARD]["USER_PROGRAMMABLE_CC"] = [0, 1, 0]
    check = leaving.checks()["rail_firmware_user_programmable_cc"]
    assert (check.status, check.found) == ("failed", "1, and 0 to come")


@pytest.mark.parametrize("mode", ["roce", "spectrum_x"])
def test_a_parameter_that_the_operator_names_is_the_operators(machine, mode):
    arrays = {"arrays": {SPLIT: 16}, "device_id": "1023", "lanes": (2, 1)}
    named = ["USER_PROGRAMMABLE_CC", f"{SPLIT}[0..3]"]
    nic = Nic(machine, mode, {**RA2_0, **planes(2), LAG: 0}, named=named, **arrays)
    checks = nic.checks()
    assert not failed(checks) and "rail_firmware_module_split_m0_0_15" not in checks
    assert nic.tool.cards[CARD]["USER_PROGRAMMABLE_CC"][2] == 0


# Planes


def planes(functions, by_hardware=0, balance=0):
    names = ("NUM_OF_PF", "NUM_OF_PLANES_P1", "LOAD_BALANCE_MODE_P1")
    return dict(zip(names, (functions, by_hardware, balance)))


@pytest.mark.parametrize(
    ("lanes", "values", "wrong"),
    [
        ((1, 1), planes(1), {}),
        ((2, 1), planes(2), {}),  # swplb of the profiles
        ((2, 1), planes(2, 2), {}),  # hwplb
        ((4, 1), planes(4, 4, 2), {}),
        ((2, 2), planes(4), {}),
        ((2, 1), planes(1), {"num_of_pf": (2, 1)}),
        ((2, 1), planes(4, 2), {"num_of_pf": (2, 4)}),
        ((2, 1), planes(2, 4), {"num_of_planes": (0, 4)}),
        ((1, 1), planes(1, 2), {"num_of_planes": (0, 2)}),
        ((1, 1), planes(1, 0, 2), {"load_balance_mode": (0, 2)}),
    ],
)
def test_planes_of_the_firmware_are_those_of_the_model(machine, lanes, values, wrong):
    nic = Nic(machine, values=values, lanes=lanes)
    checks = nic.checks()
    found = {
        name.removeprefix("rail_firmware_"): (check.wanted, check.found)
        for name, check in checks.items()
        if check.status == "failed"
    }
    assert found == wrong
    kept = {checks[name].status for name in ("rail_pfc", "rail_firmware_sriov_en")}
    # Planes prevent no setting.
    assert kept == {"ok", "reboot"}
    for name in wrong:
        reason = checks[f"rail_firmware_{name}"].reason
        assert f"rails.planes is {lanes[0]}" in reason and f"mlxconfig -d {CARD}.0 set" in reason


@pytest.mark.parametrize(
    ("values", "wrong"),
    [(planes(2, 2), set()), (planes(2, 2, 2), set()), (planes(2), {"num_of_planes"})],
)
def test_a_plane_without_rdma_needs_hardware_balancing(machine, values, wrong):
    checks = Nic(machine, values=values, lanes=(2, 1), rail="rail1", shared=True).checks()
    failed = [check for check in checks.values() if check.status == "failed"]
    assert {check.name.removeprefix("rail_firmware_") for check in failed} == wrong
    assert all("enable_roce" in check.reason for check in failed)


def test_by_hardware_every_function_of_a_card_is_on_port_1(machine):
    """hwplb of RA2.2 sets only NUM_OF_PLANES_P1 for 2 functions, and uniplane _P2 too. A
    ConnectX-8 with 2 functions was seen to show both."""
    factory = {**NEW, "NUM_OF_PLANES_P2": 0, "LOAD_BALANCE_MODE_P2": 0, "CNP_DSCP_P2": 0}
    args = {"factory": factory, "lanes": (2, 1), "rail": "rail1", "shared": True}
    nic = Nic(machine, values=planes(2, 2, 2), **args)
    assert failed(nic.checks()) == set()
    card = nic.tool.cards[CARD]
    assert (card["CNP_DSCP_P1"][2], card["CNP_DSCP_P2"][2]) == (48, 0)


def test_further_functions_beside_one_plane_are_a_note(machine):
    check = Nic(machine, values=planes(2)).checks()["rail_firmware_num_of_pf"]
    assert (check.status, check.found, check.wanted) == ("not_applicable", 2, 1)
    assert "rails.planes" in check.reason


BY_SOFTWARE = {2: [1] * 4 + [2] * 4, 4: [1, 1, 2, 2, 3, 3, 4, 4]}
"""Lanes 0 to 7 of RA2.2 (nic-configuration-operator 7697793, bindata/spectrum-x/RA2.2.yaml) for
devices 1023 and 1025, swplb; in hwplb all are 1, LAG_RESOURCE_ALLOCATION is 1. 8 to 15 are 0xff."""


@pytest.mark.parametrize("device_id", ["1023", "1025"])
@pytest.mark.parametrize("count", [2, 4])
def test_the_remedy_for_planes_has_all_that_splits_a_port(machine, device_id, count):
    def nic(values, lanes=(), rail="rail0"):
        of = Nic(
            machine,
            values=values,
            lanes=(count, 1),
            factory={**NEW, LAG: 0},
            rail=rail,
            arrays={SPLIT: 16},
            device_id=device_id,
        )
        for n, port in enumerate(lanes):
            of.tool.cards[CARD][f"{SPLIT}[{n}]"][1:] = [port, port]
        states = of.run().settings[rail]
        return {n: state for n, state in states.items() if state["status"] == "failed"}, of.tool

    found, tool = nic(planes(1))
    split = "firmware_module_split_m0_0_15"
    assert set(found) == {"firmware_num_of_pf", split}
    wanted = BY_SOFTWARE[count] + [0xFF] * 8
    assert (found[split]["found"], found[split]["wanted"]) == ([0] * 16, wanted)
    command = found["firmware_num_of_pf"]["reason"].partition("set ")[2].partition(", and")[0]
    tool(("mlxconfig", "-y", "-d", f"{CARD}.0", "set", *command.split()))
    tool.reset()
    card = tool.cards[CARD]
    assert [card[f"{SPLIT}[{n}]"][1] for n in range(16)] == wanted
    assert (card["NUM_OF_PF"][1], card[LAG][1]) == (count, 0)

    assert nic(planes(count), wanted, rail="rail1")[0] == {}
    assert set(nic(planes(count), rail="rail2")[0]) == {split}
    by_hardware = {**planes(count, count), LAG: 1}
    assert nic(by_hardware, [1] * 8 + [0xFF] * 8, rail="rail3")[0] == {}
    assert set(nic({**by_hardware, LAG: 0}, [1] * 8 + [0xFF] * 8, rail="rail4")[0]) == {
        "firmware_lag_resource_allocation"
    }


def test_lanes_of_unknown_cards_are_not_guessed(machine):
    args = {"factory": {**NEW, LAG: 0}, "arrays": {SPLIT: 16}, "device_id": "1021"}
    checks = Nic(machine, values=planes(1), lanes=(2, 1), **args).checks()
    assert "rail_firmware_module_split_m0_0_15" not in checks
    reason = checks["rail_firmware_num_of_pf"].reason
    assert SPLIT in reason and LAG in reason and "manual" in reason


def test_parameters_hidden_by_dcqcn_need_no_update(machine):
    """USER_PROGRAMMABLE_CC is shown while ROCE_CC_LEGACY_DCQCN is 0: mlxconfig_host.db."""
    hidden = ("USER_PROGRAMMABLE_CC", "ROCE_CC_STEERING_EXT")
    factory = {name: value for name, value in NEW.items() if name not in hidden}
    nic = Nic(machine, "spectrum_x", factory={**factory, "ROCE_CC_LEGACY_DCQCN": 1}, lanes=None)
    reason = next(check.reason for check in nic.checks().values() if check.status == "failed")
    assert "ROCE_CC_LEGACY_DCQCN=0" in reason and "update" not in reason


@pytest.mark.parametrize(("count", "lanes"), [(1, (1, 2)), (2, (2, 1))])
def test_planes_and_rails_of_a_card_are_counted_in_the_model(tmp_path, count, lanes):
    node = FakeNode(tmp_path)
    first, second = node.rails
    node.rails = [first, replace(second, pci=first.pci[:-1] + "1")]
    nics = node.nics([{"interface": f"rail{n}", "rail": n // count} for n in range(2)])
    assert nics._lanes(node.rails) == {"rail0": lanes, "rail1": lanes}
    assert node.nics()._lanes(node.rails) == {}, "at boot"


def test_in_spectrum_x_nothing_of_dcqcn_is_set_or_compared(tmp_path, monkeypatch):
    kernel_writes(monkeypatch)
    node = FakeNode(tmp_path, doca=True)
    qos = compiled({"fabric_mode": "spectrum_x"})
    outcome = node.converge(qos=qos)
    found = outcome.settings["rail0"]
    assert found["traffic_class"]["wanted"] == found["cma_roce_tos"]["wanted"] == 96
    assert found["pfc"]["status"] == "ok"
    assert not {"ecn_np", "ecn_rp", "cnp_dscp", "cnp_priority"} & {*found}
    ecn = tmp_path / "sys/class/net/rail0/ecn"
    assert (ecn / "roce_np/cnp_dscp").read_text() == "0\n"
    assert (ecn / "roce_rp/enable/3").read_text() == "0\n"

    dcqcn = {"congestion_control": {"roce_rp": {"rpg_ai_rate": 7}}}
    with pytest.raises(PlanError, match="spectrum_x"):
        node.converge(qos=qos, nic=dcqcn)
