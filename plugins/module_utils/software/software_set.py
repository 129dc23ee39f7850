# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The software set of a node as one value: `cluster_software` with every default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from .floors import Accepted

DOCA, INBOX, NO_RDMA = "doca", "inbox", "none"
OPEN, PROPRIETARY = "open", "proprietary"
DOCA_PROFILE = "doca-ofed"
DISTRIBUTION, HPCX, IMPI, SOURCE = "distribution", "hpcx", "impi", "source"

CUDA_URL = "https://developer.download.nvidia.com/compute/cuda/repos/{distribution}/{architecture}"
DOCA_URL = "https://linux.mellanox.com/public/repo/doca/{version}/{distribution}/{architecture}"


@dataclass(frozen=True)
class Rdma:
    source: str = INBOX
    """`doca`, `inbox` or `none`."""
    version: str = ""
    """DOCA's; empty with another source, as is `profile`, its meta package."""
    profile: str = ""
    nfs: bool = False
    """Whether a file system is mounted by NFS over RDMA."""


@dataclass(frozen=True)
class DriverSpec:
    """Fabric manager, NSCQ, IMEX and persistenced have the driver's version."""

    version: str
    """Empty for an unmanaged driver of which any version is accepted."""
    modules: str = OPEN
    """`open` or `proprietary` kernel modules."""
    gpu: str = "B300"
    manage: bool = True
    """False: it is only verified."""

    @property
    def branch(self) -> int:
        """0 without a version."""
        return int(self.version.split(".")[0] or 0)


@dataclass(frozen=True)
class RepositorySpec:
    url: str
    """May contain `{distribution}`, `{architecture}` and, for DOCA, `{version}`."""
    key: str
    """File of the public key on the controller, relative to the inventory."""
    key_sha256: str
    signed_metadata: bool = True
    """Whether dnf also checks the signature of the metadata."""


@dataclass(frozen=True)
class Archive:
    """A build of HPC-X for one distribution."""

    distribution: str
    """As HPC-X names it: `ubuntu24.04`, `redhat9`."""
    url: str
    sha256: str
    prefix: str
    """Directory to which it is unpacked, with name and checksum in its path."""


@dataclass(frozen=True)
class Wheel:
    """The wheel `impi-rt` in the directory of wheels."""

    version: str
    sha256: str
    prefix: str
    """Directory to which it is unpacked, with version and checksum in its path."""


@dataclass(frozen=True)
class Sources:
    """UCX and Open MPI, built on a node in the order of `builds`."""

    prefix: str
    """Directory to which they are unpacked; its path depends on all inputs but the distribution."""
    cuda: bool
    builds: Sequence[Mapping[str, Any]]
    """Each with `name`, `url`, `sha256`, and the `options` of its configure script."""


@dataclass(frozen=True)
class Mpi:
    provider: str = DISTRIBUTION
    """`distribution`, `hpcx`, `impi` or `source`."""
    archives: Sequence[Archive] = field(default_factory=list)
    impi: Optional[Wheel] = None
    sources: Optional[Sources] = None
    mpi4py: str = ""
    """Version, for MPIs that are unpacked; the distribution has its own."""
    mpi4py_sha256: Sequence[str] = field(default_factory=list)
    """Of its wheels; empty if any are accepted."""
    wheels: str = ""
    """Directory with wheels on the controller, relative to the inventory."""


@dataclass(frozen=True)
class SoftwareSet:
    kernel: str = ""
    """The release that must run (`uname -r`); if empty, the installed one is held."""
    rdma: Rdma = field(default_factory=Rdma)
    driver: Optional[DriverSpec] = None
    cuda: str = ""
    """Version of the toolkit, such as `13.0`; empty if not in the set, like the following ones."""
    dcgm: str = ""
    dcgm_profiling: bool = True
    """Whether to install the packages for DCGM_FI_PROF_*."""
    gdrcopy: str = ""
    nccl: str = ""
    mpi: Mpi = field(default_factory=Mpi)
    repositories: Mapping[str, RepositorySpec] = field(default_factory=dict)
    """`cuda` and `doca`."""
    accepted: Sequence[Accepted] = field(default_factory=list)
    """Versions below their minimum that the site accepts."""

    @property
    def cuda_major(self) -> str:
        return self.cuda.split(".")[0]

    def repositories_of(self, layer: str) -> tuple[str, ...]:
        if layer == "rdma":
            return ("doca",) if self.rdma.source == DOCA else ()
        return ("cuda",) if self.driver and self.driver.manage else ()

    def as_variable(self) -> dict[str, Any]:
        """The value of `cluster_software`, as read by `of`; without `accepted` if it is empty."""
        return {name: of for name, of in asdict(self).items() if name != "accepted" or of}

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> SoftwareSet:
        """Read `cluster_software`, which the model has validated."""
        driver = value.get("driver")
        sources, mpi = value.get("repositories") or {}, value.get("mpi") or {}
        archives = [Archive(**each) for each in mpi.get("archives", ())]
        kinds = {"impi": Wheel, "sources": Sources}
        given = {name: kind(**mpi[name]) for name, kind in kinds.items() if mpi.get(name)}
        return cls(
            **{
                **value,
                "rdma": Rdma(**value.get("rdma") or {}),
                "driver": DriverSpec(**driver) if driver else None,
                "mpi": Mpi(**{**mpi, "archives": archives, **given}),
                "repositories": {name: RepositorySpec(**of) for name, of in sources.items() if of},
                "accepted": [Accepted(**each) for each in value.get("accepted", ())],
            }
        )
