# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the firmware of a rail's NIC keeps: Ethernet, no virtual functions, and its CNP's marking.

Firmware takes a value up at its next reset. A value is therefore set for the next boot, reported as
needing a reset until it is the current one, and never brought about by resetting anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ..core.commands import CommandError
from ..core.dataclass import dataclass
from ..qos import HostSettings
from ..rails.device import pci_address
from .firmware_device import NO_TOOL, Firmwares
from .setting import FIRMWARE, Rail, Reading, Setting

DRIVER = "mlx5_core"
"""The NICs whose firmware these tools know."""

LINK_TYPE = "LINK_TYPE_P1"
SRIOV = ("SRIOV_EN", "NUM_OF_VFS")
PRIORITY_MASK = "ROCE_CC_PRIO_MASK_P1"
FIXED = (LINK_TYPE, *SRIOV, "CNP_DSCP_P1", "CNP_802P_PRIO_P1")
"""Not to be set by the operator: a rail is an Ethernet physical function, and the rest is in the
contract."""

VARIABLE = "roce_rails_firmware_parameters"

UNREAD = (
    "Kernel lockdown (Secure Boot) can keep the tool from the NIC: /sys/kernel/security/lockdown. "
    "Set roce_rails_firmware: false to leave firmware alone"
)

_ETHERNET = 2
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


class ParameterError(Exception):
    """What the operator asked of the firmware cannot be; one line per finding."""


def read_parameters(given: Mapping[str, Any]) -> dict[str, Optional[int]]:
    """The role's own dict of further parameters; null leaves one out. Raises ParameterError."""
    findings = []
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            findings.append(f"{name!r}: parameters are written as mlxconfig has them (ATS_ENABLED)")
        elif name in FIXED:
            findings.append(f"{name}: given by roce_qos and the rails themselves; remove it")
        elif value is not None and (isinstance(value, bool) or not isinstance(value, int)):
            findings.append(f"{name}: {value!r} is no whole number; 0 and 1 stand for False, True")
    if findings:
        raise ParameterError(
            "\n".join(f"roce_rails_firmware_parameters: {each}" for each in findings)
        )
    return dict(given)


def wanted_parameters(
    host: HostSettings, further: Mapping[str, Optional[int]] = MappingProxyType({})
) -> dict[str, int]:
    """Parameter to value, as the first port has them."""
    wanted: dict[str, Optional[int]] = {
        LINK_TYPE: _ETHERNET,
        **dict.fromkeys(SRIOV, 0),
        "CNP_DSCP_P1": host.cnp_dscp,
        "CNP_802P_PRIO_P1": host.cnp_priority,
        PRIORITY_MASK: sum(1 << priority for priority in host.ecn_priorities),
        **further,
    }
    return {name: value for name, value in wanted.items() if value is not None}


@dataclass(frozen=True)
class FirmwareProvider:
    """The firmware settings of one rail after the other."""

    firmwares: Firmwares
    parameters: Mapping[str, int]
    """As the first port has them."""
    root: Path = Path("/")

    persistence = FIRMWARE

    def __call__(self, rail: Rail) -> Sequence[Setting]:
        pci = pci_address(self.root / "sys/class/net" / rail.interface)
        if rail.driver != DRIVER or pci is None:
            return ()
        batch = Batch(self.firmwares, pci)
        for name, value in self.parameters.items():
            setting = FirmwareSetting(rail.name, name, value, batch, self._kept_by(rail, pci, name))
            batch.settings.append(setting)
        return batch.settings

    def _kept_by(self, rail: Rail, pci: str, name: str) -> str:
        """What keeps the promise where the firmware has nothing to set; empty for nothing."""
        if name == LINK_TYPE and rail.device and rail.device.link_layer == "Ethernet":
            return "its port knows Ethernet only"
        total = self.root / "sys/bus/pci/devices" / pci / "sriov_totalvfs"
        if name in SRIOV and (not total.exists() or total.read_text("ascii").strip() == "0"):
            return "it has no virtual functions to give"
        return ""


@dataclass
class Batch:
    """The settings of one rail, written together: one call of the tool for all that differ."""

    firmwares: Firmwares
    pci: str
    settings: list[FirmwareSetting] = field(default_factory=list)

    def write(self) -> None:
        known = self.firmwares.parameters(self.pci)
        values = {each.parameter: each.wanted for each in self.settings if each.parameter in known}
        self.firmwares.set(self.pci, values)


@dataclass(frozen=True)
class FirmwareSetting:
    rail: str
    first_port_parameter: str
    wanted: int
    batch: Batch
    kept_by: str = ""

    persistence = FIRMWARE

    @property
    def name(self) -> str:
        """`firmware_sriov_en`, the same for every port."""
        return f"firmware_{re.sub('_P1$', '', self.first_port_parameter).lower()}"

    @property
    def tool(self) -> str:
        return self.batch.firmwares.tool or "mlxconfig or mstconfig"

    @property
    def parameter(self) -> str:
        return self.batch.firmwares.port_parameter(self.batch.pci, self.first_port_parameter)

    def read(self) -> Reading:
        if self.batch.firmwares.tool is None:
            return Reading.unsupported(NO_TOOL)
        try:
            known = self.batch.firmwares.parameters(self.batch.pci)
            parameter = known.get(self.parameter)
        except CommandError as error:
            return Reading.unsupported(f"its firmware settings cannot be read: {error}. {UNREAD}")
        if parameter is None:
            unknown = f"the firmware of {self.batch.pci} does not know {self.parameter}"
            if self.kept_by:
                return Reading.kept_otherwise(f"{unknown}; {self.kept_by}")
            return Reading.unsupported(f"{unknown}. {self._way_out()}")
        if parameter.current is None:
            # Older firmware tells only what its next reset brings.
            return Reading(parameter.next_boot)
        waits = parameter.next_boot if parameter.next_boot != parameter.current else None
        return Reading(parameter.current, pending=waits)

    def write(self) -> None:
        self.batch.write()

    def restore(self, reading: Reading) -> None:
        value = reading.found if reading.pending is None else reading.pending
        if isinstance(value, int):
            self.batch.firmwares.set(self.batch.pci, {self.parameter: value})

    def forget(self) -> None:
        self.batch.firmwares.forget(self.batch.pci)

    def _way_out(self) -> str:
        if self.first_port_parameter in FIXED:
            return "Update its firmware, or set roce_rails_firmware: false to leave firmware alone"
        return (
            "Update its firmware, or leave the parameter out with "
            f"{VARIABLE}: {{{self.first_port_parameter}: null}}"
        )
