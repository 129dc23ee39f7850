# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Where each GPU sits: its PCIe link, its NUMA node, the NIC beside it."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import FAILED, NOT_APPLICABLE
from ..hardware import PcieLink
from ..hardware.pci import GENERATIONS, best, describe
from .book import Book, Result
from .found import Gpus
from .places import Place
from .wanted import Wanted

PCIE = "gpu_pcie"
NUMA = "gpu_numa"
RAIL = "gpu_rail"

NAMES = (PCIE, NUMA, RAIL)
AWAKE = ("P0", "P1", "P2")
"""Performance states in which a GPU has no reason to slow its PCIe link down."""
GTS = {generation: speed for speed, generation in GENERATIONS.items()}


def pcie(book: Book, found: Gpus, wanted: Wanted, there: Sequence[Place]) -> None:
    """Width always; speed unless the GPU sleeps, when it may slow its link down."""
    book.each(PCIE, [_pcie(found, wanted, place) for place in there])


def _pcie(found: Gpus, wanted: Wanted, place: Place) -> Result:
    gpu, function = place.answer, place.function
    link = function.link if function else PcieLink()
    bridges = function.bridges if function else ()
    above = found.machine.functions.get(bridges[-1]) if bridges else None
    could = best(link, above.link if above else None)
    width = gpu.pcie_width or link.width
    speed = GTS.get(gpu.pcie_gen or 0) or link.speed_gts
    goal_speed = wanted.pcie_gts or could.max_speed_gts or could.speed_gts
    goal = describe(goal_speed, wanted.pcie_width)
    seen = describe(speed, width)
    if width is None or speed is None or goal_speed is None:
        what = f"nobody knows its PCIe link ({seen}): {place.silence}, nor does /sys"
        return Result(place, goal, seen, FAILED, what, f"See lspci -vv -s {place.pci}.")
    if width >= wanted.pcie_width and speed >= goal_speed:
        return Result(place, goal, seen)
    if width >= wanted.pcie_width and gpu.performance_state not in AWAKE:
        state = gpu.performance_state or "an unknown performance state"
        text = f"in {state} a GPU may slow its PCIe link down ({seen}): judge its speed under load"
        return Result(place, goal, seen, NOT_APPLICABLE, text)
    limits = [
        text
        for text, most, least in (
            ("lanes", could.width, wanted.pcie_width),
            ("speed", could.speed_gts, goal_speed),
        )
        if most is not None and most < least
    ]
    what = f"its PCIe link is {seen}, {goal} is wanted"
    if limits:
        remedy = (
            f"Its ends are not made for more {' and '.join(limits)} than "
            f"{describe(could.speed_gts, could.width)}. If that is how the machine is built, set "
            "the threshold pcie_width or pcie_gts."
        )
    else:
        remedy = (
            "Both its ends can do it. Look for AER errors in dmesg, power the node off and on; if "
            "it stays so, reseat the GPU or its board, then replace it."
        )
    return Result(place, goal, seen, FAILED, what, remedy)


def numa(book: Book, there: Sequence[Place]) -> None:
    results = []
    for place in there:
        goal = place.entry.get("numa")
        seen = place.function.numa if place.function else None
        if goal is None:
            text = "the model gives no NUMA node"
            results.append(Result(place, None, seen, NOT_APPLICABLE, text))
        elif seen == goal:
            results.append(Result(place, goal, seen))
        else:
            what = f"it is on NUMA node {seen}, the model says {goal}"
            remedy = "Correct gpus.numa in the model, or the NUMA settings of the BIOS."
            results.append(Result(place, goal, seen, FAILED, what, remedy))
    book.each(NUMA, results)


def rail(book: Book, found: Gpus, wanted: Wanted, there: Sequence[Place]) -> None:
    """GPU k and the NIC of its rail share a switch, by the bus and not by a name."""
    results = []
    for place in there:
        nics = {
            str(entry["pci"]): str(entry.get("interface") or f"rail{entry.get('rail')}")
            for entry in wanted.rails
            if entry.get("gpu") == place.index and entry.get("pci")
        }
        if not nics or not place.function:
            text = "the model pairs no rail with a PCI address with it"
            results.append(Result(place, None, None, NOT_APPLICABLE, text))
            continue
        goal = ", ".join(f"{name} at {pci}" for pci, name in nics.items())
        gone = [name for pci, name in nics.items() if found.machine.at(pci) is None]
        if gone:
            text = f"the NIC of {', '.join(gone)} is not there: see rail_nic of the layer rails"
            results.append(Result(place, goal, None, NOT_APPLICABLE, text))
            continue
        beside = [port.pci or "" for port in found.machine.ports if place.pci in port.gpus]
        seen = ", ".join(beside) or "no NIC"
        if all(pci in beside for pci in nics):
            results.append(Result(place, goal, seen))
            continue
        what = f"it shares its PCIe switch with {seen}, the model pairs it with {goal}"
        remedy = (
            "Correct the order of gpus.pci or of rails.pci in the model; if the model is that of "
            "the chassis, a GPU board or a NIC is in the wrong slot."
        )
        results.append(Result(place, goal, seen, FAILED, what, remedy, together=True))
    book.each(RAIL, results)
