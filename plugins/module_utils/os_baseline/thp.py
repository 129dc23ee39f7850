# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Transparent hugepages: always, for programs that ask (madvise), or never."""

from __future__ import annotations

from ..dataclass import dataclass
from ..node.part import Node
from .sysfs import Unable, Wish, Write

FILE = "sys/kernel/mm/transparent_hugepage/enabled"


@dataclass(frozen=True)
class TransparentHugepages:
    mode: str

    def wishes(self, node: Node) -> list[Wish]:
        if node.container is not None:
            why = node.not_here("the kernel is the host's")
            return [Unable("transparent_hugepages", self.mode, why)]
        if not node.path(FILE).exists():
            why = "this kernel is built without them"
            return [Unable("transparent_hugepages", self.mode, why)]
        return [Write("transparent_hugepages", FILE, self.mode)]
