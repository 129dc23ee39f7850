# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Are the GPUs what the model and the set say? One finding per fault, with its remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..core.checks import FAILED, OK, PENDING, Check
from ..core.dataclass import dataclass
from ..core.reboots import Reason
from . import gpu_checks, node_checks
from .findings import Findings, Place, Result, Wanted, aside, bad, places
from .gpu_checks import ECC, FABRIC, NVLINKS, PRESENT, ROW_REMAP
from .reading import Gpus, Xid

# Errors of the kernel log, each with the GPU it is of, and not twice what is found already.


XID = "gpu_xid"

MEANS: Mapping[int, tuple[str, Sequence[str]]] = {
    48: ("an uncorrectable memory error", (ECC, ROW_REMAP, PRESENT)),
    62: ("a microcontroller of the GPU halted", ()),
    63: ("a row of memory was marked for remapping", (ROW_REMAP, ECC)),
    64: ("a row of memory could not be marked for remapping", (ROW_REMAP, ECC)),
    74: ("an NVLink error", (NVLINKS, FABRIC, PRESENT)),
    79: ("the GPU fell off the bus", (PRESENT,)),
    80: ("corrupted data were sent to the GPU", ()),
    92: ("many corrected memory errors", (ECC, ROW_REMAP)),
    119: ("the GPU's system processor (GSP) did not answer", (PRESENT,)),
    120: ("the GPU's system processor (GSP) failed", (PRESENT,)),
}
"""What each says, and the checks that find the same fault on the GPU itself."""
OTHER: tuple[str, Sequence[str]] = ("see NVIDIA's catalogue of Xids", ())


def xids(findings: Findings, known: Sequence[Place]) -> None:
    error = findings.found.xid_error
    if error:
        findings.fail(XID, "none", error, "the kernel log cannot be read: journalctl -k -b")
        return
    fatal = [xid for xid in findings.found.xids if xid.number in findings.wanted.xids]
    findings.each(XID, [(place, _judged(findings, place, fatal)) for place in known])
    for xid in fatal:
        if all(xid.pci != place.pci for place in known):
            reason = (
                f"the kernel log has Xid {xid.number} of {xid.pci}, where no GPU is: {xid.text}"
            )
            findings.fail(XID, "none", xid.number, reason, xid.pci)


def _judged(findings: Findings, place: Place, fatal: Sequence[Xid]) -> Result:
    blamed = findings.blamed.get(place.name, [])
    own: dict[int, list[str]] = {}
    others = {}
    for number, pci, text in fatal:
        if pci != place.pci:
            continue
        check = next((name for name in MEANS.get(number, OTHER)[1] if name in blamed), None)
        if check is None:
            own.setdefault(number, []).append(text)
        else:
            others[number] = check
            findings.explain(check, place, f"Kernel log: Xid {number}, {text}")
    if own:
        what = "; ".join(
            f"Xid {number}, {len(texts)} times in the kernel log since the boot "
            f"({MEANS.get(number, OTHER)[0]}): {texts[0]}"
            for number, texts in sorted(own.items())
        )
        remedy = "Drain and reboot the node, run dcgmi diag -r 3; if it comes back, replace."
        return bad("none", sorted(own), what, remedy)
    if others:
        numbers = ", ".join(map(str, sorted(others)))
        return aside("none", f"Xid {numbers}: part of {', '.join(sorted({*others.values()}))}")
    return Result("none", "none")


COUNT = "gpu_count"
ORDER = "gpu_order"
NODE = (
    *(node_checks.DRIVER, node_checks.VERSION, node_checks.OPEN, node_checks.WARNINGS),
    *(node_checks.DIRECT, node_checks.FM_VERSION, node_checks.FM, node_checks.NVML),
)
EACH = (*gpu_checks.RULES, gpu_checks.RECOVERY)
NAMES = (*NODE, PRESENT, COUNT, ORDER, *EACH, XID)
"""Every check there is; each is made, or says what hindered it."""


@dataclass(frozen=True)
class Verdict:
    """One check per promise, and what waits for a reboot."""

    checks: Sequence[Check] = ()
    reasons: Sequence[Reason] = ()
    settling: bool = False
    """Nothing is wrong but that the fabric is still being set up: wait, read again."""


def judge(
    gpus: Gpus,
    wanted: Wanted,
    check_mode: bool = False,
    rebooted_for: Sequence[Reason] = (),
    boot_id: str = "",
) -> Verdict:
    """Judge what was read.

    `rebooted_for` are the reasons already recorded for this layer and `boot_id` is the boot that
    runs: what a reboot was to cure and did not is a failure, not a reason for another one.
    """
    findings = Findings(gpus, wanted, check_mode, rebooted_for, boot_id)
    hindered = node_checks.modules(findings)
    if hindered:
        made = {check.name for check in findings.checks}
        findings.unread([name for name in NAMES if name not in made], hindered)
        return Verdict(findings.checks, findings.reasons)
    node_checks.warnings(findings)
    node_checks.gpudirect(findings)
    findings.without_fabric = node_checks.fabric_manager(findings)
    node_checks.nvml(findings)
    known = places(gpus, wanted)
    _presence(findings, known)
    skipped = _skipped(findings)
    for name, (rule, remedy) in gpu_checks.RULES.items():
        if skipped.get(name):
            findings.skip(name, None, skipped[name])
        else:
            results = [(place, rule(findings, place)) for place in findings.there]
            findings.each(name, results, remedy)
    xids(findings, known)
    recovery = [(place, gpu_checks.recovery(findings, place)) for place in findings.there]
    findings.each(gpu_checks.RECOVERY, recovery)
    for place in known:
        if place not in findings.there:
            findings.unread(EACH, PRESENT, place.name)
    return Verdict(findings.checks, findings.reasons, _settling(findings))


def _skipped(findings: Findings) -> dict[str, str]:
    """Rules that are not to be followed on this node, and why."""
    wanted, off = findings.wanted, {}
    if wanted.mig:
        off[gpu_checks.MIG] = "GPUs may be split (mig: true)"
    if not wanted.persistence:
        off[gpu_checks.PERSISTENCE] = "not wanted (persistence: false)"
    if not wanted.ecc:
        off[gpu_checks.ECC_MODE] = off[gpu_checks.ECC] = "not wanted (ecc: false)"
    if not wanted.fabric:
        off[gpu_checks.FABRIC] = node_checks.NO_FABRIC
    if not wanted.nvlinks:
        off[gpu_checks.NVLINKS] = "none are wanted (nvlinks: 0)"
    elif findings.found.nvml.error:
        off[gpu_checks.NVLINKS] = f"not read: see {node_checks.NVML}"
    if COUNT in findings.blamed.get("", []) and not wanted.by_address:
        # One that is missing somewhere shifts the places of those behind it.
        off[gpu_checks.NUMA] = off[gpu_checks.RAIL] = f"not read: see {COUNT}"
    return off


def _settling(findings: Findings) -> bool:
    failed = {check.name for check in findings.checks if check.status in (FAILED, PENDING)}
    if failed != {gpu_checks.FABRIC} or node_checks.missing_modules(findings.found):
        return False
    waiting = [p for p in findings.there if gpu_checks.FABRIC in findings.blamed.get(p.name, [])]
    return all(p.gpu.text("fabric/state") in gpu_checks.UNSETTLED for p in waiting)


def _presence(findings: Findings, known: Sequence[Place]) -> None:
    """Is every GPU there, does the driver reach it, are there more, are they in order?"""
    results = [(place, _present(findings.found, place)) for place in known]
    findings.each(PRESENT, results)
    findings.there = [place for place, result in results if result.status == OK]
    missing = len(findings.there) < len(known)
    goal, seen = len(findings.wanted.gpus), len(findings.there)
    if missing:
        findings.skip(COUNT, goal, f"{seen} answer: see {PRESENT}")
    elif seen == goal:
        findings.ok(COUNT, goal, seen)
    else:
        extra = ", ".join(place.pci for place in known if not place.entry)
        which = f" The model does not name {extra}." if extra else ""
        reason = f"{which.strip()} See lspci -d 10de:, or correct gpus in the model.".strip()
        findings.fail(COUNT, goal, seen, reason)

    # GPU k of the model is GPU k of nvidia-smi and, by PCI order, of CUDA.
    modelled = [place for place in known if place.entry]
    wanted = [place.pci for place in modelled]
    order = [place.pci for place in sorted(modelled, key=lambda place: place.gpu.index)]
    if not findings.wanted.by_address:
        findings.skip(
            ORDER, None, "the model gives no PCI addresses of GPUs: the driver's order holds"
        )
    elif missing:
        findings.skip(ORDER, wanted, f"a missing GPU shifts the others: see {PRESENT}")
    elif order == wanted:
        findings.ok(ORDER, wanted, order)
    else:
        reason = "GPU k of a job is not the GPU of rail k: put gpus.pci of the model in that order"
        findings.fail(ORDER, wanted, order, reason)


def _present(found: Gpus, place: Place) -> Result:
    goal, function, said = "answers", place.function, found.smi
    lost = place.gpu.lost
    if place.listed and not lost:
        return Result(goal, goal)
    fell_off = (
        "See dmesg (Xid 79, RmInitAdapter), drain the node and reboot it, or power it off and on; "
        "if it happens again, have the GPU replaced."
    )
    if lost:
        return bad(goal, lost, f"the driver lost it ({lost})", fell_off)
    if function is None:
        others = ", ".join(each.pci for each in found.machine.gpus) or "none"
        remedy = (
            f"Power the node off and on, reseat or replace the GPU. GPUs on the bus: {others}. If "
            "the machine is right, correct gpus.pci in the model."
        )
        return bad(goal, "not on the bus", "there is no such GPU on the PCI bus", remedy)
    if said.error and place.pci not in said.unreachable:
        others = ", ".join(said.unreachable)
        return aside(goal, f"nvidia-smi stopped at another GPU: see {PRESENT} of {others}")
    if function.driver not in ("", None, "nvidia"):
        seen = f"held by {function.driver}"
        remedy = "Give it back: driverctl unset-override, or remove it from vfio-pci.ids."
        return bad(goal, seen, f"it is {seen}, as for a virtual machine", remedy)
    words = said.unreachable.get(place.pci) or "it does not list it"
    what = f"it is on the PCI bus and the driver does not reach it ({words})"
    return bad(goal, "not reached by the driver", what, fell_off)
