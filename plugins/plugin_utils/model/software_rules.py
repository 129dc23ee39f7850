# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Incompatible versions in a software set, from published limits.

docs/software-set.md is generated from these rules. A version without packages needs no rule, as its
layer stops before it changes anything. Each rule cites its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, cast

from ...module_utils.software import doca_kernels, floors
from ...module_utils.software.gpu_catalog import BRANCH_OF_13, NVLINK5
from ...module_utils.software.software_set import (
    DOCA,
    NO_RDMA,
    PROPRIETARY,
    DriverSpec,
    SoftwareSet,
)

REFUSED, WARNED, UNKNOWN = "refused", "warned", "unknown"
STATUSES = (REFUSED, WARNED, UNKNOWN)

BLACKWELL_MINIMUM = 570
"""First branch of fabric manager for HGX B200 and B300."""
DATED = "2026-11-28"
"""Date of the last comparison with the sources."""
CUDA_MINIMUM = {"12": "525.60.13", "13": "580.65.06"}
"""Oldest driver for a CUDA major version, by minor version compatibility."""
CUDA_DRIVER = {
    "12.8": "570.26",
    "12.9": "575.51.03",
    "13.0": "580.65.06",
    "13.1": "590.44.01",
    "13.2": "595.45.04",
    "13.3": "610.43.02",
    "13.4": "615.71.09",
}
"""The driver published with each toolkit, which supports all of its features.

Toolkits since 13.4 include no driver; for them, this is the first driver whose nvidia-smi reports
this CUDA version.
"""
CUDA_OLDER = (
    *(f"11.{minor}" for minor in range(9)),
    *(f"12.{minor}" for minor in range(7)),
)
"""Earlier toolkits, which work with current drivers (developer.nvidia.com/cuda-toolkit-archive)."""
DRIVER_BRANCHES = (
    *(450, 460, 470, 510, 515, 520, 525, 530, 535, 545, 550, 555, 560, 565),
    *(570, 575, 580, 590, 595, 610, 615, 620),
)
"""Branches of drivers for Linux: NVIDIA/open-gpu-kernel-modules; those before 515, and 620, from
docs.nvidia.com/datacenter/tesla."""
DOCA_LINES = (
    *((1, 5), (2, 0), (2, 2), *((2, minor) for minor in range(5, 11))),
    *((3, minor) for minor in range(6)),
)
"""Lines of DOCA: developer.nvidia.com/doca-archive; 3.3 to 3.5 from the repository."""
CUDA_OF_GPU = {"B300": "12.9", "B200": "12.8", "H200": "11.8", "H100": "11.8"}
"""First toolkit that compiles for the GPU: sm_103, sm_100, sm_90."""
DOCA_OF_CONNECTX8 = "2.10.0"
"""The first general release that lists ConnectX-8, with firmware 40.44.1036; 2.9.3 does not."""
OPEN_ONLY_BRANCH = 615
"""The first branch without packages of proprietary modules."""
HANGS = ("570.133.20", "580.105.08")
"""Drivers with which nvidia-smi hung on HGX B200 after about 66 days. There are no reports about
the drivers between them."""


@dataclass(frozen=True)
class VersionRule:
    name: str
    status: str
    key: str
    """The key below `software` concerned."""
    when: str
    """The combination."""
    reason: str
    remedy: str
    source: str
    holds: Callable[[SoftwareSet], bool]
    told: Optional[Callable[[SoftwareSet], str]] = None
    """The problem of one set, where it is more specific than the combination."""

    def problem(self, software: SoftwareSet) -> str:
        if self.told:
            return self.told(software)
        value: object = software
        for part in self.key.split("."):
            value = getattr(value, part)
        return f"{value} ({self.when}): {self.reason} ({self.source})"

    def line(self, software: SoftwareSet) -> str:
        return f"{self.status}: software.{self.key}: {self.problem(software)}. {self.remedy}."


def evaluate(software: SoftwareSet) -> list[VersionRule]:
    """The rules that apply to the set, refusals first."""
    found = [rule for rule in RULES if rule.holds(software)]
    return sorted(found, key=lambda rule: STATUSES.index(rule.status))


def older(one: str, other: str) -> bool:
    """Compare numerically: `580.95.05` is older than `580.105.08`, and `13` equals `13.0`."""
    return _number(one) < _number(other)


def _number(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in re.findall(r"\d+", version)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _line(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


def _doca_kernel(software: SoftwareSet) -> str:
    """Rule for the kernel in the set. Nodes check the running kernel."""
    if software.rdma.source != DOCA or not software.kernel:
        return ""
    return doca_kernels.verdict(software.rdma.version, software.kernel)


def _of_driver(holds: Callable[[DriverSpec], bool]) -> Callable[[SoftwareSet], bool]:
    return lambda software: software.driver is not None and holds(software.driver)


def _behind(software: SoftwareSet, minimum: Optional[str]) -> bool:
    version = software.driver.version if software.driver else ""
    return bool(version and minimum and older(version, minimum))


def _cuda_too_new(software: SoftwareSet) -> bool:
    return _behind(software, CUDA_MINIMUM.get(software.cuda_major))


def _cuda_newer(software: SoftwareSet) -> bool:
    return _behind(software, CUDA_DRIVER.get(software.cuda)) and not _cuda_too_new(software)


def _cuda_unknown(software: SoftwareSet) -> bool:
    """Whether the toolkit is none of the known ones."""
    known = software.cuda in CUDA_DRIVER or software.cuda in CUDA_OLDER
    return bool(software.driver and software.cuda) and not known and not _cuda_too_new(software)


def _doca_of_another_release(software: SoftwareSet) -> bool:
    repository = software.repositories.get("doca")
    releases = re.findall(
        r"(?<![0-9.])[0-9]+\.[0-9]+\.[0-9]+(?![0-9.])", repository.url if repository else ""
    )
    return bool(software.rdma.version and releases) and software.rdma.version not in releases


def _cuda_before_gpu(software: SoftwareSet) -> bool:
    first = CUDA_OF_GPU.get(software.driver.gpu) if software.driver else None
    return bool(software.cuda and first and older(software.cuda, first))


def _doca_before_nic(software: SoftwareSet) -> bool:
    """HGX B300 has its NICs, ConnectX-8, on the board."""
    b300 = software.driver is not None and software.driver.gpu == "B300"
    return b300 and software.rdma.source == DOCA and older(software.rdma.version, DOCA_OF_CONNECTX8)


def _below(component: str, key: str) -> VersionRule:
    """The rule for a version below its minimum, unless the model accepts it."""
    floor = floors.FLOORS[component]
    firsts = [line.first for line in floor.lines.values()]
    by_line = f"{', '.join(firsts[:-1])} or {firsts[-1]} of its line" if firsts[1:] else firsts[0]

    def holds(software: SoftwareSet) -> bool:
        version = _of_set(software, component)
        found = floors.verdict(component, version)
        return bool(found and found.status == floors.BELOW) and not any(
            (each.component, each.version) == (component, version)
            and not each.expired(floors.today())
            for each in software.accepted
        )

    def told(software: SoftwareSet) -> str:
        version = _of_set(software, component)
        first, source = cast(floors.Verdict, floors.verdict(component, version))[1:]
        return f"{version} is below {first}: {floor.reason} ({source})"

    return VersionRule(
        f"{component}_floor",
        WARNED,
        key,
        f"{f'from {floor.since} on and ' if floor.since else ''}below {by_line}",
        floor.reason,
        "Choose a later version, or write software.accepted with a reason and a date",
        ", ".join(dict.fromkeys(line.source for line in floor.lines.values())),
        holds,
        told,
    )


def _of_set(software: SoftwareSet, component: str) -> str:
    if component == floors.DRIVER:
        return software.driver.version if software.driver else ""
    return str(getattr(software, component))


def _without_bulletin(driver: DriverSpec) -> bool:
    found = floors.verdict(floors.DRIVER, driver.version)
    return bool(found and found.status == floors.UNKNOWN)


RULES: tuple[VersionRule, ...] = (
    *(
        _below(component, "driver.version" if component == floors.DRIVER else component)
        for component in (floors.DRIVER, floors.CUDA, floors.DCGM, floors.NCCL)
    ),
    VersionRule(
        "driver_bulletin",
        UNKNOWN,
        "driver.version",
        f"a branch after {[*floors.FLOORS[floors.DRIVER].lines][-1]}",
        f"it is in no bulletin known on {floors.DATED}",
        "Read NVIDIA's bulletins of the GPU driver",
        "github.com/NVIDIA/product-security",
        _of_driver(_without_bulletin),
    ),
    VersionRule(
        "blackwell_proprietary",
        REFUSED,
        "driver.modules",
        "proprietary modules for B300 or B200",
        "Blackwell requires the open modules",
        "Write modules: open, or remove it",
        "developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules",
        _of_driver(lambda d: d.gpu in NVLINK5 and d.modules == PROPRIETARY),
    ),
    VersionRule(
        "proprietary_branch",
        REFUSED,
        "driver.modules",
        f"proprietary modules from branch {OPEN_ONLY_BRANCH} on",
        "the repository has open modules only, and cuda-drivers installs no driver",
        f"Write modules: open, or choose a branch below {OPEN_ONLY_BRANCH}",
        "github.com/cupy/cupy/pull/10295",
        _of_driver(
            lambda d: d.manage and d.branch >= OPEN_ONLY_BRANCH and d.modules == PROPRIETARY
        ),
    ),
    VersionRule(
        "blackwell_branch",
        REFUSED,
        "driver.version",
        f"a branch below {BLACKWELL_MINIMUM} for B300 or B200",
        f"their first fabric manager is of branch {BLACKWELL_MINIMUM}",
        f"Choose branch {BRANCH_OF_13} or later, which CUDA 13 also needs",
        "HGX B200 from 570.133.20 on: github.com/NVIDIA/cloud-native-docs/pull/184",
        _of_driver(lambda d: d.gpu in NVLINK5 and 0 < d.branch < BLACKWELL_MINIMUM),
    ),
    VersionRule(
        "cuda_driver",
        REFUSED,
        "cuda",
        "a toolkit whose major needs a newer driver: "
        + ", ".join(f"{major}.x {low}" for major, low in CUDA_MINIMUM.items()),
        "its programs do not start",
        "Choose a newer driver, or an older toolkit",
        "docs.nvidia.com/cuda/cuda-toolkit-release-notes",
        _cuda_too_new,
    ),
    VersionRule(
        "cuda_minor",
        WARNED,
        "cuda",
        "a toolkit newer than the driver, within its major: "
        + ", ".join(f"{cuda} {own}" for cuda, own in CUDA_DRIVER.items()),
        "it runs by minor version compatibility, without what needs the newer driver (PTX of "
        "its compilers, for example)",
        "Choose that driver or a newer one, or an older toolkit",
        "docs.nvidia.com/cuda/cuda-toolkit-release-notes",
        _cuda_newer,
    ),
    VersionRule(
        "cuda_unknown",
        UNKNOWN,
        "cuda",
        f"a toolkit with which no known driver was published; those known on {DATED} are "
        f"{CUDA_OLDER[0]} to {[*CUDA_DRIVER][-1]}, without 12.7",
        "the required driver is unknown here, and the toolkit may not exist",
        "Correct it, or read its release notes: nvidia-smi of the driver reports this CUDA version "
        "or a later one",
        "docs.nvidia.com/cuda/cuda-toolkit-release-notes",
        _cuda_unknown,
    ),
    VersionRule(
        "driver_unknown",
        UNKNOWN,
        "driver.version",
        f"a branch of which no driver was known on {DATED}; those known from 570 on are "
        + ", ".join(str(branch) for branch in DRIVER_BRANCHES if branch >= BLACKWELL_MINIMUM),
        "the branch may not exist",
        "Correct it, or read docs.nvidia.com/datacenter/tesla",
        "github.com/NVIDIA/open-gpu-kernel-modules/releases",
        _of_driver(lambda d: bool(d.branch) and d.branch not in DRIVER_BRANCHES),
    ),
    VersionRule(
        "doca_unknown",
        UNKNOWN,
        "rdma.version",
        f"a release of DOCA of which no line was known on {DATED}; the last one is "
        + ".".join(map(str, DOCA_LINES[-1])),
        "the release may not exist, and its packages are unknown here",
        "Correct it, or read its release notes",
        "developer.nvidia.com/doca-archive",
        lambda s: s.rdma.source == DOCA and _line(s.rdma.version) not in DOCA_LINES,
    ),
    VersionRule(
        "doca_release",
        WARNED,
        "rdma.version",
        "the URL of repositories.doca names another release",
        "the packages of this version are not in that repository",
        "Write {version} in the URL, or correct one of them",
        "linux.mellanox.com/public/repo/doca has a directory for each release",
        _doca_of_another_release,
    ),
    VersionRule(
        "cuda_gpu",
        WARNED,
        "cuda",
        "a toolkit before the first one that compiles for the GPU: "
        + ", ".join(f"{gpu} {first}" for gpu, first in CUDA_OF_GPU.items()),
        "nvcc rejects the architecture of this GPU, and programs run only if the driver can "
        "compile their PTX",
        "Choose that toolkit or a newer one",
        "github.com/llvm/llvm-project, MinVersionForOffloadArch in clang/lib/Basic/Cuda.cpp",
        _cuda_before_gpu,
    ),
    VersionRule(
        "doca_connectx8",
        WARNED,
        "rdma.version",
        f"DOCA before {DOCA_OF_CONNECTX8} with B300, whose NICs are ConnectX-8",
        "it does not support ConnectX-8, except for a special release 2.9.0",
        f"Choose {DOCA_OF_CONNECTX8} or later",
        "docs.nvidia.com/doca/archive/2-10-0 and 2-9-3, General Support",
        _doca_before_nic,
    ),
    VersionRule(
        "driver_hangs",
        WARNED,
        "driver.version",
        f"{' or '.join(HANGS)} with open modules for B300 or B200",
        "nvidia-smi hung on HGX B200 after 66 days and 12 hours, until a reboot",
        "Choose another version, or reboot each node within two months",
        "github.com/NVIDIA/open-gpu-kernel-modules/issues/971",
        _of_driver(lambda d: d.gpu in NVLINK5 and d.version in HANGS),
    ),
    VersionRule(
        "nvlink_rdma",
        REFUSED,
        "rdma.source",
        "rdma.source none with B300 or B200",
        "NVLSM needs ib_umad and mlx5_ib, which the layer rdma loads; without it CUDA fails with "
        "error 802 although nvidia-smi reports no error",
        "Write doca or inbox",
        "github.com/NVIDIA/gpu-operator/issues/2781",
        lambda s: bool(s.driver and s.driver.gpu in NVLINK5 and s.rdma.source == NO_RDMA),
    ),
    VersionRule(
        "dma_buf_modules",
        WARNED,
        "driver.modules",
        "proprietary modules for H200 or H100",
        "GPUDirect RDMA has no dma-buf there and needs nvidia_peermem",
        "Write modules: open, or let nvidia_peermem be loaded",
        "docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/gpu-operator-rdma.html",
        _of_driver(lambda d: d.gpu not in NVLINK5 and d.modules == PROPRIETARY),
    ),
    VersionRule(
        "unknown_kernel",
        UNKNOWN,
        "kernel",
        "DOCA with other kernels than those of EL up to 9.7 and 10.1, with DOCA 3.2.3 also of 9.8 "
        "and 10.2; Ubuntu's 5.15 and 6.8, from DOCA 3.4 on also 7.0",
        "it is unknown whether its drivers build for this kernel",
        "Try one node first: the layer rdma checks the DKMS modules",
        "docs.nvidia.com/doca/archive/3-2-1/general-support; Ubuntu's are a guess",
        lambda s: _doca_kernel(s) == doca_kernels.UNKNOWN,
    ),
    VersionRule(
        "doca_kernel",
        WARNED,
        "kernel",
        "DOCA before 3.2.3 with the kernel of EL 9.8 or 10.2",
        "its drivers do not build, so NVIDIA NICs have no driver after the next boot",
        "Choose DOCA 3.2.3, or the kernel of an older minor release",
        "github.com/Azure/azhpc-images/pull/567, "
        "github.com/stackhpc/stackhpc-kayobe-config/pull/2430",
        lambda s: _doca_kernel(s) == doca_kernels.FAILS,
    ),
)
