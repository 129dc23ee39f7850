# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What has been published about versions: bounds that rules compare a set with, never a set.

Whoever learns more adds a line here, with its source; the page docs/software-set.md follows.
"""

from __future__ import annotations

DRIVER_GUIDE = "NVIDIA, Supported drivers and CUDA toolkit versions"
CUDA_NOTES = "NVIDIA, CUDA toolkit release notes"
FABRIC_GUIDE = "NVIDIA, Fabric Manager user guide"
DOCA_SUPPORT = "NVIDIA, DOCA 3.2 general support"
OPEN_MODULES = "NVIDIA, transition to open-source GPU kernel modules"
DRIVER_INSTALL = "NVIDIA, driver installation guide"
GDRCOPY_INDEX = "NVIDIA, index of compute/redist/gdrcopy"
OPERATOR_ISSUE = "NVIDIA gpu-operator, issue 2781"
PRACTICE = "practice of sites"

BRANCHES = (570, 575, 580, 590, 595)
"""Branches of the driver whose packages are known."""

BLACKWELL_MINIMUM = 570
"""Fabric manager of HGX B200 and B300."""
B300_PRACTICE = 580

CUDA_MINIMUM = {"12": "525.60.13", "13": "580.65.06"}
"""Oldest driver that runs programs of a CUDA major, by minor version compatibility."""

CUDA_DRIVER = {
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
}
"""The driver that each toolkit was published with: from it on nothing of the toolkit is missing."""

GPU_TOOLKIT = {"B300": "12.9", "B200": "12.8", "H200": "11.8", "H100": "11.8"}
"""First toolkit whose compilers know the GPU."""

BUILDS = {
    "12": {
        "dcgm": ("4.0.0", "4.5.2"),
        "gdrcopy": ("2.4", "2.6"),
        "nccl": ("2.28.3", "2.28.9"),
    },
    "13": {
        "dcgm": ("4.3.0", "4.5.2"),
        "gdrcopy": ("2.5.1", "2.6"),
        "nccl": ("2.28.3", "2.28.9"),
    },
}
"""By CUDA major, the oldest and the newest version that is known to have been built for it."""

DCGM_MAJOR = "4"
"""Names of packages are those of DCGM 4, which Blackwell needs."""

DOCA_RELEASES = {
    "3.2": ("ubuntu24.04", "rhel9"),
    "3.3": ("ubuntu24.04", "rhel9"),
}
"""Releases with the folders of their repository that are known."""
DOCA_MAJOR_FOLDERS = "3.2.0"
"""From here on folders are those of major releases, and drivers are built by DKMS."""
DOCA_KERNELS = ("5.14", "5.15", "6.8")
"""Kernels of the distributions that the catalogue has: others may not build."""

DMA_BUF_KERNEL = "5.12"
