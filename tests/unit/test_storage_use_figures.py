# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The ring, the figures of all hosts, and how they are shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.storage.file_system import (
    Expectation,
    FileSystem,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import storage_use as table
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = Path(__file__).parent / "golden" / "storage_use.txt"
FS = FileSystem("checkpoints", "nfs", "store01:/export/a", "/mnt/checkpoints", "checkpoints")


# ---- the ring


@given(st.integers(1, 150), st.sets(st.integers(0, 149)))
def test_every_host_that_wrote_is_read_by_exactly_one(count: int, lost: set[int]) -> None:
    ring = [f"node{number:03d}" for number in range(count)]
    wrote = {host: 100 + n for n, host in enumerate(ring) if n not in lost}
    seats = {host: table.seat(ring, host, wrote.get) for host in ring}
    there = {host: seat for host, seat in seats.items() if seat is not None}
    assert set(there) == set(wrote)
    read = [seat.neighbour for seat in there.values() if seat.neighbour]
    assert sorted(read) == (sorted(wrote) if len(wrote) > 1 else [])
    for host, seat in there.items():
        assert host not in seat.peers
        assert len(seat.peers) == min(table.SEEN, len(wrote) - 1)
        assert seat.neighbour_bytes == (wrote[seat.neighbour] if seat.neighbour else 0)


def test_the_work_for_one_host_does_not_grow_with_the_cluster() -> None:
    asked: list[str] = []

    def wrote(host: str) -> Optional[int]:
        asked.append(host)
        return 1

    ring = [f"node{number:05d}" for number in range(10_000)]
    table.seat(ring, "node05000", wrote)
    assert len(asked) < table.SEEN + 5


# ---- figures

INTERVALS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 50)).map(lambda each: (each[0], sum(each))),
    min_size=1,
    max_size=12,
)


@given(INTERVALS)
def test_the_time_in_which_anybody_was_at_it(intervals: list[tuple[int, int]]) -> None:
    seconds = {second for begin, end in intervals for second in range(begin, end)}
    assert table.busy_seconds(intervals) == len(seconds)
    most = max(sum(b <= second < e for b, e in intervals) for second in seconds)
    assert table.most_at_once(intervals) == most


@given(INTERVALS)
def test_together_is_never_more_than_all_by_themselves(intervals: list[tuple[int, int]]) -> None:
    measured = {
        f"node{n}": {"bytes": 10**9, "seconds": float(end - begin), "ended": float(end)}
        for n, (begin, end) in enumerate(intervals)
    }
    found = table.figure(measured)
    assert found is not None
    total = sum(1 / each["seconds"] for each in measured.values())
    assert 0 < found.together <= total * (1 + 1e-9)
    assert found.slowest <= found.median <= found.fastest


# ---- the table


def took(seconds: float, ended: float, size: int = 64 << 20) -> dict[str, Any]:
    return {"bytes": size, "seconds": seconds, "began": ended - seconds, "ended": ended}


def used(**changes: Any) -> table.Used:
    hosts = ("node01", "node02", "node03", "launch01")
    found = {
        host: {"wrote": took(0.05 + n / 100, 10.1), "read": took(0.02 + n / 100, 20.1)}
        for n, host in enumerate(hosts)
    }
    links = {host: table.Link("rail0", 800.0) for host in hosts[:3]}
    links["node02"] = table.Link("rail3", 400.0)
    base = table.Used(FS, hosts, found, {**links, "launch01": None})
    return replace(base, **changes)


EXPECTED = replace(FS, expect=Expectation(1.0, 2.0, 8.0, 9.0))


def cases() -> dict[str, table.Used]:
    served = used()
    by_host = {host: dict(each) for host, each in served.figures.items()}
    by_host["launch01"]["served_here"] = True
    one = used(hosts=("launch01", "node01"))
    two = {host: by_host[host] for host in one.hosts}
    small = {host: {"wrote": took(1.0, 5.0 + n, 3 << 19)} for n, host in enumerate(by_host)}
    return {
        "as it is": used(),
        "expected": used(fs=EXPECTED),
        "virtual": used(virtual=True, links={}),
        "alone": used(alone=True),
        "served by one of them": used(figures=by_host),
        "served by one of two": replace(one, figures=two),
        "one after another, and small": used(figures=small),
        "nothing": used(figures={}),
    }


def test_the_table() -> None:
    shown = "".join(
        f"# {name}\n" + "".join(f"{line}\n" for line in table.lines(each))
        for name, each in cases().items()
    )
    assert shown == GOLDEN.read_text(encoding="utf-8")


def test_who_serves_it_is_not_measured() -> None:
    found = cases()["served by one of them"].of("wrote")
    assert found is not None and found.bytes == 3 * (64 << 20)


@pytest.mark.parametrize(
    ("given", "statuses"),
    [
        (used(), ["not_applicable"] * 2),
        (used(fs=EXPECTED), ["failed", "failed"]),
        (used(fs=replace(FS, expect=Expectation(0, 0, 0.5, 0.5))), ["ok", "ok"]),
        (used(fs=EXPECTED, alone=True), ["not_applicable"] * 2),
        (used(fs=EXPECTED, figures={}), ["not_applicable"] * 2),
    ],
)
def test_all_together_against_what_is_expected(given: table.Used, statuses: list[str]) -> None:
    assert [check.status for check in table.together(given)] == statuses


def test_the_server_is_not_blamed_for_too_few_forks() -> None:
    late = {host: {"wrote": took(1.0, 5.0 + 2 * n)} for n, host in enumerate(used().hosts)}
    check = table.together(used(fs=EXPECTED, figures=late))[0]
    assert "1 of 4 nodes" in check.reason and "-f 4" in check.reason
