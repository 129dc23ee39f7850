# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who uses a file system, and how: a ring over the hosts that take part, in which each reads what
the next one wrote, so that the work grows with their number and no faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice
from typing import Any, Optional

from ...core.dataclass import dataclass
from ..file_system import HOME, SOFTWARE, FileSystem
from ..units import WantedMount

FREE_SHARE = 0.05
"""Of what is free, all writers together take at most this much."""

SEEN = 64
"""The files of so many hosts that follow in the ring are looked for by each: all, in most clusters.
Each looking for all others would be a hundred million looks in a cluster of ten thousand."""


@dataclass(frozen=True)
class Seat:
    """The place of one host in the ring of one file system."""

    writers: int
    """Hosts that write at the same time."""
    neighbour: str = ""
    """Whose files it reads; empty for one that is alone."""
    neighbour_bytes: int = 0
    peers: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Seat:
        return cls(**{"writers": 1, **value, "peers": tuple(value.get("peers", ()))})


def seat(ring: Sequence[str], host: str, wrote: Callable[[str], Optional[int]]) -> Optional[Seat]:
    """The place of one host among those that wrote; None where it did not itself.

    `wrote`: the bytes that a host of the ring wrote well, else None. It is asked of those that
    follow until there are enough, never of all.
    """
    if wrote(host) is None:
        return None
    place = ring.index(host)
    following: list[tuple[str, int]] = []
    for other in chain(islice(ring, place + 1, None), islice(ring, place)):
        size = wrote(other)
        if size is not None:
            following.append((other, size))
        if len(following) == SEEN:
            break
    neighbour, size = following[0] if following else ("", 0)
    return Seat(len(ring), neighbour, size, tuple(name for name, _size in following))


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
        return self.wanted.is_bind

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
        }
