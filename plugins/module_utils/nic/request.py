# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the rails of one host are to be set to, as it is given and as the next boot is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Optional

from ..core.commands import Runner, find_program
from ..core.dataclass import dataclass
from ..qos import HostSettings
from . import dcb, mlnx_qos
from .dcb_state import QosTool
from .ethtool import Ethtool, KernelEthtool
from .firmware import FirmwareProvider, read_parameters, wanted_parameters
from .firmware_device import Firmwares
from .firmware_tool import TOOLS as FIRMWARE_TOOLS
from .nic_settings import NicSettings
from .options import NicOptions, read_options
from .qos_settings import QosSettings
from .rdma_cm import RdmaCm
from .rdma_settings import RdmaSettings
from .registers import PROGRAMS, Registers
from .setting import Provider
from .sriov import VirtualFunctionsProvider

Which = Callable[[str], Optional[str]]

QUICK_S = 10.0
"""How long a QoS program is waited for, at each question."""


@dataclass(frozen=True)
class Host:
    """What settings are read and written with; tests bring their own."""

    run: Runner
    root: Path = Path("/")
    ethtool: Ethtool = field(default_factory=KernelEthtool)
    which: Which = find_program
    uid: int = 0
    gid: int = 0
    quick: Optional[Runner] = None
    """The same as `run` with less patience, for programs that answer at once or never."""


@dataclass(frozen=True)
class Request:
    """The settings of all rails of one host."""

    qos: HostSettings
    nic: Mapping[str, Any] = field(default_factory=dict)
    """As it was given; `options` is what it means."""
    options: NicOptions = field(default_factory=NicOptions)
    firmware: bool = True
    firmware_parameters: Mapping[str, Optional[int]] = field(default_factory=dict)
    remove_vfs_in_use: bool = False

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Request:
        """Raises OptionsError or ParameterError, each with all that is wrong."""
        nic = given.get("nic") or {}
        return cls(
            qos=HostSettings.of(given["qos"]),
            nic=dict(nic),
            options=read_options(nic),
            firmware=bool(given.get("firmware", True)),
            firmware_parameters=read_parameters(given.get("firmware_parameters") or {}),
            remove_vfs_in_use=bool(given.get("remove_vfs_in_use", False)),
        )

    def as_variable(self) -> dict[str, Any]:
        """Plain JSON that `read` makes the same request of."""
        return {
            "qos": self.qos.as_variable(),
            "nic": dict(self.nic),
            "firmware": self.firmware,
            "firmware_parameters": dict(self.firmware_parameters),
            "remove_vfs_in_use": self.remove_vfs_in_use,
        }

    def providers(
        self, host: Host, keep: Mapping[str, str] = MappingProxyType({})
    ) -> list[Provider]:
        """In the order in which a rail is written. `keep`: what this host is reached by."""
        tool, missing = _qos_tool(host)
        registers = Registers(host.run, next(filter(host.which, PROGRAMS), None))
        providers: list[Provider] = [
            NicSettings(self.options, host.ethtool, registers, host.root),
            QosSettings(self.qos, tool, missing),
            RdmaSettings(
                self.qos, RdmaCm(host.run, host.root), host.root, self.options.congestion_control
            ),
        ]
        if self.firmware:
            parameters = wanted_parameters(self.qos, self.firmware_parameters)
            from_tool = next(filter(host.which, FIRMWARE_TOOLS), None)
            providers.append(
                FirmwareProvider(Firmwares(from_tool, host.run), parameters, host.root)
            )
        providers.append(
            VirtualFunctionsProvider(
                host.run, remove_in_use=self.remove_vfs_in_use, keep=keep, root=host.root
            )
        )
        return providers


def _qos_tool(host: Host) -> tuple[Optional[QosTool], str]:
    """DOCA-OFED's tool where it is, for it knows its own driver; else iproute2's."""
    if host.which(mlnx_qos.PROGRAM):
        return mlnx_qos.MlnxQos(host.quick or host.run), ""
    if host.which(dcb.PROGRAM):
        return dcb.Dcb(host.quick or host.run), ""
    return None, (
        f"neither {dcb.PROGRAM} nor {mlnx_qos.PROGRAM} is installed: install {dcb.PACKAGE}, or "
        f"{mlnx_qos.PACKAGE} of DOCA-OFED"
    )
