# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A lock against concurrent reboots of a cluster, and a time limit for steps over a connection."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Optional

from ...module_utils.core.locks import alone
from ..deadline import TimeIsUpError, time_limit

NAME = "reboot.lock"


class LockedError(Exception):
    """Another run holds the lock; the message names its process."""


def take(directory: Path, pid: int, root: Path = Path("/")) -> Path:
    """Take the lock for process `pid`, an ansible-playbook, which may already hold it.

    It needs no release: that of a terminated process is void. Raises LockedError and HeldError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / NAME
    with alone(directory / f"{NAME}.busy"):
        holder = _holder(path)
        if holder is not None and holder[0] != pid and started(holder[0], root) == holder[1]:
            raise LockedError(
                f"another run is rebooting hosts of this cluster (process {holder[0]}, lock "
                f"{path}): wait for it, or see ps -fp {holder[0]}"
            )
        path.write_text(json.dumps([pid, started(pid, root)]) + "\n", encoding="ascii")
    return path


def started(pid: int, root: Path = Path("/")) -> Optional[str]:
    """Start time of a process in clock ticks after boot; None if it has terminated."""
    words = _stat(root / "proc" / str(pid) / "stat")
    return None if words[0] == "Z" else words[19]


def _holder(path: Path) -> Optional[tuple[int, str]]:
    try:
        pid, when = json.loads(path.read_text(encoding="ascii"))
        return int(pid), str(when)
    except (OSError, ValueError, TypeError):
        return None


def _stat(path: Path) -> list[str]:
    """The fields of /proc/PID/stat after the name; if the file is missing, those of a zombie."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return ["Z", "0"]


class StepTimeoutError(Exception):
    """A step exceeded its time limit and was terminated with the programs it had started."""


@contextlib.contextmanager
def bounded(seconds: float) -> Iterator[None]:
    """Raise StepTimeoutError after `seconds`, unless a time limit of Ansible expires first.

    The timeout of ssh covers only the login. A host with a dead disk accepts the login and then
    hangs, while its kernel still answers keep-alive packets.
    """
    before = _children()
    try:
        with time_limit(seconds):
            yield
    except TimeIsUpError:
        for child in _children() - before:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        raise StepTimeoutError(f"connected, but no answer within {seconds:g} s") from None


def _children() -> set[int]:
    """PIDs of running child processes."""
    pids = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        words = _stat(path)
        if words[0] != "Z" and int(words[1]) == os.getpid():
            pids.add(int(path.parent.name))
    return pids
