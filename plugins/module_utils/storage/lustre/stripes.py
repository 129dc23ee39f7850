# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Stripe defaults of directories: where the files that are made there are spread.

Files that are there keep their layout. A directory is looked at only while its file system is
mounted, by a program with a time limit, and no further one on a file system that did not answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Optional

from ...checks import FAILED, Check, compare, not_applicable
from ...commands import CommandError, NoAnswerError
from ...dataclass import dataclass
from ...node.part import Node, Plan, Step, Verdict
from .. import mounted, units
from ..file_system import FileSystem
from ..paths import within
from .lnet import Kernel
from .settings import Stripes

CHECK = "lustre_stripes"
MIB = 1 << 20
_VALUE = re.compile(r"(?:^|\s)(?:lmm_)?(stripe_count|stripe_size|pool):\s*(\S+)")
_MANY = ("65535", "4294967295")
"""How releases print -1."""


@dataclass(frozen=True)
class Layout:
    count: int = 0
    size: int = 0
    """Bytes."""
    pool: str = ""
    composite: bool = False
    """PFL; then the rest says nothing."""

    def text(self, wanted: Stripes) -> str:
        """The part of it that is asked for."""
        if self.composite:
            return "composite layout"
        whole, rest = divmod(self.size, MIB)
        words = (
            f"count {self.count}" if wanted.count else "",
            f"size {f'{self.size} bytes' if rest else f'{whole} MiB'}" if wanted.size_mib else "",
            f"pool {self.pool or 'none'}" if wanted.pool else "",
        )
        return ", ".join(word for word in words if word)


def wanted_text(wanted: Stripes) -> str:
    return Layout(wanted.count, wanted.size_mib * MIB, wanted.pool).text(wanted)


def read_layout(text: str) -> Optional[Layout]:
    """Of what `lfs getstripe -d` prints, with -y or without; None where it shows no layout."""
    if "lcme_id:" in text:
        return Layout(composite=True)
    found = dict(_VALUE.findall(text))
    try:
        count = found["stripe_count"]
        return Layout(
            -1 if count in _MANY else int(count), int(found["stripe_size"]), found.get("pool", "")
        )
    except (KeyError, ValueError):
        return None


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
        steps = []
        for each in self.wanted if not self.kernel.missing(node) else ():
            try:
                layout = self._layout(each)
            except CommandError:
                continue  # which its check reports
            if layout is None and (node.container or self._is_armed(self._point(each))):
                continue  # what cannot be mounted by this run: its own check reports why
            before = "not mounted yet" if layout is None else layout.text(each)
            if before != wanted_text(each):
                what = f"stripes of new files in {each.directory}"
                steps.append(Step(what, before, wanted_text(each), partial(self._set, each)))
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        missing = self.kernel.missing(node)
        return Verdict([self._check(node, each, missing) for each in self.wanted])

    def _check(self, node: Node, each: Stripes, missing: str) -> Check:
        wanted, subject = wanted_text(each), each.directory
        try:
            layout = None if missing or not self._runs(each) else self._layout(each)
        except CommandError as error:
            return Check(CHECK, wanted, "unknown", FAILED, subject, str(error))
        if layout is None:
            why = missing or f"{self._point(each)} is not mounted now, which its own check judges"
            return not_applicable(CHECK, wanted, why, subject=subject)
        why = "lfs getstripe -d shows another default"
        found, check_mode = layout.text(each), node.check_mode
        return compare(CHECK, wanted, found, subject=subject, check_mode=check_mode, reason=why)

    def _set(self, each: Stripes) -> None:
        layout = self._layout(each)
        if layout is None or layout.text(each) == wanted_text(each):
            return  # that it is not mounted, the check of the mount reports
        # What is not given goes back to the file system's default: give what is set there.
        now = self._layout(each, "--raw")
        kept = now if now is not None and not now.composite else Layout()
        words = {
            "-c": each.count or kept.count,
            "-S": each.size_mib * MIB or kept.size,
            "-p": each.pool or kept.pool,
        }
        given = [word for key, value in words.items() if value for word in (key, str(value))]
        self.kernel.look(["lfs", "setstripe", *given, each.directory])

    def _layout(self, each: Stripes, *more: str) -> Optional[Layout]:
        """None where it is not mounted. Raises CommandError where it is not known."""
        point = self._point(each)
        if not self._is_mounted(point):
            return None
        if point in self._silent:
            raise CommandError(f"{self._silent[point]}: not asked again")
        argv = ["lfs", "getstripe", "-d", "-y", *more, each.directory]
        try:
            told = self.kernel.look(argv)
        except NoAnswerError as error:
            self._silent[point] = f"{error}: a server of {point} does not answer"
            raise
        layout = read_layout(told.stdout)
        if layout is None:
            raise CommandError(f"{' '.join(argv)}: no layout in {told.stdout[-500:]!r}")
        return layout

    def _point(self, each: Stripes) -> str:
        """The innermost mount point of Lustre that the directory lies in."""
        return max((p for p in self.points if within(each.directory, p)), key=len)

    def _runs(self, each: Stripes) -> bool:
        return self._point(each) in self.kernel.points()

    def _is_armed(self, point: str) -> bool:
        return mounted.trap(mounted.read(self.kernel.root), point) is not None

    def _is_mounted(self, point: str) -> bool:
        """What waits for its first use is mounted."""
        if point in self.kernel.points():
            return True
        if self._is_armed(point) and point not in self._silent:
            try:
                self.kernel.look(["systemctl", "start", units.unit_name(point, units.MOUNT)])
            except NoAnswerError as error:
                self._silent[point] = str(error)
            except CommandError:
                pass  # the check of the mount shows it, with what systemd says
        return point in self.kernel.points()
