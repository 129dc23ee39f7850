# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel modules and services: block nouveau, build NVIDIA's with DKMS, load and start them.

A loaded module is unloaded only if the operator allows it and nothing uses it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Optional

from ..core import systemd
from ..core.checks import Check, compare
from ..core.commands import CommandError
from ..core.files import FilePlan
from ..core.part import NAME, Node, Plan, Step, StepError, Verdict
from ..packages.apt_failure import build_errors
from ..packages.installer import Installer
from .findings import AUTO, PEERMEM
from .reading import DMABUF_KERNEL, FABRIC_MANAGER, PERSISTENCED, kernel_version
from .shared import DCGM, OPENERS, Shared, fitting, users

BLACKLIST = f"etc/modprobe.d/90-{NAME}-nouveau.conf"
NO_NOUVEAU = "blacklist nouveau\noptions nouveau modeset=0\n"
AT_BOOT = f"etc/modules-load.d/90-{NAME}-gpu.conf"
LINE = re.compile(r"([^/,]+)[/,]\s*([^,:]+)(?:,\s*([^,:]+),\s*([^,:]+))?:\s*(.*)")
"""`nvidia/580.95.05, 6.8.0-79-generic, x86_64: installed`; before DKMS 3 `nvidia, 580.95.05, ...`.
Before the build: `nvidia/580.95.05: added`."""
NOTES = re.compile(r"\((?!original)([^()]+)\)", re.IGNORECASE)
"""Suffix of `installed` if modules are missing or differ from the build (do_status of dell/dkms). A
note about original modules is harmless."""
INSTALLED = "installed"
DIFFERENT = f"{INSTALLED}, with other modules than built: "
NOT_KNOWN = "not known to DKMS"
LOG = "var/lib/dkms/{}/{}/build/make.log"
FABRIC_LOG = "/var/log/fabricmanager.log"
ABOVE = ("nvidia_peermem", "gdrdrv", "nvidia_drm", "nvidia_modeset", "nvidia_uvm", "nvidia")
PEER_MEMORY, RDMA_CORE = "nvidia_peermem", "ib_core"
STALE = f"built before {RDMA_CORE} changed"
BUILT_BY = {PEER_MEMORY: "nvidia", "gdrdrv": "gdrdrv"}
"""Modules that match only one build of another one, with the DKMS module that contains them."""
MISFIT = re.compile(r"Invalid argument|Unknown symbol|Exec format error")
"""modprobe's error for a module that does not match one that it uses (NVIDIA/gpu-operator 2868)."""
OUT_OF_TREE = ("updates", "extra", "weak-updates")


@dataclass(frozen=True)
class Nouveau:
    """Blocks the kernel's own driver from the next boot on, including in the initramfs: unloading
    it now would freeze the console."""

    shared: Shared

    def plan(self, node: Node) -> Plan:
        file = node.file(BLACKLIST, NO_NOUVEAU)
        release = self.shared.kernel.release
        images = (f"boot/initrd.img-{release}", f"boot/initramfs-{release}.img")
        image = next((path for path in map(node.path, images) if path.exists()), None)
        # An interrupted run may have left an initramfs that is older than the file.
        if image is None or not (file.changed or image.stat().st_mtime < file.path.stat().st_mtime):
            return Plan([file])
        # Ubuntu 25.10 and later use dracut, with the former name of the image.
        argv = ["dracut", "--force", f"/boot/{image.name}", release]
        if node.path("usr/sbin/update-initramfs").exists():
            argv = ["update-initramfs", "-u", "-k", release]
        what, before = f"initramfs of {release}", "without the blacklist of nouveau"
        return Plan([file], [Step(what, before, "with it", node.doing(*argv))])

    def verify(self, node: Node) -> Verdict:
        return Verdict()


@dataclass(frozen=True)
class DkmsModule:
    names: Sequence[str]
    version: str

    @property
    def subject(self) -> str:
        return f"{self.names[0]} {self.version}"

    def status(self, node: Node, release: str) -> tuple[str, str]:
        """Its DKMS state for this kernel, and its name there."""
        try:
            lines = node.look(["dkms", "status"], check=False).stdout.splitlines()
        except CommandError:
            return "DKMS is not installed", self.names[0]
        best = (NOT_KNOWN, self.names[0])
        for match in filter(None, (LINE.fullmatch(line.strip()) for line in lines)):
            name, version, kernel, _architecture, state = match.groups()
            if name in self.names and version == self.version:
                if kernel == release:
                    word, notes = (state.split() or [NOT_KNOWN])[0], NOTES.findall(state)
                    return f"{DIFFERENT}{notes[0]}" if word == INSTALLED and notes else word, name
                best = ("not built for this kernel", name)
        return best


@dataclass(frozen=True)
class DriverModules:
    """`reload`: replace a loaded module with the set's if nothing uses it."""

    shared: Shared
    gdrcopy: str
    reload: bool = False

    @property
    def modules(self) -> list[DkmsModule]:
        found = [DkmsModule(("nvidia", "nvidia-open"), self.shared.driver)]
        wanted = self.gdrcopy and self.shared.gdrcopy
        return found + ([DkmsModule(("gdrdrv",), self.gdrcopy)] if wanted else [])

    def plan(self, node: Node) -> Plan:
        release = self.shared.kernel.release
        steps = []
        for module in self.modules:
            state, _name = module.status(node, release)
            # Differing modules may be intentional (signed ones), so they are only reported.
            if not _is_there(state):
                what = f"{module.subject} for kernel {release}"
                steps.append(Step(what, state, INSTALLED, partial(self._build, node, module)))
        return Plan(steps=[*steps, *self._loading(node)])

    def verify(self, node: Node) -> Verdict:
        cause = self.shared.without_driver
        if cause.name:
            return Verdict([cause.hides("dkms", INSTALLED, x.subject) for x in self.modules])
        checks = [self._check(node, module) for module in self.modules]
        if not str(checks[0].found).startswith(DIFFERENT):
            cause.look(checks[0])
        return Verdict(checks)

    def _check(self, node: Node, module: DkmsModule) -> Check:
        release, subject = self.shared.kernel.release, module.subject
        state, name = module.status(node, release)
        reason = f"for kernel {release}; look into /{LOG.format(name, module.version)}"
        if state.startswith(DIFFERENT):
            words = " ".join(_words(module, name, release))
            reason = f"unless this is intentional: dkms install {words} --force, reboot"
        mode = node.check_mode
        return compare("dkms", INSTALLED, state, subject=subject, check_mode=mode, reason=reason)

    def _loading(self, node: Node) -> list[Step]:
        runs, what = self.shared.kernel.driver, "kernel module nvidia"
        if not self.shared.awaits_reboot:
            if runs is not None:
                return []
            return [Step(what, "not loaded", self.shared.driver, partial(self._load, node))]
        if runs is None or not self.reload or users(node.root):
            return []
        self.shared.reloads = True
        self.shared.stop(node, OPENERS)
        after = f"{self.shared.driver}, after unloading"
        return [Step(what, runs, after, partial(self._exchange, node))]

    def _build(self, node: Node, module: DkmsModule) -> None:
        state, _name = module.status(node, self.shared.kernel.release)
        # The package has built it in the meantime, or contains none.
        if not _is_there(state) and module in self.modules:
            self.build(node, module)

    def build(self, node: Node, module: DkmsModule, again: bool = False) -> None:
        """`again`: rebuild it against the current build of the modules that it uses."""
        release = self.shared.kernel.release
        _state, name = module.status(node, release)
        words, force = _words(module, name, release), ["--force"] if again else []
        try:
            if again:
                node.run(["dkms", "build", *words, *force])
            node.run(["dkms", "install", *words, *force])
        except CommandError as error:
            log = LOG.format(name, module.version)
            found = build_errors((node.read(log) or "no such file").strip().splitlines())
            raise StepError(f"{error}; /{log}: {'; '.join(found)}") from error

    def _load(self, node: Node) -> None:
        if self.shared.kernel.driver is None:  # otherwise udev loaded it at installation
            node.run(["modprobe", "nvidia"])  # the first CUDA program loads nvidia_uvm

    def _exchange(self, node: Node) -> None:
        if users(node.root):
            return  # a job has started in the meantime: a reboot is still needed
        for unit in OPENERS:
            if systemd.active(node, unit):
                systemd.control(node, "stop", unit)
        for module in ABOVE:
            if self.shared.kernel.loaded(module):
                node.run(["modprobe", "-r", module])
        self._load(node)


def _is_there(state: str) -> bool:
    return state == INSTALLED or state.startswith(DIFFERENT)


def _words(module: DkmsModule, name: str, release: str) -> list[str]:
    return ["-m", name, "-v", module.version, "-k", release]


def needs_peermem(release: str, choice: str, open_modules: bool) -> bool:
    """Whether RDMA needs the module: dma-buf needs the open modules and a recent kernel."""
    if choice == AUTO:
        return not open_modules or kernel_version(release) < DMABUF_KERNEL
    return choice == PEERMEM


@dataclass(frozen=True)
class BootModules:
    """gdrdrv for GDRCopy, nvidia_peermem without dma-buf; with the set's driver only.

    nvidia_peermem matches only one build of DOCA-OFED, and is rebuilt if that changed later.
    """

    shared: Shared
    wanted: Sequence[str]
    driver: DriverModules

    @property
    def modules(self) -> list[str]:
        return [each for each in self.wanted if each != "gdrdrv" or self.shared.gdrcopy]

    def plan(self, node: Node) -> Plan:
        """The content of the file depends on what the packages installed."""
        file, steps = self._file(node), []
        if file.changed:
            shown = [file.diff()]
            steps.append(Step(AT_BOOT, "", "", lambda: self._file(node).apply(), shown=shown))
        if PEER_MEMORY in self.modules and self._outdated(node):
            act = partial(self._renew, node)
            steps.append(Step(PEER_MEMORY, STALE, f"built against {RDMA_CORE}", act))
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
        reason = f"see the output of modprobe {module}, and dmesg"
        if module == PEER_MEMORY and self._outdated(node):
            found = STALE
            reason = "the next boot cannot load it: DKMS did not rebuild its driver"
        return self.shared.check(node, "kernel_module", module, "loaded", found, reason)

    def _load(self, node: Node, module: str) -> None:
        kernel = self.shared.kernel
        wanted = module in self.modules and not kernel.loaded(module)
        if kernel.driver != self.shared.driver or not wanted:
            return
        try:
            node.run(["modprobe", module])
        except CommandError as error:
            # The kernel's own RDMA core has no peer memory.
            inbox = module == PEER_MEMORY and self._ko(node, RDMA_CORE) is None
            if inbox or not MISFIT.search(str(error)):
                raise
            self._again(node, module)
            node.run(["modprobe", module])

    def _renew(self, node: Node) -> None:
        if self._outdated(node):  # otherwise the driver's package has rebuilt it by now
            self._again(node, PEER_MEMORY)

    def _again(self, node: Node, module: str) -> None:
        for each in self.driver.modules:
            if each.names[0] == BUILT_BY.get(module):
                self.driver.build(node, each, again=True)

    def _outdated(self, node: Node) -> bool:
        """Whether DOCA-OFED's RDMA core on disk is newer than this driver's modules."""
        core, mine = self._ko(node, RDMA_CORE), self._ko(node, PEER_MEMORY)
        return bool(core and mine and core.stat().st_mtime_ns > mine.stat().st_mtime_ns)

    def _ko(self, node: Node, module: str) -> Optional[Path]:
        name = f"{module.replace('_', '[-_]')}.ko*"
        tree = node.path(f"lib/modules/{self.shared.kernel.release}")
        return next((path for at in OUT_OF_TREE for path in (tree / at).rglob(name)), None)


# Services start only with the driver that they were built for. If another one runs until the next
# boot, they stay stopped and start with that boot.

DROP_IN = f"etc/systemd/system/{PERSISTENCED}.d/90-{NAME}.conf"
PERSISTENCE = "[Service]\nExecStartPost=-/usr/bin/nvidia-smi --persistence-mode=1\n"
"""Some packages start the daemon with --no-persistence-mode, with different unit files."""


@dataclass(frozen=True)
class Services:
    """`wanted` is in start order."""

    shared: Shared
    wanted: Sequence[str]
    installer: Installer

    def plan(self, node: Node) -> Plan:
        files = [node.file(DROP_IN, PERSISTENCE)] if PERSISTENCED in self.wanted else []
        steps = []
        # An interrupted run may have written the file only.
        stale = systemd.show(node, PERSISTENCED, ["NeedDaemonReload"]) if files else {}
        if "yes" in stale.values() or any(file.changed for file in files):
            act = partial(systemd.control, node, "daemon-reload")
            steps.append(Step("systemd", "old units", "reloaded", act))
            if systemd.active(node, PERSISTENCED):
                before = "as in the package"
                steps.append(Step("persistence mode", before, "enabled", partial(_switch_on, node)))
        ready = self.shared.reloads or not self.shared.awaits_reboot
        for unit in self.wanted:
            if not systemd.at_boot(node, unit):
                act = partial(systemd.control, node, "enable", unit)
                steps.append(Step(f"{unit} at boot", "disabled", "enabled", act))
        for unit in self.wanted:
            if systemd.state(node, unit).startswith("masked"):
                continue  # already shown as enabled
            paused = unit in self.shared.stopped
            if paused or (ready and not systemd.active(node, unit)):
                act = partial(self._start, node, unit)
                after = "active" if ready else "active, unless the driver awaits a reboot"
                steps.append(Step(unit, "stopped", after, act, restores=paused))
        return Plan(files, steps)

    def verify(self, node: Node) -> Verdict:
        found = systemd.state(node, DCGM) if DCGM in self.wanted else ""
        reason = f"see journalctl -u {DCGM}"
        check = self.shared.check(node, "service", DCGM, "enabled, active", found, reason)
        return Verdict([check] if found else [])

    def _start(self, node: Node, unit: str) -> None:
        runs = self.shared.kernel.driver
        if runs is None or not fitting(self.installer.manager.installed(), runs):
            return  # it would exit immediately; another check reports why the driver does not run
        try:
            systemd.control(node, "start", unit)
        except CommandError:
            if unit != FABRIC_MANAGER:
                raise
            self._again(node)
        if unit == PERSISTENCED:
            _switch_on(node)

    def _again(self, node: Node) -> None:
        """It exits if GPUs are not ready yet (pytorch/ci-infra pull 552)."""
        try:
            systemd.control(node, "restart", FABRIC_MANAGER)
        except CommandError as error:
            log = node.look(["tail", "-n", "40", FABRIC_LOG], check=False).stdout
            errors = [line.strip()[:200] for line in log.splitlines() if "[ERROR]" in line][-5:]
            said = " | ".join(errors) or "no [ERROR] in its last 40 lines"
            raise StepError(f"started twice: {error}; {FABRIC_LOG}: {said}") from error


def _switch_on(node: Node) -> None:
    """For a daemon that started without the drop-in; a failure shows in a check."""
    node.run(("nvidia-smi", "--persistence-mode=1"), check=False)
