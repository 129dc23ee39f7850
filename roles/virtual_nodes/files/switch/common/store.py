# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of a simulated switch that survive kill -9: whole or not there, never half."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)


def write_json(path: Path, value: Any) -> None:
    write(path, json.dumps(value, separators=(",", ":")) + "\n")


def read_json(path: Path, default: Any) -> Any:
    """What was written last, or the default where nothing was."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default
