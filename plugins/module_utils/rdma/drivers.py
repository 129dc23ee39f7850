# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Kernel, drivers and modules: whether the installed ones are running, and what uses them.

A new driver package changes files, while the kernel continues with the loaded modules until they
are reloaded, which removes every RDMA device for a moment, or until the next boot.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core import mounts, processes, secure_boot, systemd
from ..core.checks import OK, Check, compare, not_applicable
from ..core.part import NAME, Node, Plan, PlanError, Step, StepError, Verdict
from ..core.reboots import Reason
from ..core.text import some
from ..hardware import tree as sysfs
from ..hardware.inventory import MELLANOX
from ..software.doca_kernels import doubt
from ..software.software_set import DOCA, INBOX
from . import Hardware, Reads

DRIVERS = ("mlx5_core", "mlx5_ib", "ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm")
"""Modules of a RoCE node, the NIC's first; both DOCA-OFED and the kernel have all of them."""
KERNEL = "kernel_release"
RUNNING, ORIGIN = "rdma_driver_running", "rdma_driver_origin"
SERVICE = "openibd"
"""Loads and unloads DOCA-OFED's drivers in order."""
SUBJECT = "RDMA drivers"
_OUT_OF_TREE = re.compile(r"/lib/modules/[^/]+/(updates|extra|weak-updates)/")
_WHY = {
    DOCA: "the drivers of DOCA-OFED are not built for this kernel: see dkms status, make.log below "
    "/var/lib/dkms/mlnx-ofed-kernel or mlnx-ofa_kernel, and that headers of the running kernel are "
    "installed (on RHEL DOCA before 3.2 has no DKMS: rpm -q kmod-mlnx-ofa_kernel)",
    INBOX: "drivers of another package replace the kernel's: dpkg -S or rpm -qf names it; remove "
    "it, or write software.rdma.source: doca",
}


@dataclass(frozen=True)
class SecureBoot:
    """Check that the kernel would load the DOCA-OFED drivers that DKMS builds.

    Otherwise the node would come back from the next reboot without mlx5_core: without rails, and
    without any network if that is on such a NIC. This is therefore checked before any package
    changes.
    """

    hardware: Hardware
    source: str

    def plan(self, node: Node) -> Plan:
        # If the kernel has already loaded such a driver (its taint is O), it accepts others too,
        # whatever their signature.
        taint = sysfs.text(self.hardware.root / "sys/module/mlx5_core/taint")
        if self.source != DOCA or self.hardware.missing(node) or "O" in taint:
            return Plan()
        refusal = secure_boot.refusal(node, self.hardware.root)
        if refusal:
            raise PlanError(
                f"DOCA-OFED: {refusal}; or use the kernel's own drivers (software.rdma.source: "
                "inbox). Otherwise no NVIDIA NIC has a driver after the next reboot"
            )
        return Plan()

    def verify(self, node: Node) -> Verdict:
        return Verdict()


@dataclass(frozen=True)
class KernelRelease(Reads):
    """`wanted`: the set's kernel release; if empty, any release is accepted."""

    wanted: str

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
            status = self.hardware.wrong(node)  # the kernel is among the set's packages
            return Verdict([Check(KERNEL, self.wanted, found, status, "", reason)])
        waits = Reason("kernel", self.wanted, found, "the kernel of the set is installed")
        remedy = "make it the boot loader's default (grub-set-default, grubby --set-default)"
        status, why = node.reboot_due(waits, remedy)
        return Verdict([Check(KERNEL, self.wanted, found, status, "", why)], [waits])


def _build(name: str, version: str, source: str) -> str:
    """`source`: srcversion, a checksum of its source."""
    return f"{name}{f' {version}' if version else ''} srcversion {source}"


def loaded(hardware: Hardware) -> dict[str, str]:
    """Builds of loaded modules. Those that are built into the kernel have no state and cannot
    differ."""
    entries = {name: hardware.root / "sys/module" / name for name in DRIVERS}
    return {
        name: _build(name, sysfs.text(entry / "version"), sysfs.text(entry / "srcversion"))
        for name, entry in entries.items()
        if (entry / "initstate").exists()
    }


def installed(node: Node, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Builds and paths of the modules that modprobe would load for the running kernel."""
    text = node.run(["modinfo", *names], check=False).stdout if names else ""
    found: dict[str, tuple[str, str]] = {}
    for block in re.split(r"^(?=filename:)", text, flags=re.MULTILINE):
        rows = [line.partition(":") for line in block.splitlines()]
        values = {key.strip(): value.strip() for key, _colon, value in rows}
        path = values.get("filename", "")
        if path.startswith("/"):
            # A module built outside the kernel's own tree may have no name field.
            name = values.get("name") or Path(path).name.partition(".")[0].replace("-", "_")
            build = _build(name, values.get("version", ""), values.get("srcversion", ""))
            found[name] = build, path
    return found


@dataclass(frozen=True)
class Drivers:
    """`restart`: reload changed drivers if nothing uses RDMA. `doca`: its release in the set."""

    hardware: Hardware
    source: str
    restart: bool = False
    doca: str = ""

    def plan(self, node: Node) -> Plan:
        if not self.restart or self.hardware.missing(node):
            return Plan()
        stale = self._stale(node)
        if not stale and not self.hardware.changing:
            return Plan()
        before = ", ".join(old for old, _new in stale) or "as they are now"
        return Plan([], [Step(SUBJECT, before, "as installed", lambda: self._load(node))])

    def verify(self, node: Node) -> Verdict:
        missing = self.hardware.missing(node, "drivers are the host's")
        running = {} if missing else loaded(self.hardware)
        if not running:
            # Other checks name the devices that are missing because of it.
            why = missing or "no RDMA driver is loaded as a module"
            return Verdict([not_applicable(RUNNING, "as installed", why)])
        there = installed(node, list(running))
        origins = [
            self._origin(node, name, there[name][1] if name in there else "")
            for name in ("mlx5_core", "ib_core")
            if name in running
        ]
        stale = _differing(running, there)
        if not stale:
            first = next(iter(running.values()))
            return Verdict([*origins, Check(RUNNING, first, first, OK)])
        old, new = stale[0]
        names = some([build.split()[0] for build, _new in stale], 1)
        why = f"{names} changed on disk, but the kernel continues with the loaded modules"
        reason = Reason(SUBJECT, new, old, why)
        remedy = "its initramfs has the old drivers: update-initramfs -u or dracut -f, then reboot"
        status, why = node.reboot_due(reason, remedy)
        return Verdict([*origins, Check(RUNNING, new, old, status, "", why)], [reason])

    def _stale(self, node: Node) -> list[tuple[str, str]]:
        running = loaded(self.hardware)
        return _differing(running, installed(node, list(running)))

    def _load(self, node: Node) -> None:
        if not self._stale(node):
            return
        found = users(node.root)
        if found:
            raise StepError(
                f"drivers were not reloaded, as RDMA is in use by {some(found, MAX_LISTED_USERS)}: "
                "they load at the next boot"
            )
        systemd.control(node, "restart", SERVICE)

    def _origin(self, node: Node, name: str, path: str) -> Check:
        """Check that the module for the running kernel comes from the desired source."""
        found = DOCA if _OUT_OF_TREE.search(path) else INBOX
        if not path and self.hardware.simulated and self.source != DOCA:
            why = "the machine is recorded, and its kernel's modules are not on this disk"
            return not_applicable(ORIGIN, self.source, why, subject=name)
        if path and found == self.source:
            return Check(ORIGIN, self.source, found, OK, name)
        gone = "the module is no longer on disk: is its package partly removed?"
        reason = _WHY[self.source] if path else gone
        if path and self.source == DOCA and self.doca:
            doubted = doubt(self.doca, self.hardware.release(node))
            reason = f"{reason}; {doubted}" if doubted else reason
        status = self.hardware.wrong(node)
        return Check(ORIGIN, self.source, path or "none", status, name, reason)


def _differing(
    running: Mapping[str, str], there: Mapping[str, tuple[str, str]]
) -> list[tuple[str, str]]:
    return [
        (build, there[name][0])
        for name, build in running.items()
        if name in there and build != there[name][0]
    ]


# Users of RDMA

DEVICES = "/dev/infiniband/"
MAX_LISTED_USERS = 8


def users(root: Path = Path("/")) -> list[str]:
    """Users of RDMA, one line each, processes first; empty if nothing uses it."""
    found = [each.text() for each in processes.openers(root, lambda path: path.startswith(DEVICES))]
    for each in mounts.read(root):
        nfs = each.kind.startswith("nfs") and "proto=rdma" in each.options
        if nfs or (each.kind == "lustre" and "@o2ib" in each.source):
            found.append(f"{each.point} ({each.kind} over RDMA)")
    nvme = root / "sys/class/nvme"
    disks = [name for name in sysfs.names(nvme) if sysfs.text(nvme / name / "transport") == "rdma"]
    return [*found, *(f"{name} (NVMe over RDMA)" for name in disks)]


# RDMA kernel modules that no device loads automatically: loaded now and at every boot.
#
# ib_umad is needed by the NVLink fabric of B200 and B300, and by every tool that sends management
# packets; rdma_ucm by connections that are addressed by IP.

FILE = f"etc/modules-load.d/{NAME}-rdma.conf"
MODULE = "rdma_module"
LOADED, NOT_LOADED = "loaded", "not loaded"


@dataclass(frozen=True)
class BootModules:
    hardware: Hardware
    names: Sequence[str]

    def plan(self, node: Node) -> Plan:
        if self.hardware.missing(node):
            return Plan()
        names = [name for name in self.names if not self._pointless(name)]
        steps = [
            Step(f"kernel module {name}", NOT_LOADED, LOADED, node.doing("modprobe", "--", name))
            for name in names
            if self._state(name) == NOT_LOADED
        ]
        return Plan([node.file(FILE, "".join(f"{name}\n" for name in names) or None)], steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.hardware.missing(node, "modules are loaded into the host's kernel")
        return Verdict([self._check(node, name, missing) for name in self.names])

    def _state(self, name: str) -> str:
        """/sys/module has underscores in names that modprobe accepts with dashes."""
        return LOADED if name.replace("-", "_") in self.hardware.modules else NOT_LOADED

    def _pointless(self, name: str) -> bool:
        """Drivers of one vendor's NICs are useless without such a NIC."""
        nics = self.hardware.machine.functions.values()
        return name == "mlx5_ib" and not any(each.vendor == MELLANOX for each in nics)

    def _check(self, node: Node, name: str, missing: str) -> Check:
        if missing or self._pointless(name):
            reason = missing or "no NIC of this machine has that driver"
            return not_applicable(MODULE, LOADED, reason, subject=name)
        reason = f"modprobe {name}; see dmesg, the kernel's extra modules, dkms status"
        found, check_mode = self._state(name), node.check_mode
        return compare(MODULE, LOADED, found, subject=name, check_mode=check_mode, reason=reason)
