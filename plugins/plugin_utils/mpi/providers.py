# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Providers of MPI: packages, the archives that a host unpacks, and the layout of the result."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from ...module_utils.core.distribution import FACTS, Distribution
from ...module_utils.core.messages import message
from ...module_utils.core.part import PlanError
from ...module_utils.mpi.build import sha256
from ...module_utils.software.software_set import HPCX, IMPI, Archive, Mpi
from ..answers import Form, mapping

WORD = Form("a plain word", r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,60}")
"""Answers from a host that become part of a file name on the controller."""
NUMPY = "python3-numpy"


@dataclass(frozen=True)
class Installation:
    """State of a host, as the module mpi_provider reports it."""

    machine: str
    python_tag: str
    """Tag of the Python of MPI programs: `cp312`."""
    mpi: bool = False
    mpi4py: bool = False
    begun: bool = False
    toolkit: bool = False

    @classmethod
    def of(cls, answer: Any) -> Installation:
        """Parse the module's result; words become part of a file name."""
        given = mapping(answer)
        return cls(
            machine=WORD.of(given.get("machine"), "the host's architecture"),
            python_tag=WORD.of(given.get("python_tag"), "the host's Python tag"),
            **{name: given.get(name) is True for name in ("mpi", "mpi4py", "begun", "toolkit")},
        )


@dataclass(frozen=True)
class Provider:
    """The MPI of a host, from its packages or unpacked below one prefix."""

    packages: Sequence[str]
    layout: dict[str, Any]
    """Options of the module mpi_stack by name."""
    rdma_packages: Sequence[str] = ()
    """Packages for the transport `rc`."""
    unpack: Sequence[dict[str, str]] = ()
    """Archives that the host lacks: `directory`, `url` and `sha256` or `file` of the controller,
    and `inside`, the directory of the archive that becomes `directory`."""
    pack: str = ""
    """Archive of a build on the controller, for this distribution and architecture."""
    build_packages: Sequence[str] = ()


def provider_of(
    mpi: Mpi,
    distribution: Distribution,
    doca: bool,
    host: Optional[Installation],
    wheels: Path,
    cache: Path,
) -> Provider:
    """The provider of a host. `doca`: DOCA provides UCX on it. `host` is None for the
    distribution's MPI. `wheels`, and `cache` with packs of builds, are directories of the
    controller.

    Raises PlanError if a file is missing there or has another checksum.
    """
    of = distribution.mpi
    ucx = [*(of.doca_ucx if doca else of.ucx)]
    if host is None:
        layout: dict[str, Any] = {"mca_file": of.mca_file, "prefix": "", "variables": {}}
        for name in ("bin_directory", "library_directory", "python_directory"):
            layout[name] = getattr(of, name)
        return Provider([*of.packages, *ucx], layout, of.verbs)
    prefix = prefix_of(mpi, distribution)
    python = f"{prefix}/mpi4py-{mpi.mpi4py}-{host.python_tag}"
    pattern = f"mpi4py-{mpi.mpi4py}-{host.python_tag}-*-manylinux*_{host.machine}.whl"
    what = f"mpi4py {mpi.mpi4py} for {host.python_tag} and {host.machine}"
    wheel = _wheel(wheels, pattern, what, mpi, () if host.mpi4py else mpi.mpi4py_sha256)
    unpack = [] if host.mpi4py else [_archive(python, file=str(wheel))]
    if mpi.provider == IMPI and mpi.impi is not None:
        version = mpi.impi.version
        what = f"impi_rt {version} for {host.machine}"
        listed = () if host.mpi else (mpi.impi.sha256,)
        wheel = _wheel(wheels, f"impi_rt-{version}-*_{host.machine}.whl", what, mpi, listed)
        if not host.mpi:
            _refuse_without_libfabric(wheel)
            inside = f"/impi_rt-{version}.data/data"
            unpack.insert(0, _archive(prefix, file=str(wheel), inside=inside))
        layout = {
            "mca_file": of.mca_file,
            "bin_directory": f"{prefix}/bin",
            "library_directory": f"{prefix}/lib",
            "python_directory": python,
            "prefix": prefix,
            "variables": {
                "I_MPI_ROOT": prefix,
                "FI_PROVIDER_PATH": f"{prefix}/lib",
                "MPI4PY_MPIABI": "impi",
            },
        }
        return Provider([NUMPY, *ucx], layout, of.verbs, unpack)
    layout = layout_of_hpcx(prefix, python)
    if mpi.provider == HPCX:
        archive = archive_of(mpi, distribution)
        if not archive.sha256:
            raise PlanError(
                message(
                    "mpi.archive_checksum",
                    "software.mpi.archives: {archive} has no sha256. Compare it with NVIDIA's, "
                    "then write the output of sha256sum",
                    archive=archive.url.rpartition("/")[2],
                )
            )
        bzip2 = ["bzip2"] if archive.url.endswith(("bz", "bz2")) else []
        if not host.mpi:
            unpack.insert(0, _archive(prefix, url=archive.url, sha256=archive.sha256))
        return Provider([NUMPY, *bzip2], layout, unpack=unpack)
    system = f"{FACTS[distribution.name].lower()}{distribution.major}"
    pack = str(cache / f"{prefix.rpartition('/')[2]}-{system}-{host.machine}.tar.gz")
    if not host.mpi:
        unpack.insert(0, _archive(prefix, file=pack))
    return Provider([NUMPY], layout, (), unpack, pack, of.build)


def _archive(directory: str, **given: str) -> dict[str, str]:
    return {"directory": directory, "url": "", "sha256": "", "file": "", "inside": "", **given}


def layout_of_hpcx(prefix: str, python: str) -> dict[str, Any]:
    """Open MPI and UCX in the directories of HPC-X, with the variables of its hpcx-init.sh."""
    ompi = f"{prefix}/ompi"
    libraries = ("ompi/lib", "ucx/lib", "ucc/lib", "hcoll/lib", "sharp/lib")
    return {
        "mca_file": f"{ompi}/etc/openmpi-mca-params.conf",
        "ucx_file": f"{prefix}/ucx/etc/ucx/ucx.conf",
        "bin_directory": f"{ompi}/bin:{prefix}/ucx/bin",
        "library_directory": ":".join(f"{prefix}/{library}" for library in libraries),
        "python_directory": python,
        "prefix": prefix,
        "variables": {
            **dict.fromkeys(("OPAL_PREFIX", "PMIX_INSTALL_PREFIX", "MPI_HOME"), ompi),
            "MPI4PY_MPIABI": "openmpi",  # a wheel of mpi4py has a module for each MPI ABI
        },
    }


def _wheel(folder: Path, pattern: str, what: str, mpi: Mpi, listed: Sequence[str]) -> Path:
    """A wheel with one of the `listed` checksums, or with any if there are none."""
    wheel = max(folder.glob(pattern), default=None)
    if wheel is None:
        raise PlanError(
            message(
                "mpi.wheel_missing",
                "{wheel} not found in {directory} next to the inventory. Download it: docs/mpi.md",
                wheel=what,
                directory=mpi.wheels,
            )
        )
    digest = sha256(wheel) if listed else ""
    if digest and digest not in listed:
        raise PlanError(
            message(
                "mpi.wheel_checksum",
                "{wheel} has the SHA-256 {digest}, which is not in software.mpi. Download it "
                "again, or correct the model",
                wheel=wheel,
                digest=digest,
            )
        )
    return wheel


def _refuse_without_libfabric(wheel: Path) -> None:
    found = zipfile.ZipFile(wheel).namelist() if zipfile.is_zipfile(wheel) else []
    if not any(name.endswith("/libmlx-fi.so") for name in found):
        raise PlanError(
            message(
                "mpi.impi_libfabric",
                "{wheel} does not contain libfabric with the provider mlx: use version 2021.18.1",
                wheel=wheel,
            )
        )


def prefix_of(mpi: Mpi, distribution: Distribution) -> str:
    """Directory of the MPI on a host; empty for the distribution's."""
    if mpi.provider == HPCX:
        return archive_of(mpi, distribution).prefix
    of_provider = mpi.impi if mpi.provider == IMPI else mpi.sources
    return of_provider.prefix if of_provider is not None else ""


def archive_of(mpi: Mpi, distribution: Distribution) -> Archive:
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
