# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Locks of this host, and the progress of the run that holds one.

The kernel releases a locked file if its process dies. A run whose ansible-playbook was killed
continues on the host. Any process that can open a file can lock it: therefore only root, or the
operators, can open these files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .files import make_directories, write_atomically
from .text import one_line

RUNS = Path("/run/baremetal-mpi-roce")
LOCKS = RUNS / "locks"
"""Mode 0700. The files next to it, such as the progress of runs, are world-readable."""
PATIENCE_S = 120.0
"""Longer than a run takes to wait for a rail, restore it and wait for the gateways."""
_POLL_S = 0.2
_COMMAND = 160
"""Maximum length at which the holder's command line is shown."""


class HeldError(Exception):
    """The lock was not released in time. The text names its holder and the remedy."""


class UnsafeError(OSError):
    """Another user could hold the lock or redirect its path."""


@contextlib.contextmanager
def progress(run_id: str) -> Iterator[Callable[[str], None]]:
    """Publish the progress of this process, which plugin_utils/detached.py reads."""
    path = RUNS / f"{run_id}.progress"
    try:
        yield lambda text: write_atomically(path, f"{os.getpid()}\n{text}\n", 0o644, 0, 0)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(
    path: Path,
    patience_s: float = PATIENCE_S,
    *,
    waiting: Callable[[float], None] = lambda _waited_s: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock `path`, which contains the PID of this process.

    `waiting` gets the seconds waited so far before each further attempt. Raises HeldError, and
    UnsafeError before a file of another user is opened.
    """
    _make_private(path.parent)
    # Not truncated when opened: it contains the PID of its holder.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise UnsafeError(f"{path}: not a file, so no lock of a run: remove it")
        acquire(handle, path, patience_s, waiting=waiting, sleep=sleep, clock=clock)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def acquire(
    handle: int,
    path: Path,
    patience_s: float,
    *,
    waiting: Callable[[float], None] = lambda _waited_s: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Lock the open file. Raises HeldError."""
    begin = clock()
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            waited = clock() - begin
            if waited >= patience_s:
                written = ""
                with contextlib.suppress(OSError):  # opened for writing only
                    written = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
                who = holder(os.fstat(handle), written)
                text = f"{path} is held, after {waited:.0f} s of waiting, by {who}"
                raise HeldError(text) from None
            waiting(waited)
            sleep(_POLL_S)


def _make_private(directory: Path) -> None:
    """Make a directory for this user; an existing one must belong to root, this user or a group."""
    make_directories(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(0o700)
    link, status = directory.lstat(), directory.stat()
    shared = status.st_mode & (stat.S_ISGID | stat.S_IWGRP) == stat.S_ISGID | stat.S_IWGRP
    owners = [] if shared else [status.st_uid]
    owners += [link.st_uid] if stat.S_ISLNK(link.st_mode) else []
    for owner in owners:
        if owner not in (0, os.geteuid()):
            raise UnsafeError(
                f"{directory}: belongs to user {owner}, who could hold or move the lock in"
                f" it: check its purpose, then remove it or chown it to user {os.geteuid()}"
            )
    if status.st_mode & stat.S_IWOTH:
        raise UnsafeError(f"{directory}: any user may write to it: chmod o-w {directory}")


def holder(status: os.stat_result, written: str, root: Path = Path("/")) -> str:
    """Describe the process that holds the lock, and the remedy. Its PID comes from the kernel's
    table of locks, or else from the file (`written`): in another PID namespace, the table is empty.
    """
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    pid = written if written.isdigit() else ""
    with contextlib.suppress(OSError):
        for line in (root / "proc/locks").read_text("ascii", "replace").splitlines():
            words = line.split()
            if words[1:2] == ["FLOCK"] and words[5:6] == [device] and int(words[4]) > 0:
                pid = words[4]
    if not pid:
        return "a process that the kernel does not name (another container, or it has just exited)"
    try:
        process = root / "proc" / pid
        command = (process / "cmdline").read_bytes()[:_COMMAND].replace(b"\0", b" ")
        ticks = int((process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[19])
        up = float((root / "proc/uptime").read_text("ascii").split()[0])
        began = time.time() - up + ticks / os.sysconf("SC_CLK_TCK")
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(began))
        shown = one_line(command.decode("utf-8", "replace")).strip()
    except (OSError, ValueError, IndexError):
        return f"process {pid}, which has just exited: run again"
    return (
        f"process {pid} ({shown}), since {since}: wait until it exits; or, if it hangs, terminate"
        f" it there (kill {pid}) and run again"
    )
