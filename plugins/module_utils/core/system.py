# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which distribution a node is, and its package manager."""

from __future__ import annotations

import platform
from pathlib import Path

from ..packages.apt import Apt
from ..packages.dnf import DnfManager
from ..packages.package import Manager, PackageSet
from ..software.distribution import REDHAT, Distribution, UnsupportedDistribution, distribution_of

OS_RELEASE = "etc/os-release"


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


def manager_of(found: Distribution, wanted: PackageSet, layer: str) -> Manager:
    return DnfManager(wanted, layer) if found.family == REDHAT else Apt()
