# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Results of the rounds of storage_use, which the role registers as `__shared_storage_ROUND`. What
hosts returned is reduced to numbers within bounds and short strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Optional

from ..module_utils.core.checks import Check
from ..module_utils.storage.file_system import FileSystem
from .answers import amount, mapping, sentence
from .report import storage_use as table

PLAN, WRITE, READ, REPORT, VERDICT = "plan", "write", "read", "report", "verdict"
MAX_BYTES = 1 << 50
"""Maximum number of bytes that a host may report as written, which another host then reads."""
MAX_SECONDS = 1e11
"""Upper bound of a duration, and of a time since 1970."""
WROTE, DID_READ = "wrote", "read"

Seats = dict[str, dict[str, Any]]
"""By file system, data about other hosts that the module needs."""


@dataclass(frozen=True)
class Results:
    """The results of earlier rounds, as seen from one task of one host."""

    host: str
    variables: Mapping[str, Any]
    """Variables of the task: the results of rounds on this host, and of rounds that run once."""
    hostvars: Mapping[str, Mapping[str, Any]]
    _variables: dict[str, Mapping[str, Any]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def _result(self, step: str, host: str = "") -> Mapping[str, Any]:
        variables = self._of(host) if host and host != self.host else self.variables
        result: Optional[Mapping[str, Any]] = variables.get(f"__shared_storage_{step}")
        return result or {}

    def _of(self, host: str) -> Mapping[str, Any]:
        """Variables of a host. Each access to `hostvars` assembles all of them."""
        if host not in self._variables:
            self._variables[host] = self.hostvars[host]
        return self._variables[host]

    @property
    def token(self) -> str:
        return str(mapping(self._result(PLAN).get("plan")).get("token", ""))

    @property
    def rings(self) -> Mapping[str, Sequence[str]]:
        """Hosts that use each file system, in the order of the ring."""
        return mapping(mapping(self._result(PLAN).get("plan")).get("rings"))

    def verdicts(self) -> list[Check]:
        listed = mapping(self._result(REPORT).get("verdicts")).get(self.host) or []
        return [Check(**check) for check in listed]

    def written(self, host: str, name: str) -> Optional[int]:
        """Bytes that a host wrote to a file system; None if it wrote none or failed. A host that
        fails while reading has left the play, but others read its files."""
        result = self._result(WRITE, host)
        measured = mapping(mapping(mapping(result.get("measured")).get(name)).get(WROTE))
        size = amount(measured.get("bytes"), MAX_BYTES)
        return int(size) if size is not None and not result.get("failed") else None

    def seats_to_write(self) -> Seats:
        return {
            name: {"writers": len(ring)} for name, ring in self.rings.items() if self.host in ring
        }

    def seats_to_read(self) -> Seats:
        """Seats for the file systems to which this host wrote itself."""
        seats: Seats = {}
        for name, ring in self.rings.items():
            if self.host in ring and self.written(self.host, name) is not None:
                # Lazily: of ten thousand hosts, only the next one is read.
                written = partial(self.written, name=name)
                neighbour, size = table.neighbour(ring, self.host, written)
                seats[name] = {
                    "writers": len(ring),
                    "neighbour": neighbour,
                    "neighbour_bytes": size,
                }
        return seats

    def used(self, fs: FileSystem, *, alone: bool) -> Optional[table.Used]:
        ring = self.rings.get(fs.name) or []
        figures = {host: self._figures(host, fs.name) for host in ring}
        figures = {host: measured for host, measured in figures.items() if measured.get(WROTE)}
        if not figures:
            return None
        links = {host: self._link(host, measured) for host, measured in figures.items()}
        virtual = any(
            self._result(step, host).get("virtual") for host in ring for step in (WRITE, READ)
        )
        return table.Used(fs, tuple(ring), figures, links, virtual, alone)

    def _figures(self, host: str, name: str) -> dict[str, Any]:
        figures: dict[str, Any] = {}
        for step in (WRITE, READ):
            figures.update(_figures(mapping(self._result(step, host).get("measured")).get(name)))
        return figures

    def _link(self, host: str, figures: Mapping[str, Any]) -> Optional[table.ServerLink]:
        """The rail over which the host reaches the server, by its own address there."""
        for rail in self._of(host).get("cluster_rails") or []:
            if rail.get("address") and rail["address"] == figures.get("own_address"):
                speed = float(rail.get("speed_gbps") or 0)
                return table.ServerLink(rail["interface"], speed) if speed else None
        return None


def _figures(reported: Any) -> dict[str, Any]:
    """The figures of one round, reduced to the fields that reports use."""
    given = mapping(reported)
    figures: dict[str, Any] = {}
    if "own_address" in given:
        figures["own_address"] = sentence(given["own_address"])
    if "served_here" in given:
        figures["served_here"] = given["served_here"] is True
    for key in (WROTE, DID_READ):
        measured = mapping(given.get(key))
        size = amount(measured.get("bytes"), MAX_BYTES)
        seconds = amount(measured.get("seconds"), MAX_SECONDS)
        ended = amount(measured.get("ended"), MAX_SECONDS)
        if size is not None and seconds is not None and ended is not None:
            figures[key] = {"bytes": int(size), "seconds": seconds, "ended": ended}
    return figures
