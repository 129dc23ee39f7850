# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What kind of machine this is, read under a root directory so that tests can bring their own."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

IN_CONTAINER = "not applicable in a container"
"""The reason every layer gives for what only a kernel of its own could do."""
NO_MOUNTS = "mounts are made by the kernel of its host"
"""Follows it wherever that is the cause: the summary then has one line for all of them."""


def container(root: Path = Path("/")) -> Optional[str]:
    """The container engine this system runs under (`podman`), or None on a machine of its own."""
    marker = root / "run/systemd/container"
    if marker.is_file():
        return marker.read_text(encoding="ascii").strip() or "container"
    if (root / "run/.containerenv").exists():
        return "podman"
    return None


def boot_id(root: Path = Path("/")) -> str:
    """The identity of this boot: changes with every reboot."""
    return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
