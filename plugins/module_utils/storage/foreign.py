# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What stands in the way of a mount: /etc/fstab, units of others, automounters, files below it."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Optional

from ..core.commands import CommandError, NoAnswerError, Runner
from ..core.files import HEADER, FilePlan
from ..core.part import Node, PlanError
from ..core.text import some
from . import mounted, units
from .mounted import Mount
from .wanted_mounts import WantedMount

FSTAB = "etc/fstab"
ELSEWHERE = (
    *("etc/systemd/system.control", "run/systemd/system.control", "run/systemd/transient"),
    *("run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"),
    "lib/systemd/system",
)
"""Where units lie besides ours, those before and after ours in rank alike."""
SHOWN = 8


def in_fstab(node: Node, point: str) -> str:
    """The line of /etc/fstab that mounts something there, with its number; or empty."""
    for number, line in enumerate((node.read(FSTAB) or "").split("\n"), start=1):
        fields = line.split()
        if len(fields) < 2 or fields[0].startswith("#"):
            continue
        if posixpath.normpath(mounted.unescape(fields[1])) == point:
            return f"/{FSTAB}:{number}: {line.strip()}"
    return ""


def is_ours(text: Optional[str]) -> bool:
    """Whether a unit file is one of the mounts of this layer, and no other file of ours."""
    return text is not None and text.split("\n", 1)[0].endswith(HEADER) and units.MARK in text


def unit_elsewhere(node: Node, unit: str) -> str:
    """The file of another owner's unit of this name, or empty."""
    path = units.path_of(unit)
    text = node.read(path)
    if (text is not None or node.path(path).is_symlink()) and not is_ours(text):
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


def our_files(node: Node, point: str, kinds: Sequence[str]) -> list[FilePlan]:
    """Removal of the unit files of ours that are there."""
    names = [units.path_of(units.unit_name(point, kind)) for kind in kinds]
    return [node.file(name, None) for name in names if is_ours(node.read(name))]


def refuse(node: Node, each: WantedMount, table: Sequence[Mount]) -> None:
    """Raises PlanError where another owner has the mount point."""
    line = in_fstab(node, each.point)
    if line:
        raise PlanError(
            f"{each.point}: {line}: two cannot mount one directory, and an entry there can keep "
            "the node from booting. Remove the line; what is mounted by it is taken over"
        )
    for unit in (each.unit.mount, each.unit.automount):
        path = unit_elsewhere(node, unit)
        if path:
            raise PlanError(
                f"{each.point}: {path} is another unit for it, and not of these mounts. Remove it "
                f"(systemctl disable --now '{unit}' first), or mount {each.fs.name} elsewhere"
            )
    trap = mounted.trap(table, each.point)
    if trap is not None and trap.source != mounted.SYSTEMD:
        raise PlanError(
            f"{each.point}: an automounter has it (map {trap.source}). Take it out there, or mount "
            f"{each.fs.name} elsewhere"
        )
    if node.container:
        return
    runs = mounted.on(table, each.point)
    known = is_ours(node.read(units.path_of(each.unit.mount)))
    if runs is not None and not known and not each.of_this_kind(runs):
        raise PlanError(
            f"{each.point}: {runs.text} is mounted there, and not by this collection. Unmount it, "
            f"or mount {each.fs.name} elsewhere"
        )


def refuse_hidden(node: Node, point: str, wait: Runner) -> None:
    """Raises PlanError unless the directory is a plain, empty one, or not there yet.

    Looked at by a program with a time limit: a parent directory may lie on a server that is dead.
    Not to be asked of a point that is mounted or an automount point already.
    """
    path = str(node.path(point))
    try:
        real = wait(["realpath", "-m", "--", path]).stdout.rstrip("\n")
        found = wait(["find", path, "-maxdepth", "1", "-printf", "%y %P\\n"], check=False)
    except NoAnswerError as error:
        raise PlanError(
            f"{point}: the directory cannot be looked at ({error}): it lies on a file system that "
            "does not answer. Bring that back, or mount elsewhere"
        ) from error
    except CommandError as error:
        raise PlanError(f"{point}: the directory cannot be looked at: {error}") from error
    if real != path:
        target = "/" + real[len(str(node.root).rstrip("/")) :].lstrip("/")
        raise PlanError(
            f"{point}: part of this path is a symbolic link; it is {target}, and systemd mounts "
            f"nothing at another name of a directory. Write mount: {target}, or remove the link"
        )
    rows = [line.split(" ", 1) for line in found.stdout.split("\n") if " " in line]
    if rows and rows[0][0] != "d":
        raise PlanError(f"{point}: there is a file of this name, and no directory. Move it away")
    names = sorted(row[1] for row in rows[1:])
    if names:
        raise PlanError(
            f"{point}: nothing is mounted there, and the directory is not empty: it holds "
            f"{some(names, SHOWN)}. A mount would hide that. Move it away, or mount "
            "elsewhere"
        )
