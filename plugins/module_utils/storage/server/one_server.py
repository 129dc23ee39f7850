# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One server at a time: what the kernel serves here is not served by nfs-ganesha as well.

Both want port 2049, and each has file handles of its own: a change loses what clients have open,
so it is the operator's to make, with nothing mounted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dataclass import dataclass
from ...files import HEADER
from ...node.part import Node, Plan, PlanError, Verdict
from . import exports_file, ganesha, ganesha_conf, others, services
from .served import Served


@dataclass(frozen=True)
class OneServer:
    served: Sequence[Served]
    kernel: bool
    """Who is to serve: the kernel, else nfs-ganesha."""

    def plan(self, node: Node) -> Plan:
        before, paths = self._other(node)
        if not paths:
            return Plan()
        file, unit, ending = (
            (ganesha.FILE, ganesha.UNIT, "")
            if self.kernel
            else (others.FILE, services.UNIT, ", which ends exports of your own too")
        )
        now = "the kernel" if self.kernel else "nfs-ganesha"
        raise PlanError(
            f"{', '.join(paths)}: {before} serves it here, and {now} is to "
            "(shared_storage_server). Its clients would be told that their files are stale, and "
            "both want one port. Put the setting back; or unmount it on all nodes, then "
            f"systemctl disable --now {unit}{ending}, remove /{file}, and run again"
        )

    def verify(self, node: Node) -> Verdict:
        return Verdict()

    def _other(self, node: Node) -> tuple[str, list[str]]:
        """Who serves here besides, and which directories."""
        if self.kernel:
            text = node.read(ganesha.FILE) or ""
            known = ganesha_conf.parse(text) if HEADER in text else ()
            wanted = {each.path for each in self.served}
            return "nfs-ganesha", [each.path for each in known if each.path in wanted]
        if node.container:  # whose kernel serves nothing, whatever the file says
            return "", []
        blocks = exports_file.parse(node.read(others.FILE) or "")
        return "the kernel", [each.path for each in blocks]
