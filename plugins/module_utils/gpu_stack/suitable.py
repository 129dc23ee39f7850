# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Machines on which this driver must not be installed: each says why, and what to do.

Only looks. What a package manager can find out by itself (no such version, no headers of this
kernel) is said by the engine of packages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..dataclass import dataclass
from ..node import secure_boot
from ..node.part import Node, Plan, PlanError, Verdict
from ..software import SoftwareSet
from .shared import Kernel

RUN_FILE = "usr/bin/nvidia-uninstall"
"""Left by NVIDIA's .run installer, and by no package."""
ELSEWHERE = (
    (r"linux-(modules|objects|signatures)-nvidia-.+", "modules that Ubuntu built"),
    (r".*nvidia-.+-\d+-server(-open)?", "the server branch of Ubuntu"),
    (r"akmod-nvidia.*|xorg-x11-drv-nvidia.*", "RPM Fusion"),
    (r"kmod-nvidia(-\d+xx)?|nvidia-x11-drv.*", "ELRepo"),
)
"""Packages of other sources than the CUDA repository, with those who make them."""
PROPRIETARY = re.compile(
    r"nvidia-dkms(-\d+)?|nvidia-kernel-source(-\d+)?|nvidia-kernel-dkms|kmod-nvidia-latest-dkms"
)


@dataclass(frozen=True)
class Suitable:
    """`gpus` is how many the model has; `installed` are the packages and their versions."""

    software: SoftwareSet
    kernel: Kernel
    gpus: int
    installed: Mapping[str, str]

    def plan(self, node: Node) -> Plan:
        signed = secure_boot.refusal(node, self.kernel.root)
        found = [*self._machine(), *([signed] if signed else []), *self._other_driver(node)]
        if found:
            raise PlanError("\n".join(found))
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict()

    def _machine(self) -> Iterator[str]:
        wanted, runs = self.software.kernel, self.kernel.release
        if wanted and wanted != runs:
            yield (
                f"kernel {runs} runs, and software.kernel of the set is {wanted}: the driver would "
                f"be built for the wrong one. Boot {wanted} (install it where it is not there), or "
                f"write software.kernel: {runs}"
            )
        if not self.kernel.has_gpus:
            yield (
                f"no GPU of NVIDIA on the PCI bus, and the model has {self.gpus}: look at the "
                "power of the GPU board in the BMC, at the BIOS (Above 4G Decoding) and the slots. "
                "A node without GPUs has none in the model either (gpus: 0)"
            )

    def _other_driver(self, node: Node) -> Iterator[str]:
        if node.path(RUN_FILE).exists():
            yield (
                f"/{RUN_FILE}: a driver was installed from NVIDIA's .run file, and packages would "
                "mix with it. Run nvidia-uninstall, reboot, run again"
            )
        tool = "apt-get purge" if "dpkg" in self.installed else "dnf remove"
        for pattern, source in ELSEWHERE:
            names = sorted(name for name in self.installed if re.fullmatch(pattern, name))
            if names:
                yield (
                    f"a driver from {source} is installed, and the set's comes from the CUDA "
                    f"repository. Remove it: {tool} {' '.join(names)}"
                )
        driver = self.software.driver
        names = sorted(name for name in self.installed if PROPRIETARY.fullmatch(name))
        if names and driver and driver.modules == "open":
            yield (
                "proprietary kernel modules are installed, and the set has the open ones, which "
                f"Blackwell needs. Remove them: {tool} {' '.join(names)}"
            )
