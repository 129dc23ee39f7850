# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's NICs: what the driver mlx5_core and the firmware of a ConnectX or BlueField add.

congestion   ECN, DCQCN and the forced traffic class
port         cable length and the register ROCE_ACCL
firmware     parameters of mlxconfig; fabric_mode compares those that are never set
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..setting import NicSetting, Provider, RailNic
from . import fabric_mode, firmware
from .congestion import congestion_settings
from .port import PROGRAMS, Accelerations, CableLength

if TYPE_CHECKING:
    from ..nics import NicOptions

DRIVER = "mlx5_core"


def provider(options: NicOptions) -> Provider:
    """Return the provider of a rail's settings. Raises PlanError for an impossible option."""
    node = options.node
    register_tool = next(filter(options.which, PROGRAMS), None)
    parameters, firmwares = {}, None
    if options.firmware:
        parameters = firmware.wanted_parameters(options.contract, options.firmware_parameters)
        tool = next(filter(options.which, firmware.TOOLS), None)
        firmwares = firmware.Firmwares(tool, node.run, node.check_mode)

    def settings(rail: RailNic) -> list[NicSetting]:
        if rail.device is None:
            return []
        found: list[NicSetting] = []
        if options.contract.pfc_priorities:
            found.append(CableLength(rail, options))
        if options.accelerations:
            found.append(Accelerations(rail, options, register_tool))
        found += congestion_settings(options, rail)
        if firmwares is not None:
            found += firmware.firmware_settings(options, firmwares, parameters, rail)
            found += fabric_mode.compared_settings(options, firmwares, rail)
        return found

    return settings
