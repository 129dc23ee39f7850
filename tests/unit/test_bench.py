# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Benchmarks: ranks, jobs, output of the programs, thresholds, and drawings."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ansible_collections.baremetal.mpi_roce.plugins.module_utils.core.part import PlanError
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.mpi import bench
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.report import bench as table
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import programs

DATA = Path(__file__).parent / "data"
program = programs.program("roles/mpi_stack/files/sweep.py")


def directory(nodes: int = 2, slots: int = 8, **other: Any) -> list[dict[str, Any]]:
    """Rail k of every node on leaf k, and a launcher."""
    rails = [
        {
            "rail": number,
            "interface": f"rail{number}",
            "network": f"10.100.{number}.0/24",
            "gpu": number,
            "speed_gbps": 800,
            "leaf": f"leaf{number + 1:02d}",
        }
        for number in range(8)
    ]
    common = {"role": "compute", "slots": slots, "drained": False, "rails": rails, **other}
    launcher = {"name": "launcher01", "role": "launcher", "slots": 0, "drained": False, "rails": []}
    return [*({"name": f"node{number:02d}", **common} for number in range(1, nodes + 1)), launcher]


RANKS = bench.ranks_of(directory())


def names(ranks: list[bench.Rank], *given: str) -> list[str]:
    return [pair.name for pair in bench.pairs_of(ranks, given)]


# Ranks.


def test_default_pairs_cover_each_kind() -> None:
    inside = "node01:0 - node01:1"
    assert names(RANKS) == [inside, "node01:0 - node02:0", "node01:0 - node02:1"]
    one_rank_a_node = bench.ranks_of(directory(nodes=3, slots=1))
    assert names(one_rank_a_node) == ["node01:0 - node02:0"]
    assert names(bench.ranks_of(directory(nodes=1))) == [inside]
    without_rails = bench.ranks_of(directory(rails=[]))
    assert names(without_rails) == [inside, "node01:0 - node02:0"]
    assert {rank.node for rank in RANKS} == {"node01", "node02"}
    assert bench.ranks_of(directory(drained=True)) == []
    with pytest.raises(PlanError, match="no rank"):
        bench.jobs_of(bench.BenchOptions(), [])


@pytest.mark.parametrize(
    "name", ["node01:0", "node01:0 - node09:0", "node01:0 - node01:0", "node01:0-node02:0", ""]
)
def test_an_invalid_pair_is_refused(name: str) -> None:
    with pytest.raises(PlanError, match=re.escape(repr(name))):
        bench.pairs_of(RANKS, [name])


# Jobs.


def refusal(**options: Any) -> Any:
    with pytest.raises(PlanError) as refused:
        bench.jobs_of(bench.BenchOptions(**options), RANKS)
    return refused.value.args[0]


def test_mpi4py_measures_in_one_job() -> None:
    options = bench.BenchOptions(benchmarks=("bw", "alltoall"), pairs=("node02:3 - node01:1",))
    [launch] = bench.jobs_of(options, RANKS)
    words = " ".join(launch.arguments["program"])
    assert words.endswith(
        "sweep.py bw alltoall --pairs node02:3,node01:1 --min-bytes 1 --max-bytes 4194304 "
        "--iterations 0"
    )


def test_osu_has_a_job_for_each_benchmark_and_pair() -> None:
    options = bench.BenchOptions(
        "osu", ("latency", "allreduce"), program_directory="/opt/osu", iterations=40
    )
    inside, between, together = bench.jobs_of(options, RANKS)
    head = ["/opt/osu/osu_latency", "-m", "1:4194304", "-i", "40", "-x", "4"]
    assert inside.arguments == {"program": head, "places": {"node01": 2}}
    assert between.arguments == {"program": head, "places": {"node01": 1, "node02": 1}}
    assert (inside.where, between.where) == ("node01:0 - node01:1", "node01:0 - node02:0")
    assert together.arguments["program"][0] == "/opt/osu/osu_allreduce"
    assert "places" not in together.arguments


def test_nccl_measures_all_ranks() -> None:
    options = bench.BenchOptions(
        "nccl", ("bw", "allreduce", "latency"), max_bytes=1 << 30, program_directory="/opt/nccl"
    )
    found = {job.where: job.arguments for job in bench.jobs_of(options, RANKS)}
    assert list(found) == ["allreduce", "sendrecv"]
    words = ["/opt/nccl/sendrecv_perf", "-b", "8", "-e", str(1 << 30), "-f", "2", "-g", "1"]
    assert found["sendrecv"]["program"] == words


@pytest.mark.parametrize(
    ("given", "code", "value"),
    [
        ({"benchmarks": ()}, "bench.benchmarks", "mpi4py"),
        ({"program": "nccl", "benchmarks": ("latency", "bibw")}, "bench.benchmarks", "nccl"),
        ({"program": "osu", "pairs": ("node01:3 - node02:3",)}, "bench.osu_pair", "3 - node02:3"),
    ],
)
def test_a_run_without_a_requested_benchmark_is_refused(
    given: dict[str, Any], code: str, value: str
) -> None:
    message = refusal(**given)
    assert message.code == code and value in str(message.values)


def test_a_single_rank_has_no_pair() -> None:
    single = bench.ranks_of(directory(nodes=1, slots=1))
    with pytest.raises(PlanError, match="latency, bw, bibw"):
        bench.jobs_of(bench.BenchOptions(), single)
    [_one] = bench.jobs_of(bench.BenchOptions(benchmarks=("allreduce",)), single)


# Output.


def test_output_of_osu_is_parsed() -> None:
    bw, bibw, latency, alltoall = bench.parse((DATA / "osu/v7.5.txt").read_text(), "x", ranks=8)
    found = [sweep.benchmark for sweep in (bw, bibw, latency, alltoall)]
    assert found == ["bw", "bibw", "latency", "alltoall"]
    assert bw.rows == [(1, None, 0.0009), (65536, None, 22.01946), (4194304, None, 23.98954)]
    assert bibw.best == 46.41759
    assert latency.best == 3.34  # not the 3.33 of 16 bytes
    assert latency.rows[-1] == (4194304, 182.39, pytest.approx(22.9963, rel=1e-4))
    assert alltoall.rows[-1] == (1048576, 519.85, pytest.approx(7 * 1048576 / 519.85 / 1e3))
    [old] = bench.parse((DATA / "osu/v5.8.txt").read_text(), "x")
    assert old.best == 19.09527 and old.where == "x"


def test_output_of_nccl_tests_is_parsed() -> None:
    sweep = bench.parse_nccl((DATA / "gpu/nccl_h100.txt").read_text(), "allreduce")
    assert (sweep.where, sweep.ranks) == ("16 GPUs", 16)
    assert sweep.rows[-1] == (8589934592, 47535, 338.82)


def tagged(text: str) -> str:
    """With the prefixes of Open MPI 4 and 5, some in the middle of a line."""
    tags = ["[1,0]<stdout>:", "[1,2]<stdout>: "]
    lines = (f"{tags[n % 2]}{line}" for n, line in enumerate(text.splitlines()))
    return "\n".join(f"{line[:-1]}{tags[0]}{line[-1:]}{tags[0]}" for line in lines)


@given(
    st.sampled_from(bench.BENCHMARKS),
    st.lists(st.tuples(st.integers(1, 1 << 30), st.floats(0.01, 1e9)), min_size=1),
    st.integers(2, 4096),
)
def test_output_of_the_program_is_parsed(
    benchmark: str, rows: list[tuple[int, float]], ranks: int
) -> None:
    title, column = program.TITLES[benchmark]
    pair = benchmark in bench.PAIRWISE
    where = "node01:0 - node-02.x:7" if pair else f"{ranks} ranks"
    head = f"Pair: {where}" if pair else f"Ranks: {ranks}"
    text = f"\n# OSU MPI {title} Test by mpi4py\n# {head}\n# Size {column}\n"
    text += "".join(f"{size:<10}{value:>20.2f}\n" for size, value in rows)
    by_hydra = "".join(f"[0] {line}" for line in text.splitlines(keepends=True))
    [found] = bench.parse(tagged(text))
    assert bench.parse(by_hydra) == [found]
    assert (found.benchmark, found.where, found.ranks) == (benchmark, where, 2 if pair else ranks)
    assert [row[0] for row in found.rows] == [size for size, _value in rows]


@given(st.integers(1, 1 << 30), st.floats(1e-7, 10.0), st.integers(1, 1000), st.integers(2, 10_000))
def test_program_and_report_agree_on_figures(
    size: int, seconds: float, count: int, ranks: int
) -> None:
    """From seconds of a loop to printed figures, and from there to bytes per time."""
    moved = {
        "latency": 2 * count * size,
        "bw": count * 64 * size,
        "bibw": count * 128 * size,
        "allreduce": count * size * 2 * (ranks - 1) / ranks,
        "alltoall": count * size * (ranks - 1),
    }
    for benchmark, volume in moved.items():
        printed = program.figure(benchmark, size, seconds, count)
        time_us, rate = bench.figures(benchmark, size, printed, ranks)
        assert rate == pytest.approx(volume / seconds / 1e9)
        assert (time_us is None) == (benchmark in ("bw", "bibw"))


@given(st.integers(1, 1 << 24), st.integers(1, 1 << 24), st.integers(1, 4096))
def test_sizes_are_powers_of_two_within_limits(smallest: int, largest: int, ranks: int) -> None:
    found = program.sizes(smallest, largest, ranks)
    every = [1 << bit for bit in range(25)]
    limit = min(largest, program.MEMORY // ranks)
    assert found == [size for size in every if smallest <= size <= limit]


def test_iterations_are_those_of_osu_unless_given() -> None:
    assert program.loops("latency", 8192, 0) == (10000, 100)
    assert program.loops("latency", 8193, 0) == (1000, 10)
    assert (program.loops("bw", 1, 0), program.loops("bibw", 1 << 20, 0)) == ((100, 10), (20, 2))
    assert program.loops("allreduce", 1, 0) == (1000, 100)
    assert program.loops("alltoall", 1 << 20, 0) == (100, 10)
    assert program.loops("bw", 1, 40) == (40, 4) and program.loops("bw", 1, 4) == (4, 1)
    assert [program.RUN[name].args for name in bench.COLLECTIVES] == [("Allreduce",), ("Alltoall",)]


# Thresholds.


def expected(benchmark: str, where: str, **wanted: Any) -> bench.Sweep:
    ranks = 2 if benchmark in bench.PAIRWISE else len(RANKS)
    small, large = (None, None) if benchmark in ("bw", "bibw") else (4.0, 20.0)
    sweep = bench.Sweep(benchmark, where, ranks, [(8, small, 90.0), (1 << 20, large, 95.0)])
    bench.expect(sweep, bench.BenchOptions(**wanted), RANKS)
    return sweep


@pytest.mark.parametrize(
    ("benchmark", "where", "rate"),
    [
        ("bw", "node01:0 - node02:1", 100.0),
        ("bibw", "node01:0 - node02:0", 200.0),
        ("latency", "node01:0 - node02:0", 100.0),
        ("bw", "node01:0 - node01:1", None),
        ("allreduce", "16 ranks", 800.0),
        ("alltoall", "16 ranks", 100.0 * 15 / 8),
        ("sendrecv", "16 GPUs", 100.0),
    ],
)
def test_line_rates_are_those_of_the_rails(benchmark: str, where: str, rate: Any) -> None:
    assert expected(benchmark, where).line_rate_gbytes_s == rate


@pytest.mark.parametrize("benchmark", bench.COLLECTIVES)
def test_a_single_node_has_no_line_rate(benchmark: str) -> None:
    sweep = bench.Sweep(benchmark, "8 ranks", 8, [(8, 4.0, 90.0)])
    bench.expect(sweep, bench.BenchOptions(), [rank for rank in RANKS if rank.node == "node01"])
    assert sweep.line_rate_gbytes_s is None


def test_thresholds_apply_to_real_nodes() -> None:
    pair = "node01:0 - node02:0"
    cases = [
        (expected("bw", pair, min_share=0.95), "ok"),
        (expected("bw", pair, min_share=0.96), "failed"),
        (expected("bw", pair), "not_applicable"),
        (expected("bw", "node01:0 - node01:1", min_share=0.96), "not_applicable"),
        (expected("latency", pair, max_latency_us=4.0), "ok"),
        (expected("latency", pair, max_latency_us=3.9), "failed"),
        (expected("allreduce", "16 ranks", min_busbw_gbytes_s=96), "failed"),
        (expected("allreduce", "16 GPUs", program="nccl", min_nccl_share=0.1), "ok"),
        (expected("alltoall", "16 ranks", min_share=0.99), "not_applicable"),
    ]
    for sweep, status in cases:
        assert bench.evaluate(sweep, virtual=False).status == status, sweep
        assert bench.evaluate(sweep, virtual=True).status == "not_applicable"
    empty = bench.Sweep("bw", pair, 2)
    assert bench.evaluate(empty, virtual=True).status == "failed"


# Tables and drawings.

PAIR = "node01:0 - node02:0"
SHOWN = [
    expected("latency", PAIR, max_latency_us=5.0),
    expected("bw", PAIR, min_share=0.9),
    expected("bw", "node01:0 - node01:1"),
    expected("alltoall", "16 ranks"),
]


def test_the_table_has_line_rates_and_thresholds() -> None:
    text = "\n".join(table.lines("osu", SHOWN, virtual=False))
    assert re.search(r"bw +node01:0 - node02:0 +node01:0 - node01:1\n +8 B +90.00 GB/s +90", text)
    assert f"{PAIR}: best 95.00 GB/s; line rate 100 GB/s (95.0 %); threshold: at least 90" in text
    assert f"{PAIR}: least 4.00 us; threshold: at most 5 us" in text
    assert "node01:0 - node01:1: best 95.00 GB/s; no rail" in text
    assert re.search(r"alltoall +16 ranks +busbw\n +8 B +4.00 us +90.00 GB/s", text)
    virtual = "\n".join(table.lines("osu", SHOWN, virtual=True))
    assert "line rate 100 GB/s is nominal" in virtual and "%" not in virtual


def test_each_benchmark_is_drawn_with_line_rate_and_threshold(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    paths = table.draw(tmp_path, "bench-1", SHOWN, virtual=False)
    assert paths == [
        str(tmp_path / f"bench-1-{name}.svg") for name in ("latency", "bw", "alltoall")
    ]
    assert {Path(path).stat().st_mode & 0o777 for path in paths} == {0o640}
    latency, bw, alltoall = (Path(path).read_text(encoding="utf-8") for path in paths)
    for text in (latency, bw, alltoall):
        assert "<svg" in text and ">8 B<" in text and ">message size<" in text
    assert f">{PAIR}<" in bw and ">node01:0 - node01:1<" in bw
    assert ">line rate 100 GB/s<" in bw and ">threshold 90 GB/s<" in bw
    assert ">threshold 5 us, up to 8 B<" in latency and ">latency (us)<" in latency
    assert ">bus bandwidth of alltoall (GB/s)<" in alltoall
    again = table.draw(tmp_path / "again", "bench-1", SHOWN, virtual=True)
    assert again and ">line rate 100 GB/s (nominal: virtual nodes)<" in Path(again[1]).read_text()


def test_latency_is_drawn_as_time_and_a_bandwidth_as_rate() -> None:
    late, fast = MagicMock(), MagicMock()
    table._curves(late, "latency", SHOWN[:1], False)
    curve, line_rate = (call.args for call in late.plot.call_args_list)
    assert curve == ((8, 1 << 20), (4.0, 20.0)) and line_rate == ([1 << 20], [(1 << 20) / 1e5])
    assert [call.args for call in late.axhline.call_args_list] == [(5.0,)]
    table._curves(fast, "bw", SHOWN[1:2], False)
    assert [call.args for call in fast.plot.call_args_list] == [((8, 1 << 20), (90.0, 95.0))]
    assert [call.args for call in fast.axhline.call_args_list] == [(100.0,), (90.0,)]


def test_without_matplotlib_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert table.draw(tmp_path, "bench-1", SHOWN, virtual=False) is None
    assert list(tmp_path.iterdir()) == [] and "pip install matplotlib" in table.WITHOUT
