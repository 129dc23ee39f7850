# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Faults that a simulated switch is told to have, read from a file at every request.

    {"apply": "rejected" | "partial" | "cut" | "disk_full", "confirm": "lost", "read": "wrong",
     "delay_s": 5, "lldp": {"swp1": {"system": "leaf02", "port": "swp7"}},
     "seconds": 30, "times": 1}

`seconds` is how long a cut lasts. `times` counts what has been done wrong, over all kinds: after
that many the switch behaves. Another content of the file starts the count anew.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Optional

from . import store

CUT_SECONDS = 30.0


class Faults:
    def __init__(self, path: Path, state: Path) -> None:
        self._path = path
        self._counter = state / "faults-taken.json"
        self._lock = threading.Lock()

    def take(self, kind: str) -> Any:
        """The fault of this kind that has to happen now, counted as done; None for none."""
        with self._lock:
            wanted = self._wanted()
            return self._count(wanted, wanted.get(kind))

    def take_if(self, kind: str, value: str) -> bool:
        """Whether this very fault has to happen now, counted as done if so."""
        with self._lock:
            wanted = self._wanted()
            return wanted.get(kind) == value and self._count(wanted, value) is not None

    @property
    def cut_s(self) -> float:
        return float(self._wanted().get("seconds", CUT_SECONDS))

    @property
    def lldp(self) -> dict[str, dict[str, Any]]:
        """Neighbours that are heard instead of the true ones. Not counted."""
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
        before = store.read_json(self._counter, {})
        taken = before.get("taken", 0) if before.get("of") == content else 0
        if taken >= int(times):
            return None
        store.write_json(self._counter, {"of": content, "taken": taken + 1})
        return fault
