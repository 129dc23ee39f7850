# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel of the set: the one that drivers are built for has to be the one that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from ..checks import FAILED, OK, PENDING, REBOOT, Check, not_applicable
from ..dataclass import dataclass
from ..hardware import tree as sysfs
from ..node.part import Node, Plan, Verdict
from ..reboots import Reason, outlived
from .hardware import Hardware

CHECK = "kernel_release"
RELEASE = "proc/sys/kernel/osrelease"


def running(hardware: Hardware, node: Node) -> str:
    """`uname -r`, of the machine that is read."""
    return sysfs.text(hardware.root / RELEASE) or sysfs.text(node.path(RELEASE))


@dataclass(frozen=True)
class Kernel:
    """`wanted`: the release of the set; empty, and the one that runs is as good."""

    wanted: str
    hardware: Hardware = field(default_factory=Hardware)
    changing: Callable[[], bool] = lambda: False
    """Whether the plan changes packages: the kernel of the set is one of them."""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        if not self.wanted:
            return Verdict()
        missing = self.hardware.missing(node, "the kernel is the host's")
        if missing:
            return Verdict([not_applicable(CHECK, self.wanted, missing)])
        found = running(self.hardware, node)
        if found == self.wanted:
            return Verdict([Check(CHECK, self.wanted, found, OK)])
        if not node.path(f"lib/modules/{self.wanted}").is_dir():
            reason = (
                f"software.kernel is {self.wanted}, and it is not installed: install it, or write "
                "the release that runs"
            )
            status = PENDING if node.check_mode and self.changing() else FAILED
            return Verdict([Check(CHECK, self.wanted, found, status, "", reason)])
        waits = Reason("kernel", self.wanted, found, "the kernel of the set is installed")
        earlier = outlived(waits, node.rebooted_for, node.boot_id)
        if earlier is None:
            return Verdict([Check(CHECK, self.wanted, found, REBOOT, "", waits.reason)], [waits])
        reason = (
            f"not running although the node was rebooted for it (boot {earlier}): make it the boot "
            "loader's default (grub-set-default, grubby --set-default)"
        )
        return Verdict([Check(CHECK, self.wanted, found, FAILED, "", reason)], [waits])
