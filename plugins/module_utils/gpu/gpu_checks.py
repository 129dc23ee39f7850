# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rules for each GPU that responds, one per check, in the order in which they are evaluated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Optional

from ..core.checks import differs
from ..core.reboots import Reason
from ..hardware import PcieLink
from ..hardware.inventory import best, describe
from .findings import GpuFindings, GpuResult, GpuSlot, aside, bad, unknown
from .reading import FABRIC_MANAGER, PERSISTENCED, SIMULATED
from .smi import GpuReading

PRESENT = "gpu_present"
PRODUCT, VBIOS = "gpu_product", "gpu_vbios"
MIG = "gpu_mig"
PERSISTENCE = "gpu_persistence"
ECC_MODE, ROW_REMAP, ECC = "gpu_ecc_mode", "gpu_row_remap", "gpu_ecc"
PCIE, NUMA, RAIL = "gpu_pcie", "gpu_numa", "gpu_rail"
FABRIC, NVLINKS = "gpu_fabric", "gpu_nvlinks"
SLOWDOWN = "gpu_slowdown"
RECOVERY, XID = "gpu_recovery", "gpu_xid"
FAULTS = (PRESENT, ROW_REMAP, ECC, PCIE, FABRIC, NVLINKS, RECOVERY)
"""Those about settings or the model do not explain a driver error."""

REPAIRS: Mapping[str, str] = {
    "row": "remapped_rows/remapped_row_pending",
    "channel": "ecc_errors/channel_repair_pending",
    "TPC": "ecc_errors/tpc_repair_pending",
    "page": "retired_pages/pending_retirement",
}
UNCORRECTABLE = ("dram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")
BEYOND_REPAIR: Mapping[str, str] = {
    "ecc_errors/unrepairable_memory": "its memory cannot be repaired",
    "ecc_errors/aggregate/sram_threshold_exceeded": "SRAM errors are over NVIDIA's threshold",
}
AWAKE = ("P0", "P1", "P2")
"""Performance states in which a GPU does not reduce its PCIe link speed."""
UNSETTLED = ("In Progress", "Not Started")
HEALTHY: Mapping[str, str] = {
    "summary": "healthy",
    "bandwidth": "full",
    "route_recovery_in_progress": "false",
    "route_unhealthy": "false",
    "access_timeout_recovery": "false",
    "incorrect_configuration": "none",
}
"""Elements of the fabric's health with their healthy values. The summary is decisive."""
SLOWDOWNS: Mapping[str, str] = {
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power brake",
}


def expected(
    findings: GpuFindings,
    slot: GpuSlot,
    path: str,
    value: Callable[[GpuReading, str], object] = GpuReading.text,
) -> bool:
    """Whether a missing value is an error: nvidia-smi reports one, or another GPU has a value.
    Otherwise this product or driver does not report it."""
    known = (value(each.gpu, path) not in ("", None) for each in findings.responding)
    return slot.gpu.has(path) or any(known)


def unread(findings: GpuFindings, slot: GpuSlot, *paths: str) -> str:
    """The first of these elements whose value is unexpectedly missing."""
    lacking = (path for path in paths if slot.gpu.flag(path) is None)
    return next((path for path in lacking if expected(findings, slot, path, GpuReading.flag)), "")


def total(slot: GpuSlot, *paths: str) -> Optional[int]:
    numbers = [slot.gpu.number(path) for path in paths]
    return None if None in numbers else sum(number or 0 for number in numbers)


def _alike(path: str, findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    values = [each.gpu.text(path).removesuffix(SIMULATED).strip() for each in findings.responding]
    known = Counter(filter(None, values))
    wanted = findings.wanted.product if path == "product_name" else findings.wanted.vbios
    goal = wanted or (known.most_common(1)[0][0] if known else "known")
    seen = slot.gpu.text(path).removesuffix(SIMULATED).strip()
    if not seen:
        return unknown(slot, goal, path)
    if seen == goal:
        return GpuResult(goal, seen)
    return bad(goal, seen, f"it has {seen}, {'wanted is' if wanted else 'the others have'} {goal}")


def mig(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    """A rank would get only a part of a partitioned GPU, without NVLink."""
    path, later = "mig_mode/current_mig", "mig_mode/pending_mig"
    on, pending = slot.gpu.flag(path), slot.gpu.flag(later)
    lacking = path if on is None else unread(findings, slot, later)
    if lacking:
        return unknown(slot, "disabled", lacking)
    seen = "enabled" if on else "disabled"
    if pending is not None and pending != on:
        seen += f", pending {'enabled' if pending else 'disabled'}"
    if not on and not pending:
        return GpuResult("disabled", seen)
    return bad("disabled", seen, f"MIG is {seen}, and an MPI rank needs a whole GPU")


def persistence(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    on = slot.gpu.persistence
    if on is None:
        return unknown(slot, "enabled", "persistence_mode")
    if on:
        return GpuResult("enabled", "enabled")
    what = "persistence mode is disabled"
    status = differs(findings.wanted.managed and findings.node.check_mode)
    masked = "masked" in findings.found.services[PERSISTENCED]
    remedy = f"systemctl unmask {PERSISTENCED}, then start it." if masked else ""
    return GpuResult("enabled", "disabled", what, remedy, status)


def ecc_mode(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    path = "ecc_mode/current_ecc"
    on = slot.gpu.flag(path)
    if on is None:
        return unknown(slot, "enabled", path)
    if on:
        return GpuResult("enabled", "enabled")
    if slot.gpu.flag("ecc_mode/pending_ecc"):
        text = f"{slot.where}: ECC is off and will be on after the next boot."
        reason = Reason(f"{slot.name} {slot.pci} ECC", "enabled", "disabled", text)
        return GpuResult("enabled", "disabled, pending enabled", reason=reason)
    return bad("enabled", "disabled", "ECC is disabled: memory errors corrupt results unnoticed")


def row_remap(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    most, gpu = findings.wanted.remapped_rows, slot.gpu
    limit = f"at most {most} rows, none pending, no failure"
    base = "remapped_rows/remapped_row_"
    count, failure = total(slot, f"{base}corr", f"{base}unc"), gpu.flag(f"{base}failure")
    if count is None or failure is None or gpu.flag(f"{base}pending") is None:
        return unknown(slot, limit, "remapped_rows")
    lacking = unread(findings, slot, *REPAIRS.values())
    if failure:
        return bad(limit, f"{count} rows, failure", "a row of its memory could not be remapped")
    if count > most:
        return bad(limit, f"{count} rows", f"{count} rows of its memory are remapped")
    kinds = " and ".join(kind for kind, path in REPAIRS.items() if gpu.flag(path))
    if not kinds:
        return unknown(slot, limit, lacking) if lacking else GpuResult(limit, f"{count} rows")
    text = (
        f"{slot.where}: a {kinds} repair of its memory takes effect at a reset of the GPU, which "
        "a reboot includes. If it is still pending afterwards, replace the GPU."
    )
    reason = Reason(f"{slot.name} {slot.pci} memory repair", "done", kinds, text)
    return GpuResult(limit, f"{count} rows, {kinds} pending", reason=reason)


def ecc(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    most, blamed = findings.wanted.volatile_uncorrectable, findings.blamed.get(slot.name, [])
    goal = f"at most {most} uncorrectable since the driver was loaded"
    for path, what in BEYOND_REPAIR.items():
        if slot.gpu.flag(path):
            return bad(goal, what, what)
    if ECC_MODE in blamed:
        return aside(goal, f"not read: see {ECC_MODE}")
    lacking = unread(findings, slot, *BEYOND_REPAIR)
    if lacking:
        return unknown(slot, goal, lacking)
    count = total(slot, *(f"ecc_errors/volatile/{name}" for name in UNCORRECTABLE))
    if count is None:
        return unknown(slot, goal, "ecc_errors/volatile")
    if count > most:
        if ROW_REMAP in blamed:
            text = f"{count} uncorrectable: see {ROW_REMAP}, which is about the same memory"
            return aside(goal, text)
        return bad(goal, count, f"uncorrectable memory errors since the driver was loaded: {count}")
    return GpuResult(goal, count)


def pcie(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    """Link width always; link speed unless the GPU is idle and may have reduced it."""
    wanted, function = findings.wanted, slot.function
    link = function.link if function else PcieLink()
    bridges = function.bridges if function else ()
    above = findings.found.machine.functions.get(bridges[-1]) if bridges else None
    could = best(link, above.link if above else None)
    speed = wanted.pcie_gts or could.max_speed_gts or could.speed_gts
    goal = describe(speed, wanted.pcie_width)
    seen = describe(link.speed_gts, link.width)
    if link.width is None or link.speed_gts is None or speed is None:
        return bad(goal, seen, f"/sys does not have its PCIe link ({seen})")
    if link.width >= wanted.pcie_width:
        if link.speed_gts >= speed:
            return GpuResult(goal, seen)
        state = slot.gpu.text("performance_state")
        if re.fullmatch(r"P\d+", state) and state not in AWAKE:
            text = f"in {state} a GPU may reduce its PCIe speed ({seen}): measure it under load"
            return aside(goal, text)
    most = describe(could.speed_gts, could.width)
    return bad(goal, seen, f"its PCIe link is {seen}, wanted {goal}; its ends support {most}")


def numa(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    goal = slot.entry.get("numa")
    seen = slot.function.numa if slot.function else None
    if goal is None:
        return aside(None, "the model gives no NUMA node")
    if seen == goal:
        return GpuResult(goal, seen)
    return bad(goal, seen, f"it is on NUMA node {seen}, the model has {goal}")


def rail(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    """GPU k and the NIC of its rail must share a PCIe switch, by PCI topology."""
    machine = findings.found.machine
    nics = {
        str(entry["pci"]): str(entry.get("interface") or f"rail{entry.get('rail')}")
        for entry in findings.wanted.rails
        if entry.get("gpu") == slot.index and entry.get("pci")
    }
    if not nics or not slot.function:
        return aside(None, "the model pairs no rail with a PCI address with it")
    goal = ", ".join(f"{name} at {pci}" for pci, name in nics.items())
    gone = ", ".join(name for pci, name in nics.items() if machine.at(pci) is None)
    if gone:
        return aside(goal, f"the NIC of {gone} is missing: see rail_nic of the layer rails")
    beside = [port.pci or "" for port in machine.ports if slot.pci in port.gpus]
    seen = ", ".join(beside) or "no NIC"
    if all(pci in beside for pci in nics):
        return GpuResult(goal, seen)
    what = f"it shares its PCIe switch with {seen}, the model pairs it with {goal}"
    return bad(goal, seen, what)


def fabric(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    goal = "Completed, Success"
    state = slot.gpu.text("fabric/state")
    status = slot.gpu.raw("fabric/status")  # its value may be an error text
    seen = ", ".join(each for each in (state, status) if each not in ("", "N/A"))
    if seen == goal:
        values = {name: slot.gpu.text(f"fabric/health/{name}") for name in HEALTHY}
        odd = [name for name, value in values.items() if value.lower() != HEALTHY[name]]
        faults = ", ".join(f"{name} {values[name]}" for name in odd if values[name])
        if "summary" not in odd or not faults:
            path = "fabric/health/summary"
            if not values["summary"] and expected(findings, slot, path):
                return unknown(slot, goal, path)
            return GpuResult(goal, seen)
        return bad(goal, f"{seen}, {faults}", f"its fabric is not healthy: {faults}")
    if findings.without_fabric:
        return aside(goal, f"{seen or 'unknown'}: see {findings.without_fabric}")
    if not state:
        return unknown(slot, goal, "fabric/state")
    if state in UNSETTLED:
        what = f"its fabric is {seen}: until it is completed, CUDA fails with error 802"
        return bad(goal, seen, what, findings.missing_modules().strip())
    return bad(goal, seen, f"its fabric is {seen}: it did not join the NVLink fabric")


def nvlinks(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    goal, answer = findings.wanted.nvlinks, findings.found.nvml
    links = answer.links.get(slot.pci)
    if links is None:
        error = answer.errors.get(slot.pci, "it does not list this GPU")
        return bad(goal, None, f"NVML reports none of its NVLinks: {error}")
    active = sum(links)
    if active >= goal:
        return GpuResult(goal, active)
    if FABRIC in findings.blamed.get(slot.name, []) or findings.without_fabric:
        return aside(goal, f"{active} active: see {findings.without_fabric or FABRIC}")
    down = ", ".join(str(number) for number, link in enumerate(links) if not link)
    return bad(goal, active, f"{active} of {len(links)} NVLinks are active, down: {down or 'none'}")


def slowdown(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    base = "clocks_event_reasons/clocks_event_reason_"
    flag, whole = slot.gpu.flag, f"{base}hw_slowdown"
    causes = ", ".join(cause for name, cause in SLOWDOWNS.items() if flag(base + name))
    if causes or flag(whole):
        causes = causes or "unknown cause"
        return bad("none", causes, f"hardware reduces its clocks: {causes}")
    lacking = unread(findings, slot, *(base + name for name in SLOWDOWNS))
    if flag(whole) is None or lacking:
        return unknown(slot, "none", lacking or whole)
    return GpuResult("none", "none")


def recovery(findings: GpuFindings, slot: GpuSlot) -> GpuResult:
    """The action that the driver requests, if no other finding explains it."""
    action = slot.gpu.recovery
    if not action:
        return unknown(slot, "None", "gpu_recovery_action")
    if action == "None":
        return GpuResult("None", action)
    causes = [name for name in findings.blamed.get(slot.name, []) if name in FAULTS]
    if causes:
        return aside("None", f"the driver requests {action}: see {', '.join(causes)}")
    text = (
        f"{slot.where}: the driver requests {action} (gpu_recovery_action), which a reboot "
        f"includes. For the cause see {XID} and dmesg (Xid 154 and earlier ones)."
    )
    reason = Reason(f"{slot.name} {slot.pci} recovery", "None", action, text)
    return GpuResult("None", action, reason=reason)


RULES: Mapping[str, tuple[Callable[[GpuFindings, GpuSlot], GpuResult], str]] = {
    PRODUCT: (
        partial(_alike, "product_name"),
        "Install the model of GPU that the others have, or correct the cluster model.",
    ),
    VBIOS: (
        partial(_alike, "vbios_version"),
        "Update all GPUs to one firmware, with the update of the machine's vendor.",
    ),
    MIG: (
        mig,
        "Stop what uses it and DCGM; nvidia-smi -mig 0 -i INDEX; if that stays pending, "
        "nvidia-smi -r or a reboot. Or allow it (mig: true).",
    ),
    PERSISTENCE: (persistence, f"systemctl restart {PERSISTENCED}; see its journal."),
    ECC_MODE: (ecc_mode, "nvidia-smi -e 1 on it, then reboot the node."),
    ROW_REMAP: (row_remap, "Take the node out of service and have the GPU replaced."),
    ECC: (
        ecc,
        "End the jobs on it, reset it or reboot the node, run dcgmi diag -r 3; if errors return, "
        "or if it is beyond repair, have the GPU replaced.",
    ),
    PCIE: (
        pcie,
        "Look for AER errors in dmesg, power the node off and on, reseat the GPU or its board. "
        "If the machine is built this way, set the threshold pcie_width or pcie_gts.",
    ),
    NUMA: (numa, "Correct gpus.numa in the model, or the NUMA settings of the BIOS."),
    RAIL: (
        rail,
        "Correct the order of gpus.pci or of rails.pci in the model; if the model matches the "
        "chassis, a GPU board or a NIC is in the wrong slot.",
    ),
    FABRIC: (
        fabric,
        f"It takes one or two minutes after the start of {FABRIC_MANAGER}; then see its journal, "
        "/var/log/fabricmanager.log and /var/log/nvlsm.log. Stop jobs and DCGM, stop the fabric "
        "manager, reset the GPUs (nvidia-smi -r), start both again. Without NVSwitches: "
        "fabric: false.",
    ),
    NVLINKS: (
        nvlinks,
        "See nvidia-smi nvlink -e and dmesg (Xid 74), stop its jobs and reset the GPUs or reboot; "
        "if the link stays down, have the GPU or its board replaced.",
    ),
    SLOWDOWN: (slowdown, "Check fans, coolant and power supplies (BMC)."),
}
"""Each rule with its remedy. RECOVERY is separate: it is evaluated after all others."""
