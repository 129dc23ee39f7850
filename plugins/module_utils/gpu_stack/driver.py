# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kernel modules: built by DKMS for the kernel that runs, and loaded.

A module that runs is not unloaded, unless the operator says so and nothing uses it. Otherwise the
new one waits for a reboot, which `health` records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Optional

from ..checks import NOT_APPLICABLE, Check, compare
from ..commands import CommandError
from ..dataclass import dataclass
from ..node import systemd
from ..node.part import Node, Plan, Step, StepError, Verdict
from . import units
from .cause import Cause
from .kernel import Kernel
from .pause import Pause
from .users import users

LINE = re.compile(r"([^/,]+)[/,]\s*([^,:]+)(?:,\s*([^,:]+),\s*([^,:]+))?:\s*(.*)")
"""`nvidia/580.95.05, 6.8.0-79-generic, x86_64: installed`; before DKMS 3 `nvidia, 580.95.05, ...`.
Not built yet: `nvidia/580.95.05: added`."""
INSTALLED = "installed"
NOT_KNOWN = "not known to DKMS"
LOG = "var/lib/dkms/{module}/{version}/build/make.log"
ABOVE = ("nvidia_peermem", "gdrdrv", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
"""From the top down, in which they are unloaded."""
OPENERS = (units.DCGM, units.FABRIC_MANAGER, units.PERSISTENCED)
"""Services that have the GPUs open, in the order in which they are stopped."""


@dataclass(frozen=True)
class Module:
    """What DKMS builds. `names`: what the families call it there."""

    names: Sequence[str]
    version: str

    def status(self, node: Node, release: str) -> tuple[str, str]:
        """What DKMS says of it for this kernel, and by which name: `installed`, `added`, ..."""
        try:
            told = node.look(["dkms", "status"], check=False).stdout
        except CommandError:
            return "DKMS is not installed", self.names[0]
        best = (NOT_KNOWN, self.names[0])
        for line in told.splitlines():
            match = LINE.fullmatch(line.strip())
            if not match:
                continue
            name, version, kernel, _architecture, state = match.groups()
            if name not in self.names or version != self.version:
                continue
            if kernel == release:
                return state.split()[0] if state else NOT_KNOWN, name
            best = ("not built for this kernel", name)
        return best


@dataclass(frozen=True)
class Driver:
    """`version` is the set's. `reload`: take a module out for the new one where nothing uses it."""

    kernel: Kernel
    version: str
    gdrcopy: str
    pause: Pause
    cause: Cause
    reload: bool = False

    @property
    def modules(self) -> list[Module]:
        found = [Module(("nvidia", "nvidia-open"), self.version)]
        return found + ([Module(("gdrdrv",), self.gdrcopy)] if self.gdrcopy else [])

    def plan(self, node: Node) -> Plan:
        release = self.kernel.release
        steps = []
        for module in self.modules:
            state, _name = module.status(node, release)
            if state != INSTALLED:
                what = f"{module.names[0]} {module.version} for kernel {release}"
                steps.append(Step(what, state, INSTALLED, partial(self._build, node, module)))
        return Plan(steps=[*steps, *self._loading(node)])

    def verify(self, node: Node) -> Verdict:
        checks = []
        for module in self.modules:
            subject = f"{module.names[0]} {module.version}"
            if self.cause.name:
                checks.append(self.cause.hides("dkms", INSTALLED, subject))
            else:
                checks.append(self._check(node, module, subject))
        if checks[0].status != NOT_APPLICABLE:
            self.cause.look(checks[0])
        return Verdict(checks)

    def _check(self, node: Node, module: Module, subject: str) -> Check:
        state, name = module.status(node, self.kernel.release)
        why = (
            f"for kernel {self.kernel.release}; look into "
            f"/{LOG.format(module=name, version=module.version)}"
        )
        return compare(
            "dkms", INSTALLED, state, subject=subject, check_mode=node.check_mode, reason=why
        )

    def _loading(self, node: Node) -> list[Step]:
        runs, what = self.kernel.driver, "kernel module nvidia"
        if not self.kernel.awaits_reboot(self.version):
            if runs is not None:
                return []
            return [Step(what, "not loaded", self.version, partial(self._load, node))]
        if runs is None or not self.reload or users(node.root):
            return []
        self.pause.reloads = True
        for unit in OPENERS:
            if units.active(node, unit):
                self.pause.add(unit)
        after = f"{self.version}, after unloading"
        return [Step(what, runs, after, partial(self._exchange, node))]

    def _build(self, node: Node, module: Module) -> None:
        release = self.kernel.release
        state, name = module.status(node, release)
        if state == INSTALLED:  # by the package, meanwhile
            return
        try:
            node.run(["dkms", "install", "-m", name, "-v", module.version, "-k", release])
        except CommandError as error:
            raise StepError(f"{error}{_tail(node, name, module.version)}") from error

    def _load(self, node: Node) -> None:
        if self.kernel.driver is not None:  # by udev, when the package was installed
            return
        node.run(["modprobe", "nvidia"])  # nvidia_uvm comes with the first program that uses CUDA

    def _exchange(self, node: Node) -> None:
        if users(node.root):
            return  # a job came meanwhile: the reboot stays needed
        for unit in OPENERS:
            if units.active(node, unit):
                systemd.stop(node, unit)
        for module in ABOVE:
            if self.kernel.loaded(module):
                node.run(["modprobe", "-r", module])
        self._load(node)


def _tail(node: Node, name: str, version: str, lines: int = 5) -> str:
    """The last lines of the compiler, which say what DKMS does not."""
    path = LOG.format(module=name, version=version)
    text: Optional[str] = node.read(path)
    if not text:
        return ""
    return f"; the end of /{path}: " + " | ".join(text.strip().splitlines()[-lines:])
