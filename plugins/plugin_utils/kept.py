# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Secrets of a cluster on the controller: files that are made once, also by several processes."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Optional

from ..module_utils.core.files import make_directories


class OpenSecretError(Exception):
    """Others may read or write the file; the text has the remedy."""


def read(path: Path, most_bytes: int) -> Optional[bytes]:
    """Up to one byte more than `most_bytes`; None if there is no file. Raises OpenSecretError."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            content = stream.read(most_bytes + 1)
    except FileNotFoundError:
        return None
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise OpenSecretError(f"{path}: other users may read or write it: chmod 600 {path}")
    return content


def make(path: Path, content: bytes) -> None:
    """Write the file, unless another process was first."""
    make_directories(path.parent, 0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        try:
            with open(handle, "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:  # of a full disk, which names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink(missing_ok=True)
