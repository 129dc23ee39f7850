# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The systems that nodes run, what vendors call them, and since when vendors have packages."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.part import PlanError

DEBIAN, REDHAT = "debian", "redhat"
EL = ("rhel", "rocky", "almalinux")
_EL = "RHEL, Rocky and AlmaLinux"


@dataclass(frozen=True)
class System:
    """A release that nodes may run, and what NVIDIA's repositories begin with for it."""

    kind: str
    names: tuple[str, ...]
    """ID of os-release."""
    release: str
    """How VERSION_ID begins: of EL and Debian the major release."""
    driver: Optional[int] = 0
    """The first branch of the driver; 0: all that the catalogue knows; None: not in it."""
    doca: Optional[str] = ""
    """The first release of DOCA, likewise."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.release}"

    def has(self, version: str) -> bool:
        return version == self.release or version.startswith(f"{self.release}.")


# Sources were read on 2026-11-28.
SYSTEMS = (
    System("Ubuntu", ("ubuntu",), "22.04"),
    System("Ubuntu", ("ubuntu",), "24.04"),
    # .github/image-matrix.json of NVIDIA/gpu-driver-container@7f9a9e3f builds 595 and 615 for it,
    # and leaves out 580; doca/3.4.0/ubuntu26.04 is what Azure/azhpc-images takes.
    System("Ubuntu", ("ubuntu",), "26.04", 595, "3.4"),
    System(_EL, EL, "9"),
    # The same matrix builds 580 for rhel10 and rocky10; "DOCA 3.1-x ... RHEL 9.6, 9.7, 10" of
    # docs.nvidia.com/gpudirect-storage/release-notes.
    System(_EL, EL, "10", 580, "3.1"),
    System("Debian", ("debian",), "12", None, None),
)
KNOWN = f"Ubuntu 22.04, 24.04 and 26.04; {_EL} 9 and 10; Debian 12"
"""SYSTEMS in a sentence. On Debian the catalogue has only inbox RDMA."""
_ALIASES = {"redhat": "rhel"}
"""Of the fact `distribution`."""


@dataclass(frozen=True)
class Distribution:
    family: str
    """`debian` (apt) or `redhat` (dnf)."""
    name: str
    """`ubuntu`, `debian`, `rhel`, `rocky` or `almalinux`."""
    release: str
    """`24.04`, `12`, `9.6`."""
    architecture: str = "x86_64"

    @property
    def label(self) -> str:
        return f"{self.name} {self.release}"

    @property
    def major(self) -> int:
        return int(self.release.split(".")[0])

    @property
    def cuda_layout(self) -> str:
        """Its folder in the CUDA repository: `ubuntu2404`, `rhel9`."""
        return self.doca_layout.replace(".", "")

    @property
    def doca_layout(self) -> str:
        """Its folder in the DOCA repository: `ubuntu24.04`, `rhel9`."""
        return f"rhel{self.major}" if self.family == REDHAT else self.name + self.release

    @property
    def has_streams(self) -> bool:
        """EL 10 has no modules: the driver installation guide 620, "Kernel Modules"."""
        return self.family == REDHAT and self.major < 10

    @property
    def system(self) -> System:
        return next(each for each in SYSTEMS if self.name in each.names and each.has(self.release))

    def refuse_before(self, first: object, what: str, version: str, without: str) -> None:
        """Raises PlanError for a version that NVIDIA has no packages of for this system."""
        if first is None:
            raise PlanError(
                f"{what} is not in the catalogue for {self.label}. {without}, or install Ubuntu or "
                f"{_EL}"
            )
        if first and _numbers(version) < _numbers(str(first)):
            raise PlanError(
                f"{what} {version} for {self.label}: NVIDIA's packages for it begin with {first}. "
                f"Write {first} or later. {without}, or install an older release of the system"
            )


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def distribution_of(name: str, version: str, architecture: str = "x86_64") -> Distribution:
    """From ID and VERSION_ID of os-release. Raises PlanError for an unsupported one."""
    known = name.strip().lower()
    known = _ALIASES.get(known, known)
    if architecture in ("x86_64", "amd64"):
        for system in SYSTEMS:
            if known in system.names and system.has(version):
                el = known in EL
                family, release = (REDHAT, version) if el else (DEBIAN, system.release)
                return Distribution(family, known, release)
    raise PlanError(
        f"{name} {version} ({architecture}): unsupported distribution; supported on x86_64: "
        f"{KNOWN}. Leave the node out of the play"
    )


def distribution(root: Path = Path("/")) -> Distribution:
    """From /etc/os-release: Ansible's facts would take a call of their own."""
    values = {}
    for line in (root / "etc/os-release").read_text(encoding="utf-8").splitlines():
        key, _equals, value = line.partition("=")
        values[key.strip()] = value.strip().strip("\"'")
    return distribution_of(values.get("ID", ""), values.get("VERSION_ID", ""), platform.machine())


def kernel_version(release: str) -> str:
    """The package version of a kernel of EL: `uname -r` without the architecture."""
    return release.removesuffix(".x86_64").removesuffix(".aarch64")
