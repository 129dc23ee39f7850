# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver and GPUs on a node, installed, read, and compared with model and software set."""

from __future__ import annotations

from .evaluation import evaluate
from .findings import GpuFindings, GpuTarget
from .reading import Gpus, read

__all__ = ["GpuFindings", "GpuTarget", "Gpus", "evaluate", "read"]
