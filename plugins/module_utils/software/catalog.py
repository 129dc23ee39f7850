# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of a software set on a distribution, in the order of their installation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.distribution import REDHAT, Distribution
from ..core.part import PlanError
from ..packages.package import PackageSet, Repository, Stage, WantedPackage
from . import gpu_catalog
from .software_set import DISTRIBUTION, DOCA, NO_RDMA, Rdma, SoftwareSet

VERSION_LOCK = Stage("version lock", (WantedPackage("python3-dnf-plugin-versionlock"),))
"""dnf ignores its lock list without the plugin."""

UCX_DEBIAN = ("libucx0", "libucx-dev", "ucx-utils")
"""The distribution's UCX; DOCA's `ucx` conflicts with it and replaces it."""
MPI_DEBIAN = ("openmpi-*", "libopenmpi*", "mpi-default-*", "python3-mpi4py")
"""Packages that need libucx0, which DOCA's `ucx` before 1.19 does not provide; HPC-X replaces
them."""
DOCA_CLAIMS = {"/etc/pmix-mca-params.conf": "openmpi"}
"""Also in Slurm's `pmix`, which declares a conflict only up to 4.2.9-1: Azure/azhpc-images,
components/install_doca.sh at 0d4b898 and pull request 538."""
WITH_OPENMPI = ("doca-ofed", "doca-all")
"""Profiles that depend on DOCA's `openmpi`."""
MODULES_UBUNTU, MODULES = "linux-modules-extra-", "modules of the kernel"
"""Contains mlx5_ib and ib_umad (NVIDIA/gpu-operator 2781). linux-generic depends on it,
linux-virtual does not, and later releases may have none."""
NFS, NFS_KMOD = "mlnx-nfsrdma-dkms", "kmod-mlnx-nfsrdma"
"""NFS over RDMA, in none of DOCA's profiles. On EL, DKMS builds drivers since DOCA 3.2."""
MFT = "mft*"
"""Firmware tools, in the repositories of both DOCA and CUDA."""


def rdma_packages(
    software: SoftwareSet,
    distribution: Distribution,
    keys: Mapping[str, bytes],
    kernel_release: str = "",
    own_kernel: bool = True,
) -> PackageSet:
    """What the layer `rdma` installs. `keys`: repository to the content of its key.

    `kernel_release` is the kernel that must run. Without `own_kernel` (a container) the node has no
    kernel modules. Raises PlanError for software that the catalogue does not have.
    """
    if software.rdma.source == NO_RDMA:
        return PackageSet()
    stages: list[Stage] = []
    builds = software.rdma.source == DOCA or bool(software.kernel)
    if builds:
        # The first layer with packages installs the kernel, and its headers for the later ones.
        stages += _kernel(software, distribution, kernel_release)
    if software.rdma.source == DOCA:
        stages += _doca(software.rdma, distribution, software.mpi.provider != DISTRIBUTION)
    else:
        # The distribution's newest versions at the first installation, then held.
        packages = [
            WantedPackage(name, component="rdma") for name in distribution.family.inbox_rdma
        ]
        if distribution.name == "ubuntu" and kernel_release and own_kernel:
            name = f"{MODULES_UBUNTU}{kernel_release}"
            packages.append(WantedPackage(name, "", MODULES, optional=True))
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
    """What the layer `gpu` installs. Raises PlanError for a set without a driver, or one that the
    catalogue does not have."""
    if software.driver is None:
        raise PlanError(
            "the set has no software.driver. Add it, or leave the layer gpu out of the play"
        )
    stages = _kernel(software, distribution, kernel_release)
    stages += gpu_catalog.stages(software, software.driver, distribution)
    absent = gpu_catalog.absent(software.driver, distribution)
    return PackageSet(
        repositories=_repositories(software, distribution, "gpu", keys),
        streams=gpu_catalog.streams(software.driver, distribution),
        stages=_complete(stages, distribution),
        absent={**absent, **gpu_catalog.old_dcgm(software)},
        held=_held(distribution, kernel_release),
        kernels=distribution.family.kernel_patterns,
        # The layer `rdma` has installed and pinned DOCA's.
        preferred={MFT: "doca" if software.rdma.source == DOCA else "cuda"},
    )


def _kernel(software: SoftwareSet, distribution: Distribution, release: str) -> list[Stage]:
    """The kernel, if the set names one, and the headers that DKMS builds against."""
    if not release:
        return []
    family = distribution.family
    kernel = WantedPackage(*family.kernel_package(family.kernel, release), "kernel")
    headers = [WantedPackage(*family.kernel_package(family.kernel_headers, release), "kernel")]
    if family is REDHAT:
        headers.append(WantedPackage("kernel-headers"))
    named = [Stage("kernel", (kernel,))] if software.kernel else []
    return [*named, Stage("kernel headers", tuple(headers))]


def _held(distribution: Distribution, release: str) -> tuple[str, ...]:
    return tuple(name.format(release=release) for name in distribution.family.kernel_parts)


def _flavour(release: str) -> str:
    return release.rpartition("-")[2] if release.count("-") >= 2 else "generic"


def _absent(rdma: Rdma, distribution: Distribution, release: str) -> dict[str, str]:
    """Ubuntu's own DOCA-OFED, since 26.04:
    ubuntu.com/server/docs/how-to/networking/install-doca-ofed."""
    if rdma.source != DOCA or distribution.family is REDHAT:
        return {}
    names = [f"doca-ofed-{_flavour(release)}*", "doca-ofed-[0-9]*-dkms"]
    names += ["linux-modules-doca-ofed-*", "linux-main-modules-doca-ofed-*"]
    return dict.fromkeys(names, "it is Ubuntu's DOCA-OFED, and the set has NVIDIA's")


def _doca(rdma: Rdma, distribution: Distribution, own_mpi: bool) -> list[Stage]:
    first, without = distribution.system.doca, "Write software.rdma.source: inbox"
    distribution.refuse_before(first, "DOCA", rdma.version, without)
    packages = [WantedPackage(rdma.profile, rdma.version, "rdma")]
    if rdma.nfs:
        release = tuple(int(part) for part in rdma.version.split(".")[:2])
        built = distribution.family is REDHAT and release < (3, 2)
        packages.append(WantedPackage(NFS_KMOD if built else NFS, component="rdma", follows=True))
    if distribution.family is REDHAT:
        # It has doca-kernel-support, which builds drivers for kernels unknown to DOCA.
        extra = Stage("DOCA extra", (WantedPackage("doca-extra", component="rdma", follows=True),))
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
    """Drop empty stages, and packages after their first stage."""
    seen: set[str] = set()
    result = [VERSION_LOCK] if distribution.family is REDHAT else []
    for stage in stages:
        packages = [wanted for wanted in stage.packages if wanted.name not in seen]
        seen.update(wanted.name for wanted in packages)
        if packages:
            result.append(replace(stage, packages=tuple(packages)))
    return tuple(result)
