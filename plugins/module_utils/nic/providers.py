# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The settings that the module's options ask of a rail's NIC, now and at every boot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Optional

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

OPTIONS = ("qos", "nic", "firmware", "firmware_parameters", "remove_vfs_in_use")
"""Those of the module that matter here; the boot program has them in its file."""
QUICK_S = 10.0
"""Time limit of `dcb`, at each question: it answers at once or never."""
MAX_READ_REQUEST_BYTES = 4096


def providers(
    given: Mapping[str, Any],
    node: Node,
    ethtool: Ethtool,
    which: Callable[[str], Optional[str]],
    keep: Mapping[str, str],
) -> list[Provider]:
    """In the order in which a rail is written. `keep`: interfaces the host is reached by.

    Raises PlanError where an option cannot be.
    """
    qos, nic, root = HostSettings.of(given["qos"]), given["nic"], node.root
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

    found: list[Provider] = [
        nic_settings,
        partial(dcb.qos_settings, qos, dcb.Dcb(node.look) if which(dcb.PROGRAM) else None),
        partial(rdma_settings, qos, node.run, root, congestion_control),
    ]
    if given["firmware"]:
        wanted = firmware.wanted_parameters(qos, given["firmware_parameters"])
        firmwares = firmware.Firmwares(next(filter(which, firmware.TOOLS), None), node.run)
        found.append(partial(firmware.firmware_settings, firmwares, wanted, root))
    return [*found, partial(sriov_settings, node.run, given["remove_vfs_in_use"], keep, root)]


def _numbers(option: str, given: Optional[Mapping[str, Any]]) -> dict[str, int]:
    return {
        name: number(f"roce_rails_nic: {option}.{name}", value)
        for name, value in (given or {}).items()
        if value is not None
    }
