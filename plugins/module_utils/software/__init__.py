# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set of software of a node (`cluster_software`), what goes together, and its packages."""

from __future__ import annotations

from .catalog import gpu_packages, rdma_packages
from .compatibility import Judgement, Node, judge
from .distribution import Distribution, NotInCatalog, UnsupportedDistribution, distribution_of
from .software_set import Driver, Rdma, SoftwareSet, Source

__all__ = [
    "Distribution",
    "Driver",
    "Judgement",
    "Node",
    "NotInCatalog",
    "Rdma",
    "SoftwareSet",
    "Source",
    "UnsupportedDistribution",
    "distribution_of",
    "gpu_packages",
    "judge",
    "rdma_packages",
]
