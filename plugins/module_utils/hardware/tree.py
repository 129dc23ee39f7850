# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reading sysfs: what is not there, or does not answer, is empty.

Many of its files answer with an error where a value would make no sense: the speed of an interface
that is down, an empty entry of a GID table.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Optional

PAGE = 65536
"""More than sysfs has in a file of text: its limit is a page of memory, the largest is this."""


def text(path: Path) -> str:
    """The file's text without the newline, or nothing."""
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
    """The file's number, decimal or with 0x, or None."""
    try:
        return int(text(path), 0)
    except ValueError:
        return None


def names(path: Path) -> list[str]:
    """What a directory holds, sorted; nothing when it is not there."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - a Path for each of a thousand GIDs is dear
    except OSError:
        return []


def target(path: Path) -> str:
    """The name that a link points to, such as the driver's; nothing when there is no link."""
    try:
        return path.readlink().name
    except OSError:
        return ""
