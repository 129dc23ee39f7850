# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel that runs, read through a root: `/`, or a tree that stands in for hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ..dataclass import dataclass
from ..hardware import tree

NVIDIA = "0x10de"
DISPLAY = "0x03"
"""PCI class of display controllers; those of NVIDIA are GPUs, and its bridges are not."""
OPEN = "Open Kernel Module"
"""How /proc/driver/nvidia/version calls the open modules."""


@dataclass(frozen=True)
class Kernel:
    """What the node's kernel says. `node_root` answers where the root has no such file."""

    root: Path
    node_root: Path = Path("/")

    @property
    def stands_in(self) -> bool:
        """Whether the root is a tree that somebody brought, and not this machine's own."""
        return self.root != self.node_root

    @property
    def release(self) -> str:
        """`uname -r`."""
        name = "proc/sys/kernel/osrelease"
        return tree.text(self.root / name) or tree.text(self.node_root / name)

    @property
    def version(self) -> tuple[int, int]:
        """Of the kernel: (6, 8)."""
        first, _dot, rest = self.release.partition(".")
        second = rest.split(".")[0].split("-")[0]
        return (int(first), int(second)) if first.isdigit() and second.isdigit() else (0, 0)

    def loaded(self, module: str) -> bool:
        return (self.root / "sys/module" / module).is_dir()

    @property
    def driver(self) -> Optional[str]:
        """Version of the NVIDIA module that runs, or None."""
        if not self.loaded("nvidia"):
            return None
        return tree.text(self.root / "sys/module/nvidia/version") or "unknown"

    @property
    def driver_is_open(self) -> Optional[bool]:
        """Whether that is the open one; None when none runs, or it does not say."""
        text = tree.text(self.root / "proc/driver/nvidia/version")
        return OPEN in text if text else None

    def awaits_reboot(self, version: str) -> bool:
        """Whether a driver of this version can only be loaded by a reboot: another one is there."""
        if self.driver is None:
            return self.loaded("nouveau")
        return self.driver != version

    def gpus(self) -> list[str]:
        """PCI addresses of NVIDIA's display controllers, whether a driver has them or not."""
        devices = self.root / "sys/bus/pci/devices"
        return [
            name
            for name in tree.names(devices)
            if tree.text(devices / name / "vendor") == NVIDIA
            and tree.text(devices / name / "class").startswith(DISPLAY)
        ]
