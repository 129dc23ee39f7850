# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel modules and services: nouveau kept away, NVIDIA's built by DKMS, loaded and started.

A module that runs is not unloaded, unless the operator allows it and nothing uses it. Otherwise the
new one waits for a reboot, which `health` records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..core import systemd
from ..core.checks import Check, compare
from ..core.commands import CommandError
from ..core.files import FilePlan
from ..core.part import NAME, Node, Plan, Step, StepError, Verdict
from ..packages.engine import Installer
from .findings import AUTO, PEERMEM
from .reading import DMABUF_KERNEL, PERSISTENCED, kernel_version
from .shared import DCGM, OPENERS, Shared, fitting, users

BLACKLIST = f"etc/modprobe.d/90-{NAME}-nouveau.conf"
NO_NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"
AT_BOOT = f"etc/modules-load.d/90-{NAME}-gpu.conf"
LINE = re.compile(r"([^/,]+)[/,]\s*([^,:]+)(?:,\s*([^,:]+),\s*([^,:]+))?:\s*(.*)")
"""`nvidia/580.95.05, 6.8.0-79-generic, x86_64: installed`; before DKMS 3 `nvidia, 580.95.05, ...`.
Not built yet: `nvidia/580.95.05: added`."""
INSTALLED = "installed"
NOT_KNOWN = "not known to DKMS"
LOG = "var/lib/dkms/{}/{}/build/make.log"
ABOVE = ("nvidia_peermem", "gdrdrv", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
"""From the top down, in which they are unloaded."""


@dataclass(frozen=True)
class Nouveau:
    """The kernel's own driver makes way: at the next boot, never by force.

    It is kept from loading in the initramfs too. Where it drives the GPUs now, NVIDIA's module
    cannot have them until a reboot; unloading it under a console would freeze that.
    """

    shared: Shared

    def plan(self, node: Node) -> Plan:
        file = node.file(BLACKLIST, NO_NOUVEAU)
        release = self.shared.kernel.release
        images = (f"boot/initrd.img-{release}", f"boot/initramfs-{release}.img")
        image = next((path for path in map(node.path, images) if path.exists()), None)
        if image is None:  # a node that boots without one of its own
            return Plan([file])
        # A run that was stopped in between left an initramfs from before the file.
        if not file.changed and image.stat().st_mtime >= file.path.stat().st_mtime:
            return Plan([file])
        # Ubuntu has dracut from 25.10 on, and the name of its image from before.
        argv = ["dracut", "--force", f"/boot/{image.name}", release]
        if node.path("usr/sbin/update-initramfs").exists():
            argv = ["update-initramfs", "-u", "-k", release]
        before = "without the blacklist of nouveau"
        act = node.doing(*argv)
        return Plan([file], [Step(f"initramfs of {release}", before, "with it", act)])

    def verify(self, node: Node) -> Verdict:
        """Whether it is loaded is judged with the GPUs, which it keeps from the driver."""
        return Verdict()


@dataclass(frozen=True)
class Module:
    """What DKMS builds. `names`: what the families call it there."""

    names: Sequence[str]
    version: str

    def status(self, node: Node, release: str) -> tuple[str, str]:
        """Its state in DKMS for this kernel (`installed`, `added`, ...), and its name there."""
        try:
            lines = node.look(["dkms", "status"], check=False).stdout.splitlines()
        except CommandError:
            return "DKMS is not installed", self.names[0]
        best = (NOT_KNOWN, self.names[0])
        for match in filter(None, (LINE.fullmatch(line.strip()) for line in lines)):
            name, version, kernel, _architecture, state = match.groups()
            if name in self.names and version == self.version:
                if kernel == release:
                    return (state.split() or [NOT_KNOWN])[0], name
                best = ("not built for this kernel", name)
        return best


@dataclass(frozen=True)
class Driver:
    """`reload`: take a module out for the set's where nothing uses it."""

    shared: Shared
    gdrcopy: str
    reload: bool = False

    @property
    def modules(self) -> list[Module]:
        found = [Module(("nvidia", "nvidia-open"), self.shared.driver)]
        wanted = self.gdrcopy and self.shared.gdrcopy
        return found + ([Module(("gdrdrv",), self.gdrcopy)] if wanted else [])

    def plan(self, node: Node) -> Plan:
        release = self.shared.kernel.release
        steps = []
        for module in self.modules:
            state, _name = module.status(node, release)
            if state != INSTALLED:
                what = f"{module.names[0]} {module.version} for kernel {release}"
                steps.append(Step(what, state, INSTALLED, partial(self._build, node, module)))
        return Plan(steps=[*steps, *self._loading(node)])

    def verify(self, node: Node) -> Verdict:
        hidden = self.shared.without_driver.name
        checks = [self._check(node, module, hidden) for module in self.modules]
        if not hidden:
            self.shared.without_driver.look(checks[0])
        return Verdict(checks)

    def _check(self, node: Node, module: Module, hidden: str) -> Check:
        release, subject = self.shared.kernel.release, f"{module.names[0]} {module.version}"
        if hidden:
            return self.shared.without_driver.hides("dkms", INSTALLED, subject)
        state, name = module.status(node, release)
        why = f"for kernel {release}; look into /{LOG.format(name, module.version)}"
        check_mode = node.check_mode
        return compare("dkms", INSTALLED, state, subject=subject, check_mode=check_mode, reason=why)

    def _loading(self, node: Node) -> list[Step]:
        runs, what = self.shared.kernel.driver, "kernel module nvidia"
        if not self.shared.awaits_reboot:
            if runs is not None:
                return []
            return [Step(what, "not loaded", self.shared.driver, partial(self._load, node))]
        if runs is None or not self.reload or users(node.root):
            return []
        self.shared.reloads = True
        for unit in OPENERS:
            if systemd.active(node, unit):
                self.shared.stop(unit)
        after = f"{self.shared.driver}, after unloading"
        return [Step(what, runs, after, partial(self._exchange, node))]

    def _build(self, node: Node, module: Module) -> None:
        release = self.shared.kernel.release
        state, name = module.status(node, release)
        if state == INSTALLED or module not in self.modules:  # by the package; or not packaged
            return
        try:
            node.run(["dkms", "install", "-m", name, "-v", module.version, "-k", release])
        except CommandError as error:
            log = LOG.format(name, module.version)
            last = (node.read(log) or "no such file").strip().splitlines()[-5:]
            raise StepError(f"{error}; the end of /{log}: {' | '.join(last)}") from error

    def _load(self, node: Node) -> None:
        if self.shared.kernel.driver is None:  # else by udev, when the package was installed
            node.run(["modprobe", "nvidia"])  # nvidia_uvm comes with the first program of CUDA

    def _exchange(self, node: Node) -> None:
        if users(node.root):
            return  # a job came meanwhile: the reboot stays needed
        for unit in OPENERS:
            if systemd.active(node, unit):
                systemd.control(node, "stop", unit)
        for module in ABOVE:
            if self.shared.kernel.loaded(module):
                node.run(["modprobe", "-r", module])
        self._load(node)


def needs_peermem(release: str, choice: str, open_modules: bool) -> bool:
    """RDMA reaches GPU memory by dma-buf, with the open modules and a kernel that has it."""
    if choice == AUTO:
        return not open_modules or kernel_version(release) < DMABUF_KERNEL
    return choice == PEERMEM


@dataclass(frozen=True)
class BootModules:
    """Modules that are loaded at boot, on top of the set's driver and no other: gdrdrv with
    GDRCopy, nvidia_peermem where dma-buf is not."""

    shared: Shared
    wanted: Sequence[str]

    @property
    def modules(self) -> list[str]:
        return [each for each in self.wanted if each != "gdrdrv" or self.shared.gdrcopy]

    def plan(self, node: Node) -> Plan:
        """The file is written when it is known what the packages brought."""
        file, steps = self._file(node), []
        if file.changed:
            shown = [file.diff()]
            steps.append(Step(AT_BOOT, "", "", lambda: self._file(node).apply(), shown=shown))
        for module in self.modules:
            loaded = self.shared.kernel.loaded(module)
            if self.shared.reloads or not (loaded or self.shared.awaits_reboot):
                before = "unloaded with the driver" if loaded else "not loaded"
                act = partial(self._load, node, module)
                steps.append(Step(f"kernel module {module}", before, "loaded", act))
        return Plan(steps=steps)

    def _file(self, node: Node) -> FilePlan:
        return node.file(AT_BOOT, "".join(f"{module}\n" for module in self.modules) or None)

    def verify(self, node: Node) -> Verdict:
        now, at = "different" if self._file(node).changed else "as planned", f"/{AT_BOOT}"
        file = compare("file", "as planned", now, subject=at, check_mode=node.check_mode)
        return Verdict([file, *(self._check(node, module) for module in self.modules)])

    def _check(self, node: Node, module: str) -> Check:
        found = "loaded" if self.shared.kernel.loaded(module) else "not loaded"
        why = f"see the output of modprobe {module}"
        return self.shared.check(node, "kernel_module", module, "loaded", found, why)

    def _load(self, node: Node, module: str) -> None:
        kernel = self.shared.kernel
        wanted = module in self.modules and not kernel.loaded(module)
        if kernel.driver == self.shared.driver and wanted:
            node.run(["modprobe", module])


# Services start with the driver that they were built with and no other. Where another one runs
# until the next boot, they stay stopped and start with that boot.

DROP_IN = f"etc/systemd/system/{PERSISTENCED}.d/90-{NAME}.conf"
PERSISTENCE = "[Service]\nExecStartPost=-/usr/bin/nvidia-smi --persistence-mode=1\n"
"""Some packages start the daemon with --no-persistence-mode; what they write there differs."""


@dataclass(frozen=True)
class Services:
    """In `wanted`, the order in which they start."""

    shared: Shared
    wanted: Sequence[str]
    installer: Installer

    def plan(self, node: Node) -> Plan:
        files = [node.file(DROP_IN, PERSISTENCE)] if PERSISTENCED in self.wanted else []
        steps = []
        if any(file.changed for file in files) or self._stale(node):
            steps.append(
                Step(
                    "systemd",
                    "old units",
                    "reloaded",
                    partial(systemd.control, node, "daemon-reload"),
                )
            )
            if systemd.active(node, PERSISTENCED):
                before = "as the package has it"
                steps.append(Step("persistence mode", before, "enabled", partial(_switch_on, node)))
        ready = self.shared.reloads or not self.shared.awaits_reboot
        for unit in self.wanted:
            if not systemd.at_boot(node, unit):
                act = partial(systemd.control, node, "enable", unit)
                steps.append(Step(f"{unit} at boot", "disabled", "enabled", act))
        for unit in self.wanted:
            paused = unit in self.shared.stopped
            if paused or (ready and not systemd.active(node, unit)):
                act = partial(self._start, node, unit)
                after = "active" if ready else "active, unless the driver has to wait"
                steps.append(Step(unit, "stopped", after, act, restores=paused))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        """The others are judged with the GPUs."""
        found = systemd.state(node, DCGM) if DCGM in self.wanted else ""
        why = f"see journalctl -u {DCGM}"
        check = self.shared.check(node, "service", DCGM, "enabled, active", found, why)
        return Verdict([check] if found else [])

    def _stale(self, node: Node) -> bool:
        key = "NeedDaemonReload"
        return systemd.show(node, PERSISTENCED, [key]).get(key) == "yes"

    def _start(self, node: Node, unit: str) -> None:
        runs = self.shared.kernel.driver
        if runs is None or not fitting(self.installer.manager.installed(), runs):
            return  # it would end at once; why the driver does not run has a check of its own
        systemd.control(node, "start", unit)
        if unit == PERSISTENCED:
            _switch_on(node)


def _switch_on(node: Node) -> None:
    """For what the daemon did before it had the drop-in. A failure shows in gpu_persistence."""
    node.run(("nvidia-smi", "--persistence-mode=1"), check=False)
