# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Modules that are loaded at boot: gdrdrv with GDRCopy, nvidia_peermem where dma-buf is not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ..checks import OK, REBOOT, Check, compare
from ..dataclass import dataclass
from ..node.part import NAME, Node, Plan, Step, Verdict
from .cause import Cause
from .kernel import Kernel
from .pause import Pause

FILE = f"etc/modules-load.d/90-{NAME}-gpu.conf"
DMABUF_SINCE = (5, 12)
AUTO, PEERMEM = "auto", "peermem"


def needs_peermem(kernel: Kernel, choice: str, open_modules: bool) -> bool:
    """RDMA reaches GPU memory by dma-buf, with the open modules and a kernel that has it."""
    if choice == AUTO:
        return not open_modules or kernel.version < DMABUF_SINCE
    return choice == PEERMEM


@dataclass(frozen=True)
class BootModules:
    kernel: Kernel
    modules: Sequence[str]
    driver: str
    """Version of the set: they are loaded on top of it, and of no other."""
    pause: Pause
    cause: Cause

    def plan(self, node: Node) -> Plan:
        body = "".join(f"{module}\n" for module in self.modules)
        file = node.file(FILE, body or None)
        steps = []
        for module in self.modules:
            loaded = self.kernel.loaded(module)
            if self.pause.reloads or not (loaded or self.kernel.awaits_reboot(self.driver)):
                before = "unloaded with the driver" if loaded else "not loaded"
                act = partial(self._load, node, module)
                steps.append(Step(f"kernel module {module}", before, "loaded", act))
        return Plan([file], steps)

    def verify(self, node: Node) -> Verdict:
        return Verdict([self._check(node, module) for module in self.modules])

    def _check(self, node: Node, module: str) -> Check:
        if self.kernel.loaded(module):
            return Check("kernel_module", "loaded", "loaded", OK, module)
        if self.cause.name:
            return self.cause.hides("kernel_module", "loaded", module)
        if self.kernel.awaits_reboot(self.driver):
            why = "loaded with the driver of the set, at the next boot"
            return Check("kernel_module", "loaded", "not loaded", REBOOT, module, why)
        return compare(
            "kernel_module",
            "loaded",
            "not loaded",
            subject=module,
            check_mode=node.check_mode,
            reason=f"modprobe {module} says why",
        )

    def _load(self, node: Node, module: str) -> None:
        if self.kernel.driver == self.driver and not self.kernel.loaded(module):
            node.run(["modprobe", module])
