# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One at a time on this host, by a locked file: the kernel frees the lock of a process that dies.
And what a run does meanwhile, for the action that watches it.

A run whose ansible-playbook was killed goes on to its end on the host, so the next may meet it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Optional

from .files import write_atomically

RUNS = Path("/run/baremetal-mpi-roce")
_POLL_S = 0.2


class HeldError(Exception):
    """The lock was not free in time."""


@contextlib.contextmanager
def progress(run_id: str) -> Iterator[Callable[[str], None]]:
    """Shows what the run does, beside its process: plugin_utils/detached.py reads it."""
    path = RUNS / f"{run_id}.progress"
    try:
        yield lambda text: write_atomically(path, f"{os.getpid()}\n{text}\n", 0o644, 0, 0)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def alone(
    path: Path,
    patience_s: Optional[float] = None,
    *,
    waiting: Callable[[float], None] = lambda _waited_s: None,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock; the file names its holder. Without `patience_s` it waits as long as it takes.

    `waiting` is called with the seconds so far, before each further look. Raises HeldError.
    """
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Not truncated when opened: it names its holder until this process is that.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as stream:
        begin = clock()
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = clock() - begin
                if patience_s is not None and waited >= patience_s:
                    holder = stream.read().strip() or "unknown"
                    raise HeldError(f"{path} is held by process {holder}") from None
                waiting(waited)
                sleep(_POLL_S)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield
