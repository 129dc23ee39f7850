# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is known of the cluster around its file systems: groups, hosts, and how hosts are called."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Optional

from ..dataclass import dataclass

WITH_SWITCHES = ("all", "leaf", "spine", "ungrouped")
"""Groups that hold switches or nobody: nothing is mounted there."""
WITHOUT_RAILS = ("launcher",)
"""Groups that have no RDMA: the layer `rdma` is of compute hosts."""


@dataclass(frozen=True)
class Site:
    groups: tuple[str, ...]
    """All there are."""
    hosts: Collection[str]
    """Nodes, launcher and storage hosts, by name."""
    names: Callable[[str], frozenset[str]]
    """Names and addresses by which others reach a host; asked only for hosts that matter."""
    more: frozenset[str] = frozenset()
    """Hosts that may have addresses besides: cables of storage hosts have addresses that no model
    knows."""

    def owner(self, server: str) -> Optional[str]:
        """The host that a name or address is of."""
        if server in self.hosts:
            return server
        return next((host for host in self.hosts if server in self.names(host)), None)
