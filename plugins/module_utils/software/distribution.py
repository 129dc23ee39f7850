# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The distributions that the catalogue has packages for, and what vendors call them."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from ..core.part import PlanError

DEBIAN, REDHAT = "debian", "redhat"


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
    def cuda_layout(self) -> str:
        """Its folder in the CUDA repository: `ubuntu2404`, `rhel9`."""
        return self.doca_layout.replace(".", "")

    @property
    def doca_layout(self) -> str:
        """Its folder in the DOCA repository: `ubuntu24.04`, `rhel9`."""
        if self.family == REDHAT:
            return f"rhel{self.release.split('.')[0]}"
        return self.name + self.release


_REDHAT = {"redhat": "rhel", "rhel": "rhel", "rocky": "rocky", "almalinux": "almalinux"}
_DEBIAN = {"ubuntu": ("22.04", "24.04"), "debian": ("12",)}
_KNOWN = "Ubuntu 22.04 and 24.04, RHEL, Rocky and Alma 9; Debian 12 for inbox RDMA alone"


def distribution_of(name: str, version: str, architecture: str = "x86_64") -> Distribution:
    """From ID and VERSION_ID of os-release. Raises PlanError for an unsupported one."""
    known = name.strip().lower()
    if architecture in ("x86_64", "amd64"):
        if known in _REDHAT and version.split(".")[0] == "9":
            return Distribution(REDHAT, _REDHAT[known], version)
        for release in _DEBIAN.get(known, ()):
            if version == release or version.startswith(f"{release}."):
                return Distribution(DEBIAN, known, release)
    raise PlanError(
        f"{name} {version} ({architecture}): unsupported distribution; supported on x86_64: "
        f"{_KNOWN}. Leave the node out of the play"
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
