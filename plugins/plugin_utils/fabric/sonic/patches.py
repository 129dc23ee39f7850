# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Patches (RFC 6902) from one state of CONFIG_DB to another, as `config apply-patch` takes them.

A table that is not there is added whole, since no path leads into it; a table that loses its last
row is removed whole, since an empty one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from . import tables
from .tables import Config, Row

Operation = dict[str, Any]


def patch(before: Config, after: Config) -> list[Operation]:
    """Objects before the rows that refer to them; what is added before what is removed."""
    added: list[Operation] = []
    removed: list[Operation] = []
    for table in (*tables.OBJECTS, *tables.ROWS):
        old, new = before.get(table) or {}, after.get(table) or {}
        if not old and new:
            added.append({"op": "add", "path": path(table), "value": new})
        elif old and not new:
            removed.insert(0, {"op": "remove", "path": path(table)})
        elif old != new:
            for operation in _rows(table, old, new):
                (removed if operation["op"] == "remove" else added).append(operation)
    return added + removed


def path(*parts: str) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _rows(table: str, old: tables.Table, new: tables.Table) -> Iterator[Operation]:
    for key, row in new.items():
        if key not in old:
            yield {"op": "add", "path": path(table, key), "value": row}
        elif old[key] != row:
            yield from _fields(table, key, old[key], row)
    for key in old:
        if key not in new:
            yield {"op": "remove", "path": path(table, key)}


def _fields(table: str, key: str, old: Row, new: Row) -> Iterator[Operation]:
    for field, value in new.items():
        if old.get(field) != value:
            op = "replace" if field in old else "add"
            yield {"op": op, "path": path(table, key, field), "value": value}
    for field in old:
        if field not in new:
            yield {"op": "remove", "path": path(table, key, field)}
