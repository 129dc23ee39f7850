# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The little of systemd that this layer asks and tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from .part import Node

DIRECTORIES = ("etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")


def installed(node: Node, units: Sequence[str]) -> Optional[str]:
    """The first of `units` that is installed under its own name; an alias does not count."""
    for unit in units:
        for directory in DIRECTORIES:
            path = node.path(f"{directory}/{unit}")
            if path.is_file() and not path.is_symlink():
                return unit
    return None


def show(node: Node, unit: Optional[str], keys: Sequence[str]) -> dict[str, str]:
    """Properties of a unit, or of the manager itself."""
    words = [word for key in keys for word in ("-p", key)]
    text = node.look(["systemctl", "show", *([unit] if unit else []), *words]).stdout
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def reload(node: Node) -> None:
    node.run(["systemctl", "daemon-reload"])


def state(node: Node, unit: str) -> str:
    """Whether a service starts at boot and runs now: `enabled, active`."""
    found = show(node, unit, ["UnitFileState", "ActiveState"])
    return f"{found.get('UnitFileState') or 'unknown'}, {found.get('ActiveState') or 'unknown'}"


def enable(node: Node, unit: str) -> None:
    node.run(["systemctl", "enable", unit])


def start(node: Node, unit: str) -> None:
    node.run(["systemctl", "start", unit])


def stop(node: Node, unit: str) -> None:
    node.run(["systemctl", "stop", unit])


def restart(node: Node, unit: str) -> None:
    node.run(["systemctl", "restart", unit])
