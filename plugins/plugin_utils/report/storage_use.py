# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Times of all hosts to the figures of one file system, and as a person reads them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ...module_utils.core.dataclass import dataclass
from ...module_utils.storage.file_system import FileSystem
from .smoke import columns, rate_text, size_text

Interval = tuple[float, float]


@dataclass(frozen=True)
class Figure:
    """10^9 bytes per second. Slowest and fastest with the host's name."""

    slowest: float
    slowest_host: str
    median: float
    fastest: float
    fastest_host: str
    together: float
    nodes: int
    """Hosts that measured something: one that serves the file system is not among them."""
    at_once: int
    """Hosts that were at it at the same time, at most."""
    seconds: float
    """During which at least one host was at it."""
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def busy_seconds(intervals: Iterable[Interval]) -> float:
    """How long at least one of them lasted: gaps in which nobody did anything do not count."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def most_at_once(intervals: Sequence[Interval]) -> int:
    """One that begins as another ends is not beside it."""
    moments = [(begin, 1) for begin, _end in intervals] + [(end, -1) for _begin, end in intervals]
    now = most = 0
    for _moment, change in sorted(moments):
        now += change
        most = max(most, now)
    return most


def figure(measured: Mapping[str, Mapping[str, Any]]) -> Optional[Figure]:
    """Of what each host measured. None where nobody measured anything.

    `together` is all bytes over the time in which anybody was at it, by the hosts' wall clocks,
    which the layer os keeps together. It is never more than what all of them had by themselves:
    clocks that differ would otherwise make it so.
    """
    rates = {
        host: each["bytes"] / each["seconds"] / 1e9
        for host, each in measured.items()
        if each["bytes"] and each["seconds"] > 0
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
class Link:
    """The way of one host to the server."""

    interface: str
    gbps: float


@dataclass(frozen=True)
class Used:
    """One file system, as all hosts of the run have used it."""

    fs: FileSystem
    hosts: tuple[str, ...]
    """Those that were to use it, in the order of the ring."""
    figures: Mapping[str, Mapping[str, Any]]
    """By host what it measured: `wrote`, `read`."""
    links: Mapping[str, Optional[Link]] = field(default_factory=dict)
    """By host its link to the server; None where it is no rail."""
    virtual: bool = False
    alone: bool = False

    def of(self, what: str) -> Optional[Figure]:
        """A host that serves the file system measures its own disk, and is left out."""
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

    def slowest_link(self) -> Optional[tuple[str, Link]]:
        known = [(host, link) for host, link in self.links.items() if link is not None]
        return min(known, key=lambda each: each[1].gbps, default=None)

    def as_dict(self) -> dict[str, Any]:
        wrote, read = self.of("wrote"), self.of("read")
        link = self.slowest_link()
        return {
            "mount": self.fs.mount,
            "source": self.fs.source,
            "hosts": len(self.hosts),
            "write": wrote.as_dict() if wrote is not None else None,
            "read": read.as_dict() if read is not None else None,
            "line_rate_gb_s": link[1].gbps / 8 if link is not None else None,
            "virtual": self.virtual,
            "alone": self.alone,
            "by_host": {host: dict(found) for host, found in self.figures.items()},
        }


def lines(used: Used) -> list[str]:
    fs = used.fs
    sizes = {int(found["wrote"]["bytes"]) for found in used.figures.values() if found.get("wrote")}
    count = f"{len(used.hosts)} node" + ("" if len(used.hosts) == 1 else "s")
    told = [f"storage: {fs.name}: {fs.source} on {fs.mount}, {count}{_sizes(sizes)}"]
    rows = _figures(used)
    if not rows:
        return [*told, "  nothing was measured"]
    told += [f"  {line}" for line in rows]
    told += [f"  {line}" for line in _notes(used)]
    return told


def _figures(used: Used) -> list[str]:
    """Writing and reading beside what is expected; none where neither was measured."""
    expect = used.fs.expect
    rows: list[tuple[str, ...]] = [
        ("", "slowest", "", "median", "fastest", "", "together", "expected alone, together")
    ]
    for head, found, one, together in (
        ("write", used.of("wrote"), expect.write_gb_s, expect.together_write_gb_s),
        ("read", used.of("read"), expect.read_gb_s, expect.together_read_gb_s),
    ):
        if found is not None:
            rows.append(_row(head, found, f"{_wanted(one)}, {_wanted(together)}", used.alone))
    return [line.rstrip() for line in columns(rows)] if len(rows) > 1 else []


def _row(head: str, found: Figure, expected: str, alone: bool) -> tuple[str, ...]:
    return (
        head,
        rate_text(found.slowest),
        found.slowest_host,
        rate_text(found.median),
        rate_text(found.fastest),
        found.fastest_host,
        "-" if alone else rate_text(found.together),
        expected,
    )


def _wanted(gb_s: float) -> str:
    return f"{gb_s:g} GB/s" if gb_s else "none"


def _sizes(sizes: set[int]) -> str:
    if not sizes:
        return ""
    if len(sizes) == 1:
        return f", {_size(max(sizes))} each"
    return f", {_size(min(sizes))} to {_size(max(sizes))} each"


def _size(count: int) -> str:
    return size_text(count) if count % 1024 == 0 else f"{count / 2**20:.1f} MiB"


def _notes(used: Used) -> list[str]:
    found = used.of("wrote") or used.of("read")
    told = []
    if used.alone:
        told.append("each node alone, one after another; all together were not measured")
    elif found is not None and found.nodes == 1:
        told.append("one node was measured")
    elif found is not None:
        told.append(
            f"at most {found.at_once} of {found.nodes} nodes at the same moment (forks, -f), "
            "by their own clocks"
        )
        told.append("a node alone was not measured (shared_storage_use_alone)")
    link = used.slowest_link()
    if link is None:
        rate = "line rate not known: no rail of the model leads to the server"
    else:
        host, by = link
        rate = f"line rate of the slowest link {by.gbps / 8:g} GB/s ({by.interface} of {host})"
    if used.virtual:
        rate += "; nominal: these nodes are virtual, only correctness counts"
    told.append(rate)
    if used.served_here:
        told.append(f"{', '.join(used.served_here)} serves it and is not in the figures")
    return told


def together(used: Used) -> list[Check]:
    """All nodes at once against what is expected of the file system."""
    expect, found = used.fs.expect, []
    for name, what, wanted in (
        ("storage_together_write", "wrote", expect.together_write_gb_s),
        ("storage_together_read", "read", expect.together_read_gb_s),
    ):
        found.append(_together(used, name, used.of(what), wanted))
    return found


def _together(used: Used, name: str, measured: Optional[Figure], wanted: float) -> Check:
    subject = used.fs.mount
    shown = None if measured is None else f"{measured.together:.3g} GB/s"
    promise = f"{wanted:g} GB/s"
    if not wanted:
        return Check(name, None, shown, NOT_APPLICABLE, subject, "no expectation is set (expect)")
    if measured is None:
        return Check(name, promise, None, NOT_APPLICABLE, subject, "nothing was measured")
    if used.alone:
        why = "each node was measured alone"
        return Check(name, promise, None, NOT_APPLICABLE, subject, why)
    if measured.together >= wanted:
        return Check(name, promise, shown, OK, subject)
    if measured.at_once < measured.nodes:
        why = (
            f"{measured.at_once} of {measured.nodes} nodes were at it at the same moment: run with "
            f"-f {len(used.hosts)} before blaming the server"
        )
    else:
        why = "all nodes at once: the server's links, disks and threads"
    return Check(name, promise, shown, FAILED, subject, why)


def checks(all_used: Sequence[Used]) -> list[Check]:
    return [check for used in all_used for check in together(used)]
