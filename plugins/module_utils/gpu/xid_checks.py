# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Errors of the kernel log, each with the GPU it is of, and not twice what is found already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .book import Book, Result, aside, bad
from .gpu_checks import ECC, FABRIC, NVLINKS, PRESENT, ROW_REMAP
from .reading import Xid
from .wanted import Place

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


def xids(book: Book, known: Sequence[Place]) -> None:
    error = book.found.xid_error
    if error:
        reason = f"the kernel log cannot be read: {error}. See journalctl -k -b."
        book.fail(XID, "none", error, reason)
        return
    fatal = [xid for xid in book.found.xids if xid.number in book.wanted.xids]
    book.each(XID, [(place, _judged(book, place, fatal)) for place in known])
    for xid in fatal:
        if all(xid.pci != place.pci for place in known):
            reason = (
                f"the kernel log has Xid {xid.number} of {xid.pci}, where no GPU is: {xid.text}"
            )
            book.fail(XID, "none", xid.number, reason, xid.pci)


def _judged(book: Book, place: Place, fatal: Sequence[Xid]) -> Result:
    blamed = book.blamed.get(place.name, [])
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
            book.explain(check, place, f"Kernel log: Xid {number}, {text}")
    if own:
        what = "; ".join(
            f"Xid {number}, {len(texts)} times in the kernel log since the boot "
            f"({MEANS.get(number, OTHER)[0]}): {texts[0]}"
            for number, texts in sorted(own.items())
        )
        remedy = (
            "Drain the node, reboot it (the log begins anew) and run dcgmi diag -r 3; if it comes "
            "back, have the GPU replaced."
        )
        return bad("none", sorted(own), what, remedy)
    if others:
        numbers = ", ".join(map(str, sorted(others)))
        return aside("none", f"Xid {numbers}: part of {', '.join(sorted({*others.values()}))}")
    return Result("none", "none")
