# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports on the controller: what a layer measured or judged, as JSON under the time of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ...module_utils.core.files import make_directories, write_atomically
from ..answers import finite


def save(path: Path, text: str) -> None:
    """For the operator and the group of the directory: addresses and faults are in it.

    A group of which the operator is no member (in /tmp, say) cannot get it.
    """
    make_directories(path.parent, 0o750)
    if path.is_symlink():
        path.unlink()  # never through it
    try:
        write_atomically(path, text, 0o640, os.getuid(), path.parent.stat().st_gid)
    except PermissionError:
        write_atomically(path, text, 0o640, os.getuid(), os.getgid())


def keep(directory: Path, layer: str, found: Mapping[str, Any], display: Any, setting: str) -> str:
    """Save the report of a layer and show its path; empty with a warning where that fails.

    `<layer>-<UTC time>.json`, and the same as `<layer>-latest.json`. `display` is Ansible's,
    `setting` the variable that names the directory.
    """
    directory = directory.absolute()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    text = json.dumps(finite({"made": stamp, **found}), indent=1) + "\n"
    path = directory / f"{layer}-{stamp}.json"
    try:
        for target in (path, directory / f"{layer}-latest.json"):
            save(target, text)
    except OSError as error:
        # What was found holds, whether or not it can be written down.
        display.warning(
            f"{layer}: the report was not saved: {error}. Make the directory writable, or set "
            f"{setting}"
        )
        return ""
    display.display(f"{layer}: report in {path}")
    return str(path)
