# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""ECN thresholds that the hardware rounds, as NVUE writes them."""

from __future__ import annotations

from typing import Any

from ....module_utils.fabric.asics import Asic
from .. import rounding
from .spelling import number

THRESHOLDS = ("min-threshold", "max-threshold")


def rounded(asic: Asic, wanted: Any, found: Any) -> bool:
    """Whether the chip makes `found` of `wanted`."""
    asked, got = number(wanted), number(found)
    return asked is not None and got is not None and rounding.rounded(asic, asked, got)
