# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What stands in the way of a mount: /etc/fstab, other units, automounters, files, processes."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from ..core import processes
from ..core.commands import CommandError, NoAnswerError, Runner
from ..core.files import HEADER
from ..core.part import Node, PlanError
from ..core.text import some
from . import mounted, units
from .mounted import Mount, within
from .units import WantedMount

FSTAB = "etc/fstab"
ELSEWHERE = (
    *("etc/systemd/system.control", "run/systemd/system.control", "run/systemd/transient"),
    *("run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"),
    "lib/systemd/system",
)
"""Where units lie besides ours, those before and after ours in rank alike."""
SHOWN = 8
_AT_ONCE = 4096
"""So many files are named in one command line."""


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


def our_points(node: Node, which: Callable[[str], bool] = lambda text: True) -> dict[str, str]:
    """Mount points that have a mount unit of ours on the node, and its file. `which`: by text."""
    found = {}
    for path in sorted(node.path(units.DIRECTORY).glob(f"*.{units.MOUNT}")):
        name = str(path.relative_to(node.root))
        text = node.read(name)
        if text is not None and is_ours(text) and which(text):
            found[units.value_of(text, "Where")] = f"/{name}"
    return found


def _unit_elsewhere(node: Node, unit: str) -> str:
    """The file of another owner's unit of this name, or empty."""
    path = units.path_of(unit)
    text = node.read(path)
    if (text is not None or node.path(path).is_symlink()) and not is_ours(text):
        return f"/{path}"
    places = (f"{directory}/{unit}" for directory in ELSEWHERE)
    return next((f"/{each}" for each in places if node.path(each).exists()), "")


def refuse(node: Node, each: WantedMount, table: Sequence[Mount]) -> None:
    """Raises PlanError where something else has the mount point."""
    line = in_fstab(node, each.point)
    if line:
        raise PlanError(
            f"{each.point}: {line}: two cannot mount one directory. Remove the line; what is "
            "mounted by it is taken over"
        )
    for kind in (units.MOUNT, units.AUTOMOUNT):
        unit = units.unit_name(each.point, kind)
        path = _unit_elsewhere(node, unit)
        if path:
            raise PlanError(
                f"{each.point}: {path} is another unit for it. Remove it (systemctl disable --now "
                f"'{unit}' first), or mount {each.fs.name} elsewhere"
            )
    trap = mounted.trap(table, each.point)
    if trap is not None and trap.source != mounted.SYSTEMD:
        raise PlanError(
            f"{each.point}: an automounter has it (map {trap.source}). Remove it there, or mount "
            f"{each.fs.name} elsewhere"
        )
    runs = None if node.container else mounted.on(table, each.point)
    known = is_ours(node.read(units.path_of(each.mount_unit)))
    if runs is not None and not known and not each.of_this_kind(runs):
        raise PlanError(
            f"{each.point}: {runs.text} is mounted there, and not by this collection. Unmount it, "
            f"or mount {each.fs.name} elsewhere"
        )


def refuse_hidden(node: Node, point: str, wait: Runner) -> None:
    """Raises PlanError unless the directory is a plain, empty one, or not there yet.

    Read by a program with a time limit: a parent directory may lie on a server that is dead. Not
    for a point that is mounted or an automount point already.
    """
    path = str(node.path(point))
    try:
        real = wait(["realpath", "-m", "--", path]).stdout.rstrip("\n")
        found = wait(["find", path, "-maxdepth", "1", "-printf", "%y %P\\n"], check=False)
    except CommandError as error:
        raise PlanError(f"{point}: the directory cannot be read: {error}") from error
    if real != path:
        target = "/" + real[len(str(node.root).rstrip("/")) :].lstrip("/")
        raise PlanError(
            f"{point}: part of this path is a symbolic link to {target}, which systemd does not "
            f"mount over. Write mount: {target}, or remove the link"
        )
    rows = [line.split(" ", 1) for line in found.stdout.split("\n") if " " in line]
    if rows and rows[0][0] != "d":
        raise PlanError(f"{point}: not a directory. Move it away")
    names = sorted(row[1] for row in rows[1:])
    if names:
        raise PlanError(
            f"{point}: nothing is mounted there, and the directory is not empty: it holds "
            f"{some(names, SHOWN)}. A mount would hide that. Move it away, or mount elsewhere"
        )


# Processes that hold a mount


def in_use(node: Node, point: str, table: Sequence[Mount], wait: Runner) -> str:
    """What keeps a mount from being unmounted; empty where nothing does.

    Processes are found by the links of /proc alone, which the kernel answers from memory: fuser and
    lsof query the file system itself, and wait with it where its server is dead.
    """
    inner = [each.point for each in mounted.below(table, point)]
    if inner:
        return f"mounts in it: {', '.join(sorted(set(inner)))}"
    pids = processes.pids(node.root)
    how = {pid: way for pid in pids if (way := _held(node.root, pid, point))}
    try:
        how.update(_mapping(point, [pid for pid in pids if pid not in how], node.root, wait))
    except NoAnswerError as error:
        return (
            f"unknown processes: {error}. One of them waits for a server that does not answer (ps "
            "-eo pid,stat,wchan:30,comm | grep ' D')"
        )
    held = [_shown(node.root, pid, way) for pid, way in sorted(how.items())]
    return f"processes that use it: {some(held, SHOWN)}" if held else ""


def _held(root: Path, pid: int, point: str) -> str:
    held = processes.held(root, pid)
    ways = (how for how, path in held if within(path.removesuffix(" (deleted)"), point))
    return next(ways, "")


def _mapping(point: str, pids: Sequence[int], root: Path, wait: Runner) -> dict[int, str]:
    """Those that have a file below `point` in their memory, such as a shared library."""
    found = {}
    words = ["grep", "-lsF", "-e", f" {point}/", "--"]
    for first in range(0, len(pids), _AT_ONCE):
        maps = [str(root / f"proc/{pid}/maps") for pid in pids[first : first + _AT_ONCE]]
        # 1: none; 2: one of them ended meanwhile, or cannot be read.
        result = wait([*words, *maps], check=False)
        for line in filter(None, result.stdout.splitlines()):
            found[int(Path(line).parent.name)] = "mapped"
    return found


def _shown(root: Path, pid: int, how: str) -> str:
    lines = (line.split() for line in _read(root / f"proc/{pid}/status").splitlines())
    uid = next((words[1] for words in lines if words[:1] == ["Uid:"]), "?")
    rows = (line.split(":") for line in _read(root / "etc/passwd").splitlines())
    user = next((row[0] for row in rows if len(row) > 3 and row[2] == uid), f"uid {uid}")
    return f"{processes.name(root, pid)} (pid {pid}, {user}, {how})"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
