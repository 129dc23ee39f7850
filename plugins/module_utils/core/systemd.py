# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""systemd units: whether they are installed, their state, and commands that change it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Optional

from .commands import CommandError
from .part import Node

DIRECTORIES = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
LINKS = "etc/systemd/system/multi-user.target.wants"
AT_BOOT = ("enabled", "static", "indirect", "generated", "alias", "enabled-runtime")
"""States of unit files that need not or cannot be enabled."""


def installed(node: Node, units: Sequence[str]) -> Optional[str]:
    """Return the first of `units` that is installed; an alias does not count."""
    for unit in units:
        for directory in DIRECTORIES:
            path = node.path(f"{directory}/{unit}")
            if path.is_file() and not path.is_symlink():
                return unit
    return None


def show(node: Node, unit: Optional[str], keys: Sequence[str]) -> dict[str, str]:
    """Return properties of a unit, or of the manager if `unit` is None."""
    properties = [word for key in keys for word in ("-p", key)]
    text = node.look(["systemctl", "show", *([unit] if unit else []), *properties]).stdout
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def state(node: Node, unit: str) -> str:
    """Return whether a service starts at boot and runs now: `enabled, active`."""
    found = show(node, unit, ["UnitFileState", "ActiveState"])
    return f"{found.get('UnitFileState') or 'unknown'}, {found.get('ActiveState') or 'unknown'}"


def active(node: Node, unit: str) -> bool:
    return show(node, unit, ["ActiveState"]).get("ActiveState") == "active"


def at_boot(node: Node, unit: str) -> bool:
    return show(node, unit, ["UnitFileState"]).get("UnitFileState") in AT_BOOT


def since(node: Node, unit: str, key: str = "ActiveEnterTimestamp") -> Optional[int]:
    """Return when a service was started, in seconds since the epoch; None if it never was.
    `StateChangeTimestamp` is the time of the last start or reload."""
    argv = ["systemctl", "show", unit, "-p", key, "--timestamp=unix"]
    match = re.search(r"@([0-9]+)", node.look(argv).stdout)
    return int(match[1]) if match else None


def linked(node: Node, unit: str) -> bool:
    """Return whether the unit starts at boot, by its link, without running a program."""
    return node.path(f"{LINKS}/{unit}").is_symlink()


def link(node: Node, unit: str, wanted: bool) -> None:
    """Enable or disable a unit at boot, after its file was written or removed."""
    control(node, "daemon-reload")
    if not wanted:
        node.path(f"{LINKS}/{unit}").unlink(missing_ok=True)
    elif not linked(node, unit):
        control(node, "enable", unit)


def control(node: Node, *arguments: str) -> None:
    """Run systemctl, for example with `enable --now UNIT`. Raises CommandError."""
    try:
        node.run(["systemctl", *arguments])
    except CommandError as error:
        if "is masked" not in str(error):
            raise
        remedy = (
            f"If it was not masked on purpose: systemctl unmask {arguments[-1]}, then run again"
        )
        raise CommandError(f"{error}. {remedy}") from error
