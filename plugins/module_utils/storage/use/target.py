# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""One file system of one host, as its use is to be proved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...dataclass import dataclass
from ..file_system import HOME, SOFTWARE, FileSystem
from ..wanted_mounts import WantedMount
from .rings import Seat

FREE_SHARE = 0.05
"""Of what is free, all writers together take at most this much."""


@dataclass(frozen=True)
class Target:
    """`user` is the MPI user, `uid` its number."""

    wanted: WantedMount
    seat: Seat
    host: str
    cluster: str
    token: str
    user: str
    uid: int
    size: int
    """Bytes of the large file."""
    limit_s: float
    alone: bool = False
    """No other host of the run measures at the same time."""
    check_mode: bool = False

    @property
    def fs(self) -> FileSystem:
        return self.wanted.fs

    @property
    def mount(self) -> str:
        return self.wanted.point

    @property
    def read_only(self) -> bool:
        """Read-only on purpose."""
        return "ro" in self.fs.options

    @property
    def served_here(self) -> bool:
        return self.wanted.unit.is_bind

    def is_for_user(self, found: Mapping[str, Any]) -> bool:
        """Whether the MPI user is meant to write in the top directory, as the model says.

        `found`: what the probe saw of that directory, and the groups it ran with. Homes and
        software of somebody else's server belong to somebody else if nothing is said of them.
        """
        fs = self.fs
        if not fs.owner:
            return fs.serve is not None or fs.purpose not in (HOME, SOFTWARE)
        mode = int(fs.mode, 8)
        if fs.owner in (self.user, str(self.uid)) or mode & 0o002:
            return True
        of_group = (found.get("top") or {}).get("gid") in (found.get("groups") or ())
        return bool(mode & 0o020) and of_group

    def task(self, do: str) -> dict[str, Any]:
        """What the probe is told."""
        return {
            "do": do,
            "mount": self.mount,
            "cluster": self.cluster,
            "name": self.host,
            "token": self.token,
            "bytes": self.size,
            "share": FREE_SHARE / max(1, self.seat.writers),
            "neighbour": self.seat.neighbour,
            "neighbour_bytes": self.seat.neighbour_bytes,
            "peers": list(self.seat.peers),
            "known": list(self.seat.known),
        }
