# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What RDMA-CM gives connections of its own: configfs, as `cma_roce_mode` and `cma_roce_tos` do.

A device appears there once somebody makes its folder. The values belong to the device and not to
the folder, so it is made to look and removed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ..core.commands import Runner

CONFIGFS = "sys/kernel/config"
MODE, TOS = "default_roce_mode", "default_roce_tos"


class RdmaCm:
    """The defaults of RDMA-CM, per device and port."""

    def __init__(self, run: Runner, root: Path = Path("/")) -> None:
        self._run = run
        self._configfs = root / CONFIGFS
        self._devices = self._configfs / "rdma_cm"

    @property
    def loaded(self) -> bool:
        return self._devices.is_dir()

    def load(self) -> None:
        """Load the module, and mount configfs where nothing did."""
        self._run(("modprobe", "rdma_cm"))
        if not self.loaded and self._configfs.is_dir() and not any(self._configfs.iterdir()):
            self._run(("mount", "-t", "configfs", "configfs", str(self._configfs)))

    def path(self, device: str, port: int, name: str) -> Path:
        return self._devices / device / "ports" / str(port) / name

    def read(self, device: str, port: int, name: str) -> str:
        with self._shown(device):
            return self.path(device, port, name).read_text(encoding="ascii").strip()

    def write(self, device: str, port: int, name: str, value: str) -> None:
        with self._shown(device):
            self.path(device, port, name).write_text(f"{value}\n", encoding="ascii")

    @contextlib.contextmanager
    def _shown(self, device: str) -> Iterator[None]:
        folder = self._devices / device
        made = not folder.is_dir()
        if made:
            folder.mkdir()
        try:
            yield
        finally:
            if made:
                folder.rmdir()
