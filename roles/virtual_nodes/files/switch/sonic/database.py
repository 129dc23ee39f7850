# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""CONFIG_DB as JSON: tables of rows of text, stored as one hash per row, TABLE|key."""

from __future__ import annotations

from typing import Any

from .redis import CONFIG, Store

Row = dict[str, Any]
Config = dict[str, dict[str, Row]]
EMPTY = {"NULL": "NULL"}
"""How a row without fields is stored: redis has no empty hashes."""


def load(store: Store) -> Config:
    config: Config = {}
    for key, fields in store.read_all(CONFIG).items():
        table, _bar, name = key.partition("|")
        if name:
            config.setdefault(table, {})[name] = _row(fields)
    return {
        table: dict(sorted(rows.items(), key=natural)) for table, rows in sorted(config.items())
    }


def save(store: Store, old: Config, new: Config) -> list[str]:
    """Only the rows that differ; their keys."""
    changed = {}
    for table in sorted({*old, *new}):
        before, after = old.get(table, {}), new.get(table, {})
        for name in {**before, **after}:
            if before.get(name) != after.get(name):
                row = after.get(name)
                changed[f"{table}|{name}"] = {} if row is None else _fields(row)
    store.write(CONFIG, changed)
    return list(changed)


def natural(item: tuple[str, Any]) -> tuple[Any, ...]:
    """Ethernet8 before Ethernet16."""
    name, number = item[0], ""
    parts: list[Any] = []
    for letter in name:
        if letter.isdigit():
            number += letter
            continue
        if number:
            parts.append((0, int(number), ""))
            number = ""
        parts.append((1, 0, letter))
    if number:
        parts.append((0, int(number), ""))
    return tuple(parts)


def _row(fields: dict[str, str]) -> Row:
    row: Row = {}
    for name, value in fields.items():
        if name == "NULL":
            continue
        if name.endswith("@"):
            row[name[:-1]] = value.split(",") if value else []
        else:
            row[name] = value
    return row


def _fields(row: Row) -> dict[str, str]:
    fields = {}
    for name, value in row.items():
        if isinstance(value, list):
            fields[f"{name}@"] = ",".join(str(entry) for entry in value)
        else:
            fields[name] = str(value)
    return fields or dict(EMPTY)
