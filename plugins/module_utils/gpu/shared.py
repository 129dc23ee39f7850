# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the parts of the stack have in common: kernel, services, users, and what they hand on.

The services have these names on both families and in every branch. The unit of the fabric manager
starts and stops NVLSM as well, where NVLink5 needs it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import Optional

from ..core import processes
from ..core.checks import FAILED, PENDING, Check, not_applicable
from ..core.dataclass import dataclass
from ..core.text import some
from ..hardware import tree
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
class Kernel:
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
class Cause:
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

    kernel: Kernel
    driver: str
    stopped: list[str] = field(default_factory=list)
    """Services that are stopped for a change, and have to start again."""
    reloads: bool = False
    """The kernel module is exchanged, so that the driver of the set will run."""
    without_driver: Cause = field(default_factory=Cause)
    without_cuda: Cause = field(default_factory=Cause)

    @property
    def awaits_reboot(self) -> bool:
        """Whether only a reboot can load the set's driver: another one is there."""
        if self.kernel.driver is None:
            return self.kernel.loaded("nouveau")
        return self.kernel.driver != self.driver

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
        if each.name not in own:
            found[each.pid] = Process(each.pid, "", each.name, f"has {each.file} open")
    for pid in _ourselves(root):
        found.pop(pid, None)
    return [found[pid] for pid in sorted(found)]


def listed(who: Sequence[Process]) -> str:
    return some([f"{each.command} (PID {each.pid}: {each.why})" for each in who], SHOWN)


def _ourselves(root: Path) -> Iterator[int]:
    """This process and those that started it: a run that an MPI job started is no job by that."""
    pid = os.getpid()
    while pid > 1:
        yield pid
        fields = tree.text(root / "proc" / str(pid) / "stat").rpartition(")")[2].split()
        pid = int(fields[1]) if len(fields) > 1 else 0
