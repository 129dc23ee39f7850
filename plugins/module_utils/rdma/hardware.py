# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where a machine's hardware is read: `/`, or a root directory that brings a recorded one."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from ..core.dataclass import dataclass
from ..core.machine import IN_CONTAINER
from ..core.part import Node
from ..hardware import Machine, survey
from ..hardware import tree as sysfs
from ..hardware.inventory import MELLANOX

THIS = Path("/")
RELEASE = "proc/sys/kernel/osrelease"


@dataclass
class Hardware:
    """`root` holds `sys`. `simulated`: it is not the root of the node."""

    root: Path = THIS
    simulated: bool = False

    @cached_property
    def machine(self) -> Machine:
        """As first read. Raises SurveyError."""
        return survey(self.root / "sys")

    def again(self) -> Machine:
        """The machine as it is now."""
        self.__dict__.pop("machine", None)
        return self.machine

    def release(self, node: Node) -> str:
        """`uname -r`, of the machine that is read."""
        return sysfs.text(self.root / RELEASE) or sysfs.text(node.path(RELEASE))

    @property
    def nvidia_nics(self) -> bool:
        """Whether there is any NIC that mlx5 drivers are for."""
        return any(each.vendor == MELLANOX for each in self.machine.functions.values())

    @property
    def modules(self) -> frozenset[str]:
        """Kernel modules that are loaded, or built in with something to say."""
        return frozenset(sysfs.names(self.root / "sys/module"))

    def missing(self, node: Node, what: str = "") -> str:
        """Why `what` cannot be asked of this node; empty where it can.

        A stand-in for a machine has a modprobe of its own.
        """
        if node.container is None or self.simulated:
            return ""
        return f"{IN_CONTAINER} ({node.container}): {what}"
