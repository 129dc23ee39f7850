# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sweeps of message sizes: between which ranks, by which program, and what its output is worth.

The program of the ranks (roles/mpi_stack/files/sweep.py) prints as the OSU micro-benchmarks do, so
one parser reads both (OSU 7.4, c/util/osu_util_mpi.c; releases from 5.6 on). nccl-tests has its
own, the smoke test's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ...module_utils.core.part import PlanError
from ...module_utils.core.text import some
from ...module_utils.mpi.allreduce.gpu import read_nccl
from ...module_utils.mpi.environment import PROGRAM_DIRECTORY, rails_by_rank, rails_from_model

PROGRAM = f"{PROGRAM_DIRECTORY}/sweep.py"
PAIRWISE = ("latency", "bw", "bibw")
COLLECTIVES = ("allreduce", "alltoall")
BENCHMARKS = (*PAIRWISE, *COLLECTIVES)
NCCL = {"allreduce": "all_reduce_perf", "alltoall": "alltoall_perf", "sendrecv": "sendrecv_perf"}
"""nccl-tests' program of each; `bw` is its sendrecv, each rank to the next."""
TITLES = {
    "Latency": "latency",
    "Bandwidth": "bw",
    "Bi-Directional Bandwidth": "bibw",
    "Allreduce Latency": "allreduce",
    "All-to-All Personalized Exchange Latency": "alltoall",
}
TITLE = re.compile(r"# OSU MPI(?:-\w+)? (.+?) Test\b")
WHERE = re.compile(r"# (?:Pair: ([\w.:-]+ - [\w.:-]+)|Ranks: (\d{1,9})\b)", re.ASCII)
ROW = re.compile(r"(\d{1,18})\s+(\d{1,18}(?:\.\d+)?)\b", re.ASCII)
TAG = re.compile(r"\[\d+,\d+\]<std(?:out|err)>: ?|^\[\d+\] ?")
"""mpirun's, of each piece that it reads: of a line, or of a part of it; and Hydra's, of a line."""
SMALL = 8
"""Bytes up to which a latency is held against its limit."""


@dataclass(frozen=True)
class Rank:
    """One rank of the cluster: its place (`node01:0`), and what carries its messages."""

    node: str
    number: int
    leaves: frozenset[str] = frozenset()
    rate_gbytes_s: float = 0.0
    """Line rate of its rails, in one direction."""

    @property
    def place(self) -> str:
        return f"{self.node}:{self.number}"


def ranks_of(directory: Sequence[Mapping[str, Any]]) -> list[Rank]:
    """Every rank of the nodes that are not drained, node by node."""
    found = []
    for entry in directory:
        if entry["role"] != "compute" or entry["drained"]:
            continue
        rails = {rail["interface"]: rail for rail in entry["rails"]}
        by_rank = rails_by_rank(rails_from_model(entry["rails"]), entry["slots"])
        for number in range(entry["slots"]):
            own = [rails[rail.interface] for rail in by_rank[number]] if by_rank else []
            leaves = frozenset(str(rail["leaf"]) for rail in own if rail.get("leaf"))
            rate = sum(float(rail["speed_gbps"] or 0) for rail in own) / 8
            found.append(Rank(entry["name"], number, leaves, rate))
    return found


@dataclass(frozen=True)
class Pair:
    one: Rank
    other: Rank

    @property
    def name(self) -> str:
        return f"{self.one.place} - {self.other.place}"

    @property
    def rate_gbytes_s(self) -> float:
        """In one direction; 0 inside a node."""
        if self.one.node == self.other.node:
            return 0.0
        return min(self.one.rate_gbytes_s, self.other.rate_gbytes_s)


def pairs_of(ranks: Sequence[Rank], names: Sequence[str]) -> list[Pair]:
    """The pairs of these names, or by default one inside a node, one whose rails share a leaf, and
    one whose rails are on different leaves: the first of each kind that the model has."""
    by_place = {rank.place: rank for rank in ranks}
    if names:
        found = []
        for name in names:
            places = [part.strip() for part in name.split(" - ")]
            unknown = [place for place in places if place not in by_place]
            if len(places) != 2 or unknown or places[0] == places[1]:
                raise PlanError(
                    f"mpi_bench_pairs: {name!r} names no two ranks, as 'node01:0 - node02:0' does; "
                    f"ranks are {some(list(by_place), 8)}"
                )
            found.append(Pair(by_place[places[0]], by_place[places[1]]))
        return found
    first, kinds = ranks[0], dict[tuple[bool, bool], Pair]()
    for other in ranks[1:]:
        apart = other.node != first.node
        kind = (apart, apart and first.leaves.isdisjoint(other.leaves))
        kinds.setdefault(kind, Pair(first, other))
    return [kinds[kind] for kind in sorted(kinds)]


@dataclass(frozen=True)
class Wanted:
    """What the operator asked for, named as the module's options."""

    program: str = "mpi4py"
    benchmarks: tuple[str, ...] = BENCHMARKS
    pairs: tuple[str, ...] = ()
    min_bytes: int = 1
    max_bytes: int = 1 << 22
    iterations: int = 0
    python: str = "/usr/bin/python3"
    program_directory: str = ""
    min_share: Optional[float] = None
    max_latency_us: Optional[float] = None
    min_busbw_gbytes_s: Optional[float] = None
    min_nccl_share: Optional[float] = None


@dataclass(frozen=True)
class Launch:
    """One job: arguments of the module mpi_job, what its output is of, where that is silent, and
    how many tables it has."""

    arguments: dict[str, Any]
    where: str = ""
    tables: int = 1


def launches(wanted: Wanted, ranks: Sequence[Rank]) -> list[Launch]:
    """One job for all sweeps by mpi4py; one for each of OSU's programs and pair, or of NCCL's."""
    if not ranks:
        raise PlanError("no rank to measure: every node is drained, or there is none")
    if not 0 < wanted.min_bytes <= wanted.max_bytes or wanted.iterations < 0:
        raise PlanError(
            f"mpi_bench_min_bytes {wanted.min_bytes}, mpi_bench_max_bytes {wanted.max_bytes}, "
            f"mpi_bench_iterations {wanted.iterations}: wanted sizes of at least 1 byte, the "
            "largest not below the smallest, and 0 or more iterations"
        )
    able = ("bw", *COLLECTIVES) if wanted.program == "nccl" else BENCHMARKS
    if not set(able).intersection(wanted.benchmarks):
        raise PlanError(
            f"mpi_bench_benchmarks: {wanted.program} has nothing to measure: wanted some of "
            f"{', '.join(able)}"
        )
    pairs = pairs_of(ranks, wanted.pairs)
    if not pairs and set(PAIRWISE).intersection(wanted.benchmarks) and wanted.program != "nccl":
        raise PlanError(f"one rank alone has no pair: leave out {', '.join(PAIRWISE)}")
    size = f"{wanted.min_bytes}:{wanted.max_bytes}"
    prefix = f"{wanted.program_directory}/" if wanted.program_directory else ""
    if wanted.program == "mpi4py":
        words = [wanted.python, PROGRAM, *wanted.benchmarks]
        words += ["--pairs", *(f"{pair.one.place},{pair.other.place}" for pair in pairs)]
        words += ["--min-bytes", str(wanted.min_bytes), "--max-bytes", str(wanted.max_bytes)]
        words += ["--iterations", str(wanted.iterations)]
        each = [len(pairs) if name in PAIRWISE else 1 for name in wanted.benchmarks]
        return [Launch({"program": words}, tables=sum(each))]
    if wanted.program == "nccl":
        sizes = ["-b", str(max(wanted.min_bytes, 8)), "-e", str(wanted.max_bytes), "-f", "2"]
        count = ["-n", str(wanted.iterations)] if wanted.iterations else []
        return [
            Launch(
                {
                    "program": [prefix + program, *sizes, *count, "-g", "1"],
                    "environment": {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
                },
                name,
            )
            for name, program in NCCL.items()
            if name in wanted.benchmarks or (name == "sendrecv" and "bw" in wanted.benchmarks)
        ]
    found = []
    for benchmark in wanted.benchmarks:
        words = [f"{prefix}osu_{benchmark}", "-m", size]
        if wanted.iterations:
            words += ["-i", str(wanted.iterations), "-x", str(max(1, wanted.iterations // 10))]
        if benchmark in COLLECTIVES:
            found.append(Launch({"program": words}, f"{len(ranks)} ranks"))
            continue
        for pair in pairs:
            numbers = sorted([pair.one.number, pair.other.number])
            inside = pair.one.node == pair.other.node
            if numbers != ([0, 1] if inside else [0, 0]):
                if not wanted.pairs:
                    continue
                raise PlanError(
                    f"mpi_bench_pairs: {pair.name!r}: OSU's programs take two ranks, the first of "
                    "their nodes: node01:0 - node02:0, or node01:0 - node01:1"
                )
            places = {pair.one.node: 2} if inside else {pair.one.node: 1, pair.other.node: 1}
            found.append(Launch({"program": words, "places": places}, pair.name))
    return found


@dataclass
class Sweep:
    """One table: a benchmark between some ranks, its sizes, and what they are held against."""

    benchmark: str
    where: str
    ranks: int
    rows: list[tuple[int, Optional[float], float]] = field(default_factory=list)
    """Bytes, microseconds of a message or collective where these are measured, and 10^9 bytes per
    second: of an allreduce and an alltoall the bus bandwidth."""
    line_rate_gbytes_s: Optional[float] = None
    threshold: Optional[float] = None
    """In microseconds for `latency`, else GB/s."""

    @property
    def best(self) -> Optional[float]:
        """What the threshold is about: the latency of the smallest messages, or the best rate."""
        if self.benchmark == "latency":
            small = [time for size, time, _rate in self.rows if time and size <= SMALL]
            return min(small, default=None)
        return max((rate for _size, _time, rate in self.rows), default=None)

    def add(self, size: int, value: float) -> None:
        """A row as OSU's programs print it."""
        if size and value:
            self.rows.append((size, *figures(self.benchmark, size, value, self.ranks)))

    def as_dict(self) -> dict[str, Any]:
        given = {key: value for key, value in asdict(self).items() if key != "rows"}
        names = ("bytes", "latency_us", "gbytes_s")
        return {**given, "best": self.best, "by_size": [dict(zip(names, row)) for row in self.rows]}


def figures(benchmark: str, size: int, value: float, ranks: int) -> tuple[Optional[float], float]:
    """Microseconds and GB/s of what OSU's programs print: microseconds, or MB/s.

    Bus bandwidth as the smoke test and nccl-tests define it: what each rank's link has to carry.
    OSU's size of an alltoall is that of the message to one rank.
    """
    if benchmark in ("bw", "bibw"):
        return None, value / 1e3
    rate = size / value / 1e3
    if benchmark == "allreduce":
        rate *= 2 * (ranks - 1) / ranks
    elif benchmark == "alltoall":
        rate *= ranks - 1
    return value, rate


def parse(output: str, where: str = "", ranks: int = 2) -> list[Sweep]:
    """The sweeps in what OSU's programs or ours printed, with or without mpirun's tags."""
    found: list[Sweep] = []
    for line in _lines(output):
        title, place = TITLE.match(line), WHERE.match(line)
        row = ROW.match(line)
        if title and title[1] in TITLES:
            benchmark = TITLES[title[1]]
            found.append(Sweep(benchmark, where, 2 if benchmark in PAIRWISE else ranks))
        elif place and found:
            found[-1].where = place[1] or f"{place[2]} ranks"
            found[-1].ranks = int(place[2] or 2)
        elif row and found:
            found[-1].add(int(row[1]), float(row[2]))
    return found


def parse_nccl(output: str, benchmark: str) -> Sweep:
    """The sweep that a program of nccl-tests printed, out of place."""
    read = read_nccl("\n".join(_lines(output)))
    sweep = Sweep(benchmark, f"{read['ranks']} GPUs", read["ranks"])
    for row in read["by_size"]:
        if row["bytes"] and row["busbw_gbytes_s"]:
            sweep.rows.append((row["bytes"], row["time_us"][0], row["busbw_gbytes_s"][0]))
    return sweep


def _lines(output: str) -> Iterator[str]:
    return (TAG.sub("", line) for line in output.splitlines())


def expect(sweep: Sweep, wanted: Wanted, ranks: Sequence[Rank]) -> None:
    """What it could reach at most, and what it has to reach."""
    rates: dict[str, float] = {}
    for rank in ranks:
        rates[rank.node] = rates.get(rank.node, 0.0) + rank.rate_gbytes_s
    share = wanted.min_share
    if sweep.benchmark in PAIRWISE:
        (pair,) = pairs_of(ranks, [sweep.where])
        rate = pair.rate_gbytes_s * (2 if sweep.benchmark == "bibw" else 1)
        sweep.line_rate_gbytes_s = rate or None
        if sweep.benchmark == "latency":
            sweep.threshold = wanted.max_latency_us if rate else None
            return
    else:
        share = wanted.min_nccl_share if wanted.program == "nccl" else None
        of_one = min(rank.rate_gbytes_s for rank in ranks)
        rate = min(rates.values()) if sweep.benchmark == "allreduce" else of_one
        if sweep.benchmark == "alltoall" and len(rates) > 1:
            # Messages inside the node do not pass the rail.
            inside = max(Counter(rank.node for rank in ranks).values())
            rate *= (len(ranks) - 1) / (len(ranks) - inside)
        sweep.line_rate_gbytes_s = (rate or None) if len(rates) > 1 else None
        if sweep.benchmark == "allreduce" and wanted.program != "nccl":
            sweep.threshold = wanted.min_busbw_gbytes_s
            return
        share = share if sweep.benchmark == "allreduce" else None
    if share and sweep.line_rate_gbytes_s:
        sweep.threshold = share * sweep.line_rate_gbytes_s


def judge(sweep: Sweep, virtual: bool) -> Check:
    subject, unit = f"{sweep.benchmark} {sweep.where}", "GB/s"
    found, wanted = sweep.best, "measured"
    if sweep.benchmark == "latency":
        unit = "us"
    shown = None if found is None else f"{found:.4g} {unit}"
    if found is None:
        why = "the program printed no figure: see output.log of the job"
        return Check("sweep", wanted, shown, FAILED, subject, why)
    if virtual or sweep.threshold is None:
        why = "virtual nodes: line rate is nominal" if virtual else "no threshold set"
        return Check("sweep", wanted, shown, NOT_APPLICABLE, subject, why)
    less = sweep.benchmark == "latency"
    wanted = f"at {'most' if less else 'least'} {sweep.threshold:.4g} {unit}"
    if found <= sweep.threshold if less else found >= sweep.threshold:
        return Check("sweep", wanted, shown, OK, subject)
    why = "the rails of these ranks (--tags verbs), their cores, other jobs on the fabric"
    return Check("sweep", wanted, shown, FAILED, subject, why)
