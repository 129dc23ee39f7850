# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The device below a served directory: never formatted when there is anything on it.

A file system is made only where `format` asks for one and the device is blank by every look, which
is repeated right before `mkfs`. Each look finds something that the others do not: blkid knows
signatures, the kernel knows what uses the device, and bytes that are not zero are data, whether or
not anything knows them. What was not read is not known to be blank. A file system that is there is
used as it is: any xfs or ext4 where nothing is to be made, and the one that was made here, by its
label, where something is.

A disk that is dying may never answer, so nothing here reads one itself: blkid has a time limit, and
the ends are read by a process that can be left behind.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, BinaryIO

from ..core import systemd
from ..core.checks import FAILED, OK, PENDING, Check, not_applicable
from ..core.commands import NoAnswerError
from ..core.dataclass import dataclass
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..core.text import some
from . import bounded, foreign, mounted
from .units import DIRECTORY, ENABLED, MOUNT, path_of, unit_name, value_of

BLOCK = "sys/class/block"
SWAPS = "proc/swaps"
EDGE = 1 << 20
"""Bytes at either end: where partition tables, RAID and file systems have their first marks."""
READ_S = 60.0
"""Seconds for both ends; a disk that has to spin up, or tries a bad sector again, takes some."""
FOUND, NOTHING, AMBIVALENT = 0, 2, 8
"""Exit statuses of `blkid -p`. NOTHING is also one that it could not open or read: by itself
it does not prove a device blank."""


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
    """As blkid finds them: TYPE, LABEL, UUID, PTTYPE."""
    in_use: tuple[str, ...]
    """What uses it, one line each; not where it is mounted."""
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
            result = " ".join(f"{key}={value}" for key, value in sorted(self.signatures.items()))
            found.append(f"blkid finds {result}")
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
        result = node.look(["blkid", "-p", "-o", "export", str(path)], check=False)
    except NoAnswerError as error:
        if error.left_behind:
            bounded.remember(record, error.left_behind)
        raise _silent(device, str(error)) from error
    if result.rc == NOTHING:
        return {}
    if result.rc == AMBIVALENT:
        return {"TYPE": "more than one"}
    found = dict(line.split("=", 1) for line in result.stdout.split("\n") if "=" in line)
    found.pop("DEVNAME", None)
    if result.rc != FOUND or not found:
        raise PlanError(
            f"{device}: blkid cannot say what is on it (exit status {result.rc}): "
            f"{result.stderr.strip() or 'it printed nothing'}"
        )
    return found


def _edges(device: str, path: Path, record: Path) -> tuple[int, tuple[str, ...]]:
    """Its size, and which of its ends have anything. Raises PlanError where that is not known."""
    result = bounded.within(READ_S, _reader(path), record=record)
    if result.earlier:
        raise _still(device, result.left_behind)
    if "error" in result.found:
        number = result.found["error"]["number"]
        why = os.strerror(number) if number else result.found["error"]["text"]
        raise PlanError(f"{device}: cannot be read: {why}. See dmesg")
    if not result.answered:
        raise _silent(device, f"its {result.step or 'size'} could not be read within {READ_S:g} s")
    if not {"size", "edges"} <= result.found.keys():
        raise PlanError(
            f"{device}: its reader was killed (out of memory?). Nothing is known of what is on it; "
            "see dmesg, then run again"
        )
    if result.found["size"] == 0:
        raise PlanError(f"{device} has no size: there is no medium in it, or it failed. See dmesg")
    return result.found["size"], tuple(result.found["edges"])


def _still(device: str, process: int) -> PlanError:
    return _silent(device, f"process {process} of an earlier run still waits for it")


def _silent(device: str, how: str) -> PlanError:
    return PlanError(
        f"{device} does not answer: {how}. The disk, or its way to the host, is failing: see dmesg "
        "and smartctl -a. Repair or replace it, or remove its file system from cluster_filesystems"
    )


def _reader(path: Path) -> Callable[[Callable[[dict[str, Any]], None]], None]:
    """Everything that touches the device, for a process of its own."""

    def read(report: Callable[[dict[str, Any]], None]) -> None:
        found = []
        with path.open("rb", buffering=0) as stream:
            size = stream.seek(0, os.SEEK_END)
            for end, offset in (("first", 0), ("last", max(0, size - EDGE))):
                report({"step": f"{end} MiB"})
                if not _zero(stream, offset, min(EDGE, size)):
                    found.append(f"its {end} MiB is not all zero")
        report({"size": size, "edges": found})

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


CHECK, LEFT = "nfs_device", "nfs_device_left"
XFS, EXT4 = "xfs", "ext4"
KINDS = (XFS, EXT4)
LABEL = "roce-"
LONGEST_LABEL = 12
"""Of xfs; ext4 has 16."""
MARK = "[X-Baremetal-MPI-RoCE]\nPart=served-device"
"""A section that systemd ignores: by it the collection knows a unit of this kind for its own."""
OPTIONS = "noatime,nodev,nofail"
"""`nofail`: a device that is missing does not keep the host from booting."""
SHOWN = 5
_OURS = uuid.UUID("5a0e0b3c-7c0e-5d4b-9a6e-2f1d8c3b7a90")
DOCS = "docs/shared-storage.md"


def label(name: str) -> str:
    """By which a file system made here is known again; a digest where the name is too long."""
    if len(LABEL + name) <= LONGEST_LABEL:
        return LABEL + name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return LABEL + digest[: LONGEST_LABEL - len(LABEL)]


@dataclass(frozen=True)
class Device:
    """`name`: of the file system. `format` empty: nothing is ever made."""

    name: str
    device: str
    format: str
    directory: str

    @property
    def unit(self) -> str:
        return unit_name(self.directory, MOUNT)

    def plan(self, node: Node) -> Plan:
        if node.container:
            return Plan()
        contents = look(node, self.device)
        self._place(node, contents)
        make = self._to_make(contents)
        identity = self._new_uuid(node) if make else contents.uuid
        kind = self.format if make else contents.kind
        unit = node.file(path_of(self.unit), unit_text(self.name, identity, self.directory, kind))
        steps = []
        if make:
            steps.append(
                Step(
                    f"{self.device}: file system",
                    f"blank, {contents.size // 10**9} GB",
                    f"{self.format}, label {label(self.name)}",
                    lambda: self._make(node, identity),
                    essential=True,
                )
            )
        state = "unknown" if unit.changed else systemd.state(node, self.unit)
        if unit.changed or state != ENABLED:
            before = state if not unit.changed else "no such unit, or another one"
            steps.append(
                Step(self.unit, before, ENABLED, lambda: self._mount(node), essential=True)
            )
        return Plan([unit], steps)

    def verify(self, node: Node) -> Verdict:
        wanted = f"{self.device} mounted at {self.directory}"
        if node.container:
            why = node.not_here("block devices are the host's; the directory is served as it is")
            return Verdict([not_applicable(CHECK, wanted, why, subject=self.directory)])
        try:
            contents = look(node, self.device)
        except PlanError as error:
            return Verdict([Check(CHECK, wanted, "unknown", FAILED, self.directory, str(error))])
        at = mounted.on(mounted.read(node.root), self.directory)
        state = systemd.state(node, self.unit)
        if at is not None and at.device == contents.number and state == ENABLED:
            return Verdict([Check(CHECK, wanted, wanted, OK, self.directory)])
        found = f"{at.source} mounted there" if at else "nothing mounted there"
        reason = f"its unit {self.unit} is {state}: see journalctl -b -u {self.unit}"
        status = PENDING if node.check_mode else FAILED
        return Verdict([Check(CHECK, wanted, found, status, self.directory, reason)])

    # What may be.

    def _place(self, node: Node, contents: Contents) -> None:
        """Raises PlanError where the directory, or the device, is taken already."""
        line = foreign.in_fstab(node, self.directory)
        if line:
            raise PlanError(
                f"{self.directory}: {line}: it mounts something there. Take that line out, or take "
                "out `device` and have the directory served as it is"
            )
        at = mounted.on(mounted.read(node.root), self.directory)
        if at is not None and at.device == contents.number:
            return
        if at is not None:
            raise PlanError(
                f"{self.directory}: {at.source} is mounted there, and {self.device} is wanted. "
                f"Unmount it (systemctl stop {self.unit}) when it is not in use, then run again"
            )
        if contents.mounts:
            raise PlanError(
                f"{self.device} is mounted at {', '.join(contents.mounts)}, and is wanted at "
                f"{self.directory}. Unmount it there, for good, then run again"
            )
        there = _entries(node, self.directory)
        if there:
            raise PlanError(
                f"{self.directory} is not empty, and would be hidden by {self.device}: "
                f"{some(there, SHOWN)}. Move what is in it elsewhere, then run again"
            )

    def _to_make(self, contents: Contents) -> bool:
        """Whether a file system is to be made. Raises PlanError where none can be used."""
        if contents.in_use:
            raise PlanError(f"{self.device} cannot be served: {'; '.join(contents.in_use)}")
        if self.format:
            if contents.kind == self.format and contents.label == label(self.name):
                return False
            found = contents.findings()
            if not found:
                return True
            way = (
                "Name another device; or, if its data is not needed, make it blank by hand "
                f"({DOCS}). It is never formatted as it is"
            )
            if contents.kind in KINDS:
                way = "To serve what is on it, take out `format`. " + way
            raise PlanError(f"{self.device} is not blank: {'; '.join(found)}. {way}")
        if contents.kind in KINDS and contents.uuid:
            return False
        why = "; ".join(contents.findings()) or "it is blank"
        raise PlanError(
            f"{self.device} has no file system that can be served ({' or '.join(KINDS)}): {why}. "
            "Name another device, or say `format` where it is blank"
        )

    # What is done.

    def _new_uuid(self, node: Node) -> str:
        """Of this device in this machine: check mode and the run after it show the same one."""
        machine = (node.read("etc/machine-id") or "").strip()
        return str(uuid.uuid5(_OURS, f"{machine} {self.device} {self.name}"))

    def _make(self, node: Node, identity: str) -> None:
        try:
            contents = look(node, self.device)
        except PlanError as error:
            raise StepError(str(error)) from error
        found = contents.findings()
        if found:
            raise StepError(f"{self.device} is not blank any more: {'; '.join(found)}")
        node.run([*_command(self.format, label(self.name), identity), str(contents.path)])

    def _mount(self, node: Node) -> None:
        systemd.reload(node)
        systemd.enable(node, self.unit)
        systemd.start(node, self.unit)


@dataclass(frozen=True)
class LeftDevices:
    """Units of devices that are served no more, removed when they are declared absent."""

    wanted: Collection[str]
    """Directories with a device."""
    absent: Collection[str] = ()

    def plan(self, node: Node) -> Plan:
        gone = [each for each in self._left(node) if each[1] in self.absent]
        steps = [
            Step(
                unit,
                systemd.state(node, unit),
                "unmounted; what is on its device stays as it is",
                lambda unit=unit: self._end(node, unit),  # type: ignore[misc]
            )
            for unit, _directory in gone
        ]
        return Plan([], steps)

    def verify(self, node: Node) -> Verdict:
        return Verdict(
            [
                Check(
                    LEFT,
                    "wanted, or gone",
                    f"{unit} mounts it",
                    PENDING if node.check_mode and directory in self.absent else FAILED,
                    directory,
                    "no file system of this host has this device any more. Add it to "
                    "shared_storage_absent to unmount it; what is on the device stays as it is",
                )
                for unit, directory in self._left(node)
            ]
        )

    def _left(self, node: Node) -> list[tuple[str, str]]:
        """Units of ours, each with its directory."""
        found = []
        for path in sorted(node.path(DIRECTORY).glob(f"*.{MOUNT}")):
            text = node.read(f"{DIRECTORY}/{path.name}") or ""
            directory = value_of(text, "Where")
            if MARK in text and directory and directory not in self.wanted:
                found.append((path.name, directory))
        return found

    def _end(self, node: Node, unit: str) -> None:
        """Stopped first: a unit whose device is busy keeps its file, and is found again."""
        node.run(["systemctl", "disable", "--now", unit])
        node.path(path_of(unit)).unlink()
        systemd.reload(node)


def unit_text(name: str, identity: str, directory: str, kind: str) -> str:
    """Without the header. The server starts after it, and not without it."""
    return "\n".join(
        [
            MARK,
            "",
            "[Unit]",
            f"Description=Device of the shared file system {name}",
            "Before=nfs-server.service",
            "",
            "[Mount]",
            f"What=/dev/disk/by-uuid/{identity}",
            f"Where={directory}",
            f"Type={kind}",
            f"Options={OPTIONS}",
            "",
            "[Install]",
            "WantedBy=multi-user.target",
            "",
        ]
    )


def _command(kind: str, name: str, identity: str) -> list[str]:
    """No -f, no -F: mkfs.xfs looks by itself too and refuses, mkfs.ext4 on a terminal alone. There
    is nothing to discard on a blank one."""
    if kind == XFS:
        return ["mkfs.xfs", "-q", "-K", "-L", name, "-m", f"uuid={identity}"]
    return ["mkfs.ext4", "-q", "-E", "nodiscard", "-L", name, "-U", identity]


def _entries(node: Node, directory: str) -> list[str]:
    try:
        return sorted(path.name for path in node.path(directory).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
