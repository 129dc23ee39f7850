# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What was made for a virtual cluster, written down before it is made.

Destroying removes exactly what the journal names, so a creation killed half-way is cleaned up too,
and nothing is ever recognised by its name alone. It lies under /run because namespaces and
interfaces end with the host's boot as well.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from ..core.files import write_atomically

RUN = Path("/run/baremetal-mpi-roce/virtual")


class Journal:
    def __init__(self, cluster: str, folder: Path = RUN) -> None:
        self._path = folder / f"{cluster}.json"

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def namespaces(self) -> list[str]:
        """Every namespace made, or about to be made, for this cluster."""
        try:
            return list(json.loads(self._path.read_text(encoding="utf-8"))["namespaces"])
        except FileNotFoundError:
            return []

    def write(self, namespaces: Iterable[str]) -> None:
        names = list(dict.fromkeys(namespaces))
        text = json.dumps({"namespaces": names}, indent=2) + "\n"
        write_atomically(self._path, text, 0o644, 0, 0)

    def clear(self) -> None:
        """Forget; the folders go with the last cluster."""
        self._path.unlink(missing_ok=True)
        for folder in (self._path.parent, self._path.parent.parent):
            with contextlib.suppress(OSError):
                folder.rmdir()
