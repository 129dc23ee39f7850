# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wanted settings of the rails of one host, as the module and the boot unit have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from types import MappingProxyType
from typing import Any, Optional

from ..core.dataclass import dataclass
from ..core.part import Node
from ..qos import HostSettings
from . import dcb, firmware
from .nic_settings import (
    PROGRAMS,
    Accelerations,
    Ethtool,
    LinkPause,
    MaxReadRequest,
    RingSizes,
)
from .rdma_settings import rdma_settings
from .setting import Provider, Rail, Setting, number
from .sriov import sriov_settings

QUICK_S = 10.0
"""Time limit of `dcb`, at each question: it answers at once or never."""
MAX_READ_REQUEST_BYTES = 4096


@dataclass(frozen=True)
class Request:
    """The settings of all rails of one host, as the module's options have them."""

    qos: HostSettings
    nic: Mapping[str, Any] = field(default_factory=dict)
    """Options of the NICs beyond the contract; None leaves one as the NIC has it."""
    firmware: bool = True
    firmware_parameters: Mapping[str, Optional[int]] = field(default_factory=dict)
    remove_vfs_in_use: bool = False

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Request:
        return cls(
            qos=HostSettings.of(given["qos"]),
            nic=given.get("nic") or {},
            firmware=given.get("firmware", True),
            firmware_parameters=given.get("firmware_parameters") or {},
            remove_vfs_in_use=given.get("remove_vfs_in_use", False),
        )

    def as_variable(self) -> dict[str, Any]:
        """Plain JSON that `read` makes the same request of."""
        return {**vars(self), "qos": self.qos.as_variable()}

    def providers(
        self,
        node: Node,
        ethtool: Ethtool,
        which: Callable[[str], Optional[str]],
        keep: Mapping[str, str] = MappingProxyType({}),
    ) -> list[Provider]:
        """In the order in which a rail is written. `keep`: interfaces the host is reached by.

        Raises PlanError where an option cannot be.
        """
        nic, root = self.nic, node.root
        read_request = nic.get("max_read_request_bytes", MAX_READ_REQUEST_BYTES)
        rings = _numbers("rings", nic.get("rings"))
        accelerations = _numbers("accelerations", nic.get("accelerations"))
        if nic.get("adaptive_routing") is not None:
            accelerations["adaptive_routing_forced_en"] = int(nic["adaptive_routing"])
        congestion_control = {
            f"{point}/{name}": value
            for point, values in (nic.get("congestion_control") or {}).items()
            for name, value in _numbers(f"congestion_control.{point}", values).items()
        }
        register = next(filter(which, PROGRAMS), None)

        def nic_settings(rail: Rail) -> list[Setting]:
            if rail.device is None:
                return []
            # Pause first: a port cannot have both, and PFC is written after it.
            settings: list[Setting] = [LinkPause(rail, ethtool)]
            if read_request is not None:
                settings.append(MaxReadRequest(rail, read_request, root))
            if rings:
                settings.append(RingSizes(rail, rings, ethtool))
            if accelerations:
                settings.append(Accelerations(rail, accelerations, node.run, register))
            return settings

        program = dcb.Dcb(node.look) if which(dcb.PROGRAM) else None
        providers: list[Provider] = [
            nic_settings,
            partial(dcb.qos_settings, self.qos, program),
            partial(rdma_settings, self.qos, node.run, root, congestion_control),
        ]
        if self.firmware:
            wanted = firmware.wanted_parameters(self.qos, self.firmware_parameters)
            firmwares = firmware.Firmwares(next(filter(which, firmware.TOOLS), None), node.run)
            providers.append(partial(firmware.firmware_settings, firmwares, wanted, root))
        remove = self.remove_vfs_in_use
        return [*providers, partial(sriov_settings, node.run, remove, keep, root)]


def _numbers(option: str, given: Optional[Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: number(f"roce_rails_nic: {option}.{name}", value)
        for name, value in (given or {}).items()
        if value is not None
    }
