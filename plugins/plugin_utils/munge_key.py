# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The cluster's munge key, a file on the controller next to the SSH authority.

It is made once. Hosts that run in parallel make it in separate processes, of which one wins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
from pathlib import Path

from ..module_utils.core.files import make_directories
from ..module_utils.slurm.munge import LEAST_BYTES, MOST_BYTES, NEW_BYTES


class MungeKeyError(Exception):
    """The key cannot be used; the text names the file and the remedy, and not its content."""


def read(path: Path) -> bytes:
    """The key, or empty bytes if there is none. Raises MungeKeyError and OSError."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            key = stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return b""
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise MungeKeyError(f"{path}: other users may read or write it: chmod 600 {path}")
    if not LEAST_BYTES <= len(key) <= MOST_BYTES:
        raise MungeKeyError(
            f"{path}: {len(key)} bytes; munge accepts {LEAST_BYTES} to {MOST_BYTES}. Replace it"
            " with the key of the cluster (/etc/munge/munge.key on its hosts)"
        )
    return key


def made(path: Path) -> bytes:
    """The key, which is made if there is none. Raises MungeKeyError and OSError."""
    key = read(path)
    if key:
        return key
    make_directories(path.parent, 0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with open(handle, "wb") as stream:
            stream.write(secrets.token_bytes(NEW_BYTES))
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
    return read(path)
