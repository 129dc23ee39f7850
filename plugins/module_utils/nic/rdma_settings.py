# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""RoCE itself: version, traffic class, ECN and congestion notifications, through files."""

from __future__ import annotations

import contextlib
import re
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from ..core.commands import Runner
from ..qos import SPECTRUM_X, HostSettings
from .dcb import EIGHT
from .setting import MLX5, SOFTWARE_REASON, Rail, Reading, Setting

ROCE_V2 = "RoCE v2"
MODE, TOS = "default_roce_mode", "default_roce_tos"


def in_tree_name(parameter: str) -> str:
    """A parameter of congestion control as the in-tree driver calls it: `rp_ai_rate`.

    DOCA-OFED calls it `roce_rp/rpg_ai_rate`.
    """
    point, _slash, name = parameter.partition("/")
    short = {
        "cnp_802p_prio": "cnp_prio",
        "clamp_tgt_rate_after_time_inc": "clamp_tgt_rate_ati",
    }.get(name, name.removeprefix("rpg_"))
    return f"{point.removeprefix('roce_')}_{short}"


def rdma_settings(
    contract: HostSettings,
    run: Runner,
    root: Path,
    congestion_control: Mapping[str, int],
    rail: Rail,
) -> list[Setting]:
    """What RDMA-CM, the RDMA device and congestion control of a rail are set to.

    `congestion_control` are further parameters, by their names in DOCA-OFED. A device that planes
    share is set with the first; there it holds for all (nic-configuration-operator 632f1295).
    """
    if rail.device is None or rail.shared:
        return []
    settings: list[Setting] = [
        RdmaCmDefault(rail, run, root, "roce_mode", MODE, ROCE_V2),
        RdmaCmDefault(rail, run, root, "cma_roce_tos", TOS, contract.traffic_class),
        TrafficClass(rail, contract.traffic_class, root),
    ]
    if contract.fabric_mode == SPECTRUM_X:
        return settings
    settings += [
        EcnPoint(rail, "ecn_np", "roce_np", contract.ecn_priorities, root),
        EcnPoint(rail, "ecn_rp", "roce_rp", contract.ecn_priorities, root),
        Parameter(rail, "cnp_dscp", "roce_np/cnp_dscp", contract.cnp_dscp, root),
        Parameter(rail, "cnp_priority", "roce_np/cnp_802p_prio", contract.cnp_priority, root),
    ]
    for name, value in congestion_control.items():
        settings.append(Parameter(rail, name.replace("/", "_"), name, value, root))
    return settings


def of_device(rail: Rail) -> tuple[str, int]:
    """RDMA device and port; providers are asked for rails that have one."""
    if rail.device is None:
        raise ValueError(f"{rail.name} has no RDMA device")
    return rail.device.name, rail.device.port


def no_congestion_control(rail: Rail) -> str:
    """Why nothing is known of this device's congestion control; empty for a ConnectX."""
    if not rail.physical:
        return SOFTWARE_REASON
    if rail.driver != MLX5:
        return f"its driver is {rail.driver}; congestion control is known of {MLX5} only"
    return ""


class RdmaCmDefault(Setting):
    """One default of RDMA-CM for connections over this device, as `cma_roce_mode` sets it.

    A device appears in configfs once its folder is made. The values belong to the device and not
    to the folder, so it is made to look and removed again.
    """

    def __init__(
        self, rail: Rail, run: Runner, root: Path, name: str, file: str, wanted: Union[str, int]
    ) -> None:
        self.name = name
        self.wanted = wanted
        self._run = run
        device, port = of_device(rail)
        self._folder = root / "sys/kernel/config/rdma_cm" / device
        self._file = self._folder / "ports" / str(port) / file

    def read(self) -> Reading:
        # Not loaded is not unsupported: writing loads it.
        if not self._folder.parent.is_dir():
            return Reading(None)
        with self._shown():
            text = self._file.read_text(encoding="ascii").strip()
        return Reading(int(text) if isinstance(self.wanted, int) else text)

    def set(self, value: Any) -> None:
        if value is None:
            return
        if not self._folder.parent.is_dir():
            self._run(("modprobe", "rdma_cm"))
        with self._shown():
            self._file.write_text(f"{value}\n", encoding="ascii")

    @contextlib.contextmanager
    def _shown(self) -> Iterator[None]:
        made = not self._folder.is_dir()
        if made:
            self._folder.mkdir()
        try:
            yield
        finally:
            if made:
                self._folder.rmdir()


class _FileSetting(Setting):
    """A setting that is a file of the kernel's, on a ConnectX alone."""

    otherwise = ""
    """What keeps the promise where the in-tree driver has no such file."""

    def __init__(self, name: str, wanted: Any, path: Path, unsupported: str, root: Path) -> None:
        self.name = name
        self.wanted = wanted
        self.path = path
        self._unsupported = unsupported
        # The in-tree module has no version of its own.
        self._doca = (root / "sys/module/mlx5_core/version").exists()

    def read(self) -> Reading:
        if self._unsupported:
            return Reading.unsupported(self._unsupported)
        if self.path.exists():
            return self.found()
        if self._doca or not self.otherwise:
            doca = " although DOCA-OFED is there" if self._doca else ""
            return Reading.unsupported(f"{self.path} is missing{doca}")
        return Reading.kept_otherwise(self.otherwise)

    @abstractmethod
    def found(self) -> Reading: ...

    def set(self, value: Any) -> None:
        self.path.write_text(f"{value}\n", encoding="ascii")


class TrafficClass(_FileSetting):
    """The traffic class of every connection, whatever its application asks for."""

    _GLOBAL = re.compile(r"^Global tclass=(\d+)", re.M)
    otherwise = (
        "the in-tree driver forces no traffic class: RDMA-CM has its default "
        "(cma_roce_tos), UCX and NCCL their environment"
    )

    def __init__(self, rail: Rail, wanted: int, root: Path) -> None:
        device, port = of_device(rail)
        path = root / "sys/class/infiniband" / device / "tc" / str(port) / "traffic_class"
        unsupported = "" if rail.physical else SOFTWARE_REASON
        super().__init__("traffic_class", wanted, path, unsupported, root)

    def found(self) -> Reading:
        match = self._GLOBAL.search(self.path.read_text(encoding="ascii"))
        return Reading(int(match[1]) if match else None)

    def set(self, value: Any) -> None:
        super().set("tclass=-1" if value is None else value)


class EcnPoint(_FileSetting):
    """Whether the NIC notifies of marks (notification point) and slows down (reaction point)."""

    otherwise = "the in-tree driver has no switch for ECN: firmware has it (ROCE_CC_PRIO_MASK_P1)"

    def __init__(
        self, rail: Rail, name: str, point: str, priorities: Sequence[int], root: Path
    ) -> None:
        path = root / "sys/class/net" / rail.interface / "ecn" / point / "enable"
        super().__init__(name, sorted(priorities), path, no_congestion_control(rail), root)

    def found(self) -> Reading:
        enabled = [
            priority
            for priority in range(EIGHT)
            if (self.path / str(priority)).read_text(encoding="ascii").strip() == "1"
        ]
        # Enabled on more than the contract's harms nothing: nothing else there is marked. The
        # notification point is one switch for the whole port, seen as eight files.
        return Reading([each for each in enabled if each in self.wanted or not self.wanted])

    def set(self, value: Any) -> None:
        for priority in self.wanted or range(EIGHT):
            text = "1\n" if priority in value else "0\n"
            (self.path / str(priority)).write_text(text, encoding="ascii")


class Parameter(_FileSetting):
    """One number of congestion control: DOCA-OFED's sysfs, or the in-tree driver's debugfs."""

    def __init__(self, rail: Rail, name: str, parameter: str, wanted: int, root: Path) -> None:
        path = root / "sys/class/net" / rail.interface / "ecn" / parameter
        if rail.pci and not path.exists():
            folder = root / "sys/kernel/debug/mlx5" / rail.pci / "cc_params"
            in_tree = folder / in_tree_name(parameter)
            path = in_tree if in_tree.exists() else path
        super().__init__(name, wanted, path, no_congestion_control(rail), root)
        firmware = {"cnp_dscp": "CNP_DSCP_P1", "cnp_priority": "CNP_802P_PRIO_P1"}.get(name)
        if firmware:
            self.otherwise = f"the in-tree driver does not show it: firmware's {firmware} holds"

    def found(self) -> Reading:
        try:
            return Reading(int(self.path.read_text(encoding="ascii").split()[0], 0))
        except PermissionError:
            if "debug" not in self.path.parts:
                raise
            # The kernel closes debugfs to root where it is locked down, as Secure Boot has it.
            why = f"{self.path} cannot be read: kernel lockdown (Secure Boot)"
            if self.otherwise:
                return Reading.kept_otherwise(f"{why}; {self.otherwise}")
            return Reading.unsupported(
                f"{why}. Leave it out of roce_rails_nic.congestion_control, or turn Secure Boot off"
            )
