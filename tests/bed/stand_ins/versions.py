# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""All versions in the stand-in repositories.

README.md lists the sources for DOCA. The behaviour of a stand-in depends on no version.
"""

from __future__ import annotations

from dataclasses import dataclass

KERNELS = {"ubuntu": "6.8.0-60-generic", "el": "5.14.0-570.12.1.el9_6.x86_64"}
"""Running kernel, according to the hardware root of the stand-ins."""


@dataclass(frozen=True)
class Driver:
    """A driver and its companion packages. `branch` is the suffix of names that have one."""

    version: str
    cuda: str
    """Full version of the toolkit, for example `13.0.2`."""

    @property
    def branch(self) -> str:
        return self.version.split(".")[0]

    @property
    def suffix(self) -> str:
        """Suffix of names on Ubuntu. 580 is the last branch with one."""
        return f"-{self.branch}" if int(self.branch) <= 580 else ""


FIRST = Driver("580.159.03", "13.0.2")
NEWER = Driver("580.173.02", "13.0.2")
"""A later version of the same branch."""
NEXT = Driver("590.48.01", "13.1.0")
"""The next branch."""
DRIVERS = (FIRST, NEWER, NEXT)
NVCC = {"13.0.2": "13.0.88", "13.1.0": "13.1.80"}

FLOATING = {
    "first": {
        "nvlsm": "2025.06.11",
        "dcgm": "4.5.3",
        "gdrcopy": "2.5.1",
        "nccl": "2.28.9",
        "mft": "4.33.0.169-1",
        "collectx": "1.22.1",
        "keyring": "1.1",
    },
    "all": {
        "nvlsm": "2025.10.12",
        "dcgm": "4.7.0",
        "gdrcopy": "2.5.2",
        "nccl": "2.29.7",
        "mft": "4.34.1.12-1",
        "collectx": "1.22.2",
    },
}
"""Packages in CUDA's repository with separate versions: initial ones, and ones added later."""


@dataclass(frozen=True)
class Doca:
    """A release of DOCA. Versions are `upstream-revision`; README.md lists their sources."""

    version: str
    build: str
    """Revision of its profiles."""
    ofed: str
    """Version of its drivers: `25.10-1.7.1`."""
    rdma_core: str
    perftest: str
    mft: str
    mlnx_tools: str
    ucx: str
    openmpi: str
    sharp: str
    extra: str
    """`doca-extra`, which has a separate version."""
    hcoll: str = ""
    mpitests: str = ""
    distribution: str = ".el9"
    """Suffix of the revision of packages built for one EL release."""

    @property
    def stream(self) -> str:
        """Short version of the drivers: `25.10`."""
        return self.ofed.partition("-")[0]

    @property
    def drivers(self) -> str:
        """Revision of packages of kernel modules: `OFED.25.10.1.7.1.1`."""
        return f"OFED.{self.ofed.replace('-', '.')}.1"

    @property
    def mpi_prefix(self) -> str:
        return f"/usr/mpi/gcc/openmpi-{self.openmpi.partition('-')[0]}"


DOCAS = (
    Doca(
        version="3.2.1",
        build="044000",
        ofed="25.10-1.7.1",
        rdma_core="2510.0.11-1",
        perftest="25.10.0-0.134.g8aff167",
        mft="4.34.1-10",
        mlnx_tools="2510.0.16-1",
        ucx="1.20.0-1.20251022.03898fede.2510122",
        openmpi="4.1.9a1-1.20251022.ad48c462ff.2510122",
        sharp="3.13.12-1.2510122",
        extra="0.1.9.0.0.0-1",
    ),
    Doca(
        version="3.3.0",
        build="088000",
        ofed="26.01-1.0.0",
        rdma_core="2601.0.7-1",
        perftest="26.01.5-1",
        mft="4.35.0-159",
        mlnx_tools="2601.0.2-1",
        ucx="1.20.0-1.20260211.d9a4f352d",
        openmpi="4.1.9a1-1.20260211.81d402c97a",
        sharp="3.14.0-1",
        extra="0.1.9.0.0.0-1",
    ),
    Doca(
        version="2.9.3",
        build="021000",
        ofed="24.10-3.2.5",
        rdma_core="2410mlnx54-1.2410068",
        perftest="24.10.0-0.95.g370212b.2410325",
        mft="4.30.1-1210",
        mlnx_tools="24.10-0.2410068",
        ucx="1.18.0-1.2410068",
        openmpi="4.1.7rc1-1.2410325",
        sharp="3.9.1.MLNX20250604.25aad3d5-1.2410325",
        extra="0.1.7-1",
        hcoll="4.8.3230-1.2410068",
        mpitests="3.2.24-2ffc2d6.2410068",
        distribution="",
    ),
)
"""The release of the inventory, a later one, and the one with long-term support."""
