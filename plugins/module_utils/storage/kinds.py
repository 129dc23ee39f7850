# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What only a file system holds: mount points, devices, modes, versions of NFS."""

from __future__ import annotations

import re
from typing import Any

from ..dataclass import dataclass
from ..schema.findings import nearest
from ..schema.kinds import Kind, Wrong, shown
from .paths import wrong_form, wrong_mount

VERSIONS = ("4.2", "4.1", "3")
STABLE = "/dev/disk/by-id/..., a name that stays with the device"
_NUMBERED = re.compile(r"/dev/((sd|vd|xvd|hd)[a-z]+\d*|nvme\d+n\d+(p\d+)?|mmcblk\d+(p\d+)?)")
"""Names that the kernel gives in the order in which it finds devices."""


@dataclass(frozen=True)
class MountPoint(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise Wrong(
                "storage.no_mount_point",
                f"{shown(value)} is not an absolute path",
                "Write one such as /mnt/checkpoints",
            )
        wrong = wrong_form(value) or wrong_mount(value)
        if wrong is not None:
            raise wrong
        return value

    def describe(self) -> str:
        return "an absolute path"


@dataclass(frozen=True)
class Device(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        if value == "":
            return ""
        if not isinstance(value, str) or not re.fullmatch(r"/dev/[A-Za-z0-9._:+=@/-]+", value):
            raise Wrong(
                "storage.no_device",
                f"{shown(value)} is not the path of a device",
                f"Write {STABLE}",
            )
        if {"", ".", ".."} & set(value.split("/")[1:]):
            raise Wrong(
                "storage.device_not_plain",
                f"{value!r} is not the plain path of a device",
                f"Write {STABLE}",
            )
        if _NUMBERED.fullmatch(value):
            raise Wrong(
                "storage.device_numbered",
                f"{value!r} may be another device after the next boot",
                f"Write {STABLE}: `ls -l /dev/disk/by-id` has it",
            )
        return value

    def describe(self) -> str:
        return "`/dev/disk/by-id/...`"


@dataclass(frozen=True)
class Mode(Kind):
    """Four octal digits. Not for everybody to write: the file system is seen by every account."""

    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"[0-7]{3,4}", value):
            raise Wrong(
                "storage.no_mode",
                f"{shown(value)} is not a mode of three or four octal digits",
                'Write it in quotes, as in "0770"',
            )
        mode = value.rjust(4, "0")
        if int(mode[3]) & 2:
            raise Wrong(
                "storage.mode_for_all",
                f"{value!r} lets every account of every host write there",
                'Write "0770", or "2770" for files that belong to the group',
            )
        if mode[0] not in "0123":
            raise Wrong(
                "storage.mode_set_user_id",
                f"{value!r} has the set-user-ID bit, which no directory has",
                "Remove it",
            )
        if mode[1] != "7":
            raise Wrong(
                "storage.mode_not_for_owner",
                f"{value!r} keeps its owner from using it",
                f'Write "{mode[0]}7{mode[2:]}"',
            )
        return mode

    def describe(self) -> str:
        return "mode `0770`"


@dataclass(frozen=True)
class NfsVersion(Kind):
    reads_text = True

    def convert(self, value: Any) -> str:
        # Written by hand into group_vars, 4.2 is a number; nothing else is written like it.
        text = str(value) if isinstance(value, (int, float)) else value
        if isinstance(value, bool) or text not in VERSIONS:
            if text in ("4", "4.0"):
                raise Wrong(
                    "storage.nfs_without_sessions",
                    f"{shown(value)} has no sessions: after a break, requests may be done twice",
                    "Write 4.2 or 4.1",
                )
            raise Wrong(
                "model.not_a_choice",
                f"{shown(value)} is not a choice",
                nearest(str(value), VERSIONS),
            )
        return str(text)

    def describe(self) -> str:
        return " or ".join(f"`{version}`" for version in VERSIONS)


@dataclass(frozen=True)
class MountOption(Kind):
    """One option. Of several in one only the names are told: a value may be a password."""

    reads_text = True

    def convert(self, value: Any) -> str:
        if not isinstance(value, str) or not value.partition("=")[0]:
            raise Wrong(
                "storage.no_option",
                f"{shown(value)} is not a mount option",
                "Write one such as noatime",
            )
        names = [part.partition("=")[0] for part in re.split(r"[\s,\\]+", value)]
        if len(names) > 1:
            raise Wrong(
                "storage.options_in_one",
                f"{', '.join(filter(None, names))}: these stand in one entry, with commas, "
                "blanks or backslashes between them",
                "Give each an entry of its own, without any of these",
                tuple(names),
            )
        return value

    def describe(self) -> str:
        return "mount option"
