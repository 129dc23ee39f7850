# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the GPU stack in the CUDA repository, by driver branch and distribution family.

Names changed between branches: on Ubuntu they end with the branch up to 580 (fabric manager and
related packages up to 575); the fabric manager's name lost a hyphen in 580.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..core.distribution import REDHAT, Distribution
from ..core.part import PlanError
from ..packages.package import ModuleStream, Stage, WantedPackage
from .software_set import OPEN, DriverSpec, SoftwareSet

DATED = "2026-11-28"
"""Compared with packages.ubuntu.com, source fabric-manager-580, NVIDIA/gpu-driver-container
ubuntu26.04/install.sh at bd20cb2, images of AWS and Azure."""
OLDEST_BRANCH = 570
LAST_SUFFIXED = 580
"""Last branch with the branch in the driver's package names on Ubuntu."""
LAST_SUFFIXED_FABRIC = 575
"""The same for fabric manager, NSCQ, NVSDM and IMEX, in both families. Ubuntu's own packages always
have the branch, and contain the same files."""
BRANCH_OF_13 = 580
"""First branch whose user-mode driver supports CUDA 13."""
ANY_BRANCH = ("[0-9][0-9][0-9]",)
SUFFIXED = (
    "nvidia-*-{}",
    "nvidia-*-{}-open",
    "nvidia-firmware-{}-*",
    "libnvidia-*-{}",
    "libnvsdm-{}",
    "cuda-drivers-{}",
    "cuda-drivers-fabricmanager-{}",
    "nvlink5-{}",
    "xserver-xorg-video-nvidia-{}",
)
"""Ubuntu's packages with the branch in their names."""
FABRIC_LIBRARIES = ("libnvidia-nscq", "libnvsdm", "nvidia-imex")
FABRIC = (
    *("nvidia-fabricmanager", "nvidia-fabricmanager-dev", "cuda-drivers-fabricmanager"),
    *FABRIC_LIBRARIES,
)
METAS_REDHAT = ("nvlink5", "cuda-drivers-fabricmanager", "nvidia-fabricmanager")
"""Packages with the branch in their names (NVIDIA/yum-packaging-fabric-manager issue 1)."""
PRECOMPILED = "kmod-nvidia-[0-9]*"
"""For one EL kernel; conflicts with DKMS (NVIDIA/yum-packaging-precompiled-kmod issue 50)."""
UNSUFFIXED = (
    *("nvidia-open", "cuda-drivers", "cuda-drivers-fabricmanager", "nvlink5", "nvidia-firmware"),
    *(f"nvidia-{x}" for x in ("headless-no-dkms", "kernel-common", "compute-utils", "utils")),
    *(f"nvidia-{x}" for x in ("driver", "dkms", "headless", "kernel-source")),
    *(f"nvidia-{x}-open" for x in ("driver", "dkms", "headless", "headless-no-dkms")),
    "nvidia-kernel-source-open",
    *(f"libnvidia-{x}" for x in ("common", "cfg1", "compute", "decode", "encode", "extra")),
    *(f"libnvidia-{x}" for x in ("fbc1", "gl", "gpucomp")),
    "xserver-xorg-video-nvidia",
)
"""The same in later branches."""
CUDA_WITH_DRIVER = ("cuda", "cuda-[0-9]*", "cuda-runtime-*", "cuda-demo-suite-*")
"""Toolkits that depend on a driver, and may be removed with it."""

PINNED = "versions are pinned by this collection, and one source of pins is enough"
NVLINK5 = ("B300", "B200")
"""GPUs whose NVSwitches need NVLSM."""


def stages(software: SoftwareSet, driver: DriverSpec, distribution: Distribution) -> list[Stage]:
    first, without = distribution.system.driver, "Leave the node out of the layer gpu"
    distribution.refuse_before(first, "the NVIDIA driver", driver.version, without)
    if driver.branch < OLDEST_BRANCH:
        raise PlanError(
            f"software.driver.version {driver.version}: names of packages are known from branch "
            f"{OLDEST_BRANCH} on. Choose a newer branch"
        )
    return [
        Stage("driver and fabric manager", _driver(driver, distribution), CUDA_WITH_DRIVER),
        *_beside(software, driver, distribution.family is REDHAT),
    ]


def _driver(driver: DriverSpec, distribution: Distribution) -> tuple[WantedPackage, ...]:
    """One transaction, as modules, libraries and fabric manager must match."""
    fabric = "" if driver.branch > LAST_SUFFIXED_FABRIC else f"-{driver.branch}"
    names = [
        _meta(driver, distribution),
        "nvidia-persistenced",
        _fabric_manager(driver, distribution),
        f"libnvidia-nscq{fabric}",
        f"nvidia-imex{fabric}",
    ]
    if driver.gpu in NVLINK5:
        meta = "" if driver.branch > LAST_SUFFIXED else f"-{driver.branch}"
        names += [f"nvlink5{meta}", f"libnvsdm{fabric}"]
    packages = [WantedPackage(name, driver.version, "driver") for name in names]
    if driver.gpu in NVLINK5:
        # Its versions (year and month) are independent of the branch.
        packages.append(WantedPackage("nvlsm", component="driver"))
    return tuple(packages)


def _meta(driver: DriverSpec, distribution: Distribution) -> str:
    name = "nvidia-open" if driver.modules == OPEN else "cuda-drivers"
    if distribution.family is REDHAT or driver.branch > LAST_SUFFIXED:
        return name
    return f"{name}-{driver.branch}"


def _fabric_manager(driver: DriverSpec, distribution: Distribution) -> str:
    if driver.branch > LAST_SUFFIXED_FABRIC:
        return "nvidia-fabricmanager"
    if distribution.family is REDHAT:
        return "nvidia-fabric-manager"
    return f"nvidia-fabricmanager-{driver.branch}"


def streams(driver: DriverSpec, distribution: Distribution) -> tuple[ModuleStream, ...]:
    if not distribution.system.module_streams:
        return ()
    kind = "open" if driver.modules == OPEN else "dkms"
    return (ModuleStream("nvidia-driver", f"{driver.branch}-{kind}"),)


def absent(driver: DriverSpec, distribution: Distribution) -> dict[str, str]:
    """The other kind of modules, other branches, and NVIDIA's pinning packages.

    All packages of another branch are removed in one transaction: apt would keep a dependency of
    the old branch, and report broken packages.
    """
    other = "cuda-drivers" if driver.modules == OPEN else "nvidia-open"
    modules = f"software.driver.modules is {driver.modules}"
    branch = f"the branch of the set is {driver.branch}"
    suffixed = driver.branch <= LAST_SUFFIXED_FABRIC
    others = _others(driver.branch)
    if distribution.family is REDHAT:
        kmod = "kmod-nvidia-latest-dkms" if driver.modules == OPEN else "kmod-nvidia-open-dkms"
        away = ["nvidia-fabricmanager" if suffixed else "nvidia-fabric-manager"]
        away += FABRIC_LIBRARIES if suffixed else ()
        away += _named(FABRIC_LIBRARIES, others if suffixed else ANY_BRANCH)
        away += _named(METAS_REDHAT, others)
        built = {PRECOMPILED: "DKMS builds the modules of the set"}
        return {other: modules, kmod: modules, **built, **dict.fromkeys(away, branch)}
    suffix = "" if driver.branch > LAST_SUFFIXED else f"-{driver.branch}"
    dkms = f"nvidia-dkms{suffix}" + ("" if driver.modules == OPEN else "-open")
    away = [each.format(one) for one in (others if suffix else ANY_BRANCH) for each in SUFFIXED]
    away += UNSUFFIXED if suffix else ()
    # Packages of the set's branch from Ubuntu, or with names of later branches.
    away += FABRIC if suffixed else _named(FABRIC, [str(driver.branch)])
    return {
        "nvidia-driver-pinning-*": PINNED,
        **dict.fromkeys(away, branch),
        **dict.fromkeys((other, f"{other}-{driver.branch}", dkms), modules),
    }


def _named(names: Sequence[str], branches: Sequence[str]) -> list[str]:
    return [f"{name}-{branch}" for branch in branches for name in names]


def _others(branch: int) -> list[str]:
    digits = str(branch)
    return [digits[:at] + _but(digit) + "[0-9]" * (2 - at) for at, digit in enumerate(digits)]


def _but(digit: str) -> str:
    """A pattern that matches all other digits."""
    return f"[{'0123456789'.replace(digit, '')}]"


def old_dcgm(software: SoftwareSet) -> dict[str, str]:
    """DCGM of another major version, which has the same services and files; NVIDIA's installation
    guide removes it first. Before 4 the package name has no major version."""
    if not software.dcgm:
        return {}
    major = int(software.dcgm.split(".")[0])
    names = [f"datacenter-gpu-manager-{_but(str(major))}-*"]
    names += ["datacenter-gpu-manager", "datacenter-gpu-manager-config"] if major > 3 else []
    return dict.fromkeys(names, f"software.dcgm is {software.dcgm}")


def _beside(software: SoftwareSet, driver: DriverSpec, redhat: bool) -> list[Stage]:
    """CUDA, DCGM, GDRCopy and NCCL, whose revision ends with the CUDA version."""
    major = software.cuda_major or str(_cuda_of(driver))
    gdrcopy, nccl = ("gdrdrv-dkms", "libgdrapi", "gdrcopy"), ("libnccl2", "libnccl-dev")
    if redhat:
        gdrcopy, nccl = ("gdrcopy-kmod", "gdrcopy", "gdrcopy-devel"), ("libnccl", "libnccl-devel")
    cuda = ("cuda-toolkit-" + software.cuda.replace(".", "-"),)
    revision = f"-1+cuda{major}" if software.nccl else ""

    def stage(name: str, version: str, names: Sequence[str], optional: bool = False) -> list[Stage]:
        packages = [WantedPackage(x, version, name.lower(), optional=optional) for x in names]
        return [Stage(name, tuple(packages))] if version else []

    return [
        *stage("CUDA", software.cuda, cuda),
        *_dcgm(software, driver),
        *stage("GDRCopy", software.gdrcopy, gdrcopy, True),  # not in every repository
        *stage("NCCL", software.nccl + revision, nccl),
    ]


def _cuda_of(driver: DriverSpec) -> int:
    """Major version of the user-mode driver."""
    return 13 if driver.branch >= BRANCH_OF_13 else 12


def _dcgm(software: SoftwareSet, driver: DriverSpec) -> list[Stage]:
    """DCGM for the driver's CUDA, whatever the toolkit: its diagnostics fail with another one
    (NVIDIA/DCGM issues 254 and 255). A toolkit of a later major version has a later driver.

    Profiling (DCGM_FI_PROF_*) is in separate packages, which DCGM only recommends.
    """
    if not software.dcgm:
        return []
    name, version = "datacenter-gpu-manager", software.dcgm
    major = int(version.split(".")[0])
    if major < 4:  # one package for every CUDA and profiling
        return [Stage("DCGM", (WantedPackage(name, version, "dcgm"),))]
    cuda = max(int(software.cuda_major or 0), _cuda_of(driver))
    packages = [WantedPackage(f"{name}-{major}-cuda{cuda}", version, "dcgm")]
    if software.dcgm_profiling:
        names = [f"{name}-{major}-proprietary{end}" for end in ("", f"-cuda{cuda}")]
        packages += [WantedPackage(x, version, "dcgm_profiling", optional=True) for x in names]
    # Packages of the same DCGM for other CUDA versions, which this one replaces.
    older = tuple(f"{name}-{major}-*cuda{one}" for one in range(11, cuda))
    return [Stage("DCGM", tuple(packages), older)]
