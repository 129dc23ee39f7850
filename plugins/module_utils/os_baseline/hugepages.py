# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Hugepages, per NUMA node or in all; those of 1 GiB by the kernel command line as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Optional

from ..dataclass import dataclass
from ..node.part import Node, PlanError
from .sysfs import Unable, Wish, Write

KIB = {"2M": 2048, "1G": 1048576}


@dataclass(frozen=True)
class Pool:
    """So many pages of one size, on one NUMA node or (None) wherever the kernel puts them."""

    size: str
    count: int
    node: Optional[int] = None

    @property
    def directory(self) -> str:
        place = "kernel/mm" if self.node is None else f"devices/system/node/node{self.node}"
        return f"sys/{place}/hugepages/hugepages-{KIB[self.size]}kB"

    @property
    def subject(self) -> str:
        return self.size if self.node is None else f"{self.size} on NUMA node {self.node}"


@dataclass(frozen=True)
class Hugepages:
    pools: Sequence[Pool] = ()

    @classmethod
    def from_options(cls, entries: Sequence[Mapping[str, Any]]) -> Hugepages:
        pools = [Pool(each["size"], each["count"], each.get("node")) for each in entries]
        findings = [
            f"hugepages {pool.subject}: {pool.count} is not a count"
            for pool in pools
            if pool.count < 0
        ]
        for size in KIB:
            places = [pool.node for pool in pools if pool.size == size]
            if len(set(places)) != len(places):
                findings.append(f"hugepages {size}: the same place is given twice")
            if None in places and len(places) > 1:
                findings.append(f"hugepages {size}: give one total, or one count per NUMA node")
        if findings:
            raise PlanError("\n".join(findings))
        return cls(tuple(pools))

    def kernel_arguments(self) -> list[str]:
        """1 GiB pages need memory that only the boot still has in one piece."""
        large = [pool for pool in self.pools if pool.size == "1G"]
        if not large:
            return []
        if large[0].node is None:
            return ["hugepagesz=1G", f"hugepages={large[0].count}"]
        counts = ",".join(f"{pool.node}:{pool.count}" for pool in large)
        return ["hugepagesz=1G", f"hugepages={counts}"]

    def wishes(self, node: Node) -> list[Wish]:
        return [self._wish(node, pool) for pool in self.pools]

    def _wish(self, node: Node, pool: Pool) -> Wish:
        value = str(pool.count)
        if node.container is not None:
            why = node.not_here("hugepages are the host kernel's")
            return Unable("hugepages", value, why, pool.subject)
        if not node.path(pool.directory).is_dir():
            why = f"there is no /{pool.directory}: no such NUMA node, or no such page size"
            return Unable("hugepages", value, why, pool.subject, fault=True)
        return Write(
            "hugepages", f"{pool.directory}/nr_hugepages", value, pool.subject, boot_helps=True
        )
