# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the three network services have in common.

A backend keeps one *block* of text per rail: a file of its own, or a stanza of one file. Blocks are
what is compared, written and, when a rail does not come up with its new block, put back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..core import systemd
from ..core.commands import Runner
from ..core.files import FilePlan, plan_file
from ..core.part import Node
from .plan import RailPlan

NETPLAN = "netplan"
NETWORKD = "networkd"
NETWORKMANAGER = "networkmanager"
BACKENDS = (NETPLAN, NETWORKMANAGER, NETWORKD)

Blocks = Mapping[str, str]
"""Interface to its block."""

READY = "active, starts at boot"


class Backend(Protocol):
    """One network service."""

    name: str
    unit: str
    """The systemd unit that configures the rails, now and at boot."""

    def render(self, rail: RailPlan) -> str:
        """The block of a rail."""

    def read(self) -> dict[str, str]:
        """The blocks that are on disk."""

    def files(self, blocks: Blocks) -> list[FilePlan]:
        """Every file of ours, as it is and as these blocks want it; superfluous ones go."""

    def validate(self, blocks: Blocks) -> None:
        """Refuse before anything is written what the service would. Raises CommandError."""

    def owner(self, interface: str) -> str:
        """What the service names as the rail's configuration once it has taken it over."""

    def owners(self, interfaces: Sequence[str]) -> dict[str, str]:
        """What it names now."""

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        """Take over the blocks of `written` and set `again` up anew; leave all else alone.

        Returns the service's errors about single rails. Raises CommandError.
        """


class FilePerRail:
    """A backend whose blocks are files of their own, named after the rails."""

    def __init__(self, run: Runner, root: Path, directory: str, name: str, mode: int) -> None:
        self._run = run
        self._root = root
        self._directory = root / directory
        self._prefix, self._suffix = name.split("RAIL")
        self._mode = mode

    def _path(self, interface: str) -> Path:
        return self._directory / f"{self._prefix}{interface}{self._suffix}"

    def _owned(self) -> list[Path]:
        return sorted(self._directory.glob(f"{self._prefix}*{self._suffix}"))

    def read(self) -> dict[str, str]:
        return {
            path.name[len(self._prefix) : -len(self._suffix)]: path.read_text(
                encoding="utf-8", errors="surrogateescape"
            )
            for path in self._owned()
        }

    def files(self, blocks: Blocks) -> list[FilePlan]:
        wanted = {self._path(interface): text for interface, text in blocks.items()}
        paths = sorted({*wanted, *self._owned()})
        return [plan_file(path, wanted.get(path), mode=self._mode) for path in paths]


def service_state(unit: str, node: Node) -> str:
    """`READY`, or how systemd has it instead."""
    values = systemd.show(node, unit, ("ActiveState", "UnitFileState"))
    active, file = values.get("ActiveState", "unknown"), values.get("UnitFileState", "unknown")
    if active in ("active", "reloading") and file in systemd.AT_BOOT:
        return READY
    return f"{active}, {file or 'not installed'}"
