# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The Linux distributions that nodes may run: one table of names, releases, packages and paths.

Roles, the package catalogue, the model and the docs take every fact about a distribution from
FAMILIES and SYSTEMS. To support another release, add a row to SYSTEMS with its sources;
README.md and docs/software-set.md name it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Optional

from .part import PlanError


@dataclass(frozen=True)
class MpiPackages:
    """The distribution's own Open MPI and UCX, and the tools for building others."""

    packages: tuple[str, ...]
    ucx: tuple[str, ...]
    """UCX of the distribution."""
    doca_ucx: tuple[str, ...]
    """The packages to install instead when DOCA provides UCX."""
    verbs: tuple[str, ...]
    """User-space RDMA drivers."""
    build: tuple[str, ...]
    """Tools and headers for building UCX and Open MPI, with or without a configure script."""
    mca_file: str
    bin_directory: str = ""
    library_directory: str = ""
    python_directory: str = ""
    """Directories outside the default search paths; empty where Open MPI is on them."""

    @property
    def launcher(self) -> str:
        """The package that contains mpirun; its version is Open MPI's."""
        return self.packages[0]


@dataclass(frozen=True)
class SlurmPackages:
    """The distribution's own Slurm, with munge and PMIx: on every host of it, in addition on nodes,
    and in addition on the controller."""

    client: tuple[str, ...]
    node: tuple[str, ...]
    controller: tuple[str, ...]


@dataclass(frozen=True)
class MonitoringPackages:
    """The distribution's own node_exporter, and its Prometheus, if it has one."""

    exporter: tuple[str, ...]
    server: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """Facts shared by related distributions. Kernel names may contain `{release}`."""

    name: str
    os_family: str
    """Ansible's fact `os_family`."""
    package_manager: str
    """Ansible's fact `pkg_mgr`: `apt` or `dnf`."""
    base_packages: tuple[str, ...]
    """Tools for an MPI node, installed by the layer `os`."""
    perf: Mapping[str, str] = field(hash=False)
    """The package with the program `perf`, by ID in os-release."""
    inbox_rdma: tuple[str, ...]
    """RDMA libraries and tools of the distribution itself."""
    kernel: str
    kernel_headers: str
    """The package that DKMS builds against."""
    kernel_version_in_name: bool
    """Whether the kernel release is part of the package name, or is the package version."""
    kernel_parts: tuple[str, ...]
    """Every package of the running kernel to hold at its version."""
    kernel_patterns: tuple[str, ...]
    """How the package manager recognises a package that brings another kernel: patterns of its
    dependencies (apt), or a capability that it provides (dnf)."""
    mpi: MpiPackages
    slurm: SlurmPackages
    monitoring: MonitoringPackages

    def kernel_package(self, name: str, release: str) -> tuple[str, str]:
        """Name and version of a kernel package for `uname -r`; no version if the name has it."""
        if self.kernel_version_in_name:
            return name.format(release=release), ""
        return name, release.removesuffix(".x86_64").removesuffix(".aarch64")


EL = ("rhel", "rocky", "almalinux")
_BUILD = ("gcc", "make", "autoconf", "automake", "libtool", "bzip2")

DEBIAN = Family(
    name="debian",
    os_family="Debian",
    package_manager="apt",
    # ethtool: rails read link, rings, driver and firmware. numactl: manual NUMA binding. pciutils:
    # rails are named by PCI address. zstd: DKMS compresses modules with it on Ubuntu 26.04 without
    # depending on it (ubuntu26.04/install.sh of NVIDIA/gpu-driver-container@bd20cb2f). No hwloc:
    # its packages hwloc and hwloc-nox conflict, and a node may have either. jq: auditors read JSON
    # with it.
    base_packages=("ethtool", "jq", "numactl", "pciutils", "zstd"),
    # packages.debian.org/bookworm/linux-perf; packages.ubuntu.com/noble/linux-tools-generic, which
    # is for the newest kernel of the release: /usr/bin/perf starts that of `uname -r`.
    perf={"debian": "linux-perf", "ubuntu": "linux-tools-generic"},
    # No infiniband-diags: its tools are for InfiniBand, and they pull in Perl.
    inbox_rdma=(
        "rdma-core",
        "ibverbs-providers",
        "ibverbs-utils",
        "rdmacm-utils",
        "libibumad3",
        "perftest",
        "mstflint",
    ),
    kernel="linux-image-{release}",
    kernel_headers="linux-headers-{release}",
    kernel_version_in_name=True,
    kernel_parts=(
        "linux-image-{release}",
        "linux-modules-{release}",
        "linux-modules-extra-{release}",
    ),
    # Packages of one kernel release, dependencies of the metapackages (linux-virtual,
    # linux-image-amd64).
    kernel_patterns=tuple(
        f"linux-{kind}-[0-9]*"
        for kind in ("image", "image-unsigned", "headers", "modules", "modules-extra")
    ),
    # packages.ubuntu.com/resolute: openmpi-bin 5.0.10, libucx0 and ucx-utils 1.20.0.
    mpi=MpiPackages(
        packages=("openmpi-bin", "python3-mpi4py", "python3-numpy"),
        ucx=("libucx0", "ucx-utils"),
        # It conflicts with the distribution's UCX, and provides it.
        doca_ucx=("ucx",),
        # libibverbs only recommends the package.
        verbs=("ibverbs-providers",),
        build=(*_BUILD, "g++", "pkg-config", "xz-utils", "libibverbs-dev", "librdmacm-dev"),
        mca_file="/etc/openmpi/openmpi-mca-params.conf",
    ),
    slurm=SlurmPackages(
        client=("libpmix2", "munge", "slurm-client"), node=("slurmd",), controller=("slurmctld",)
    ),
    # node_exporter 1.3.1 in Ubuntu 22.04, 1.5.0 in Debian 12, 1.7.0 in Ubuntu 24.04.
    monitoring=MonitoringPackages(("prometheus-node-exporter",), ("prometheus",)),
)
REDHAT = Family(
    name="redhat",
    os_family="RedHat",
    package_manager="dnf",
    base_packages=("ethtool", "hwloc", "jq", "numactl", "pciutils"),
    perf=dict.fromkeys(EL, "perf"),
    inbox_rdma=(
        "rdma-core",
        "libibverbs",
        "libibverbs-utils",
        "librdmacm-utils",
        "libibumad",
        "perftest",
        "mstflint",
    ),
    kernel="kernel",
    kernel_headers="kernel-devel",
    kernel_version_in_name=False,
    kernel_parts=(
        "kernel",
        "kernel-core",
        "kernel-modules",
        "kernel-modules-core",
        "kernel-modules-extra",
        "kernel-devel",
        "kernel-devel-matched",
    ),
    # Provided by every kernel, whatever its name is (kernel-rt).
    kernel_patterns=("installonlypkg(kernel)",),
    # mpi4py is in EPEL (packages.fedoraproject.org/pkgs/mpi4py/python3-mpi4py-openmpi, EPEL 9 and
    # 10), the rest in AppStream. By policy Open MPI is not on the default search paths.
    mpi=MpiPackages(
        packages=("openmpi", "python3-mpi4py-openmpi", "python3-numpy"),
        ucx=("ucx", "ucx-ib"),
        # DOCA's packages have the same names: docs/mpi.md.
        doca_ucx=("ucx", "ucx-ib"),
        verbs=("libibverbs",),
        build=(*_BUILD, "gcc-c++", "pkgconf-pkg-config", "xz", "rdma-core-devel"),
        mca_file="/etc/openmpi-{architecture}/openmpi-mca-params.conf",
        bin_directory="/usr/lib64/openmpi/bin",
        library_directory="/usr/lib64/openmpi/lib",
        python_directory="/usr/lib64/python{python}/site-packages/openmpi",
    ),
    # In EPEL (packages.fedoraproject.org/pkgs/slurm); munge and pmix are in AppStream.
    slurm=SlurmPackages(
        client=("munge", "pmix", "slurm"), node=("slurm-slurmd",), controller=("slurm-slurmctld",)
    ),
    # In EPEL 9 and 10 (packages.fedoraproject.org/pkgs/node-exporter); no Prometheus there.
    monitoring=MonitoringPackages(("node-exporter",), ()),
)
FAMILIES = (DEBIAN, REDHAT)

FACTS = {
    "ubuntu": "Ubuntu",
    "debian": "Debian",
    "rhel": "RedHat",
    "rocky": "Rocky",
    "almalinux": "AlmaLinux",
}
"""ID in os-release to Ansible's fact `distribution`."""
EL_TITLE = "RHEL, Rocky and AlmaLinux"


@dataclass(frozen=True)
class SigningKey:
    """The public key that signs NVIDIA's CUDA repository of one release."""

    file: str
    fingerprint: str = ""
    """Empty where NVIDIA's guide does not print it."""


@dataclass(frozen=True)
class System:
    """A release that nodes may run, and the first NVIDIA packages for it."""

    kind: str
    ids: tuple[str, ...]
    """ID in os-release."""
    release: str
    """The beginning of VERSION_ID; for EL and Debian the major release."""
    family: Family
    python: str
    """Version of the system's Python 3, which is part of package paths."""
    kernel: str
    """Version of the kernel that the release was published with."""
    cuda_key: Optional[SigningKey]
    """None where NVIDIA has no repository."""
    driver: Optional[int] = 0
    """First driver branch; 0: every branch in the catalogue; None: no branch."""
    doca: Optional[str] = ""
    """First DOCA release; empty: every release; None: no release."""
    module_streams: bool = False
    """Whether dnf module streams select the driver branch."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.release}"

    def has(self, version: str) -> bool:
        return version == self.release or version.startswith(f"{self.release}.")


_KEY_2204 = SigningKey("3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC")

# Sources were read on 2026-11-28.
SYSTEMS = (
    System("Ubuntu", ("ubuntu",), "22.04", DEBIAN, "3.10", "5.15", _KEY_2204),
    System("Ubuntu", ("ubuntu",), "24.04", DEBIAN, "3.12", "6.8", _KEY_2204),
    # .github/image-matrix.json of NVIDIA/gpu-driver-container@7f9a9e3f builds 595 and 615 for it,
    # but not 580; Azure/azhpc-images takes doca/3.4.0/ubuntu26.04.
    System(
        "Ubuntu",
        ("ubuntu",),
        "26.04",
        DEBIAN,
        "3.14",
        "7.0",
        SigningKey("60DF8A40.pub", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40"),
        driver=595,
        doca="3.4",
    ),
    System(
        EL_TITLE,
        EL,
        "9",
        REDHAT,
        "3.9",
        "5.14.0",
        SigningKey("D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
        module_streams=True,
    ),
    # The same matrix builds 580 for rhel10 and rocky10; "DOCA 3.1-x ... RHEL 9.6, 9.7, 10" of
    # docs.nvidia.com/gpudirect-storage/release-notes. No module streams: the driver installation
    # guide 620, "Kernel Modules".
    System(
        EL_TITLE,
        EL,
        "10",
        REDHAT,
        "3.12",
        "6.12.0",
        SigningKey("CDF6BA43.pub"),
        driver=580,
        doca="3.1",
    ),
    System("Debian", ("debian",), "12", DEBIAN, "3.11", "6.1", None, driver=None, doca=None),
)


def sentence(systems: Sequence[System]) -> str:
    """`Ubuntu 22.04 and 24.04; Debian 12`."""
    releases: dict[str, list[str]] = {}
    for system in systems:
        releases.setdefault(system.kind, []).append(system.release)
    parts = []
    for kind, names in releases.items():
        *most, last = names
        parts.append(f"{kind} {', '.join(most)} and {last}" if most else f"{kind} {last}")
    return "; ".join(parts)


KNOWN = sentence(SYSTEMS)
"""SYSTEMS as a phrase. For Debian, the catalogue has only inbox RDMA."""


@dataclass(frozen=True)
class Distribution:
    system: System
    name: str
    """`ubuntu`, `debian`, `rhel`, `rocky` or `almalinux`."""
    release: str
    """`24.04`, `12`, `9.6`."""
    architecture: str = "x86_64"

    @property
    def family(self) -> Family:
        return self.system.family

    @property
    def label(self) -> str:
        return f"{self.name} {self.release}"

    @property
    def major(self) -> int:
        return int(self.release.split(".")[0])

    @property
    def cuda_folder(self) -> str:
        """Folder in the CUDA repository: `ubuntu2404`, `rhel9`."""
        return self.doca_folder.replace(".", "")

    @property
    def doca_folder(self) -> str:
        """Folder in the DOCA repository: `ubuntu24.04`, `rhel9`."""
        return f"rhel{self.major}" if self.family is REDHAT else self.name + self.release

    @property
    def lustre_folder(self) -> str:
        """Folder in Lustre's repository: `ubuntu2404`, `el9.6`."""
        return f"el{self.release}" if self.family is REDHAT else self.cuda_folder

    @property
    def hpcx_names(self) -> tuple[str, ...]:
        """Names of the distribution in archives of HPC-X, most specific first."""
        name = FACTS[self.name].lower()
        return (
            f"{name}{self.release}",
            f"{name}{self.major}",
            f"{self.family.name}{self.major}",
        )

    @property
    def mpi(self) -> MpiPackages:
        mpi = self.family.mpi
        values = {"architecture": self.architecture, "python": self.system.python}
        return replace(
            mpi,
            mca_file=mpi.mca_file.format(**values),
            python_directory=mpi.python_directory.format(**values),
        )

    @property
    def facts(self) -> dict[str, str]:
        """The facts that Ansible's `setup` reports for it, without their prefix."""
        return {
            "distribution": FACTS[self.name],
            "distribution_version": self.release,
            "distribution_major_version": str(self.major),
            "os_family": self.family.os_family,
            "pkg_mgr": self.family.package_manager,
        }

    def refuse_before(self, first: object, what: str, version: str, without: str) -> None:
        """Raise PlanError for a version that NVIDIA does not package for this system."""
        if first is None:
            raise PlanError(
                f"{what} is not in the catalogue for {self.label}. {without}, or install Ubuntu or "
                f"{EL_TITLE}"
            )
        if first and _numbers(version) < _numbers(str(first)):
            raise PlanError(
                f"{what} {version} for {self.label}: NVIDIA's packages for it begin with {first}. "
                f"Write {first} or later. {without}, or install an older release of the system"
            )


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def distribution_of(name: str, version: str, architecture: str = "x86_64") -> Distribution:
    """Look up a distribution by its ID or Ansible's fact, and its version. Raises PlanError."""
    key = name.strip().lower()
    key = "rhel" if key == "redhat" else key
    if architecture in ("x86_64", "amd64"):
        for system in SYSTEMS:
            if key in system.ids and system.has(version):
                # Point releases of Debian and Ubuntu have the same repositories.
                release = version if system.family is REDHAT else system.release
                return Distribution(system, key, release)
    raise PlanError(
        f"{name} {version} ({architecture}): unsupported distribution; supported on x86_64: "
        f"{KNOWN}. Leave the node out of the play"
    )


def read_distribution(root: Path = Path("/")) -> Distribution:
    """Read /etc/os-release, as Ansible's facts cost a remote execution. Raises PlanError."""
    values = {}
    for line in (root / "etc/os-release").read_text(encoding="utf-8").splitlines():
        key, _equals, value = line.partition("=")
        values[key.strip()] = value.strip().strip("\"'")
    return distribution_of(values.get("ID", ""), values.get("VERSION_ID", ""), platform.machine())
