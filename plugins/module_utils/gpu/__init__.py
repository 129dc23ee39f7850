# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every GPU of a node: read, and judged against the cluster model and the software set."""

from __future__ import annotations

from .found import Driver, Gpu, Gpus, Memory, Nvml, Service, Xid
from .judging import Verdict, judge
from .reading import read
from .wanted import GPUDIRECT, Wanted

__all__ = [
    "GPUDIRECT",
    "Driver",
    "Gpu",
    "Gpus",
    "Memory",
    "Nvml",
    "Service",
    "Verdict",
    "Wanted",
    "Xid",
    "judge",
    "read",
]
