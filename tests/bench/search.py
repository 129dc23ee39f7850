#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Search a simulated cluster of 1,000 nodes with 12 faults, and without any, for many seeds.

    ./test --bench search [SEEDS] [NOISE...]

Faults are at other places with each seed (20 unless SEEDS says otherwise). A run in which a fault
is missed, or something else named, is printed. Then, by model: share of the directions of cables
that rounds of an hour of acceptance test, with their seconds. Exits with 1 if a seed failed at the
measured noise, or an analysis took over 60 s of CPU time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "collections")]

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance import (  # noqa: E402
    plan,
    rounds,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (  # noqa: E402
    NOT_REPRODUCED,
    Topology,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.pairs import (  # noqa: E402
    Way,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.search import (  # noqa: E402
    Search,
)
from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.model import (  # noqa: E402
    inventory_of,
)

from tests.unit.acceptance_fabric import (  # noqa: E402
    PAIRS,
    QUIET,
    REPEATED,
    Fabric,
    bursts,
    fabric,
    planted,
    uniform,
)
from tests.unit.test_examples import example  # noqa: E402

TOPOLOGY = fabric(25, 40, rails=8, spines=32)
MEASURED = "measured"
NOISE: dict[str, dict[str, Any]] = {
    "guess": {"noise": QUIET},
    MEASURED: {"noise": REPEATED, "pairs": PAIRS},
    "bursts": {"noise": bursts(REPEATED, 0.05, 0.25), "pairs": PAIRS},
    "uniform": {"noise": uniform(0.25)},
}
"""`bursts`: 5 % of measurements are up to 25 % too low or too high; `uniform`: all of them."""
MODELS = (
    "superpod-b300-1su",
    "superpod-b300-4su",
    "superpod-b300-16su",
    "superpod-b300-twin-4su",
    "unequal-pods",
    "rack-switches",
)
LIMIT_S = 60.0


class Job(NamedTuple):
    noise: str
    faults: int
    seed: int


class Outcome(NamedTuple):
    missed: set[tuple[str, str]]
    others: set[tuple[str, str]]
    probes: int
    seconds: float


def searched(job: Job) -> Outcome:
    slow, wanted = planted(TOPOLOGY, job.seed) if job.faults else ({}, {(NOT_REPRODUCED, "")})
    bed = Fabric(TOPOLOGY, slow, both=True, seed=job.seed, **NOISE[job.noise])
    known = bed.run(rounds.probes(TOPOLOGY, 10))
    begin = time.process_time()
    search = Search(TOPOLOGY, 1000, known)
    seconds = time.process_time() - begin
    while probes := search.next():
        figures = bed.run(probes)
        begin = time.process_time()
        search.take(figures)
        seconds += time.process_time() - begin
    found = {(verdict.kind, verdict.subject) for verdict in search.verdicts()}
    return Outcome(wanted - found, found - wanted, search.runs, seconds)


def coverage() -> Iterator[str]:
    for name in MODELS:
        inventory = inventory_of(example(name))
        topology = Topology.of({host.name: inventory.merged(host) for host in inventory.hosts})
        made = plan.made(topology, Way(), budget_s=3600)
        cables = made.cables()
        yield (
            f"{name}: {len(topology.nodes)} nodes, {max(map(len, made.probes.values()))} rounds on "
            f"{len(made.probes)} rails, {cables.expected / cables.directions:.2%} of "
            f"{cables.directions} cable directions, {made.seconds:.0f} s, "
            f"{made.searches} probes of a search"
        )


def main(seeds: int, names: list[str]) -> int:
    failed = False
    for noise in names or NOISE:
        for faults in (12, 0):
            jobs = [Job(noise, faults, seed) for seed in range(seeds)]
            with ProcessPoolExecutor() as pool:
                outcomes = list(pool.map(searched, jobs))
            wrong = [one for one in outcomes if one.missed or one.others]
            for job, one in zip(jobs, outcomes):
                if one in wrong:
                    print(f"  {job}: missed {sorted(one.missed)}, named {sorted(one.others)}")
            seconds = max(one.seconds for one in outcomes)
            print(
                f"{noise}, {faults} faults: {seeds - len(wrong)} of {seeds} seeds;"
                f" {sum(len(one.missed) for one in outcomes)} missed,"
                f" {sum(len(one.others) for one in outcomes)} false;"
                f" at most {max(one.probes for one in outcomes)} probes, {seconds:.1f} s",
                flush=True,
            )
            failed |= seconds > LIMIT_S or (noise == MEASURED and bool(wrong))
    for line in coverage():
        print(line, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20, sys.argv[2:]))
