# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The GPUs of the model beside what the bus has and what the driver sees at their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..dataclass import dataclass
from ..hardware import Function
from .found import Gpu, Gpus


@dataclass(frozen=True)
class Place:
    """One GPU: where it is to be, the function on the bus there, and what the driver says."""

    index: int
    pci: str
    entry: Mapping[str, Any]
    """Of the model; empty for a GPU that the model does not name."""
    function: Optional[Function]
    gpu: Optional[Gpu]

    @property
    def name(self) -> str:
        """The subject of its checks."""
        return f"gpu{self.index}"

    @property
    def where(self) -> str:
        """`GPU 3 at 0000:60:00.0 (GPU-b3..., serial 165...)`"""
        gpu = self.gpu
        known = [gpu.uuid, f"serial {gpu.serial}" if gpu.serial else ""] if gpu else []
        told = ", ".join(each for each in known if each)
        return f"GPU {self.index} at {self.pci}" + (f" ({told})" if told else "")

    @property
    def answer(self) -> Gpu:
        """What the driver says of it; one that it does not list has nothing but unknowns."""
        return self.gpu or Gpu(self.index, self.pci)

    @property
    def silence(self) -> str:
        """Why a value is not known: its element is missing, N/A, or an error in its place."""
        unread = self.answer.unread
        return "nvidia-smi does not tell" + (f" ({'; '.join(unread)})" if unread else "")


@dataclass(frozen=True)
class Places:
    """`modelled` are the model's, in its order; without addresses in the model, those found."""

    modelled: Sequence[Place]
    others: Sequence[Place]
    by_address: bool
    """Whether the model says where each GPU is."""

    def at(self, pci: str) -> Optional[Place]:
        every = (*self.modelled, *self.others)
        return next((place for place in every if place.pci == pci), None)


def places(found: Gpus, model: Sequence[Mapping[str, Any]]) -> Places:
    """Match by PCI address, the one thing that model, bus and driver have in common."""
    functions = {function.pci: function for function in found.machine.gpus}
    gpus = {gpu.pci: gpu for gpu in found.gpus}
    addresses = sorted({*functions, *gpus, *(pci for pci in found.unreachable if ":" in pci)})

    def place(index: int, pci: str, entry: Mapping[str, Any]) -> Place:
        return Place(index, pci, entry, functions.get(pci), gpus.get(pci))

    if model and all(entry.get("pci") for entry in model):
        modelled = [place(int(entry["index"]), str(entry["pci"]), entry) for entry in model]
        known = {each.pci for each in modelled}
        extra = [pci for pci in addresses if pci not in known]
        first = max(each.index for each in modelled) + 1
        others = [place(first + number, pci, {}) for number, pci in enumerate(extra)]
        return Places(modelled, others, by_address=True)
    entries = {int(entry["index"]): entry for entry in model}
    every = [place(index, pci, entries.get(index, {})) for index, pci in enumerate(addresses)]
    return Places(every, (), by_address=False)
