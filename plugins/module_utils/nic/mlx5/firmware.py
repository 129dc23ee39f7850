# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Firmware parameters of a rail's NIC: Ethernet, no virtual functions, and the marking of CNPs.

Firmware applies a value at its next reset. A value is therefore set for the next boot and reported
as waiting for a reset until it is the current one; nothing is reset here.

mlxconfig (MFT, DOCA) and mstconfig (mstflint) are the same program and print the same table, which
is parsed; the distributions' mstconfig has no JSON output.

Syntax: Mellanox/mstflint b9d9e844, mlxconfig/mlxcfg_ui.cpp (printValue), mlxcfg_utils.cpp
(extractIndexes), mlxcfg_param.cpp (BinaryParamValue reads hexadecimal digits). Which parameter
hides another one: column `dependency` of mlxconfig/mlxconfig_dbs/mlxconfig_host.db.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Optional, Union

from ...core.checks import FAILED, NOT_APPLICABLE, PENDING
from ...core.commands import CommandError, Runner, output
from ...core.part import PlanError
from ...hardware import tree as sysfs
from ...hardware.inventory import card_of
from ...hardware.survey import pci_address
from ...qos import ROCE, HostSettings
from ..setting import FIRMWARE, NicSetting, RailNic, Reading, number, remembered

if TYPE_CHECKING:
    from ..nics import NicOptions

TOOLS = ("mlxconfig", "mstconfig")
"""In order of preference: MFT supports a new NIC no later than mstflint."""

LINK_TYPE = "LINK_TYPE_P1"
SRIOV = ("SRIOV_EN", "NUM_OF_VFS")
PRIORITY_MASK = "ROCE_CC_PRIO_MASK_P1"
CNP = ("CNP_DSCP_P1", "CNP_802P_PRIO_P1")
FIXED = (LINK_TYPE, *SRIOV, *CNP)
"""Not the operator's: a rail is an Ethernet physical function, the contract sets CNPs."""

OPTIONAL = {"ATS_ENABLED": 0}
"""Parameters that are set if a NIC has them, but are not part of the contract: without them, a note
is shown.

NVIDIA's Kubernetes operator sets them for GPUDirect, and continues if a NIC lacks some
(Mellanox/nic-configuration-operator, pkg/configuration: configvalidation.go of 01eed1d4, manager.go
of 0d2c03d3, ApplyStatusPartiallyApplied).
"""

VARIABLE = "roce_rails_firmware_parameters"
MAX_ELEMENTS = 256
"""Array elements in one name; the largest array that NVIDIA's operator sets has 16."""
MANAGE_NONE = "Set roce_rails_firmware: false to manage no firmware"
NO_TOOL = (
    "its firmware settings cannot be read: neither mlxconfig nor mstconfig is installed. The layer "
    f"rdma installs mstflint (the distribution's) or mft (NVIDIA's, with DOCA). {MANAGE_NONE}"
)
UNREAD = (
    "Kernel lockdown (Secure Boot) can keep the tool from the NIC: /sys/kernel/security/lockdown. "
    f"{MANAGE_NONE}"
)

_COLUMNS = ("Default", "Current", "Next Boot")
_NUMBER = re.compile(r"(0x[0-9a-fA-F]{1,8})|(?:.*\()?(\d{1,10})\)?")
"""`16`, `ETH(2)`, `0xFF(255)`, `0x1`: the word differs between versions."""
_ARRAY = re.compile(r"Array\[(\d{1,4})\.\.(\d{1,4})\]")
_NAME = re.compile(r"([A-Za-z]\w*)(?:\[(\d{1,4})(?:\.\.(\d{1,4}))?\])?", re.ASCII)
"""`SRIOV_EN`, `PCI_DOWNSTREAM_PORT_OWNER[4]`, `MODULE_SPLIT_M0[0..15]`"""
_HIDING = re.compile(r"ADVANCED_\w+_SETTINGS")
"""While one of these is 0 (ADVANCED_PCI_SETTINGS), others are hidden (MAX_ACC_OUT_READ)."""
Value = Union[int, list[int]]
"""Value of a parameter, or of the elements of an array in order."""


@dataclass(frozen=True)
class FirmwareParameter:
    """Values of a parameter. `current` is None if the firmware does not report it."""

    current: Optional[Value]
    next_boot: Value

    @property
    def reading(self) -> Reading:
        if self.current is None:
            # Older firmware reports only the value after its next reset.
            return Reading(self.next_boot)
        waits = self.next_boot if self.next_boot != self.current else None
        return Reading(self.current, pending=waits)


@dataclass
class FirmwareTable:
    """The parameters of one function, and the first and last index of its arrays."""

    known: dict[str, FirmwareParameter]
    arrays: dict[str, tuple[int, int]]


class Firmwares:
    """The tool's tables, cached by function, as some parameters have a value for each function.

    One of these is TRACER_ENABLE (Mellanox/nic-configuration-operator bd742d17).
    """

    def __init__(self, tool: Optional[str], run: Runner, check_mode: bool = False) -> None:
        self.tool = tool
        self.check_mode = check_mode
        self._run = run
        self._answers: dict[tuple[str, ...], Union[FirmwareTable, CommandError]] = {}

    def table(self, pci: str, *names: str) -> FirmwareTable:
        """The whole table, or array elements, which need a query by name. Raises CommandError."""
        return remembered(self._answers, (pci, *names), lambda: self._query(pci, *names))

    def parameter(self, pci: str, name: str) -> Optional[FirmwareParameter]:
        """Return a parameter, array element or range of elements; None if it is not shown."""
        table, (base, indexes) = self.table(pci), split_name(name)
        if indexes is None or base not in table.arrays:
            return table.known.get(name)
        first, last = table.arrays[base]
        known = self.table(pci, f"{base}[{first}..{last}]").known
        if name in known:
            return known[name]
        found = [known[element] for element in elements(name) if element in known]
        if len(found) <= indexes[1] - indexes[0]:
            return None
        current = [each.current for each in found if isinstance(each.current, int)]
        next_boot = [each.next_boot for each in found if isinstance(each.next_boot, int)]
        return FirmwareParameter(current if len(current) == len(found) else None, next_boot)

    def set(self, pci: str, values: Mapping[str, int]) -> None:
        """Set, in one call, the known ones that would differ after the next reset."""
        read = {name: self.parameter(pci, name) for name in sorted(values)}
        differing = [n for n, each in read.items() if each and each.next_boot != values[n]]
        if differing:
            words = [_assignment(name, values[name]) for name in differing]
            card = card_of(pci)
            self._answers = {at: of for at, of in self._answers.items() if card_of(at[0]) != card}
            self._run((self.tool or "", "-y", "-d", pci, "set", *words))

    def port_parameter(self, pci: str, name: str) -> str:
        """Return the name of `LINK_TYPE_P1` for the second function of a card: `LINK_TYPE_P2`.

        If the firmware has no such port, all functions of the card share port 1.
        """
        own = re.sub(r"_P\d+$", f"_P{int(pci[-1]) + 1}", name)
        return own if own in self.table(pci).known else name

    def _query(self, pci: str, *names: str) -> FirmwareTable:
        argv = (self.tool or "", "-d", pci, "-e", "q", *names)
        result = self._run(argv, check=False)
        table = parse(result.stdout)
        if not table.known:
            text = output(result, 1000) or "no output"
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {text}")
        return table


def _stem(name: str) -> str:
    return re.sub(r"_P\d+$", "", name)


def split_name(name: str) -> tuple[str, Optional[tuple[int, int]]]:
    """Split `A[4]` into A, (4, 4) and `A[0..3]` into A, (0, 3); other names have no indexes."""
    match = _NAME.fullmatch(name)
    if match is None or match[2] is None:
        return name, None
    return match[1], (int(match[2]), int(match[3] or match[2]))


def _assignment(name: str, value: int) -> str:
    """Elements are hexadecimal: the tool reads MODULE_SPLIT_M0 as such even without 0x."""
    return f"{name}={value:#x}" if split_name(name)[1] else f"{name}={value}"


def assignments(name: str, value: Value) -> list[str]:
    """Return the arguments of `set` for a value; equal elements of an array share one."""
    base, indexes = split_name(name)
    if isinstance(value, int) or indexes is None:
        return [_assignment(name, value)] if isinstance(value, int) else []
    found, start = [], indexes[0]
    for each, alike in groupby(value):
        last = start + len(list(alike)) - 1
        found.append(_assignment(f"{base}[{start}..{last}]", each))
        start = last + 1
    return found


def parse(text: str) -> FirmwareTable:
    """Parse the table printed by `-e q`, skipping values that are not numbers (keys, N/A)."""
    table = FirmwareTable({}, {})
    columns: tuple[str, ...] = ()
    for line in text.splitlines():
        if line.startswith("Configurations:"):
            columns = tuple(name for name in _COLUMNS if name in line)
            continue
        words = line.split()
        while words and words[0] in ("*", "RO", "*RO"):
            words.pop(0)
        if not columns or len(words) != len(columns) + 1:
            continue
        name, row = words[0], dict(zip(columns, words[1:]))
        word = row.get("Next Boot", "")
        next_boot = _number(word)
        if array := _ARRAY.fullmatch(word):
            table.arrays[name] = int(array[1]), int(array[2])
        elif next_boot is not None:
            table.known[name] = FirmwareParameter(_number(row.get("Current", "")), next_boot)
    return table


def _number(word: str) -> Optional[int]:
    match = _NUMBER.fullmatch(word)
    return int(match[1] or match[2], 0 if match[1] else 10) if match else None


def wanted_parameters(
    host: HostSettings, further: Mapping[str, Optional[int]] = MappingProxyType({})
) -> dict[str, int]:
    """Return the desired parameters under the names of the first port. Raises PlanError.

    `further`: the operator's parameters, in addition to OPTIONAL; those with the value None are not
    changed.
    """
    given = [name for name in FIXED if name in further]
    if given:
        raise PlanError(f"{VARIABLE}: remove {', '.join(given)}: given by the model and the rails")
    for name in further:
        first, last = split_name(name)[1] or (0, 0)
        if not _NAME.fullmatch(name) or not 0 <= last - first < MAX_ELEMENTS:
            raise PlanError(
                f"{VARIABLE}: {name!r} is no parameter: write it as mlxconfig does, an element "
                "of an array as PCI_DOWNSTREAM_PORT_OWNER[4], equal ones as MODULE_SPLIT_M0[0..3]"
            )
    of_roce = {
        **dict.fromkeys(SRIOV, 0),
        **dict(zip(CNP, (host.cnp_dscp, host.cnp_priority))),
        PRIORITY_MASK: sum(1 << priority for priority in host.ecn_priorities),
    }
    wanted: dict[str, Optional[int]] = {
        LINK_TYPE: 2,  # Ethernet
        # With Spectrum-X, SR-IOV is on (RA2.0, RA2.2) and DCQCN is not used.
        **(of_roce if host.fabric_mode == ROCE else {}),
        **OPTIONAL,
        **further,
    }
    return {
        element: number(f"{VARIABLE}: {name}", value)
        for name, value in wanted.items()
        if value is not None
        for element in elements(name)
    }


def elements(name: str) -> list[str]:
    """Expand `A[0..3]` to A[0], A[1], A[2] and A[3]; return any other name unchanged."""
    base, indexes = split_name(name)
    if indexes is None:
        return [name]
    return [f"{base}[{index}]" for index in range(indexes[0], indexes[1] + 1)]


def firmware_settings(
    options: NicOptions, firmwares: Firmwares, parameters: Mapping[str, int], rail: RailNic
) -> list[FirmwareSetting]:
    """Return the settings of one rail; `parameters` have the names of the first port.

    Parameters that the operator has named must exist.
    """
    root = options.node.root
    pci = pci_address(root / "sys/class/net" / rail.interface)
    if rail.device is None or pci is None:
        return []
    # Alternative that fulfils the promise if the firmware has no such parameter.
    fulfilled_by = dict.fromkeys(OPTIONAL, "it is optional, and set if a NIC has it")
    if rail.device.link_layer == "Ethernet":
        fulfilled_by[LINK_TYPE] = "its port is Ethernet only"
    if not sysfs.number(root / "sys/bus/pci/devices" / pci / "sriov_totalvfs"):
        fulfilled_by.update(dict.fromkeys(SRIOV, "it supports no virtual functions"))
    if (root / "sys/class/net" / rail.interface / "ecn").is_dir():
        fulfilled_by.update(dict.fromkeys((*CNP, PRIORITY_MASK), "the driver of DOCA-OFED sets it"))
    asked = {element for name in options.firmware_parameters for element in elements(name)}
    settings: list[FirmwareSetting] = []
    for name, value in parameters.items():
        setting = FirmwareSetting(name, value, firmwares, pci, rail.shared)
        setting.named, setting.siblings = name in asked, settings
        setting.fulfilled_by = "" if name in asked else fulfilled_by.get(name, "")
        settings.append(setting)
    return settings


class FirmwareSetting(NicSetting):
    """One parameter. All differing parameters of a rail are set by one call of the tool."""

    unit = FIRMWARE
    named = False
    """Whether the operator has named it."""
    siblings: Sequence[FirmwareSetting] = ()
    fulfilled_by = ""

    def __init__(
        self, first_port_parameter: str, wanted: Value, firmwares: Firmwares, pci: str, shared: bool
    ) -> None:
        """`shared`: all functions of the card are on port 1 (planes balanced by hardware)."""
        # The name has no port; an element of an array is ..._4.
        stem = re.sub(r"\W+", "_", _stem(first_port_parameter)).strip("_")
        self.name = f"firmware_{stem.lower()}"
        self.wanted = wanted
        self._first_port_parameter = first_port_parameter
        self._firmwares = firmwares
        self._pci = pci
        self._shared = shared

    @property
    def parameter(self) -> str:
        return self.of_port(self._first_port_parameter)

    def of_port(self, name: str) -> str:
        return name if self._shared else self._firmwares.port_parameter(self._pci, name)

    def read(self) -> Reading:
        if self._firmwares.tool is None:
            return Reading(None, NO_TOOL, PENDING if self._firmwares.check_mode else FAILED)
        try:
            parameter = self._firmwares.parameter(self._pci, self.parameter)
        except CommandError as error:
            reason = f"its firmware settings cannot be read: {error}. {UNREAD}"
            return Reading(None, reason, FAILED)
        return self.evaluate(Reading(None) if parameter is None else parameter.reading)

    def evaluate(self, reading: Reading) -> Reading:
        if reading.found is not None:
            return reading
        unknown = f"has no {self.parameter}"
        if self.fulfilled_by:
            # One wording for every card, as the summary counts equal reasons.
            reason = f"its firmware {unknown}; {self.fulfilled_by}"
            return Reading(None, reason, NOT_APPLICABLE)
        table, (base, indexes) = self._firmwares.table(self._pci), split_name(self.parameter)
        bounds = table.arrays.get(base) if indexes else None
        if self.named and not bounds and (waits := self._shown_later()):
            # A parameter can be hidden until another one takes effect, so only the known ones are
            # set.
            reason = (
                f"the firmware of {self._pci} shows no {self.parameter} yet; after its next reset "
                f"{', '.join(waits)} takes effect, which may show it: reboot, then run again"
            )
            return Reading(None, reason, PENDING)
        name, known = self._first_port_parameter, table.known
        null = "" if name in FIXED else f"omit it ({VARIABLE}: {{{name}: null}}), or "
        off = [each for each in known if _HIDING.fullmatch(each) and not known[each].next_boot]
        show = "Update"
        if bounds:
            show = f"Its elements are {base}[{bounds[0]}..{bounds[1]}]: correct it. Else update"
        elif self.named and off:
            show = f"It may be hidden: add {off[0]}: 1 to {VARIABLE}. Else update"
        reason = (
            f"the firmware of {self._pci} {unknown}. {show} it, or {null}manage no firmware "
            "(roce_rails_firmware: false)"
        )
        return Reading(None, reason, FAILED)

    def _shown_later(self) -> list[str]:
        """Return the parameters that the next reset changes, except those of the contract.

        Parameters of the contract never hide others.
        """
        asked = {each.parameter: each.wanted for each in self.siblings if each.named}
        own = {_stem(each.parameter) for each in self.siblings if not each.named}
        return [
            name
            for name, each in self._firmwares.table(self._pci).known.items()
            if _stem(name) not in own
            and each.reading.found != asked.get(name, each.reading.to_come)
        ]

    def apply(self) -> None:
        self._firmwares.set(self._pci, {each.parameter: each.wanted for each in self.siblings})

    def set(self, value: Any) -> None:
        self._firmwares.set(self._pci, {self.parameter: value})
