# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The device below a served directory: never formatted when there is anything on it.

A file system is made only where `format` asks for one and the device is blank by every look, which
is repeated right before `mkfs`. Each look finds something that the others do not: blkid finds
signatures, the kernel lists what uses the device, and bytes that are not zero are data, whatever
they are. What was not read is not known to be blank. A file system that is there is
used as it is: without `format` any xfs or ext4, and with it the one that was made here, by its
label.

A disk that is dying may never answer, so only programs with a time limit read one.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ..core import systemd
from ..core.checks import FAILED, OK, Check, differs, not_applicable
from ..core.commands import CommandError, Result
from ..core.mounts import on
from ..core.mounts import read as read_mounts
from ..core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ..core.text import some
from . import mounts
from .units import ENABLED, MOUNT, OF_DEVICE, path_of, unit_name

EDGE = 1 << 20
"""Bytes at either end: where partition tables, RAID and file systems have their first marks."""
FOUND, NOTHING, AMBIVALENT = 0, 2, 8
"""Exit statuses of `blkid -p`. NOTHING is also one that it could not open or read: by itself
it does not prove a device blank."""
CHECK = "nfs_device"
XFS, EXT4 = "xfs", "ext4"
KINDS = (XFS, EXT4)
LABEL = "roce-"
LONGEST_LABEL = 12
"""Of xfs; ext4 has 16."""
OPTIONS = "noatime,nodev,nofail"
"""`nofail`: a device that is missing does not keep the host from booting."""
SHOWN = 5


@dataclass(frozen=True)
class Contents:
    """A block device as it was seen."""

    path: Path
    """Where its name leads."""
    number: str
    """`major:minor`."""
    size: int
    signatures: dict[str, str]
    """As blkid finds them: TYPE, LABEL, PTTYPE."""
    in_use: tuple[str, ...]
    """What uses it, one line each; not where it is mounted."""
    mounts: tuple[str, ...]
    """Where it is mounted."""
    edges: tuple[str, ...]
    """Ends of it that are not all zero; not read where it is mounted, and so is not blank."""

    @property
    def kind(self) -> str:
        return self.signatures.get("TYPE", "")

    def findings(self) -> list[str]:
        """Why it is not blank, one line each; empty where it is."""
        found = [*self.in_use, *(f"it is mounted at {point}" for point in self.mounts)]
        if self.signatures:
            result = " ".join(f"{key}={value}" for key, value in sorted(self.signatures.items()))
            found.append(f"blkid finds {result}")
        return [*found, *self.edges]


def look(node: Node, device: str) -> Contents:
    """Raises PlanError where the device is not found, or cannot be read."""
    path, block, number = _find(node, device)
    points = tuple(sorted({x.point for x in read_mounts(node.root) if x.device == number}))
    size = int((block / "size").read_text(encoding="ascii")) * 512
    if size == 0:
        raise PlanError(f"{device} has no size: its medium is missing, or it failed. See dmesg")
    signatures = _signatures(node, device, path)
    edges = () if points else _edges(node, device, path, size)
    return Contents(path, number, size, signatures, _users(node, block), points, edges)


def _find(node: Node, device: str) -> tuple[Path, Path, str]:
    """Its path, its directory in sys, and its number."""
    try:
        path = node.path(device).resolve(strict=True)
    except OSError as error:
        raise PlanError(
            f"{device}: device not found on this host. See ls -l /dev/disk/by-id for those it has"
        ) from error
    block = node.path(f"sys/class/block/{path.name}")
    if not block.is_dir():
        raise PlanError(f"{device} leads to {path}, which is not a block device")
    return path, block, (block / "dev").read_text(encoding="ascii").strip()


def _users(node: Node, block: Path) -> tuple[str, ...]:
    found = []
    parts = sorted(path.parent.name for path in block.glob(f"{block.name}*/partition"))
    if parts:
        found.append(f"it has partitions: {', '.join(parts)}")
    holders = sorted(path.name for path in (block / "holders").glob("*"))
    if holders:
        found.append(f"it is part of {', '.join(holders)} (LVM, RAID or encryption)")
    for line in (node.read("proc/swaps") or "").split("\n")[1:]:
        words = line.split()
        if words and Path(words[0]).name == block.name:
            found.append("it is swap space in use")
    return tuple(found)


def _read(node: Node, device: str, *argv: str) -> Result:
    try:
        return node.look(argv, check=False)
    except CommandError as error:
        raise PlanError(
            f"{device} does not answer: {error}. See dmesg and smartctl -a. Replace the disk, or "
            "remove its file system from cluster_filesystems"
        ) from error


def _signatures(node: Node, device: str, path: Path) -> dict[str, str]:
    """By the device itself, never by what blkid remembers."""
    result = _read(node, device, "blkid", "-p", "-o", "export", str(path))
    if result.rc == NOTHING:
        return {}
    if result.rc == AMBIVALENT:
        return {"TYPE": "more than one"}
    found = dict(line.split("=", 1) for line in result.stdout.split("\n") if "=" in line)
    found.pop("DEVNAME", None)
    if result.rc != FOUND or not found:
        raise PlanError(
            f"{device}: blkid cannot read it (exit status {result.rc}): {result.stderr.strip()}"
        )
    return found


def _edges(node: Node, device: str, path: Path, size: int) -> tuple[str, ...]:
    """Raises PlanError where an end cannot be read."""
    found = []
    for end, offset in (("first", 0), ("last", max(0, size - EDGE))):
        words = ["cmp", "-n", str(min(EDGE, size)), "-i", f"{offset}:0", str(path), "/dev/zero"]
        result = _read(node, device, *words)
        if result.rc not in (0, 1):
            raise PlanError(f"{device}: cannot be read: {result.stderr.strip()}. See dmesg")
        if result.rc:  # differs, or ends early: not known to be blank
            found.append(f"its {end} MiB is not all zero")
    return tuple(found)


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
        kind = self.format if make else contents.kind
        unit = node.file(path_of(self.unit), self.unit_text(kind))
        steps = []
        if make:
            steps.append(
                Step(
                    f"{self.device}: file system",
                    f"blank, {contents.size // 10**9} GB",
                    f"{self.format}, label {label(self.name)}",
                    lambda: self._make(node),
                    essential=True,
                )
            )
        state = "unit missing or different" if unit.changed else systemd.state(node, self.unit)
        if state != ENABLED:
            steps.append(Step(self.unit, state, ENABLED, lambda: self._mount(node), essential=True))
        return Plan([unit], steps)

    def verify(self, node: Node) -> Verdict:
        wanted = f"{self.device} mounted at {self.directory}"
        if node.container:
            why = node.not_here("block devices are the host's; the directory is served as it is")
            return Verdict([not_applicable(CHECK, wanted, why, subject=self.directory)])
        try:
            _path, _block, number = _find(node, self.device)
        except PlanError as error:
            return Verdict([Check(CHECK, wanted, "unknown", FAILED, self.directory, str(error))])
        at = on(read_mounts(node.root), self.directory)
        state = systemd.state(node, self.unit)
        over = mounts.drop_ins(node, self.directory, [self.unit])
        if at is not None and at.device == number and state == ENABLED:
            return Verdict([Check(CHECK, wanted, wanted, OK, self.directory), *over])
        found = f"{at.source} mounted there" if at else "nothing mounted there"
        reason = f"its unit {self.unit} is {state}: see journalctl -b -u {self.unit}"
        status = differs(node.check_mode)
        return Verdict([Check(CHECK, wanted, found, status, self.directory, reason), *over])

    def _place(self, node: Node, contents: Contents) -> None:
        """Raises PlanError where the directory, or the device, is taken already."""
        line = mounts.in_fstab(node, self.directory)
        if line:
            raise PlanError(
                f"{self.directory}: {line}: it mounts something there. Remove that line, or "
                "remove `device` to serve the directory as it is"
            )
        at = on(read_mounts(node.root), self.directory)
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
        directory = node.path(self.directory)
        there = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
        if there:
            raise PlanError(
                f"{self.directory} is not empty, and would be hidden by {self.device}: "
                f"{some(there, SHOWN)}. Move what is in it elsewhere, then run again"
            )

    def _to_make(self, contents: Contents) -> bool:
        """Whether a file system must be made. Raises PlanError where none can be used."""
        if contents.in_use:
            raise PlanError(f"{self.device} cannot be served: {'; '.join(contents.in_use)}")
        if self.format:
            known = contents.signatures.get("LABEL") == label(self.name)
            if contents.kind == self.format and known:
                return False
            found = contents.findings()
            if not found:
                return True
            raise PlanError(
                f"{self.device} is not blank: {'; '.join(found)}. To serve an xfs or ext4 that is "
                "there, remove `format`; else name another device, or blank this one by hand "
                "(docs/shared-storage.md)"
            )
        if contents.kind in KINDS:
            return False
        why = "; ".join(contents.findings()) or "it is blank"
        raise PlanError(
            f"{self.device} has no file system that can be served ({' or '.join(KINDS)}): {why}. "
            "Name another device, or set `format` where it is blank"
        )

    def _make(self, node: Node) -> None:
        """No -f, no -F: mkfs.xfs looks by itself too and refuses, mkfs.ext4 on a terminal alone.
        There is nothing to discard on a blank device."""
        try:
            contents = look(node, self.device)
        except PlanError as error:
            raise StepError(str(error)) from error
        found = contents.findings()
        if found:
            raise StepError(f"{self.device} is not blank any more: {'; '.join(found)}")
        words = ["mkfs.xfs", "-K"] if self.format == XFS else ["mkfs.ext4", "-E", "nodiscard"]
        node.run([*words, "-q", "-L", label(self.name), str(contents.path)])

    def _mount(self, node: Node) -> None:
        systemd.control(node, "daemon-reload")
        systemd.control(node, "enable", self.unit)
        systemd.control(node, "start", self.unit)

    def unit_text(self, kind: str) -> str:
        """Without the header. The server starts after it, and not without it."""
        return f"""{OF_DEVICE}

[Unit]
Description=Device of the shared file system {self.name}
Before=nfs-server.service

[Mount]
What={self.device}
Where={self.directory}
Type={kind}
Options={OPTIONS}

[Install]
WantedBy=multi-user.target
"""
