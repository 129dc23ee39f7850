# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Directories that may be mounted over and served: how they are written, and which are taken.

A path is written in unit names, unit files, exports and /proc, each of which has its own way for
blanks, percent signs and the like. What all of them write as it is, is allowed.
"""

from __future__ import annotations

import posixpath
import re
from typing import Optional

from ..schema.kinds import Wrong
from .mounted import overlap as overlap
from .mounted import within
from .units import unit_name

FINE = "letters, digits, and . _ -"
OF_THE_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root"),
    *("/run", "/sbin", "/snap", "/sys", "/tmp", "/usr", "/var", "/opt/mellanox", "/opt/nvidia"),
)
"""Nothing is mounted over these, nor anywhere in them."""
OF_USR_LOCAL = (
    *("bin", "etc", "games", "include", "lib", "lib64", "libexec", "man", "sbin", "share", "src"),
)
"""What a distribution has in /usr/local; other directories there are the operator's."""
CLEANED = ("/tmp", "/var/tmp")
SHARED_BY_MANY = ("/home", "/media", "/mnt", "/opt", "/srv")
"""Directories for directories: mounted over or given an owner, all that is in them suffers."""

UNIT_NAME = 255
"""The longest name of a unit that systemd takes."""


def wrong_form(path: str, further: str = "") -> Optional[Wrong]:
    """What is wrong with how a directory is written. `further`: characters that are fine too."""
    fine = FINE + "".join(f" {character}" for character in further)
    if not path.startswith("/"):
        return Wrong(
            "storage.path_relative",
            f"{path!r} does not begin at the root",
            "Write all of the path, from / on",
        )
    for character in path:
        if not re.fullmatch(r"[A-Za-z0-9._/-]", character) and character not in further:
            return Wrong(
                "storage.path_character",
                f"{path!r} has {character!r} in it, which units, exports and /proc write "
                "differently",
                f"Use {fine}",
            )
    if ".." in path.split("/"):
        return Wrong(
            "storage.path_goes_up",
            f"{path!r} goes up by '..'",
            f"Write where it leads: {normal(path)}",
        )
    if path != normal(path):
        return Wrong(
            "storage.path_not_plain", f"{path!r} is not the plain path", f"Write {normal(path)}"
        )
    return None


def normal(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def wrong_mount(path: str) -> Optional[Wrong]:
    """Why nothing can be mounted there."""
    instead = "Mount it somewhere such as /mnt/checkpoints"
    if path == "/":
        return Wrong("storage.mount_on_root", "'/' is the root file system of the host", instead)
    if path == "/opt":
        return Wrong(
            "storage.mount_on_opt",
            "'/opt' would hide what packages have installed there",
            "Mount it below, at /opt/NAME",
        )
    taken = of_the_system(path)
    if taken is not None:
        return Wrong("storage.mount_in_system", taken, instead)
    length = len(unit_name(path, "automount"))
    if length > UNIT_NAME:
        return Wrong(
            "storage.mount_too_long",
            f"{path[:40]!r}... makes a unit name of {length} characters, and systemd takes "
            f"{UNIT_NAME}",
            "Write a shorter one; each - counts four times",
        )
    return None


def wrong_served(path: str) -> Optional[Wrong]:
    """Why nothing can be served from there."""
    wrong = wrong_form(path)
    if wrong is not None:
        return wrong
    instead = "Serve a directory of its own, such as /srv/checkpoints"
    if path == "/":
        return Wrong("storage.serves_root", "'/' would hand out the whole host", instead)
    if path in SHARED_BY_MANY:
        return Wrong(
            "storage.serves_shared",
            f"{path!r} would be given the owner and mode of this file system, with all else that "
            "is in it",
            instead,
        )
    taken = of_the_system(path)
    return None if taken is None else Wrong("storage.serves_system", taken, instead)


def of_the_system(path: str) -> Optional[str]:
    """`'/etc/x' is in /etc, ...`, where a path is the system's own."""
    for cleaned in CLEANED:
        if within(path, cleaned):
            return f"{path!r} is where the system deletes files that are old, on all hosts"
    if within(path, "/usr/local") and path != "/usr/local":
        top = path.split("/")[3]
        if top not in OF_USR_LOCAL:
            return None
    for directory in OF_THE_SYSTEM:
        if within(path, directory):
            where = "is" if path == directory else f"is in {directory},"
            return f"{path!r} {where} a directory of the system"
    return None
