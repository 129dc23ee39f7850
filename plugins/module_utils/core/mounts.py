# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The mounts of this machine, read only from the kernel's table: access to a mount point whose
server is dead would block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

MOUNTINFO = "proc/self/mountinfo"
AUTOFS = "autofs"
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    identity: int
    parent: int
    device: str
    """`major:minor`."""
    root: str
    """Mounted directory of the file system: `/`, or another one for a bind mount."""
    point: str
    flags: tuple[str, ...]
    """Options of this mount only: `rw`, `nosuid`, `relatime`."""
    kind: str
    """Type of the file system, such as `nfs4`."""
    source: str
    options: tuple[str, ...]
    """Options of the file system, as it reports them."""

    @property
    def text(self) -> str:
        inside = "" if self.root == "/" else f" {self.root} of it"
        return f"{self.source}{inside} ({self.kind})"


def read(root: Path = Path("/")) -> tuple[Mount, ...]:
    """Return all mounts. Raises OSError if the table cannot be read."""
    return parse((root / MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape"))


def parse(text: str) -> tuple[Mount, ...]:
    """Parse mountinfo; lines of an unknown form are skipped, as a newer kernel may add some."""
    found = (_line(line) for line in text.split("\n"))
    return tuple(mount for mount in found if mount is not None)


def _line(line: str) -> Optional[Mount]:
    before, dash, after = line.partition(" - ")
    first, last = before.split(" "), after.split(" ")
    if not dash or len(first) < 6 or len(last) < 3:
        return None
    try:
        identity, parent = int(first[0]), int(first[1])
    except ValueError:
        return None
    return Mount(
        identity,
        parent,
        first[2],
        unescape(first[3]),
        unescape(first[4]),
        tuple(first[5].split(",")),
        unescape(last[0]),
        unescape(last[1]),
        tuple(unescape(last[2]).split(",")),
    )


def unescape(text: str) -> str:
    """Decode a field, in which blanks, newlines, `\\` and `#` are three octal digits."""
    raw = text.encode("utf-8", "surrogateescape")
    plain = _OCTAL.sub(lambda found: bytes([int(found.group(1), 8) & 0xFF]), raw)
    return plain.decode("utf-8", "surrogateescape")


def on(mounts: Iterable[Mount], point: str) -> Optional[Mount]:
    """Return the uppermost mount at a mount point, automount points excluded."""
    return _uppermost([mount for mount in mounts if mount.point == point and mount.kind != AUTOFS])


def trap(mounts: Iterable[Mount], point: str) -> Optional[Mount]:
    """Return the automount point at `point`, even if a file system is mounted over it."""
    return _uppermost([mount for mount in mounts if mount.point == point and mount.kind == AUTOFS])


def _uppermost(stack: Sequence[Mount]) -> Optional[Mount]:
    """Return the mount that is the parent of no other."""
    parents = {mount.parent for mount in stack}
    tops = [each for each in stack if each.identity not in parents]
    return tops[-1] if tops else None


def holding(mounts: Iterable[Mount], path: str) -> Optional[Mount]:
    """Return the mount that contains a path, or that is mounted at it."""
    found = [mount for mount in mounts if within(path, mount.point) and mount.kind != AUTOFS]
    if not found:
        return None
    longest = max(len(each.point) for each in found)
    return _uppermost([each for each in found if len(each.point) == longest])


def below(mounts: Iterable[Mount], point: str) -> list[Mount]:
    return [mount for mount in mounts if mount.point != point and within(mount.point, point)]


def place(mounts: Iterable[Mount], directory: str) -> Optional[tuple[str, str]]:
    """Return device and directory on that device, as a bind mount of `directory` shows them."""
    mount = holding(mounts, directory)
    if mount is None:
        return None
    inside = directory[len(mount.point.rstrip("/")) :]
    whole = (mount.root.rstrip("/") + inside).rstrip("/") or "/"
    return mount.device, whole


def within(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def overlap(one: str, other: str) -> bool:
    return within(one, other) or within(other, one)
