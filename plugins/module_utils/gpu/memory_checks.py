# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Memory of each GPU: ECC, errors that it could not correct, repairs that wait or failed."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import FAILED, NOT_APPLICABLE
from ..reboots import Reason
from .book import Book, Result
from .places import Place
from .wanted import Wanted

ECC_MODE = "gpu_ecc_mode"
ECC = "gpu_ecc"
ROW_REMAP = "gpu_row_remap"

NAMES = (ECC_MODE, ECC, ROW_REMAP)
REPLACE = "Take the node out of service and have the GPU replaced."


def ecc_mode(book: Book, wanted: Wanted, there: Sequence[Place]) -> None:
    if not wanted.ecc:
        book.skip(ECC_MODE, None, "not wanted (ecc: false)")
        return
    results = []
    for place in there:
        memory = place.answer.memory
        if memory.ecc:
            results.append(Result(place, "enabled", "enabled"))
        elif memory.ecc is None:
            remedy = "See nvidia-smi -q -d ECC."
            results.append(Result(place, "enabled", None, FAILED, place.silence, remedy))
        elif memory.ecc_pending:
            text = f"{place.where}: ECC is off and comes on with the next boot."
            reason = Reason(f"{place.name} {place.pci} ECC", "enabled", "disabled", text)
            book.reboot(ECC_MODE, "enabled", "disabled, pending enabled", reason, place.name)
        else:
            remedy = "nvidia-smi -e 1 on it, then reboot the node."
            what = "ECC is disabled: errors of its memory go unseen into results"
            results.append(Result(place, "enabled", "disabled", FAILED, what, remedy))
    book.each(ECC_MODE, results)


def row_remap(book: Book, wanted: Wanted, there: Sequence[Place]) -> None:
    """Repairs of the memory: waiting for a reset, failed, or too many."""
    results = []
    limit = f"at most {wanted.remapped_rows} rows, none pending, no failure"
    for place in there:
        memory = place.answer.memory
        counts = (memory.remapped_correctable, memory.remapped_uncorrectable)
        pending, failure = memory.remap_pending, memory.remap_failure
        if failure is None or pending is None or counts[0] is None or counts[1] is None:
            remedy = "See nvidia-smi -q -d ROW_REMAPPER."
            results.append(Result(place, limit, None, FAILED, place.silence, remedy))
            continue
        rows = counts[0] + counts[1]
        seen = f"{rows} rows"
        if failure:
            what = "a row of its memory could not be remapped"
            results.append(Result(place, limit, f"{seen}, failure", FAILED, what, REPLACE))
        elif rows > wanted.remapped_rows:
            what = f"{rows} rows of its memory are remapped, of at most {wanted.remapped_rows}"
            results.append(Result(place, limit, seen, FAILED, what, REPLACE))
        elif memory.repair_pending:
            kinds = " and ".join(memory.repair_pending)
            text = (
                f"{place.where}: a {kinds} repair of its memory waits for a reset of the GPU, "
                "which a reboot makes. Should it still wait then, replace the GPU."
            )
            reason = Reason(f"{place.name} {place.pci} memory repair", "done", kinds, text)
            book.reboot(ROW_REMAP, limit, f"{seen}, {kinds} pending", reason, place.name)
        else:
            results.append(Result(place, limit, seen))
    book.each(ROW_REMAP, results)


def ecc(book: Book, wanted: Wanted, there: Sequence[Place]) -> None:
    """Errors that could not be corrected: since the driver was loaded, and for life."""
    if not wanted.ecc:
        book.skip(ECC, None, "not wanted (ecc: false)")
        return
    goal = f"at most {wanted.volatile_uncorrectable} uncorrectable since the driver was loaded"
    results = []
    for place in there:
        memory = place.answer.memory
        volatile, aggregate = memory.volatile_uncorrectable, memory.aggregate_uncorrectable
        blamed = book.blamed.get(place.name, [])
        if memory.unrepairable or memory.sram_threshold_exceeded:
            what = (
                "its memory cannot be repaired any more"
                if memory.unrepairable
                else "uncorrectable errors of its SRAM are over NVIDIA's threshold"
            )
            results.append(Result(place, goal, what, FAILED, what, REPLACE))
        elif ECC_MODE in blamed:
            text = f"not read: see {ECC_MODE}"
            results.append(Result(place, goal, None, NOT_APPLICABLE, text))
        elif volatile is None:
            remedy = "See nvidia-smi -q -d ECC."
            results.append(Result(place, goal, None, FAILED, place.silence, remedy))
        elif volatile > wanted.volatile_uncorrectable and ROW_REMAP in blamed:
            text = f"{volatile} uncorrectable: see {ROW_REMAP}, which is about the same memory"
            results.append(Result(place, goal, volatile, NOT_APPLICABLE, text))
        elif volatile > wanted.volatile_uncorrectable:
            what = f"uncorrectable errors of its memory since the driver was loaded: {volatile}"
            remedy = (
                "End the jobs on it, reset it or reboot the node, run dcgmi diag -r 3; if errors "
                "come back, replace the GPU."
            )
            results.append(Result(place, goal, volatile, FAILED, what, remedy))
        else:
            note = f"{aggregate} uncorrectable in its life: watch it" if aggregate else ""
            results.append(Result(place, goal, volatile, what=note))
    book.each(ECC, results)
