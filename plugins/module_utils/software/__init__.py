# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The set of software of a node: its keys, what goes together, and its packages.

`read_software` takes the variable `cluster_software`; `judge` says what is known of its versions
together; `rdma_packages` and `gpu_packages` are its packages on a distribution.
"""

from __future__ import annotations

from .catalog import gpu_packages, rdma_packages
from .compatibility import Judgement, Node, judge
from .distribution import Distribution, NotInCatalog, UnsupportedDistribution, distribution_of
from .reading import SoftwareError, read_software
from .software_set import Driver, Rdma, SoftwareSet, Source

__all__ = [
    "Distribution",
    "Driver",
    "Judgement",
    "Node",
    "NotInCatalog",
    "Rdma",
    "SoftwareError",
    "SoftwareSet",
    "Source",
    "UnsupportedDistribution",
    "distribution_of",
    "gpu_packages",
    "judge",
    "rdma_packages",
    "read_software",
]
