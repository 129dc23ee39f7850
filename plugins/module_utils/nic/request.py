# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The wanted settings of the rails of one host, as the module and the boot unit have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ..core.commands import Runner, find_program
from ..core.dataclass import dataclass
from ..core.part import PlanError
from ..qos import HostSettings
from . import firmware
from .dcb import Dcb, MlnxQos, qos_settings
from .ethtool import Ethtool
from .firmware import Firmwares
from .nic_settings import (
    PROGRAMS,
    SIZES,
    Accelerations,
    LinkPause,
    MaxReadRequest,
    RingSizes,
)
from .rdma_settings import RdmaCm, rdma_settings
from .setting import Provider, Rail, Setting, number
from .sriov import sriov_settings

QUICK_S = 10.0
"""Time limit of a QoS program, at each question."""
MAX_READ_REQUEST_BYTES = 4096


@dataclass(frozen=True)
class Host:
    """What settings are read and written with; tests bring their own."""

    run: Runner
    root: Path = Path("/")
    ethtool: Ethtool = field(default_factory=Ethtool)
    which: Callable[[str], Optional[str]] = find_program
    uid: int = 0
    gid: int = 0
    quick: Optional[Runner] = None
    """The same as `run` with less patience, for programs that answer at once or never."""


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
        self, host: Host, keep: Mapping[str, str] = MappingProxyType({})
    ) -> list[Provider]:
        """In the order in which a rail is written. `keep`: interfaces the host is reached by.

        Raises PlanError where an option cannot be.
        """
        nic = self.nic
        read_request = nic.get("max_read_request_bytes", MAX_READ_REQUEST_BYTES)
        if read_request not in (None, *SIZES):
            raise PlanError(
                f"roce_rails_nic: max_read_request_bytes is {read_request}; expected one of "
                f"{', '.join(map(str, SIZES))}, or null"
            )
        rings = _numbers("rings", nic.get("rings"))
        unknown = rings.keys() - {"rx", "tx"}
        if unknown:
            raise PlanError(f"roce_rails_nic: rings has {', '.join(unknown)}; expected rx and tx")
        accelerations = _numbers("accelerations", nic.get("accelerations"))
        if nic.get("adaptive_routing") is not None:
            accelerations["adaptive_routing_forced_en"] = int(nic["adaptive_routing"])
        congestion_control = {
            f"{point}/{name}": value
            for point, values in (nic.get("congestion_control") or {}).items()
            for name, value in _numbers(f"congestion_control.{point}", values).items()
        }
        # DOCA-OFED's tool where it is, for it supports its own driver; else iproute2's.
        tools = [tool for tool in (MlnxQos, Dcb) if host.which(tool.name)]
        tool = tools[0](host.quick or host.run) if tools else None
        rdma_cm = RdmaCm(host.run, host.root)
        register = next(filter(host.which, PROGRAMS), None)

        def nic_settings(rail: Rail) -> list[Setting]:
            if rail.device is None:
                return []
            # Pause first: a port cannot have both, and PFC is written after it.
            settings: list[Setting] = [LinkPause(rail, host.ethtool)]
            if read_request is not None:
                settings.append(MaxReadRequest(rail, read_request, host.root))
            if rings:
                settings.append(RingSizes(rail, rings, host.ethtool))
            if accelerations:
                settings.append(Accelerations(rail, accelerations, host.run, register))
            return settings

        providers: list[Provider] = [
            nic_settings,
            partial(qos_settings, self.qos, tool),
            partial(rdma_settings, self.qos, rdma_cm, host.root, congestion_control),
        ]
        if self.firmware:
            wanted = firmware.wanted_parameters(self.qos, self.firmware_parameters)
            firmwares = Firmwares(next(filter(host.which, firmware.TOOLS), None), host.run)
            providers.append(partial(firmware.firmware_settings, firmwares, wanted, host.root))
        remove = self.remove_vfs_in_use
        return [*providers, partial(sriov_settings, host.run, remove, keep, host.root)]


def _numbers(option: str, given: Optional[Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: number(f"roce_rails_nic: {option}.{name}", value)
        for name, value in (given or {}).items()
        if value is not None
    }
