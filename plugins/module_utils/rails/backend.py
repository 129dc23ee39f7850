# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the three network services have in common.

A backend keeps one *block* of text per rail: a file of its own, or a stanza of one file. Blocks are
what is compared, written and, when a rail does not come up with its new block, put back.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ..core.dataclass import dataclass
from ..core.files import FilePlan
from .plan import RailPlan
from .state import Link

OWNER = "baremetal-mpi-roce"
"""Part of the name of every file of ours, so that they are found again, and no other is touched."""

NETWORK_PREFIX = f"10-{OWNER}-"
"""Of files in /etc/systemd/network: before the distribution's and netplan's own."""

NETPLAN = "netplan"
NETWORKD = "networkd"
NETWORKMANAGER = "networkmanager"
BACKENDS = (NETPLAN, NETWORKMANAGER, NETWORKD)

Blocks = Mapping[str, str]
"""Interface to its block."""


@dataclass(frozen=True)
class Conflict:
    """A file of the operator's that claims a rail as well."""

    interface: str
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


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

    def conflicts(self, rails: Sequence[RailPlan], links: Mapping[str, Link]) -> list[Conflict]:
        """What else on this system claims the rails."""

    def validate(self, blocks: Blocks) -> None:
        """Refuse before anything is written what the service would. Raises CommandError."""

    def owner(self, interface: str) -> str:
        """What the service names as the rail's configuration once it has taken it over."""

    def owners(self, interfaces: Iterable[str]) -> dict[str, str]:
        """What it names now."""

    def apply(self, written: Sequence[str], again: Sequence[str]) -> dict[str, str]:
        """Take over the blocks of `written` and set `again` up anew; leave all else alone.

        Returns what the service said against single rails. Raises CommandError.
        """


def names_match(patterns: Iterable[str], name: str) -> bool:
    """Whether a name matches one of the shell patterns that systemd and netplan use."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def mac_equal(left: str, right: str) -> bool:
    return bool(left) and left.lower().replace("-", ":") == right.lower().replace("-", ":")


def rail_of(path: Path, suffix: str, prefix: str = NETWORK_PREFIX) -> str:
    """The interface that a file of ours is named after."""
    return path.name[len(prefix) : -len(suffix)]
