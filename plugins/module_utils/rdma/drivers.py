# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether the kernel and drivers that run are the installed ones, whose, and who uses them.

A new driver package changes files. The kernel goes on with what it loaded, until the drivers are
loaded again, which takes every RDMA device away for a moment, or until the next boot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Optional

from ..core import mounts, processes, systemd
from ..core.checks import OK, Check, differs, not_applicable
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, Step, StepError, Verdict
from ..core.reboots import Reason
from ..core.text import some
from ..hardware import tree as sysfs
from ..software.software_set import DOCA, INBOX
from .hardware import Hardware

DRIVERS = (
    "mlx5_core",
    "mlx5_ib",
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
)
"""Those of a RoCE node, the NIC's first: DOCA-OFED brings all of them, and so does the kernel."""
KERNEL = "kernel_release"
RUNNING, ORIGIN = "rdma_driver_running", "rdma_driver_origin"
SERVICE = "openibd"
"""Loads and unloads the drivers of DOCA-OFED in their order."""
SUBJECT = "RDMA drivers"
_OUT_OF_TREE = re.compile(r"/lib/modules/[^/]+/(updates|extra|weak-updates)/")


@dataclass(frozen=True)
class Module:
    """One kernel module, installed or loaded. What it does not say is empty."""

    name: str
    version: str = ""
    source: str = ""
    """srcversion: a checksum of what it was built from."""
    path: str = ""

    def same(self, other: Module) -> bool:
        if self.source and other.source:
            return self.source == other.source
        return self.version == other.version

    def shown(self, beside: Optional[Module] = None) -> str:
        """With what tells it from another one of that name."""
        alike = beside is not None and self.version == beside.version
        what = self.version if self.version and not alike else f"srcversion {self.source}"
        return f"{self.name} {what}"


def loaded(hardware: Hardware) -> dict[str, Module]:
    """What runs. Modules that are built into the kernel have no state, and cannot be others."""
    directory = hardware.root / "sys/module"
    return {
        name: Module(
            name,
            sysfs.text(directory / name / "version"),
            sysfs.text(directory / name / "srcversion"),
        )
        for name in DRIVERS
        if (directory / name / "initstate").exists()
    }


def installed(node: Node, names: list[str]) -> dict[str, Module]:
    """What modprobe would load now, for the kernel that runs."""
    if not names:
        return {}
    text = node.run(["modinfo", *names], check=False).stdout
    found: dict[str, Module] = {}
    for block in re.split(r"^(?=filename:)", text, flags=re.MULTILINE):
        values: dict[str, str] = {}
        for line in block.splitlines():
            key, _colon, value = line.partition(":")
            values.setdefault(key.strip(), value.strip())  # aliases and dependencies repeat
        path = values.get("filename", "")
        if path.startswith("/"):
            # A module that was not built in the kernel's own tree may state no name.
            name = values.get("name") or Path(path).name.partition(".")[0].replace("-", "_")
            found[name] = Module(
                name, values.get("version", ""), values.get("srcversion", ""), path
            )
    return found


@dataclass(frozen=True)
class Drivers:
    """`restart`: load changed drivers again at once, where nothing uses RDMA."""

    source: str
    restart: bool = False
    changing: Callable[[], bool] = lambda: False
    """Whether packages of drivers are about to change."""
    hardware: Hardware = field(default_factory=Hardware)

    def plan(self, node: Node) -> Plan:
        if not self.restart or self.hardware.missing(node):
            return Plan()
        stale = self._stale(node)
        if not stale and not self.changing():
            return Plan()
        before = ", ".join(each.shown(new) for each, new in stale) or "as they are now"
        return Plan([], [Step(SUBJECT, before, "as installed", lambda: self._load(node))])

    def verify(self, node: Node) -> Verdict:
        missing = self.hardware.missing(node, "drivers are the host's")
        if missing:
            return Verdict([not_applicable(RUNNING, "as installed", missing)])
        running = loaded(self.hardware)
        if not running:
            # Devices that are missing for it are named one by one elsewhere.
            why = "no RDMA driver is loaded as a module"
            return Verdict([not_applicable(RUNNING, "as installed", why)])
        there = installed(node, list(running))
        verdict = Verdict(self._origins(node, running, there))
        self._judge(node, running, there, verdict)
        return verdict

    def _stale(self, node: Node) -> list[tuple[Module, Module]]:
        running = loaded(self.hardware)
        return _differing(running, installed(node, list(running)))

    def _load(self, node: Node) -> None:
        if not self._stale(node):
            return
        found = users(node.root)
        if found:
            raise StepError(
                f"drivers were not loaded again, as RDMA is in use by {some(found, SHOWN)}: they "
                "wait for the reboot"
            )
        systemd.restart(node, SERVICE)

    def _judge(
        self,
        node: Node,
        running: Mapping[str, Module],
        there: Mapping[str, Module],
        verdict: Verdict,
    ) -> None:
        differing = _differing(running, there)
        if not differing:
            first = next(iter(running.values())).shown()
            verdict.checks.append(Check(RUNNING, first, first, OK))
            return
        old, new = differing[0]
        more = f" and {len(differing) - 1} more" if len(differing) > 1 else ""
        reason = Reason(
            subject=SUBJECT,
            wanted=new.shown(old),
            running=old.shown(new),
            reason=f"{old.name}{more} changed on disk, and the kernel goes on with what it loaded",
        )
        verdict.reasons.append(reason)
        remedy = "its initramfs has the old drivers: update-initramfs -u or dracut -f, then reboot"
        status, why = node.reboot_due(reason, remedy)
        verdict.checks.append(Check(RUNNING, reason.wanted, reason.running, status, "", why))

    def _origins(
        self, node: Node, running: Mapping[str, Module], there: Mapping[str, Module]
    ) -> list[Check]:
        """Whether what is installed for the running kernel is of the source that is wanted."""
        checks = []
        wrong = differs(node.check_mode and self.changing())
        for name in ("mlx5_core", "ib_core"):
            if name not in running:
                continue
            path = there[name].path if name in there else ""
            found = DOCA if _OUT_OF_TREE.search(path) else INBOX
            if not path and self.hardware.simulated and self.source != DOCA:
                why = "the machine is recorded, and its kernel's modules are not on this disk"
                checks.append(not_applicable(ORIGIN, self.source, why, subject=name))
            elif not path:
                reason = "the module is not on disk any more: is its package half removed?"
                checks.append(Check(ORIGIN, self.source, "none", wrong, name, reason))
            elif found == self.source:
                checks.append(Check(ORIGIN, self.source, found, OK, name))
            else:
                checks.append(Check(ORIGIN, self.source, path, wrong, name, _WHY[self.source]))
        return checks


_WHY = {
    DOCA: "the drivers of DOCA-OFED are not built for this kernel: see dkms status (Ubuntu), "
    "rpm -q kmod-mlnx-ofa_kernel (RHEL), and that headers of the running kernel are installed",
    INBOX: "drivers of another package take the place of the kernel's: dpkg -S or rpm -qf names "
    "it; remove it, or write software.rdma.source: doca",
}


def _differing(
    running: Mapping[str, Module], there: Mapping[str, Module]
) -> list[tuple[Module, Module]]:
    return [
        (module, there[name])
        for name, module in running.items()
        if name in there and not module.same(there[name])
    ]


DEVICES = "/dev/infiniband/"
SHOWN = 8
"""Users that a message names."""


def users(root: Path = Path("/")) -> list[str]:
    """One line each, processes by name and number first; empty when nothing uses RDMA."""
    found = processes.openers(root, lambda path: path.startswith(DEVICES))
    return [*(f"{each.name} ({each.pid})" for each in found), *_mounts(root), *_nvme(root)]


def _mounts(root: Path) -> Iterator[str]:
    for each in mounts.read(root):
        nfs = each.kind.startswith("nfs") and "proto=rdma" in each.options
        if nfs or (each.kind == "lustre" and "@o2ib" in each.source):
            yield f"{each.point} ({each.kind} over RDMA)"


def _nvme(root: Path) -> Iterator[str]:
    for name in sysfs.names(root / "sys/class/nvme"):
        if sysfs.text(root / "sys/class/nvme" / name / "transport") == "rdma":
            yield f"{name} (NVMe over RDMA)"


@dataclass(frozen=True)
class Kernel:
    """`wanted`: the release of the set; empty, and the one that runs is as good."""

    wanted: str
    hardware: Hardware = field(default_factory=Hardware)
    changing: Callable[[], bool] = lambda: False
    """Whether the plan changes packages: the kernel of the set is one of them."""

    def plan(self, node: Node) -> Plan:
        return Plan()

    def verify(self, node: Node) -> Verdict:
        if not self.wanted:
            return Verdict()
        missing = self.hardware.missing(node, "the kernel is the host's")
        if missing:
            return Verdict([not_applicable(KERNEL, self.wanted, missing)])
        found = self.hardware.release(node)
        if found == self.wanted:
            return Verdict([Check(KERNEL, self.wanted, found, OK)])
        if not node.path(f"lib/modules/{self.wanted}").is_dir():
            reason = "it is not installed: install it, or correct software.kernel"
            status = differs(node.check_mode and self.changing())
            return Verdict([Check(KERNEL, self.wanted, found, status, "", reason)])
        waits = Reason("kernel", self.wanted, found, "the kernel of the set is installed")
        remedy = "make it the boot loader's default (grub-set-default, grubby --set-default)"
        status, why = node.reboot_due(waits, remedy)
        return Verdict([Check(KERNEL, self.wanted, found, status, "", why)], [waits])
