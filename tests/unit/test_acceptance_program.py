# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of pairs: both ends of a pair, with messages that arrive, are damaged or are lost."""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from tests import chassis
from tests.unit import programs

program = programs.program("roles/mpi_stack/files/pairs.py")
SIZE = 4096
FIGURE = 4
"""Position of the rate in a printed line."""
Change = Callable[[int, int, bytes], "bytes | None"]


class Wire:
    """Messages between two ranks. `change` gets the kind of each message, its number among those
    of its kind, and its content; it returns what arrives, or None if nothing does."""

    def __init__(self, change: Change = lambda _kind, _number, content: content) -> None:
        self.change = change
        self.sent: dict[tuple[int, int], deque[bytes]] = {}
        self.numbers: dict[int, int] = {}

    def put(self, receiver: int, tag: int, content: bytes) -> None:
        kind = tag % len(program.KINDS)
        number = self.numbers[kind] = self.numbers.get(kind, -1) + 1
        arrived = self.change(kind, number, content)
        if arrived is not None:
            self.sent.setdefault((receiver, tag), deque()).append(arrived)

    def take(self, receiver: int, tag: int) -> bytes | None:
        waiting = self.sent.get((receiver, tag))
        return waiting.popleft() if waiting else None


class Request:
    def __init__(self, wire: Wire, sending: bool, buffer: Any, here: int, peer: int, tag: int):
        self.wire, self.sending, self.buffer, self.tag = wire, sending, buffer, tag
        self.here, self.peer, self.done = here, peer, True

    def Start(self) -> None:
        self.done = self.sending
        if self.sending:
            self.wire.put(self.peer, self.tag, bytes(self.buffer))

    def test(self) -> bool:
        if not self.done:
            arrived = self.wire.take(self.here, self.tag)
            if arrived is not None:
                memoryview(self.buffer)[: len(arrived)] = arrived
                self.done = True
        return self.done

    def Free(self) -> None:
        assert self.done


class World:
    def __init__(self, wire: Wire, here: int) -> None:
        self.wire, self.here = wire, here

    def Get_rank(self) -> int:
        return self.here

    def Send_init(self, message: Any, peer: int, tag: int) -> Request:
        return Request(self.wire, True, message[0], self.here, peer, tag)

    def Recv_init(self, message: Any, peer: int, tag: int) -> Request:
        return Request(self.wire, False, message[0], self.here, peer, tag)

    def Isend(self, *given: Any) -> Request:
        request = self.Send_init(*given)
        request.Start()
        return request

    def Irecv(self, *given: Any) -> Request:
        request = self.Recv_init(*given)
        request.Start()
        return request


MPI = SimpleNamespace(
    BYTE=None,
    Request=SimpleNamespace(Testall=lambda requests: all(map(Request.test, requests))),
    Prequest=SimpleNamespace(Startall=lambda requests: [each.Start() for each in requests]),
)


class Turns:
    """Ends run one at a time, until they wait."""

    def __init__(self, count: int) -> None:
        self.turn = [threading.Semaphore(0) for _each in range(count)]
        self.alive = list(range(count))
        self.here = threading.local()

    def _next(self) -> None:
        later = [each for each in self.alive if each > self.here.number] or self.alive
        if later:
            self.turn[later[0]].release()

    def give(self) -> None:
        self._next()
        self.turn[self.here.number].acquire()

    def run(self, number: int, function: Callable[[], None]) -> None:
        self.here.number = number
        self.turn[number].acquire()
        try:
            function()
        finally:
            self.alive.remove(number)
            self._next()


@pytest.fixture(autouse=True)
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes by reading it, 1 ms each."""
    ticks = itertools.count()
    clock = SimpleNamespace(
        monotonic=lambda: next(ticks) * 1e-3,
        perf_counter=lambda: next(ticks) * 1e-3,
        sleep=lambda _seconds: None,
    )
    monkeypatch.setattr(program, "time", clock)
    monkeypatch.setattr(program, "PINGS", 10)
    monkeypatch.setattr(program, "UNTIMED", 2)


def measured(
    capsys: pytest.CaptureFixture[str],
    wire: Wire,
    ranks: tuple[int, ...] = (0, 1),
    round_s: float = 10.0,
    **given: Any,
) -> tuple[dict[tuple[int, int], list[str]], list[Any]]:
    """Words of the printed lines by sender and receiver, and unfinished requests."""
    arguments = SimpleNamespace(**{"both": True, "bytes": SIZE, "round_s": round_s, **given})
    ends = [program.Pair(MPI, numpy, World(wire, rank), 7, 1 - rank, rank == 0) for rank in ranks]
    turns = Turns(len(ends))
    threads = [
        threading.Thread(
            target=turns.run,
            args=(number, functools.partial(program.measure, end, 0.0, arguments)),
        )
        for number, end in enumerate(ends)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program.os, "sched_yield", turns.give)
        for thread in threads:
            thread.start()
        turns.turn[0].release()
        for thread in threads:
            thread.join()
    lines = [line.split(" ", 6) for line in capsys.readouterr().out.splitlines()]
    assert all(line[0] == program.MARK.strip() and line[1] == "7" for line in lines)
    lines.sort(key=len)  # an error counts
    found = {(int(line[2]), int(line[3])): line[FIGURE:] for line in lines}
    return found, [request for end in ends for request in end.left]


def test_both_directions_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    wire = Wire()
    found, left = measured(capsys, wire)
    assert sorted(found) == [(0, 1), (1, 0)] and left == []
    (rate, latency), (other, unknown) = found[0, 1], found[1, 0]
    assert float(rate) > 0 and float(other) > 0 and float(latency) > 0 and unknown == "-"
    assert wire.numbers[program.PING] + 1 == 2 * (program.PINGS + program.UNTIMED)


def test_one_direction(capsys: pytest.CaptureFixture[str]) -> None:
    found, _left = measured(capsys, Wire(), both=False)
    assert sorted(found) == [(0, 1)]


def test_windows_grow_to_the_largest_one_on_a_fast_rail(capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[int] = []

    def change(kind: int, _number: int, content: bytes) -> bytes:
        if kind == program.DATA:
            sizes.append(content[0])
        return content

    measured(capsys, Wire(change), both=False)
    assert sizes[:3] == [2, 4, 4] and sizes[-program.WINDOW :] == [0] * program.WINDOW
    assert max(sizes) == program.WINDOW


def test_one_delay_does_not_keep_windows_small(capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[int] = []

    def change(kind: int, number: int, content: bytes) -> bytes:
        if kind == program.DATA:
            sizes.append(content[0])
            for _tick in range(400 if number == 2 else 0):
                program.time.perf_counter()
        return content

    measured(capsys, Wire(change), both=False)
    assert sizes[3] == 4 and max(sizes) == program.WINDOW


@pytest.mark.parametrize("damaged", [0, 1])
def test_wrong_bytes_replace_the_figure(damaged: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Bits that flip in the messages of one sender."""

    def change(kind: int, _number: int, content: bytes) -> bytes:
        last = content[-1] == damaged and kind == program.DATA
        return content[:-1] + bytes([content[-1] ^ 4]) if last else content

    found, _left = measured(capsys, Wire(change))
    errors = {way for way, words in found.items() if words[2:]}
    assert errors == {(damaged, 1 - damaged)}


def test_bytes_that_do_not_arrive_are_wrong_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    """Also those of the first rank, whose number is 0."""

    def change(kind: int, _number: int, content: bytes) -> bytes:
        return content[:-9] if kind == program.DATA else content

    found, _left = measured(capsys, Wire(change))
    assert {words[2] for words in found.values()} == {program.WRONG_BYTES} and len(found) == 2


def test_a_silent_peer_costs_one_round(capsys: pytest.CaptureFixture[str]) -> None:
    found, left = measured(capsys, Wire(), ranks=(0,), round_s=1.0)
    assert found == {(0, 1): ["-", "-", program.NO_ANSWER]} and len(left) == 1


def test_a_direction_that_loses_data_does_not_fail_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def change(kind: int, _number: int, content: bytes) -> bytes | None:
        return None if kind == program.DATA and content[-1] == 0 else content

    found, left = measured(capsys, Wire(change))
    rate, latency, error = found[0, 1]
    assert (rate, error) == ("-", program.TOO_SLOW) and float(latency) > 0
    assert float(found[1, 0][0]) > 0 and len(found[1, 0]) == 2 and left


def test_a_rate_is_kept_when_time_is_up(capsys: pytest.CaptureFixture[str]) -> None:
    def change(kind: int, number: int, content: bytes) -> bytes | None:
        return None if kind == program.DATA and number > 40 else content

    found, left = measured(capsys, Wire(change), both=False)
    assert float(found[0, 1][0]) > 0 and len(found[0, 1]) == 2 and left


def test_a_node_is_in_one_pair_of_a_round() -> None:
    assert program.pairs_of("0-5,4-1", 6) == [(0, 5), (4, 1)]
    for text in ("0-1,1-2", "0-0", "0-6", "0-1-2"):
        with pytest.raises(RuntimeError):
            program.pairs_of(text, 6)


def test_tags_of_rounds_differ_and_are_within_those_that_mpi_guarantees() -> None:
    def tags(number: int) -> set[int]:
        pair = program.Pair(MPI, numpy, World(Wire(), 0), number, 1, True)
        return {pair.tag(kind, way) for kind in program.KINDS for way in (0, 1)}

    every = [tag for number in range(program.ROUNDS_TAGGED) for tag in tags(number)]
    assert len(every) == len(set(every)) == 8 * program.ROUNDS_TAGGED and max(every) < 32768


def rail(root: Path, name: str, device: str = "") -> None:
    chassis.write(root / f"class/net/{name}/device/local_cpulist", "0-1000\n")
    if device:
        gids = root / f"class/infiniband/{device}/ports/1/gid_attrs/ndevs"
        chassis.write(gids / "0", f"{name}\n")


def test_a_process_uses_the_device_of_its_rail(tmp_path: Path) -> None:
    rail(tmp_path, "rail0", "mlx5_4")
    rail(tmp_path, "rail1", "mlx5_9")
    environment = {
        "UCX_TLS": "rc,sm,self",
        "MPI_ROCE_RAILS_BY_RANK": "mlx5_4:1 mlx5_9:1",
        "MPI_ROCE_GID_INDEXES_BY_RANK": "3 5",
    }
    found = program.bind("rail1", environment, 4, tmp_path)
    assert (found["UCX_NET_DEVICES"], found["UCX_IB_GID_INDEX"]) == ("mlx5_9:1", "5")
    assert found["UCX_IB_NUM_PATHS"] == found["UCX_MAX_RNDV_RAILS"] == "4"
    tcp = program.bind("rail1", {"UCX_TLS": "tcp,sm,self"}, 4, tmp_path)
    assert tcp["UCX_NET_DEVICES"] == "rail1" and tcp["UCX_MAX_RNDV_RAILS"] == "1"
    assert {"UCX_IB_GID_INDEX", "UCX_IB_NUM_PATHS"}.isdisjoint(tcp)
    ob1 = program.bind("rail1", {"UCX_TLS": "tcp", "OMPI_MCA_pml": "ob1"}, 4, tmp_path)
    assert ob1["OMPI_MCA_btl_tcp_if_include"] == "rail1"


@pytest.mark.parametrize("name", ["rail2", "rail3"])
def test_a_rail_that_a_node_lacks_is_an_error(name: str, tmp_path: Path) -> None:
    rail(tmp_path, "rail2")
    with pytest.raises(RuntimeError, match=name):
        program.bind(name, {"UCX_TLS": "rc"}, 1, tmp_path)


def test_cpus_next_to_the_nic(tmp_path: Path) -> None:
    rail(tmp_path, "rail0")
    assert program.near("rail0", tmp_path) == program.os.sched_getaffinity(0)
    assert program.near("rail9", tmp_path) == set()
