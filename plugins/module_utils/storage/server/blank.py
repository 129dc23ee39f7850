# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What is on a block device, and whether that is nothing at all. Only looks.

Each look finds something that the others do not: blkid knows signatures, the kernel knows who has
the device, and bytes that are not zero are somebody's, whether or not anything knows them.

A disk that is dying may never answer, and who waits for it cannot be ended. So nothing here reads
one itself: blkid is a program with a limit, and the ends are read by a process that can be left
behind. What was not read is not known to be blank.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from ...core.commands import NoAnswerError
from ...core.dataclass import dataclass
from ...core.part import Node, PlanError
from .. import mounted
from ..use import bounded

BLOCK = "sys/class/block"
SWAPS = "proc/swaps"
EDGE = 1 << 20
"""Bytes at either end: where partition tables, RAID and file systems have their first marks."""
READ_S = 60.0
"""Seconds for both ends; a disk that has to spin up, or tries a bad sector again, takes some."""
FOUND, NOTHING, AMBIVALENT = 0, 2, 8
"""Exit statuses of `blkid -p`. NOTHING is also, without a word, one that it could not open or read:
by itself it says nothing of a device that is not read here as well."""


@dataclass(frozen=True)
class Contents:
    """A block device as it was seen."""

    device: str
    """As it was asked for."""
    path: Path
    """Where that leads."""
    number: str
    """`major:minor`."""
    signatures: dict[str, str]
    """What blkid tells: TYPE, LABEL, UUID, PTTYPE."""
    in_use: tuple[str, ...]
    """Who has it, one line each; not where it is mounted."""
    mounts: tuple[str, ...]
    """Where it is mounted."""
    edges: tuple[str, ...]
    """Ends of it that are not all zero; not looked at where it is mounted, and so is not blank."""
    size: int
    """0 where it is mounted."""

    @property
    def kind(self) -> str:
        return self.signatures.get("TYPE", "")

    @property
    def label(self) -> str:
        return self.signatures.get("LABEL", "")

    @property
    def uuid(self) -> str:
        return self.signatures.get("UUID", "")

    def findings(self) -> list[str]:
        """Why it is not blank, one line each; empty where it is."""
        found = [*self.in_use, *(f"it is mounted at {point}" for point in self.mounts)]
        if self.signatures:
            told = " ".join(f"{key}={value}" for key, value in sorted(self.signatures.items()))
            found.append(f"blkid finds {told}")
        return [*found, *self.edges]


def look(node: Node, device: str) -> Contents:
    """Raises PlanError where there is no such device, or it cannot be looked at."""
    path = _path(node, device)
    name = path.name
    block = node.path(f"{BLOCK}/{name}")
    if not block.is_dir():
        raise PlanError(f"{device} leads to {path}, which is no block device")
    number = (block / "dev").read_text(encoding="ascii").strip()
    mounts = tuple(
        sorted({each.point for each in mounted.read(node.root) if each.device == number})
    )
    record = node.path(f"{bounded.LEFT_BEHIND}/device-{name}")
    size, edges = (0, ()) if mounts else _edges(device, path, record)
    signatures = _signatures(node, device, path, record)
    in_use = tuple(_users(node, block, name))
    return Contents(device, path, number, signatures, in_use, mounts, edges, size)


def _path(node: Node, device: str) -> Path:
    try:
        return node.path(device).resolve(strict=True)
    except OSError as error:
        raise PlanError(
            f"{device}: this host has no such device. See ls -l /dev/disk/by-id for those it has"
        ) from error


def _users(node: Node, block: Path, name: str) -> list[str]:
    found = []
    parts = sorted(path.parent.name for path in block.glob(f"{name}*/partition"))
    if parts:
        found.append(f"it has partitions: {', '.join(parts)}")
    holders = sorted(path.name for path in (block / "holders").glob("*"))
    if holders:
        found.append(f"it is part of {', '.join(holders)} (LVM, RAID or encryption)")
    for line in (node.read(SWAPS) or "").split("\n")[1:]:
        words = line.split()
        if words and Path(words[0]).name == name:
            found.append("it is swap space in use")
    return found


def _signatures(node: Node, device: str, path: Path, record: Path) -> dict[str, str]:
    """By the device itself, never by what blkid remembers."""
    waiting = bounded.still_waiting(record)
    if waiting:
        raise _still(device, waiting)
    try:
        told = node.look(["blkid", "-p", "-o", "export", str(path)], check=False)
    except NoAnswerError as error:
        if error.left_behind:
            bounded.remember(record, error.left_behind)
        raise _silent(device, str(error)) from error
    if told.rc == NOTHING:
        return {}
    if told.rc == AMBIVALENT:
        return {"TYPE": "more than one"}
    found = dict(line.split("=", 1) for line in told.stdout.split("\n") if "=" in line)
    found.pop("DEVNAME", None)
    if told.rc != FOUND or not found:
        raise PlanError(
            f"{device}: blkid cannot say what is on it (exit status {told.rc}): "
            f"{told.stderr.strip() or 'it printed nothing'}"
        )
    return found


def _edges(device: str, path: Path, record: Path) -> tuple[int, tuple[str, ...]]:
    """Its size, and which of its ends have anything. Raises PlanError where that is not known."""
    told = bounded.within(READ_S, _reader(path), record=record)
    if told.earlier:
        raise _still(device, told.left_behind)
    if "error" in told.found:
        number = told.found["error"]["number"]
        why = os.strerror(number) if number else told.found["error"]["text"]
        raise PlanError(f"{device}: cannot be read: {why}. See dmesg")
    if not told.answered:
        raise _silent(device, f"its {told.step or 'size'} could not be read within {READ_S:g} s")
    if not {"size", "edges"} <= told.found.keys():
        raise PlanError(
            f"{device}: whoever read it was ended before it was done (out of memory?). Nothing is "
            "known of what is on it; see dmesg, then run again"
        )
    if told.found["size"] == 0:
        raise PlanError(f"{device} has no size: there is no medium in it, or it failed. See dmesg")
    return told.found["size"], tuple(told.found["edges"])


def _still(device: str, process: int) -> PlanError:
    return _silent(device, f"process {process} of an earlier run still waits for it")


def _silent(device: str, how: str) -> PlanError:
    return PlanError(
        f"{device} does not answer: {how}. The disk, or its way to the host, is failing: see dmesg "
        "and smartctl -a (nvme smart-log). Mend or replace it, or take its file system out of "
        "cluster_filesystems; what waits for it goes when it answers, or at a reboot"
    )


def _reader(path: Path) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    """Everything that touches the device, for a process of its own."""

    def read(tell: Callable[[dict[str, Any]], None]) -> None:
        found = []
        with path.open("rb", buffering=0) as stream:
            size = stream.seek(0, os.SEEK_END)
            for end, offset in (("first", 0), ("last", max(0, size - EDGE))):
                tell({"step": f"{end} MiB"})
                if not _zero(stream, offset, min(EDGE, size)):
                    found.append(f"its {end} MiB is not all zero")
        tell({"size": size, "edges": found})

    return read


def _zero(stream: BinaryIO, offset: int, length: int) -> bool:
    stream.seek(offset)
    data = b""
    while len(data) < length:
        more = stream.read(length - len(data))
        if not more:
            return False  # shorter than it says: not known to be blank
        data += more
    return not any(data)
