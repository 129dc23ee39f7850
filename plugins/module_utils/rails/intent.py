# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which rails are being changed, written down before and removed after.

A run that is killed in between leaves the note, and the next run sets those rails up again although
their files look right. It lies under /run: a reboot applies the files anyway.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from ..core.files import write_atomically

_PATH = "run/baremetal-mpi-roce/rails-in-progress.json"


def unfinished(root: Path = Path("/")) -> list[str]:
    """Interfaces that an interrupted run was changing."""
    try:
        names = json.loads((root / _PATH).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def begin(interfaces: Iterable[str], root: Path = Path("/")) -> None:
    """Note the rails that are about to be changed."""
    text = json.dumps(sorted(set(interfaces))) + "\n"
    write_atomically(root / _PATH, text, 0o644, os.getuid(), os.getgid())


def finish(root: Path = Path("/")) -> None:
    """All of them have been read back."""
    with contextlib.suppress(FileNotFoundError):
        (root / _PATH).unlink()
