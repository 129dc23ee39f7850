# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the parts of the stack have in common: kernel, services, users, what they hand on; packages.

The services have these names on both families and in every branch. The unit of the fabric manager
starts and stops NVLSM as well, where NVLink5 needs it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Optional

from ..core import processes, systemd
from ..core.checks import FAILED, PENDING, Check, compare, not_applicable
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..core.text import some
from ..hardware import tree
from ..packages.engine import Installer
from ..packages.planning import PackagePlan
from ..reboot import busy
from ..reboot.busy import Process
from .reading import FABRIC_MANAGER, PERSISTENCED

DCGM = "nvidia-dcgm.service"
OPENERS = (DCGM, FABRIC_MANAGER, PERSISTENCED)
"""Services that have the GPUs open, in the order in which they are stopped."""
NVIDIA = "0x10de"
DISPLAY = "0x03"
"""PCI class of display controllers; those of NVIDIA are GPUs, and its bridges are not."""


@dataclass(frozen=True)
class GpuKernel:
    """The kernel that runs. `node_root` answers where `root`, the hardware's, has no such file."""

    root: Path
    node_root: Path = Path("/")

    @property
    def release(self) -> str:
        """`uname -r`."""
        name = "proc/sys/kernel/osrelease"
        return tree.text(self.root / name) or tree.text(self.node_root / name)

    def loaded(self, module: str) -> bool:
        return (self.root / "sys/module" / module).is_dir()

    @property
    def driver(self) -> Optional[str]:
        """Version of the NVIDIA module that runs, or None."""
        if not self.loaded("nvidia"):
            return None
        return tree.text(self.root / "sys/module/nvidia/version") or "unknown"

    @property
    def has_gpus(self) -> bool:
        """Whether a display controller of NVIDIA is on the bus, with a driver or without."""
        devices = self.root / "sys/bus/pci/devices"
        return any(
            tree.text(devices / name / "vendor") == NVIDIA
            and tree.text(devices / name / "class").startswith(DISPLAY)
            for name in tree.names(devices)
        )


@dataclass
class RootCause:
    """The first finding that explains later ones, so that one fault is one finding.

    Filled while verifying, in the order of the parts: a driver that is not installed is not built,
    one that is not built does not run, and then no GPU answers.
    """

    name: str = ""

    def look(self, check: Check) -> None:
        if not self.name and check.status in (FAILED, PENDING):
            self.name = f"{check.name} {check.subject}".strip()

    def hides(self, name: str, wanted: object, subject: str = "") -> Check:
        """A check that cannot be made because of it. It has not passed."""
        return not_applicable(name, wanted, f"not read: see {self.name}", subject=subject)


@dataclass
class Shared:
    """`driver` is the set's version. The rest is filled by parts for those after them."""

    kernel: GpuKernel
    driver: str
    stopped: list[str] = field(default_factory=list)
    """Services that are stopped for a change, and have to start again."""
    reloads: bool = False
    """The kernel module is exchanged, so that the driver of the set will run."""
    gdrcopy: bool = True
    """Whether its module is there, or may come."""
    without_driver: RootCause = field(default_factory=RootCause)
    without_cuda: RootCause = field(default_factory=RootCause)

    @property
    def awaits_reboot(self) -> bool:
        """Whether only a reboot can load the set's driver: another one is there."""
        if self.kernel.driver is None:
            return self.kernel.loaded("nouveau")
        return self.kernel.driver != self.driver

    def check(
        self, node: Node, name: str, subject: str, wanted: str, found: str, why: str
    ) -> Check:
        """Something that needs the running driver, which may have a finding of its own."""
        if found != wanted and self.without_driver.name:
            return self.without_driver.hides(name, wanted, subject)
        if found != wanted and self.awaits_reboot:
            later = "not read: see gpu_driver_version; it starts with that driver, at the next boot"
            return not_applicable(name, wanted, later, subject=subject)
        check_mode = node.check_mode
        return compare(name, wanted, found, subject=subject, check_mode=check_mode, reason=why)

    def stop(self, unit: str) -> None:
        if unit not in self.stopped:
            self.stopped.append(unit)


# A driver is not changed under a job.

DEVICES = "/dev/nvidia"
OWN = ("nvidia-persistenced", "nv-fabricmanager", "nvlsm", "nv-hostengine", "nvidia-imex")
"""Services of the set: stopped and started where it takes that."""
SHOWN = 5
"""So many processes stand in a message."""


def users(root: Path) -> list[Process]:
    """Every process of a job, by PID; not the set's own services, and not this run.

    Whatever has a device of the driver open, and every MPI process, which may be about to open one.
    Jobs of containers are among them.
    """
    found = {each.pid: each for each in busy.processes(root)}
    own = {name[: processes.COMM_LENGTH] for name in OWN}
    for each in processes.openers(root, lambda path: path.startswith(DEVICES)):
        # What somebody started by such a name in a session is no service of the set.
        if each.name not in own or each.service == "":
            of = f", {each.service}" if each.service else ""
            found[each.pid] = Process(each.pid, "", each.name, f"has {each.file} open{of}")
    for pid in _ourselves(root):
        found.pop(pid, None)
    return [found[pid] for pid in sorted(found)]


def listed(jobs: Sequence[Process]) -> str:
    return some([f"{each.command} (PID {each.pid}: {each.why})" for each in jobs], SHOWN)


def _ourselves(root: Path) -> Iterator[int]:
    """This process and its parents: a run started by an MPI job does not count as a job."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        fields = tree.text(root / "proc" / str(pid) / "stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0


# The packages of the set. A changed driver stops services first, and waits for jobs.

DRIVER_PACKAGES = re.compile(r".*nvidia.*|nvlsm|nvlink5.*|libnvsdm.*|libxnvctrl.*|cuda-drivers.*")
"""Packages of which a change concerns whatever uses the driver."""
CUDA_PACKAGES = re.compile(r"cuda-toolkit-.*")
FABRIC_PACKAGE = re.compile(r"nvidia-fabric-?manager(-\d+)?")
"""Of exactly the driver's version, on every family: it stands for all of them."""
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
        # DCGM first, which has the GPUs open; then the fabric manager, and NVLSM with it.
        units = [DCGM] if driver or touches(planned, DCGM_PACKAGES) else []
        units += [FABRIC_MANAGER] if driver else []
        units = [unit for unit in units if systemd.active(node, unit)]
        for unit in units:
            self.shared.stop(unit)
        act = partial(self._act, node, planned, units)
        before, after = "not as the set has them", "installed, pinned and held"
        return Plan(
            steps=[Step("packages", before, after, act, essential=True, shown=planned.diffs())]
        )

    def _act(self, node: Node, planned: PackagePlan, units: Sequence[str]) -> None:
        check = touches(planned, DRIVER_PACKAGES) and not self.under_jobs
        jobs = users(node.root) if check else []
        if jobs:
            raise StepError(
                f"a job started since the plan, and no package was changed: {listed(jobs)}. Drain "
                "the node and run again"
            )
        for unit in units:
            systemd.control(node, "stop", unit)
        self.installer.act(planned)
        self._look(PackagePlan())

    def _look(self, planned: PackagePlan) -> None:
        names = {*self.installer.manager.installed(), *(each.name for each in planned.changes)}
        self.shared.gdrcopy = bool(names & GDRDRV)

    def verify(self, node: Node) -> Verdict:
        checks = self.installer.verify(node.check_mode)
        for check in checks:
            if DRIVER_PACKAGES.fullmatch(check.subject) or check.name == "packages":
                self.shared.without_driver.look(check)
            if CUDA_PACKAGES.fullmatch(check.subject) or check.name == "packages":
                self.shared.without_cuda.look(check)
        return Verdict(checks)


def _refusal(planned: PackagePlan, jobs: Sequence[Process]) -> str:
    changes = [each for each in planned.changes if DRIVER_PACKAGES.fullmatch(each.name)]
    if changes:
        first = f"{changes[0].name} {changes[0].before or 'absent'} -> {changes[0].after}"
        what = f"{len(changes)} packages of the driver would change ({first})"
    elif planned.repairs:
        what = f"an interrupted installation would be finished ({planned.repairs})"
    else:
        what = f"{planned.changes[0].name} would change, and its dependencies are not known yet"
    # Its server stays when its clients have ended, on a drained node too.
    mps = any(each.command.startswith(busy.MPS) for each in jobs)
    end = " and end MPS (echo quit | nvidia-cuda-mps-control)" if mps else ""
    return (
        f"{what}, and the GPUs are in use: {listed(jobs)}. Drain the node{end}, stop services that "
        "are named, then run again; or set nvidia_gpu_change_under_jobs: true, and these processes "
        "may fail"
    )


def fitting(installed: Mapping[str, str], driver: str) -> bool:
    """Whether what is installed is of the version of the driver that runs: else nothing starts."""
    versions = [version for name, version in installed.items() if FABRIC_PACKAGE.fullmatch(name)]
    return any(re.search(rf"(?<![\d.]){re.escape(driver)}(?![\d.])", each) for each in versions)


def touches(planned: PackagePlan, names: re.Pattern[str]) -> bool:
    """Whether such packages change, or may: by a repair, or as dependencies not known yet."""
    unknown = planned.repairs or (planned.changes and not planned.solved)
    return bool(unknown) or any(names.fullmatch(each.name) for each in planned.changes)
