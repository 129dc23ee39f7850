# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stripe defaults of directories: where the files that are made there are spread.

Files that are there keep their layout. A directory is looked at only while its file system is
mounted, by a program with a time limit, and no further one on a file system that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from typing import Optional

from ansible_collections.baremetal.mpi_roce.plugins.module_utils.checks import (
    FAILED,
    Check,
    compare,
    not_applicable,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.commands import (
    CommandError,
    NoAnswerError,
)
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.dataclass import dataclass
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.node.part import (
    Node,
    Plan,
    Step,
    StepError,
    Verdict,
)

from .. import mounted, units
from ..file_system import FileSystem
from .kernel import Kernel
from .settings import Stripes

CHECK = "lustre_stripes"
UNKNOWN = "unknown"
ALL = -1
MIB = 1 << 20
_VALUE = {
    "count": re.compile(r"(?:^|\s)(?:lmm_)?stripe_count:\s*(-?\d+)"),
    "size": re.compile(r"(?:^|\s)(?:lmm_)?stripe_size:\s*(\d+)"),
    "pool": re.compile(r"(?:^|\s)(?:lmm_)?pool:\s*(\S+)"),
}
_COMPONENT = re.compile(r"^\s*(?:-\s*)?lcme_id:", re.MULTILINE)
_MANY = (0xFFFF, 0xFFFFFFFF)
"""How releases print -1."""


@dataclass(frozen=True)
class Layout:
    count: int = 0
    size: int = 0
    """Bytes."""
    pool: str = ""
    components: int = 0
    """Of a composite layout (PFL); then the rest says nothing."""

    def text(self, wanted: Stripes) -> str:
        """What of it the wish is about."""
        if self.components:
            return f"composite layout of {self.components} components"
        words = []
        if wanted.count:
            words.append(f"count {self.count}")
        if wanted.size_mib:
            whole, rest = divmod(self.size, MIB)
            words.append(f"size {self.size} bytes" if rest else f"size {whole} MiB")
        if wanted.pool:
            words.append(f"pool {self.pool or 'none'}")
        return ", ".join(words)


def wanted_text(wanted: Stripes) -> str:
    return Layout(wanted.count, wanted.size_mib * MIB, wanted.pool).text(wanted)


def read_layout(text: str) -> Optional[Layout]:
    """Of what `lfs getstripe -d` prints, with -y or without; None where it tells no layout."""
    components = len(_COMPONENT.findall(text))
    if components:
        return Layout(components=components)
    found = {name: pattern.search(text) for name, pattern in _VALUE.items()}
    count, size, pool = found["count"], found["size"], found["pool"]
    if count is None or size is None:
        return None
    number = int(count[1])
    return Layout(ALL if number in _MANY else number, int(size[1]), pool[1] if pool else "")


def wishes(filesystems: Sequence[FileSystem], further: Sequence[Stripes]) -> list[Stripes]:
    """Of the file systems themselves, and of directories in them; without those that ask nothing.

    A directory of `further` that is a mount point comes in place of what its file system says.
    """
    found = {
        fs.mount: Stripes(
            fs.mount, fs.lustre.stripe_count, fs.lustre.stripe_size_mib, fs.lustre.pool
        )
        for fs in filesystems
    }
    found.update({each.directory.rstrip("/"): each for each in further})
    return [each for each in found.values() if each.count or each.size_mib or each.pool]


@dataclass
class StripesPart:
    """`points`: mount points of Lustre on this host. Comes after what mounts them."""

    wanted: Sequence[Stripes]
    points: Sequence[str]
    kernel: Kernel
    _silent: dict[str, str] = field(default_factory=dict, init=False)
    """Mount point to what did not answer there."""

    def plan(self, node: Node) -> Plan:
        if self.kernel.missing(node):
            return Plan()
        steps = []
        for each in self.wanted:
            point = self._point(each)
            if node.container and not self._is_mounted(point):
                continue  # nor will it be: mounts are made by the kernel of its host
            if not self._is_mounted(point) and not self._mount_armed(node, point):
                steps.append(self._step(node, each, "not mounted yet"))
                continue
            if not self._is_mounted(point):
                continue  # whoever mounts says why it is not
            layout, _why = self._look(each)
            if layout is not None and layout.text(each) != wanted_text(each):
                steps.append(self._step(node, each, layout.text(each)))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        return Verdict([self._check(node, each, missing) for each in self.wanted])

    def _check(self, node: Node, each: Stripes, missing: str) -> Check:
        wanted, subject = wanted_text(each), each.directory
        if missing:
            return not_applicable(CHECK, wanted, missing, subject=subject)
        point = self._point(each)
        if not self._is_mounted(point):
            why = f"{point} is not mounted now, which its own check judges"
            return not_applicable(CHECK, wanted, why, subject=subject)
        layout, why = self._look(each)
        if layout is None:
            return Check(CHECK, wanted, UNKNOWN, FAILED, subject, why)
        return compare(
            CHECK,
            wanted,
            layout.text(each),
            subject=subject,
            check_mode=node.check_mode,
            reason="somebody sets another default: lfs getstripe -d tells it",
        )

    def _step(self, node: Node, each: Stripes, before: str) -> Step:
        return Step(
            f"stripes of new files in {each.directory}",
            before,
            wanted_text(each),
            lambda: self._set(node, each),
        )

    def _set(self, node: Node, each: Stripes) -> None:
        point = self._point(each)
        if not self._is_mounted(point) and not (
            self._mount_armed(node, point) and self._is_mounted(point)
        ):
            return  # said by the check of the mount
        layout, why = self._look(each)
        if layout is None:
            raise StepError(why)
        if layout.text(each) == wanted_text(each):
            return
        # What is not given goes back to the file system's default: give what is set there.
        now, _why = self._look(each, "--raw")
        kept = now if now is not None and not now.components else Layout()
        count = each.count or kept.count
        size = each.size_mib * MIB or kept.size
        pool = each.pool or kept.pool
        words = [
            *(("-c", str(count)) if count else ()),
            *(("-S", str(size)) if size else ()),
            *(("-p", pool) if pool else ()),
        ]
        try:
            self.kernel.look(["lfs", "setstripe", *words, each.directory])
        except CommandError as error:
            hint = ""
            if "Permission denied" in str(error) or "not permitted" in str(error):
                hint = (
                    ". The servers squash root (root_squash of the nodemap or the MDT): let its "
                    "owner set it there, or leave the stripes of this file system out"
                )
            elif "pool" in str(error).lower():
                hint = ". `lfs pool_list` shows the pools that there are"
            raise StepError(f"{error}{hint}") from error

    def _look(self, each: Stripes, *more: str) -> tuple[Optional[Layout], str]:
        """The layout, or None and why it is not known."""
        point = self._point(each)
        if point in self._silent:
            return None, f"{self._silent[point]}: not asked again"
        try:
            told = self.kernel.look(
                ["lfs", "getstripe", "-d", "-y", *more, each.directory], check=False
            )
        except NoAnswerError as error:
            self._silent[point] = f"{error}: a server of {point} does not answer"
            return None, self._silent[point]
        except CommandError as error:
            return None, str(error)
        layout = read_layout(told.stdout) if told.rc == 0 else None
        if layout is not None:
            return layout, ""
        said = (told.stderr.strip() or told.stdout.strip() or "it printed nothing")[-500:]
        hint = ""
        if "No such file" in said:
            hint = ". Make the directory, or correct shared_storage_lustre.stripes"
        return None, f"lfs getstripe -d {each.directory}: {said}{hint}"

    def _point(self, each: Stripes) -> str:
        """The innermost mount point of Lustre that the directory lies in."""
        return max((p for p in self.points if mounted.within(each.directory, p)), key=len)

    def _is_mounted(self, point: str) -> bool:
        return any(mount.point == point for mount in self.kernel.mounts())

    def _mount_armed(self, node: Node, point: str) -> bool:
        """Mount what waits for its first use; whether there was an automount point at all."""
        if mounted.trap(mounted.read(self.kernel.root), point) is None:
            return False
        if point in self._silent:
            return True
        unit = units.unit_name(point, units.MOUNT)
        try:
            self.kernel.look(["systemctl", "start", unit])
        except NoAnswerError as error:
            self._silent[point] = f"{error}: {point} could not be mounted"
        except CommandError:
            pass  # the check of the mount tells it, with what systemd says
        return True
