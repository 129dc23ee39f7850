# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The host's own name: in the running kernel, in /etc/hostname, and safe from cloud-init."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

from ..core import mounts
from ..core.files import FilePlan, plan_file, with_header

CLOUD_INIT = "preserve_hostname: true\nmanage_etc_hosts: false\n"
"""cloud-init sets name and /etc/hosts anew at every boot unless told not to."""


class HostNameError(Exception):
    """The name could not be set; the text says why and what to do."""


def plan_hostname(name: str, root: Path = Path("/")) -> FilePlan:
    return plan_file(root / "etc/hostname", f"{name}\n")


def plan_cloud_init(root: Path = Path("/")) -> list[FilePlan]:
    """Tell cloud-init, where there is one, that name and /etc/hosts are not its own."""
    directory = root / "etc/cloud/cloud.cfg.d"
    if not directory.is_dir():
        return []
    return [plan_file(directory / "99-baremetal-mpi-roce.cfg", with_header(CLOUD_INIT))]


def running_name() -> str:
    return os.uname().nodename


def set_running_name(name: str) -> None:
    """Set the kernel's name, as hostnamectl would; works where no systemd answers."""
    try:
        socket.sethostname(name)
    except OSError as error:
        raise HostNameError(
            f"cannot set the running host name to {name!r}: {error.strerror}: run as root; a "
            "container needs the capability SYS_ADMIN"
        ) from error


def mounted_over(paths: Iterable[Path], root: Path = Path("/")) -> list[Path]:
    """Those of `paths` that are mount points of their own, and so cannot be replaced by a rename.

    Container engines bind their own /etc/hosts and /etc/hostname over the image's.
    """
    try:
        points = {each.point for each in mounts.read(root)}
    except OSError:
        return []
    return [path for path in paths if f"/{path.relative_to(root)}" in points]
