# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the firmware of a rail's NIC keeps: Ethernet, no virtual functions, and its CNP's marking.

Firmware takes a value up at its next reset. A value is therefore set for the next boot and reported
as needing a reset until it is the current one; nothing is reset here.

mlxconfig (MFT, DOCA) and mstconfig (mstflint) are the same program and print the same table. The
table is read, not the JSON form: the distributions' mstconfig has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional, Union

from ..core.commands import CommandError, Runner, output
from ..core.part import PlanError
from ..hardware import tree as sysfs
from ..hardware.inventory import card_of
from ..qos import ROCE, HostSettings
from ..rails.state import pci_address
from .setting import FIRMWARE, MLX5, Rail, Reading, Setting, number

TOOLS = ("mlxconfig", "mstconfig")
"""In order of preference: MFT supports a NIC at least as early as mstflint does."""

LINK_TYPE = "LINK_TYPE_P1"
SRIOV = ("SRIOV_EN", "NUM_OF_VFS")
PRIORITY_MASK = "ROCE_CC_PRIO_MASK_P1"
CNP = ("CNP_DSCP_P1", "CNP_802P_PRIO_P1")
FIXED = (LINK_TYPE, *SRIOV, *CNP)
"""Not the operator's to set: a rail is an Ethernet physical function, and the contract has CNPs."""

OPTIONAL = {"ATS_ENABLED": 0}
"""Better where a NIC has it, and no part of the contract: a NIC that does not know it has a note.

NVIDIA's operator sets it for GPUDirect, as far as a NIC shows what is in its list, and goes on
(Mellanox/nic-configuration-operator, pkg/configuration: configvalidation.go of 01eed1d4, manager.go
of 0d2c03d3, ApplyStatusPartiallyApplied).
"""

VARIABLE = "roce_rails_firmware_parameters"
NO_TOOL = (
    "its firmware settings cannot be read: neither mlxconfig nor mstconfig is installed. The layer "
    "rdma installs mstflint (the distribution's) or mft (NVIDIA's, with DOCA). Set "
    "roce_rails_firmware: false to leave firmware alone"
)
UNREAD = (
    "Kernel lockdown (Secure Boot) can keep the tool from the NIC: /sys/kernel/security/lockdown. "
    "Set roce_rails_firmware: false to leave firmware alone"
)

_ETHERNET = 2
_HEADING = "Configurations:"
_COLUMNS = ("Default", "Current", "Next Boot")
_NUMBER = re.compile(r"(?:.*\()?(\d+)\)?")
"""`16`, `ETH(2)`, `False(0)`: the number is what counts, the word differs between versions."""


@dataclass(frozen=True)
class Parameter:
    """One setting of the firmware. `current` is None where the firmware does not show it."""

    current: Optional[int]
    next_boot: int

    @property
    def reading(self) -> Reading:
        if self.current is None:
            # Older firmware shows only what its next reset brings.
            return Reading(self.next_boot)
        waits = self.next_boot if self.next_boot != self.current else None
        return Reading(self.current, pending=waits)


class Firmwares:
    """Answers of the tool, kept per card: the functions of one card share its settings."""

    def __init__(self, tool: Optional[str], run: Runner, check_mode: bool = False) -> None:
        self.tool = tool
        self.check_mode = check_mode
        self._run = run
        self._answers: dict[str, Union[dict[str, Parameter], CommandError]] = {}

    def parameters(self, pci: str) -> Mapping[str, Parameter]:
        """What the firmware of the card at `pci` knows. Raises CommandError, the same one again."""
        card = card_of(pci)
        if card not in self._answers:
            try:
                self._answers[card] = self._query(pci)
            except CommandError as error:
                self._answers[card] = error
        answer = self._answers[card]
        if isinstance(answer, CommandError):
            raise answer
        return answer

    def set(self, pci: str, values: Mapping[str, int]) -> None:
        """Of these known ones, what the next reset would not bring: in one call, or none."""
        known = self.parameters(pci)
        differing = [name for name in sorted(values) if known[name].next_boot != values[name]]
        if differing:
            words = [f"{name}={values[name]}" for name in differing]
            self._answers.pop(card_of(pci))
            self._run((self.tool or "", "-y", "-d", pci, "set", *words))

    def port_parameter(self, pci: str, name: str) -> str:
        """`LINK_TYPE_P1` as the second function of a card calls it: `LINK_TYPE_P2`.

        Where the firmware has no such port, every function of the card has port 1.
        """
        own = re.sub(r"_P\d+$", f"_P{int(pci[-1]) + 1}", name)
        return own if own in self.parameters(pci) else name

    def _query(self, pci: str) -> dict[str, Parameter]:
        """All are asked for at once: a list with one unknown name in it is refused as a whole."""
        argv = (self.tool or "", "-d", pci, "-e", "q")
        result = self._run(argv, check=False)
        known = parse(result.stdout)
        if not known:
            said = output(result, 1000) or "no output"
            raise CommandError(f"{' '.join(argv)}: exit status {result.rc}: {said}")
        return known


def parse(text: str) -> dict[str, Parameter]:
    """The table of `-e q`. Values that are not numbers (arrays, keys, N/A) are left out."""
    columns: tuple[str, ...] = ()
    found: dict[str, Parameter] = {}
    for line in text.splitlines():
        if line.startswith(_HEADING):
            columns = tuple(name for name in _COLUMNS if name in line)
            continue
        words = line.split()
        while words and words[0] in ("*", "RO", "*RO"):
            words.pop(0)
        if columns and len(words) == len(columns) + 1:
            values = dict(zip(columns, map(_number, words[1:])))
            next_boot = values.get("Next Boot")
            if next_boot is not None:
                found[words[0]] = Parameter(values.get("Current"), next_boot)
    return found


def _number(word: str) -> Optional[int]:
    match = _NUMBER.fullmatch(word)
    return int(match[1]) if match else None


def wanted_parameters(
    host: HostSettings, further: Mapping[str, Optional[int]] = MappingProxyType({})
) -> dict[str, int]:
    """Parameter to value, as the first port has them. Raises PlanError.

    `further` are the operator's, besides OPTIONAL; None leaves one as the NIC has it.
    """
    given = [name for name in FIXED if name in further]
    if given:
        raise PlanError(f"{VARIABLE}: remove {', '.join(given)}: given by the model and the rails")
    of_roce = {
        **dict.fromkeys(SRIOV, 0),
        **dict(zip(CNP, (host.cnp_dscp, host.cnp_priority))),
        PRIORITY_MASK: sum(1 << priority for priority in host.ecn_priorities),
    }
    wanted: dict[str, Optional[int]] = {
        LINK_TYPE: _ETHERNET,
        # What sets up Spectrum-X has SR-IOV on (RA2.0, RA2.2), and DCQCN is not used.
        **(of_roce if host.fabric_mode == ROCE else {}),
        **OPTIONAL,
        **further,
    }
    return {
        name: number(f"{VARIABLE}: {name}", value)
        for name, value in wanted.items()
        if value is not None
    }


def firmware_settings(
    firmwares: Firmwares,
    parameters: Mapping[str, int],
    named: Collection[str],
    root: Path,
    rail: Rail,
) -> list[FirmwareSetting]:
    """Those of one rail; `parameters` as the first port of a card has them.

    The operator asked for those that are `named`: each has to be there.
    """
    pci = pci_address(root / "sys/class/net" / rail.interface)
    if rail.device is None or rail.driver != MLX5 or pci is None:
        return []
    # What keeps the promise where the firmware has nothing to set.
    kept_by = dict.fromkeys(OPTIONAL, "it is optional, and set where a NIC has it")
    if rail.device.link_layer == "Ethernet":
        kept_by[LINK_TYPE] = "its port is Ethernet only"
    if not sysfs.number(root / "sys/bus/pci/devices" / pci / "sriov_totalvfs"):
        kept_by.update(dict.fromkeys(SRIOV, "it has no virtual functions to give"))
    if (root / "sys/class/net" / rail.interface / "ecn").is_dir():
        kept_by.update(dict.fromkeys((*CNP, PRIORITY_MASK), "the driver of DOCA-OFED sets it"))
    settings: list[FirmwareSetting] = []
    for name, value in parameters.items():
        otherwise = "" if name in named else kept_by.get(name, "")
        settings.append(FirmwareSetting(name, value, firmwares, pci, otherwise, settings))
    return settings


class FirmwareSetting(Setting):
    """One parameter; those of one rail that differ are written by one call of the tool."""

    persistence = FIRMWARE

    def __init__(
        self,
        first_port_parameter: str,
        wanted: int,
        firmwares: Firmwares,
        pci: str,
        kept_by: str,
        rails: Sequence[FirmwareSetting],
    ) -> None:
        """`rails` are all of this rail."""
        # The same for every port.
        self.name = f"firmware_{re.sub('_P1$', '', first_port_parameter).lower()}"
        self.wanted = wanted
        self._first_port_parameter = first_port_parameter
        self._firmwares = firmwares
        self._pci = pci
        self._kept_by = kept_by
        self._rails = rails

    @property
    def parameter(self) -> str:
        return self._firmwares.port_parameter(self._pci, self._first_port_parameter)

    def read(self) -> Reading:
        if self._firmwares.tool is None:
            return Reading.without_tool(NO_TOOL, self._firmwares.check_mode)
        try:
            parameter = self._firmwares.parameters(self._pci).get(self.parameter)
        except CommandError as error:
            return Reading.unsupported(f"its firmware settings cannot be read: {error}. {UNREAD}")
        return self.judge(Reading(None) if parameter is None else parameter.reading)

    def judge(self, reading: Reading) -> Reading:
        """`reading` has nothing found where the firmware does not know the parameter."""
        if reading.found is not None:
            return reading
        unknown = f"has no {self.parameter}"
        if self._kept_by:
            # The same words for every card: a summary counts them.
            return Reading.kept_otherwise(f"its firmware {unknown}; {self._kept_by}")
        name = self._first_port_parameter
        null = "" if name in FIXED else f"leave it out ({VARIABLE}: {{{name}: null}}), or "
        return Reading.unsupported(
            f"the firmware of {self._pci} {unknown}. Update it, or {null}leave all firmware "
            "alone with roce_rails_firmware: false"
        )

    def write(self) -> None:
        known = self._firmwares.parameters(self._pci)
        values = {each.parameter: each.wanted for each in self._rails if each.parameter in known}
        self._firmwares.set(self._pci, values)

    def set(self, value: Any) -> None:
        self._firmwares.set(self._pci, {self.parameter: value})
