# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Sweeps over message sizes: the ranks involved, the programs that measure, and the evaluation.

The collection's program (roles/mpi_stack/files/sweep.py) prints the format of the OSU
micro-benchmarks, so one parser reads both (OSU 7.4, c/util/osu_util_mpi.c; releases since 5.6).
nccl-tests has another format, which the smoke test parses as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Optional

from ...module_utils.core.checks import FAILED, NOT_APPLICABLE, OK, Check
from ...module_utils.core.messages import message
from ...module_utils.core.part import PlanError
from ...module_utils.core.text import some
from ...module_utils.mpi.allreduce.gpu import read_nccl
from ...module_utils.mpi.environment import PROGRAM_DIRECTORY, rails_by_rank, rails_from_model
from ...module_utils.mpi.job.plan import ALL

PROGRAM = f"{PROGRAM_DIRECTORY}/sweep.py"
PAIRWISE = ("latency", "bw", "bibw")
COLLECTIVES = ("allreduce", "alltoall")
BENCHMARKS = (*PAIRWISE, *COLLECTIVES)
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
TAG = re.compile(r"\[\d+,\d+\]<std(?:out|err)>: ?|^\[\d+\] ?|^ *\d+: ?")
"""Prefix of output: Open MPI prints one for each line or part of a line, Hydra and srun for each
line."""
SMALL = 8
"""Size in bytes up to which the latency threshold applies."""


@dataclass(frozen=True)
class Rank:
    node: str
    number: int
    leaves: frozenset[str] = frozenset()
    rate_gbytes_s: float = 0.0
    """Line rate of its rails in one direction."""
    kind: str = ""
    """Of its node; empty if the model has no kinds."""

    @property
    def place(self) -> str:
        """`node01:0`"""
        return f"{self.node}:{self.number}"


def measured(directory: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Nodes in service: those with rails, if there are any, and those with ranks otherwise."""
    active = [node for node in directory if node["role"] == "compute" and not node["drained"]]
    return [node for node in active if node["rails"]] or [node for node in active if node["slots"]]


def ranks_of(directory: Sequence[Mapping[str, Any]]) -> list[Rank]:
    ranks = []
    for entry in measured(directory):
        rails = {rail["interface"]: rail for rail in entry["rails"]}
        by_rank = rails_by_rank(rails_from_model(entry["rails"]), entry["slots"])
        for number in range(entry["slots"]):
            own = [rails[rail.interface] for rail in by_rank[number]] if by_rank else []
            leaves = frozenset(str(rail["leaf"]) for rail in own if rail.get("leaf"))
            rate = sum(float(rail["speed_gbps"] or 0) for rail in own) / 8
            ranks.append(Rank(entry["name"], number, leaves, rate, entry.get("kind", "")))
    return ranks


def kinds_of(
    directory: Sequence[Mapping[str, Any]], asked: Sequence[str], program: str
) -> list[str]:
    """Kinds of nodes to measure; empty if the model has none. NCCL needs GPUs."""
    active = [node for node in directory if node["role"] == "compute" and not node["drained"]]
    gpus = {node["kind"]: node["gpus"] for node in active if "kind" in node}
    unknown = [kind for kind in asked if kind not in (*gpus, ALL)]
    if unknown:
        known = f"nodes in service are of {some(list(gpus))}" if gpus else "the model has no kinds"
        raise PlanError(f"mpi_bench_kind: {some(unknown)}: no such nodes; {known}")
    usual = [node["kind"] for node in measured(directory) if "kind" in node]
    usual = [kind for kind in gpus if kind in usual]
    capable = [kind for kind in usual if gpus[kind] or program != "nccl"]
    return usual if ALL in asked else [*asked] or capable or usual


@dataclass(frozen=True)
class Pair:
    one: Rank
    other: Rank

    @property
    def name(self) -> str:
        return f"{self.one.place} - {self.other.place}"

    @property
    def rate_gbytes_s(self) -> float:
        """Line rate in one direction; 0 inside a node."""
        if self.one.node == self.other.node:
            return 0.0
        return min(self.one.rate_gbytes_s, self.other.rate_gbytes_s)


def pairs_of(ranks: Sequence[Rank], names: Sequence[str]) -> list[Pair]:
    """The named pairs. By default, the first pair inside a node, the first whose rails share a
    leaf, and the first with rails on different leaves; the latter with each kind of nodes."""
    by_place = {rank.place: rank for rank in ranks}
    if names:
        named = []
        for name in names:
            places = [part.strip() for part in name.split(" - ")]
            unknown = [name for name in places if name not in by_place]
            if len(places) != 2 or unknown or places[0] == places[1]:
                raise PlanError(
                    f"mpi_bench_pairs: {name!r} is not a pair of ranks such as "
                    f"'node01:0 - node02:0'; ranks are {some(list(by_place), 8)}"
                )
            named.append(Pair(by_place[places[0]], by_place[places[1]]))
        return named
    first, kinds = ranks[0], dict[tuple[bool, bool, str], Pair]()
    for other in ranks[1:]:
        apart = other.node != first.node
        kind = (apart, apart and first.leaves.isdisjoint(other.leaves), other.kind)
        kinds.setdefault(kind, Pair(first, other))
    return [kinds[kind] for kind in sorted(kinds)]


@dataclass(frozen=True)
class BenchOptions:
    """Options of the module mpi_bench, with the same names."""

    program: str = "mpi4py"
    benchmarks: tuple[str, ...] = BENCHMARKS
    pairs: tuple[str, ...] = ()
    min_bytes: int = 1
    max_bytes: int = 1 << 22
    iterations: int = 0
    """0 for the numbers that OSU's programs use."""
    python: str = "/usr/bin/python3"
    program_directory: str = ""
    min_share: Optional[float] = None
    max_latency_us: Optional[float] = None
    min_busbw_gbytes_s: Optional[float] = None
    min_nccl_share: Optional[float] = None

    def path(self, program: str) -> str:
        return f"{self.program_directory}/{program}" if self.program_directory else program


@dataclass(frozen=True)
class BenchJob:
    arguments: dict[str, Any]
    where: str = ""
    """Ranks that the job measures, if its output does not name them; with NCCL, the benchmark."""
    tables: int = 1


@dataclass
class Sweep:
    """One table: a benchmark between some ranks, its figures, and their references."""

    benchmark: str
    where: str
    ranks: int
    rows: list[tuple[int, Optional[float], float]] = field(default_factory=list)
    """Bytes, microseconds (None where only bandwidth is measured), and 10^9 bytes per second; for
    allreduce and alltoall the bus bandwidth."""
    line_rate_gbytes_s: Optional[float] = None
    threshold: Optional[float] = None
    """Microseconds for `latency`, else GB/s."""

    @property
    def best(self) -> Optional[float]:
        """Latency of the smallest messages, or the best rate."""
        if self.benchmark == "latency":
            small = [time for size, time, _rate in self.rows if time and size <= SMALL]
            return min(small, default=None)
        return max((rate for _size, _time, rate in self.rows), default=None)

    def add(self, size: int, value: float) -> None:
        if size and value:
            self.rows.append((size, *figures(self.benchmark, size, value, self.ranks)))

    def as_dict(self) -> dict[str, Any]:
        given = {key: value for key, value in asdict(self).items() if key != "rows"}
        names = ("bytes", "latency_us", "gbytes_s")
        return {**given, "best": self.best, "by_size": [dict(zip(names, row)) for row in self.rows]}


def figures(benchmark: str, size: int, value: float, ranks: int) -> tuple[Optional[float], float]:
    """Convert a value printed by OSU's programs, in microseconds or MB/s, to microseconds and GB/s.

    Bus bandwidth as in the smoke test and nccl-tests: the load of each rank's link. In an alltoall,
    OSU's size is that of the message to one rank.
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
    """Sweeps in the output of OSU's programs or of sweep.py, with or without mpirun's prefixes."""
    sweeps: list[Sweep] = []
    for line in _lines(output):
        title, heading = TITLE.match(line), WHERE.match(line)
        row = ROW.match(line)
        if title and title[1] in TITLES:
            benchmark = TITLES[title[1]]
            sweeps.append(Sweep(benchmark, where, 2 if benchmark in PAIRWISE else ranks))
        elif heading and sweeps:
            sweeps[-1].where = heading[1] or f"{heading[2]} ranks"
            sweeps[-1].ranks = int(heading[2] or 2)
        elif row and sweeps:
            sweeps[-1].add(int(row[1]), float(row[2]))
    return sweeps


def parse_nccl(output: str, benchmark: str) -> Sweep:
    """The sweep of one nccl-tests program, with out-of-place buffers."""
    parsed = read_nccl("\n".join(_lines(output)))
    sweep = Sweep(benchmark, f"{parsed['ranks']} GPUs", parsed["ranks"])
    for row in parsed["by_size"]:
        if row["bytes"] and row["busbw_gbytes_s"]:
            sweep.rows.append((row["bytes"], row["time_us"][0], row["busbw_gbytes_s"][0]))
    return sweep


def _lines(output: str) -> Iterator[str]:
    return (TAG.sub("", line) for line in output.splitlines())


def jobs_of_mpi4py(options: BenchOptions, ranks: Sequence[Rank]) -> Iterator[BenchJob]:
    """The collection's own program measures all benchmarks in one job."""
    pairs = _pairs(options, ranks)
    argv = [options.python, PROGRAM, *options.benchmarks]
    argv += ["--pairs", *(f"{pair.one.place},{pair.other.place}" for pair in pairs)]
    argv += ["--min-bytes", str(options.min_bytes), "--max-bytes", str(options.max_bytes)]
    argv += ["--iterations", str(options.iterations)]
    tables = sum(len(pairs) if name in PAIRWISE else 1 for name in options.benchmarks)
    yield BenchJob({"program": argv}, tables=tables)


def jobs_of_osu(options: BenchOptions, ranks: Sequence[Rank]) -> Iterator[BenchJob]:
    """The OSU micro-benchmarks: one job per benchmark, or per pair for a pairwise benchmark. They
    measure the first two ranks, of one node or of two: other default pairs are left out.
    """
    pairs = _pairs(options, ranks)
    for benchmark in options.benchmarks:
        argv = [options.path(f"osu_{benchmark}"), "-m", f"{options.min_bytes}:{options.max_bytes}"]
        if options.iterations:
            argv += ["-i", str(options.iterations), "-x", str(max(1, options.iterations // 10))]
        if benchmark in COLLECTIVES:
            yield BenchJob({"program": argv}, f"{len(ranks)} ranks")
            continue
        for pair in pairs:
            places = Counter([pair.one.node, pair.other.node])
            first = [0, 1] if len(places) == 1 else [0, 0]
            if sorted([pair.one.number, pair.other.number]) == first:
                yield BenchJob({"program": argv, "places": dict(places)}, pair.name)
            elif options.pairs:
                raise PlanError(
                    message(
                        "bench.osu_pair",
                        "mpi_bench_pairs: {pair!r}: OSU's programs use two ranks, the first of "
                        "their nodes: node01:0 - node02:0, or node01:0 - node01:1",
                        pair=pair.name,
                    )
                )


OF_NCCL = {"allreduce": "all_reduce_perf", "alltoall": "alltoall_perf", "sendrecv": "sendrecv_perf"}


def jobs_of_nccl(options: BenchOptions, ranks: Sequence[Rank]) -> Iterator[BenchJob]:
    """nccl-tests over all ranks, with one job per program; `bw` is its sendrecv."""
    requested = {"sendrecv" if name == "bw" else name for name in options.benchmarks}
    sizes = ["-b", str(max(options.min_bytes, 8)), "-e", str(options.max_bytes), "-f", "2"]
    count = ["-n", str(options.iterations)] if options.iterations else []
    for name, program in OF_NCCL.items():
        if name in requested:
            argv = [options.path(program), *sizes, *count, "-g", "1"]
            environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
            yield BenchJob({"program": argv, "environment": environment}, name)


Jobs = Callable[[BenchOptions, Sequence[Rank]], Iterator[BenchJob]]
PROGRAMS: Mapping[str, tuple[tuple[str, ...], Jobs]] = {
    "mpi4py": (BENCHMARKS, jobs_of_mpi4py),
    "osu": (BENCHMARKS, jobs_of_osu),
    "nccl": (("bw", *COLLECTIVES), jobs_of_nccl),
}
"""Benchmarks that a program measures, and its jobs."""


def tables_of(program: str, output: str, job: BenchJob, ranks: int) -> list[Sweep]:
    if program == "nccl":
        return [parse_nccl(output, job.where)]
    return parse(output, job.where, ranks)


def _pairs(options: BenchOptions, ranks: Sequence[Rank]) -> list[Pair]:
    """Raises PlanError if there is no pair for a pairwise benchmark."""
    pairs = pairs_of(ranks, options.pairs)
    if not pairs and set(PAIRWISE).intersection(options.benchmarks):
        raise PlanError(f"a single rank has no peer: omit {', '.join(PAIRWISE)}")
    return pairs


def jobs_of(options: BenchOptions, ranks: Sequence[Rank]) -> list[BenchJob]:
    """The jobs for a measurement. Raises PlanError if there is nothing to measure."""
    benchmarks, jobs = PROGRAMS[options.program]
    if not ranks:
        raise PlanError("no rank to measure: every node is drained, or there is none")
    if not set(benchmarks).intersection(options.benchmarks):
        raise PlanError(
            message(
                "bench.benchmarks",
                "mpi_bench_benchmarks: {program} measures none of them: choose from {benchmarks}",
                program=options.program,
                benchmarks=", ".join(benchmarks),
            )
        )
    return list(jobs(options, ranks))


def expect(sweep: Sweep, options: BenchOptions, ranks: Sequence[Rank]) -> None:
    rates: dict[str, float] = {}
    for rank in ranks:
        rates[rank.node] = rates.get(rank.node, 0.0) + rank.rate_gbytes_s
    rate, share = 0.0, None
    if sweep.benchmark in PAIRWISE:
        (pair,) = pairs_of(ranks, [sweep.where])
        rate = pair.rate_gbytes_s * (2 if sweep.benchmark == "bibw" else 1)
        share = options.min_share
        if sweep.benchmark == "latency":
            share, sweep.threshold = None, options.max_latency_us if rate else None
    elif sweep.benchmark == "allreduce":
        rate = min(rates.values()) if len(rates) > 1 else 0.0
        share = options.min_nccl_share if options.program == "nccl" else None
        sweep.threshold = None if options.program == "nccl" else options.min_busbw_gbytes_s
    elif len(rates) > 1:
        rate = min(rank.rate_gbytes_s for rank in ranks)
        if sweep.benchmark == "alltoall":
            # Messages inside a node do not use a rail.
            inside = max(Counter(rank.node for rank in ranks).values())
            rate *= (len(ranks) - 1) / (len(ranks) - inside)
    sweep.line_rate_gbytes_s = rate or None
    if share and rate:
        sweep.threshold = share * rate


def evaluate(sweep: Sweep, virtual: bool) -> Check:
    latency = sweep.benchmark == "latency"
    subject, unit = f"{sweep.benchmark} {sweep.where}", "us" if latency else "GB/s"
    best, threshold = sweep.best, sweep.threshold
    if best is None:
        reason = "the program printed no figure: see output.log of the job"
        return Check("sweep", "measured", None, FAILED, subject, reason)
    figure = f"{best:.4g} {unit}"
    if virtual or threshold is None:
        reason = "virtual nodes: line rate is nominal" if virtual else "no threshold set"
        return Check("sweep", "measured", figure, NOT_APPLICABLE, subject, reason)
    limit = f"at {'most' if latency else 'least'} {threshold:.4g} {unit}"
    if best <= threshold if latency else best >= threshold:
        return Check("sweep", limit, figure, OK, subject)
    reason = "check the rails of these ranks (--tags verbs), their cores, and other jobs"
    return Check("sweep", limit, figure, FAILED, subject, reason)
