# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for the node as a whole: driver, versions, fabric manager, GPUDirect RDMA."""

from __future__ import annotations

import re
from typing import Optional

from ..reboots import Reason
from .book import Book
from .found import Gpus
from .wanted import AUTO, DMABUF, NONE, PEERMEM, Wanted

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
_LEADING = re.compile(r"(\d+)\.(\d+)")


def modules(book: Book, found: Gpus, wanted: Wanted) -> Optional[str]:
    """Is the kernel module there, is it the open one, does the driver answer?

    Returns the name of the finding that stands in the way of all the rest, or None.
    """
    driver = found.driver
    answers = f"nvidia-smi answers for {len(wanted.gpus)} GPUs"
    if not driver.module and not found.gpus:
        _not_loaded(book, found, wanted, answers)
        return DRIVER
    if found.hung:
        book.fail(
            DRIVER,
            answers,
            found.error,
            f"nvidia-smi does not end ({found.error}): the driver hangs. Look for Xid and for "
            "hung tasks in dmesg, drain the node and reboot it; if it hangs again, power it off "
            "and on.",
        )
        return DRIVER
    if _version(book, found, wanted) and found.mismatch:
        return VERSION
    if not _open(book, found, wanted) and not found.gpus:
        return OPEN
    if found.gpus or any(":" in pci for pci in found.unreachable):
        book.ok(DRIVER, answers, f"nvidia-smi answers for {len(found.gpus)} GPUs")
        return None
    book.fail(
        DRIVER,
        answers,
        found.error,
        f"nvidia-smi gives no GPU ({found.error}). Look at dmesg for NVRM, and at "
        f"nvidia-smi -q -x by hand.",
    )
    return DRIVER


def _not_loaded(book: Book, found: Gpus, wanted: Wanted, answers: str) -> None:
    """No kernel module: because of nouveau, or because it is not there or does not load."""
    driver = found.driver
    what = "the kernel module nvidia is not loaded"
    if not driver.on_disk:
        reason = (
            f"{what}, and there is none for kernel {driver.kernel}. Install the set's driver; if "
            "it is installed, look at dkms status and at the kernel's headers."
        )
        book.fail(DRIVER, answers, "no kernel module nvidia", reason, fixable=True)
    elif "nouveau" in found.machine.modules and driver.on_disk == wanted.driver:
        book.reboot(
            DRIVER,
            answers,
            "nouveau is loaded",
            Reason(
                "kernel module of the GPUs",
                "nvidia",
                "nouveau",
                f"nouveau has the GPUs and keeps nvidia {driver.on_disk} out until the next boot.",
            ),
        )
    else:
        reason = (
            f"{what}, though {driver.on_disk} is on disk for kernel {driver.kernel}: modprobe "
            "nvidia says why. With Secure Boot the module's key has to be enrolled (mokutil)."
        )
        book.fail(DRIVER, answers, "not loaded", reason, fixable=True)


def _version(book: Book, found: Gpus, wanted: Wanted) -> bool:
    """Kernel module = library = what is on disk = the set. Whether that is a finding."""
    driver, library = found.driver, found.nvml.library or _library_of(found.error)
    version = wanted.driver
    seen = {"kernel module": driver.module, "library": library, "on disk": driver.on_disk}
    words = ", ".join(f"{part} {value or 'unknown'}" for part, value in seen.items())
    old_runs = driver.module != version and driver.on_disk == version
    if old_runs and _same(library, version) and driver.module:
        book.reboot(
            VERSION,
            version,
            words,
            Reason(
                "kernel module nvidia",
                version,
                driver.module,
                f"driver {version} is installed and {driver.module} still runs: until the next "
                "boot nothing can use the GPUs (Driver/library version mismatch).",
            ),
        )
        return True
    if driver.module == version and _same(library, version) and not found.mismatch:
        book.ok(VERSION, version, words)
        return False
    if driver.module == version and _same(driver.on_disk or version, version):
        reason = (
            f"the library of NVML is {library or 'another'} and the kernel module {version}: a "
            "libnvidia-ml.so.1 from elsewhere is found first. See ldconfig -p, and remove what no "
            "package of the set owns."
        )
        book.fail(VERSION, version, words, reason)
    elif driver.on_disk and driver.on_disk != version and _same(library, version):
        reason = (
            f"the packages are {version} and the kernel module on disk is {driver.on_disk}: it "
            f"was not built for kernel {driver.kernel}. See dkms status and "
            "/var/lib/dkms/nvidia/*/build/make.log."
        )
        book.fail(VERSION, version, words, reason, fixable=True)
    else:
        reason = f"the set says {version} ({words}). Install the set's driver packages."
        book.fail(VERSION, version, words, reason, fixable=True)
    return True


def _library_of(error: str) -> str:
    """nvidia-smi's words of a mismatch name the library's version, without its last part."""
    match = re.search(r"NVML library version: (\S+)", error)
    return match.group(1) if match else ""


def _same(library: str, version: str) -> bool:
    """Whether a version, perhaps without its last part, can be this one; unknown can."""
    return not library or version == library or version.startswith(f"{library}.")


def _open(book: Book, found: Gpus, wanted: Wanted) -> bool:
    """Whether the modules are of the kind that is wanted."""
    driver = found.driver
    if not wanted.open_modules:
        book.skip(OPEN, "open", "the set does not ask for the open kernel modules")
        return True
    if driver.open:
        book.ok(OPEN, "open", "open")
        return True
    if driver.open is None:
        reason = "/proc/driver/nvidia/version does not say of which kind the running module is"
        book.fail(OPEN, "open", None, f"{reason}. See modinfo -F license nvidia.")
        return False
    if driver.on_disk_open:
        book.reboot(
            OPEN,
            "open",
            "proprietary",
            Reason(
                "kind of the kernel module nvidia",
                "open",
                "proprietary",
                "the open kernel modules are installed and the proprietary ones still run.",
            ),
        )
        return False
    reason = (
        "the proprietary kernel modules run, which open no GPU of Blackwell and have no dma-buf. "
        "Install the open ones: nvidia-open on Ubuntu, module stream nvidia-driver:BRANCH-open on "
        "EL; then reboot."
    )
    book.fail(OPEN, "open", "proprietary", reason, fixable=True)
    return False


def warnings(book: Book, found: Gpus) -> None:
    """What nvidia-smi says beside its answer is never good news."""
    if not found.warnings:
        book.ok(WARNINGS, "none", "none")
        return
    said = "; ".join(found.warnings)
    remedy = "Look at dmesg for NVRM."
    if "inforom" in said.lower():
        remedy = "A corrupted infoROM does not mend itself: run NVIDIA's field diagnostic, replace."
    book.fail(WARNINGS, "none", said, f"nvidia-smi says: {said}. {remedy}")


def fabric_manager(book: Book, found: Gpus, wanted: Wanted) -> Optional[str]:
    """Fabric manager of the driver's version, and running. The finding that hinders, or None."""
    if not wanted.fabric:
        for name in (FM_VERSION, FM):
            book.skip(name, None, "the GPUs of this node have no NVSwitch fabric (fabric: false)")
        return None
    driver, unit = found.driver, found.fabric_manager
    if driver.fabric_manager != wanted.driver:
        seen = driver.fabric_manager or driver.fabric_manager_error
        reason = (
            f"the fabric manager is {driver.fabric_manager} and the driver {wanted.driver}; it "
            "ends at once unless they are the same. Install the set's, restart the service."
            if driver.fabric_manager
            else f"no fabric manager answers ({seen}). Install the set's (nvlink5 packages)."
        )
        book.fail(FM_VERSION, wanted.driver, seen, reason, fixable=True)
        book.unread([FM], FM_VERSION)
        return FM_VERSION
    book.ok(FM_VERSION, wanted.driver, driver.fabric_manager)
    if unit.runs:
        book.ok(FM, "active", "active")
        return None
    seen = unit.error or f"{unit.active or 'unknown'} ({unit.load}, {unit.enabled}, {unit.result})"
    reason = (
        f"{unit.name} does not run: {seen}. {missing_modules(found)}systemctl start {unit.name}; "
        f"journalctl -u {unit.name} and /var/log/fabricmanager.log say why it ended."
    )
    book.fail(FM, "active", seen, reason, fixable=True)
    return FM


def missing_modules(found: Gpus) -> str:
    """A sentence about kernel modules that the fabric manager needs and that are not there."""
    lacking = [name for name in FABRIC_MODULES if name not in found.machine.modules]
    if not lacking:
        return ""
    names = ", ".join(lacking)
    return (
        f"{names} is not loaded, without which NVLSM reaches no NVSwitch: modprobe "
        f"{' '.join(lacking)} (layer rdma), then restart the fabric manager. "
    )


def nvml(book: Book, found: Gpus, wanted: Wanted) -> bool:
    """Whether NVML answers."""
    if not wanted.nvlinks:
        book.skip(NVML, "answers", "asked for NVLinks alone, and none are wanted (nvlinks: 0)")
        return False
    if not found.nvml.error:
        book.ok(NVML, "answers", "answers")
        return True
    reason = (
        f"NVML gives no answer: {found.nvml.error}. Look for libnvidia-ml.so.1 (ldconfig -p) and "
        "for the file pynvml.py of nvidia-ml-py on the node."
    )
    book.fail(NVML, "answers", found.nvml.error, reason, fixable=found.nvml.absent)
    return False


def gpudirect(book: Book, found: Gpus, wanted: Wanted) -> None:
    """A way for NICs to reach GPU memory: dma-buf, or the module nvidia_peermem."""
    if wanted.gpudirect == NONE:
        book.skip(DIRECT, None, "not wanted (gpudirect: none)")
        return
    driver = found.driver
    match = _LEADING.match(driver.kernel)
    new_enough = match is not None and (int(match[1]), int(match[2])) >= DMABUF_KERNEL
    there = []
    if driver.open and new_enough:
        there.append(DMABUF)
    if "nvidia_peermem" in found.machine.modules:
        there.append(PEERMEM)
    enough = (
        there if wanted.gpudirect == AUTO else [way for way in there if way == wanted.gpudirect]
    )
    goal = "dmabuf or peermem" if wanted.gpudirect == AUTO else wanted.gpudirect
    seen = " and ".join(there) or "neither dma-buf nor nvidia_peermem"
    if enough:
        book.ok(DIRECT, goal, seen)
        return
    if driver.open is False and wanted.open_modules and wanted.gpudirect != PEERMEM:
        book.unread([DIRECT], OPEN)
        return
    reason = (
        f"NICs have no way to GPU memory ({goal} is wanted): dma-buf takes the open modules "
        f"(here: {'open' if driver.open else 'not open'}) and kernel 5.12 or later (here: "
        f"{driver.kernel}); otherwise load nvidia_peermem (modprobe, layer rdma), which is built "
        "against DOCA-OFED."
    )
    book.fail(DIRECT, goal, seen, reason)
