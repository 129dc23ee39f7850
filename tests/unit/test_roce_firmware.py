# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware settings: asked once, set in one call, waiting for a reset that nobody here does."""

from __future__ import annotations

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import RdmaDevice
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import firmware
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.firmware import Firmwares
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import Rail
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

from tests.unit.fake_mlxconfig import FACTORY, FakeMlxconfig

CARD = "0000:5d:00"
HOST = host_settings(read_contract({}))
FURTHER = {"ATS_ENABLED": 0, "PCI_WR_ORDERING": 1}


@pytest.fixture
def machine(tmp_path):
    """A folder with sysfs; `add` gives it one interface."""

    def add(name, pci, *, sriov=True):
        function = tmp_path / "sys/devices/pci0000:00" / pci
        (function / "net" / name).mkdir(parents=True)
        if sriov:
            (function / "sriov_totalvfs").write_text("16\n")
        (function / "net" / name / "device").symlink_to(function)
        for directory, entry, target in (
            ("sys/class/net", name, function / "net" / name),
            ("sys/bus/pci/devices", pci, function),
        ):
            (tmp_path / directory).mkdir(parents=True, exist_ok=True)
            (tmp_path / directory / entry).symlink_to(target)
        device = RdmaDevice(kind="rail", name=f"mlx5_{name}", netdev=name, link_layer="Ethernet")
        return Rail(name, name, "mlx5_core", pci, device)

    add.root = tmp_path
    return add


def settings(tool, machine, rail, further=FURTHER, firmwares=None):
    wanted = firmware.wanted_parameters(HOST, further)
    firmwares = firmwares or Firmwares(tool.name, tool)
    provider = firmware.FirmwareProvider(firmwares, wanted, machine.root)
    return {setting.name: setting for setting in provider(rail)}


def test_everything_is_set_in_one_call_after_one_query(machine):
    tool = FakeMlxconfig([CARD])
    found = settings(tool, machine, machine("rail0", f"{CARD}.0"))

    assert list(found) == [
        "firmware_link_type",
        "firmware_sriov_en",
        "firmware_num_of_vfs",
        "firmware_cnp_dscp",
        "firmware_cnp_802p_prio",
        "firmware_roce_cc_prio_mask",
        "firmware_ats_enabled",
        "firmware_pci_wr_ordering",
    ]
    before = {name: setting.read() for name, setting in found.items()}
    assert before["firmware_sriov_en"].found == 1 and before["firmware_sriov_en"].pending is None
    for setting in found.values():
        if setting.read().found != setting.wanted:
            setting.write()
    for setting in found.values():
        setting.forget()
        reading = setting.read()
        waits = reading.found != setting.wanted
        assert reading.pending == (setting.wanted if waits else None), setting.name

    queries = [call for call in tool.calls if call[-1] == "q"]
    sets = [call for call in tool.calls if "set" in call]
    assert (len(queries), len(sets)) == (2, 1)
    assert sets[0][:4] == ("mlxconfig", "-y", "-d", f"{CARD}.0")
    assert "ATS_ENABLED=0" not in sets[0], "what is right already is not set again"
    assert not any("reset" in word for call in tool.calls for word in call)


def test_after_the_reset_nothing_waits_and_nothing_is_written(machine):
    tool = FakeMlxconfig([CARD])
    rail = machine("rail0", f"{CARD}.0")
    for setting in settings(tool, machine, rail).values():
        setting.write()
    tool.reset()
    tool.calls.clear()

    for setting in settings(tool, machine, rail).values():
        reading = setting.read()
        assert (reading.found, reading.pending) == (setting.wanted, None), setting.name
    assert len(tool.calls) == 1


def test_contract_is_where_the_values_come_from():
    contract = read_contract({"cnp": {"dscp": 40, "priority": 5}})
    wanted = firmware.wanted_parameters(host_settings(contract))

    assert wanted["CNP_DSCP_P1"] == 40 and wanted["CNP_802P_PRIO_P1"] == 5
    priorities = host_settings(contract).ecn_priorities
    assert wanted["ROCE_CC_PRIO_MASK_P1"] == sum(1 << priority for priority in priorities)


def test_a_value_of_somebody_else_waiting_is_shown_and_replaced(machine):
    tool = FakeMlxconfig([CARD])
    tool.value(CARD, "SRIOV_EN")[:] = [0, 0, 1]
    setting = settings(tool, machine, machine("rail0", f"{CARD}.0"))["firmware_sriov_en"]

    reading = setting.read()
    assert (reading.found, reading.pending) == (0, 1)
    setting.write()
    setting.forget()
    assert setting.read().pending is None


def test_second_function_of_a_card_has_its_own_port_and_shares_the_answer(machine):
    factory = {**FACTORY, "LINK_TYPE_P2": 1, "CNP_DSCP_P2": 0}
    tool = FakeMlxconfig([CARD], factory=factory)
    firmwares = Firmwares(tool.name, tool)
    first = settings(tool, machine, machine("rail0", f"{CARD}.0"), firmwares=firmwares)
    second = settings(tool, machine, machine("rail0p1", f"{CARD}.1"), firmwares=firmwares)

    assert first["firmware_link_type"].parameter == "LINK_TYPE_P1"
    assert second["firmware_link_type"].parameter == "LINK_TYPE_P2"
    assert second["firmware_cnp_802p_prio"].parameter == "CNP_802P_PRIO_P1", "only one is known"
    assert len(tool.calls) == 1
    second["firmware_cnp_dscp"].write()
    assert tool.value(CARD, "CNP_DSCP_P2")[2] == HOST.cnp_dscp
    assert tool.value(CARD, "CNP_DSCP_P1")[2] == 0


def test_an_unknown_parameter_is_said_by_name_with_the_way_out(machine):
    known = {name: value for name, value in FACTORY.items() if name != "PCI_WR_ORDERING"}
    tool = FakeMlxconfig([CARD], factory=known)
    found = settings(tool, machine, machine("rail0", f"{CARD}.0"))

    reading = found["firmware_pci_wr_ordering"].read()
    assert not reading.supported and not reading.excused
    assert f"{CARD}.0 does not know PCI_WR_ORDERING" in reading.reason
    assert "roce_rails_firmware_parameters: {PCI_WR_ORDERING: null}" in reading.reason
    found["firmware_sriov_en"].write()
    assert "PCI_WR_ORDERING=1" not in tool.calls[-1]


@pytest.mark.parametrize(
    ("missing", "sriov", "excused"),
    [
        ("LINK_TYPE_P1", True, True),
        ("NUM_OF_VFS", False, True),
        ("NUM_OF_VFS", True, False),
        ("CNP_DSCP_P1", False, False),
    ],
)
def test_what_the_nic_cannot_be_otherwise_needs_no_parameter(machine, missing, sriov, excused):
    known = {name: value for name, value in FACTORY.items() if name != missing}
    tool = FakeMlxconfig([CARD], factory=known)
    rail = machine("rail0", f"{CARD}.0", sriov=sriov)
    found = {each.parameter: each for each in settings(tool, machine, rail).values()}

    reading = found[missing].read()
    assert not reading.supported and reading.excused is excused and missing in reading.reason


def test_without_a_tool_the_packages_are_named(machine):
    rail = machine("rail0", f"{CARD}.0")
    found = settings(FakeMlxconfig([CARD]), machine, rail, firmwares=Firmwares(None, None))

    reason = found["firmware_sriov_en"].read().reason
    assert "mstflint" in reason and "mft" in reason and "roce_rails_firmware: false" in reason


def test_a_tool_that_fails_is_asked_once_and_quoted(machine):
    tool = FakeMlxconfig([CARD])
    tool.broken.add(CARD)
    found = settings(tool, machine, machine("rail0", f"{CARD}.0"))

    reasons = {setting.read().reason for setting in found.values()}
    assert len(reasons) == 1 and len(tool.calls) == 1
    (reason,) = reasons
    assert "Failed to open device" in reason
    assert "lockdown" in reason and "roce_rails_firmware: false" in reason


@pytest.mark.parametrize("driver", ["virtio_net", "veth", "ice", "igb"])
def test_nics_of_others_have_no_such_settings(machine, driver):
    rail = machine("rail0", f"{CARD}.0")
    other = Rail(rail.name, rail.interface, driver, rail.pci, rail.device)
    assert settings(FakeMlxconfig([CARD]), machine, other) == {}


def test_restore_puts_back_what_was_to_come(machine):
    tool = FakeMlxconfig([CARD])
    tool.value(CARD, "NUM_OF_VFS")[:] = [16, 16, 8]
    setting = settings(tool, machine, machine("rail0", f"{CARD}.0"))["firmware_num_of_vfs"]
    before = setting.read()
    setting.write()
    assert tool.value(CARD, "NUM_OF_VFS")[2] == 0

    setting.restore(before)
    assert tool.value(CARD, "NUM_OF_VFS") == [16, 16, 8]


def test_the_table_with_its_traps():
    only_next = firmware.parse(FakeMlxconfig([CARD], columns=1).table(CARD, f"{CARD}.0"))
    assert only_next["SRIOV_EN"] == firmware.Parameter(None, 1)
    tool = FakeMlxconfig([CARD])
    tool.value(CARD, "NUM_OF_VFS")[:] = [16, 8, 0]
    known = firmware.parse(tool.table(CARD, f"{CARD}.0"))

    assert known["NUM_OF_VFS"] == firmware.Parameter(8, 0)
    assert known["LINK_TYPE_P1"].current == 1 and known["MEMIC_SIZE_LIMIT"].current == 1
    assert "HOST_CHAINING_DESCRIPTORS" not in known and "KEEP_ETH_LINK_UP_P9" not in known
    assert all(name.isupper() for name in known)


def test_null_leaves_a_parameter_out_and_the_mask_may_be_chosen():
    given = {"ATS_ENABLED": None, "ROCE_CC_PRIO_MASK_P1": 255}
    wanted = firmware.wanted_parameters(HOST, given)
    assert "ATS_ENABLED" not in wanted and wanted["ROCE_CC_PRIO_MASK_P1"] == 255
