# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The program of every rank: its data is exact, and it detects every wrong byte."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.qos import RETRIES
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import chassis
from tests.unit import programs
from tests.unit.programs import ROOT

PROGRAM = "roles/mpi_stack/files/allreduce.py"
PATH = ROOT / PROGRAM
program = programs.program(PROGRAM)
CASES = sorted({(kind, operation) for kind, operation, _placement in program.combinations()})


def test_the_counters_of_the_program_are_those_of_the_report() -> None:
    """Ranks send values without names."""
    assert program.RETRIES == RETRIES


def buffers(kind: str, operation: str, ranks: int, count: int) -> list[numpy.ndarray]:
    return [
        program.spread(
            numpy, program.inputs_by_phase(numpy, kind, operation, ranks, rank), kind, count
        )
        for rank in range(ranks)
    ]


def expected(kind: str, operation: str, ranks: int, count: int) -> numpy.ndarray:
    phases = program.expected_by_phase(numpy, kind, operation, ranks)
    return program.spread(numpy, phases, kind, count)


@settings(max_examples=60)
@given(
    st.sampled_from(CASES),
    st.integers(1, 70),
    st.integers(1, 2500),
    st.randoms(use_true_random=False),
)
def test_any_order_of_combining_gives_the_same_bits(case, ranks, count, random) -> None:
    """Like algorithms of MPI: by rank, in trees, in any order, in the type."""
    kind, operation = case
    parts = buffers(kind, operation, ranks, count)
    while len(parts) > 1:
        left = parts.pop(random.randrange(len(parts)))
        right = parts.pop(random.randrange(len(parts)))
        names = {"SUM": "add", "MAX": "maximum", "MIN": "minimum", "PROD": "multiply"}
        parts.append(getattr(numpy, names[operation])(left, right))
    wanted = expected(kind, operation, ranks, count)
    assert wanted.dtype == numpy.dtype(kind)
    assert program.verify(numpy, parts[0], wanted) is None


@pytest.mark.parametrize(("kind", "operation"), CASES)
def test_exact_with_a_very_large_world(kind: str, operation: str) -> None:
    """Partial sums of 20,000 ranks stay within the exact integers of the type."""
    ranks = 20_000
    assert program.period(kind, ranks) % 2 == 1
    largest = program.period(kind, ranks) * ranks
    assert largest < 1 << program.EXACT_INTEGERS[kind]
    if operation == "PROD":
        product = 1
        for rank in range(ranks):
            product *= int(program.inputs_by_phase.__wrapped__(numpy, kind, "PROD", ranks, rank)[0])
        assert abs(product) <= 1 << 20


@settings(max_examples=60)
@given(st.sampled_from(CASES), st.integers(2, 40), st.integers(1, 600), st.data())
def test_every_flipped_bit_is_seen(case, ranks, count, data) -> None:
    kind, operation = case
    wanted = expected(kind, operation, ranks, count)
    found = wanted.copy()
    element = data.draw(st.integers(0, count - 1))
    width = wanted.dtype.itemsize
    byte = element * width + data.draw(st.integers(0, width - 1))
    found.view(numpy.uint8)[byte] ^= 1 << data.draw(st.integers(0, 7))
    problem = program.verify(numpy, found, wanted)
    assert problem is not None
    assert problem[:2] == (1, element)


@pytest.mark.parametrize("kind", program.TYPES)
def test_missing_and_doubled_ranks_are_detected(kind: str) -> None:
    ranks, count = 32, 4096
    parts = buffers(kind, "SUM", ranks, count)
    wanted = expected(kind, "SUM", ranks, count)
    total = sum(parts)
    assert program.verify(numpy, total.astype(kind), wanted) is None
    assert program.verify(numpy, (total - parts[5]).astype(kind), wanted) is not None
    doubled = total - parts[5] + parts[6]
    assert program.verify(numpy, doubled.astype(kind), wanted) is not None
    for shift in (1, 2, 64, 1024, 2048):
        assert program.verify(numpy, numpy.roll(wanted, shift), wanted) is not None


def test_every_combination_once() -> None:
    every = program.combinations()
    assert len(every) == len(set(every)) == 34
    assert ("complex128", "MAX", "in_place") not in every
    assert {operation for _kind, operation, _placement in every} == set(program.OPERATIONS)


def write(folder: Path, **values: int | str) -> None:
    """Write files by name, with `.` instead of `/`."""
    for name, value in values.items():
        chassis.write(folder / name.replace(".", "/"), f"{value}\n")


def test_counters_of_interfaces_and_of_rdma_ports(tmp_path: Path) -> None:
    for name, sent in (("rail0", 100), ("mgmt0", 7), ("lo", 999)):
        values = {"tx_bytes": sent, "rx_bytes": sent + 1, "tx_packets": 40, "rx_packets": 50}
        write(tmp_path / f"class/net/{name}/statistics", **values)
    write(tmp_path / "class/net", bonding_masters="")
    ports = tmp_path / "class/infiniband"
    counters = {"port_xmit_data": 25, "port_rcv_data": 26, "port_xmit_packets": 700}
    write(ports / "mlx5_0/ports/1/counters", **counters)
    write(ports / "mlx5_0/ports/1/hw_counters", packet_seq_err=4)
    write(ports / "rxe1/ports/1/hw_counters", sent_pkts=30, rcvd_pkts=45)
    for name, gid in (("mlx5_0", "0"), ("rxe1", "1")):
        write(ports / name / "ports/1/gid_attrs/ndevs", **{gid: "rail0"})
    (ports / "mute0/ports/1").mkdir(parents=True)
    assert program.interface_counters(tmp_path) == {"mgmt0": [7, 8], "rail0": [100, 101]}
    retries = [700, 0, 4, 0, 0, 0]
    assert program.rdma_counters(tmp_path) == {
        "mlx5_0:1": {"interface": "rail0", "bytes": [100, 104], "retries": retries},
        "rxe1:1": {"interface": "rail0", "packets": [30, 45], "interface_packets": [40, 50]},
    }


def test_an_interface_that_appears_does_not_count() -> None:
    now = {"counters": {"rail0": [9, 7], "new0": [1, 1]}, "rdma": {}}
    assert program.growth(now, {"counters": {"rail0": [4, 5]}, "rdma": {}}) == {
        "counters": {"rail0": [5, 2]},
        "rdma": {},
    }


def test_ucx_lanes_of_old_and_new_versions() -> None:
    log = (
        "[1.9] [n:1 :0]  ucp_context.c:1849 UCX  INFO  Version 1.13.1 (loaded from /lib/x)\n"
        "[1.9] [n:1 :0]   ucp_worker.c:1763 UCX  INFO    ep_cfg[2]: tag(tcp/rail0)\n"
        "[1.9] [n:1 :0]   ucp_worker.c:1763 UCX  INFO    ep_cfg[2]: tag(tcp/rail0)\n"
        "[2.0] [n:1:0]    ucp_worker.c:1903 UCX  INFO    x inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)\n"
    )
    assert program.lanes(log) == [
        "ep_cfg[2]: tag(tcp/rail0)",
        "x inter-node cfg#3 tag(rc_mlx5/mlx5_0:1)",
    ]


def test_the_topology_of_a_chassis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chassis.build(tmp_path)
    monkeypatch.setattr(os, "getppid", lambda: 7)
    chassis.write(tmp_path / "proc/7/status", "Name:\torted\nCpus_allowed_list:\t0-99\n")
    found = program.topology(tmp_path)
    assert found["numa"] == {"0": "0-55,112-167", "1": "56-111,168-223"}
    assert found["allowed"] == "0-99"
    assert found["gpus"] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert found["interfaces"]["rail7"] == 0 and len(found["interfaces"]) == 8
    assert not found["container"]
    (tmp_path / "proc/7/status").unlink()
    chassis.write(tmp_path / "sys/devices/system/cpu/online", "0-223\n")
    assert program.topology(tmp_path)["allowed"] == "0-223"
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {13, 0, 1, 2, 7, 12})
    assert program.cpus() == "0-2,7,12-13"


COUNTED = {"counters": {"rail0": [5, 6]}, "rdma": {}}


def rank(host: str, wrong: int = 0, lanes: tuple = ("ep_cfg[2]: tag(tcp/rail0)",)) -> dict:
    return {
        "host": host,
        "devices": "rail0",
        "cpus": "0-3",
        "topology": {"numa": {}} if host.endswith("1") else None,
        "lanes": list(lanes),
        "protocols": [],
        "counted": COUNTED if host.endswith("1") else None,
        "rails": COUNTED if host.endswith("1") else None,
        "addresses": {"rail0": f"10.0.0.{host[-1]}"},
        "resent": {"10.0.0.1 10.0.0.2": [3, 40], "10.0.0.1 10.0.0.9": [5, 5]},
        "wrong": [{"rank": 1}] if wrong else [],
        "wrong_count": wrong,
    }


def test_connections_of_the_process_are_counted_by_their_ends() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        one.sendall(b"x" * 1000)
        other.recv(1000)
        again, sent = program.resent()["127.0.0.1 127.0.0.1"]
    assert (again, sent > 0) == (0, True)
    assert "127.0.0.1" not in program.addresses().values()


def test_the_report_is_by_host_and_by_lane() -> None:
    found: dict[str, list[dict]] = {}
    report = SimpleNamespace(write=lambda kind, **values: found.setdefault(kind, []).append(values))
    ranks = [rank("node01"), rank("node01", wrong=4), rank("node02", lanes=())]
    program.summarise(ranks, 1234, 2.5, report)
    first, second = found["host"]
    assert (first["name"], first["ranks"]) == ("node01", [0, 1])
    assert (second["name"], second["ranks"]) == ("node02", [2])
    assert (first["cpus"], first["topology"]) == (["0-3", "0-3"], {"numa": {}})
    assert first["counters"] == {"rail0": [5, 6]}
    # Both ends of three ranks; ends that belong to no rank are omitted.
    assert first["resent"] == second["resent"] == {"rail0": [9, 120]}
    assert [(one["name"], one["counters"]) for one in found["rails"]] == [
        ("node01", {"rail0": [5, 6]})
    ] * 2
    assert found["lane"] == [{"text": "ep_cfg[2]: tag(tcp/rail0)", "ranks": [0, 1]}]
    end = {"volume_bytes": 1234, "window_s": 2.5, "wrong_results": 4, "silent_ranks": [2]}
    assert found["end"] == [end]
