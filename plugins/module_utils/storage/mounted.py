# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is mounted, by the kernel's own table alone.

Nothing here touches a mount point: to ask a file system whose server is dead is to wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Optional

from ..core.mounts import Mount as Mount
from ..core.mounts import parse as parse
from ..core.mounts import read as read
from ..core.mounts import unescape as unescape

AUTOFS = "autofs"
SYSTEMD = "systemd-1"
"""The source of an automount point that systemd made; other automounters name their map."""
NOTHING = "not mounted"


def on(mounts: Iterable[Mount], point: str) -> Optional[Mount]:
    """What is seen at a mount point: the uppermost of what is mounted on it, traps left out."""
    return _uppermost([each for each in mounts if each.point == point and each.kind != AUTOFS])


def trap(mounts: Iterable[Mount], point: str) -> Optional[Mount]:
    """The automount point there, whether or not something is mounted over it."""
    return _uppermost([each for each in mounts if each.point == point and each.kind == AUTOFS])


def _uppermost(stack: Sequence[Mount]) -> Optional[Mount]:
    """Each lies on its parent. What is no parent here is on top."""
    parents = {each.parent for each in stack}
    tops = [each for each in stack if each.identity not in parents]
    return tops[-1] if tops else None


def holding(mounts: Iterable[Mount], path: str) -> Optional[Mount]:
    """The mount on which a path lies; itself, where it is a mount point."""
    found = [each for each in mounts if within(path, each.point) and each.kind != AUTOFS]
    if not found:
        return None
    longest = max(len(each.point) for each in found)
    return _uppermost([each for each in found if len(each.point) == longest])


def below(mounts: Iterable[Mount], point: str) -> list[Mount]:
    """What is mounted further down."""
    return [each for each in mounts if each.point != point and within(each.point, point)]


def place(mounts: Iterable[Mount], directory: str) -> Optional[tuple[str, str]]:
    """A directory as device and directory on it: what a bind mount of it shows."""
    mount = holding(mounts, directory)
    if mount is None:
        return None
    inside = directory[len(mount.point.rstrip("/")) :]
    whole = (mount.root.rstrip("/") + inside).rstrip("/") or "/"
    return mount.device, whole


def within(path: str, directory: str) -> bool:
    """Whether the path is the directory, or in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def overlap(one: str, other: str) -> bool:
    return within(one, other) or within(other, one)
