# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The device below a served directory: never formatted when there is anything on it.

A file system is made only where `format` asks for one and the device is blank by every look of
`blank`, which looks once more right before. One that is there is used as it is: any xfs or ext4
where nothing is to be made, and the one that was made here, by its label, where something is.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection

from ...core import systemd
from ...core.checks import FAILED, OK, PENDING, Check, not_applicable
from ...core.dataclass import dataclass
from ...core.part import Node, Plan, PlanError, Step, StepError, Verdict
from ...core.text import some
from .. import foreign, mounted
from ..units import DIRECTORY, ENABLED, MOUNT, path_of, unit_name
from . import blank
from .blank import Contents

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
        contents = blank.look(node, self.device)
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
            contents = blank.look(node, self.device)
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
                f"Unmount it (systemctl stop {self.unit}) when nobody uses it, then run again"
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
                "Name another device; or, if nobody wants what is on it, make it blank by hand "
                f"({DOCS}). It is never formatted as it is"
            )
            if contents.kind in KINDS:
                way = "To serve what is on it, take out `format`. " + way
            raise PlanError(f"{self.device} is not blank: {'; '.join(found)}. {way}")
        if contents.kind in KINDS and contents.uuid:
            return False
        told = "; ".join(contents.findings()) or "it is blank"
        raise PlanError(
            f"{self.device} has no file system that can be served ({' or '.join(KINDS)}): {told}. "
            "Name another device, or say `format` where it is blank"
        )

    # What is done.

    def _new_uuid(self, node: Node) -> str:
        """Of this device in this machine: check mode and the run after it show the same one."""
        machine = (node.read("etc/machine-id") or "").strip()
        return str(uuid.uuid5(_OURS, f"{machine} {self.device} {self.name}"))

    def _make(self, node: Node, identity: str) -> None:
        try:
            contents = blank.look(node, self.device)
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
    """Units of devices that are served no more: found, and taken away only when that is asked."""

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
            directory = foreign.value_of(text, "Where")
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
