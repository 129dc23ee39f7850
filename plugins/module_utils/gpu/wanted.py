# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a node's GPUs are to be. Every threshold has the published default (docs/gpu.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..dataclass import dataclass

AZURE_XIDS = frozenset(
    [48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120],
)
"""Errors after which a GPU is not to be used as it is."""

AUTO, DMABUF, PEERMEM, NONE = "auto", "dmabuf", "peermem", "none"
GPUDIRECT = (AUTO, DMABUF, PEERMEM, NONE)


@dataclass(frozen=True)
class Wanted:
    """`gpus` and `rails` are `cluster_gpus` and `cluster_rails` of the model."""

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
