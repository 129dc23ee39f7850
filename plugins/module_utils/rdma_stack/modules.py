# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel modules of RDMA that no device asks for by itself: loaded now, and at every boot.

The NVLink fabric of B200 and B300 needs ib_umad, and so does every tool that sends management
packets; rdma_ucm is what connections by address need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from ..checks import Check, compare, not_applicable
from ..dataclass import dataclass
from ..node.part import NAME, Node, Plan, Step, Verdict
from .hardware import Hardware

FILE = f"etc/modules-load.d/{NAME}-rdma.conf"
OF_NVIDIA_NICS = frozenset({"mlx5_core", "mlx5_ib"})
"""Drivers of one vendor's NICs: without such a NIC they would do nothing."""
LOADED, NOT_LOADED = "loaded", "not loaded"


def sysfs_name(module: str) -> str:
    """As /sys/module has it: modprobe takes dashes and underscores for the same."""
    return module.replace("-", "_")


@dataclass(frozen=True)
class Modules:
    names: Sequence[str]
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        if self.hardware.missing(node, ""):
            return Plan()
        names = self._wanted()
        body = "".join(f"{name}\n" for name in names) if names else None
        path = node.path(FILE)
        files = [node.file(FILE, body)] if body is not None or path.exists() else []
        steps = [
            Step(f"kernel module {name}", NOT_LOADED, LOADED, self._load(node, name))
            for name in names
            if self.hardware.changeable(node) and sysfs_name(name) not in self.hardware.modules
        ]
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.hardware.missing(node, "modules are loaded into the host's kernel")
        return Verdict([self._check(node, name, missing) for name in self.names])

    def _wanted(self) -> list[str]:
        return [name for name in self.names if not self._pointless(name)]

    def _pointless(self, name: str) -> bool:
        return sysfs_name(name) in OF_NVIDIA_NICS and not self.hardware.nvidia_nics

    def _check(self, node: Node, name: str, missing: str) -> Check:
        if missing:
            return not_applicable("rdma_module", LOADED, missing, subject=name)
        if self._pointless(name):
            why = "no NIC of this machine has that driver"
            return not_applicable("rdma_module", LOADED, why, subject=name)
        found = LOADED if sysfs_name(name) in self.hardware.modules else NOT_LOADED
        return compare(
            "rdma_module",
            LOADED,
            found,
            subject=name,
            check_mode=node.check_mode and self.hardware.changeable(node),
            reason=f"see what modprobe {name} says, and dmesg. Where there is no such module, the "
            "kernel lacks its extra modules, or the drivers were built for another kernel",
        )

    def _load(self, node: Node, name: str) -> Callable[[], None]:
        def act() -> None:
            node.run(["modprobe", "--", name])

        return act
