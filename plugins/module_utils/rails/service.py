# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The network service itself: running now, and started at the next boot."""

from __future__ import annotations

from ..core.commands import Runner

READY = "active, starts at boot"
_STARTS_AT_BOOT = ("enabled", "enabled-runtime", "static", "indirect", "generated", "alias")


def state(unit: str, run: Runner) -> str:
    """`READY`, or what systemd says instead."""
    properties = ("--property=ActiveState", "--property=UnitFileState")
    text = run(("systemctl", "show", *properties, unit), check=False).stdout
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    active, file = values.get("ActiveState", "unknown"), values.get("UnitFileState", "unknown")
    if active in ("active", "reloading") and file in _STARTS_AT_BOOT:
        return READY
    return f"{active}, {file or 'not installed'}"


def start(unit: str, run: Runner) -> None:
    """Start it, now and at boot. Raises CommandError."""
    run(("systemctl", "enable", "--now", unit))
