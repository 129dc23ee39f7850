# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Who writes, and who reads whose files: a ring over the hosts that take part, so that the work
grows with their number and no faster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, islice
from typing import Any, Optional

from ...dataclass import dataclass
from ..file_system import NFS, FileSystem

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
    known: tuple[str, ...] = ()
    """For one host of the ring: every host there is. What others have left is removed."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Seat:
        return cls(
            int(value.get("writers", 1)),
            str(value.get("neighbour", "")),
            int(value.get("neighbour_bytes", 0)),
            tuple(value.get("peers", ())),
            tuple(value.get("known", ())),
        )


def uses(fs: FileSystem, host: str, groups: Collection[str]) -> bool:
    """Whether a host mounts it. One that serves it under the same path has nothing to mount."""
    if not set(fs.hosts) & set(groups):
        return False
    served = fs.type == NFS and fs.serve is not None and fs.serve.host == host
    return not (served and fs.path == fs.mount)


def seat(
    ring: Sequence[str],
    host: str,
    wrote: Callable[[str], Optional[int]],
    known: Callable[[], Sequence[str]] = tuple,
) -> Optional[Seat]:
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
    first = next(each for each in ring if wrote(each) is not None)
    return Seat(
        writers=len(ring),
        neighbour=following[0][0] if following else "",
        neighbour_bytes=following[0][1] if following else 0,
        peers=tuple(name for name, _size in following),
        known=tuple(known()) if first == host else (),
    )
