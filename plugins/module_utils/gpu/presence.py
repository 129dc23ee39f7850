# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Is every GPU there, does the driver reach it, are there more, are they in the model's order?"""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import FAILED, NOT_APPLICABLE, OK
from .book import Book, Result
from .found import Gpus
from .places import Place, Places
from .wanted import Wanted

PRESENT = "gpu_present"
COUNT = "gpu_count"
ORDER = "gpu_order"

NAMES = (PRESENT, COUNT, ORDER)
HOLDERS = ("vfio-pci", "pci-stub", "xen-pciback")


def presence(book: Book, found: Gpus, wanted: Wanted, known: Places) -> list[Place]:
    """The GPUs that the driver answers for: those alone are judged further."""
    there, results = [], []
    for place in (*known.modelled, *known.others):
        result = _present(found, place)
        results.append(result)
        if result.status == OK:
            there.append(place)
    book.each(PRESENT, results)
    missing = len(results) - len(there)
    _count(book, wanted, known, there, missing)
    _order(book, known, missing)
    return there


def _present(found: Gpus, place: Place) -> Result:
    goal, function, gpu = "answers", place.function, place.gpu
    if gpu is not None and not gpu.lost:
        return Result(place, goal, goal)
    again = "Should it happen again, have the GPU replaced."
    if gpu is not None:
        what = f"the driver lost it ({gpu.lost})"
        remedy = (
            f"It fell off the bus: drain the node and reboot it, or power it off and on. {again}"
        )
        return Result(place, goal, gpu.lost, FAILED, what, remedy)
    if function is None:
        what = "there is no such GPU on the PCI bus"
        others = ", ".join(each.pci for each in found.machine.gpus) or "none"
        remedy = (
            f"Power the node off and on; if lspci -s {place.pci} still shows nothing, reseat or "
            f"replace the GPU. GPUs on the bus: {others}. If the machine is right, correct "
            "gpus.pci in the model."
        )
        return Result(place, goal, "not on the bus", FAILED, what, remedy)
    if found.error and place.pci not in found.unreachable:
        words = (
            f"nvidia-smi stopped at another GPU: see {PRESENT} of {', '.join(found.unreachable)}"
        )
        return Result(place, goal, None, NOT_APPLICABLE, words)
    if function.driver in HOLDERS:
        what = f"{function.driver} holds it, as for a virtual machine"
        remedy = (
            f"Give it back: driverctl unset-override {place.pci}, or remove it from vfio-pci.ids."
        )
        return Result(place, goal, f"held by {function.driver}", FAILED, what, remedy)
    words = found.unreachable.get(place.pci) or "it does not list it"
    what = f"it is on the PCI bus and the driver does not reach it ({words})"
    remedy = (
        "It fell off the bus or did not start (dmesg: Xid 79, RmInitAdapter): drain the node and "
        f"reboot it, or power it off and on. {again}"
    )
    return Result(place, goal, "not reached by the driver", FAILED, what, remedy)


def _count(book: Book, wanted: Wanted, known: Places, there: Sequence[Place], missing: int) -> None:
    goal, seen = len(wanted.gpus), len(there)
    if missing:
        book.skip(COUNT, goal, f"{seen} answer: see {PRESENT}")
        return
    if seen == goal:
        book.ok(COUNT, goal, seen)
        return
    extra = ", ".join(place.pci for place in known.others)
    which = f" The model does not name {extra}." if extra else ""
    reason = (
        f"{seen} GPUs answer and the model has {goal}.{which} Look at lspci -d 10de: for those "
        "that are missing; if the machine is right, correct gpus in the model."
    )
    book.fail(COUNT, goal, seen, reason)


def _order(book: Book, known: Places, missing: int) -> None:
    """GPU k of the model is GPU k of nvidia-smi and, by PCI order, of CUDA."""
    if not known.by_address:
        book.skip(ORDER, None, "the model gives no PCI addresses of GPUs: the driver's order holds")
        return
    wanted = [place.pci for place in known.modelled]
    if missing:
        book.skip(ORDER, wanted, f"a missing GPU shifts the others: see {PRESENT}")
        return
    indices = {place.pci: place.gpu.index for place in known.modelled if place.gpu}
    seen = sorted(indices, key=lambda pci: indices[pci])
    if seen == wanted:
        book.ok(ORDER, wanted, seen)
        return
    reason = (
        "the driver counts GPUs by PCI address and the model otherwise: GPU k of a job would not "
        f"be the GPU of rail k. Put gpus.pci of the model in this order: {', '.join(seen)}."
    )
    book.fail(ORDER, wanted, seen, reason)
