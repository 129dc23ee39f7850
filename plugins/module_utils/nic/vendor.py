# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a package for the NICs of one driver receives, and what NICs without one have.

`port_settings`, `dcb`, `rdma_cm` and `sriov` use interfaces of the kernel that every driver has.
Congestion control, firmware and registers differ by vendor: a package such as `mlx5/` provides
their settings, and `nics.VENDORS` lists it by its driver. `health` has the counters of all vendors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Optional

from ..core.checks import FAILED
from ..core.part import Node
from ..qos import HostSettings
from .dcb import Dcb
from .setting import SOFTWARE_REASON, NicSetting, RailNic, Reading


@dataclass(frozen=True)
class NicOptions:
    """Options of the module roce_rails that concern vendors, after validation."""

    contract: HostSettings
    node: Node
    which: Callable[[str], Optional[str]]
    dcb: Optional[Dcb]
    """None if `dcb` is not installed."""
    congestion_control: Mapping[str, int]
    accelerations: Mapping[str, int]
    firmware: bool
    firmware_parameters: Mapping[str, Any]
    lanes: Mapping[str, tuple[int, int]]
    """For each rail: its planes in the model, and the number of rails on its card."""


class Unsupported(NicSetting):
    """The traffic class of a NIC whose driver has no package: a failure on a RoCE NIC."""

    name = "traffic_class"

    def __init__(self, wanted: int, rail: RailNic, drivers: str) -> None:
        self.wanted = wanted
        self._reason = SOFTWARE_REASON
        if rail.physical:
            self._reason = f"its driver is {rail.driver}; only {drivers} is supported"

    def read(self) -> Reading:
        return Reading(None, self._reason, FAILED)

    def set(self, value: Any) -> None:
        raise ValueError(self._reason)
