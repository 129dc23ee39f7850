# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which versions of a software set are known not to go together, which are doubtful or unknown.

docs/software-set.md is written from here. Rules that need to know the node are in
`module_utils/software/compatibility.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from ...module_utils.software import compatibility
from ...module_utils.software import known_versions as known
from ...module_utils.software.compatibility import (
    NOWHERE,
    PEERMEM,
    REFUSED,
    UNKNOWN,
    WARNED,
    Holds,
    Judgement,
    Node,
    Rule,
    older,
)
from ...module_utils.software.gpu_catalog import NVLINK5, OLDEST_BRANCH, cuda_major
from ...module_utils.software.software_set import (
    CUDA_URL,
    DOCA,
    INBOX,
    NO_RDMA,
    PROPRIETARY,
    Driver,
    SoftwareSet,
)


def judge(software: SoftwareSet, node: Node = NOWHERE) -> list[Judgement]:
    """Everything that is known of the set, what is refused first."""
    return compatibility.judge(software, node, RULES)


def _of_driver(holds: Callable[[Driver], bool]) -> Holds:
    return lambda software, _node: software.driver is not None and holds(software.driver)


def _cuda_too_new(software: SoftwareSet, _node: Node = NOWHERE) -> bool:
    minimum = known.CUDA_MINIMUM.get(software.cuda_major)
    return bool(software.driver and minimum and older(software.driver.version, minimum))


def _cuda_newer(software: SoftwareSet, _node: Node) -> bool:
    own = known.CUDA_DRIVER.get(software.cuda)
    newer = bool(software.driver and own and older(software.driver.version, own))
    return newer and not _cuda_too_new(software)


def _build(part: str) -> Holds:
    """Whether a part is not known to exist for the CUDA major of the set."""

    def holds(software: SoftwareSet, _node: Node) -> bool:
        version = getattr(software, part)
        if not version or not software.driver:
            return False
        builds = known.BUILDS.get(cuda_major(software, software.driver))
        if builds is None:
            return True
        oldest, newest = builds[part]
        return older(version, oldest) or older(newest, version)

    return holds


RULES: tuple[Rule, ...] = (
    Rule(
        "blackwell_proprietary",
        REFUSED,
        "driver.modules",
        "proprietary modules for B300 or B200",
        "Blackwell runs with the open modules alone",
        "Write modules: open, or leave it out",
        known.OPEN_MODULES,
        _of_driver(lambda d: d.gpu in NVLINK5 and d.modules == PROPRIETARY),
    ),
    Rule(
        "blackwell_branch",
        REFUSED,
        "driver.version",
        f"a branch below {known.BLACKWELL_MINIMUM} for B300 or B200",
        f"their fabric manager begins with branch {known.BLACKWELL_MINIMUM}",
        f"Choose branch {known.B300_PRACTICE} or later",
        known.FABRIC_GUIDE,
        _of_driver(lambda d: d.gpu in NVLINK5 and d.branch < known.BLACKWELL_MINIMUM),
    ),
    Rule(
        "old_branch",
        REFUSED,
        "driver.version",
        f"a branch below {OLDEST_BRANCH} for another GPU",
        f"names of packages are known from branch {OLDEST_BRANCH} on",
        "Choose a newer branch",
        known.DRIVER_INSTALL,
        _of_driver(lambda d: d.gpu not in NVLINK5 and d.branch < OLDEST_BRANCH),
    ),
    Rule(
        "b300_early_branch",
        WARNED,
        "driver.version",
        f"a branch from {known.BLACKWELL_MINIMUM} to below {known.B300_PRACTICE} for B300",
        f"sites run B300 with branch {known.B300_PRACTICE} and later",
        f"Prefer branch {known.B300_PRACTICE} or later",
        known.PRACTICE,
        _of_driver(
            lambda d: d.gpu == "B300" and known.BLACKWELL_MINIMUM <= d.branch < known.B300_PRACTICE
        ),
    ),
    Rule(
        "unknown_branch",
        UNKNOWN,
        "driver.version",
        f"a branch other than {', '.join(map(str, known.BRANCHES))}",
        "whether its packages have the names of the catalogue is not known",
        "Look at what check mode says of the packages before the run",
        known.DRIVER_INSTALL,
        _of_driver(lambda d: d.branch >= OLDEST_BRANCH and d.branch not in known.BRANCHES),
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
        _cuda_too_new,
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
        _cuda_newer,
    ),
    Rule(
        "unknown_cuda",
        UNKNOWN,
        "cuda",
        f"a toolkit other than {', '.join(known.CUDA_DRIVER)}",
        "the driver that it needs is not known here",
        "Compare its release notes with the driver",
        known.CUDA_NOTES,
        lambda s, _node: bool(s.driver and s.cuda and s.cuda not in known.CUDA_DRIVER),
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
        lambda s, _node: bool(
            s.driver and s.cuda and older(s.cuda, known.GPU_TOOLKIT[s.driver.gpu])
        ),
    ),
    Rule(
        "old_dcgm",
        REFUSED,
        "dcgm",
        f"DCGM below {known.DCGM_MAJOR}",
        f"packages are named as those of DCGM {known.DCGM_MAJOR}, one for each CUDA major",
        f"Choose DCGM {known.DCGM_MAJOR}",
        known.DRIVER_INSTALL,
        lambda s, _node: bool(s.dcgm) and older(s.dcgm, known.DCGM_MAJOR),
    ),
    Rule(
        "unknown_dcgm",
        UNKNOWN,
        "dcgm",
        f"DCGM above {known.DCGM_MAJOR}",
        "names of its packages are not known",
        "Look at what check mode says of the packages before the run",
        known.DRIVER_INSTALL,
        lambda s, _node: (
            bool(s.dcgm)
            and (s.dcgm.split(".")[0] != known.DCGM_MAJOR and not older(s.dcgm, known.DCGM_MAJOR))
        ),
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
            _build(part),
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
        lambda s, _node: bool(s.gdrcopy) and s.repositories["cuda"].url == CUDA_URL,
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
        lambda s, _node: bool(s.driver and s.driver.gpu in NVLINK5 and s.rdma.source == NO_RDMA),
    ),
    Rule(
        "inbox_connectx8",
        UNKNOWN,
        "rdma.source",
        "rdma.source inbox with B300",
        "whether the kernel's own driver serves its ConnectX-8 is not known",
        "Compare the devices that the layer rdma finds, or write source: doca",
        known.DOCA_SUPPORT,
        lambda s, _node: bool(s.driver and s.driver.gpu == "B300" and s.rdma.source == INBOX),
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
        lambda s, _node: bool(s.driver and s.driver.gpu in NVLINK5 and s.rdma.source == DOCA),
    ),
    Rule(
        "unknown_doca",
        UNKNOWN,
        "rdma.version",
        f"DOCA other than {' and '.join(f'{release}.x' for release in known.DOCA_RELEASES)}",
        "the distributions and kernels that it serves are not known here",
        "Compare its page of general support",
        known.DOCA_SUPPORT,
        lambda s, _node: (
            s.rdma.source == DOCA and compatibility.doca_release(s) not in known.DOCA_RELEASES
        ),
    ),
    Rule(
        "dma_buf_modules",
        WARNED,
        "driver.modules",
        "proprietary modules for H200 or H100",
        PEERMEM,
        "Write modules: open, or let nvidia_peermem be loaded",
        known.DRIVER_INSTALL,
        _of_driver(lambda d: d.gpu not in NVLINK5 and d.modules == PROPRIETARY),
    ),
    *compatibility.RULES,
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
