# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The NVLink fabric as each GPU sees it: whether it is in it, and by how many links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ..checks import FAILED, NOT_APPLICABLE
from .book import Book, Result
from .found import Gpus
from .node_checks import NVML, missing_modules
from .places import Place
from .wanted import Wanted

FABRIC = "gpu_fabric"
NVLINKS = "gpu_nvlinks"

NAMES = (FABRIC, NVLINKS)
UNSETTLED = ("In Progress", "Not Started")


def fabric(
    book: Book, found: Gpus, wanted: Wanted, there: Sequence[Place], hindered: Optional[str]
) -> bool:
    """Completed and Success on each. Whether it is only still being set up."""
    if not wanted.fabric:
        text = "the GPUs of this node have no NVSwitch fabric (fabric: false)"
        book.skip(FABRIC, None, text)
        return False
    results = []
    settling = not hindered and not missing_modules(found)
    for place in there:
        gpu = place.answer
        seen = ", ".join(each for each in (gpu.fabric_state, gpu.fabric_status) if each)
        well = gpu.fabric_state == "Completed" and gpu.fabric_status == "Success"
        if well and not gpu.fabric_health:
            results.append(Result(place, "Completed, Success", seen))
            continue
        if not well and hindered:
            text = f"{seen or 'unknown'}: see {hindered}"
            results.append(Result(place, "Completed, Success", seen, NOT_APPLICABLE, text))
            continue
        settling = settling and gpu.fabric_state in UNSETTLED
        results.append(_fabric(found, place, seen))
    book.each(FABRIC, results)
    return settling and any(result.status == FAILED for result in results)


def _fabric(found: Gpus, place: Place, seen: str) -> Result:
    gpu, unit = place.answer, found.fabric_manager.name
    if gpu.fabric_state in UNSETTLED:
        what = f"its fabric is {seen}: until that is done CUDA fails with error 802"
        remedy = missing_modules(found) or (
            f"It takes a minute or two after {unit} was started; if it stays so, see its journal, "
            "/var/log/fabricmanager.log and /var/log/nvlsm.log."
        )
    elif gpu.fabric_state == "Completed" and gpu.fabric_status == "Success":
        wrong = ", ".join(f"{name} {value}" for name, value in gpu.fabric_health.items())
        seen = f"{seen}, {wrong}"
        what = f"it is in the fabric, which is not healthy: {wrong}"
        remedy = "See /var/log/fabricmanager.log; stop its jobs, reset it or reboot the node."
    elif gpu.fabric_state:
        what = f"its fabric is {seen}: it did not get into the NVLink fabric"
        remedy = (
            f"See /var/log/fabricmanager.log. Stop jobs and DCGM, stop {unit}, reset the GPUs "
            "(nvidia-smi -r), start both again; if it fails again, run dcgmi diag -r 3."
        )
    else:
        what = f"{place.silence} of a fabric"
        remedy = "If its GPUs have no NVSwitches, say so (fabric: false)."
    return Result(place, "Completed, Success", seen, FAILED, what, remedy.strip())


def nvlinks(
    book: Book,
    found: Gpus,
    wanted: Wanted,
    there: Sequence[Place],
    answers: bool,
    hindered: Optional[str],
) -> None:
    """So many links, each of them active."""
    results = []
    if not answers:
        if wanted.nvlinks:
            book.unread([NVLINKS], NVML)
        else:
            book.skip(NVLINKS, None, "none are wanted (nvlinks: 0)")
        return
    for place in there:
        links = found.nvml.links.get(place.pci)
        if links is None:
            error = found.nvml.errors.get(place.pci, "it does not list this GPU")
            remedy = "See nvidia-smi nvlink -s; reset the GPU or reboot the node."
            what = f"NVML does not tell of its NVLinks: {error}"
            results.append(Result(place, wanted.nvlinks, None, FAILED, what, remedy))
            continue
        active = sum(links)
        other = hindered or (FABRIC if FABRIC in book.blamed.get(place.name, []) else None)
        if active >= wanted.nvlinks:
            results.append(Result(place, wanted.nvlinks, active))
        elif other:
            text = f"{active} active: see {other}"
            results.append(Result(place, wanted.nvlinks, active, NOT_APPLICABLE, text))
        else:
            down = [str(number) for number, link in enumerate(links) if not link]
            which = f", down: {', '.join(down)}" if down else f" of the {len(links)} it has"
            what = f"{active} NVLinks are active, {wanted.nvlinks} are wanted{which}"
            remedy = (
                "See nvidia-smi nvlink -e and dmesg (Xid 74), stop its jobs and reset the GPUs or "
                "reboot; if the link stays down, have the GPU or its board replaced."
            )
            results.append(Result(place, wanted.nvlinks, active, FAILED, what, remedy))
    book.each(NVLINKS, results)
