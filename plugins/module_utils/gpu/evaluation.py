# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Compare GPUs with model and set: one finding per fault, with its remedy.

The node as a whole comes first: driver, versions, fabric manager, GPUDirect RDMA. Each GPU follows:
its presence, the rules in gpu_checks.py, and the kernel log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ..core.checks import FAILED, OK, PENDING, Check
from ..core.part import Node
from ..core.reboots import Reason
from . import gpu_checks, xids
from .findings import (
    AUTO,
    DMABUF,
    NONE,
    PEERMEM,
    GpuFindings,
    GpuResult,
    GpuSlot,
    GpuTarget,
    aside,
    bad,
    slots_of,
)
from .gpu_checks import FABRIC, FAULTS, PRESENT, XID
from .reading import ACTIVE, DMABUF_KERNEL, FABRIC_MANAGER, Gpus, Xid, kernel_version
from .smi import NEEDS_RESET

DRIVER = "gpu_driver"
VERSION = "gpu_driver_version"
OPEN = "gpu_open_modules"
FM_VERSION = "gpu_fabric_manager_version"
FM = "gpu_fabric_manager"
NVML = "gpu_nvml"
DIRECT = "gpu_direct"
WARNINGS = "gpu_warnings"
COUNT = "gpu_count"
ORDER = "gpu_order"
EACH = (*gpu_checks.RULES, gpu_checks.RECOVERY)
OF_NODE = (DRIVER, VERSION, OPEN, WARNINGS, DIRECT, FM_VERSION, FM, NVML)
NAMES = (*OF_NODE, PRESENT, COUNT, ORDER, *EACH, XID)
"""All checks; each is either reported or names the finding that prevented it."""
NO_FABRIC = "the GPUs of this node have no NVSwitch fabric (fabric: false)"


def evaluate(gpus: Gpus, wanted: GpuTarget, node: Node) -> GpuFindings:
    """Evaluate a reading. A fault that an earlier reboot should have fixed is a failure."""
    findings = GpuFindings(gpus, wanted, node)
    hindered = _modules(findings)
    if hindered:
        made = {check.name for check in findings.checks}
        findings.unread([name for name in NAMES if name not in made], hindered)
        return findings
    # Always a problem.
    found, none = "; ".join(gpus.smi.warnings), "none"
    reason = "see NVRM in dmesg; if an infoROM is corrupted, run NVIDIA's field diagnostic, replace"
    findings.expect(WARNINGS, none, found or none, not found, reason)
    _gpudirect(findings)
    findings.without_fabric = _fabric_manager(findings)
    if wanted.nvlinks:
        error = gpus.nvml.error
        reason = "see libnvidia-ml.so.1 (ldconfig -p) and pynvml.py of nvidia-ml-py on the node"
        absent = gpus.nvml.absent
        findings.expect(NVML, "answers", error or "answers", not error, reason, fixable=absent)
    else:
        findings.skip(NVML, "answers", "needed only for NVLinks, and none are desired (nvlinks: 0)")
    known = slots_of(gpus, wanted)
    _presence(findings, known)
    skipped = _skipped(findings)
    for name, (rule, remedy) in gpu_checks.RULES.items():
        if skipped.get(name):
            findings.skip(name, None, skipped[name])
        else:
            results = [(slot, rule(findings, slot)) for slot in findings.responding]
            findings.each(name, results, remedy)
    recovery = [(slot, gpu_checks.recovery(findings, slot)) for slot in findings.responding]
    findings.each(gpu_checks.RECOVERY, recovery)
    _kernel_log(findings, known)
    for slot in known:
        if slot not in findings.responding:
            findings.unread(EACH, PRESENT, slot.name)
    findings.settling = _settling(findings)
    return findings


def _modules(findings: GpuFindings) -> str:
    """Check that the open kernel module is loaded and the driver responds.

    Returns the name of the finding that prevents all other checks, or nothing.
    """
    driver, smi = findings.found.driver, findings.found.smi
    answers = f"nvidia-smi responds for {len(findings.wanted.gpus)} GPUs"
    if not driver.module and not smi.gpus:
        _not_loaded(findings, answers)
        return DRIVER
    if smi.hung:
        reason = "the driver hangs: see dmesg, drain the node and reboot it, or power it off and on"
        findings.expect(DRIVER, answers, smi.error, False, reason)
        return DRIVER
    if not _version(findings) and smi.mismatch:
        return VERSION
    if not _open(findings) and not smi.gpus:
        return OPEN
    good = bool(smi.gpus) or any(":" in pci for pci in smi.unreachable)
    found = f"nvidia-smi responds for {len(smi.gpus)} GPUs" if good else smi.error
    reason = "nvidia-smi reports no GPU: see NVRM in dmesg"
    return "" if findings.expect(DRIVER, answers, found, good, reason) else DRIVER


def _not_loaded(findings: GpuFindings, answers: str) -> None:
    driver = findings.found.driver
    installed = findings.wanted.managed and driver.on_disk == findings.wanted.driver
    if "nouveau" in findings.found.machine.modules and installed:
        why = f"nouveau uses the GPUs, so nvidia {driver.on_disk} loads at the next boot."
        waits = Reason("kernel module of the GPUs", "nvidia", "nouveau", why)
        findings.reboot(DRIVER, answers, "nouveau is loaded", waits)
        return
    seen = "not loaded" if driver.on_disk else "no kernel module nvidia"
    reason = (
        f"see modprobe nvidia, dkms status and the headers of kernel {driver.kernel}. With Secure "
        "Boot the module's key must be enrolled (mokutil)"
    )
    findings.expect(DRIVER, answers, seen, False, reason, fixable=True)


def _version(findings: GpuFindings) -> bool:
    driver, version = findings.found.driver, findings.version
    library = findings.found.nvml.library  # empty before pynvml.py is on the node
    seen = (
        f"kernel module {driver.module}, library {library or 'unknown'}, "
        f"on disk {driver.on_disk or 'unknown'}"
    )
    of_the_set = library in ("", version)
    same = driver.module == version == driver.on_disk
    if driver.module != version and driver.on_disk == version and of_the_set:
        why = (
            f"driver {version} is installed, but {driver.module} is running: until the next boot "
            "nothing can use the GPUs (Driver/library version mismatch)."
        )
        waits = Reason("kernel module nvidia", version, driver.module, why)
        findings.reboot(VERSION, version, seen, waits)
        return False
    if same:
        reason = "another libnvidia-ml.so.1 is found first: see ldconfig -p, and remove it"
    elif findings.wanted.managed:
        reason = f"install the set's driver; see dkms status for kernel {driver.kernel}"
    else:
        reason = (
            "it was installed by others (driver.manage: false): bring all components to one "
            f"version, for kernel {driver.kernel} too, or correct driver.version of the model"
        )
    good = same and of_the_set and not findings.found.smi.mismatch
    return findings.expect(VERSION, version, seen, good, reason, fixable=not same)


def _open(findings: GpuFindings) -> bool:
    driver = findings.found.driver
    if not findings.wanted.open_modules:
        findings.skip(OPEN, "open", "the set does not ask for the open kernel modules")
        return True
    if not driver.open and driver.on_disk_open:
        why = "the open kernel modules are installed, but the proprietary ones are running."
        waits = Reason("kind of the kernel module nvidia", "open", "proprietary", why)
        findings.reboot(OPEN, "open", "proprietary", waits)
        return False
    seen = "open" if driver.open else "proprietary"
    reason = (
        "they support no Blackwell GPU and no dma-buf: install nvidia-open (Ubuntu), module "
        "stream nvidia-driver:BRANCH-open (EL); then reboot"
    )
    return findings.expect(OPEN, "open", seen, driver.open, reason, fixable=True)


def _gpudirect(findings: GpuFindings) -> None:
    wanted, driver = findings.wanted.gpudirect, findings.found.driver
    there = []
    if driver.open and kernel_version(driver.kernel) >= DMABUF_KERNEL:
        there.append(DMABUF)
    if "nvidia_peermem" in findings.found.machine.modules:
        there.append(PEERMEM)
    good = wanted in there or bool(there and wanted == AUTO)
    if wanted == NONE:
        findings.skip(DIRECT, None, "not wanted (gpudirect: none)")
    elif not good and OPEN in findings.blamed.get("", []) and wanted != PEERMEM:
        findings.unread([DIRECT], OPEN)
    else:
        goal = "dmabuf or peermem" if wanted == AUTO else wanted
        seen = " and ".join(there) or "neither dma-buf nor nvidia_peermem"
        reason = (
            "NICs cannot access GPU memory: dma-buf needs the open modules and kernel 5.12 "
            f"(here: {driver.kernel}); otherwise modprobe nvidia_peermem, which is built against "
            "DOCA-OFED"
        )
        findings.expect(DIRECT, goal, seen, good, reason)


def _fabric_manager(findings: GpuFindings) -> str:
    """Check that the fabric manager runs with the driver's version; return the blocking finding."""
    if not findings.wanted.fabric:
        for name in (FM_VERSION, FM):
            findings.skip(name, None, NO_FABRIC)
        return ""
    version, found = findings.version, findings.found.driver.fabric_manager
    whose = "the set's (nvlink5)" if findings.wanted.managed else "that of this version"
    reason = f"it terminates immediately with another driver: install {whose}, restart it"
    same = found == version
    if not findings.expect(FM_VERSION, version, found, same, reason, fixable=True):
        findings.unread([FM], FM_VERSION)
        return FM_VERSION
    seen = findings.found.services[FABRIC_MANAGER]
    unmask = f"systemctl unmask {FABRIC_MANAGER}, then " if "masked" in seen else ""
    reason = (
        f"{findings.missing_modules()}{unmask}systemctl start {FABRIC_MANAGER}; see its journal "
        "and /var/log/fabricmanager.log"
    )
    active = seen == ACTIVE
    return "" if findings.expect(FM, ACTIVE, seen, active, reason, fixable=True) else FM


def _skipped(findings: GpuFindings) -> dict[str, str]:
    wanted, off = findings.wanted, {}
    if wanted.mig:
        off[gpu_checks.MIG] = "GPUs may be split (mig: true)"
    if not wanted.persistence:
        off[gpu_checks.PERSISTENCE] = "not wanted (persistence: false)"
    if not wanted.ecc:
        off[gpu_checks.ECC_MODE] = off[gpu_checks.ECC] = "not wanted (ecc: false)"
    if not wanted.fabric:
        off[FABRIC] = NO_FABRIC
    if not wanted.nvlinks:
        off[gpu_checks.NVLINKS] = "none are desired (nvlinks: 0)"
    elif findings.found.nvml.error:
        off[gpu_checks.NVLINKS] = f"not read: see {NVML}"
    if COUNT in findings.blamed.get("", []) and not wanted.by_address:
        # A missing GPU shifts the order of those after it.
        off[gpu_checks.NUMA] = off[gpu_checks.RAIL] = f"not read: see {COUNT}"
    return off


def _settling(findings: GpuFindings) -> bool:
    failed = {check.name for check in findings.checks if check.status in (FAILED, PENDING)}
    if failed != {FABRIC} or findings.missing_modules():
        return False
    waiting = [p for p in findings.responding if FABRIC in findings.blamed.get(p.name, [])]
    return all(p.gpu.text("fabric/state") in gpu_checks.UNSETTLED for p in waiting)


def _presence(findings: GpuFindings, known: Sequence[GpuSlot]) -> None:
    results = [(slot, _present(findings.found, slot)) for slot in known]
    findings.each(PRESENT, results)
    findings.responding = [
        slot for slot, result in results if result.status == OK and not result.reason
    ]
    goal, seen = len(findings.wanted.gpus), len(findings.responding)
    # GPU k of the model must be GPU k of nvidia-smi and, in PCI order, of CUDA.
    modelled = [slot for slot in known if slot.entry]
    wanted = [slot.pci for slot in modelled]
    order = [slot.pci for slot in sorted(modelled, key=lambda slot: slot.gpu.index)]
    missing = seen < len(known)
    if missing:
        findings.skip(COUNT, goal, f"{seen} respond: see {PRESENT}")
    else:
        extra = ", ".join(slot.pci for slot in known if not slot.entry) or "none"
        reason = f"not in the model: {extra}. See lspci -d 10de:, or correct gpus in the model"
        findings.expect(COUNT, goal, seen, seen == goal, reason)
    if not findings.wanted.by_address:
        reason = "the model has no PCI addresses of GPUs: the driver's order applies"
        findings.skip(ORDER, None, reason)
    elif missing:
        findings.skip(ORDER, wanted, f"a missing GPU shifts the others: see {PRESENT}")
    else:
        reason = "GPU k of a job is not the GPU of rail k: write gpus.pci in the order of the rails"
        findings.expect(ORDER, wanted, order, order == wanted, reason)


def _present(found: Gpus, slot: GpuSlot) -> GpuResult:
    goal, function, smi, lost = "answers", slot.function, found.smi, slot.gpu.lost
    said = (lost, smi.unreachable.get(slot.pci, ""), found.nvml.errors.get(slot.pci, ""))
    if any(NEEDS_RESET.lower() in each.lower() for each in said):
        text = (
            f"{slot.where}: the driver requires a reset of it, and no job can use it before. "
            "Stop its jobs and reset it (docs/gpu.md), or reboot the node; if it happens again, "
            "have the GPU replaced."
        )
        reason = Reason(f"{slot.name} {slot.pci} reset", goal, NEEDS_RESET, text)
        return GpuResult(goal, NEEDS_RESET, reason=reason)
    if slot.listed and not lost:
        return GpuResult(goal, goal)
    fell_off = (
        "See dmesg (Xid 79, RmInitAdapter), drain the node and reboot it, or power it off and on; "
        "if it happens again, have the GPU replaced."
    )
    if lost:
        return bad(goal, lost, f"the driver lost it ({lost})", fell_off)
    if function is None:
        others = ", ".join(gpu.pci for gpu in found.machine.gpus) or "none"
        remedy = (
            f"Power the node off and on, reseat or replace the GPU. GPUs on the bus: {others}. If "
            "the machine is right, correct gpus.pci in the model."
        )
        return bad(goal, "not on the bus", "no GPU at this address of the PCI bus", remedy)
    if smi.error and slot.pci not in smi.unreachable:
        others = ", ".join(smi.unreachable)
        return aside(goal, f"nvidia-smi failed on another GPU: see {PRESENT} of {others}")
    words = smi.unreachable.get(slot.pci) or "it does not list it"
    if function.driver not in ("", None, "nvidia"):
        words = f"it is bound to {function.driver}"
    what = f"it is on the PCI bus, but the driver does not reach it ({words})"
    return bad(goal, "not reached by the driver", what, fell_off)


# Errors in the kernel log, by GPU. A GPU that already has a finding gets no further one.

REMEDIES = {
    xids.REBOOT: "Drain and reboot the node; if it recurs, have the GPU replaced.",
    xids.RESET: (
        "Stop its jobs and reset it (docs/gpu.md), or drain and reboot the node; run dcgmi diag -r "
        "3; if it recurs, have the GPU replaced."
    ),
    xids.SUPPORT: "NVIDIA's catalogue says to contact support. Drain the node until it is clear.",
    xids.UNKNOWN: (
        "Its meaning is not known here. Look it up in NVIDIA's catalogue, "
        "docs.nvidia.com/deploy/xid-errors, and drain the node until it is clear; if it is "
        "harmless, name it in nvidia_gpu_health: {xids_ignored: [NUMBER]}."
    ),
}
OF_SWITCH = (
    "Stop the jobs of the node and reset all GPUs (docs/gpu.md), or reboot the node; if it "
    "recurs, have the NVSwitch board replaced."
)


def _kernel_log(findings: GpuFindings, known: Sequence[GpuSlot]) -> None:
    found, error = findings.found.xids, findings.found.xid_error
    if error:
        findings.expect(
            XID, "none", error, False, "the kernel log cannot be read: journalctl -k -b"
        )
        return
    there = {xid.number for xid in found}
    results = []
    for slot in known:
        own = [xid for xid in found if xid.pci == slot.pci and not xid.switch]
        own = [*xids.standing(own, slot.gpu.recovery)]
        own += xids.causes(own, there)
        blamed = [name for name in findings.blamed.get(slot.name, []) if name in FAULTS]
        results.append((slot, _xids(findings.wanted, own, blamed)))
    findings.each(XID, results)
    # Errors of an NVSwitch, or of a GPU that is gone and is not in the model.
    slots = {slot.pci for slot in known}
    others = [xid for xid in found if xid.switch or xid.pci not in slots]
    for pci, switch in sorted({(xid.pci, xid.switch) for xid in others}):
        own = [xid for xid in others if (xid.pci, xid.switch) == (pci, switch)]
        result = _xids(findings.wanted, xids.standing(own, ""), ())
        if result.status == FAILED:
            fatal = switch and result.remedy == REMEDIES[xids.RESET]
            reason = f"{result.what}. {OF_SWITCH if fatal else result.remedy}"
            subject = f"NVSwitch {pci}" if switch else pci
            findings.expect(XID, result.wanted, result.found, False, reason, subject)


def judge_xids(
    found: Sequence[Xid], listed: Optional[frozenset[int]], ignored: frozenset[int]
) -> list[Check]:
    """Checks of errors in the kernel log for a program that has not read the GPUs themselves."""
    wanted = GpuTarget("", [], xids=listed, xids_ignored=ignored)
    checks = []
    for pci, switch in sorted({(xid.pci, xid.switch) for xid in found}):
        own = [xid for xid in found if (xid.pci, xid.switch) == (pci, switch)]
        result = _xids(wanted, xids.standing(own, ""), ())
        if result.status == FAILED:
            subject = f"NVSwitch {pci}" if switch else pci
            reason = f"{result.what}. {result.remedy}"
            checks.append(Check(XID, result.wanted, result.found, FAILED, subject, reason))
    return checks or [Check(XID, "none", "none", OK)]


def _asks(wanted: GpuTarget, xid: Xid) -> str:
    if xid.number in wanted.xids_ignored:
        return xids.HARMLESS
    if wanted.xids is None:
        return xids.action(xid)
    return xids.RESET if xid.number in wanted.xids else xids.HARMLESS  # the operator's list


def _xids(wanted: GpuTarget, found: Sequence[Xid], blamed: Sequence[str]) -> GpuResult:
    asked: set[str] = set()
    texts: dict[int, list[str]] = {}
    for xid in found:
        action = _asks(wanted, xid)
        if action != xids.HARMLESS:
            asked.add(action)
            texts.setdefault(xid.number, []).append(xid.text)
    if not texts:
        return GpuResult("none", "none")
    kind = "SXid" if found[0].switch else "Xid"
    what = "; ".join(
        f"{kind} {number}, {len(said)} times in the kernel log since boot: {said[0]}"
        for number, said in sorted(texts.items())
    )
    if blamed:
        return aside("none", f"{what}: see {', '.join(blamed)}")
    remedy = next(REMEDIES[action] for action in xids.ORDER if action in asked)
    return bad("none", sorted(texts), what, remedy)
