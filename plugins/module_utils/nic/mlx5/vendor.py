# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The implementation of `nic/vendor.Vendor` for NICs with the driver mlx5_core."""

from __future__ import annotations

from collections.abc import Mapping

from ...core.checks import Check
from ...hardware.inventory import MLX5_CORE
from ..setting import NicSetting, Provider, RailNic
from ..vendor import HealthRequest, NicOptions
from . import fabric_mode, firmware, health
from .congestion import congestion_settings
from .port import PROGRAMS, Accelerations, CableLength


class Mlx5:
    driver = MLX5_CORE

    def provider(self, options: NicOptions) -> Provider:
        node = options.node
        register_tool = next(filter(options.which, PROGRAMS), None)
        named = options.firmware_parameters
        parameters, firmwares = {}, None
        if options.firmware:
            parameters = firmware.wanted_parameters(options.contract, named)
            tool = next(filter(options.which, firmware.TOOLS), None)
            firmwares = firmware.Firmwares(tool, node.run, node.check_mode)

        def settings(rail: RailNic) -> list[NicSetting]:
            if rail.device is None:
                return []
            settings: list[NicSetting] = [CableLength(rail, options)]
            if options.accelerations:
                settings.append(
                    Accelerations(
                        rail, options.accelerations, node.run, register_tool, node.check_mode
                    )
                )
            settings += congestion_settings(options, rail)
            if firmwares is not None:
                settings += firmware.firmware_settings(
                    firmwares, parameters, named, node.root, rail
                )
                settings += fabric_mode.compared_settings(
                    options.contract, options.lanes, firmwares, named, node.root, rail
                )
            return settings

        return settings

    def counters(self, statistics: Mapping[str, int]) -> dict[str, int]:
        return health.of_port(statistics)

    def health(self, nic: RailNic, request: HealthRequest) -> Check:
        return health.check(
            nic.name,
            request.before,
            request.now,
            request.speed_gbps,
            health.PortReading.of(nic.pci or "-", request.sys, request.node.run, request.which),
            request.limits,
            quiet=request.quiet,
            lossless=request.lossless,
        )


MLX5 = Mlx5()
