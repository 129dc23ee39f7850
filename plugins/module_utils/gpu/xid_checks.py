# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors of the kernel log, each with the GPU it is of, and not twice what is found already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..checks import FAILED, NOT_APPLICABLE
from .book import Book, Result
from .fabric_checks import FABRIC, NVLINKS
from .found import Gpus, Xid
from .memory_checks import ECC, ROW_REMAP
from .places import Place, Places
from .presence import PRESENT
from .wanted import Wanted

XID = "gpu_xid"

BELONGS: Mapping[int, tuple[str, ...]] = MappingProxyType(
    {
        48: (ECC, ROW_REMAP, PRESENT),
        63: (ROW_REMAP, ECC),
        64: (ROW_REMAP, ECC),
        74: (NVLINKS, FABRIC, PRESENT),
        79: (PRESENT,),
        92: (ECC, ROW_REMAP),
        119: (PRESENT,),
        120: (PRESENT,),
    }
)
"""The checks that find the same fault on the GPU itself."""

MEANS: Mapping[int, str] = MappingProxyType(
    {
        48: "an uncorrectable memory error",
        62: "a microcontroller of the GPU halted",
        63: "a row of memory was marked for remapping",
        64: "a row of memory could not be marked for remapping",
        74: "an NVLink error",
        79: "the GPU fell off the bus",
        80: "corrupted data were sent to the GPU",
        92: "many corrected memory errors",
        119: "the GPU's system processor (GSP) did not answer",
        120: "the GPU's system processor (GSP) failed",
    }
)


def xids(book: Book, found: Gpus, wanted: Wanted, known: Places) -> None:
    if found.xid_error:
        reason = f"the kernel log cannot be read: {found.xid_error}. See journalctl -k -b."
        book.fail(XID, "none", found.xid_error, reason)
        return
    fatal = [xid for xid in found.xids if xid.number in wanted.xids]
    results = []
    for place in (*known.modelled, *known.others):
        mine = [xid for xid in fatal if xid.pci == place.pci]
        results.append(_judged(book, place, mine))
    book.each(XID, results)
    for xid in fatal:
        if known.at(xid.pci) is None:
            reason = (
                f"the kernel log has Xid {xid.number} of {xid.pci}, where no GPU is: {xid.text}"
            )
            book.fail(XID, "none", xid.number, reason, xid.pci)


def _judged(book: Book, place: Place, mine: Sequence[Xid]) -> Result:
    blamed = book.blamed.get(place.name, [])
    own, others = [], []
    for xid in mine:
        check = next((name for name in BELONGS.get(xid.number, ()) if name in blamed), None)
        if check is None:
            own.append(xid)
        else:
            others.append(check)
            book.explain(check, place, f"Kernel log: Xid {xid.number}, {xid.text}")
    if own:
        counts = Counter(xid.number for xid in own)
        seen = sorted(counts)
        what = "; ".join(
            f"Xid {number}, {count} times in the kernel log since the boot "
            f"({MEANS.get(number, 'see NVIDIA Xid catalogue')}): "
            f"{next(xid.text for xid in own if xid.number == number)}"
            for number, count in sorted(counts.items())
        )
        remedy = (
            "Drain the node, reboot it (the log begins anew) and run dcgmi diag -r 3; if it comes "
            "back, have the GPU replaced."
        )
        return Result(place, "none", seen, FAILED, what, remedy)
    if others:
        numbers = ", ".join(str(number) for number in sorted({xid.number for xid in mine}))
        text = f"Xid {numbers}: part of {', '.join(sorted(set(others)))}"
        return Result(place, "none", None, NOT_APPLICABLE, text)
    return Result(place, "none", "none")
