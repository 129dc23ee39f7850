# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every version that stand-in repositories have: one table.

Real ones as far as they are known; what a stand-in does depends on none of them.
"""

from __future__ import annotations

from dataclasses import dataclass

KERNELS = {"ubuntu": "6.8.0-60-generic", "el": "5.14.0-570.12.1.el9_6.x86_64"}
"""What runs, according to the hardware root of the stand-ins."""


@dataclass(frozen=True)
class Driver:
    """A driver, and what the repository has beside it. `branch` ends names where names have it."""

    version: str
    cuda: str
    """Of the toolkit in full: `13.0.2`."""

    @property
    def branch(self) -> str:
        return self.version.split(".")[0]

    @property
    def suffix(self) -> str:
        """Of names on Ubuntu: the last branch with one is 580."""
        return f"-{self.branch}" if int(self.branch) <= 580 else ""


FIRST = Driver("580.95.05", "13.0.2")
NEWER = Driver("580.105.08", "13.0.2")
"""A later version of the same branch."""
NEXT = Driver("590.44.01", "13.1.0")
"""The branch after it."""
DRIVERS = (FIRST, NEWER, NEXT)
NVCC = {"13.0.2": "13.0.88", "13.1.0": "13.1.80"}

FLOATING = {
    "first": {
        "nvlsm": "2025.06.11",
        "dcgm": "4.4.1",
        "gdrcopy": "2.5.1",
        "nccl": "2.28.3",
        "mft": "4.33.0.169",
        "collectx": "1.22.1",
        "keyring": "1.1",
    },
    "all": {
        "nvlsm": "2025.10.12",
        "dcgm": "4.4.2",
        "gdrcopy": "2.5.2",
        "nccl": "2.28.9",
        "mft": "4.34.1.10",
        "collectx": "1.22.2",
    },
}
"""What has versions of its own in the repository of CUDA: at first, and added later."""


@dataclass(frozen=True)
class Doca:
    version: str
    build: str
    ofed: str
    """What ofed_info says after `OFED-internal-`."""
    rdma_core: str
    perftest: str
    mft: str
    ucx: str


DOCAS = (
    Doca("3.2.0", "125000", "25.10-1.2.8", "2510.0.11", "25.10.0", "4.34.0.145", "1.20.0"),
    Doca("3.3.0", "088000", "26.01-1.0.0", "2601.0.6", "26.01.0", "4.35.0.159", "1.21.0"),
)
