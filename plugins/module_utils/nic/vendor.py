# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The interface of a NIC vendor's package: what its driver and firmware add to a kernel NIC.

`port_settings`, `dcb`, `rdma_cm` and `sriov` use interfaces of the kernel that every driver has.
Congestion control, firmware, registers and the health of a port differ by vendor: they are in a
package such as `mlx5/`, which provides one `Vendor`. `nics.VENDORS` lists the vendors by driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Protocol

from ..core.checks import Check
from ..core.part import Node
from ..qos import SPECTRUM_X, HostSettings
from .dcb import Dcb
from .setting import SOFTWARE_REASON, NicSetting, Provider, RailNic, Reading

HEALTH = "rail_health"
NO_COUNTERS = "not applicable: its driver shows no counters of the physical port"


@dataclass(frozen=True)
class NicOptions:
    """Options of the module roce_rails that concern vendors, after validation."""

    contract: HostSettings
    node: Node
    which: Callable[[str], Optional[str]]
    """Path of an installed program."""
    dcb: Optional[Dcb]
    """None if `dcb` is not installed."""
    congestion_control: Mapping[str, int]
    accelerations: Mapping[str, int]
    firmware: bool
    firmware_parameters: Mapping[str, Any]
    lanes: Mapping[str, tuple[int, int]]
    """For each rail: its planes in the model, and the number of rails on its card."""

    @property
    def promises(self) -> dict[str, Any]:
        """The settings by name, with their desired values, that a vendor must provide."""
        contract = self.contract
        promises: dict[str, Any] = {"traffic_class": contract.traffic_class}
        if contract.fabric_mode != SPECTRUM_X:
            promises.update(
                ecn_np=sorted(contract.ecn_priorities),
                ecn_rp=sorted(contract.ecn_priorities),
                cnp_dscp=contract.cnp_dscp,
                cnp_priority=contract.cnp_priority,
                **{name.replace("/", "_"): n for name, n in self.congestion_control.items()},
            )
        if self.accelerations:
            promises["accelerations"] = dict(sorted(self.accelerations.items()))
        return promises


class Vendor(Protocol):
    """NICs with one kernel driver."""

    driver: str

    def provider(self, options: NicOptions) -> Provider:
        """Return the provider of a rail's settings. Raises PlanError for an impossible option."""

    def counters(self, statistics: Mapping[str, int]) -> dict[str, int]:
        """Select the counters of `ethtool -S` that show the health of the port."""

    def health(self, nic: RailNic, request: HealthRequest) -> Check:
        """Return the check `rail_health` from two readings of the counters."""


@dataclass(frozen=True)
class PortCounters:
    """Counters of a port at one time; empty if none of the vendors here provides its driver."""

    counted: Mapping[str, int]
    at: float = field(default_factory=time.monotonic)
    """Seconds of the monotonic clock."""


@dataclass(frozen=True)
class HealthRequest:
    before: PortCounters
    now: PortCounters
    speed_gbps: Optional[float]
    limits: Mapping[str, Any]
    quiet: bool
    """Whether no link was set up between the readings; that takes links down and counts as
    errors.
    """
    lossless: tuple[int, ...]
    """Priorities with PFC."""
    node: Node
    which: Callable[[str], Optional[str]]

    @property
    def sys(self) -> Path:
        return self.node.root / "sys"


class Unsupported(NicSetting):
    """A promise that nothing here can fulfil: a failure on a RoCE NIC, not applicable elsewhere."""

    def __init__(self, name: str, wanted: Any, reason: str) -> None:
        self.name = name
        self.wanted = wanted
        self._reason = reason

    def read(self) -> Reading:
        return Reading.unsupported(self._reason)

    def set(self, value: Any) -> None:
        raise ValueError(f"{self.name} cannot be set: {self._reason}")


def without_vendor(options: NicOptions, drivers: str, nic: RailNic) -> list[NicSetting]:
    """Return placeholders, which fail on a RoCE NIC, for a NIC whose driver is not in `drivers`."""
    if nic.device is None or nic.shared:
        return []
    reason = SOFTWARE_REASON
    if nic.physical:
        reason = f"its driver is {nic.driver}; only {drivers} is supported"
    return [Unsupported(name, wanted, reason) for name, wanted in options.promises.items()]
