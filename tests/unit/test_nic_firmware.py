# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware settings: asked once, set in one call, waiting for a reset that is not done here."""

from __future__ import annotations

from functools import partial

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import RdmaDevice, survey
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import RAIL
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic import firmware
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.firmware import Firmwares
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import Rail
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.sriov import (
    sriov_settings,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

from tests.hardware.trees import build_sys
from tests.unit.nic_host import converge

WORDS = {
    "LINK_TYPE_P1": {1: "IB", 2: "ETH"},
    "LINK_TYPE_P2": {1: "IB", 2: "ETH"},
    "SRIOV_EN": {0: "False", 1: "True"},
    "ATS_ENABLED": {0: "False", 1: "True"},
    "PCI_WR_ORDERING": {0: "per_mkey", 1: "force_relax"},
}

FACTORY = {
    "LINK_TYPE_P1": 1,
    "SRIOV_EN": 1,
    "NUM_OF_VFS": 16,
    "CNP_DSCP_P1": 0,
    "CNP_802P_PRIO_P1": 7,
    "ROCE_CC_PRIO_MASK_P1": 255,
    "ATS_ENABLED": 0,
    "PCI_WR_ORDERING": 0,
}


class FakeMlxconfig:
    """Cards by PCI address without function, each with parameters as [default, current, next]."""

    def __init__(self, cards, *, name="mlxconfig", factory=FACTORY, columns=3) -> None:
        self.name = name
        self.columns = columns
        self.cards = {
            card: {parameter: [value] * 3 for parameter, value in factory.items()} for card in cards
        }
        self.calls = []
        self.broken = set()

    def reset(self) -> None:
        """What the operator does, and the collection never: the next values become current."""
        for card in self.cards.values():
            for values in card.values():
                values[1] = values[2]

    def value(self, card, parameter):
        return self.cards[card][parameter]

    def __call__(self, argv, *, check=True, stdin=None):
        argv = tuple(argv)
        self.calls.append(argv)
        assert argv[0] == self.name
        result = self._answer(argv)
        if check and result.rc:
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {result.stdout}")
        return result

    def _answer(self, argv):
        pci = argv[argv.index("-d") + 1]
        card = pci.rpartition(".")[0]
        if card not in self.cards or card in self.broken:
            return Result(argv, 3, "", f"-E- Failed to open device: {pci}. Cannot open {pci}\n")
        if argv[-1] == "q":
            assert "-e" in argv
            return Result(argv, 0, self.table(card, pci), "")
        assert "-y" in argv and "set" in argv, argv
        wishes = [word.split("=") for word in argv[argv.index("set") + 1 :]]
        unknown = [name for name, _ in wishes if name not in self.cards[card]]
        if unknown:
            text = f"-E- The Device doesn't support {unknown[0]} parameter.\n"
            return Result(argv, 3, text, "")
        for name, value in wishes:
            self.cards[card][name][2] = int(value)
        done = "Applying... Done!\n-I- Please reboot machine to load new configurations.\n"
        return Result(argv, 0, done, "")

    def table(self, card, pci):
        heading = ["Default", "Current", "Next Boot"][3 - self.columns :]
        lines = [
            "",
            "Device #1:",
            "----------",
            "",
            "Device type:        ConnectX8           ",
            "Name:               900-9X81E-00EX-ST0_Ax",
            "Description:        Configurations of a NIC; 800Gb/s; PCIe 6.0 x16",
            f"Device:             {pci}        ",
            "",
            "Configurations:".ljust(52) + "".join(word.ljust(21) for word in heading),
        ]
        noise = {
            "MEMIC_SIZE_LIMIT": "_256KB(1)",
            "HOST_CHAINING_DESCRIPTORS": "Array[0..7]",
            "PCI_ATOMIC_MODE": "PCI_ATOMIC_DISABLED_EXT_ATOMIC_ENABLED(0)",
            "KEEP_ETH_LINK_UP_P9": "N/A",
        }
        for name, word in noise.items():
            lines.append(" RO     " + name.ljust(43) + " ".join([word.ljust(20)] * self.columns))
        for name, values in self.cards[card].items():
            star = "*" if len(set(values)) > 1 else " "
            shown = [self.word(name, value).ljust(20) for value in values[3 - self.columns :]]
            lines.append(f"{star}       {name.ljust(43)} {' '.join(shown)}")
        lines.append(
            "The '*' shows parameters with next value different from default/current value."
        )
        return "\n".join(lines) + "\n"

    def word(self, name, value):
        words = WORDS.get(name)
        return f"{words[value]}({value})" if words else str(value)


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
    found = firmware.firmware_settings(firmwares, wanted, machine.root, rail)
    return {setting.name: setting for setting in found}


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


def test_an_unknown_parameter_is_named_with_the_way_out(machine):
    known = {name: value for name, value in FACTORY.items() if name != "PCI_WR_ORDERING"}
    tool = FakeMlxconfig([CARD], factory=known)
    found = settings(tool, machine, machine("rail0", f"{CARD}.0"))

    reading = found["firmware_pci_wr_ordering"].read()
    assert not reading.supported and not reading.excused
    assert f"{CARD}.0 has no PCI_WR_ORDERING" in reading.reason
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
    given = {"ATS_ENABLED": None, "ROCE_CC_PRIO_MASK_P1": "255"}
    wanted = firmware.wanted_parameters(HOST, given)
    assert "ATS_ENABLED" not in wanted and wanted["ROCE_CC_PRIO_MASK_P1"] == 255


# On the recorded B300 nodes

PORT_2 = {"LINK_TYPE_P2": 1, "CNP_DSCP_P2": 0, "CNP_802P_PRIO_P2": 7, "ROCE_CC_PRIO_MASK_P2": 255}


def rails_of(root):
    ports = survey(root / "sys").of_kind(RAIL)
    return [Rail(port.netdev, port.netdev, port.driver, port.pci, port) for port in ports]


class Cards(FakeMlxconfig):
    """All rails' cards of a recorded node, and `ip` beside them."""

    def __init__(self, rails, factory=FACTORY):
        super().__init__(sorted({rail.pci[:-2] for rail in rails}), factory=factory)

    def __call__(self, argv, *, check=True, stdin=None):
        if argv[0] == "ip":
            return Result(tuple(argv), 0, "[]", "")
        return super().__call__(argv, check=check, stdin=stdin)

    def providers(self, root, remove_in_use=False):
        wanted = firmware.wanted_parameters(host_settings(read_contract({})))
        firmwares = Firmwares(self.name, self)
        return [
            partial(firmware.firmware_settings, firmwares, wanted, root),
            partial(sriov_settings, self, remove_in_use, {}, root),
        ]

    def counts(self):
        return len([call for call in self.calls if call[-1] == "q"]), len(
            [call for call in self.calls if "set" in call]
        )


@pytest.mark.parametrize(
    ("name", "factory", "rails", "asked", "set_"),
    [("b300-8x800g", FACTORY, 8, 8, 8), ("b300-16x400g", {**FACTORY, **PORT_2}, 16, 8, 16)],
)
def test_a_node_as_delivered_is_asked_per_card_and_set_per_rail(
    tmp_path, name, factory, rails, asked, set_
):
    build_sys(name, tmp_path / "sys")
    found = rails_of(tmp_path)
    cards = Cards(found, factory)
    assert len(found) == rails

    checked = converge(found, cards.providers(tmp_path), check_mode=True)
    assert checked.changed and cards.counts() == (asked, 0)
    assert len(checked.diff) == rails and len(checked.resets) > 0

    cards.calls.clear()
    outcome = converge(found, cards.providers(tmp_path))
    assert cards.counts() == (asked + set_, set_)
    statuses = {check.status for check in outcome.checks}
    assert statuses == {"ok", "reboot"}
    assert len(outcome.resets) == sum(
        state["status"] == "needs_reset"
        for settings in outcome.settings.values()
        for state in settings.values()
    )

    cards.calls.clear()
    again = converge(found, cards.providers(tmp_path))
    assert not again.changed and again.resets and cards.counts() == (asked, 0)

    cards.reset()
    cards.calls.clear()
    after = converge(found, cards.providers(tmp_path))
    assert {check.status for check in after.checks} == {"ok"}
    assert (after.resets, after.changed, cards.counts()) == ([], False, (asked, 0))


def test_a_node_with_virtual_functions_shows_each_and_does_the_other_rails(tmp_path):
    build_sys("b300-vfs", tmp_path / "sys")
    rails = rails_of(tmp_path)
    cards = Cards(rails)
    outcome = converge(rails, cards.providers(tmp_path))

    state = outcome.settings["rail1"]["virtual_functions"]
    assert state["status"] == "failed" and len(state["found"]) == 4
    assert state["found"][1] == "0000:2f:00.2 (rail1v1, mlx5_16, mlx5_core): idle"
    for use in (
        "3 of 4 virtual functions of 0000:2f:00.0 are in use",
        "0000:2f:00.1: rail1v0 is up",
        "0000:2f:00.3: handed to a guest or a program by vfio-pci",
        "0000:2f:00.4: mlx5_core drives it, and its interface is not here",
    ):
        assert use in state["reason"]
    assert "rail1" not in outcome.written and len(outcome.written) == 7
    assert (tmp_path / "sys/bus/pci/devices/0000:2f:00.0/sriov_numvfs").read_text() == "4\n"
    assert not any("0000:2f:00.0" in call for call in cards.calls if "set" in call)
