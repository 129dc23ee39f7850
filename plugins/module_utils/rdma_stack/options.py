# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the options of the module to the parts, with every mistake named at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..dataclass import dataclass
from ..node.part import Node, Part
from ..os_baseline.kernel_cmdline import KernelArguments
from ..packages.manager import Manager
from ..packages.package import PackageSet
from ..software.software_set import NO_RDMA, SoftwareSet
from . import iommu
from .acs_part import Acs
from .devices import Devices
from .drivers import Drivers
from .hardware import Hardware
from .kernel import Kernel
from .modules import Modules
from .packages import Packages
from .secure_boot import SecureBoot
from .tools import Tools


@dataclass
class Stack:
    """The parts, in the order in which they are done, and what turned out to be simulated."""

    parts: list[Part]
    simulated: list[str]


def stack(
    options: Mapping[str, Any],
    node: Node,
    software: SoftwareSet,
    wanted: PackageSet,
    manager: Manager,
    hardware: Hardware,
    family: str,
) -> Stack:
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
    arguments = [] if nothing else iommu.arguments(options["iommu"], node.root)
    parts: list[Part] = [SecureBoot(rdma.source, hardware), packages]
    if not nothing:
        parts += [
            Kernel(software.kernel, hardware, changing),
            Drivers(rdma.source, options["restart_driver"], changing, hardware),
        ]
    parts.append(Modules([] if nothing else options["modules"], hardware))
    parts.append(KernelArguments.from_options(arguments))
    parts.append(Acs("keep" if nothing else options["acs"], hardware))
    if not nothing:
        parts += [
            iommu.IommuGroups(options["iommu"], options["rails"], options["gpus"], hardware),
            Devices(options["rails"], options["firmware_minimum"], changing, hardware),
            Tools(rdma.source, family, manager.installed, changing, hardware, simulated),
        ]
    return Stack(parts, simulated)
