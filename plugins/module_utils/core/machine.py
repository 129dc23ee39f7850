# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The kind of this machine and its boot, read below a root directory that tests replace."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

IN_CONTAINER = "not applicable in a container"
"""The reason of every check that does not apply to a shared kernel."""
NO_MOUNTS = "mounts are made by the kernel of its host"
"""Appended to it for mounts; one wording gives one line in the summary."""


def container(root: Path = Path("/")) -> Optional[str]:
    """Return the container engine of this system (`podman`), or None outside a container."""
    marker = root / "run/systemd/container"
    if marker.is_file():
        return marker.read_text(encoding="ascii").strip() or "container"
    if (root / "run/.containerenv").exists():
        return "podman"
    return None


def boot_id(root: Path = Path("/")) -> str:
    """Return the identity of this boot, which changes with every reboot."""
    return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
