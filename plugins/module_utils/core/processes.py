# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running processes and their open files, those of containers included, read only from the links in
/proc: fuser and lsof would access file systems."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

COMM_LENGTH = 15
"""Length to which the kernel truncates a process name."""
OPEN = "file"
"""Kind of use for open files; the others are `cwd`, `root` and `exe`."""


_SERVICE = re.compile(
    r":/(?:\S+/)?system\.slice/(?:\S+/)?([\w@.-]+\.service)(?:/\S*)?$", re.MULTILINE
)
"""In a process's control groups, of either version; services of users are in another slice."""


@dataclass(frozen=True)
class Opener:
    pid: int
    name: str
    file: str
    service: Optional[str] = None
    """System unit of the process; empty if it has none, None if unknown."""

    def text(self) -> str:
        return f"{self.name} ({self.pid}{f', {self.service}' if self.service else ''})"


def pids(root: Path = Path("/")) -> list[int]:
    """Return all PIDs in order. Raises OSError if /proc cannot be read."""
    return sorted(int(each.name) for each in (root / "proc").iterdir() if each.name.isdigit())


def name(root: Path, pid: int) -> str:
    try:
        text = (root / f"proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return text.strip() or "?"


def held(root: Path, pid: int) -> Iterator[tuple[str, str]]:
    """Yield kind (`cwd`, `root`, `exe` or `file`) and path of each file that a process uses."""
    folder = root / f"proc/{pid}"
    for how in ("cwd", "root", "exe"):
        yield from ((how, path) for path in _link(folder / how))
    try:
        for each in (folder / "fd").iterdir():
            yield from ((OPEN, path) for path in _link(each))
    except OSError:
        return


def openers(root: Path, wanted: Callable[[str], bool]) -> list[Opener]:
    """Return the processes that have a file open whose path is `wanted`, by PID."""
    found = []
    for pid in pids(root):
        files = (path for how, path in held(root, pid) if how == OPEN and wanted(path))
        file = next(files, None)
        if file is not None:
            found.append(Opener(pid, name(root, pid), file, service(root, pid)))
    return found


def service(root: Path, pid: int) -> Optional[str]:
    """Return the system unit of a process; empty for a process of a session or job."""
    try:
        text = (root / f"proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _SERVICE.search(text)
    return found[1] if found else ""


def _link(path: Path) -> Iterator[str]:
    try:
        yield str(path.readlink())
    except OSError:  # it has exited, or is a kernel thread
        return


def login_address(proc: Path = Path("/proc"), process: Optional[int] = None) -> str:
    """Return the server address of the SSH connection of this process or, as sudo removes
    SSH_CONNECTION, of a parent process; empty if there is none."""
    number = os.getpid() if process is None else process
    with contextlib.suppress(OSError, ValueError, IndexError):
        while number > 1:
            for entry in (proc / str(number) / "environ").read_bytes().split(b"\0"):
                if entry.startswith(b"SSH_CONNECTION="):
                    return entry.decode("ascii", "replace").split("=", 1)[1].split()[2]
            status = (proc / str(number) / "stat").read_text(errors="replace")
            # The fields begin after the program's name, which is in parentheses and may contain
            # parentheses.
            number = int(status.rpartition(")")[2].split()[1])
    return ""
