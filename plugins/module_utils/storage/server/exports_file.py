# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The format of /etc/exports, as the collection writes it and as anybody may; exports of others.

`exportfs -s` prints in it as well, one line per directory and client; `exportfs -v` does not: it
breaks lines, and writes blanks in paths as they are.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Optional

from ...core.dataclass import dataclass
from ...core.part import NAME, Node
from ..paths import overlap

FILE = f"etc/exports.d/{NAME}.exports"
EXPORTS = "etc/exports"
BY_HAND = "somebody, by hand (exportfs -u ends it),"
WORLD = "*"
"""The client that an entry without one is for."""
OPTIONS = ("rw", "sync", "no_subtree_check", "root_squash", "sec=sys")
"""`sync`: what a client was told to be written survives the server. `no_subtree_check`: the check
fails for files that are renamed while they are open. `root_squash`: root of a node is nobody."""
MOUNTED = "mountpoint"
"""Exported only while the device is mounted: never the empty directory below it."""
BLANKS = " \t\r\v\f"
_HEADING = re.compile(r"# (\S+): mounted at (\S+)")
_SPECIAL = re.compile(r"[^!$-\[\]-~ \t\r]")
"""All but blanks and what stands for itself: most lines of a large cluster have none of it."""
_ENTRY = re.compile(r"([^()]*)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One file system in our file: a line for each address."""

    name: str
    mount: str
    """Where clients mount it: for who reads the file."""
    path: str
    addresses: tuple[str, ...]
    options: tuple[str, ...] = OPTIONS


@dataclass(frozen=True)
class Export:
    """One directory for one client."""

    path: str
    client: str
    options: tuple[str, ...]
    line: int = 0
    """Where it stands in the file."""

    @property
    def text(self) -> str:
        return f"{self.path} {self.client}({','.join(self.options)})"


def render(blocks: Iterable[Block]) -> str:
    """Our file without its header; empty where nothing is exported."""
    return "\n".join("".join(f"{line}\n" for line in _lines(block)) for block in blocks)


def _lines(block: Block) -> Sequence[str]:
    options = ",".join(block.options)
    return [
        f"# {block.name}: mounted at {block.mount}",
        *(f"{block.path} {address}({options})" for address in block.addresses),
    ]


def parse(text: str) -> tuple[Block, ...]:
    """What `render` wrote. Lines that it does not write are left out."""
    found: list[tuple[tuple[str, str], Export, list[str]]] = []
    heading: Optional[tuple[str, str]] = None
    for line in text.split("\n"):
        named = _HEADING.fullmatch(line)
        if named:
            heading = (named.group(1), named.group(2))
        elif heading and line and not line.startswith("#"):
            for entry in parse_exports(line):
                if not found or (found[-1][0], found[-1][1].path) != (heading, entry.path):
                    found.append((heading, entry, []))
                found[-1][2].append(entry.client)
    return tuple(
        Block(name, mount, first.path, tuple(clients), first.options)
        for (name, mount), first, clients in found
    )


def parse_exports(text: str) -> list[Export]:
    """Any file of exports: quotes, octal digits, continued lines, options before the clients."""
    return [export for number, line in _logical(text) for export in _line(line, number)]


def _logical(text: str) -> list[tuple[int, str]]:
    """Lines with those that continue them, and the number of the first."""
    found: list[tuple[int, str]] = []
    continued = False
    for number, line in enumerate(text.split("\n"), 1):
        part = line[:-1] if line.endswith("\\") else line
        if continued:
            first, before = found.pop()
            found.append((first, before + part))
        else:
            found.append((number, part))
        continued = line.endswith("\\")
    return found


def _line(line: str, number: int) -> list[Export]:
    words = _words(line)
    if not words:
        return []
    path, *clients = words
    defaults: tuple[str, ...] = ()
    found = []
    for word in clients:
        if word.startswith("-"):
            defaults = _options(word[1:])
            continue
        entry = _ENTRY.match(word)
        host, options = (entry.group(1), entry.group(2)) if entry else (word, None)
        found.append(Export(path, host or WORLD, (*defaults, *_options(options or "")), number))
    return found or [Export(path, WORLD, defaults, number)]


def _words(line: str) -> list[str]:
    if not _SPECIAL.search(line):
        return line.split()
    words, word, quoted, started = [], "", False, False
    for character in line:
        if character == '"':
            quoted, started = not quoted, True
        elif character == "#" and not quoted:
            break
        elif character in BLANKS and not quoted:
            if started:
                words.append(unescape(word))
            word, started = "", False
        else:
            word, started = word + character, True
    if started:
        words.append(unescape(word))
    return words


def _options(text: str) -> tuple[str, ...]:
    return tuple(option for option in text.split(",") if option)


def unescape(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    plain = re.sub(rb"\\([0-7]{3})", lambda found: bytes([int(found.group(1), 8) & 255]), raw)
    return plain.decode("utf-8", "surrogateescape")


# Exports that are not ours: what of them lets others have what we serve.


@dataclass(frozen=True)
class Foreign:
    """An export of the operator's, and where it stands."""

    file: str
    """Empty: in none, as `exportfs` was told it."""
    export: Export

    @property
    def place(self) -> str:
        return f"/{self.file}:{self.export.line}" if self.file else BY_HAND


def foreign(node: Node) -> list[Foreign]:
    """Of /etc/exports and every other file that exportfs reads beside it."""
    directory = node.path("etc/exports.d")
    more = sorted(f"etc/exports.d/{path.name}" for path in directory.glob("*.exports"))
    found = []
    for file in (EXPORTS, *more):
        if file != FILE:
            text = node.read(file) or ""
            found += [Foreign(file, export) for export in parse_exports(text)]
    return found


def wider(found: Iterable[Foreign], path: str, addresses: Collection[str]) -> list[Foreign]:
    """Those of the directory itself, and of one above or in it for others than our clients.

    Who may have a directory above, or one in it, can reach all of the file system: with
    `no_subtree_check`, the default, a guessed file handle is as good as one that was given.
    """
    return [
        each
        for each in found
        if overlap(path, each.export.path)
        and (each.export.path == path or not _narrow(each.export, addresses))
    ]


def _narrow(export: Export, addresses: Collection[str]) -> bool:
    """To one of our clients, whose root is nobody."""
    if "no_root_squash" in export.options:
        return False
    try:
        return str(ipaddress.ip_address(export.client)) in addresses
    except ValueError:
        return False
