# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The RDMA stack of a node: drivers and tools of the set, and host settings that RDMA needs.

packages     the set's packages, and a change of their source
drivers      kernel, drivers and modules: running versus installed; users of RDMA; Secure Boot
acs          redirection between GPUs and NICs; a separate program that also runs at boot
pcie         IOMMU and ACS: kernel arguments and groups; the program, its unit, the registers
devices      RDMA device, link layer and firmware of every rail; programs that must respond

All of them read the hardware of this machine, or of a recorded one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..core.checks import differs
from ..core.part import Node, Plan
from ..hardware import Machine, survey
from ..hardware import tree as sysfs

THIS = Path("/")
RELEASE = "proc/sys/kernel/osrelease"


@dataclass
class Hardware:
    """The machine shared by all resources of this layer. `root` contains `sys`."""

    root: Path = THIS
    simulated: bool = False
    """Whether `root` is not the root of the node."""
    changing: bool = False
    """Whether packages are about to change, which may add missing devices and drivers."""
    notes: list[str] = field(default_factory=list)
    """Simulated devices and programs."""

    @cached_property
    def machine(self) -> Machine:
        """The machine as first read. Raises SurveyError."""
        return survey(self.root / "sys")

    def again(self) -> Machine:
        self.__dict__.pop("machine", None)
        return self.machine

    def release(self, node: Node) -> str:
        return sysfs.text(self.root / RELEASE) or sysfs.text(node.path(RELEASE))

    @property
    def modules(self) -> frozenset[str]:
        """Kernel modules that are loaded, or built in with parameters."""
        return frozenset(sysfs.names(self.root / "sys/module"))

    def missing(self, node: Node, what: str = "") -> str:
        """Why `what` does not apply to this node; simulated hardware has its own modprobe."""
        return "" if node.container is None or self.simulated else node.not_here(what)

    def wrong(self, node: Node) -> str:
        """Status of a fault that a change of packages may still fix."""
        return differs(node.check_mode and self.changing)


@dataclass(frozen=True)
class Reads:
    """A part that changes nothing."""

    hardware: Hardware

    def plan(self, node: Node) -> Plan:
        return Plan()
