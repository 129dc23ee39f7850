# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an error of a file system means, and what to do about it."""

from __future__ import annotations

import errno

from ...dataclass import dataclass

NOBODY = (65534, 4294967294)
"""Who owns what an NFS server gives to nobody: as 16 bits have it, and as -2 reads in 32."""


@dataclass(frozen=True)
class Fault:
    check: str
    found: str
    remedy: str


def code(number: int) -> str:
    return errno.errorcode.get(number, f"error {number}")


def fault(number: int, text: str, step: str, *, automount: bool, unit: str, user: str) -> Fault:
    """The one finding that an error is. `unit` is the mount unit."""
    told = f"{text or code(number)} ({code(number)}) while {step}"
    if number == errno.ESTALE:
        return Fault(
            "storage_mounted",
            f"stale handle: {told}",
            "the server exports another directory or file system under this path than when it was "
            f"mounted. End what uses the mount, then: systemctl restart {unit}",
        )
    if number == errno.EROFS:
        return Fault(
            "storage_read_only",
            f"read-only: {told}",
            "mounted to be written to, and the server or the kernel made it read-only: look at the "
            "export there (exportfs -v: rw) and at its disk (dmesg: remounting read-only)",
        )
    if number == errno.EDQUOT:
        return Fault("storage_space", f"over quota: {told}", f"raise the quota of {user} there")
    if number == errno.ENOSPC:
        return Fault(
            "storage_space",
            f"full: {told}",
            "no space, or no inodes, are left there (df, df -i): remove old checkpoints",
        )
    if number in (errno.EACCES, errno.EPERM):
        return Fault(
            "storage_write",
            f"not allowed: {told}",
            f"{user} has to be allowed to make a directory in the top directory: its owner and "
            "mode (keys owner, mode), the same uid on the server, and the export's squash options",
        )
    if automount and step.startswith("opening /"):
        return Fault(
            "storage_mounted",
            f"could not be mounted: {told}",
            f"systemctl status {unit} says why: the server's name, its export, its service",
        )
    if number == errno.ENOENT and step.startswith("reading "):
        return Fault(
            "storage_neighbour",
            f"not there: {told}",
            "the neighbour has written it, and this node does not see it: do both mount the same "
            "export of the same server?",
        )
    check = "storage_neighbour" if step.startswith("reading ") else "storage_write"
    return Fault(check, told, "the server's log and dmesg here say more")
