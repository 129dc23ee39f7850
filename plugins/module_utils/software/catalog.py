# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which packages a set is on a distribution, in the order in which they are installed.

No version stands here: it is the set's. Names of packages are those of the vendors' repositories;
those of the GPU stack are in gpu_catalog.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.distribution import REDHAT, Distribution
from ..core.part import PlanError
from ..packages.package import PackageSet, Repository, Stage, Wanted
from . import gpu_catalog
from .software_set import DISTRIBUTION, DOCA, NO_RDMA, Rdma, SoftwareSet

VERSION_LOCK = Stage("version lock", (Wanted("python3-dnf-plugin-versionlock"),))
"""Without the plugin dnf ignores its list of locks."""

UCX_DEBIAN = ("libucx0", "libucx-dev", "ucx-utils")
"""The distribution's, in whose place DOCA's `ucx` comes: it conflicts with them."""
MPI_DEBIAN = ("openmpi-*", "libopenmpi*", "mpi-default-*", "python3-mpi4py")
"""What needs libucx0, which DOCA's `ucx` before 1.19 does not provide. HPC-X comes in its place."""
DOCA_CLAIMS = {"/etc/pmix-mca-params.conf": "openmpi"}
"""Of DOCA's `openmpi`, and of the `pmix` of Slurm's builds, which conflicts with it up to 4.2.9-1
alone: Azure/azhpc-images, components/install_doca.sh at 0d4b898 and pull request 538."""
WITH_OPENMPI = ("doca-ofed", "doca-all")
"""Profiles that depend on it."""
MODULES_UBUNTU, MODULES = "linux-modules-extra-", "modules of the kernel"
"""Has mlx5_ib and ib_umad (NVIDIA/gpu-operator 2781). linux-generic brings it, linux-virtual does
not, and later releases may have none."""
NFS, NFS_KMOD = "mlnx-nfsrdma-dkms", "kmod-mlnx-nfsrdma"
"""NFS over RDMA, built against the drivers of DOCA; in none of its profiles. On EL drivers come by
DKMS from DOCA 3.2 on."""
MFT = "mft*"
"""The firmware tools, in the repositories of DOCA and of CUDA alike."""


def rdma_packages(
    software: SoftwareSet,
    distribution: Distribution,
    keys: Mapping[str, bytes],
    kernel_release: str = "",
    own_kernel: bool = True,
) -> PackageSet:
    """What the layer rdma installs. `keys`: repository (`doca`) to the content of its key.

    `kernel_release` is the kernel that has to run; DOCA builds its drivers for it. One that the set
    names is installed with either source. Without `own_kernel` (a container) modules of the kernel
    are not the node's.
    Raises PlanError for what the catalogue does not have.
    """
    if software.rdma.source == NO_RDMA:
        return PackageSet()
    stages: list[Stage] = []
    builds = software.rdma.source == DOCA or bool(software.kernel)
    if builds:
        # The kernel comes with the first layer that has packages, its headers for those after it.
        stages += _kernel(software, distribution, kernel_release)
    if software.rdma.source == DOCA:
        stages += _doca(software.rdma, distribution, software.mpi.provider != DISTRIBUTION)
    else:
        # Versions are the distribution's: the newest at the first installation, then held.
        packages = [Wanted(name, component="rdma") for name in distribution.family.inbox_rdma]
        if distribution.name == "ubuntu" and kernel_release and own_kernel:
            packages.append(Wanted(f"{MODULES_UBUNTU}{kernel_release}", "", MODULES, optional=True))
        stages.append(Stage("RDMA", tuple(packages)))
    return PackageSet(
        repositories=_repositories(software, distribution, "rdma", keys),
        stages=_complete(stages, distribution),
        absent=_absent(software.rdma, distribution, kernel_release),
        held=_held(distribution, kernel_release) if builds else (),
        kernels=distribution.family.kernel_patterns if builds else (),
        preferred={MFT: "doca"} if software.rdma.source == DOCA else {},
        claims=DOCA_CLAIMS if software.rdma.profile in WITH_OPENMPI else {},
    )


def gpu_packages(
    software: SoftwareSet,
    distribution: Distribution,
    kernel_release: str,
    keys: Mapping[str, bytes],
) -> PackageSet:
    """What the layer gpu installs beside `rdma_packages`; `keys` has that of `cuda`.

    `kernel_release` is the kernel that has to run: headers are those of it.
    Raises PlanError, also for a set without driver.
    """
    if software.driver is None:
        raise PlanError(
            "the set has no software.driver. Add it, or leave the layer gpu out of the play"
        )
    return PackageSet(
        repositories=_repositories(software, distribution, "gpu", keys),
        streams=gpu_catalog.streams(software.driver, distribution),
        stages=_complete(
            [
                *_kernel(software, distribution, kernel_release),
                *gpu_catalog.stages(software, software.driver, distribution),
            ],
            distribution,
        ),
        absent={
            **gpu_catalog.absent(software.driver, distribution),
            **gpu_catalog.old_dcgm(software),
        },
        held=_held(distribution, kernel_release),
        kernels=distribution.family.kernel_patterns,
        # Those of DOCA are there before this layer, and pinned.
        preferred={MFT: "doca" if software.rdma.source == DOCA else "cuda"},
    )


def _kernel(software: SoftwareSet, distribution: Distribution, release: str) -> list[Stage]:
    """The kernel of the set, if it names one, and the headers that DKMS builds against."""
    if not release:
        return []
    family = distribution.family
    kernel = Wanted(*family.kernel_package(family.kernel, release), "kernel")
    headers = [Wanted(*family.kernel_package(family.kernel_headers, release), "kernel")]
    if family is REDHAT:
        headers.append(Wanted("kernel-headers"))
    named = [Stage("kernel", (kernel,))] if software.kernel else []
    return [*named, Stage("kernel headers", tuple(headers))]


def _held(distribution: Distribution, release: str) -> tuple[str, ...]:
    """The packages of the kernel that are held as far as they are installed."""
    return tuple(name.format(release=release) for name in distribution.family.kernel_parts)


def _flavour(release: str) -> str:
    return release.rpartition("-")[2] if release.count("-") >= 2 else "generic"


def _absent(rdma: Rdma, distribution: Distribution, release: str) -> dict[str, str]:
    """Ubuntu's own, from 26.04 on: ubuntu.com/server/docs/how-to/networking/install-doca-ofed."""
    if rdma.source != DOCA or distribution.family is REDHAT:
        return {}
    names = [f"doca-ofed-{_flavour(release)}*", "doca-ofed-[0-9]*-dkms"]
    names += ["linux-modules-doca-ofed-*", "linux-main-modules-doca-ofed-*"]
    return dict.fromkeys(names, "it is Ubuntu's DOCA-OFED, and the set has NVIDIA's")


def _doca(rdma: Rdma, distribution: Distribution, own_mpi: bool) -> list[Stage]:
    """The profile of DOCA has the release as its version (`3.2.1-...`), all else has its own."""
    first, without = distribution.system.doca, "Write software.rdma.source: inbox"
    distribution.refuse_before(first, "DOCA", rdma.version, without)
    packages = [Wanted(rdma.profile, rdma.version, "rdma")]
    if rdma.nfs:
        release = tuple(int(part) for part in rdma.version.split(".")[:2])
        built = distribution.family is REDHAT and release < (3, 2)
        packages.append(Wanted(NFS_KMOD if built else NFS, component="rdma", follows=True))
    if distribution.family is REDHAT:
        # Has doca-kernel-support, which builds drivers for kernels that DOCA does not know.
        extra = Stage("DOCA extra", (Wanted("doca-extra", component="rdma", follows=True),))
        return [extra, Stage("DOCA", tuple(packages))]
    return [Stage("DOCA", tuple(packages), (*UCX_DEBIAN, *(MPI_DEBIAN if own_mpi else ())))]


def _repositories(
    software: SoftwareSet, distribution: Distribution, layer: str, keys: Mapping[str, bytes]
) -> tuple[Repository, ...]:
    found = []
    for name in software.repositories_of(layer):
        source = software.repositories[name]
        if name not in keys:
            raise PlanError(
                f"repository {name}: its key ({source.key}) is missing in the option keys. Read it "
                "with the lookup baremetal.mpi_roce.repository_keys"
            )
        folder = distribution.doca_folder if name == "doca" else distribution.cuda_folder
        url = source.url.replace("{distribution}", folder)
        url = url.replace("{architecture}", distribution.architecture)
        url = url.replace("{version}", software.rdma.version)
        found.append(Repository(name, url, keys[name], source.key_sha256, source.signed_metadata))
    return tuple(found)


def _complete(stages: Sequence[Stage], distribution: Distribution) -> tuple[Stage, ...]:
    """A package is wanted once, where it comes first; no stage is empty."""
    seen: set[str] = set()
    result = [VERSION_LOCK] if distribution.family is REDHAT else []
    for stage in stages:
        packages = [wanted for wanted in stage.packages if wanted.name not in seen]
        seen.update(wanted.name for wanted in packages)
        if packages:
            result.append(replace(stage, packages=tuple(packages)))
    return tuple(result)
