# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports on the controller: results of a layer as JSON, named after their time."""

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
    """Write a report, readable by the operator and the group of the directory.

    If the operator is not in that group (in /tmp, for example), the operator's group is used.
    """
    make_directories(path.parent, 0o750)
    if path.is_symlink():
        path.unlink()  # do not write through a link
    try:
        write_atomically(path, text, 0o640, os.getuid(), path.parent.stat().st_gid)
    except PermissionError:
        write_atomically(path, text, 0o640, os.getuid(), os.getgid())


def keep(directory: Path, layer: str, found: Mapping[str, Any], display: Any, setting: str) -> str:
    """Save the report of a layer and display its path; return "" with a warning on failure.

    Writes `<layer>-<UTC time>.json` and `<layer>-latest.json`. `setting` is the variable that
    names the directory.
    """
    directory = directory.absolute()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    text = json.dumps(finite({"made": stamp, **found}), indent=1) + "\n"
    path = directory / f"{layer}-{stamp}.json"
    try:
        for target in (path, directory / f"{layer}-latest.json"):
            save(target, text)
    except OSError as error:
        # The results are valid even if they cannot be saved.
        display.warning(
            f"{layer}: the report was not saved: {error}. Make the directory writable, or set "
            f"{setting}"
        )
        return ""
    display.display(f"{layer}: report in {path}")
    return str(path)
