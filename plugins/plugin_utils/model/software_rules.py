# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which versions of a software set are known not to go together.

docs/software-set.md is written from here. Rules that need to know the node are in
`module_utils/software/compatibility.py`. A version without a package has no rule: its layer stops
before it changes anything.
"""

from __future__ import annotations

from collections.abc import Callable

from ...module_utils.software import compatibility
from ...module_utils.software import known_versions as known
from ...module_utils.software.compatibility import (
    NOWHERE,
    PEERMEM,
    REFUSED,
    WARNED,
    Holds,
    Judgement,
    Node,
    Rule,
    older,
)
from ...module_utils.software.gpu_catalog import NVLINK5
from ...module_utils.software.software_set import NO_RDMA, PROPRIETARY, Driver, SoftwareSet


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
        "`nvidia-driver-pinning-*` of the set's driver is removed",
    ),
    (
        "open and proprietary modules, or packages of two branches, side by side",
        "the other ones are removed in the same plan",
    ),
    (
        "NCCL or DCGM built for another CUDA major than the toolkit's",
        "the name or the revision of their packages follows from `cuda`",
    ),
)
"""Wrong combinations that cannot be written."""
