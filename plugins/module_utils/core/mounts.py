# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is mounted, by the kernel's own table alone.

Nothing here touches a mount point: to ask a file system whose server is dead is to wait for it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Optional

from .dataclass import dataclass

MOUNTINFO = "proc/self/mountinfo"
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    identity: int
    parent: int
    device: str
    """`major:minor`."""
    root: str
    """Directory of the file system that is mounted: `/`, or another for a bind mount."""
    point: str
    flags: tuple[str, ...]
    """Options of this mount alone: `rw`, `nosuid`, `relatime`."""
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
    """OSError where the table cannot be read."""
    return parse((root / MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape"))


def parse(text: str) -> tuple[Mount, ...]:
    """Lines of another form are left out: a newer kernel may add some."""
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
    """A field as it is: the kernel writes blanks, newlines, `\\` and `#` as three octal digits."""
    raw = text.encode("utf-8", "surrogateescape")
    plain = _OCTAL.sub(lambda found: bytes([int(found.group(1), 8) & 0xFF]), raw)
    return plain.decode("utf-8", "surrogateescape")
