# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Are the GPUs what the model and the set say? One finding per fault, with its remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ..checks import FAILED, PENDING, Check
from ..dataclass import dataclass
from ..reboots import Reason
from . import (
    fabric_checks,
    link_checks,
    memory_checks,
    node_checks,
    presence,
    state_checks,
    xid_checks,
)
from .book import Book
from .found import Gpus
from .places import Place, Places, places
from .wanted import Wanted

NODE = (
    *(node_checks.DRIVER, node_checks.VERSION, node_checks.OPEN, node_checks.WARNINGS),
    *(node_checks.DIRECT, node_checks.FM_VERSION, node_checks.FM, node_checks.NVML),
)
EACH = (
    *state_checks.NAMES,
    *memory_checks.NAMES,
    *link_checks.NAMES,
    *fabric_checks.NAMES,
)
NAMES = (*NODE, *presence.NAMES, *EACH, xid_checks.XID)
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
    book = Book(check_mode, rebooted_for, boot_id)
    hindered = node_checks.modules(book, gpus, wanted)
    if hindered:
        made = {check.name for check in book.checks}
        book.unread([name for name in NAMES if name not in made], hindered)
        return Verdict(book.checks, book.reasons)
    node_checks.warnings(book, gpus)
    node_checks.gpudirect(book, gpus, wanted)
    without_fabric = node_checks.fabric_manager(book, gpus, wanted)
    answers = node_checks.nvml(book, gpus, wanted)
    known = places(gpus, wanted.gpus)
    there = presence.presence(book, gpus, wanted, known)
    settling = _each(book, gpus, wanted, there, known.by_address, answers, without_fabric)
    xid_checks.xids(book, gpus, wanted, known)
    state_checks.recovery(book, there)
    _not_there(book, known, there)
    failed = {check.name for check in book.checks if check.status in (FAILED, PENDING)}
    return Verdict(book.checks, book.reasons, settling and failed == {fabric_checks.FABRIC})


def _each(
    book: Book,
    gpus: Gpus,
    wanted: Wanted,
    there: Sequence[Place],
    by_address: bool,
    answers: bool,
    without_fabric: Optional[str],
) -> bool:
    """The checks of every GPU that answers. Whether its fabric is still being set up."""
    state_checks.alike(
        book,
        state_checks.PRODUCT,
        there,
        state_checks.product,
        wanted.product,
        "Put the model in that the others have; or this is another machine than the model says.",
    )
    state_checks.alike(
        book,
        state_checks.VBIOS,
        there,
        lambda gpu: gpu.vbios,
        wanted.vbios,
        "Bring all GPUs to one firmware, with the machine's own update.",
    )
    state_checks.mig(book, wanted, there)
    state_checks.persistence(book, gpus, wanted, there)
    memory_checks.ecc_mode(book, wanted, there)
    memory_checks.row_remap(book, wanted, there)
    memory_checks.ecc(book, wanted, there)
    link_checks.pcie(book, gpus, wanted, there)
    if presence.COUNT in book.blamed.get("", []) and not by_address:
        # One that is missing somewhere shifts the places of those behind it.
        book.unread([link_checks.NUMA, link_checks.RAIL], presence.COUNT)
    else:
        link_checks.numa(book, there)
        link_checks.rail(book, gpus, wanted, there)
    settling = fabric_checks.fabric(book, gpus, wanted, there, without_fabric)
    fabric_checks.nvlinks(book, gpus, wanted, there, answers, without_fabric)
    state_checks.slowdown(book, there)
    return settling


def _not_there(book: Book, known: Places, there: Sequence[Place]) -> None:
    """What could not be read of a GPU that does not answer."""
    answering = {place.name for place in there}
    for place in (*known.modelled, *known.others):
        if place.name not in answering:
            book.unread(EACH, presence.PRESENT, place.name)
