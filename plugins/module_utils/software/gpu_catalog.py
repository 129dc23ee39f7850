# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the GPU stack, in the repository of CUDA, by branch of the driver and by family.

Names changed with the branches: on Ubuntu they end with the branch up to 580 (fabric manager and
its kin up to 575), from 590 on they do not; EL has module streams instead, and its fabric manager
lost a hyphen at 580. EL 10 has no streams.
"""

from __future__ import annotations

from ..core.part import PlanError
from ..packages.package import Stage, Stream, Wanted
from .distribution import REDHAT, Distribution
from .software_set import OPEN, Driver, SoftwareSet

OLDEST_BRANCH = 570
LAST_SUFFIXED = 580
"""The last branch whose driver has the branch in its name on Ubuntu."""
LAST_SUFFIXED_FABRIC = 575
"""Likewise fabric manager, NSCQ, NVSDM and IMEX, on both families."""
SUFFIXED_BRANCHES = (570, 575, 580)
"""Branches in names of packages, from the oldest of the catalogue on."""
SUFFIXED = (
    *("nvidia-*-{}", "nvidia-*-{}-open", "nvidia-firmware-{}-*", "libnvidia-*-{}", "libnvsdm-{}"),
    *("cuda-drivers-{}", "cuda-drivers-fabricmanager-{}", "nvlink5-{}"),
    "xserver-xorg-video-nvidia-{}",
)
"""What has the branch in its name on Ubuntu, as patterns."""
UNSUFFIXED = (
    *("nvidia-open", "cuda-drivers", "cuda-drivers-fabricmanager", "nvlink5"),
    *("nvidia-driver", "nvidia-driver-open", "nvidia-dkms", "nvidia-dkms-open"),
    *("nvidia-kernel-source", "nvidia-kernel-source-open", "nvidia-kernel-common"),
    *("nvidia-compute-utils", "nvidia-utils", "nvidia-firmware", "libnvidia-common"),
    *("libnvidia-cfg1", "libnvidia-compute", "libnvidia-decode", "libnvidia-encode"),
    *("libnvidia-extra", "libnvidia-fbc1", "libnvidia-gl", "libnvidia-gpucomp"),
    "xserver-xorg-video-nvidia",
)
"""The same packages of the branches after LAST_SUFFIXED, which have no branch in their names."""

PINNED = "versions are pinned by this collection, and one source of pins is enough"
NVLINK5 = ("B300", "B200")
"""GPUs whose NVSwitches need NVLSM."""


def stages(software: SoftwareSet, driver: Driver, distribution: Distribution) -> list[Stage]:
    first, without = distribution.system.driver, "Leave the node out of the layer gpu"
    distribution.refuse_before(first, "the NVIDIA driver", driver.version, without)
    if driver.branch < OLDEST_BRANCH:
        raise PlanError(
            f"software.driver.version {driver.version}: names of packages are known from branch "
            f"{OLDEST_BRANCH} on. Choose a newer branch"
        )
    return [
        Stage("driver and fabric manager", _driver(driver, distribution)),
        *_beside(software, driver, distribution.family == REDHAT),
    ]


def _driver(driver: Driver, distribution: Distribution) -> tuple[Wanted, ...]:
    """One transaction: modules, libraries and fabric manager of another version do not start."""
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
    packages = [Wanted(name, driver.version, "driver") for name in names]
    if driver.gpu in NVLINK5:
        # It has versions of its own (a year and a month) and asks for no branch.
        packages.append(Wanted("nvlsm", component="driver"))
    return tuple(packages)


def _meta(driver: Driver, distribution: Distribution) -> str:
    name = "nvidia-open" if driver.modules == OPEN else "cuda-drivers"
    if distribution.family == REDHAT or driver.branch > LAST_SUFFIXED:
        return name
    return f"{name}-{driver.branch}"


def _fabric_manager(driver: Driver, distribution: Distribution) -> str:
    if driver.branch > LAST_SUFFIXED_FABRIC:
        return "nvidia-fabricmanager"
    if distribution.family == REDHAT:
        return "nvidia-fabric-manager"
    return f"nvidia-fabricmanager-{driver.branch}"


def streams(driver: Driver, distribution: Distribution) -> tuple[Stream, ...]:
    if not distribution.has_streams:
        return ()
    kind = "open" if driver.modules == OPEN else "dkms"
    return (Stream("nvidia-driver", f"{driver.branch}-{kind}"),)


def absent(driver: Driver, distribution: Distribution) -> dict[str, str]:
    """The other kind of modules, other branches, and what pins the driver a second time."""
    other = "cuda-drivers" if driver.modules == OPEN else "nvidia-open"
    modules = f"software.driver.modules is {driver.modules}"
    if distribution.family == REDHAT:
        kmod = "kmod-nvidia-latest-dkms" if driver.modules == OPEN else "kmod-nvidia-open-dkms"
        return {other: modules, kmod: modules, **_other_branches(driver, ("nvlink5-{}",))}
    suffix = "" if driver.branch > LAST_SUFFIXED else f"-{driver.branch}"
    dkms = f"nvidia-dkms{suffix}" + ("" if driver.modules == OPEN else "-open")
    found = {
        "nvidia-driver-pinning-*": PINNED,
        **_other_branches(driver, SUFFIXED),
        **dict.fromkeys((other, f"{other}-{driver.branch}", dkms), modules),
    }
    if suffix:  # on a node with a later branch
        found = {**dict.fromkeys(UNSUFFIXED, _branch(driver)), **found}
    return found


def _branch(driver: Driver) -> str:
    return f"the branch of the set is {driver.branch}"


def _other_branches(driver: Driver, names: tuple[str, ...]) -> dict[str, str]:
    """All that is of the driver that is replaced.

    In the same transaction: left alone, apt would rather keep a dependency of the old branch than
    let the new one push it out, and calls that broken packages.
    """
    return {
        name.format(branch): _branch(driver)
        for branch in SUFFIXED_BRANCHES
        for name in names
        if branch != driver.branch
    }


def _beside(software: SoftwareSet, driver: Driver, redhat: bool) -> list[Stage]:
    """One NCCL is built for several CUDAs: the end of its revision has which."""
    major = software.cuda_major or ("13" if driver.branch >= 580 else "12")
    gdrcopy, nccl = ("gdrdrv-dkms", "libgdrapi", "gdrcopy"), ("libnccl2", "libnccl-dev")
    if redhat:
        gdrcopy, nccl = ("gdrcopy-kmod", "gdrcopy", "gdrcopy-devel"), ("libnccl", "libnccl-devel")
    cuda = ("cuda-toolkit-" + software.cuda.replace(".", "-"),)
    dcgm = (f"datacenter-gpu-manager-{software.dcgm.split('.')[0]}-cuda{major}",)
    revision = f"-1+cuda{major}" if software.nccl else ""
    return [
        Stage(stage, tuple(Wanted(name, version, stage.lower(), optional=o) for name in names))
        for stage, version, names, o in (
            ("CUDA", software.cuda, cuda, False),
            ("DCGM", software.dcgm, dcgm, False),
            ("GDRCopy", software.gdrcopy, gdrcopy, True),  # not every repository has it
            ("NCCL", software.nccl + revision, nccl, False),
        )
        if version
    ]
