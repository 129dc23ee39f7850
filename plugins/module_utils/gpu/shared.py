# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Shared by the resources of the GPU stack: kernel, services, GPU users, packages, root causes.

The unit of the fabric manager also starts and stops NVLSM, which NVLink 5 needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Optional

from ..core import processes, systemd
from ..core.checks import FAILED, PENDING, Check, compare, not_applicable
from ..core.part import Node, Plan, PlanError, StepError, Verdict
from ..core.text import some
from ..hardware import tree
from ..packages.installer import Installer
from ..packages.planning import PackagePlan
from ..reboot import busy
from ..reboot.busy import Process
from .reading import FABRIC_MANAGER, PERSISTENCED

DCGM = "nvidia-dcgm.service"
OPENERS = (DCGM, FABRIC_MANAGER, PERSISTENCED)
"""Services that use the GPUs, in the order in which they are stopped."""
NVIDIA = "0x10de"
DISPLAY = "0x03"
"""PCI class of GPUs; NVIDIA's bridges have another one."""


@dataclass(frozen=True)
class GpuKernel:
    """The running kernel. Files missing below `root` (the hardware's) are read in `node_root`."""

    root: Path
    node_root: Path = Path("/")

    @property
    def release(self) -> str:
        name = "proc/sys/kernel/osrelease"
        return tree.text(self.root / name) or tree.text(self.node_root / name)

    def loaded(self, module: str) -> bool:
        return (self.root / "sys/module" / module).is_dir()

    @property
    def driver(self) -> Optional[str]:
        if not self.loaded("nvidia"):
            return None
        return tree.text(self.root / "sys/module/nvidia/version") or "unknown"

    @property
    def has_gpus(self) -> bool:
        devices = self.root / "sys/bus/pci/devices"
        return any(
            tree.text(devices / name / "vendor") == NVIDIA
            and tree.text(devices / name / "class").startswith(DISPLAY)
            for name in tree.names(devices)
        )


@dataclass
class RootCause:
    """The first finding, which explains later ones: a driver that is not installed is not built."""

    name: str = ""

    def look(self, check: Check) -> None:
        if not self.name and check.status in (FAILED, PENDING):
            self.name = f"{check.name} {check.subject}".strip()

    def hides(self, name: str, wanted: object, subject: str = "") -> Check:
        """A check that this finding prevents, and that therefore has not passed."""
        return not_applicable(name, wanted, f"not read: see {self.name}", subject=subject)


@dataclass
class Shared:
    """State that resources pass to later ones. `driver` is the set's version."""

    kernel: GpuKernel
    driver: str
    stopped: list[str] = field(default_factory=list)
    reloads: bool = False
    """The kernel module is replaced, so the set's driver will run."""
    gdrcopy: bool = True
    """Whether its kernel module is present or may be installed."""
    without_driver: RootCause = field(default_factory=RootCause)
    without_cuda: RootCause = field(default_factory=RootCause)

    @property
    def awaits_reboot(self) -> bool:
        if self.kernel.driver is None:
            return self.kernel.loaded("nouveau")
        return self.kernel.driver != self.driver

    def check(
        self, node: Node, name: str, subject: str, wanted: str, found: str, why: str
    ) -> Check:
        if found != wanted and self.without_driver.name:
            return self.without_driver.hides(name, wanted, subject)
        if found != wanted and self.awaits_reboot:
            later = "not read: see gpu_driver_version; it starts with that driver, at the next boot"
            return not_applicable(name, wanted, later, subject=subject)
        mode = node.check_mode
        return compare(name, wanted, found, subject=subject, check_mode=mode, reason=why)

    def stop(self, node: Node, units: Sequence[str]) -> list[str]:
        """The active ones of these services, which will start again."""
        active = [unit for unit in units if systemd.active(node, unit)]
        self.stopped += [unit for unit in active if unit not in self.stopped]
        return active


# The driver is not changed while jobs use it.

DEVICES = "/dev/nvidia"
OWN = ("nvidia-persistenced", "nv-fabricmanager", "nvlsm", "nv-hostengine", "nvidia-imex")
"""Services of the set, which are stopped and started for a change."""


def users(root: Path) -> list[Process]:
    """Every process with an open device of the driver, and every MPI process, which may open one
    later, by PID, without the set's own services."""
    found = {process.pid: process for process in busy.processes(root)}
    own = {name[: processes.COMM_LENGTH] for name in OWN}
    for opener in processes.openers(root, lambda path: path.startswith(DEVICES)):
        # A process with that name in a login session is not a service of the set.
        if opener.name not in own or opener.service == "":
            of = f", {opener.service}" if opener.service else ""
            found[opener.pid] = Process(opener.pid, "", opener.name, f"has {opener.file} open{of}")
    return [found[pid] for pid in sorted(found)]


def listed(jobs: Sequence[Process]) -> str:
    return some([f"{job.command} (PID {job.pid}: {job.why})" for job in jobs], 5)


# Packages of the set. A change of the driver stops services, and is refused while jobs run.

DRIVER_PACKAGES = re.compile(r".*nvidia.*|nvlsm|nvlink5.*|libnvsdm.*|libxnvctrl.*|cuda-drivers.*")
CUDA_PACKAGES = re.compile(r"cuda-toolkit-.*")
FABRIC_PACKAGE = re.compile(r"nvidia-fabric-?manager(-\d+)?")
"""Has the driver's version in every family; stands for the other packages."""
GDRDRV = {"gdrdrv-dkms", "gdrcopy-kmod"}
DCGM_PACKAGES = re.compile(r"datacenter-gpu-manager.*")


@dataclass(frozen=True)
class GpuPackages:
    shared: Shared
    installer: Installer
    under_jobs: bool = False

    def plan(self, node: Node) -> Plan:
        planned = self.installer.plan()
        self._look(planned)
        if not planned.changed:
            return Plan()
        driver = touches(planned, DRIVER_PACKAGES)
        jobs = users(node.root) if driver and not self.under_jobs else []
        if jobs:
            raise PlanError(_refusal(planned, jobs))
        # DCGM first, as it uses the GPUs.
        units = [DCGM] if driver or touches(planned, DCGM_PACKAGES) else []
        units += [FABRIC_MANAGER] if driver else []
        before, after = "not as the set has them", "installed, pinned and held"
        step = self.installer.step(planned, "packages", before, after)
        act = partial(self._act, node, planned, self.shared.stop(node, units), step.act)
        return Plan(steps=[replace(step, act=act)])

    def _act(
        self, node: Node, planned: PackagePlan, units: Sequence[str], install: Callable[[], None]
    ) -> None:
        check = touches(planned, DRIVER_PACKAGES) and not self.under_jobs
        jobs = users(node.root) if check else []
        if jobs:
            raise StepError(
                f"a job started since the plan, and no package was changed: {listed(jobs)}. Drain "
                "the node and run again"
            )
        for unit in units:
            systemd.control(node, "stop", unit)
        install()
        self._look(PackagePlan())

    def _look(self, planned: PackagePlan) -> None:
        names = {*self.installer.manager.installed(), *(change.name for change in planned.changes)}
        self.shared.gdrcopy = bool(names & GDRDRV)

    def verify(self, node: Node) -> Verdict:
        checks = self.installer.verify(node.check_mode)
        for check in checks:
            if DRIVER_PACKAGES.fullmatch(check.subject):
                self.shared.without_driver.look(check)
            if CUDA_PACKAGES.fullmatch(check.subject):
                self.shared.without_cuda.look(check)
        return Verdict(checks)


def _refusal(planned: PackagePlan, jobs: Sequence[Process]) -> str:
    changes = [change for change in planned.changes if DRIVER_PACKAGES.fullmatch(change.name)]
    if changes:
        first = f"{changes[0].name} {changes[0].before or 'absent'} -> {changes[0].after}"
        what = f"{len(changes)} packages of the driver would change ({first})"
    elif planned.repairs:
        what = f"an interrupted installation would be finished ({planned.repairs})"
    else:
        what = f"{planned.changes[0].name} would change, with dependencies that are not known yet"
    # The MPS server outlives its clients, even on a drained node.
    mps = any(job.command.startswith(busy.MPS) for job in jobs)
    end = " and end MPS (echo quit | nvidia-cuda-mps-control)" if mps else ""
    return (
        f"{what}, and the GPUs are in use: {listed(jobs)}. Drain the node{end}, stop services that "
        "are named, then run again; or set nvidia_gpu_change_under_jobs: true, and these processes "
        "may fail"
    )


def fitting(installed: Mapping[str, str], driver: str) -> bool:
    versions = [version for name, version in installed.items() if FABRIC_PACKAGE.fullmatch(name)]
    return any(re.search(rf"(?<![\d.]){re.escape(driver)}(?![\d.])", each) for each in versions)


def touches(planned: PackagePlan, names: re.Pattern[str]) -> bool:
    """Whether such packages change, or may: during a repair, or as unknown dependencies."""
    unknown = planned.repairs or (planned.changes and not planned.solved)
    return bool(unknown) or any(names.fullmatch(change.name) for change in planned.changes)
