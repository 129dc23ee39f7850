# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch system declares, and the driver that does its work.

The driver is loaded when it is first used, because its libraries take up to a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Optional

from ..schema.kinds import Key
from .port_names import PortNaming

if TYPE_CHECKING:
    from .counters import PortCounters
    from .system import Difference, SwitchConnection, SwitchIntent, SwitchReport
    from .underlay import Underlay

SSH, HTTPS = "ssh", "https"


@dataclass(frozen=True)
class SystemDriver:
    """Everything that a system does. Only `connect` needs a switch."""

    wanted: Callable[[SwitchIntent], Any]
    """The intent in the system's own configuration. Raises WantedError."""
    difference: Callable[[SwitchIntent, Any, Any], Difference]
    """Of intent, desired and current configuration; empty if the switch complies, whatever else
    the operator has configured. Raises SwitchError if the switch cannot implement it."""
    report: Callable[[SwitchIntent, Any], SwitchReport]
    connect: Callable[[Any], SwitchConnection]
    underlay: Optional[Callable[[Any], Underlay]] = None
    """Of a connection: the routing that the switch reports. None: the system is not read."""
    counters: Optional[Callable[[Any, Sequence[str]], dict[str, PortCounters]]] = None
    """Of a connection, and some of its ports."""


@dataclass(frozen=True, eq=False)
class System:
    """One switch system. Traits that most systems lack default to off."""

    package: str
    """`__name__` of the package; its last part is the system's name in the model."""
    title: str
    naming: PortNaming
    largest_mtu: int
    """Largest IP packet that a port can carry, in bytes, without Ethernet header and checksum."""
    transport: str
    adaptive_routing: str = ""
    """How to enable it by hand. If empty, `fabric_mode: spectrum_x` is not supported."""
    one_cable_length: bool = False
    reports_rounded_thresholds: bool = False
    """Whether ECN thresholds are reported as rounded by the chip."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Remedy by aspect, where an operator's overriding setting is not changed."""
    families: tuple[str, ...] = ()
    """Families of the chips on which it runs (`asics.FAMILIES`); empty: any."""
    also: tuple[str, ...] = ()
    """Other words for it, for a message."""
    floor: str = ""
    """Its minimum versions (`software.floors`); empty if none are published."""
    chip_keys: tuple[Key, ...] = ()
    """Keys of `asics.CHIP` in the model that only this system reads."""

    @property
    def name(self) -> str:
        return self.package.rpartition(".")[2]

    @cached_property
    def driver(self) -> SystemDriver:
        driver: SystemDriver = import_module(f"{self.package}.switch").DRIVER
        return driver
