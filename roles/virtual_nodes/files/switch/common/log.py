# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One line for each change of a simulated switch, for those who test against it."""

from __future__ import annotations

import threading
import time
from pathlib import Path


class Log:
    """Appends `2026-01-31T10:20:30.123 applied revision=4 by=ops`."""

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
