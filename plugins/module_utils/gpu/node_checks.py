# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for the node as a whole: driver, versions, fabric manager, GPUDirect RDMA."""

from __future__ import annotations

import re

from ..core.reboots import Reason
from .findings import AUTO, DMABUF, NONE, PEERMEM, Findings
from .reading import ACTIVE, FABRIC_MANAGER, Gpus

DRIVER = "gpu_driver"
VERSION = "gpu_driver_version"
OPEN = "gpu_open_modules"
FM_VERSION = "gpu_fabric_manager_version"
FM = "gpu_fabric_manager"
NVML = "gpu_nvml"
DIRECT = "gpu_direct"
WARNINGS = "gpu_warnings"

FABRIC_MODULES = ("ib_umad", "mlx5_ib")
"""What NVLSM reaches the NVSwitches of NVLink 5 through."""
DMABUF_KERNEL = (5, 12)
NO_FABRIC = "the GPUs of this node have no NVSwitch fabric (fabric: false)"


def modules(findings: Findings) -> str:
    """Is the kernel module there, is it the open one, does the driver answer?

    Returns the name of the finding that stands in the way of all the rest, or nothing.
    """
    driver, said = findings.found.driver, findings.found.smi
    answers = f"nvidia-smi answers for {len(findings.wanted.gpus)} GPUs"
    if not driver.module and not said.gpus:
        _not_loaded(findings, answers)
        return DRIVER
    if said.hung:
        reason = "the driver hangs: see dmesg, drain the node and reboot it, or power it off and on"
        findings.fail(DRIVER, answers, said.error, reason)
        return DRIVER
    if not _version(findings) and said.mismatch:
        return VERSION
    if not _open(findings) and not said.gpus:
        return OPEN
    if said.gpus or any(":" in pci for pci in said.unreachable):
        findings.ok(DRIVER, answers, f"nvidia-smi answers for {len(said.gpus)} GPUs")
        return ""
    findings.fail(DRIVER, answers, said.error, "nvidia-smi gives no GPU: see NVRM in dmesg")
    return DRIVER


def _not_loaded(findings: Findings, answers: str) -> None:
    """No kernel module: because of nouveau, or because it is not there or does not load."""
    driver = findings.found.driver
    if not driver.on_disk:
        reason = (
            f"there is none for kernel {driver.kernel}: install the set's driver; see dkms status "
            "and the kernel's headers"
        )
        findings.fail(DRIVER, answers, "no kernel module nvidia", reason, fixable=True)
    elif "nouveau" in findings.found.machine.modules and driver.on_disk == findings.wanted.driver:
        why = f"nouveau has the GPUs and keeps nvidia {driver.on_disk} out until the next boot."
        waits = Reason("kernel module of the GPUs", "nvidia", "nouveau", why)
        findings.reboot(DRIVER, answers, "nouveau is loaded", waits)
    else:
        reason = (
            f"nvidia {driver.on_disk} is on disk for kernel {driver.kernel}: see modprobe nvidia. "
            "With Secure Boot the module's key has to be enrolled (mokutil)"
        )
        findings.fail(DRIVER, answers, "not loaded", reason, fixable=True)


def _version(findings: Findings) -> bool:
    """Whether kernel module = library = what is on disk = the set."""
    driver, version = findings.found.driver, findings.wanted.driver
    library = findings.found.nvml.library  # empty before pynvml.py is on the node
    seen = (
        f"kernel module {driver.module}, library {library or 'unknown'}, "
        f"on disk {driver.on_disk or 'unknown'}"
    )
    of_the_set = library in ("", version)
    if driver.module == version and of_the_set and not findings.found.smi.mismatch:
        findings.ok(VERSION, version, seen)
        return True
    if driver.module != version and driver.on_disk == version and of_the_set:
        why = (
            f"driver {version} is installed and {driver.module} still runs: until the next boot "
            "nothing can use the GPUs (Driver/library version mismatch)."
        )
        waits = Reason("kernel module nvidia", version, driver.module, why)
        findings.reboot(VERSION, version, seen, waits)
        return False
    foreign = driver.module == version and driver.on_disk in ("", version)
    reason = "install the set's driver packages"
    if foreign:
        reason = "a libnvidia-ml.so.1 from elsewhere is found first: see ldconfig -p, remove it"
    elif driver.on_disk not in ("", version) and of_the_set:
        reason = f"the packages are {version} and not built for kernel {driver.kernel}: dkms status"
    findings.fail(VERSION, version, seen, reason, fixable=not foreign)
    return False


def _open(findings: Findings) -> bool:
    """Whether the modules are of the kind that is wanted."""
    driver = findings.found.driver
    if not findings.wanted.open_modules:
        findings.skip(OPEN, "open", "the set does not ask for the open kernel modules")
        return True
    if driver.open:
        findings.ok(OPEN, "open", "open")
        return True
    if driver.on_disk_open:
        why = "the open kernel modules are installed and the proprietary ones still run."
        waits = Reason("kind of the kernel module nvidia", "open", "proprietary", why)
        findings.reboot(OPEN, "open", "proprietary", waits)
        return False
    reason = (
        "they open no GPU of Blackwell and have no dma-buf: install nvidia-open (Ubuntu), module "
        "stream nvidia-driver:BRANCH-open (EL); then reboot"
    )
    findings.fail(OPEN, "open", "proprietary", reason, fixable=True)
    return False


def warnings(findings: Findings) -> None:
    """What nvidia-smi prints beside its answer is never good news."""
    said = "; ".join(findings.found.smi.warnings)
    if not said:
        findings.ok(WARNINGS, "none", "none")
        return
    reason = "see NVRM in dmesg; with a corrupted infoROM run NVIDIA's field diagnostic, replace"
    findings.fail(WARNINGS, "none", said, reason)


def gpudirect(findings: Findings) -> None:
    """A way for NICs to reach GPU memory: dma-buf, or the module nvidia_peermem."""
    wanted, driver = findings.wanted, findings.found.driver
    if wanted.gpudirect == NONE:
        findings.skip(DIRECT, None, "not wanted (gpudirect: none)")
        return
    there = []
    if driver.open and kernel_version(driver.kernel) >= DMABUF_KERNEL:
        there.append(DMABUF)
    if "nvidia_peermem" in findings.found.machine.modules:
        there.append(PEERMEM)
    goal = "dmabuf or peermem" if wanted.gpudirect == AUTO else wanted.gpudirect
    seen = " and ".join(there) or "neither dma-buf nor nvidia_peermem"
    if wanted.gpudirect in there or (there and wanted.gpudirect == AUTO):
        findings.ok(DIRECT, goal, seen)
    elif OPEN in findings.blamed.get("", []) and wanted.gpudirect != PEERMEM:
        findings.unread([DIRECT], OPEN)
    else:
        reason = (
            "NICs have no way to GPU memory: dma-buf takes the open modules and kernel 5.12 "
            f"(here: {driver.kernel}); otherwise modprobe nvidia_peermem, which is built against "
            "DOCA-OFED"
        )
        findings.fail(DIRECT, goal, seen, reason)


def kernel_version(release: str) -> tuple[int, int]:
    """(6, 8) of `6.8.0-79-generic`."""
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def fabric_manager(findings: Findings) -> str:
    """Fabric manager of the driver's version, and running. The finding that hinders, or nothing."""
    if not findings.wanted.fabric:
        for name in (FM_VERSION, FM):
            findings.skip(name, None, NO_FABRIC)
        return ""
    version, found = findings.wanted.driver, findings.found.driver.fabric_manager
    if found != version:
        reason = "it ends at once with another driver: install the set's (nvlink5), restart it"
        findings.fail(FM_VERSION, version, found, reason, fixable=True)
        findings.unread([FM], FM_VERSION)
        return FM_VERSION
    findings.ok(FM_VERSION, version, found)
    seen = findings.found.services[FABRIC_MANAGER]
    if seen == ACTIVE:
        findings.ok(FM, ACTIVE, seen)
        return ""
    reason = (
        f"{missing_modules(findings.found)}systemctl start {FABRIC_MANAGER}; see its journal and "
        "/var/log/fabricmanager.log"
    )
    findings.fail(FM, ACTIVE, seen, reason, fixable=True)
    return FM


def missing_modules(found: Gpus) -> str:
    """A sentence about kernel modules that the fabric manager needs and that are not there."""
    lacking = " ".join(name for name in FABRIC_MODULES if name not in found.machine.modules)
    if not lacking:
        return ""
    return (
        f"NVLSM reaches no NVSwitch without {lacking}: modprobe -a {lacking} (layer rdma), then "
        "restart the fabric manager. "
    )


def nvml(findings: Findings) -> None:
    """Whether NVML answers."""
    error = findings.found.nvml.error
    if not findings.wanted.nvlinks:
        findings.skip(NVML, "answers", "asked for NVLinks alone, none are wanted (nvlinks: 0)")
    elif not error:
        findings.ok(NVML, "answers", "answers")
    else:
        reason = "see libnvidia-ml.so.1 (ldconfig -p) and pynvml.py of nvidia-ml-py on the node"
        findings.fail(NVML, "answers", error, reason, fixable=findings.found.nvml.absent)
