# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Read sysfs; a file that is missing or returns an error counts as empty.

Many files return an error while their value is undefined: the speed of an interface that is down,
an unused entry of a GID table.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

PAGE = 65536
"""Size limit of a text file in sysfs: the largest memory page, in bytes."""


def text(path: Path) -> str:
    """Return the text of a file without the newline; empty on an error."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(handle, PAGE).decode("utf-8", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(handle)


def number(path: Path) -> Optional[int]:
    """Return the number in a file, decimal or with 0x, or None."""
    try:
        return int(text(path), 0)
    except ValueError:
        return None


def names(path: Path) -> list[str]:
    """Return the sorted names in a directory; empty if it is missing."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - a Path for each of a thousand GIDs is slow
    except OSError:
        return []


def target(path: Path) -> str:
    """Return the name of a link's target, such as the driver; empty if there is no link."""
    try:
        return path.readlink().name
    except OSError:
        return ""
