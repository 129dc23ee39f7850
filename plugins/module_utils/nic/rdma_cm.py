# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Defaults of RDMA-CM, kept by the kernel for every RDMA device: RoCE version and traffic class."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

from ..core.commands import Runner
from ..hardware import RdmaDevice
from ..qos import HostSettings
from .setting import NicSetting, RailNic, Reading

ROCE_V2 = "RoCE v2"
MODE, TOS = "default_roce_mode", "default_roce_tos"


def rdma_cm_settings(
    contract: HostSettings, run: Runner, root: Path, rail: RailNic
) -> list[NicSetting]:
    """Return the settings of a rail. A device shared by planes is set with the first plane."""
    if rail.device is None or rail.shared:
        return []
    return [
        RdmaCmDefault(rail.device, run, root, "roce_mode", MODE, ROCE_V2),
        RdmaCmDefault(rail.device, run, root, "cma_roce_tos", TOS, contract.traffic_class),
    ]


class RdmaCmDefault(NicSetting):
    """One default of RDMA-CM for connections over a device, as `cma_roce_mode` sets it.

    A device is visible in configfs while its directory exists. The values belong to the device, not
    to the directory, which is created for each access and then removed.
    """

    def __init__(
        self,
        device: RdmaDevice,
        run: Runner,
        root: Path,
        name: str,
        file: str,
        wanted: Union[str, int],
    ) -> None:
        self.name = name
        self.wanted = wanted
        self._run = run
        self._folder = root / "sys/kernel/config/rdma_cm" / device.name
        self._file = self._folder / "ports" / str(device.port) / file

    def read(self) -> Reading:
        # A module that is not loaded does not mean missing support: `set` loads it.
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
