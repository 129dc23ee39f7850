# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The rules, as plain data: docs/software-set.md is written from here."""

from __future__ import annotations

from . import combinations
from . import known_versions as known
from .gpu_catalog import OLDEST_BRANCH
from .judgement import REFUSED, UNKNOWN, WARNED, Rule

_PEERMEM = "GPUDirect RDMA has no dma-buf there and needs nvidia_peermem"
RULES: tuple[Rule, ...] = (
    Rule(
        "blackwell_proprietary",
        REFUSED,
        "driver.modules",
        "proprietary modules for B300 or B200",
        "Blackwell runs with the open modules alone",
        "Write modules: open, or leave it out",
        known.OPEN_MODULES,
        combinations.blackwell_proprietary,
    ),
    Rule(
        "blackwell_branch",
        REFUSED,
        "driver.version",
        f"a branch below {known.BLACKWELL_MINIMUM} for B300 or B200",
        f"their fabric manager begins with branch {known.BLACKWELL_MINIMUM}",
        f"Choose branch {known.B300_PRACTICE} or later",
        known.FABRIC_GUIDE,
        combinations.old_branch_blackwell,
    ),
    Rule(
        "old_branch",
        REFUSED,
        "driver.version",
        f"a branch below {OLDEST_BRANCH} for another GPU",
        f"names of packages are known from branch {OLDEST_BRANCH} on",
        "Choose a newer branch",
        known.DRIVER_INSTALL,
        combinations.old_branch,
    ),
    Rule(
        "b300_early_branch",
        WARNED,
        "driver.version",
        f"a branch from {known.BLACKWELL_MINIMUM} to below {known.B300_PRACTICE} for B300",
        f"sites run B300 with branch {known.B300_PRACTICE} and later",
        f"Prefer branch {known.B300_PRACTICE} or later",
        known.PRACTICE,
        combinations.early_branch_b300,
    ),
    Rule(
        "unknown_branch",
        UNKNOWN,
        "driver.version",
        f"a branch other than {', '.join(map(str, known.BRANCHES))}",
        "whether its packages have the names of the catalogue is not known",
        "Look at what check mode says of the packages before the run",
        known.DRIVER_INSTALL,
        combinations.unknown_branch,
    ),
    Rule(
        "cuda_driver",
        REFUSED,
        "cuda",
        "a toolkit whose major needs a newer driver: "
        + ", ".join(f"{major}.x {low}" for major, low in known.CUDA_MINIMUM.items()),
        "its programs do not start",
        "Choose a newer driver, or an older toolkit",
        known.DRIVER_GUIDE,
        combinations.cuda_too_new,
    ),
    Rule(
        "cuda_minor",
        WARNED,
        "cuda",
        "a toolkit newer than the driver, within its major: "
        + ", ".join(f"{cuda} {own}" for cuda, own in known.CUDA_DRIVER.items()),
        "it runs by minor version compatibility, without what needs the newer driver (PTX of "
        "its compilers, for example)",
        "Choose that driver or a newer one, or an older toolkit",
        known.CUDA_NOTES,
        combinations.cuda_newer,
    ),
    Rule(
        "unknown_cuda",
        UNKNOWN,
        "cuda",
        f"a toolkit other than {', '.join(known.CUDA_DRIVER)}",
        "the driver that it needs is not known here",
        "Compare its release notes with the driver",
        known.CUDA_NOTES,
        combinations.unknown_cuda,
    ),
    Rule(
        "gpu_toolkit",
        WARNED,
        "cuda",
        "a toolkit older than the GPU: "
        + ", ".join(f"{gpu} {first}" for gpu, first in known.GPU_TOOLKIT.items()),
        "its compilers do not know the GPU",
        "Choose a newer toolkit",
        known.CUDA_NOTES,
        combinations.old_toolkit,
    ),
    Rule(
        "old_dcgm",
        REFUSED,
        "dcgm",
        f"DCGM below {known.DCGM_MAJOR}",
        f"packages are named as those of DCGM {known.DCGM_MAJOR}, one for each CUDA major",
        f"Choose DCGM {known.DCGM_MAJOR}",
        known.DRIVER_INSTALL,
        combinations.old_dcgm,
    ),
    Rule(
        "unknown_dcgm",
        UNKNOWN,
        "dcgm",
        f"DCGM above {known.DCGM_MAJOR}",
        "names of its packages are not known",
        "Look at what check mode says of the packages before the run",
        known.DRIVER_INSTALL,
        combinations.new_dcgm,
    ),
    *(
        Rule(
            f"{part}_build",
            UNKNOWN,
            part,
            f"{name} other than "
            + "; ".join(
                f"{' to '.join(builds[part])} for CUDA {major}"
                for major, builds in known.BUILDS.items()
            ),
            "no build of it is known",
            "Choose a newer one, or look at what check mode says of the packages before the run",
            source,
            combinations.build(part),
        )
        for part, name, source in (
            ("dcgm", "DCGM", known.PRACTICE),
            ("gdrcopy", "GDRCopy", known.GDRCOPY_INDEX),
            ("nccl", "NCCL", known.PRACTICE),
        )
    ),
    Rule(
        "gdrcopy_repository",
        UNKNOWN,
        "gdrcopy",
        "GDRCopy from the vendor's CUDA repository",
        "its packages are published as files; whether that repository has them is not known",
        "Serve them from a mirror or a folder if the layer says that no repository has them",
        known.GDRCOPY_INDEX,
        combinations.gdrcopy_repository,
    ),
    Rule(
        "nvlink_rdma",
        REFUSED,
        "rdma.source",
        "rdma.source none with B300 or B200",
        "NVLSM needs ib_umad and mlx5_ib, which the layer rdma loads; without it CUDA fails with "
        "error 802 while nvidia-smi looks well",
        "Write doca or inbox",
        known.OPERATOR_ISSUE,
        combinations.nvlink_without_rdma,
    ),
    Rule(
        "inbox_connectx8",
        UNKNOWN,
        "rdma.source",
        "rdma.source inbox with B300",
        "whether the kernel's own driver serves its ConnectX-8 is not known",
        "Compare the devices that the layer rdma finds, or write source: doca",
        known.DOCA_SUPPORT,
        combinations.inbox_b300,
    ),
    Rule(
        "mft",
        UNKNOWN,
        "rdma.version",
        "DOCA with the driver of B300 or B200: mft is in both repositories",
        "DOCA's mft is installed, never that of the CUDA repository; whether it is as new as "
        "nvlink5 asks depends on both versions",
        "The layer gpu says so before it changes a package; then choose a newer DOCA or an older "
        "driver",
        known.PRACTICE,
        combinations.two_mfts,
    ),
    Rule(
        "doca_distribution",
        UNKNOWN,
        "rdma.version",
        "a distribution other than "
        + "; ".join(
            f"{' and '.join(folders)} for DOCA {release}.x"
            for release, folders in known.DOCA_RELEASES.items()
        ),
        "whether its repository has a folder for it is not known",
        "If the layer rdma cannot read it, choose another release, or source: inbox",
        known.DOCA_SUPPORT,
        combinations.doca_folder,
    ),
    Rule(
        "doca_debian",
        REFUSED,
        "rdma.source",
        "DOCA on Debian",
        "the catalogue has no packages for it",
        "Write source: inbox for these nodes",
        "this collection",
        combinations.doca_debian,
    ),
    Rule(
        "doca_before_dkms",
        REFUSED,
        "rdma.version",
        f"DOCA below {known.DOCA_MAJOR_FOLDERS} on EL by {{distribution}} in the URL",
        "its folders are those of minor releases, and its drivers are built for their kernels",
        f"Choose {known.DOCA_MAJOR_FOLDERS} or later, or write the folder into the URL",
        known.DOCA_SUPPORT,
        combinations.doca_before_dkms,
    ),
    Rule(
        "unknown_doca",
        UNKNOWN,
        "rdma.version",
        f"DOCA other than {' and '.join(f'{release}.x' for release in known.DOCA_RELEASES)}",
        "the distributions and kernels that it serves are not known here",
        "Compare its page of general support",
        known.DOCA_SUPPORT,
        combinations.unknown_doca,
    ),
    Rule(
        "unknown_kernel",
        UNKNOWN,
        "kernel",
        f"DOCA with a kernel other than {', '.join(known.DOCA_KERNELS)}",
        "whether its drivers build for this kernel is not known",
        "Try one node first: the layer rdma checks what DKMS made",
        known.PRACTICE,
        combinations.unknown_kernel,
    ),
    Rule(
        "driver_distribution",
        REFUSED,
        "driver",
        "the NVIDIA driver on Debian",
        "the catalogue has no packages for it",
        "Install Ubuntu 22.04 or 24.04, or EL 9, or leave driver out for these nodes",
        "this collection",
        combinations.driver_distribution,
    ),
    Rule(
        "dma_buf_kernel",
        WARNED,
        "kernel",
        f"a kernel below {known.DMA_BUF_KERNEL}",
        _PEERMEM,
        f"Choose a kernel from {known.DMA_BUF_KERNEL} on, or let nvidia_peermem be loaded",
        known.DRIVER_INSTALL,
        combinations.no_dma_buf,
    ),
    Rule(
        "dma_buf_modules",
        WARNED,
        "driver.modules",
        "proprietary modules for H200 or H100",
        _PEERMEM,
        "Write modules: open, or let nvidia_peermem be loaded",
        known.DRIVER_INSTALL,
        combinations.no_dma_buf_modules,
    ),
)

BY_CONSTRUCTION = (
    (
        "fabric manager, NSCQ, IMEX or persistenced of another version than the driver",
        "there is no key for their versions, and they are installed in one transaction with it",
    ),
    (
        "`mft` from two sources",
        "DOCA's is installed where the set has DOCA, else that of the CUDA repository; the other "
        "one is never offered",
    ),
    (
        "the vendor's pinning package beside the pins of this collection",
        "`nvidia-driver-pinning-*` of the set's driver is taken away",
    ),
    (
        "open and proprietary modules, or packages of two branches, side by side",
        "the other ones are taken away in the same plan",
    ),
    (
        "NCCL or DCGM built for another CUDA major than the toolkit's",
        "the name or the revision of their packages follows from `cuda`",
    ),
)
"""Wrong combinations that cannot be written."""
