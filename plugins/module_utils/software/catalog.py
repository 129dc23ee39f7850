# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which packages a set is on a distribution, in the order in which they are installed.

No version stands here: it is the set's. Names of packages are those of the vendors' repositories;
those of the GPU stack are in gpu_catalog.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..packages.package import PackageSet, Repository, Stage, Wanted
from . import gpu_catalog, kernel_catalog
from .distribution import REDHAT, Distribution, NotInCatalog
from .software_set import DOCA, NO_RDMA, Rdma, SoftwareSet

VERSION_LOCK = Stage("version lock", (Wanted("python3-dnf-plugin-versionlock"),))
"""Without the plugin dnf passes its list of locks over without a word."""

# Without infiniband-diags: its tools are for InfiniBand, and they bring Perl.
INBOX_DEBIAN = (
    "rdma-core",
    "ibverbs-providers",
    "ibverbs-utils",
    "rdmacm-utils",
    "libibumad3",
    "perftest",
    "mstflint",
)
INBOX_REDHAT = (
    "rdma-core",
    "libibverbs",
    "libibverbs-utils",
    "librdmacm-utils",
    "libibumad",
    "perftest",
    "mstflint",
)

MFT = "mft*"
"""The firmware tools, in the repositories of DOCA and of CUDA alike."""


def rdma_packages(
    software: SoftwareSet,
    distribution: Distribution,
    keys: Mapping[str, bytes],
    kernel_release: str = "",
) -> PackageSet:
    """What the layer rdma installs. `keys`: repository (`doca`) to the content of its key.

    `kernel_release` is the kernel that has to run; DOCA builds its drivers for it. One that the set
    names is installed with either source.
    Raises NotInCatalog.
    """
    if software.rdma.source == NO_RDMA:
        return PackageSet()
    stages: list[Stage] = []
    held: tuple[str, ...] = ()
    if software.rdma.source == DOCA or software.kernel:
        # The kernel comes with the first layer that has packages, its headers for those after it.
        stages += kernel_catalog.stages(software, distribution, kernel_release)
        held = kernel_catalog.held(distribution, kernel_release)
    if software.rdma.source == DOCA:
        stages += _doca(software.rdma, distribution)
    else:
        stages += _inbox(distribution)
    return PackageSet(
        repositories=_repositories(software, distribution, software.repositories_of("rdma"), keys),
        stages=_complete(stages, distribution),
        held=held,
        preferred={MFT: "doca"} if software.rdma.source == DOCA else {},
    )


def gpu_packages(
    software: SoftwareSet,
    distribution: Distribution,
    kernel_release: str,
    keys: Mapping[str, bytes],
) -> PackageSet:
    """What the layer gpu installs beside `rdma_packages`; `keys` has that of `cuda`.

    `kernel_release` is the kernel that has to run: headers are those of it.
    Raises NotInCatalog, also for a set without driver.
    """
    if software.driver is None:
        raise NotInCatalog(
            "the set has no software.driver. Add it, or leave the layer gpu out of the play"
        )
    stages = [
        *kernel_catalog.stages(software, distribution, kernel_release),
        *gpu_catalog.stages(software, software.driver, distribution),
    ]
    return PackageSet(
        repositories=_repositories(software, distribution, software.repositories_of("gpu"), keys),
        streams=gpu_catalog.streams(software.driver, distribution),
        stages=_complete(stages, distribution),
        absent=gpu_catalog.absent(software.driver, distribution),
        held=kernel_catalog.held(distribution, kernel_release),
        # Those of DOCA are there before this layer, and pinned.
        preferred={MFT: "doca" if software.rdma.source == DOCA else "cuda"},
    )


def _inbox(distribution: Distribution) -> list[Stage]:
    """Versions are the distribution's: the newest at the first installation, then held."""
    names = INBOX_REDHAT if distribution.family == REDHAT else INBOX_DEBIAN
    return [Stage("RDMA", tuple(Wanted(name, component="rdma") for name in names))]


def _doca(rdma: Rdma, distribution: Distribution) -> list[Stage]:
    """The profile of DOCA has the release as its version (`3.2.0-...`), its dependencies theirs."""
    if distribution.name == "debian":
        raise NotInCatalog(
            f"DOCA is not in the catalogue for {distribution.label}. Write software.rdma.source: "
            "inbox there, or install Ubuntu or EL 9"
        )
    profile = Stage("DOCA", (Wanted(rdma.profile, rdma.version, "rdma"),))
    if distribution.family == REDHAT:
        # Has doca-kernel-support, which builds drivers for kernels that DOCA does not know.
        return [Stage("DOCA extra", (Wanted("doca-extra", rdma.version, "rdma"),)), profile]
    return [profile]


def _repositories(
    software: SoftwareSet,
    distribution: Distribution,
    names: Sequence[str],
    keys: Mapping[str, bytes],
) -> tuple[Repository, ...]:
    found = []
    for name in names:
        source = software.repositories[name]
        layout = distribution.doca_layout if name == "doca" else distribution.cuda_layout
        if name not in keys:
            raise NotInCatalog(
                f"the key of repository {name} ({source.key}) was not handed over. Read it with "
                "the lookup baremetal.mpi_roce.repository_keys"
            )
        url = source.url.replace("{distribution}", layout)
        url = url.replace("{architecture}", distribution.architecture)
        url = url.replace("{version}", software.rdma.version)
        found.append(
            Repository(
                name=name,
                url=url,
                key=keys[name],
                key_sha256=source.key_sha256,
                check_metadata=source.signed_metadata,
            )
        )
    return tuple(found)


def _complete(stages: list[Stage], distribution: Distribution) -> tuple[Stage, ...]:
    """A package is wanted once, where it comes first; nobody runs a transaction of nothing."""
    seen: set[str] = set()
    result = [VERSION_LOCK] if distribution.family == REDHAT else []
    for stage in stages:
        packages = [wanted for wanted in stage.packages if wanted.name not in seen]
        seen.update(wanted.name for wanted in packages)
        if packages:
            result.append(Stage(stage.name, tuple(packages)))
    return tuple(result)
