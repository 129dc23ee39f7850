# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""NVIDIA's driver and GPUs on a node, installed, read and judged against model and software set."""

from __future__ import annotations

from .findings import Wanted
from .judging import Verdict, judge
from .reading import Gpus, read
from .smi import Smi
from .smi import ask as ask_smi

__all__ = ["Gpus", "Smi", "Verdict", "Wanted", "ask_smi", "judge", "read"]
