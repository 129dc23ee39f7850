# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One run at a time on a host: two would take each other's scratch files and changes away.

A run whose ansible-playbook was killed goes on to its end on the host, so the next may meet it.
"""

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
    """Another run did not end in time; the text says which, and what to do."""


@contextlib.contextmanager
def alone(
    root: Path = Path("/"),
    patience_s: float = PATIENCE_S,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Hold the lock. The kernel frees that of a process that dies. Raises BusyError."""
    path = root / PATH
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    # Not truncated: it names its holder until we are that.
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+") as stream:
        begin = clock()
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                waited = clock() - begin
                if waited >= patience_s:
                    raise BusyError(_told(path, stream.read().strip(), waited)) from None
                sleep(_POLL_S)
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        yield


def _told(path: Path, holder: str, waited: float) -> str:
    return (
        f"another run has been setting up the rails of this host (process {holder or 'unknown'}) "
        f"and did not end within {waited:.0f} s; it holds {path}. Nothing was changed by this one. "
        f"Look at it (ps -fp {holder or 'PID'}), let it end, and run again."
    )
