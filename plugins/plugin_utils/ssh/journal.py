# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Every certificate that was ever signed, and every node that has left, in the order it happened.

The ledger says how things stand and is written anew; this file only grows. A certificate is in it
before it leaves the controller, so that it can be revoked even when the entry of its node was
damaged or moved away since. Nothing in here is secret.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from ...module_utils.dataclass import dataclass


@dataclass(frozen=True)
class Issued:
    """One certificate that was signed. `valid_before` is in seconds since 1970."""

    kind: str
    serial: int
    authority: str
    valid_before: int
    digest: str = ""


@dataclass
class History:
    """What was signed for one node: since it came, and before it left."""

    present: list[Issued] = field(default_factory=list)
    revoked: list[Issued] = field(default_factory=list)

    def leave(self) -> None:
        self.revoked += self.present
        self.present = []


class Journal:
    """The file, one JSON object on each line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def issued(self, certificates: Mapping[str, Sequence[Issued]]) -> None:
        """Note what was signed, by the name of the node it is for."""
        self._append(
            [
                {
                    "node": name,
                    "kind": each.kind,
                    "serial": each.serial,
                    "authority": each.authority,
                    "valid_before": each.valid_before,
                }
                for name, signed in certificates.items()
                for each in signed
            ]
        )

    def left(self, name: str) -> None:
        self._append([{"node": name, "left": True}])

    def read(self) -> dict[str, History]:
        """What happened to each node.

        A line that is no object was torn by a kill or a full disk while it was written: what it
        was about had not left the controller yet.
        """
        found: dict[str, History] = {}
        for line in self._lines():
            try:
                data = json.loads(line)
                name, left = str(data.pop("node")), data.pop("left", False)
                history = found.setdefault(name, History())
                if left:
                    history.leave()
                else:
                    history.present.append(Issued(**data))
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
        return found

    def _lines(self) -> list[str]:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return []

    def _append(self, records: Sequence[dict[str, Any]]) -> None:
        """Add lines and flush them to disk. Each begins with its newline, which ends a torn one."""
        if not records:
            return
        data = "".join(f"\n{json.dumps(each, sort_keys=True)}" for each in records).encode()
        with _naming(self.path):
            first = not self.path.exists()
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                while data:
                    data = data[os.write(handle, data) :]
                # Those who wait can write while the disk is at it.
                fcntl.flock(handle, fcntl.LOCK_UN)
                os.fsync(handle)
            finally:
                os.close(handle)
            if first:
                _flush_directory(self.path.parent)


def _flush_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """The kernel tells of a full disk without saying which file it was."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
