# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set of software that a node runs, as one value: `cluster_software` with every default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

DOCA, INBOX, NO_RDMA = "doca", "inbox", "none"
OPEN, PROPRIETARY = "open", "proprietary"
DOCA_PROFILE = "doca-ofed"
DISTRIBUTION, HPCX, IMPI, SOURCE = "distribution", "hpcx", "impi", "source"

CUDA_URL = "https://developer.download.nvidia.com/compute/cuda/repos/{distribution}/{architecture}"
DOCA_URL = "https://linux.mellanox.com/public/repo/doca/{version}/{distribution}/{architecture}"


@dataclass(frozen=True)
class Rdma:
    """Where the RDMA drivers and tools come from."""

    source: str = INBOX
    """`doca`, `inbox` or `none`."""
    version: str = ""
    """Of DOCA; empty with another source."""
    profile: str = ""
    """The meta package of DOCA that is installed; empty with another source."""
    nfs: bool = False
    """Whether a file system is mounted by NFS over RDMA."""


@dataclass(frozen=True)
class Driver:
    """The NVIDIA driver. Fabric manager, NSCQ, IMEX and persistenced have its version."""

    version: str
    """Empty where others installed it and any will do."""
    modules: str = OPEN
    """`open` or `proprietary` kernel modules."""
    gpu: str = "B300"
    """The GPU that it is for: what a node needs beside the driver depends on it."""
    manage: bool = True
    """Whether it is installed here. Otherwise others do, and it is verified as it is."""

    @property
    def branch(self) -> int:
        """0 where the version is left to others."""
        return int(self.version.split(".")[0] or 0)


@dataclass(frozen=True)
class Source:
    """A package repository as the operator names it: `catalog.py` makes a Repository of it."""

    url: str
    """May hold `{distribution}`, `{architecture}` and, of DOCA, `{version}`."""
    key: str
    """File of the public key on the controller, relative to the inventory."""
    key_sha256: str
    signed_metadata: bool = True
    """dnf checks the signature of the metadata too; packages are always checked."""


@dataclass(frozen=True)
class Archive:
    """One build of HPC-X, which is made for one distribution."""

    distribution: str
    """As in names of HPC-X: `ubuntu24.04`, `redhat9`."""
    url: str
    sha256: str
    prefix: str
    """Where it is unpacked: by name and checksum, so that another archive has another place."""


@dataclass(frozen=True)
class Wheel:
    """The wheel `impi-rt`, of the directory of wheels."""

    version: str
    sha256: str
    prefix: str
    """Where it is unpacked: by version and checksum."""


@dataclass(frozen=True)
class Sources:
    """UCX and Open MPI, built on a node in the order of `builds`."""

    prefix: str
    """Where they are unpacked, by all that they are built from, without the distribution."""
    cuda: bool
    """Whether they are built with the CUDA toolkit."""
    builds: Sequence[Mapping[str, Any]]
    """Each with `name`, `url`, `sha256`, and the `options` of configure."""


@dataclass(frozen=True)
class Mpi:
    """Which MPI and UCX the hosts run."""

    provider: str = DISTRIBUTION
    """`distribution`, `hpcx`, `impi` or `source`."""
    archives: Sequence[Archive] = field(default_factory=list)
    impi: Optional[Wheel] = None
    sources: Optional[Sources] = None
    mpi4py: str = ""
    """Version of mpi4py beside what is unpacked; the distribution has its own."""
    mpi4py_sha256: Sequence[str] = field(default_factory=list)
    """Its wheels; empty: any."""
    wheels: str = ""
    """Directory of the controller, relative to the inventory, with wheels."""


@dataclass(frozen=True)
class SoftwareSet:
    kernel: str = ""
    """The release that has to run (`uname -r`); empty: hold the one that is installed."""
    rdma: Rdma = field(default_factory=Rdma)
    driver: Optional[Driver] = None
    """None: no GPU layer."""
    cuda: str = ""
    """Toolkit, `13.0`; empty: not in the set. Likewise dcgm, gdrcopy and nccl."""
    dcgm: str = ""
    dcgm_profiling: bool = True
    """With `dcgm`: the packages that give DCGM_FI_PROF_*."""
    gdrcopy: str = ""
    nccl: str = ""
    mpi: Mpi = field(default_factory=Mpi)
    repositories: Mapping[str, Source] = field(default_factory=dict)
    """`cuda` and `doca`, as far as they are used or written."""

    @property
    def cuda_major(self) -> str:
        return self.cuda.split(".")[0]

    def repositories_of(self, layer: str) -> tuple[str, ...]:
        """The repositories that the layer (`rdma`, `gpu`) reads from, by their keys here."""
        if layer == "rdma":
            return ("doca",) if self.rdma.source == DOCA else ()
        return ("cuda",) if self.driver and self.driver.manage else ()

    def as_variable(self) -> dict[str, Any]:
        """The value of `cluster_software`, of which `of` makes this set again."""
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> SoftwareSet:
        """Of `cluster_software`: the model made it, so it is not checked again."""
        driver = value.get("driver")
        sources, mpi = value.get("repositories") or {}, value.get("mpi") or {}
        archives = [Archive(**each) for each in mpi.get("archives", ())]
        kinds = {"impi": Wheel, "sources": Sources}
        given = {name: kind(**mpi[name]) for name, kind in kinds.items() if mpi.get(name)}
        return cls(
            **{
                **value,
                "rdma": Rdma(**value.get("rdma") or {}),
                "driver": Driver(**driver) if driver else None,
                "mpi": Mpi(**{**mpi, "archives": archives, **given}),
                "repositories": {name: Source(**of) for name, of in sources.items() if of},
            }
        )
