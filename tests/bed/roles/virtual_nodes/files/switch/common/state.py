# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Files of a simulated switch: its state, its log of changes, and its faults.

Faults are read at every request:

    {"apply": "rejected" | "partial" | "cut" | "disk_full", "confirm": "lost", "read": "wrong",
     "delay_s": 5, "lldp": {"swp1": {"system": "leaf02", "port": "swp7"}},
     "seconds": 30, "times": 1}

`seconds` is the length of a cut. `times` limits the number of faults, over all kinds: after that
the switch behaves normally. Changing the file resets the count.
"""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, Optional


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
    """Return the last stored value, or the default if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return default


class Log:
    """Append `2026-01-31T10:20:30.123 applied revision=4 by=ops`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def __call__(self, event: str, **facts: object) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}"
        words = "".join(f" {name}={value}" for name, value in facts.items())
        with self._lock:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(f"{stamp} {event}{words}\n")


CUT_SECONDS = 30.0


class Faults:
    def __init__(self, path: Path, state: Path) -> None:
        self._path = path
        self._counter = state / "faults-taken.json"
        self._lock = threading.Lock()

    def take(self, kind: str) -> Any:
        """Return the pending fault of this kind and count it, or None."""
        with self._lock:
            wanted = self._wanted()
            return self._count(wanted, wanted.get(kind))

    def take_if(self, kind: str, value: str) -> bool:
        """Return whether this fault is pending, and count it if so."""
        with self._lock:
            wanted = self._wanted()
            return wanted.get(kind) == value and self._count(wanted, value) is not None

    @property
    def cut_s(self) -> float:
        return float(self._wanted().get("seconds", CUT_SECONDS))

    @property
    def lldp(self) -> dict[str, dict[str, Any]]:
        """Neighbours to report instead of the real ones. They are not counted."""
        neighbours = self._wanted().get("lldp")
        return neighbours if isinstance(neighbours, dict) else {}

    def _wanted(self) -> dict[str, Any]:
        try:
            wanted = json.loads(self._path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return wanted if isinstance(wanted, dict) else {}

    def _count(self, wanted: dict[str, Any], fault: Optional[Any]) -> Any:
        times = wanted.get("times")
        if fault is None or times is None:
            return fault
        content = json.dumps(wanted, sort_keys=True)
        before = read_json(self._counter, {})
        taken = before.get("taken", 0) if before.get("of") == content else 0
        if taken >= int(times):
            return None
        write_json(self._counter, {"of": content, "taken": taken + 1})
        return fault
