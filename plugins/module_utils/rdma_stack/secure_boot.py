# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the kernel would load the drivers that DKMS builds of DOCA-OFED.

If not, the node comes back from its next reboot without mlx5_core: without rails, and without
network at all where that is on such a NIC. So this is asked before a package changes.
"""

from __future__ import annotations

from dataclasses import field

from ..dataclass import dataclass
from ..hardware import tree as sysfs
from ..node import secure_boot
from ..node.part import Node, Plan, PlanError, Verdict
from ..software.software_set import DOCA
from .hardware import Hardware

OUT_OF_TREE = "O"
"""Taint of a module that was not built with its kernel."""


@dataclass(frozen=True)
class SecureBoot:
    source: str
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        if self.source != DOCA or self.hardware.missing(node, "") or self._taken():
            return Plan()
        told = secure_boot.refusal(node, self.hardware.root)
        if told:
            raise PlanError(
                f"DOCA-OFED: {told}; or take the kernel's own drivers (software.rdma.source: "
                "inbox). As it is, no NIC of NVIDIA would have a driver after the next reboot"
            )
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict()

    def _taken(self) -> bool:
        """Whether the kernel has taken such a driver already: signed by whom does not matter."""
        return OUT_OF_TREE in sysfs.text(self.hardware.root / "sys/module/mlx5_core/taint")
