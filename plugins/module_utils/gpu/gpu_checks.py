# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What holds for each GPU that answers: one rule per check, in the order in which they are made.

A rule may ask which checks have found a fault of the same GPU before it (`findings.blamed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Optional

from ..core.checks import FAILED, PENDING
from ..core.reboots import Reason
from ..hardware import PcieLink
from ..hardware.pci import best, describe
from .findings import Findings, Place, Result, aside, bad, unknown
from .node_checks import missing_modules
from .reading import ACTIVE, FABRIC_MANAGER, PERSISTENCED, SIMULATED
from .smi import Gpu

PRESENT = "gpu_present"
PRODUCT, VBIOS = "gpu_product", "gpu_vbios"
MIG = "gpu_mig"
PERSISTENCE = "gpu_persistence"
ECC_MODE, ROW_REMAP, ECC = "gpu_ecc_mode", "gpu_row_remap", "gpu_ecc"
PCIE, NUMA, RAIL = "gpu_pcie", "gpu_numa", "gpu_rail"
FABRIC, NVLINKS = "gpu_fabric", "gpu_nvlinks"
SLOWDOWN = "gpu_slowdown"
RECOVERY = "gpu_recovery"

REPLACE = "Take the node out of service and have the GPU replaced."
SEE_ECC = "See nvidia-smi -q -d ECC."
REPAIRS: Mapping[str, str] = {
    "row": "remapped_rows/remapped_row_pending",
    "channel": "ecc_errors/channel_repair_pending",
    "TPC": "ecc_errors/tpc_repair_pending",
    "page": "retired_pages/pending_retirement",
}
UNCORRECTABLE = (*("dram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),)
AWAKE = ("P0", "P1", "P2")
"""Performance states in which a GPU has no reason to slow its PCIe link down."""
UNSETTLED = ("In Progress", "Not Started")
HEALTHY: Mapping[str, str] = {
    "summary": "healthy",
    "bandwidth": "full",
    "route_recovery_in_progress": "false",
    "route_unhealthy": "false",
    "access_timeout_recovery": "false",
    "incorrect_configuration": "none",
}
"""Elements of the fabric's health with the value that is well. The summary decides."""
SLOWDOWNS: Mapping[str, str] = {
    "hw_thermal_slowdown": "heat",
    "hw_power_brake_slowdown": "power brake",
}


def _alike(path: str, remedy: str, findings: Findings, place: Place) -> Result:
    """The same on every GPU: what is wanted, else what most have."""

    def value(gpu: Gpu) -> str:
        return gpu.text(path).removesuffix(SIMULATED).strip()

    known = Counter(value(each.gpu) for each in findings.there if value(each.gpu))
    wanted = findings.wanted.product if path == "product_name" else findings.wanted.vbios
    goal = wanted or (known.most_common(1)[0][0] if known else "known")
    seen = value(place.gpu)
    if not seen:
        return unknown(place, goal, path, remedy)
    if seen == goal:
        return Result(goal, seen)
    others = "wanted is" if wanted else "the others have"
    return bad(goal, seen, f"it has {seen}, {others} {goal}", remedy)


def mig(findings: Findings, place: Place) -> Result:
    """Whole: one that is split offers a rank a part of it, and no NVLink."""
    path = "mig_mode/current_mig"
    on, pending = place.gpu.flag(path), place.gpu.flag("mig_mode/pending_mig")
    if on is None:
        return unknown(place, "disabled", path, "See nvidia-smi -q -d MIG.")
    seen = "enabled" if on else "disabled"
    if not on and not pending:
        return Result("disabled", seen)
    if pending is not None and pending != on:
        seen += f", pending {'enabled' if pending else 'disabled'}"
    return bad(
        "disabled",
        seen,
        f"MIG is {seen}: it is split, or will be, and a rank of MPI wants a whole GPU",
        "Stop what uses it, and DCGM; nvidia-smi -mig 0 -i INDEX, and where it stays pending "
        "nvidia-smi -r or a reboot. Or say that it may be so (mig: true).",
    )


def persistence(findings: Findings, place: Place) -> Result:
    on = place.gpu.persistence
    remedy = f"systemctl enable --now {PERSISTENCED}."
    if findings.found.services[PERSISTENCED] == ACTIVE:
        remedy = f"{PERSISTENCED} runs all the same: nvidia-smi -pm 1, and see its journal."
    if on is None:
        return unknown(place, "enabled", "persistence_mode", remedy)
    if on:
        return Result("enabled", "enabled")
    status = PENDING if findings.check_mode else FAILED
    return bad("enabled", "disabled", "persistence mode is disabled", remedy, status)


def ecc_mode(findings: Findings, place: Place) -> Result:
    path = "ecc_mode/current_ecc"
    on = place.gpu.flag(path)
    if on is None:
        return unknown(place, "enabled", path, SEE_ECC)
    if on:
        return Result("enabled", "enabled")
    if place.gpu.flag("ecc_mode/pending_ecc"):
        text = f"{place.where}: ECC is off and comes on with the next boot."
        reason = Reason(f"{place.name} {place.pci} ECC", "enabled", "disabled", text)
        return Result("enabled", "disabled, pending enabled", reason=reason)
    what = "ECC is disabled: errors of its memory go unseen into results"
    return bad("enabled", "disabled", what, "nvidia-smi -e 1 on it, then reboot the node.")


def row_remap(findings: Findings, place: Place) -> Result:
    """Repairs of the memory: waiting for a reset, failed, or too many."""
    most = findings.wanted.remapped_rows
    limit = f"at most {most} rows, none pending, no failure"
    count, flag = place.gpu.number, place.gpu.flag
    values: dict[str, Optional[int]] = {
        name: ask(f"remapped_rows/remapped_row_{name}")
        for name, ask in (("corr", count), ("unc", count), ("pending", flag), ("failure", flag))
    }
    for name, value in values.items():
        if value is None:
            path = f"remapped_rows/remapped_row_{name}"
            return unknown(place, limit, path, "See nvidia-smi -q -d ROW_REMAPPER.")
    rows = (values["corr"] or 0) + (values["unc"] or 0)
    seen = f"{rows} rows"
    if values["failure"]:
        what = "a row of its memory could not be remapped"
        return bad(limit, f"{seen}, failure", what, REPLACE)
    if rows > most:
        what = f"{rows} rows of its memory are remapped, of at most {most}"
        return bad(limit, seen, what, REPLACE)
    kinds = " and ".join(kind for kind, path in REPAIRS.items() if flag(path))
    if not kinds:
        return Result(limit, seen)
    text = (
        f"{place.where}: a {kinds} repair of its memory waits for a reset of the GPU, "
        "which a reboot makes. Should it still wait then, replace the GPU."
    )
    reason = Reason(f"{place.name} {place.pci} memory repair", "done", kinds, text)
    return Result(limit, f"{seen}, {kinds} pending", reason=reason)


def ecc(findings: Findings, place: Place) -> Result:
    """Errors that could not be corrected: since the driver was loaded, and for life."""
    most, blamed = findings.wanted.volatile_uncorrectable, findings.blamed.get(place.name, [])
    goal = f"at most {most} uncorrectable since the driver was loaded"
    for path, what in (
        ("unrepairable_memory", "its memory cannot be repaired any more"),
        (
            "aggregate/sram_threshold_exceeded",
            "uncorrectable errors of its SRAM are over NVIDIA's threshold",
        ),
    ):
        if place.gpu.flag(f"ecc_errors/{path}"):
            return bad(goal, what, what, REPLACE)
    if ECC_MODE in blamed:
        return aside(goal, f"not read: see {ECC_MODE}")
    count = 0
    for name in UNCORRECTABLE:
        errors = place.gpu.number(f"ecc_errors/volatile/{name}")
        if errors is None:
            return unknown(place, goal, f"ecc_errors/volatile/{name}", SEE_ECC)
        count += errors
    if count > most:
        if ROW_REMAP in blamed:
            text = f"{count} uncorrectable: see {ROW_REMAP}, which is about the same memory"
            return aside(goal, text)
        what = f"uncorrectable errors of its memory since the driver was loaded: {count}"
        remedy = (
            "End the jobs on it, reset it or reboot the node, run dcgmi diag -r 3; if errors come "
            "back, replace the GPU."
        )
        return bad(goal, count, what, remedy)
    ever = [place.gpu.number(f"ecc_errors/aggregate/{name}") or 0 for name in UNCORRECTABLE]
    note = f"{sum(ever)} uncorrectable in its life: watch it" if sum(ever) else ""
    return Result(goal, count, note)


def pcie(findings: Findings, place: Place) -> Result:
    """Width always; speed unless the GPU sleeps, when it may slow its link down."""
    wanted, function = findings.wanted, place.function
    link = function.link if function else PcieLink()
    bridges = function.bridges if function else ()
    above = findings.found.machine.functions.get(bridges[-1]) if bridges else None
    could = best(link, above.link if above else None)
    speed = wanted.pcie_gts or could.max_speed_gts or could.speed_gts
    goal = describe(speed, wanted.pcie_width)
    seen = describe(link.speed_gts, link.width)
    if link.width is None or link.speed_gts is None or speed is None:
        what = f"/sys does not have its PCIe link ({seen})"
        return bad(goal, seen, what, f"See lspci -vv -s {place.pci}.")
    if link.width >= wanted.pcie_width:
        if link.speed_gts >= speed:
            return Result(goal, seen)
        state = place.gpu.text("performance_state")
        if state not in AWAKE:
            state = state or "an unknown performance state"
            text = f"in {state} a GPU may slow its PCIe link down ({seen}): judge it under load"
            return aside(goal, text)
    remedy = (
        "Both its ends can do it. Look for AER errors in dmesg, power the node off and on; if it "
        "stays so, reseat the GPU or its board, then replace it."
    )
    if (could.width or 0) < wanted.pcie_width or (could.speed_gts or 0) < speed:
        remedy = (
            f"Its ends are made for {describe(could.speed_gts, could.width)} at most. If that is "
            "how the machine is built, set the threshold pcie_width or pcie_gts."
        )
    return bad(goal, seen, f"its PCIe link is {seen}, {goal} is wanted", remedy)


def numa(findings: Findings, place: Place) -> Result:
    goal = place.entry.get("numa")
    seen = place.function.numa if place.function else None
    if goal is None:
        return aside(None, "the model gives no NUMA node")
    if seen == goal:
        return Result(goal, seen)
    what = f"it is on NUMA node {seen}, the model says {goal}"
    remedy = "Correct gpus.numa in the model, or the NUMA settings of the BIOS."
    return bad(goal, seen, what, remedy)


def rail(findings: Findings, place: Place) -> Result:
    """GPU k and the NIC of its rail share a switch, by the bus and not by a name."""
    machine = findings.found.machine
    nics = {
        str(entry["pci"]): str(entry.get("interface") or f"rail{entry.get('rail')}")
        for entry in findings.wanted.rails
        if entry.get("gpu") == place.index and entry.get("pci")
    }
    if not nics or not place.function:
        return aside(None, "the model pairs no rail with a PCI address with it")
    goal = ", ".join(f"{name} at {pci}" for pci, name in nics.items())
    gone = [name for pci, name in nics.items() if machine.at(pci) is None]
    if gone:
        where = "see rail_nic of the layer rails"
        return aside(goal, f"the NIC of {', '.join(gone)} is not there: {where}")
    beside = [port.pci or "" for port in machine.ports if place.pci in port.gpus]
    seen = ", ".join(beside) or "no NIC"
    if all(pci in beside for pci in nics):
        return Result(goal, seen)
    what = f"it shares its PCIe switch with {seen}, the model pairs it with {goal}"
    remedy = (
        "Correct the order of gpus.pci or of rails.pci in the model; if the model is that of the "
        "chassis, a GPU board or a NIC is in the wrong slot."
    )
    return bad(goal, seen, what, remedy, together=True)


def fabric(findings: Findings, place: Place) -> Result:
    """Completed and Success on each."""
    goal = "Completed, Success"
    state = place.gpu.text("fabric/state")
    status = place.gpu.said("fabric/status")  # here the words for errors are the value
    seen = ", ".join(each for each in (state, status) if each not in ("", "N/A"))
    if seen == goal:
        faults = _fabric_faults(place.gpu)
        if not faults:
            return Result(goal, seen)
        what = f"it is in the fabric, which is not healthy: {faults}"
        remedy = "See /var/log/fabricmanager.log; stop its jobs, reset it or reboot the node."
        return bad(goal, f"{seen}, {faults}", what, remedy)
    if findings.without_fabric:
        return aside(goal, f"{seen or 'unknown'}: see {findings.without_fabric}")
    if not state:
        remedy = "If its GPUs have no NVSwitches, say so (fabric: false)."
        return unknown(place, goal, "fabric/state", remedy)
    if state in UNSETTLED:
        what = f"its fabric is {seen}: until that is done CUDA fails with error 802"
        remedy = missing_modules(findings.found) or (
            f"It takes a minute or two after {FABRIC_MANAGER} was started; if it stays so, see its "
            "journal, /var/log/fabricmanager.log and /var/log/nvlsm.log."
        )
    else:
        what = f"its fabric is {seen}: it did not get into the NVLink fabric"
        remedy = (
            f"See /var/log/fabricmanager.log. Stop jobs and DCGM, stop {FABRIC_MANAGER}, reset the "
            "GPUs (nvidia-smi -r), start both again; if it fails again, run dcgmi diag -r 3."
        )
    return bad(goal, seen, what, remedy.strip())


def _fabric_faults(gpu: Gpu) -> str:
    values = {name: gpu.text(f"fabric/health/{name}") for name in HEALTHY}
    if values["summary"].lower() == HEALTHY["summary"]:
        return ""
    faults = {name: value for name, value in values.items() if value.lower() != HEALTHY[name]}
    return ", ".join(f"{name} {value}" for name, value in faults.items() if value)


def nvlinks(findings: Findings, place: Place) -> Result:
    """So many links, each of them active."""
    goal, answer = findings.wanted.nvlinks, findings.found.nvml
    links = answer.links.get(place.pci)
    if links is None:
        error = answer.errors.get(place.pci, "it does not list this GPU")
        remedy = "See nvidia-smi nvlink -s; reset the GPU or reboot the node."
        return bad(goal, None, f"NVML gives none of its NVLinks: {error}", remedy)
    active = sum(links)
    if active >= goal:
        return Result(goal, active)
    blamed = FABRIC in findings.blamed.get(place.name, [])
    if blamed or findings.without_fabric:
        return aside(goal, f"{active} active: see {findings.without_fabric or FABRIC}")
    down = ", ".join(str(number) for number, link in enumerate(links) if not link)
    what = f"{active} of {len(links)} NVLinks are active, {goal} are wanted, down: {down or 'none'}"
    remedy = (
        "See nvidia-smi nvlink -e and dmesg (Xid 74), stop its jobs and reset the GPUs or reboot; "
        "if the link stays down, have the GPU or its board replaced."
    )
    return bad(goal, active, what, remedy)


def slowdown(findings: Findings, place: Place) -> Result:
    base = "clocks_event_reasons/clocks_event_reason_"
    flag = place.gpu.flag
    causes = ", ".join(cause for name, cause in SLOWDOWNS.items() if flag(base + name))
    if not causes and not flag(f"{base}hw_slowdown"):
        return Result("none", "none")
    causes = causes or "unknown cause"
    remedy = (
        "Look at fans, coolant, air flow and power supplies (BMC), and at nvidia-smi -q -d "
        "TEMPERATURE,POWER."
    )
    return bad("none", causes, f"hardware slows its clocks down: {causes}", remedy)


def recovery(findings: Findings, place: Place) -> Result:
    """What the driver asks for, where no other finding says why."""
    action = place.gpu.text("gpu_recovery_action")
    if not action:
        return aside("None", "this driver does not say what it takes to recover a GPU")
    if action == "None":
        return Result("None", action)
    blamed = findings.blamed.get(place.name)
    if blamed:
        return aside("None", f"the driver asks for {action}: see {', '.join(blamed)}")
    text = (
        f"{place.where}: the driver asks for {action} (gpu_recovery_action); a reboot is that as "
        "well. See dmesg for its cause (Xid 154 and those before)."
    )
    reason = Reason(f"{place.name} {place.pci} recovery", "None", action, text)
    return Result("None", action, reason=reason)


RULES: Mapping[str, Callable[[Findings, Place], Result]] = {
    PRODUCT: partial(
        _alike,
        "product_name",
        "Put the model in that the others have; or this is another machine than the model.",
    ),
    VBIOS: partial(
        _alike,
        "vbios_version",
        "Bring all GPUs to one firmware, with the machine's own update.",
    ),
    MIG: mig,
    PERSISTENCE: persistence,
    ECC_MODE: ecc_mode,
    ROW_REMAP: row_remap,
    ECC: ecc,
    PCIE: pcie,
    NUMA: numa,
    RAIL: rail,
    FABRIC: fabric,
    NVLINKS: nvlinks,
    SLOWDOWN: slowdown,
}
"""RECOVERY is not among them: it is judged when everything else is."""
