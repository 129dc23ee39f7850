# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node: drivers and tools of the set, and what RDMA needs of the host.

packages     the set's packages, by the package engine; a change of source
drivers      kernel, drivers and modules that run beside those installed; who uses RDMA; Secure Boot
acs          redirection between GPUs and NICs; a program of its own, which also runs at boot
pcie         IOMMU and ACS: kernel arguments and groups; that program, its unit and the registers
devices      the RDMA device, link layer and firmware of every rail; programs that have to answer

All of them read the hardware of this machine, or of a recorded one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..core.checks import differs
from ..core.part import Node
from ..hardware import Machine, survey
from ..hardware import tree as sysfs
from ..hardware.inventory import MELLANOX

THIS = Path("/")
RELEASE = "proc/sys/kernel/osrelease"


@dataclass
class Hardware:
    """`root` holds `sys`. What all parts of this layer know of the machine."""

    root: Path = THIS
    simulated: bool = False
    """Whether it is not the root of the node."""
    changing: bool = False
    """Whether packages are about to change: what is missing may come with them."""
    notes: list[str] = field(default_factory=list)
    """What turned out to be simulated."""

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
        """Kernel modules that are loaded, or built in with parameters."""
        return frozenset(sysfs.names(self.root / "sys/module"))

    def missing(self, node: Node, what: str = "") -> str:
        """Why `what` cannot be asked of this node; empty where it can.

        A stand-in for a machine has a modprobe of its own.
        """
        return "" if node.container is None or self.simulated else node.not_here(what)

    def wrong(self, node: Node) -> str:
        """The status of what packages that change may still bring."""
        return differs(node.check_mode and self.changing)
