# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Perform one round of storage_use on this host: write or read every file system."""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core import machine
from ..core.checks import Check
from ..ssh import account
from . import proof
from .file_system import of_variable
from .units import wanted_mounts

ROUNDS = {"write": proof.write, "read": proof.read}


class UserError(Exception):
    """The MPI user is unknown on this host, and no number is given."""


def perform(
    given: Mapping[str, Any], check_mode: bool
) -> tuple[list[Check], dict[str, dict[str, Any]]]:
    """Return the checks, and the figures by file system. Raises UserError and OSError."""
    name, uid = given["user"], given["uid"]
    user = account.find(name)
    if user is None:  # the layer ssh may create it later
        if uid is None:
            raise UserError(f"user {name} not found, and no number is given (cluster_mpi_uid)")
        user = pwd.struct_passwd((name, "x", uid, uid, "", "/", ""))
    proofs = {
        target.fs.name: ROUNDS[given["round"]](target)
        for target in _targets(given, user, check_mode)
    }
    checks = [check for made in proofs.values() for check in made.checks.values()]
    return checks, {name: made.figures for name, made in proofs.items()}


def _targets(
    given: Mapping[str, Any], user: pwd.struct_passwd, check_mode: bool
) -> Iterator[proof.Target]:
    filesystems = [of_variable(entry) for entry in given["filesystems"]]
    for wanted in wanted_mounts(filesystems, given["host"], given["groups"], 0):
        yield proof.Target(
            wanted=wanted,
            host=given["host"],
            cluster=given["cluster"],
            token=given["token"],
            user=given["user"],
            uid=user.pw_uid,
            size=given["size_mib"] << 20,
            limit_s=given["time_limit_s"],
            alone=given["alone"],
            check_mode=check_mode,
            container=machine.container(),
            become=account.rights_of(user),
            **given["seats"].get(wanted.fs.name, {}),
        )


def is_virtual(cpus: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether this is a container or virtual machine, where line rates are nominal."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", cpus.read_text("utf-8"), re.MULTILINE)
    return machine.container() is not None or (
        flags is not None and "hypervisor" in flags[1].split()
    )
