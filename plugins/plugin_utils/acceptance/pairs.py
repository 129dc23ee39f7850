# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Probes as jobs of the program roles/mpi_stack/files/pairs.py, and the figures that it prints.

The nodes of a job are in the order of ranks. One job measures any number of probes with the same
rails, one after another; a node of it uses one rail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ...module_utils.mpi.environment import PROGRAM_DIRECTORY
from ..answers import sentence
from ..mpi.bench import TAG
from .figures import Figure, Probe

PROGRAM = f"{PROGRAM_DIRECTORY}/pairs.py"
LINE = re.compile(
    r"pairs-figure (\d{1,6}) (\d{1,6}) (\d{1,6}) (-|\d[\d.e+-]{0,15}) (-|\d[\d.e+-]{0,15})"
    r"(?: ([ -~]{1,200}))?",
    re.ASCII,
)
RANK = re.compile(r"\[\d+,(\d+)\]<std(?:out|err)>|\[(\d+)\] ?", re.ASCII)
"""The rank that printed a line, in the prefix of mpirun."""
MAX_GBITS_S, MAX_LATENCY_US = 1e5, 1e9
LEAST = 1e-6
"""Of both; a round ends before a message at a lower rate."""
LAUNCH_S = 20.0
"""Seconds for the start and the end of a job: a guess, replaced by the first job's."""
MARGIN_S = 30.0
"""Seconds after its last round at which a job is stopped."""
NO_FIGURE = "the job stopped before this pair was measured"
MAX_PROBES = 4000
"""Maximum number of rounds of a job, whose tags must differ."""

Key = tuple[int, str, str]
"""Number of the probe, sender and receiver."""


@dataclass(frozen=True)
class Way:
    """How the pairs of a run are measured."""

    transport: str = "rc"
    python: str = "/usr/bin/python3"
    round_s: float = 1.0
    message_bytes: int = 1 << 20
    both: bool = True
    """Also from the second node to the first."""
    queue_pairs: int = 4
    """Of a pair of nodes, with RDMA. With TCP it has one connection."""


@dataclass
class Batch:
    """Probes of one job, with their numbers among those of the caller."""

    rail: str
    second_rail: str
    queue_pairs: int
    """0 for the default."""
    probes: list[tuple[int, Probe]] = field(default_factory=list)
    known: set[frozenset[str]] = field(default_factory=set)
    """Its pairs: switches hash the queue pairs of a job to the same paths in each round."""
    near: set[str] = field(default_factory=set)
    far: set[str] = field(default_factory=set)

    def fits(self, probe: Probe) -> bool:
        if len(self.probes) >= MAX_PROBES or not self.known.isdisjoint(map(frozenset, probe.pairs)):
            return False
        first = {pair[0] for pair in probe.pairs}
        second = {pair[1] for pair in probe.pairs}
        return not self.second_rail or not (first & self.far or second & self.near)

    def add(self, number: int, probe: Probe) -> None:
        self.probes.append((number, probe))
        self.known.update(map(frozenset, probe.pairs))
        self.near.update(pair[0] for pair in probe.pairs)
        self.far.update(pair[1] for pair in probe.pairs)

    @property
    def kind(self) -> tuple[str, str, int]:
        return self.rail, self.second_rail, self.queue_pairs

    @property
    def nodes(self) -> set[str]:
        return self.near | self.far

    def keys(self, both: bool) -> list[Key]:
        """Every figure that the job should print."""
        found: list[Key] = []
        for number, probe in self.probes:
            for first, second in probe.pairs:
                found.append((number, first, second))
                if both:
                    found.append((number, second, first))
        return found

    def seconds(self, way: Way) -> float:
        return len(self.probes) * way.round_s

    def without(self, measured: Iterable[Key], excluded: Iterable[str]) -> Batch:
        """The rounds that have a pair left."""
        known, gone = set(measured), set(excluded)
        rest = Batch(*self.kind)
        for number, probe in self.probes:
            pairs = tuple(
                pair
                for pair in probe.pairs
                if (number, *pair) not in known and not gone.intersection(pair)
            )
            if pairs:
                rest.add(number, replace(probe, pairs=pairs))
        return rest

    def figure(self, key: Key, **values: Any) -> Figure:
        _number_of, first, second = key
        forward = first in self.near or not self.second_rail
        near, far = self.rail, self.second_rail or self.rail
        rail, other = (near, far) if forward else (far, near)
        return Figure(
            rail, first, second, **{"gbits_s": None, **values}, second_rail=_other(other, rail)
        )


def _other(rail: str, than: str) -> str:
    return rail if rail != than else ""


def batches(probes: Sequence[Probe]) -> list[Batch]:
    """As few jobs as possible, in the order of the probes."""
    found: list[Batch] = []
    for number, probe in enumerate(probes):
        kind = probe.rail, _other(probe.second_rail, probe.rail), probe.queue_pairs
        fitting = (each for each in found if each.kind == kind and each.fits(probe))
        batch = next(fitting, None)
        if batch is None:
            batch = Batch(*kind)
            found.append(batch)
        batch.add(number, probe)
    return found


def job_of(
    batch: Batch, order: Sequence[str], directory: Sequence[Mapping[str, Any]], way: Way
) -> dict[str, Any]:
    """Arguments of mpi_job. `order` are the nodes of the cluster in the order of ranks. Of the
    rails, a node only needs to be ready on the one that it uses."""
    names = [name for name in order if name in batch.nodes]
    places = {name: number for number, name in enumerate(names)}
    rounds = [
        ",".join(f"{places[first]}-{places[second]}" for first, second in probe.pairs)
        for _number, probe in batch.probes
    ]
    argv = [way.python, PROGRAM, *rounds, "--rail", batch.rail, "--nodes", ",".join(names)]
    argv += ["--second-rail", batch.second_rail] if batch.second_rail else []
    argv += ["--bytes", str(way.message_bytes), "--round-s", f"{way.round_s:g}"]
    argv += ["--both"] if way.both else []
    argv += ["--queue-pairs", str(batch.queue_pairs or way.queue_pairs)]
    used = {batch.rail, batch.second_rail}
    nodes = [
        {**node, "rails": [rail for rail in node["rails"] if rail["interface"] in used]}
        for node in directory
    ]
    return {
        "nodes": nodes,
        "program": argv,
        "places": dict.fromkeys(names, 1),
        "mapping": "node",
        "storage": False,
        "time_limit_s": LAUNCH_S + batch.seconds(way) + MARGIN_S,
        "transport": way.transport,
    }


def parse(output: str, batch: Batch, order: Sequence[str], both: bool) -> dict[Key, Figure]:
    """The figures in the output of ranks. Lines of pairs that were not asked for, or that neither
    end of the pair printed, are left out. An error of either end replaces the figure."""
    names = [name for name in order if name in batch.nodes]
    wanted = set(batch.keys(both))
    found: dict[Key, Figure] = {}
    for line in output.splitlines():
        match = LINE.fullmatch(TAG.sub("", line.strip()))
        if match is None:
            continue
        number, sender, receiver = map(int, match.group(1, 2, 3))
        if max(sender, receiver) >= len(names) or number >= len(batch.probes):
            continue
        rank = RANK.match(line.strip())
        if rank and int(rank[1] or rank[2]) not in (sender, receiver):
            continue
        key = batch.probes[number][0], names[sender], names[receiver]
        if key not in wanted or (key in found and found[key].error):
            continue
        rate, latency = _number(match[4], MAX_GBITS_S), _number(match[5], MAX_LATENCY_US)
        error = sentence(match[6] or "") or ("" if rate else "no figure")
        found[key] = batch.figure(
            key, gbits_s=None if error else rate, latency_us=latency, error=error
        )
    return found


def _number(text: str, most: float) -> Optional[float]:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if LEAST <= value <= most else None
