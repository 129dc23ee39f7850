# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware of a NIC: parameters that are set, and mode and planes that are compared."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.commands import (
    CommandError,
    Result,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware import RdmaDevice, survey
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.hardware.inventory import RAIL
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.mlx5 import firmware
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.mlx5.fabric_mode import (
    compared_settings,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.mlx5.firmware import Firmwares
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.nics import Nics
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.nic.setting import RailNic
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.qos import (
    host_settings,
    read_contract,
)

from tests.hardware.trees import build_sys
from tests.unit.nic_host import FakeNode, converge, kernel_writes
from tests.unit.qos_contracts import compiled
from tests.unit.test_nics import Store

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
CONNECTX_4_LX = {
    "SRIOV_EN": 1,
    "NUM_OF_VFS": 8,
    "CNP_DSCP_P1": 48,
    "CNP_802P_PRIO_P1": 6,
    "ROCE_CC_PRIO_MASK_P1": 255,
    "PCI_WR_ORDERING": 0,
}
"""Parameters in the collection's list that a real NIC has: no ATS_ENABLED and no LINK_TYPE.

k8snetworkplumbingwg/sriov-network-operator a443a832, pkg/vendors/mellanox/mellanox_test.go
(getMstconfigOutput, MCX422A-ACAA).
"""
NOISE = {
    "MEMIC_SIZE_LIMIT": "_256KB(1)",
    "HOST_CHAINING_DESCRIPTORS": "Array[0..7]",
    "PCI_ATOMIC_MODE": "PCI_ATOMIC_DISABLED_EXT_ATOMIC_ENABLED(0)",
    "KEEP_ETH_LINK_UP_P9": "N/A",
}
HEAD = """
Device #1:
----------

Device type:        ConnectX8
Name:               900-9X81E-00EX-ST0_Ax
Description:        Configurations of a NIC; 800Gb/s; PCIe 6.0 x16

"""
FOOT = "The '*' shows parameters with next value different from default/current value.\n"


ELEMENT = re.compile(r"(\w+)\[(\d+)(?:\.\.(\d+))?\]")
HEXADECIMAL = "MODULE_SPLIT_M0"
"""An array of BINARY: digits are read as hexadecimal (Mellanox/mstflint b9d9e844, mlxcfg_param.cpp,
BinaryParamValue), with 0x before them or without."""


class FakeMlxconfig:
    """Cards by PCI address without function, each with parameters as [default, current, next].

    `arrays` are as many elements of 0; `own` has parameters with a value for each function. A
    parameter in `hidden` is shown while the other one is in force.
    """

    def __init__(
        self, cards=("0000:5d:00",), factory=FACTORY, columns=3, arrays=(), own=(), hidden=()
    ) -> None:
        self.columns = columns
        self.arrays, self.own, self.hidden = dict(arrays), own, dict(hidden)
        self.functions = {}
        elements = {f"{name}[{n}]": 0 for name, count in self.arrays.items() for n in range(count)}
        values = {**factory, **elements}
        self.cards = {card: {name: [of] * 3 for name, of in values.items()} for card in cards}
        self.calls = []
        self.broken = False
        self.status = 0
        self.firmwares = Firmwares("mlxconfig", self)

    def reset(self) -> None:
        """Make the next values current, as a reset by the operator does."""
        for function in (*self.cards.values(), *self.functions.values()):
            for values in function.values():
                values[1] = values[2]
        self.firmwares = Firmwares("mlxconfig", self)

    def parameters(self, pci):
        """Parameters of one function, including hidden ones."""
        card = self.cards[pci.rpartition(".")[0]]
        if pci not in self.functions:
            self.functions[pci] = {name: list(card[name]) for name in self.own}
        return {**card, **self.functions[pci]}

    def __call__(self, argv, *, check=True, stdin=None):
        argv = tuple(argv)
        self.calls.append(argv)
        assert argv[0] == "mlxconfig" and not any("reset" in word for word in argv)
        pci = argv[argv.index("-d") + 1]
        parameters = self.parameters(pci)
        status = 3 if self.broken else self.status if "q" in argv else 0
        if check and status:
            raise CommandError(f"mlxconfig: exit status {status}")
        if self.broken:
            return Result(argv, 3, "", f"-E- Failed to open device: {pci}. Cannot open {pci}\n")
        if "q" in argv:
            asked = [element for word in argv[argv.index("q") + 1 :] for element in elements(word)]
            shown = {
                name: values
                for name, values in parameters.items()
                if (name in asked if asked else "[" not in name)
                and parameters.get(self.hidden.get(name), [0, 1])[1]
            }
            return Result(argv, status, self.table(shown, {} if asked else self.arrays), "")
        assert "-y" in argv and "set" in argv, argv
        for word, value in (word.split("=") for word in argv[argv.index("set") + 1 :]):
            for name in elements(word):
                base = 16 if name.startswith(HEXADECIMAL) else 0
                parameters[name][2] = int(value, base)
        return Result(argv, 0, "Applying... Done!\n", "")

    def table(self, parameters, arrays=()):
        heading = ["Default", "Current", "Next Boot"][3 - self.columns :]
        rows = ["Configurations:".ljust(52) + "".join(word.ljust(21) for word in heading)]
        for name, word in NOISE.items():
            rows.append(" RO     " + name.ljust(43) + " ".join([word.ljust(20)] * self.columns))
        for name, count in dict(arrays).items():
            words = [f"Array[0..{count - 1}]".ljust(20)] * self.columns
            rows.append(f"        {name.ljust(43)} {' '.join(words)}")
        for name, values in parameters.items():
            word = "ETH({})" if name.startswith("LINK_TYPE") else "{}"
            word = "0x{0:X}({0})" if name.startswith(HEXADECIMAL) else word
            shown = [word.format(value).ljust(20) for value in values[3 - self.columns :]]
            star = "*" if len(set(values)) > 1 else " "
            rows.append(f"{star}       {name.ljust(43)} {' '.join(shown)}")
        return HEAD + "".join(f"{row}\n" for row in rows) + FOOT

    def counts(self):
        """Number of queries and of calls that set values."""
        sets = sum("set" in call for call in self.calls)
        return len(self.calls) - sets, sets


def elements(word):
    match = ELEMENT.fullmatch(word)
    if match is None:
        return [word]
    return [f"{match[1]}[{n}]" for n in range(int(match[2]), int(match[3] or match[2]) + 1)]


CARD = "0000:5d:00"
HOST = host_settings(read_contract({}))


@pytest.fixture
def machine(tmp_path):
    """A directory with sysfs; `add` creates an interface."""

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
        return RailNic(name, name, "mlx5_core", pci, device)

    add.root = tmp_path
    return add


def options(root, named, host=HOST, **lanes):
    node = SimpleNamespace(root=root)
    return SimpleNamespace(contract=host, node=node, firmware_parameters=named, lanes=lanes)


def provider(firmwares, root, named=()):
    named = named if isinstance(named, dict) else dict.fromkeys(named, 1)
    wanted = firmware.wanted_parameters(HOST, named)
    return partial(firmware.firmware_settings, options(root, named), firmwares, wanted)


def settings(tool, machine, rail, firmwares=None, named=()):
    found = provider(firmwares or tool.firmwares, machine.root, named)(rail)
    return {setting.name: setting for setting in found}


@pytest.mark.parametrize(
    ("missing", "given", "excused"),
    [
        ("LINK_TYPE_P1", {}, True),
        ("NUM_OF_VFS", {"sriov": False}, True),
        ("NUM_OF_VFS", {}, False),
        ("CNP_DSCP_P1", {"doca": True}, True),
        ("CNP_DSCP_P1", {}, False),
        ("ATS_ENABLED", {}, True),
        ("ATS_ENABLED", {"named": ["ATS_ENABLED"]}, False),
    ],
)
def test_an_unknown_parameter_is_named_and_may_be_fulfilled_otherwise(
    machine, missing, given, excused
):
    tool = FakeMlxconfig(factory={name: FACTORY[name] for name in FACTORY if name != missing})
    rail = machine("rail0", f"{CARD}.0", sriov=given.get("sriov", True))
    if given.get("doca"):
        (machine.root / "sys/class/net/rail0/ecn").mkdir()
    found = settings(tool, machine, rail, named=given.get("named", ()))
    reading = next(each for each in found.values() if each.parameter == missing).read()
    assert reading.status == ("not_applicable" if excused else "failed")
    where = "its firmware" if excused else f"the firmware of {CARD}.0"
    assert reading.reason.startswith(f"{where} has no {missing}")
    if not excused:
        null = f"roce_rails_firmware_parameters: {{{missing}: null}}" in reading.reason
        # A parameter of the contract cannot be omitted.
        assert null is (missing not in firmware.FIXED)
    found["firmware_sriov_en"].write()
    assert not any(word.startswith(missing) for word in tool.calls[-1])


def test_a_missing_or_failing_tool_has_a_remedy(machine):
    tool, rail = FakeMlxconfig(), machine("rail0", f"{CARD}.0")
    found = settings(tool, machine, rail, Firmwares(None, None))
    assert "mstflint" in found["firmware_sriov_en"].read().reason

    later = provider(Firmwares(None, None, check_mode=True), machine.root)
    fresh = converge([rail], [later], check_mode=True)
    assert {check.status for check in fresh.checks} == {"pending"} and not fresh.changed

    tool.status = 3
    (setting, *_more) = settings(tool, machine, rail).values()
    assert setting.read().found is not None, "it fails for one parameter, and prints the others"
    tool.calls.clear()
    tool.firmwares, tool.broken = Firmwares("mlxconfig", tool), True
    reasons = {setting.read().reason for setting in settings(tool, machine, rail).values()}
    assert len(reasons) == 1 and len(tool.calls) == 1
    assert "Cannot open" in (reason := reasons.pop())
    assert "lockdown" in reason and "roce_rails_firmware: false" in reason


def test_a_value_of_each_function_is_read_and_set_on_each(machine):
    """TRACER_ENABLE is one (Mellanox/nic-configuration-operator bd742d17)."""
    named = {"TRACER_ENABLE": 1}
    tool = FakeMlxconfig(factory={**FACTORY, "TRACER_ENABLE": 0}, own=("TRACER_ENABLE",))
    tool.parameters(f"{CARD}.0")["TRACER_ENABLE"][:] = [0, 1, 1]
    rails = [machine("rail0p0", f"{CARD}.0"), machine("rail0p1", f"{CARD}.1")]
    found = converge(rails, [provider(tool.firmwares, machine.root, named)]).settings

    of_each = [found[rail.name]["firmware_tracer_enable"]["status"] for rail in rails]
    assert of_each == ["ok", "reboot"]
    assert tool.functions[f"{CARD}.1"]["TRACER_ENABLE"] == [0, 0, 1]
    # The first function set the shared parameters.
    assert tool.counts()[1] == 2
    (second,) = [call for call in tool.calls if "set" in call and f"{CARD}.1" in call]
    assert second[-1:] == ("TRACER_ENABLE=1",) and "SRIOV_EN=0" not in second


@pytest.mark.parametrize(
    ("gate", "hidden"),
    [
        ("ADVANCED_PCI_SETTINGS", "MAX_ACC_OUT_READ"),
        ("ADVANCED_POWER_SETTINGS", "DISABLE_SLOT_POWER_LIMITER"),
        ("FLEX_PARSER_PROFILE_ENABLE", "MULTIPATH_DSCP"),
        ("PHY_RATE_MASK_OVERRIDE", "PHY_RATE_MASK"),
    ],
)
def test_hidden_parameters_wait_for_a_reset(machine, gate, hidden):
    """Which parameter hides which: Mellanox/mstflint b9d9e844, mlxconfig_host.db, column
    `dependency`.

    NVIDIA's operator skips them as well (nic-configuration-operator cfaaaa32, PartiallyApplied).
    """
    named = {hidden: 44, gate: 1}
    factory = {**FACTORY, gate: 0, hidden: 0}
    tool = FakeMlxconfig(factory=factory, hidden={hidden: gate})
    rail, store = machine("rail0", f"{CARD}.0"), Store(dials=("pfc",))

    def run(named=named):
        outcome = converge([rail], [store.provider, provider(tool.firmwares, machine.root, named)])
        return outcome, outcome.settings["rail0"]

    name = f"firmware_{hidden.lower()}"
    _outcome, found = run({hidden: 44})
    assert found[name]["status"] == "failed" and not tool.counts()[1]
    assert (f"add {gate}: 1" in found[name]["reason"]) is gate.startswith("ADVANCED")

    first, found = run()
    status = {each: state["status"] for each, state in found.items()}
    assert status.pop(name) == "pending" and gate in found[name]["reason"]
    assert set(status.values()) == {"ok", "reboot"} and status["pfc"] == "ok"
    assert tool.cards[CARD][gate] == [0, 0, 1] and tool.cards[CARD][hidden] == [0, 0, 0]
    assert f"rail0 firmware_{gate.lower()}" in {reason.subject for reason in first.resets}
    again, found = run()
    assert not again.changed and found[name]["status"] == "pending"

    tool.reset()
    second, found = run()
    assert second.changed and found[name]["status"] == "reboot"
    tool.reset()
    last, found = run()
    assert {state["status"] for state in found.values()} == {"ok"} and not last.changed


def test_a_parameter_that_stays_hidden_fails(machine):
    """Contract values that wait for a reset hide nothing."""
    tool = FakeMlxconfig(factory={**FACTORY, "CNP_DSCP_P2": 0})
    found = settings(tool, machine, machine("rail0", f"{CARD}.0"), named=["PCI_NONSENSE"])
    settings(tool, machine, machine("rail0p1", f"{CARD}.1"))["firmware_cnp_dscp"].write()
    found["firmware_sriov_en"].write()
    reading = found["firmware_pci_nonsense"].read()
    assert reading.status == "failed"
    assert "{PCI_NONSENSE: null}" in reading.reason


def test_elements_of_an_array_are_read_and_set(machine):
    """Names: Mellanox/nic-configuration-operator 8bfbeb34, pkg/nvconfig/utils_test.go."""
    owner = "PCI_DOWNSTREAM_PORT_OWNER"
    tool = FakeMlxconfig(arrays={owner: 16, HEXADECIMAL: 16})
    rail = machine("rail0", f"{CARD}.0")
    found = settings(tool, machine, rail, named={f"{owner}[4]": 15, f"{HEXADECIMAL}[2..3]": "255"})
    setting = found["firmware_pci_downstream_port_owner_4"]
    assert setting.read().found == 0
    asked = [call[-1] for call in tool.calls]
    assert asked == ["q", f"{owner}[0..15]"]
    setting.write()
    nexts = {name: values[2] for name, values in tool.cards[CARD].items() if "[" in name}
    assert {name: value for name, value in nexts.items() if value} == {
        f"{owner}[4]": 15,
        f"{HEXADECIMAL}[2]": 255,
        f"{HEXADECIMAL}[3]": 255,
    }
    assert setting.read().to_come == 15
    setting.before = setting.read()
    setting.set(0)
    setting.restore()
    assert tool.cards[CARD][f"{owner}[4]"][2] == 15


def test_a_missing_element_of_an_array_is_no_hidden_parameter(machine):
    tool = FakeMlxconfig(arrays={"PCI_DOWNSTREAM_PORT_OWNER": 16})
    named = {"PCI_DOWNSTREAM_PORT_OWNER[16]": 1, "ADVANCED_PCI_SETTINGS": 1}
    tool.cards[CARD]["ADVANCED_PCI_SETTINGS"] = [0, 0, 1]
    found = settings(tool, machine, machine("rail0", f"{CARD}.0"), named=named)
    reading = found["firmware_pci_downstream_port_owner_16"].read()
    assert reading.status == "failed" and "PCI_DOWNSTREAM_PORT_OWNER[0..15]" in reading.reason


@pytest.mark.parametrize("name", ["A B", "-y", "A=1", "A[4", "A[3..1]", "A[0..9999]", "", "A[]"])
def test_a_name_that_is_no_parameter_never_reaches_the_tool(name):
    with pytest.raises(PlanError, match="is no parameter"):
        firmware.wanted_parameters(HOST, {name: 1})


def test_the_table_with_its_traps():
    parameters = {"SRIOV_EN": [1, 1, 1], "NUM_OF_VFS": [16, 8, 0], "LINK_TYPE_P1": [1, 1, 1]}
    only_next = firmware.parse(FakeMlxconfig(columns=1).table(parameters)).known
    assert only_next["SRIOV_EN"] == firmware.FirmwareParameter(None, 1)
    assert firmware.parse("Configurations: Current\nSRIOV_EN 1\n").known == {}
    tool = FakeMlxconfig(arrays={"PCI_DOWNSTREAM_PORT_OWNER": 16})
    table = firmware.parse(tool.table(parameters, tool.arrays))
    known = table.known
    assert table.arrays == {
        **{name: (0, 7) for name, word in NOISE.items() if "Array" in word},
        "PCI_DOWNSTREAM_PORT_OWNER": (0, 15),
    }
    for word, number in (("0xFF(255)", 255), ("0x1", 1), ("0xff", 255), ("148", 148)):
        assert firmware._number(word) == number
    assert known["NUM_OF_VFS"] == firmware.FirmwareParameter(8, 0)
    assert known["LINK_TYPE_P1"].current == 1
    assert set(known) == {*parameters, "MEMIC_SIZE_LIMIT", "PCI_ATOMIC_MODE"}


def test_null_leaves_a_parameter_out_and_the_mask_may_be_chosen():
    given = {"ATS_ENABLED": None, "ROCE_CC_PRIO_MASK_P1": "255"}
    wanted = firmware.wanted_parameters(HOST, given)
    assert "ATS_ENABLED" not in wanted and wanted["ROCE_CC_PRIO_MASK_P1"] == 255
    # NVIDIA does not recommend it.
    assert "PCI_WR_ORDERING" not in wanted


# On the recorded B300 nodes

PORT_2 = {"LINK_TYPE_P2": 1, "CNP_DSCP_P2": 0, "CNP_802P_PRIO_P2": 7, "ROCE_CC_PRIO_MASK_P2": 255}


def recorded(name, root, factory=FACTORY):
    """The rails of a recorded node, their cards, and the tool."""
    build_sys(name, root / "sys")
    ports = survey(root / "sys").of_kind(RAIL)
    rails = [RailNic(port.netdev, port.netdev, port.driver, port.pci, port) for port in ports]
    cards = FakeMlxconfig(sorted({rail.pci[:-2] for rail in rails}), factory)

    def run(check_mode=False):
        cards.calls.clear()
        firmwares = Firmwares("mlxconfig", cards)
        return converge(rails, [provider(firmwares, root)], check_mode=check_mode)

    return cards, run


@pytest.mark.parametrize(
    ("name", "factory", "asked", "set_"),
    [("b300-8x800g", FACTORY, 8, 8), ("b300-16x400g", {**FACTORY, **PORT_2}, 16, 16)],
)
def test_a_node_as_delivered_is_asked_and_set_per_rail(tmp_path, name, factory, asked, set_):
    cards, run = recorded(name, tmp_path, factory)
    checked = run(check_mode=True)
    assert checked.changed and cards.counts() == (asked, 0)
    assert len(checked.diff) == asked and len(checked.resets) > 0

    outcome = run()
    assert cards.counts()[1] == set_ and cards.counts()[0] <= 3 * asked
    assert {check.status for check in outcome.checks} == {"ok", "reboot"}
    waits = [state for of in outcome.settings.values() for state in of.values()]
    assert len(outcome.resets) == sum(state["status"] == "reboot" for state in waits)

    again = run()
    assert not again.changed and again.resets and cards.counts() == (asked, 0)

    cards.reset()
    after = run()
    assert {check.status for check in after.checks} == {"ok"}
    assert (after.resets, after.changed, cards.counts()) == ([], False, (asked, 0))


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
        asked = options(root, named, host, **({rail: lanes} if lanes else {}))
        self.providers = [
            self.store.provider,
            partial(firmware.firmware_settings, asked, tool, wanted),
            partial(compared_settings, asked, tool),
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
    arrays, factory = {SPLIT: 16, "MODULE_SPLIT_M1": 16}, {**NEW, LAG: 0}
    args = {"factory": factory, "arrays": arrays, "lanes": (2, 1), "device_id": "1023"}
    checks = Nic(machine, values=planes(2), **args).checks()
    assert checks["rail_firmware_module_split_m0_0_15"].status == "not_applicable"
    assert failed(checks) == set()
    checks = Nic(machine, values=planes(1), rail="rail2", **args).checks()
    assert f"{SPLIT}[0]=" not in checks["rail_firmware_num_of_pf"].reason.partition("power")[0]
    args["device_id"] = "1021"
    checks = Nic(machine, values=planes(1), rail="rail1", **args).checks()
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
