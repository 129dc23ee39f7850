# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What dnf wrote down: transactions that did not end, scriptlets that failed, module streams.

rpm records a package before its %post runs: after a kill in between, rpm alone takes the package
for installed. dnf's history knows, because a transaction is written there first, and closed last.
"""

from __future__ import annotations

import configparser
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from ..dataclass import dataclass

DATABASE = Path("var/lib/dnf/history.sqlite")
MODULES = Path("etc/dnf/modules.d")
_UNFINISHED = 0
"""State of a transaction; 1 is done, 2 ended with an error."""
_EPOCH = re.compile(r"-\d+:(?=[^-]+-[^-]+$)")
_FAILED = re.compile(r"(%\w+)\((?P<nevra>[^\s()]+)\)")
# Installs, downgrades, obsoletes, upgrades and reinstalls: the new side of each.
_FORWARD = (1, 2, 4, 6, 9)
_EVR = "rpm.version || '-' || rpm.release"
_COLUMNS = f"rpm.name, rpm.epoch, {_EVR}, rpm.arch, trans.id, repo.repoid"
_ITEMS = (
    f"SELECT {_COLUMNS} FROM trans_item JOIN trans ON trans.id = trans_item.trans_id "
    "JOIN rpm ON rpm.item_id = trans_item.item_id JOIN repo ON repo.id = trans_item.repo_id "
    f"WHERE trans_item.action IN ({', '.join(map(str, _FORWARD))})"
)


@dataclass(frozen=True)
class Item:
    """A package that a transaction installed, and which transaction."""

    name: str
    evr: str
    arch: str
    transaction: int
    repository: str
    scriptlet: str = ""
    """The scriptlet that failed; empty for a transaction that was killed."""

    @property
    def nevra(self) -> str:
        return f"{self.name}-{self.evr}.{self.arch}"


def unsettled(root: Path) -> list[Item]:
    """What the last transaction was installing when it was killed, and packages of which a
    scriptlet failed when they were installed last.

    A copy is asked: the original may have a journal that only a writer could play back.
    """
    path = root / DATABASE
    with tempfile.TemporaryDirectory() as folder, suppress(sqlite3.DatabaseError):
        for one in path.parent.glob(f"{path.name}*"):
            with suppress(FileNotFoundError):
                shutil.copy(one, Path(folder, one.name))
        with closing(sqlite3.connect(Path(folder, path.name))) as connection:
            return [*_unfinished(connection), *_failed(connection)]
    return []  # none, or of another format: rpm's duplicates are found all the same


def streams(root: Path) -> dict[str, str]:
    """Module to its enabled stream."""
    found = {}
    for path in sorted((root / MODULES).glob("*.module")):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            continue  # dnf itself refuses such a file, and says where
        for name in parser.sections():
            section = parser[name]
            if section.get("state") == "enabled" and section.get("stream"):
                found[section.get("name", name)] = section["stream"]
    return found


def _unfinished(connection: sqlite3.Connection) -> list[Item]:
    row = connection.execute("SELECT id, state FROM trans ORDER BY id DESC LIMIT 1").fetchone()
    if row is None or row[1] != _UNFINISHED:
        return []
    return _items(connection, f"{_ITEMS} AND trans.id = ?", (row[0],))


def _failed(connection: sqlite3.Connection) -> list[Item]:
    """rpm tells of a failed scriptlet in its output alone, which dnf keeps with the transaction."""
    found = []
    lines = connection.execute(
        "SELECT trans_id, line FROM console_output WHERE line LIKE '%failed%'"
    ).fetchall()
    for transaction, line in lines:
        match = _FAILED.search(line)
        if match is None:
            continue
        for item in _items(connection, f"{_ITEMS} AND trans.id = ?", (transaction,)):
            later = f"{_ITEMS} AND trans.id > ? AND rpm.name = ? AND rpm.arch = ?"
            told = _EPOCH.sub("-", match["nevra"]) == _EPOCH.sub("-", item.nevra)
            if told and not _items(connection, later, (transaction, item.name, item.arch)):
                found.append(replace(item, scriptlet=match[1]))
    return found


def _items(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> list[Item]:
    return [
        Item(name, f"{epoch}:{evr}" if epoch else evr, arch, transaction, repository)
        for name, epoch, evr, arch, transaction, repository in connection.execute(
            query, tuple(values)
        )
    ]
