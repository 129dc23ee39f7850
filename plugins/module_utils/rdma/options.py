# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, with every mistake named at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ..core import secure_boot
from ..core.checks import Check, compare, not_applicable
from ..core.dataclass import dataclass
from ..core.part import NAME, Node, Part, Plan, PlanError, Step, Verdict
from ..hardware import tree as sysfs
from ..os_baseline.kernel_cmdline import KernelArguments
from ..packages.package import Manager, PackageSet
from ..software.software_set import DOCA, NO_RDMA, SoftwareSet
from . import pcie
from .devices import Devices, Tools
from .drivers import Drivers, Kernel
from .hardware import Hardware
from .packages import Packages

# Whether the kernel would load the drivers that DKMS builds of DOCA-OFED.
#
# If not, the node comes back from its next reboot without mlx5_core: without rails, and without
# network at all where that is on such a NIC. So this is asked before a package changes.

OUT_OF_TREE = "O"
"""Taint of a module that was not built with its kernel."""


@dataclass(frozen=True)
class SecureBoot:
    source: str
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        if self.source != DOCA or self.hardware.missing(node) or self._taken():
            return Plan()
        told = secure_boot.refusal(node, self.hardware.root)
        if told:
            raise PlanError(
                f"DOCA-OFED: {told}; or use the kernel's own drivers (software.rdma.source: "
                "inbox). Otherwise no NVIDIA NIC has a driver after the next reboot"
            )
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict()

    def _taken(self) -> bool:
        """Whether the kernel has taken such a driver already: signed by whom does not matter."""
        return OUT_OF_TREE in sysfs.text(self.hardware.root / "sys/module/mlx5_core/taint")


# Kernel modules of RDMA that no device asks for by itself: loaded now, and at every boot.
#
# The NVLink fabric of B200 and B300 needs ib_umad, and so does every tool that sends management
# packets; rdma_ucm is what connections by address need.

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
        if self.hardware.missing(node):
            return Plan()
        names = [name for name in self.names if not self._pointless(name)]
        body = "".join(f"{name}\n" for name in names) if names else None
        files = [node.file(FILE, body)] if body is not None or node.path(FILE).exists() else []
        steps = [
            Step(
                f"kernel module {name}",
                NOT_LOADED,
                LOADED,
                node.doing("modprobe", "--", name),
            )
            for name in names
            if sysfs_name(name) not in self.hardware.modules
        ]
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.hardware.missing(node, "modules are loaded into the host's kernel")
        return Verdict([self._check(node, name, missing) for name in self.names])

    def _pointless(self, name: str) -> bool:
        return sysfs_name(name) in OF_NVIDIA_NICS and not self.hardware.nvidia_nics

    def _check(self, node: Node, name: str, missing: str) -> Check:
        if missing:
            return not_applicable("rdma_module", LOADED, missing, subject=name)
        if self._pointless(name):
            why = "no NIC of this machine has that driver"
            return not_applicable("rdma_module", LOADED, why, subject=name)
        found = LOADED if sysfs_name(name) in self.hardware.modules else NOT_LOADED
        why = f"modprobe {name}; see dmesg, the kernel's extra modules, dkms status"
        check_mode = node.check_mode
        return compare(
            "rdma_module", LOADED, found, subject=name, check_mode=check_mode, reason=why
        )


def stack(
    options: Mapping[str, Any],
    node: Node,
    software: SoftwareSet,
    wanted: PackageSet,
    manager: Manager,
    hardware: Hardware,
) -> tuple[list[Part], list[str]]:
    """The parts, in the order in which they are done, and what turns out to be simulated."""
    rdma = software.rdma
    simulated: list[str] = []
    if hardware.simulated:
        simulated.append(f"hardware is read below {hardware.root}: it is not this machine's")
    packages = Packages(
        rdma,
        wanted,
        manager,
        allow_downgrade=options["allow_downgrade"],
        change_in_use=options["change_in_use"],
    )

    def changing() -> bool:
        return packages.changing

    nothing = rdma.source == NO_RDMA
    arguments = [] if nothing else pcie.arguments(options["iommu"], node.root)
    parts: list[Part] = [SecureBoot(rdma.source, hardware), packages]
    if not nothing:
        parts += [
            Kernel(software.kernel, hardware, changing),
            Drivers(rdma.source, options["restart_driver"], changing, hardware),
        ]
    parts.append(Modules([] if nothing else options["modules"], hardware))
    parts.append(KernelArguments(arguments))
    parts.append(pcie.Acs("keep" if nothing else options["acs"], hardware))
    if not nothing:
        parts += [
            pcie.IommuGroups(options["iommu"], options["rails"], options["gpus"], hardware),
            Devices(options["rails"], options["firmware_minimum"], changing, hardware),
            Tools(rdma.source, manager.installed, changing, hardware, simulated),
        ]
    return parts, simulated
