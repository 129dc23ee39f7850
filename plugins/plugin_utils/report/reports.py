# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Reports on the controller: what a layer measured or judged, as JSON under the time of it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

from ...module_utils.core.files import write_atomically


class Display(Protocol):
    """What of Ansible's Display is needed here."""

    def display(self, msg: str) -> None: ...

    def warning(self, msg: str) -> None: ...


def save(directory: Path, name: str, found: Mapping[str, Any]) -> Path:
    """`<name>-<UTC time>.json`, which is returned, and `<name>-latest.json`, which is the same.

    Makes the directory. OSError where it cannot be written: what was found holds all the same.
    """
    directory = directory.absolute()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    text = json.dumps({"made": stamp, **found}, indent=1) + "\n"
    path = directory / f"{name}-{stamp}.json"
    for target in (path, directory / f"{name}-latest.json"):
        write_atomically(target, text, 0o644, os.getuid(), os.getgid())
    return path


def keep(
    directory: Path, layer: str, found: Mapping[str, Any], display: Display, setting: str
) -> str:
    """Save the report of a layer and say where; empty with a warning where that cannot be.

    `setting` is the variable that names the directory.
    """
    try:
        path = save(directory, layer, found)
    except OSError as error:
        # What was found holds, whether or not it can be written down.
        display.warning(
            f"{layer}: the report was not saved: {error}. Make the directory writable, or set "
            f"{setting}"
        )
        return ""
    display.display(f"{layer}: report in {path}")
    return str(path)
