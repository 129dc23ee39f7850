# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch system declares, and the driver that does its work.

The declaration is cheap to import: compiling a model reads only names and limits. The driver is
loaded when it is first used, because its libraries (httpx, pyavd) take up to a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Optional

from ..schema.kinds import Key

if TYPE_CHECKING:
    from .system import Difference, SwitchConnection, SwitchIntent, SwitchReport

SSH, HTTPS = "ssh", "https"


@dataclass(frozen=True)
class PortNaming:
    """How a system names the ports of a switch."""

    pattern: str
    """Name pattern, with `{}` for the number."""
    start: int
    step: Optional[int]
    """Step from one port's number to the next; None if the system counts lanes."""


UNNAMED = PortNaming("Ethernet{}", start=0, step=1)
"""Port naming of a switch whose system is not in the model."""


@dataclass(frozen=True)
class SystemDriver:
    """Everything that a system does. Only `connect` needs a switch."""

    wanted: Callable[[SwitchIntent], Any]
    """The intent in the system's own configuration. Raises WantedError, listing every setting that
    the system cannot represent."""
    difference: Callable[[SwitchIntent, Any, Any], Difference]
    """Compares intent, desired and current configuration. Empty if the switch complies, whatever
    else the operator has configured; rounding by the chip is tolerated. Raises SwitchError if this
    switch cannot implement the desired configuration.
    """
    report: Callable[[SwitchIntent, Any], SwitchReport]
    """The state of every port of the intent, in terms of the contract."""
    connect: Callable[[Any], SwitchConnection]
    """Takes a `Shell` if the transport is SSH, a `SwitchLogin` if it is HTTPS."""


@dataclass(frozen=True, eq=False)
class System:
    """One switch system. Traits that most systems lack default to off."""

    package: str
    """`__name__` of the package; its last part is the system's name in the model."""
    title: str
    """Name as the vendor writes it."""
    naming: PortNaming
    largest_mtu: int
    """Largest IP packet that a port can carry, in bytes, without Ethernet header and checksum."""
    transport: str
    """SSH or HTTPS."""
    adaptive_routing: str = ""
    """How to enable adaptive routing by hand. If empty, `roce_qos.fabric_mode: spectrum_x` is not
    supported.
    """
    one_cable_length: bool = False
    """Whether there is only one cable length per switch, the longest."""
    reports_rounded_thresholds: bool = False
    """Whether ECN thresholds are reported as rounded by the chip, not as configured."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Remedy by aspect, for aspects in which the driver does not change an operator's overriding
    setting.
    """
    chip_keys: tuple[Key, ...] = ()
    """Keys of `asics.CHIP` in the model that only this system reads."""

    @property
    def name(self) -> str:
        return self.package.rpartition(".")[2]

    @cached_property
    def driver(self) -> SystemDriver:
        driver: SystemDriver = import_module(f"{self.package}.switch").DRIVER
        return driver
