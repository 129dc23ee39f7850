# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's GPUs are to be, and where; beside it what the bus and the driver have there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional
from xml.etree import ElementTree

from ..core.dataclass import dataclass
from ..hardware import Function
from .reading import Gpus
from .smi import Gpu

AZURE_XIDS = frozenset(
    [48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120],
)
"""Errors after which a GPU is not to be used as it is."""

AUTO, DMABUF, PEERMEM, NONE = "auto", "dmabuf", "peermem", "none"
GPUDIRECT = (AUTO, DMABUF, PEERMEM, NONE)


@dataclass(frozen=True)
class Wanted:
    """`gpus` and `rails` are `cluster_gpus` and `cluster_rails` of the model.

    Every threshold has the published default (docs/gpu.md).
    """

    driver: str
    """Version of the set, `580.95.05`: of kernel module, libraries and fabric manager."""
    gpus: Sequence[Mapping[str, Any]]
    rails: Sequence[Mapping[str, Any]] = ()
    product: str = ""
    """`NVIDIA B300`; empty: any, as long as all are alike."""
    vbios: str = ""
    """Empty: any, as long as all are alike."""
    open_modules: bool = True
    fabric: bool = True
    """Whether the GPUs are connected by NVSwitches, which the fabric manager configures."""
    nvlinks: int = 18
    mig: bool = False
    """Whether GPUs may be split. A rank of MPI wants a whole one."""
    persistence: bool = True
    ecc: bool = True
    volatile_uncorrectable: int = 0
    remapped_rows: int = 512
    """More than these: replace the GPU."""
    pcie_width: int = 16
    pcie_gts: float = 64.0
    """GT/s of a lane; 0: the most that both ends of the link can."""
    xids: frozenset[int] = AZURE_XIDS
    gpudirect: str = AUTO
    """`auto`: dma-buf or nvidia_peermem, either will do."""

    @property
    def by_address(self) -> bool:
        """Whether the model says where each GPU is."""
        return bool(self.gpus) and all(entry.get("pci") for entry in self.gpus)


@dataclass(frozen=True)
class Place:
    """One GPU: where it is to be, the function on the bus there, and what the driver says."""

    index: int
    pci: str
    entry: Mapping[str, Any]
    """Of the model; empty for a GPU that the model does not name."""
    function: Optional[Function]
    gpu: Gpu
    """Without any value where the driver does not list it."""
    listed: bool

    @property
    def name(self) -> str:
        """The subject of its checks."""
        return f"gpu{self.index}"

    @property
    def where(self) -> str:
        """`GPU 3 at 0000:60:00.0 (GPU-b3..., serial 165...)`"""
        serial = self.gpu.text("serial")
        known = [self.gpu.text("uuid"), f"serial {serial}" if serial else ""]
        shown = ", ".join(each for each in known if each)
        return f"GPU {self.index} at {self.pci}" + (f" ({shown})" if shown else "")


def places(found: Gpus, wanted: Wanted) -> list[Place]:
    """Matched by PCI address, the one thing that model, bus and driver have in common.

    Those of the model first, in its order; without addresses in the model, those found.
    """
    functions = {function.pci: function for function in found.machine.gpus}
    gpus = {gpu.pci: gpu for gpu in found.smi.gpus}
    named = (pci for pci in found.smi.unreachable if ":" in pci)
    addresses = sorted({*functions, *gpus, *named})
    entries = {int(entry["index"]): entry for entry in wanted.gpus}
    at = {index: str(entry["pci"]) for index, entry in entries.items()}
    if wanted.by_address:
        more = [pci for pci in addresses if pci not in at.values()]
        at.update(enumerate(more, max(at) + 1))
    else:
        at = dict(enumerate(addresses))
    return [
        Place(
            index,
            pci,
            entries.get(index, {}),
            functions.get(pci),
            gpus.get(pci) or Gpu(index, pci, ElementTree.Element("gpu")),
            pci in gpus,
        )
        for index, pci in at.items()
    ]
