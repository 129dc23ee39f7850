# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Running processes and the files that they hold, by the links of /proc alone.

The kernel answers these from memory: no file system is asked, as fuser and lsof would. Processes of
containers are among them. A process that ends meanwhile holds nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

COMM_LENGTH = 15
"""The kernel keeps so many characters of a name."""
OPEN = "file"
"""How a process holds what it has opened."""


_SERVICE = re.compile(
    r":/(?:\S+/)?system\.slice/(?:\S+/)?([\w@.-]+\.service)(?:/\S*)?$", re.MULTILINE
)
"""In a process's control groups, of either version; a user's own services are in another slice."""


@dataclass(frozen=True)
class Opener:
    pid: int
    name: str
    file: str
    service: Optional[str] = None
    """The unit that it runs in, which stays when the jobs of a node have ended. Empty: in none of
    the system; None: not known."""

    def text(self) -> str:
        return f"{self.name} ({self.pid}{f', {self.service}' if self.service else ''})"


def pids(root: Path = Path("/")) -> list[int]:
    """In order. OSError where /proc cannot be read."""
    return sorted(int(each.name) for each in (root / "proc").iterdir() if each.name.isdigit())


def name(root: Path, pid: int) -> str:
    try:
        text = (root / f"proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "?"
    return text.strip() or "?"


def held(root: Path, pid: int) -> Iterator[tuple[str, str]]:
    """What a process holds, as how (`cwd`, `root`, `exe` or `file`) and the path."""
    folder = root / f"proc/{pid}"
    for how in ("cwd", "root", "exe"):
        yield from ((how, path) for path in _link(folder / how))
    try:
        for each in (folder / "fd").iterdir():
            yield from ((OPEN, path) for path in _link(each))
    except OSError:
        return


def openers(root: Path, wanted: Callable[[str], bool]) -> list[Opener]:
    """Processes that have a file open whose path is `wanted`, each once, by number."""
    found = []
    for pid in pids(root):
        files = (path for how, path in held(root, pid) if how == OPEN and wanted(path))
        file = next(files, None)
        if file is not None:
            found.append(Opener(pid, name(root, pid), file, service(root, pid)))
    return found


def service(root: Path, pid: int) -> Optional[str]:
    """The system's unit of a process; empty for one of a session or of a job."""
    try:
        text = (root / f"proc/{pid}/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = _SERVICE.search(text)
    return found[1] if found else ""


def _link(path: Path) -> Iterator[str]:
    try:
        yield str(path.readlink())
    except OSError:  # ended meanwhile, or a thread of the kernel
        return


def login_address(proc: Path = Path("/proc"), process: Optional[int] = None) -> str:
    """The server's end of the SSH connection this process runs in, or nothing.

    sudo takes SSH_CONNECTION out of the environment, so the processes above are asked as well.
    """
    number = os.getpid() if process is None else process
    with contextlib.suppress(OSError, ValueError, IndexError):
        while number > 1:
            for entry in (proc / str(number) / "environ").read_bytes().split(b"\0"):
                if entry.startswith(b"SSH_CONNECTION="):
                    return entry.decode("ascii", "replace").split("=", 1)[1].split()[2]
            status = (proc / str(number) / "stat").read_text(errors="replace")
            # The program's name, in brackets, may contain anything: the fields begin after it.
            number = int(status.rpartition(")")[2].split()[1])
    return ""
