# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Waiting for the lock of another package manager that is at work."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .manager import PackageError

WAIT_S = 300
"""As long as apt-get waits by itself (DPkg::Lock::Timeout)."""


@contextmanager
def locked(path: Path, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the lock file as apt and dpkg do (fcntl), or say who could not be waited for."""
    with path.open("a") as stream:
        until = time.monotonic() + wait_s
        while not _taken(stream.fileno()):
            if time.monotonic() > until:
                raise PackageError(
                    f"{path}: locked by another program for more than {wait_s:g} s. See what runs "
                    f"(fuser -v {path}), let it finish, then run again"
                )
            time.sleep(0.5)
        yield


def busy(path: Path) -> bool:
    """Whether another program holds the lock file now."""
    try:
        with path.open("r+") as stream:
            return not _taken(stream.fileno())
    except OSError:
        return False  # not there, or not ours to ask


def wait(path: Path, wait_s: float = WAIT_S) -> None:
    """Until nobody holds it."""
    if path.exists():
        with locked(path, wait_s):
            pass


def _taken(handle: int) -> bool:
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True
