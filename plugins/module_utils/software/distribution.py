# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The distributions that the catalogue has packages for, and what vendors call them."""

from __future__ import annotations

import platform
from pathlib import Path

from ..core.dataclass import dataclass

DEBIAN, REDHAT = "debian", "redhat"
OS_RELEASE = "etc/os-release"


class UnsupportedDistribution(ValueError):
    """The catalogue has no packages for it; the text says which ones it has."""


class NotInCatalog(ValueError):
    """The set cannot be had on this distribution; the text says what and what to do."""


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
    def major(self) -> str:
        return self.release.split(".")[0]

    @property
    def cuda_layout(self) -> str:
        """Its folder in the CUDA repository: `ubuntu2404`, `rhel9`."""
        if self.family == REDHAT:
            return f"rhel{self.major}"
        return self.name + self.release.replace(".", "")

    @property
    def doca_layout(self) -> str:
        """Its folder in the DOCA repository: `ubuntu24.04`, `rhel9`."""
        return f"rhel{self.major}" if self.family == REDHAT else self.name + self.release


_REDHAT = {
    "redhat": "rhel",
    "rhel": "rhel",
    "rocky": "rocky",
    "almalinux": "almalinux",
}
_DEBIAN = {"ubuntu": ("22.04", "24.04"), "debian": ("12",)}
_KNOWN = "Ubuntu 22.04 and 24.04, RHEL, Rocky and Alma 9; Debian 12 for inbox RDMA alone"


def distribution_of(name: str, version: str, architecture: str = "x86_64") -> Distribution:
    """From the facts `ansible_distribution`, `..._version` and `ansible_architecture`."""
    known = name.strip().lower()
    found = f"{name} {version} ({architecture})"
    if architecture not in ("x86_64", "amd64"):
        raise UnsupportedDistribution(
            f"{found}: the catalogue of packages is for x86_64. Leave the node out of the play"
        )
    if known in _REDHAT and version.split(".")[0] == "9":
        return Distribution(REDHAT, _REDHAT[known], version)
    if known in _DEBIAN:
        for release in _DEBIAN[known]:
            if version == release or version.startswith(f"{release}."):
                return Distribution(DEBIAN, known, release)
    raise UnsupportedDistribution(
        f"{found}: no packages are known for it. There are: {_KNOWN}. Install one of these"
    )


def distribution(root: Path = Path("/")) -> Distribution:
    """From /etc/os-release, for what Ansible's facts would take a call of their own.

    Raises UnsupportedDistribution.
    """
    try:
        text = (root / OS_RELEASE).read_text(encoding="utf-8")
    except OSError as error:
        raise UnsupportedDistribution(f"/{OS_RELEASE}: {error.strerror}") from error
    values = {}
    for line in text.splitlines():
        key, _equals, value = line.partition("=")
        values[key.strip()] = value.strip().strip("\"'")
    return distribution_of(values.get("ID", ""), values.get("VERSION_ID", ""), platform.machine())
