# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The package manager of a distribution."""

from __future__ import annotations

from ..packages.apt import Apt
from ..packages.dnf import DnfManager
from ..packages.package import Manager, PackageSet
from ..software.distribution import REDHAT, Distribution


def manager_of(found: Distribution, wanted: PackageSet, layer: str) -> Manager:
    return DnfManager(wanted, layer) if found.family == REDHAT else Apt()
