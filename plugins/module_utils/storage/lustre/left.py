# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""LNet on a host that has no file system of Lustre any more: found, and taken away when asked.

It is asked for by the name of its file, in the list that takes mount points away. Packages stay,
as those of every other file system do.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    OK,
    PENDING,
    Check,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.files import HEADER
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node import systemd
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import (
    Node,
    Plan,
    PlanError,
    Step,
    StepError,
    Verdict,
)

from .. import foreign
from .kernel import Kernel
from .lnet_file import CONF, DROP_IN, MODPROBE, SERVICE

CHECK = "lustre_left"
NAME = f"/{CONF}"
"""What stands for all of it in `shared_storage_absent`."""
SHOWN = 8


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
        if not self.asked:
            return Plan()
        if self.wanted:
            raise PlanError(
                f"shared_storage_absent: {NAME} is LNet, which the Lustre file systems of this "
                "host need. Remove one of the two"
            )
        files = self.files(node)
        if not files:
            return Plan()
        points = self._needed(node)
        if points:
            raise PlanError(
                f"shared_storage_absent: {NAME} is LNet, and Lustre is mounted, or would be at its "
                f"first use, at {_some(points)}. Unmount what was mounted by hand, and name the "
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
        if self.wanted:
            return Verdict()
        files = self.files(node)
        if not files:
            return Verdict([Check(CHECK, "absent", "absent", OK, NAME)] if self.asked else [])
        points = [*foreign.our_points(node, _of_lustre), NAME]
        words = ", ".join(f'"{point}"' for point in dict.fromkeys(points))
        why = (
            "no file system of this host is of Lustre any more. Put it back, or take LNet away "
            f"with -e '{{\"shared_storage_absent\": [{words}]}}' and --limit to these hosts"
        )
        status = PENDING if node.check_mode and self.asked else FAILED
        return Verdict(
            [Check(CHECK, "a Lustre file system", self._found(node, files), status, NAME, why)]
        )

    def files(self, node: Node) -> list[str]:
        """Those of ours; what somebody wrote himself is his."""
        return [name for name in (CONF, MODPROBE, DROP_IN) if _is_ours(node.read(name))]

    def _needed(self, node: Node) -> list[str]:
        """Where Lustre is mounted, or its automount point waits, and nobody says that it goes."""
        gone = {posixpath.normpath(path) for path in self.absent}
        ours = list(foreign.our_points(node, _of_lustre))
        theirs = [] if node.container and not self.kernel.simulated else self._points()
        return sorted({*ours, *theirs} - gone)

    def _points(self) -> list[str]:
        return [mount.point for mount in self.kernel.mounts()]

    def _found(self, node: Node, files: Sequence[str]) -> str:
        state = systemd.state(node, SERVICE)
        return ", ".join([f"/{name}" for name in files] + [f"{SERVICE} {state}"])

    def _end(self, node: Node, files: Sequence[str]) -> None:
        """The files last: interrupted before, and they are found again."""
        missing = self.kernel.missing(node)
        points = [] if missing else self._points()
        if points:
            raise StepError(
                f"Lustre is still mounted at {_some(points)}: LNet stays as it is. Unmount it, "
                "then run again"
            )
        if systemd.installed(node, [SERVICE]):
            node.run(["systemctl", "disable", SERVICE])
            if not missing:
                systemd.stop(node, SERVICE)
        loaded = self.kernel.root / "sys/module/lnet"
        if not missing and loaded.exists():
            node.run(["lustre_rmmod"])
            if loaded.exists():
                raise StepError(
                    "LNet could not be unloaded: something still uses its modules (lsmod | grep "
                    "lnet). End that, or reboot the node, then run again"
                )
        for name in files:
            node.file(name, None).apply()
        systemd.reload(node)


def _of_lustre(text: str) -> bool:
    """Whether a mount unit is of Lustre."""
    return foreign.value_of(text, "Type") == "lustre"


def _is_ours(text: Optional[str]) -> bool:
    return text is not None and HEADER in text.split("\n", 1)[0]


def _some(points: Sequence[str]) -> str:
    more = f" and {len(points) - SHOWN} more" if len(points) > SHOWN else ""
    return f"{', '.join(points[:SHOWN])}{more}"
