# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet on a host that has no file system of Lustre any more: found, and taken away when asked.

It is asked for by the name of its file, in the list that takes mount points away. Packages stay,
as those of every other file system do.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ...core import systemd
from ...core.checks import FAILED, OK, PENDING, Check
from ...core.dataclass import dataclass
from ...core.files import HEADER
from ...core.part import Node, Plan, PlanError, Step, Verdict
from ...core.text import some
from .. import foreign
from ..units import value_of
from .lnet import CONF, DROP_IN, MODPROBE, SERVICE, Kernel, unload

CHECK = "lustre_left"
NAME = f"/{CONF}"
"""What stands for all of it in `shared_storage_absent`."""


def without_lnet(absent: Sequence[str]) -> list[str]:
    """The mount points and directories of the list."""
    return [path for path in absent if posixpath.normpath(path) != NAME]


@dataclass(frozen=True)
class LeftLnet:
    """`wanted`: this host has file systems of Lustre. `absent`: all that is to be taken away."""

    kernel: Kernel
    wanted: bool
    absent: Sequence[str] = ()

    @property
    def asked(self) -> bool:
        return len(without_lnet(self.absent)) < len(self.absent)

    def plan(self, node: Node) -> Plan:
        if self.asked and self.wanted:
            raise PlanError(
                f"shared_storage_absent: {NAME} is LNet, which the Lustre file systems of this "
                "host need. Remove one of the two"
            )
        files = self.files(node)
        if not self.asked or not files:
            return Plan()
        gone = {posixpath.normpath(path) for path in self.absent}
        mounts = [] if self.kernel.missing(node) else self.kernel.points()
        points = sorted({*self._units(node), *mounts} - gone)
        if points:
            raise PlanError(
                f"shared_storage_absent: {NAME} is LNet, and Lustre is mounted, or would be at its "
                f"first use, at {some(points)}. Unmount what was mounted by hand, and name the "
                "others beside it"
            )
        step = Step(
            "LNet",
            self._found(node, files),
            "unloaded, not started at boot, and without these files",
            lambda: self._end(node, files),
            shown=[node.file(name, None).diff() for name in files],
        )
        return Plan([], [step])

    def verify(self, node: Node) -> Verdict:
        files = [] if self.wanted else self.files(node)
        if not files:
            there = self.asked and not self.wanted
            return Verdict([Check(CHECK, "absent", "absent", OK, NAME)] if there else [])
        words = ", ".join(f'"{point}"' for point in [*self._units(node), NAME])
        why = (
            "no file system of this host is of Lustre any more. Put it back, or take LNet away "
            f"with -e '{{\"shared_storage_absent\": [{words}]}}' and --limit to these hosts"
        )
        status = PENDING if node.check_mode and self.asked else FAILED
        return Verdict(
            [Check(CHECK, "a Lustre file system", self._found(node, files), status, NAME, why)]
        )

    def files(self, node: Node) -> list[str]:
        """Those of this collection; others are kept."""
        first = {
            name: (node.read(name) or "").split("\n", 1)[0] for name in (CONF, MODPROBE, DROP_IN)
        }
        return [name for name, line in first.items() if HEADER in line]

    def _units(self, node: Node) -> list[str]:
        """Mount points of Lustre that have a unit of ours."""
        return list(foreign.our_points(node, lambda text: value_of(text, "Type") == "lustre"))

    def _found(self, node: Node, files: Sequence[str]) -> str:
        state = systemd.state(node, SERVICE)
        return ", ".join([f"/{name}" for name in files] + [f"{SERVICE} {state}"])

    def _end(self, node: Node, files: Sequence[str]) -> None:
        """The files last: interrupted before, and they are found again."""
        if not self.kernel.missing(node):
            unload(node, self.kernel)
        if systemd.installed(node, [SERVICE]):
            node.run(["systemctl", "disable", SERVICE])
        for name in files:
            node.file(name, None).apply()
        systemd.reload(node)
