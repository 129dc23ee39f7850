# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What file systems cannot be beside each other: names, places and devices that meet."""

from __future__ import annotations

from typing import Any, Optional

from ..schema.findings import Findings, Path
from .file_system import CHECKPOINTS
from .paths import overlap

Value = dict[str, Any]
Placed = list[tuple[Path, Value]]
"""Entries that are mappings, with their places."""


def check_together(entries: Placed, findings: Findings) -> None:
    """Each rule over the entries that are right in what it looks at."""

    # What each rule looks at is decided first: what one of them finds hides nothing from the next.
    def right(*keys: str) -> Placed:
        return [
            (at, entry) for at, entry in entries if findings.clean(*((*at, key) for key in keys))
        ]

    names, purposes, mounts = right("name"), right("purpose"), right("mount")
    served = [
        (at, entry) for at, entry in right("source", "serve", "type") if entry["serve"] is not None
    ]
    _names(names, findings)
    _checkpoints(purposes, findings)
    _mounts(mounts, findings)
    _served(served, findings)
    _mounted_and_served(mounts, served, findings)
    _devices(served, findings)


def _names(entries: Placed, findings: Findings) -> None:
    first: dict[str, Path] = {}
    for at, entry in entries:
        place = first.setdefault(entry["name"], at)
        if place != at:
            findings.add(
                "storage.name_twice",
                (*at, "name"),
                f"{entry['name']!r} is also the name of {findings.place(place)}",
                "Rename one of them",
                value=entry["name"],
            )


def _checkpoints(entries: Placed, findings: Findings) -> None:
    first: Optional[Path] = None
    for at, entry in entries:
        if entry["purpose"] != CHECKPOINTS:
            continue
        if first is not None:
            findings.add(
                "storage.checkpoints_twice",
                (*at, "purpose"),
                f"checkpoints are also the purpose of {findings.place(first)}, and jobs are told "
                "of one",
                "Write scratch for the other one",
            )
        first = first or at


def _mounts(entries: Placed, findings: Findings) -> None:
    for number, (at, entry) in enumerate(entries):
        for other, before in entries[:number]:
            mount, taken = entry["mount"], before["mount"]
            if not overlap(mount, taken):
                continue
            how = "is also that of" if mount == taken else f"meets {taken!r}, that of"
            findings.add(
                "storage.mounts_overlap",
                (*at, "mount"),
                f"{mount!r} {how} {findings.place(other)}: one would hide the other",
                "Mount them beside each other",
                value=(mount, taken),
            )
            break


def _directory(entry: Value) -> str:
    return "/" + str(entry["source"]).rpartition(":/")[2]


def _served(entries: Placed, findings: Findings) -> None:
    for number, (at, entry) in enumerate(entries):
        for other, before in entries[:number]:
            host, directory, taken = entry["serve"]["host"], _directory(entry), _directory(before)
            if host != before["serve"]["host"] or not overlap(directory, taken):
                continue
            how = "is also that of" if directory == taken else f"meets {taken!r}, that of"
            findings.add(
                "storage.served_overlap",
                (*at, "source"),
                f"{directory!r} on {host} {how} {findings.place(other)}: each has its own owner, "
                "space and exports",
                "Serve directories beside each other",
                value=(directory, taken),
            )
            break


def _mounted_and_served(mounts: Placed, served: Placed, findings: Findings) -> None:
    for at, entry in mounts:
        for other, before in served:
            # The same path on the server and on its clients is fine, of the same file system.
            same = at == other and entry["mount"] == _directory(before)
            if overlap(entry["mount"], _directory(before)) and not same:
                findings.add(
                    "storage.mount_hides_served",
                    (*at, "mount"),
                    f"{entry['mount']!r} meets {_directory(before)!r}, which "
                    f"{before['serve']['host']} serves for {findings.place(other)}: a mount there "
                    "would hide what is served",
                    "Mount it elsewhere, such as in /mnt",
                    value=(entry["mount"], _directory(before)),
                )
                break


def _devices(served: Placed, findings: Findings) -> None:
    first: dict[tuple[str, str], Path] = {}
    for at, entry in served:
        device, host = entry["serve"]["device"], entry["serve"]["host"]
        if not device:
            continue
        place = first.setdefault((host, device), at)
        if place != at:
            findings.add(
                "storage.device_twice",
                (*at, "serve", "device"),
                f"{device!r} of {host} is also that of {findings.place(place)}",
                "Give each file system its own",
                value=device,
            )
