# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each GPU is and how it runs: model, VBIOS, MIG, persistence, slowdown, recovery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from ..checks import FAILED, NOT_APPLICABLE, PENDING
from ..reboots import Reason
from .book import Book, Result
from .found import SIMULATED, Gpu, Gpus
from .places import Place
from .wanted import Wanted

PRODUCT = "gpu_product"
VBIOS = "gpu_vbios"
MIG = "gpu_mig"
PERSISTENCE = "gpu_persistence"
SLOWDOWN = "gpu_slowdown"
RECOVERY = "gpu_recovery"

NAMES = (PRODUCT, VBIOS, MIG, PERSISTENCE, SLOWDOWN, RECOVERY)


def alike(
    book: Book,
    name: str,
    there: Sequence[Place],
    of: Callable[[Gpu], str],
    wanted: str,
    remedy: str,
) -> None:
    """The same on every GPU: what is wanted, else what most have."""
    values = [of(place.answer) for place in there]
    known = Counter(value for value in values if value)
    goal = wanted or (known.most_common(1)[0][0] if known else "known")
    results = []
    for place, value in zip(there, values):
        if value == goal:
            results.append(Result(place, goal, value))
        elif not value:
            results.append(Result(place, goal, value, FAILED, place.silence, remedy))
        else:
            others = "wanted is" if wanted else "the others have"
            what = f"it has {value}, {others} {goal}"
            results.append(Result(place, goal, value, FAILED, what, remedy))
    book.each(name, results)


def product(gpu: Gpu) -> str:
    return gpu.product.removesuffix(SIMULATED).strip()


def mig(book: Book, wanted: Wanted, there: Sequence[Place]) -> None:
    """Whole: one that is split offers a rank a part of it, and no NVLink."""
    if wanted.mig:
        book.skip(MIG, None, "GPUs may be split (mig: true)")
        return
    results = []
    for place in there:
        on, pending = place.answer.mig, place.answer.mig_pending
        if on is None:
            remedy = "See nvidia-smi -q -d MIG."
            results.append(Result(place, "disabled", None, FAILED, place.silence, remedy))
        elif on or pending:
            seen = "enabled" if on else "disabled, pending enabled"
            if on and pending is False:
                seen = "enabled, pending disabled"
            what = f"MIG is {seen}: it is split, or will be, and a rank of MPI wants a whole GPU"
            remedy = (
                "Stop what uses it, and DCGM; nvidia-smi -mig 0 -i INDEX, and where it stays "
                "pending nvidia-smi -r or a reboot. Or say that it may be so (mig: true)."
            )
            results.append(Result(place, "disabled", seen, FAILED, what, remedy))
        else:
            results.append(Result(place, "disabled", "disabled"))
    book.each(MIG, results)


def persistence(book: Book, found: Gpus, wanted: Wanted, there: Sequence[Place]) -> None:
    if not wanted.persistence:
        book.skip(PERSISTENCE, None, "not wanted (persistence: false)")
        return
    unit = found.persistenced
    status = PENDING if book.check_mode else FAILED
    remedy = f"systemctl enable --now {unit.name}."
    if unit.runs:
        remedy = f"{unit.name} runs all the same: nvidia-smi -pm 1, and see its journal."
    results = []
    for place in there:
        on = place.answer.persistence
        if on:
            results.append(Result(place, "enabled", "enabled"))
        elif on is None:
            results.append(Result(place, "enabled", None, FAILED, place.silence, remedy))
        else:
            what = "persistence mode is disabled"
            results.append(Result(place, "enabled", "disabled", status, what, remedy))
    book.each(PERSISTENCE, results)


def slowdown(book: Book, there: Sequence[Place]) -> None:
    results = []
    for place in there:
        causes = ", ".join(place.answer.slowdown)
        if not causes:
            results.append(Result(place, "none", "none"))
            continue
        what = f"hardware slows its clocks down: {causes}"
        remedy = (
            "Look at fans, coolant, air flow and power supplies (BMC), and at nvidia-smi -q -d "
            "TEMPERATURE,POWER."
        )
        results.append(Result(place, "none", causes, FAILED, what, remedy))
    book.each(SLOWDOWN, results)


def recovery(book: Book, there: Sequence[Place]) -> None:
    """What the driver asks for, where no other finding says why."""
    results = []
    for place in there:
        action = place.answer.recovery_action
        if action == "None":
            results.append(Result(place, "None", action))
        elif not action:
            text = "this driver does not say what it takes to recover a GPU"
            results.append(Result(place, "None", None, NOT_APPLICABLE, text))
        elif book.blamed.get(place.name):
            text = f"the driver asks for {action}: see {', '.join(book.blamed[place.name])}"
            results.append(Result(place, "None", action, NOT_APPLICABLE, text))
        else:
            text = (
                f"{place.where}: the driver asks for {action} (gpu_recovery_action); a reboot is "
                "that as well. See dmesg for its cause (Xid 154 and those before)."
            )
            reason = Reason(f"{place.name} {place.pci} recovery", "None", action, text)
            book.reboot(RECOVERY, "None", action, reason, place.name)
    book.each(RECOVERY, results)
