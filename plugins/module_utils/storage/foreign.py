# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who else speaks for a mount point: /etc/fstab, and units that are not ours."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Optional

from ..dataclass import dataclass
from ..files import HEADER
from ..node.part import Node
from . import mounted, units

FSTAB = "etc/fstab"
ELSEWHERE = (
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
"""Where units lie besides ours, those before and after ours in rank alike."""


@dataclass(frozen=True)
class FstabLine:
    number: int
    text: str
    point: str


def fstab(node: Node) -> list[FstabLine]:
    found = []
    for number, line in enumerate((node.read(FSTAB) or "").split("\n"), start=1):
        fields = line.split()
        if len(fields) < 2 or fields[0].startswith("#"):
            continue
        point = mounted.unescape(fields[1])
        if point.startswith("/"):
            found.append(FstabLine(number, line.strip(), posixpath.normpath(point)))
    return found


def in_fstab(node: Node, point: str) -> Optional[FstabLine]:
    return next((line for line in fstab(node) if line.point == point), None)


def is_ours(text: Optional[str]) -> bool:
    """Whether a unit file is one of the mounts of this layer, and no other file of ours."""
    if text is None:
        return False
    return text.split("\n", 1)[0].endswith(HEADER) and units.MARK in text


def unit_elsewhere(node: Node, unit: str) -> str:
    """The file of somebody else's unit of this name, or empty."""
    path = units.path_of(unit)
    text = node.read(path)
    if text is not None and not is_ours(text):
        return f"/{path}"
    if text is None and node.path(path).is_symlink():
        return f"/{path}"
    places = (f"{directory}/{unit}" for directory in ELSEWHERE)
    return next((f"/{each}" for each in places if node.path(each).exists()), "")


def value_of(text: str, key: str) -> str:
    """Of a unit file that this layer wrote; empty where it has none."""
    lines = (line for line in text.split("\n") if line.startswith(f"{key}="))
    return next(lines, "=").partition("=")[2].replace("%%", "%")


def our_points(node: Node, which: Callable[[str], bool] = lambda text: True) -> dict[str, str]:
    """Mount points that have a mount unit of ours on the node, and its file. `which`: by text."""
    found = {}
    for path in sorted(node.path(units.DIRECTORY).glob(f"*.{units.MOUNT}")):
        name = str(path.relative_to(node.root))
        text = node.read(name)
        if text is not None and is_ours(text) and which(text):
            found[value_of(text, "Where")] = f"/{name}"
    return found
