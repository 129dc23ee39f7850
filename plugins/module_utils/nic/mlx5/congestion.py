# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Congestion control and the forced traffic class of mlx5, through files of its drivers.

DOCA-OFED has them in sysfs, the in-tree driver in debugfs; some exist only in firmware.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.checks import FAILED, NOT_APPLICABLE
from ...hardware import RdmaDevice
from ...qos import SPECTRUM_X
from ..dcb import EIGHT
from ..setting import SOFTWARE_REASON, NicSetting, RailNic, Reading

if TYPE_CHECKING:
    from ..nics import NicOptions


def in_tree_name(parameter: str) -> str:
    """Return the in-tree driver's name of a parameter that DOCA-OFED calls `roce_rp/rpg_ai_rate`.

    The in-tree driver calls it `rp_ai_rate`.
    """
    point, _slash, name = parameter.partition("/")
    short = {
        "cnp_802p_prio": "cnp_prio",
        "clamp_tgt_rate_after_time_inc": "clamp_tgt_rate_ati",
    }.get(name, name.removeprefix("rpg_"))
    return f"{point.removeprefix('roce_')}_{short}"


def congestion_settings(options: NicOptions, rail: RailNic) -> list[NicSetting]:
    """Return the settings of an RDMA device; those of a shared device are set with its first
    function.

    There they apply to all planes (nic-configuration-operator 632f1295).
    """
    if rail.device is None or rail.shared:
        return []
    contract, root = options.contract, options.node.root
    settings: list[NicSetting] = []
    if {contract.service_level}.issuperset(contract.pfc_priorities):
        # It would move the data of another lossless class to that of RoCE.
        settings.append(ForcedTrafficClass(rail, rail.device, contract.traffic_class, root))
    if contract.fabric_mode == SPECTRUM_X:
        return settings
    parameters = {
        "cnp_dscp": ("roce_np/cnp_dscp", contract.cnp_dscp),
        "cnp_priority": ("roce_np/cnp_802p_prio", contract.cnp_priority),
    }
    for name, value in options.congestion_control.items():
        parameters[name.replace("/", "_")] = (name, value)
    return [
        *settings,
        EcnPoint(rail, "ecn_np", "roce_np", contract.ecn_priorities, root),
        EcnPoint(rail, "ecn_rp", "roce_rp", contract.ecn_priorities, root),
        *(CongestionParameter(rail, name, *of, root) for name, of in parameters.items()),
    ]


class _FileSetting(NicSetting):
    """A setting that is a file of the driver; unsupported on Soft-RoCE."""

    otherwise = ""
    """Alternative that fulfils the promise where the in-tree driver has no such file."""

    def __init__(self, name: str, wanted: Any, path: Path, rail: RailNic, root: Path) -> None:
        self.name, self.wanted, self.path = name, wanted, path
        self._real = rail.physical
        # The in-tree module has no version file.
        self._doca = (root / "sys/module/mlx5_core/version").exists()

    def read(self) -> Reading:
        if not self._real:
            return Reading(None, SOFTWARE_REASON, FAILED)
        if self.path.exists():
            return self.found()
        if self._doca or not self.otherwise:
            doca = " although DOCA-OFED is installed" if self._doca else ""
            return Reading(None, f"{self.path} is missing{doca}", FAILED)
        return Reading(None, self.otherwise, NOT_APPLICABLE)

    @abstractmethod
    def found(self) -> Reading: ...

    def set(self, value: Any) -> None:
        self.path.write_text(f"{value}\n", encoding="ascii")


class ForcedTrafficClass(_FileSetting):
    """The traffic class forced on every connection, whatever its application requests."""

    _GLOBAL = re.compile(r"^Global tclass=(\d+)", re.M)
    otherwise = (
        "the in-tree driver forces no traffic class: RDMA-CM has its default "
        "(cma_roce_tos), UCX and NCCL their environment"
    )

    def __init__(self, rail: RailNic, device: RdmaDevice, wanted: int, root: Path) -> None:
        tc = root / "sys/class/infiniband" / device.name / "tc"
        path = tc / str(device.port) / "traffic_class"
        super().__init__("traffic_class", wanted, path, rail, root)

    def found(self) -> Reading:
        match = self._GLOBAL.search(self.path.read_text(encoding="ascii"))
        return Reading(int(match[1]) if match else None)

    def set(self, value: Any) -> None:
        super().set("tclass=-1" if value is None else value)


class EcnPoint(_FileSetting):
    """Whether the NIC reports ECN marks (notification point) and slows down (reaction point)."""

    otherwise = "the in-tree driver has no switch for ECN: firmware has it (ROCE_CC_PRIO_MASK_P1)"

    def __init__(
        self, rail: RailNic, name: str, point: str, priorities: Sequence[int], root: Path
    ) -> None:
        path = root / "sys/class/net" / rail.interface / "ecn" / point / "enable"
        super().__init__(name, sorted(priorities), path, rail, root)

    def found(self) -> Reading:
        enabled = [
            priority
            for priority in range(EIGHT)
            if (self.path / str(priority)).read_text(encoding="ascii").strip() == "1"
        ]
        # Other priorities may be enabled, as their packets are not marked. The notification point
        # is a single switch per port, exposed as eight files.
        return Reading([each for each in enabled if each in self.wanted or not self.wanted])

    def set(self, value: Any) -> None:
        for priority in self.wanted or range(EIGHT):
            text = "1\n" if priority in value else "0\n"
            (self.path / str(priority)).write_text(text, encoding="ascii")


class CongestionParameter(_FileSetting):
    """A number in DOCA-OFED's sysfs or in the in-tree driver's debugfs."""

    def __init__(self, rail: RailNic, name: str, parameter: str, wanted: int, root: Path) -> None:
        path = root / "sys/class/net" / rail.interface / "ecn" / parameter
        if rail.pci and not path.exists():
            folder = root / "sys/kernel/debug/mlx5" / rail.pci / "cc_params"
            in_tree = folder / in_tree_name(parameter)
            path = in_tree if in_tree.exists() else path
        super().__init__(name, wanted, path, rail, root)
        firmware = {"cnp_dscp": "CNP_DSCP_P1", "cnp_priority": "CNP_802P_PRIO_P1"}.get(name)
        if firmware:
            self.otherwise = f"the in-tree driver does not show it: firmware's {firmware} holds"

    def found(self) -> Reading:
        try:
            return Reading(int(self.path.read_text(encoding="ascii").split()[0], 0))
        except PermissionError:
            if "debug" not in self.path.parts:
                raise
            # Kernel lockdown, which Secure Boot enables, closes debugfs to root.
            reason = f"{self.path} cannot be read: kernel lockdown (Secure Boot)"
            if self.otherwise:
                return Reading(None, f"{reason}; {self.otherwise}", NOT_APPLICABLE)
            remedy = "remove it from roce_rails_nic.congestion_control"
            return Reading(None, f"{reason}; {remedy}", FAILED)
