# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""SONiC's databases, in a file that a reboot clears, and CONFIG_DB as JSON."""

from __future__ import annotations

import fcntl
import fnmatch
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from common import state as files
from common.switch import natural

Row = dict[str, Any]
Config = dict[str, dict[str, Row]]
CONFIG, APPL, STATE, OWN = "CONFIG_DB", "APPL_DB", "STATE_DB", "OWN"
"""OWN is used by the simulation only."""
FILE = Path("/run/virtual-switch.json")


class Store:
    """The databases. Programs share them: a write locks, reads and replaces the file."""

    def __init__(self, path: Path = FILE) -> None:
        self._path = path

    def rows(self, database: str, pattern: str = "*") -> dict[str, Row]:
        held = files.read_json(self._path, {}).get(database, {})
        return {key: held[key] for key in sorted(fnmatch.filter(held, pattern))}

    def read(self, database: str, key: str) -> Row:
        row: Row = files.read_json(self._path, {}).get(database, {}).get(key, {})
        return row

    def write(self, database: str, rows: Mapping[str, Optional[Row]]) -> None:
        """Replace these rows; None removes one."""
        with self._path.with_suffix(".lock").open("w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            databases = files.read_json(self._path, {})
            held = databases.setdefault(database, {})
            for key, row in rows.items():
                held.pop(key, None)
                if row is not None:
                    held[key] = row
            files.write_json(self._path, databases)

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)


def load(store: Store) -> Config:
    config: Config = {}
    for key, row in store.rows(CONFIG).items():
        table, _bar, name = key.partition("|")
        config.setdefault(table, {})[name] = row
    return {
        table: dict(sorted(rows.items(), key=lambda row: natural(row[0])))
        for table, rows in sorted(config.items())
    }


def save(store: Store, old: Config, new: Config) -> None:
    """Write only the rows that differ."""
    changed = {
        f"{table}|{name}": new.get(table, {}).get(name)
        for table in sorted({*old, *new})
        for name in {**old.get(table, {}), **new.get(table, {})}
        if old.get(table, {}).get(name) != new.get(table, {}).get(name)
    }
    store.write(CONFIG, changed)
