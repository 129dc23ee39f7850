# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a set that says nothing has. No version stands here: those are the operator's alone."""

from __future__ import annotations

RDMA_SOURCE = "inbox"
DOCA_PROFILE = "doca-ofed"
DRIVER_MODULES = "open"
DRIVER_GPU = "B300"
CUDA_URL = "https://developer.download.nvidia.com/compute/cuda/repos/{distribution}/{architecture}"
DOCA_URL = "https://linux.mellanox.com/public/repo/doca/{version}/{distribution}/{architecture}"
