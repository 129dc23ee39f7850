# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One run of reboots at a time for a cluster, on this controller.

The lock names the ansible-playbook that holds it, by its id and the time it started. It needs no
release: that of a process which is gone, however it went, counts for nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Optional

NAME = "reboot.lock"


class LockedError(Exception):
    """Another run is at it; the text says which."""


def take(directory: Path, pid: int, root: Path = Path("/")) -> Path:
    """Take the lock for process `pid`, or find that it has it already."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / NAME
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)  # for as long as it takes to read and write it
        holder = _holder(stream.read())
        if holder is not None and holder[0] != pid and started(holder[0], root) == holder[1]:
            raise LockedError(
                f"another run reboots hosts of this cluster (process {holder[0]}, lock {path}): "
                f"let it end, or look at it with ps -fp {holder[0]}"
            )
        stream.seek(0)
        stream.truncate()
        stream.write(json.dumps([pid, started(pid, root)]) + "\n")
    return path


def started(pid: int, root: Path = Path("/")) -> Optional[str]:
    """When a process started, in ticks since the kernel did; None when there is none."""
    try:
        text = (root / "proc" / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    words = text.rpartition(")")[2].split()
    return None if words[0] == "Z" else words[19]


def _holder(text: str) -> Optional[tuple[int, str]]:
    try:
        pid, when = json.loads(text)
        return int(pid), str(when)
    except (ValueError, TypeError):
        return None  # never written whole
