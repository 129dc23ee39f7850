# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the controller remembers: which keys each node has and which certificates it was given.

One small file for each node, because Ansible works on each host in a process of its own: nobody
waits for anybody, and the work for one node does not grow with the number of others. Only the
counter of serials is shared, under a lock. Nothing in here is secret.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Optional

from ...module_utils.dataclass import dataclass
from ...module_utils.files import write_atomically
from .journal import Issued, Journal

SPOILED = "move it away and run again; the node gets new certificates"
LOST = (
    "it says which certificates are revoked: restore it from a copy; without one, move it away and"
    " replace the authority at once (raise ssh_trust_ca_generation, ssh_trust_ca_overlap: false)"
)
"""What to do about a damaged entry, of a node that is here and of one that has left."""


class LedgerError(Exception):
    """The ledger cannot be read or written; the text says which file and what to do."""


@dataclass
class Node:
    """One node: its public keys, its certificates not yet expired, the authorities it believes."""

    name: str
    user_key: str = ""
    host_key: str = ""
    issued: list[Issued] = field(default_factory=list)
    trusts: list[str] = field(default_factory=list)

    @property
    def laid(self) -> bool:
        """Whether a run ever got to the end on it: its keys are noted then."""
        return bool(self.user_key or self.host_key)

    def latest(self, kind: str) -> Optional[Issued]:
        """The certificate of this kind that the node has to have: the last one issued."""
        mine = [each for each in self.issued if each.kind == kind]
        return mine[-1] if mine else None

    def forget_expired(self, now: int) -> None:
        self.issued = [each for each in self.issued if each.valid_before > now]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, text: str) -> Node:
        data: dict[str, Any] = json.loads(text)
        issued = [Issued(**each) for each in data.pop("issued")]
        return cls(issued=issued, **data)


def new_serial() -> int:
    """A serial that was never given out. 63 bits: some programs take them for signed numbers."""
    return secrets.randbits(63) or 1


def save(path: Path, text: str) -> None:
    """Write a file of the controller's own, readable by its owner only."""
    write_atomically(path, text, 0o600, os.getuid(), os.getgid())


def make_private_directory(path: Path) -> None:
    """The directory and its parents; the last one for its owner only."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_mode & 0o077:
        path.chmod(0o700)


def told(error: OSError, directory: Path) -> str:
    """What the controller's system refused, and where; at least under which directory."""
    return f"{error.filename or directory}: {error.strerror or error}"


class Ledger:
    """The files of one cluster under one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes = directory / "nodes"
        self.removed = directory / "removed"
        self.journal = Journal(directory / "journal.jsonl")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time. The kernel drops the lock of a process that dies."""
        make_private_directory(self.directory)
        with (self.directory / "lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _file(self, folder: Path, name: str) -> Path:
        if not name or "/" in name or name.startswith("."):
            raise LedgerError(f"{name!r}: not a host name that can be a file name")
        return folder / f"{name}.json"

    def read(self, name: str, *, removed: bool = False) -> Optional[Node]:
        """A node's entry, or None when it has none."""
        path = self._file(self.removed if removed else self.nodes, name)
        try:
            return Node.parse(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise LedgerError(
                f"{path}: not a ledger entry ({error}): {LOST if removed else SPOILED}"
            ) from error

    def write(self, node: Node) -> bool:
        """Remember a node; whether anything was new."""
        path = self._file(self.nodes, node.name)
        text = node.text()
        with contextlib.suppress(FileNotFoundError):
            if path.read_text(encoding="utf-8") == text:
                return False
        make_private_directory(path.parent)
        save(path, text)
        return True

    def names(self, *, removed: bool = False) -> list[str]:
        folder = self.removed if removed else self.nodes
        if not folder.is_dir():
            return []
        return sorted(path.stem for path in folder.glob("*.json") if path.name[0] != ".")

    def known(self) -> list[str]:
        """Every node that was laid and has not left, even one whose entry is lost."""
        journal = self.journal.read()
        return sorted({*self.names(), *(name for name, each in journal.items() if each.present)})

    def revoked(self, leaving: Collection[str] = ()) -> list[Issued]:
        """The certificates of all nodes that have left, and of those that are about to."""
        found = [self.read(name, removed=True) for name in self.names(removed=True)]
        found += [self.read(name) for name in leaving]
        listed = [each for node in found if node for each in node.issued]
        for name, history in self.journal.read().items():
            listed += history.revoked
            listed += history.present if name in leaving else []
        return listed

    def complete_journal(self, nodes: Iterable[Node]) -> None:
        """Note what the journal lacks of what the ledger knows: it was lost, or is younger."""
        journal = self.journal.read()
        noted = {each.serial for history in journal.values() for each in history.present}
        lacking = {
            node.name: [each for each in node.issued if each.serial not in noted] for node in nodes
        }
        self.journal.issued(lacking)

    def remove(self, name: str) -> None:
        """Move a node to those whose certificates are revoked.

        The journal comes last: until it says so, an interrupted removal is done again.
        """
        node = self.read(name)
        before = self.read(name, removed=True)
        if node is not None:
            if before is not None:
                known = {each.serial for each in node.issued}
                node.issued += [each for each in before.issued if each.serial not in known]
            path = self._file(self.removed, name)
            make_private_directory(path.parent)
            save(path, node.text())
            self._file(self.nodes, name).unlink()
        self.journal.left(name)
