# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One run at a time on a host: the module and the boot program."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATH = "run/baremetal-mpi-roce/rails.lock"
PATIENCE_S = 120.0
"""Longer than a run takes that waits for a rail, puts it back and waits for the gateways."""
_POLL_S = 0.2


class BusyError(Exception):
    """Another run did not end in time; the text has its process, and the remedy."""


@contextlib.contextmanager
def alone(
    root: Path = Path("/"),
    patience_s: float = PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock. The kernel frees that of a process that dies.

    A run whose ansible-playbook was killed goes on to its end on the host, so the next may meet it.
    Raises BusyError.
    """
    path = root / PATH
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Not truncated before it is locked: it has the process of its holder.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as stream:
        end = clock() + patience_s
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock() >= end:
                    holder = stream.read().strip() or "PID"
                    raise BusyError(
                        f"another run (process {holder}) has held {path} for {patience_s:.0f} s. "
                        f"Nothing was changed by this one. See ps -fp {holder}, let it end, and "
                        "run again."
                    ) from None
                sleep(_POLL_S)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield
