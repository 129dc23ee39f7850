# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The device of a served directory, which is never formatted if it contains data.

All tests are repeated right before `mkfs`. Each finds data that the others miss: blkid finds
signatures, the kernel lists users of the device, and any non-zero byte at its ends is data. An
unreadable device is not blank. A failing disk may never respond, so only programs with a time limit
read it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
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
"""Number of bytes read at either end, where signatures are."""
FOUND, NOTHING, AMBIVALENT = 0, 2, 8
"""Exit statuses of `blkid -p`. NOTHING may also mean that it could not read the device."""
CHECK = "nfs_device"
XFS, EXT4 = "xfs", "ext4"
KINDS = (XFS, EXT4)
LABEL = "roce-"
MAX_LABEL = 12
"""Maximum length of an xfs label; ext4 permits 16 characters."""
OPTIONS = "noatime,nodev,nofail"
"""`nofail`: the host boots without the device."""
MAX_LISTED = 5


@dataclass(frozen=True)
class Contents:
    """State of a block device: `number` is `major:minor`; `in_use` lists users other than mounts;
    `edges` the ends that are not all zero, which are not read if the device is mounted."""

    path: Path
    number: str
    size: int
    signatures: dict[str, str]
    in_use: tuple[str, ...]
    mounts: tuple[str, ...]
    edges: tuple[str, ...]

    @property
    def kind(self) -> str:
        return self.signatures.get("TYPE", "")

    def findings(self) -> list[str]:
        """Reasons why it is not blank, one line each; empty if it is blank."""
        reasons = [*self.in_use, *(f"it is mounted at {point}" for point in self.mounts)]
        if self.signatures:
            result = " ".join(f"{key}={value}" for key, value in sorted(self.signatures.items()))
            reasons.append(f"blkid finds {result}")
        return [*reasons, *self.edges]


def look(node: Node, device: str) -> Contents:
    """Read a device. Raises PlanError if it does not exist or cannot be read."""
    path, block, number = _find(node, device)
    points = tuple(sorted({x.point for x in read_mounts(node.root) if x.device == number}))
    size = int((block / "size").read_text(encoding="ascii")) * 512
    if size == 0:
        raise PlanError(f"{device} has no size: its medium is missing, or it failed. See dmesg")
    signatures = _signatures(node, device, path)
    edges = () if points else _edges(node, device, path, size)
    return Contents(path, number, size, signatures, _users(node, block), points, edges)


def _find(node: Node, device: str) -> tuple[Path, Path, str]:
    try:
        path = node.path(device).resolve(strict=True)
    except OSError as error:
        raise PlanError(f"{device}: device not found on this host") from error
    block = node.path(f"sys/class/block/{path.name}")
    if not block.is_dir():
        raise PlanError(f"{device} leads to {path}, which is not a block device")
    return path, block, (block / "dev").read_text(encoding="ascii").strip()


def _users(node: Node, block: Path) -> tuple[str, ...]:
    users = []
    partitions = sorted(path.parent.name for path in block.glob(f"{block.name}*/partition"))
    if partitions:
        users.append(f"it has partitions: {', '.join(partitions)}")
    holders = sorted(path.name for path in (block / "holders").glob("*"))
    if holders:
        users.append(f"it is part of {', '.join(holders)} (LVM, RAID or encryption)")
    for line in (node.read("proc/swaps") or "").split("\n")[1:]:
        words = line.split()
        if words and Path(words[0]).name == block.name:
            users.append("it is swap space in use")
    return tuple(users)


def _read(node: Node, device: str, *argv: str) -> Result:
    try:
        return node.look(argv, check=False)
    except CommandError as error:
        raise PlanError(f"{device} does not respond: {error}. See dmesg") from error


def _signatures(node: Node, device: str, path: Path) -> dict[str, str]:
    """Signatures read from the device, not from blkid's cache."""
    result = _read(node, device, "blkid", "-p", "-o", "export", str(path))
    if result.rc == NOTHING:
        return {}
    if result.rc == AMBIVALENT:
        return {"TYPE": "more than one"}
    signatures = dict(line.split("=", 1) for line in result.stdout.split("\n") if "=" in line)
    signatures.pop("DEVNAME", None)
    if result.rc != FOUND or not signatures:
        raise PlanError(
            f"{device}: blkid cannot read it (exit status {result.rc}): {result.stderr.strip()}"
        )
    return signatures


def _edges(node: Node, device: str, path: Path, size: int) -> tuple[str, ...]:
    """Ends that are not all zero. Raises PlanError if one cannot be read."""
    edges = []
    for end, offset in (("first", 0), ("last", max(0, size - EDGE))):
        words = ["cmp", "-n", str(min(EDGE, size)), "-i", f"{offset}:0", str(path), "/dev/zero"]
        result = _read(node, device, *words)
        if result.rc not in (0, 1):
            raise PlanError(f"{device}: cannot be read: {result.stderr.strip()}. See dmesg")
        if result.rc:  # differs, or is shorter
            edges.append(f"its {end} MiB is not all zero")
    return tuple(edges)


def label(name: str) -> str:
    """The label of a file system created here; contains a digest if the name is too long."""
    if len(LABEL + name) <= MAX_LABEL:
        return LABEL + name
    digest = hashlib.sha256(name.encode()).hexdigest()
    return LABEL + digest[: MAX_LABEL - len(LABEL)]


@dataclass(frozen=True)
class Device:
    """With an empty `format`, no file system is ever created."""

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
            before = f"blank, {contents.size // 10**9} GB"
            after, act = f"{self.format}, label {label(self.name)}", partial(self._make, node)
            steps.append(Step(f"{self.device}: file system", before, after, act, essential=True))
        state = "unit missing or different" if unit.changed else systemd.state(node, self.unit)
        if state != ENABLED:
            mount = partial(self._mount, node)
            steps.append(Step(self.unit, state, ENABLED, mount, essential=True))
        return Plan([unit], steps)

    def verify(self, node: Node) -> Verdict:
        wanted = f"{self.device} mounted at {self.directory}"
        if node.container:
            reason = node.not_here("block devices are the host's; the directory is served as it is")
            return Verdict([not_applicable(CHECK, wanted, reason, subject=self.directory)])
        try:
            _path, _block, number = _find(node, self.device)
        except PlanError as error:
            return Verdict([Check(CHECK, wanted, "unknown", FAILED, self.directory, str(error))])
        at = on(read_mounts(node.root), self.directory)
        state = systemd.state(node, self.unit)
        if at is not None and at.device == number and state == ENABLED:
            over = mounts.drop_ins(node, self.directory, [self.unit])
            return Verdict([Check(CHECK, wanted, wanted, OK, self.directory), *over])
        actual = f"{at.source} mounted there" if at else "nothing mounted there"
        reason = f"its unit {self.unit} is {state}: see journalctl -b -u {self.unit}"
        status = differs(node.check_mode)
        return Verdict([Check(CHECK, wanted, actual, status, self.directory, reason)])

    def _place(self, node: Node, contents: Contents) -> None:
        line = mounts.in_fstab(node, self.directory)
        if line:
            raise PlanError(f"{self.directory}: {line}. Remove the line, or `device`")
        at = on(read_mounts(node.root), self.directory)
        if at is not None and at.device == contents.number:
            return
        if at is not None:
            raise PlanError(
                f"{self.directory}: {at.source} is mounted there instead of {self.device}"
            )
        if contents.mounts:
            raise PlanError(
                f"{self.device} is mounted at {', '.join(contents.mounts)} instead of "
                f"{self.directory}"
            )
        directory = node.path(self.directory)
        names = sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []
        if names:
            raise PlanError(
                f"{self.directory} is not empty, and would be hidden by {self.device}: "
                f"{some(names, MAX_LISTED)}"
            )

    def _to_make(self, contents: Contents) -> bool:
        """Whether a file system must be created. Raises PlanError if the device is unusable."""
        if contents.in_use:
            raise PlanError(f"{self.device} cannot be served: {'; '.join(contents.in_use)}")
        if self.format:
            known = contents.signatures.get("LABEL") == label(self.name)
            if contents.kind == self.format and known:
                return False
            reasons = contents.findings()
            if not reasons:
                return True
            raise PlanError(
                f"{self.device} is not blank: {'; '.join(reasons)}. To serve an existing xfs or "
                "ext4, remove `format`; to blank it by hand, see docs/shared-storage.md"
            )
        if contents.kind in KINDS:
            return False
        listed = "; ".join(contents.findings()) or "it is blank"
        raise PlanError(
            f"{self.device} has no {' or '.join(KINDS)} file system to serve: {listed}. "
            "Set `format` for a blank one"
        )

    def _make(self, node: Node) -> None:
        """Create the file system without -f or -F, so that mkfs refuses a device with data."""
        try:
            contents = look(node, self.device)
        except PlanError as error:
            raise StepError(str(error)) from error
        reasons = contents.findings()
        if reasons:
            raise StepError(f"{self.device} is no longer blank: {'; '.join(reasons)}")
        mkfs = ["mkfs.xfs", "-K"] if self.format == XFS else ["mkfs.ext4", "-E", "nodiscard"]
        node.run([*mkfs, "-q", "-L", label(self.name), str(contents.path)])

    def _mount(self, node: Node) -> None:
        systemd.control(node, "daemon-reload")
        systemd.control(node, "enable", self.unit)
        systemd.control(node, "start", self.unit)

    def unit_text(self, kind: str) -> str:
        """The mount unit without header. The NFS server requires it and starts after it."""
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
