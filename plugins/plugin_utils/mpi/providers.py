# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Providers of MPI: their packages, the archives that a host unpacks, and the layout of the result.

`provider_of` selects the class for `software.mpi.provider`. An instance is for one host, whose
distribution and state are known; `check` refuses a host for which the controller lacks a file.
"""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from ...module_utils.core.distribution import FACTS, Distribution
from ...module_utils.core.messages import message
from ...module_utils.core.part import PlanError
from ...module_utils.mpi.build import sha256
from ...module_utils.software.software_set import (
    DISTRIBUTION,
    DOCA,
    HPCX,
    IMPI,
    Archive,
    Mpi,
    SoftwareSet,
    Sources,
    Wheel,
)
from ..answers import Form, mapping

WORD = Form("a plain word", r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,60}")
"""Answers from a host that become part of a file name on the controller."""
NUMPY = "python3-numpy"


@dataclass(frozen=True)
class Installation:
    """State of a host, as the module mpi_provider reports it."""

    machine: str
    """`x86_64`."""
    python_tag: str
    """Tag of the Python of MPI programs: `cp312`."""
    mpi: bool = False
    """Whether the MPI is unpacked."""
    mpi4py: bool = False
    """Whether mpi4py is unpacked."""
    begun: bool = False
    """Whether a build was started here."""
    toolkit: bool = False
    """Whether the CUDA toolkit is installed."""

    @classmethod
    def of(cls, answer: Any) -> Installation:
        """Parse the module's result. Raises AnswerError for words that cannot be part of a file
        name.
        """
        given = mapping(answer)
        return cls(
            machine=WORD.of(given.get("machine"), "the host's architecture"),
            python_tag=WORD.of(given.get("python_tag"), "the host's Python tag"),
            **{name: given.get(name) is True for name in ("mpi", "mpi4py", "begun", "toolkit")},
        )


@dataclass(frozen=True)
class Unpack:
    """An archive to unpack, from a URL or from a file of the controller."""

    directory: str
    url: str = ""
    sha256: str = ""
    file: str = ""
    inside: str = ""
    """Directory of the archive that becomes `directory`; empty for its root."""


@dataclass(frozen=True)
class Layout:
    """Files and directories of an MPI installation, named after the options of the module
    mpi_stack.
    """

    mca_file: str
    bin_directory: str = ""
    library_directory: str = ""
    python_directory: str = ""
    ucx_file: Optional[str] = None
    prefix: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Controller:
    """Directories of the controller."""

    wheels: Path
    cache: Path
    """Directory with the packs of builds."""

    def wheel(self, pattern: str) -> Optional[Path]:
        return max(self.wheels.glob(pattern), default=None)


@dataclass(frozen=True)
class FromDistribution:
    """Open MPI, UCX and mpi4py as packages of the distribution."""

    distribution: Distribution
    doca: bool
    """Whether DOCA provides UCX on this host."""
    prefix: str = ""

    @property
    def ucx_packages(self) -> list[str]:
        mpi = self.distribution.mpi
        return list(mpi.doca_ucx if self.doca else mpi.ucx)

    @property
    def packages(self) -> list[str]:
        return [*self.distribution.mpi.packages, *self.ucx_packages]

    @property
    def rdma_packages(self) -> list[str]:
        return list(self.distribution.mpi.verbs)

    @property
    def layout(self) -> Layout:
        mpi = self.distribution.mpi
        return Layout(
            mca_file=mpi.mca_file,
            bin_directory=mpi.bin_directory,
            library_directory=mpi.library_directory,
            python_directory=mpi.python_directory,
        )

    def check(self) -> None:
        """Package managers verify their packages."""

    def unpack(self) -> list[Unpack]:
        return []


@dataclass(frozen=True)
class _Unpacked(ABC):
    """An MPI below one prefix that also contains mpi4py from a wheel."""

    host: Installation
    controller: Controller
    mpi: Mpi
    prefix: str

    @property
    def rdma_packages(self) -> list[str]:
        return []

    @property
    def python_directory(self) -> str:
        return f"{self.prefix}/mpi4py-{self.mpi.mpi4py}-{self.host.python_tag}"

    @property
    def mpi4py_wheel(self) -> Optional[Path]:
        host = self.host
        pattern = f"mpi4py-{self.mpi.mpi4py}-{host.python_tag}-*-manylinux*_{host.machine}.whl"
        return self.controller.wheel(pattern)

    def check(self) -> None:
        host, wheel = self.host, self.mpi4py_wheel
        if wheel is None:
            raise PlanError(
                self._missing(f"mpi4py {self.mpi.mpi4py} for {host.python_tag} and {host.machine}")
            )
        listed = self.mpi.mpi4py_sha256
        digest = sha256(wheel) if listed and not host.mpi4py else ""
        if digest and digest not in listed:
            raise PlanError(
                message(
                    "mpi.wheel_checksum",
                    "{wheel} has the SHA-256 {digest}, which is not in software.mpi.mpi4py_sha256. "
                    "Download it again, or correct the model",
                    wheel=wheel,
                    digest=digest,
                )
            )

    def _missing(self, wheel: str) -> str:
        return message(
            "mpi.wheel_missing",
            "{wheel} not found in {directory} next to the inventory. Download it: docs/mpi.md",
            wheel=wheel,
            directory=self.mpi.wheels,
        )

    def unpack(self) -> list[Unpack]:
        items = [] if self.host.mpi else [self._archive()]
        if not self.host.mpi4py:
            items.append(Unpack(self.python_directory, file=str(self.mpi4py_wheel)))
        return items

    @abstractmethod
    def _archive(self) -> Unpack:
        """The archive of this MPI, and the directory it is unpacked into."""


@dataclass(frozen=True)
class _HpcxLayout(_Unpacked):
    """Open MPI and UCX in the directories of HPC-X."""

    @property
    def packages(self) -> list[str]:
        return [NUMPY]

    @property
    def layout(self) -> Layout:
        prefix, ompi = self.prefix, f"{self.prefix}/ompi"
        libraries = ("ompi/lib", "ucx/lib", "ucc/lib", "hcoll/lib", "sharp/lib")
        return Layout(
            mca_file=f"{ompi}/etc/openmpi-mca-params.conf",
            ucx_file=f"{prefix}/ucx/etc/ucx/ucx.conf",
            bin_directory=f"{ompi}/bin:{prefix}/ucx/bin",
            library_directory=":".join(f"{prefix}/{library}" for library in libraries),
            python_directory=self.python_directory,
            prefix=prefix,
            # As hpcx-init.sh sets them. Wheels of mpi4py have a module for each MPI ABI.
            variables={
                "OPAL_PREFIX": ompi,
                "PMIX_INSTALL_PREFIX": ompi,
                "MPI_HOME": ompi,
                "MPI4PY_MPIABI": "openmpi",
            },
        )


@dataclass(frozen=True)
class Hpcx(_HpcxLayout):
    """NVIDIA HPC-X, from an archive for the distribution."""

    archive: Archive

    @property
    def packages(self) -> list[str]:
        bzip2 = self.archive.url.endswith(("bz", "bz2"))
        return [NUMPY, *(["bzip2"] if bzip2 else [])]

    def check(self) -> None:
        super().check()
        if not self.archive.sha256:
            raise PlanError(
                message(
                    "mpi.archive_checksum",
                    "software.mpi.archives: {archive} has no sha256. Compare it with NVIDIA's, "
                    "then write the output of sha256sum",
                    archive=self.archive.url.rpartition("/")[2],
                )
            )

    def _archive(self) -> Unpack:
        return Unpack(self.prefix, url=self.archive.url, sha256=self.archive.sha256)


@dataclass(frozen=True)
class IntelMpi(_Unpacked):
    """Intel MPI from its wheel, using the distribution's UCX."""

    wheel: Wheel
    base: FromDistribution

    @property
    def packages(self) -> list[str]:
        return [NUMPY, *self.base.ucx_packages]

    @property
    def rdma_packages(self) -> list[str]:
        return self.base.rdma_packages

    @property
    def layout(self) -> Layout:
        prefix = self.prefix
        return Layout(
            mca_file=self.base.layout.mca_file,
            bin_directory=f"{prefix}/bin",
            library_directory=f"{prefix}/lib",
            python_directory=self.python_directory,
            prefix=prefix,
            variables={
                "I_MPI_ROOT": prefix,
                "FI_PROVIDER_PATH": f"{prefix}/lib",
                "MPI4PY_MPIABI": "impi",
            },
        )

    @property
    def impi_wheel(self) -> Optional[Path]:
        return self.controller.wheel(f"impi_rt-{self.wheel.version}-*_{self.host.machine}.whl")

    def check(self) -> None:
        super().check()
        path = self.impi_wheel
        if path is None:
            raise PlanError(self._missing(f"impi_rt {self.wheel.version} for {self.host.machine}"))
        if self.host.mpi:
            return
        digest = sha256(path)
        if digest != self.wheel.sha256:
            raise PlanError(
                message(
                    "mpi.impi_checksum",
                    "{wheel} has the SHA-256 {digest}, but software.mpi.impi.sha256 is {expected}. "
                    "Download it again, or correct the model",
                    wheel=path,
                    digest=digest,
                    expected=self.wheel.sha256,
                )
            )
        if not _has_libfabric(path):
            raise PlanError(
                message(
                    "mpi.impi_libfabric",
                    "{wheel} does not contain libfabric with the provider mlx: use version "
                    "2021.18.1",
                    wheel=path,
                )
            )

    def _archive(self) -> Unpack:
        inside = f"/impi_rt-{self.wheel.version}.data/data"
        return Unpack(self.prefix, file=str(self.impi_wheel), inside=inside)


@dataclass(frozen=True)
class FromSource(_HpcxLayout):
    """UCX and Open MPI, built on one host of each distribution and architecture."""

    sources: Sources
    distribution: Distribution

    @property
    def packages(self) -> list[str]:
        return [NUMPY]

    @property
    def build_packages(self) -> list[str]:
        return list(self.distribution.mpi.build)

    @property
    def pack(self) -> Path:
        """Archive of the build on the controller, unpacked to the same prefix on every
        distribution.
        """
        system = f"{FACTS[self.distribution.name].lower()}{self.distribution.major}"
        directory = self.prefix.rpartition("/")[2]
        return self.controller.cache / f"{directory}-{system}-{self.host.machine}.tar.gz"

    def _archive(self) -> Unpack:
        return Unpack(self.prefix, file=str(self.pack))


Provider = Union[FromDistribution, Hpcx, IntelMpi, FromSource]


def _has_libfabric(wheel: Path) -> bool:
    if not zipfile.is_zipfile(wheel):
        return False
    with zipfile.ZipFile(wheel) as archive:
        return any(name.endswith("/libmlx-fi.so") for name in archive.namelist())


def has_doca(software: SoftwareSet, rails: bool) -> bool:
    """Whether a host has the packages of DOCA; a launcher without rails has none."""
    return software.rdma.source == DOCA and rails


def prefix_of(mpi: Mpi, distribution: Distribution) -> str:
    """Directory of the MPI on a host; empty for the distribution's.

    Raises PlanError if there is no archive of HPC-X for the distribution.
    """
    if mpi.provider == DISTRIBUTION:
        return ""
    if mpi.provider == IMPI and mpi.impi is not None:
        return mpi.impi.prefix
    if mpi.provider == HPCX:
        return _archive_of(mpi, distribution).prefix
    return mpi.sources.prefix if mpi.sources is not None else ""


def _archive_of(mpi: Mpi, distribution: Distribution) -> Archive:
    archives = {archive.distribution: archive for archive in reversed(mpi.archives)}
    for name in distribution.hpcx_names:
        if name in archives:
            return archives[name]
    raise PlanError(
        message(
            "mpi.archive_missing",
            "software.mpi.archives has no archive for {distribution}: add one",
            distribution=distribution.label,
        )
    )


def provider_of(
    mpi: Mpi,
    distribution: Distribution,
    doca: bool,
    host: Optional[Installation],
    controller: Controller,
) -> Provider:
    """The provider of a host. `host` may be None for the distribution's MPI."""
    base = FromDistribution(distribution, doca)
    if host is None:
        return base
    prefix = prefix_of(mpi, distribution)
    if mpi.provider == IMPI and mpi.impi is not None:
        return IntelMpi(host, controller, mpi, prefix, mpi.impi, base)
    if mpi.provider == HPCX:
        return Hpcx(host, controller, mpi, prefix, _archive_of(mpi, distribution))
    if mpi.sources is None:
        raise PlanError(f"software.mpi.sources is missing for the provider {mpi.provider}")
    return FromSource(host, controller, mpi, prefix, mpi.sources, distribution)
