# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Combinations that rules speak of: each returns what it found in a set, in words, or nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Optional

from . import known_versions as known
from .defaults import CUDA_URL
from .distribution import REDHAT
from .gpu_catalog import NVLINK5, OLDEST_BRANCH, cuda_major
from .judgement import Node
from .software_set import DOCA, INBOX, NO_RDMA, PROPRIETARY, SoftwareSet

# Versions as vendors number them: which one is older, and which full one a short one means.


def key(version: str) -> tuple[int, ...]:
    """Sorts versions of numbers and dots: `580.95.05` before `580.105.08`, `13` as `13.0`."""
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def older(one: str, other: str) -> bool:
    return key(one) < key(other)


def matches(full: str, wanted: str) -> bool:
    """Whether `wanted` is the full version without its epoch, or a beginning of it.

    A beginning ends where a number ends: `13.1` means `13.1.0-1`, not `13.10.0-1` or `13.1rc1-1`.
    """
    _epoch, colon, rest = full.partition(":")
    bare = rest if colon else full
    if not bare.startswith(wanted):
        return False
    after = bare[len(wanted) : len(wanted) + 1]
    return not wanted or not (after.isalnum() or after == "~")


def _kernel(software: SoftwareSet, node: Node) -> str:
    return node.kernel or software.kernel


def _kernel_number(release: str) -> str:
    """`6.8` of `6.8.0-79-generic`."""
    return ".".join(release.split("-")[0].split(".")[:2])


def blackwell_proprietary(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu in NVLINK5 and driver.modules == PROPRIETARY:
        return f"{driver.modules} modules for {driver.gpu}"
    return None


def old_branch_blackwell(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu in NVLINK5 and driver.branch < known.BLACKWELL_MINIMUM:
        return f"branch {driver.branch} for {driver.gpu}"
    return None


def old_branch(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu not in NVLINK5 and driver.branch < OLDEST_BRANCH:
        return f"branch {driver.branch}"
    return None


def early_branch_b300(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver is None or driver.gpu != "B300":
        return None
    early = known.BLACKWELL_MINIMUM <= driver.branch < known.B300_PRACTICE
    return f"branch {driver.branch} for {driver.gpu}" if early else None


def unknown_branch(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.branch >= OLDEST_BRANCH and driver.branch not in known.BRANCHES:
        return f"branch {driver.branch}"
    return None


def cuda_too_new(software: SoftwareSet, node: Node) -> Optional[str]:
    minimum = known.CUDA_MINIMUM.get(software.cuda_major)
    if software.driver and minimum and older(software.driver.version, minimum):
        return (
            f"CUDA {software.cuda} with driver {software.driver.version}, which is below {minimum}"
        )
    return None


def cuda_newer(software: SoftwareSet, node: Node) -> Optional[str]:
    own = known.CUDA_DRIVER.get(software.cuda)
    if cuda_too_new(software, node) or not software.driver or not own:
        return None
    if older(software.driver.version, own):
        return f"CUDA {software.cuda} with driver {software.driver.version}, which is below {own}"
    return None


def unknown_cuda(software: SoftwareSet, node: Node) -> Optional[str]:
    if software.driver and software.cuda and software.cuda not in known.CUDA_DRIVER:
        return f"CUDA {software.cuda} with driver {software.driver.version}"
    return None


def old_toolkit(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and software.cuda and older(software.cuda, known.GPU_TOOLKIT[driver.gpu]):
        return f"CUDA {software.cuda} for {driver.gpu}, which needs {known.GPU_TOOLKIT[driver.gpu]}"
    return None


def old_dcgm(software: SoftwareSet, node: Node) -> Optional[str]:
    if software.dcgm and older(software.dcgm, known.DCGM_MAJOR):
        return f"DCGM {software.dcgm}"
    return None


def new_dcgm(software: SoftwareSet, node: Node) -> Optional[str]:
    if software.dcgm and software.dcgm.split(".")[0] != known.DCGM_MAJOR:
        return None if old_dcgm(software, node) else f"DCGM {software.dcgm}"
    return None


def build(part: str) -> Callable[[SoftwareSet, Node], Optional[str]]:
    """Whether a part is known to exist for the CUDA major of the set."""

    def holds(software: SoftwareSet, node: Node) -> Optional[str]:
        version = {"dcgm": software.dcgm, "gdrcopy": software.gdrcopy, "nccl": software.nccl}[part]
        if not version or not software.driver:
            return None
        major = cuda_major(software, software.driver)
        if major not in known.BUILDS:
            return f"{version} for CUDA {major}"
        oldest, newest = known.BUILDS[major][part]
        if older(version, oldest) or older(newest, version):
            return f"{version} for CUDA {major}"
        return None

    return holds


def gdrcopy_repository(software: SoftwareSet, node: Node) -> Optional[str]:
    if software.gdrcopy and software.repositories["cuda"].url == CUDA_URL:
        return f"GDRCopy {software.gdrcopy} from the vendor's CUDA repository"
    return None


def nvlink_without_rdma(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu in NVLINK5 and software.rdma.source == NO_RDMA:
        return f"rdma.source none with {driver.gpu}"
    return None


def inbox_b300(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu == "B300" and software.rdma.source == INBOX:
        kernel = _kernel(software, node)
        return "rdma.source inbox with B300" + (f" and kernel {kernel}" if kernel else "")
    return None


def two_mfts(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu in NVLINK5 and software.rdma.source == DOCA:
        return f"DOCA {software.rdma.version} with driver {driver.version}"
    return None


def _doca_release(software: SoftwareSet) -> str:
    return ".".join(software.rdma.version.split(".")[:2])


def doca_folder(software: SoftwareSet, node: Node) -> Optional[str]:
    distribution = node.distribution
    folders = known.DOCA_RELEASES.get(_doca_release(software))
    if software.rdma.source != DOCA or distribution is None or folders is None:
        return None
    if distribution.name == "debian" or distribution.doca_layout in folders:
        return None
    return f"DOCA {software.rdma.version} on {distribution.label}"


def doca_before_dkms(software: SoftwareSet, node: Node) -> Optional[str]:
    rdma, distribution = software.rdma, node.distribution
    if rdma.source != DOCA or distribution is None or distribution.family != REDHAT:
        return None
    filled_in = "{distribution}" in software.repositories["doca"].url
    if filled_in and older(rdma.version, known.DOCA_MAJOR_FOLDERS):
        return f"DOCA {rdma.version} on {distribution.label}"
    return None


def unknown_doca(software: SoftwareSet, node: Node) -> Optional[str]:
    if software.rdma.source == DOCA and _doca_release(software) not in known.DOCA_RELEASES:
        return f"DOCA {software.rdma.version}"
    return None


def unknown_kernel(software: SoftwareSet, node: Node) -> Optional[str]:
    kernel = _kernel(software, node)
    if software.rdma.source != DOCA or not kernel:
        return None
    if _kernel_number(kernel) in known.DOCA_KERNELS:
        return None
    return f"DOCA {software.rdma.version} with kernel {kernel}"


def driver_distribution(software: SoftwareSet, node: Node) -> Optional[str]:
    if software.driver and node.distribution is not None and node.distribution.name == "debian":
        return f"the NVIDIA driver on {node.distribution.label}"
    return None


def doca_debian(software: SoftwareSet, node: Node) -> Optional[str]:
    distribution = node.distribution
    if software.rdma.source == DOCA and distribution and distribution.name == "debian":
        return f"DOCA on {distribution.label}"
    return None


def no_dma_buf(software: SoftwareSet, node: Node) -> Optional[str]:
    kernel = _kernel(software, node)
    if software.driver and kernel and older(_kernel_number(kernel), known.DMA_BUF_KERNEL):
        return f"kernel {kernel}"
    return None


def no_dma_buf_modules(software: SoftwareSet, node: Node) -> Optional[str]:
    driver = software.driver
    if driver and driver.gpu not in NVLINK5 and driver.modules == PROPRIETARY:
        return f"{driver.modules} modules for {driver.gpu}"
    return None
