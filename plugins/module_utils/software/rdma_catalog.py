# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Packages of the RDMA stack: DOCA-OFED, or the drivers of the kernel with the usual tools."""

from __future__ import annotations

from ..packages.package import Stage, Wanted
from .distribution import REDHAT, Distribution
from .not_in_catalog import NotInCatalog
from .software_set import Rdma

# Without infiniband-diags: its tools are for InfiniBand, and they bring Perl.
INBOX_DEBIAN = (
    "rdma-core",
    "ibverbs-providers",
    "ibverbs-utils",
    "rdmacm-utils",
    "libibumad3",
    "perftest",
    "mstflint",
)
INBOX_REDHAT = (
    "rdma-core",
    "libibverbs",
    "libibverbs-utils",
    "librdmacm-utils",
    "libibumad",
    "perftest",
    "mstflint",
)


def inbox(distribution: Distribution) -> list[Stage]:
    """Versions are the distribution's: the newest at the first installation, then held."""
    names = INBOX_REDHAT if distribution.family == REDHAT else INBOX_DEBIAN
    return [Stage("RDMA", tuple(Wanted(name, component="rdma") for name in names))]


def doca(rdma: Rdma, distribution: Distribution) -> list[Stage]:
    """The profile of DOCA has the release as its version (`3.2.0-...`), its dependencies theirs."""
    if distribution.name == "debian":
        raise NotInCatalog(
            f"DOCA is not in the catalogue for {distribution.label}. Write software.rdma.source: "
            "inbox there, or install Ubuntu or EL 9"
        )
    profile = Stage("DOCA", (Wanted(rdma.profile, rdma.version, "rdma"),))
    if distribution.family == REDHAT:
        # Has doca-kernel-support, which builds drivers for kernels that DOCA does not know.
        return [Stage("DOCA extra", (Wanted("doca-extra", rdma.version, "rdma"),)), profile]
    return [profile]
