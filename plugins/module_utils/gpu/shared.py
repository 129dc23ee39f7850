# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the parts of the stack have in common: the kernel, the services, and what they hand on.

The services have these names on both families and in every branch. The unit of the fabric manager
starts and stops NVLSM as well, where NVLink5 needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional

from ..core import systemd
from ..core.checks import FAILED, PENDING, Check, not_applicable
from ..core.dataclass import dataclass
from ..core.part import Node
from ..hardware import tree
from .reading import FABRIC_MANAGER, PERSISTENCED

DCGM = "nvidia-dcgm.service"
OPENERS = (DCGM, FABRIC_MANAGER, PERSISTENCED)
"""Services that have the GPUs open, in the order in which they are stopped."""
AT_BOOT = ("enabled", "static", "indirect", "generated", "alias", "enabled-runtime")
"""States of unit files that need no enabling, or cannot be enabled."""
NVIDIA = "0x10de"
DISPLAY = "0x03"
"""PCI class of display controllers; those of NVIDIA are GPUs, and its bridges are not."""


def active(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["ActiveState"]).get("ActiveState") == "active"


def at_boot(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["UnitFileState"]).get("UnitFileState") in AT_BOOT


def run(node: Node, argv: Sequence[str]) -> None:
    """As a step: what it printed is of no interest."""
    node.run(argv)


@dataclass(frozen=True)
class Kernel:
    """The kernel that runs. `node_root` answers where `root`, the hardware's, has no such file."""

    root: Path
    node_root: Path = Path("/")

    @property
    def release(self) -> str:
        """`uname -r`."""
        name = "proc/sys/kernel/osrelease"
        return tree.text(self.root / name) or tree.text(self.node_root / name)

    def loaded(self, module: str) -> bool:
        return (self.root / "sys/module" / module).is_dir()

    @property
    def driver(self) -> Optional[str]:
        """Version of the NVIDIA module that runs, or None."""
        if not self.loaded("nvidia"):
            return None
        return tree.text(self.root / "sys/module/nvidia/version") or "unknown"

    @property
    def has_gpus(self) -> bool:
        """Whether a display controller of NVIDIA is on the bus, with a driver or without."""
        devices = self.root / "sys/bus/pci/devices"
        return any(
            tree.text(devices / name / "vendor") == NVIDIA
            and tree.text(devices / name / "class").startswith(DISPLAY)
            for name in tree.names(devices)
        )


@dataclass
class Cause:
    """The first finding that explains later ones, so that one fault is one finding.

    Filled while verifying, in the order of the parts: a driver that is not installed is not built,
    one that is not built does not run, and then no GPU answers.
    """

    name: str = ""

    def look(self, check: Check) -> None:
        if not self.name and check.status in (FAILED, PENDING):
            self.name = f"{check.name} {check.subject}".strip()

    def hides(self, name: str, wanted: object, subject: str = "") -> Check:
        """A check that cannot be made because of it. It has not passed."""
        return not_applicable(name, wanted, f"not read: see {self.name}", subject=subject)


@dataclass
class Shared:
    """`driver` is the set's version. The rest is filled by parts for those after them."""

    kernel: Kernel
    driver: str
    stopped: list[str] = field(default_factory=list)
    """Services that are stopped for a change, and have to start again."""
    reloads: bool = False
    """The kernel module is exchanged, so that the driver of the set will run."""
    without_driver: Cause = field(default_factory=Cause)
    without_cuda: Cause = field(default_factory=Cause)

    @property
    def awaits_reboot(self) -> bool:
        """Whether only a reboot can load the set's driver: another one is there."""
        if self.kernel.driver is None:
            return self.kernel.loaded("nouveau")
        return self.kernel.driver != self.driver

    def stop(self, unit: str) -> None:
        if unit not in self.stopped:
            self.stopped.append(unit)
