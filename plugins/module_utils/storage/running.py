# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What systemd and the kernel say of a mount, in words for the operator."""

from __future__ import annotations

from typing import Optional

from ..commands import CommandError
from ..node import systemd
from ..node.part import Node
from .mounted import Mount
from .units import MountUnit

NOT_MOUNTED = "not mounted"
ENABLED = "enabled, active"
_SHOWN_LINES = 3


def boot_unit(unit: MountUnit) -> str:
    """What starts at boot: the automount point, or a bind mount itself."""
    return unit.mount if unit.is_bind else unit.automount


def state(node: Node, unit: str) -> tuple[str, str]:
    found = systemd.show(node, unit, ["UnitFileState", "ActiveState"])
    return found.get("UnitFileState") or "not installed", found.get("ActiveState") or "unknown"


def needs_reload(node: Node, unit: str) -> bool:
    return systemd.show(node, unit, ["NeedDaemonReload"]).get("NeedDaemonReload") == "yes"


def journal(node: Node, unit: str) -> str:
    """What the mount program said, which systemctl keeps for itself."""
    try:
        told = node.look(
            ["journalctl", "-q", "-o", "cat", "--no-pager", "-n", str(_SHOWN_LINES), "-u", unit],
            check=False,
        ).stdout.strip()
    except CommandError:
        return ""
    return f"; its journal: {' | '.join(told.splitlines())}" if told else ""


def shown(runs: Optional[Mount]) -> str:
    if runs is None:
        return NOT_MOUNTED
    inside = "" if runs.root == "/" else f" {runs.root} of it"
    return f"{runs.source}{inside} ({runs.kind})"
