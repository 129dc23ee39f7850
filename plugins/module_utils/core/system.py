# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which distribution a node is, and who manages its packages."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..packages.apt import Apt
from ..packages.dnf import DnfManager
from ..packages.manager import Manager, PackageError
from ..packages.package import PackageSet
from ..software import Distribution, UnsupportedDistribution, distribution_of
from ..software.distribution import REDHAT
from .part import PlanError

OS_RELEASE = "etc/os-release"
_NO_DKMS = re.compile(r"nothing provides (requested )?dkms(?![-\w])")
EPEL = (
    "dkms, with which the drivers are built, is in EPEL, and this node has no repository with it: "
    "dnf install epel-release (RHEL: docs/packages.md), or a mirror of EPEL; then run again"
)


def distribution(root: Path = Path("/")) -> Distribution:
    """As /etc/os-release says, for what Ansible's facts would take a call of their own.

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


@contextmanager
def manager_of(found: Distribution, wanted: PackageSet, layer: str) -> Iterator[Manager]:
    """The node's package manager, as long as it is needed.

    Refusals on their way out of it that are for want of EPEL say so: the solver only names dkms.
    """
    if found.family != REDHAT:
        yield Apt()
        return
    with DnfManager(wanted, layer) as dnf:
        try:
            yield dnf
        except (PackageError, PlanError) as error:
            if not _NO_DKMS.search(str(error)):
                raise
            raise type(error)(f"{error}\n{EPEL}") from error
