# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The directory that a mount would hide: it has to be a plain, empty one, or not there yet.

Looked at by a program with a time limit: a parent directory may lie on a server that is dead.
"""

from __future__ import annotations

from ..commands import CommandError, NoAnswerError, Runner
from ..node.part import Node

SHOWN = 8


def refusal(node: Node, point: str, wait: Runner) -> str:
    """Why nothing may be mounted there, with the way out; empty where it may.

    Not to be asked of a point that is mounted or an automount point already.
    """
    path = str(node.path(point))
    try:
        real = wait(["realpath", "-m", "--", path]).stdout.rstrip("\n")
        found = wait(["find", path, "-maxdepth", "1", "-printf", "%y %P\\n"], check=False)
    except NoAnswerError as error:
        return (
            f"{point}: the directory cannot be looked at ({error}): it lies on a file system whose "
            "server does not answer, or behind a disk that does not. Bring that back, or mount "
            "elsewhere"
        )
    except CommandError as error:
        return f"{point}: the directory cannot be looked at: {error}"
    if real != path:
        target = "/" + real[len(str(node.root).rstrip("/")) :].lstrip("/")
        return (
            f"{point}: part of this path is a symbolic link; it is {target}, and systemd mounts "
            f"nothing at another name of a directory. Write mount: {target}, or remove the link"
        )
    rows = [line.split(" ", 1) for line in found.stdout.split("\n") if " " in line]
    if not rows:
        return ""
    if rows[0][0] != "d":
        return f"{point}: there is a file of this name, and no directory. Move it away"
    names = [row[1] for row in rows[1:]]
    if not names:
        return ""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return (
        f"{point}: nothing is mounted there, and the directory is not empty: it holds "
        f"{', '.join(sorted(names)[:SHOWN])}{more}. A mount would hide that. Move it away, or "
        "mount elsewhere"
    )
