# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Exports that are not ours: what of them lets others have what we serve. Only looks."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable

from ...dataclass import dataclass
from ...node.part import NAME, Node
from .. import mounted
from ..mounted import Mount
from ..paths import overlap
from .exports_file import Export, parse_exports

FILE = f"etc/exports.d/{NAME}.exports"
EXPORTS = "etc/exports"
BY_HAND = "somebody, by hand (exportfs -u ends it),"


@dataclass(frozen=True)
class Foreign:
    """An export of the operator's, and where it stands."""

    file: str
    """Empty: in none, as `exportfs` was told it."""
    export: Export

    @property
    def place(self) -> str:
        return f"/{self.file}:{self.export.line}" if self.file else BY_HAND


def read(node: Node) -> list[Foreign]:
    """Of /etc/exports and every other file that exportfs reads beside it."""
    directory = node.path("etc/exports.d")
    more = sorted(f"etc/exports.d/{path.name}" for path in directory.glob("*.exports"))
    found = []
    for file in (EXPORTS, *more):
        if file != FILE:
            text = node.read(file) or ""
            found += [Foreign(file, export) for export in parse_exports(text)]
    return found


def wider(
    foreign: Iterable[Foreign], path: str, addresses: Collection[str], table: Collection[Mount] = ()
) -> list[Foreign]:
    """Those of the directory itself, and of one above or in it for others than our clients.

    Who may have a directory above, or one in it, can reach all of the file system: with
    `no_subtree_check`, the default, a guessed file handle is as good as one that was given.
    """
    return [
        each
        for each in foreign
        if _shared(path, each.export.path, table)
        and (each.export.path == path or not _narrow(each.export, addresses))
    ]


def beside(
    foreign: Iterable[Foreign], path: str, addresses: Collection[str], table: Collection[Mount]
) -> list[Foreign]:
    """Those of other directories of the same file system, for others than our clients; where none
    is wider.

    No mistake of the export: every host without a disk for it has its directories on one. But a
    guessed handle is as good there as one of the directory itself.
    """
    here = mounted.place(table, path)
    found = []
    for each in foreign:
        there = mounted.place(table, each.export.path)
        same = here is not None and there is not None and here[0] == there[0]
        if same and not _narrow(each.export, addresses):
            found.append(each)
    return found


def _shared(path: str, other: str, table: Collection[Mount]) -> bool:
    """By name, or because one of them is a bind mount of the other."""
    one, two = mounted.place(table, path), mounted.place(table, other)
    if overlap(path, other):
        return True
    return one is not None and two is not None and one[0] == two[0] and overlap(one[1], two[1])


def _narrow(export: Export, addresses: Collection[str]) -> bool:
    """To one of our clients, whose root is nobody."""
    if "no_root_squash" in export.options:
        return False
    try:
        return str(ipaddress.ip_address(export.client)) in addresses
    except ValueError:
        return False
