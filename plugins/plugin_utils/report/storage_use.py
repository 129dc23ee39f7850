# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figures of one file system from the times of all hosts, as data and as a table."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ...module_utils.core.text import bytes_text, columns, counted
from ...module_utils.storage.file_system import FileSystem
from .units import rate_text


def neighbour(
    ring: Sequence[str], host: str, wrote: Callable[[str], Optional[int]]
) -> tuple[str, int]:
    """The host whose file a host reads, and its size: the next writer in the ring.

    Work therefore grows linearly with hosts. ("", 0) if no other host wrote. `wrote` returns the
    bytes that a host wrote, or None.
    """
    place = ring.index(host)
    for other in chain(islice(ring, place + 1, None), islice(ring, place)):
        size = wrote(other)
        if size is not None:
            return other, size
    return "", 0


Interval = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """Rates in 10^9 bytes per second; the slowest and the fastest with their host."""

    slowest: float
    slowest_host: str
    median: float
    fastest: float
    fastest_host: str
    together: float
    nodes: int
    """Number of hosts that measured, excluding the file system's server."""
    at_once: int
    """Maximum number of hosts that measured simultaneously."""
    seconds: float
    """Time during which at least one host measured."""
    bytes: int


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """Total length of the union of intervals, in seconds."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def most_at_once(intervals: Sequence[Interval]) -> int:
    """Intervals that only touch do not overlap."""
    moments = [(begin, 1) for begin, _end in intervals] + [(end, -1) for _begin, end in intervals]
    now = most = 0
    for _moment, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def figure(measured: Mapping[str, Mapping[str, Any]]) -> Optional[Figure]:
    """The rates of one direction from the measurements of all hosts; None without measurements.

    `together` is all bytes divided by the time during which any host was active, by the wall
    clocks that the layer os synchronizes. It is limited to the sum of individual rates, which
    deviating clocks could exceed.
    """
    rates = {
        host: item["bytes"] / item["seconds"] / 1e9
        for host, item in measured.items()
        if item["bytes"] and item["seconds"] > 0
    }
    if not rates:
        return None
    intervals = [
        (measured[host]["ended"] - measured[host]["seconds"], measured[host]["ended"])
        for host in rates
    ]
    ordered = sorted(rates, key=lambda host: rates[host])
    volume = sum(int(measured[host]["bytes"]) for host in rates)
    seconds = busy_seconds(intervals)
    return Figure(
        slowest=rates[ordered[0]],
        slowest_host=ordered[0],
        median=statistics.median([rates[host] for host in ordered]),
        fastest=rates[ordered[-1]],
        fastest_host=ordered[-1],
        together=min(volume / seconds / 1e9, sum(rates.values())),
        nodes=len(rates),
        at_once=most_at_once(intervals),
        seconds=seconds,
        bytes=volume,
    )


@dataclass(frozen=True)
class ServerLink:
    """The link of one host to the server."""

    interface: str
    gbps: float


@dataclass(frozen=True)
class Used:
    """Use of one file system by all hosts of the run."""

    fs: FileSystem
    hosts: tuple[str, ...]
    """Hosts expected to use it, in the order of the ring."""
    figures: Mapping[str, Mapping[str, Any]]
    """Measurements by host: `wrote`, `read`."""
    links: Mapping[str, Optional[ServerLink]] = field(default_factory=dict)
    """Link to the server by host; None if it is not a rail."""
    virtual: bool = False
    alone: bool = False

    def of(self, what: str) -> Optional[Figure]:
        """The server is excluded, because it measures its local disk."""
        return figure(
            {
                host: found[what]
                for host, found in self.figures.items()
                if found.get(what) and not found.get("served_here")
            }
        )

    @property
    def served_here(self) -> list[str]:
        return [host for host in self.hosts if self.figures.get(host, {}).get("served_here")]

    def slowest_link(self) -> Optional[tuple[str, ServerLink]]:
        known = [(host, link) for host, link in self.links.items() if link is not None]
        return min(known, key=lambda each: each[1].gbps, default=None)

    def as_dict(self) -> dict[str, Any]:
        wrote, read = self.of("wrote"), self.of("read")
        link = self.slowest_link()
        return {
            "mount": self.fs.mount,
            "source": self.fs.source,
            "hosts": len(self.hosts),
            "write": asdict(wrote) if wrote is not None else None,
            "read": asdict(read) if read is not None else None,
            "line_rate_gb_s": link[1].gbps / 8 if link is not None else None,
            "virtual": self.virtual,
            "alone": self.alone,
            "by_host": {host: dict(found) for host, found in self.figures.items()},
        }


def lines(used: Used) -> list[str]:
    fs, figures = used.fs, used.figures.values()
    sizes = sorted({int(found["wrote"]["bytes"]) for found in figures if found.get("wrote")})
    shown = " to ".join(bytes_text(size) for size in dict.fromkeys([*sizes[:1], *sizes[-1:]]))
    item = f", {shown} each" if sizes else ""
    head = (
        f"storage: {fs.name}: {fs.source} on {fs.mount}, {counted(len(used.hosts), 'node')}{item}"
    )
    rows = _figures(used)
    below = [*rows, *_notes(used)] if rows else ["nothing was measured"]
    return [head, *(f"  {line}" for line in below)]


def _figures(used: Used) -> list[str]:
    """Write and read rates with expected values; empty without measurements."""
    expect = used.fs.expect
    rows: list[tuple[str, ...]] = [
        ("", "slowest", "", "median", "fastest", "", "together", "expected single, total")
    ]
    for head, found, *expected in (
        ("write", used.of("wrote"), expect.write_gb_s, expect.together_write_gb_s),
        ("read", used.of("read"), expect.read_gb_s, expect.together_read_gb_s),
    ):
        if found is None:
            continue
        slowest, fastest = rate_text(found.slowest), rate_text(found.fastest)
        together = "-" if used.alone else rate_text(found.together)
        wanted = ", ".join(f"{gb_s:g} GB/s" if gb_s else "none" for gb_s in expected)
        rows.append(
            (
                *(head, slowest, found.slowest_host, rate_text(found.median)),
                *(fastest, found.fastest_host, together, wanted),
            )
        )
    return columns(rows) if len(rows) > 1 else []


def _notes(used: Used) -> list[str]:
    found = used.of("wrote") or used.of("read")
    notes = []
    if used.alone:
        notes.append("individual nodes, one after another; not measured simultaneously")
    elif found is not None and found.nodes == 1:
        notes.append("one node was measured")
    elif found is not None:
        notes.append(
            f"at most {found.at_once} of {found.nodes} nodes simultaneously (forks, -f), "
            "by their clocks"
        )
        notes.append("individual nodes were not measured (shared_storage_use_alone)")
    link = used.slowest_link()
    rate = "line rate unknown: no rail of the model leads to the server"
    if link is not None:
        host, by = link
        rate = f"line rate of the slowest link {by.gbps / 8:g} GB/s ({by.interface} of {host})"
    if used.virtual:
        rate += "; nominal: on virtual nodes, only correctness is meaningful"
    notes.append(rate)
    if used.served_here:
        notes.append(f"{', '.join(used.served_here)} serves it and is excluded")
    return notes


def together(used: Used) -> list[Check]:
    """Compare the total of all nodes with the expected value."""
    expect = used.fs.expect
    return [
        _together(used, "storage_together_write", used.of("wrote"), expect.together_write_gb_s),
        _together(used, "storage_together_read", used.of("read"), expect.together_read_gb_s),
    ]


def _together(used: Used, name: str, measured: Optional[Figure], wanted: float) -> Check:
    subject, promise = used.fs.mount, f"{wanted:g} GB/s" if wanted else None
    shown = None if measured is None else f"{measured.together:.3g} GB/s"
    reason = "no expectation is set (expect)" if not wanted else ""
    reason = reason or ("nothing was measured" if measured is None else "")
    reason = reason or ("nodes were measured one after another" if used.alone else "")
    if reason or measured is None:
        return Check(name, promise, shown, NOT_APPLICABLE, subject, reason)
    if measured.together >= wanted:
        return Check(name, promise, shown, OK, subject)
    reason = "total of all nodes: check links, disks and threads of the server"
    if measured.at_once < measured.nodes:
        reason = (
            f"{measured.at_once} of {measured.nodes} nodes measured simultaneously: run with "
            f"-f {len(used.hosts)} before blaming the server"
        )
    return Check(name, promise, shown, FAILED, subject, reason)
