#!/usr/bin/env python3
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Count how often playbooks/acceptance.yml names a fault of inventories/virtual-acceptance.

    ./test --bench acceptance [ROUNDS] [--seed N] [--under-load N] [--only KIND...]

A round has each kind of fault once, at a part that the seed chooses, and two runs without a fault.
In the last N rounds (2 unless --under-load says otherwise), processes that use every CPU of this
machine run next to the faults. Each run is a line of JSON in build/bench/acceptance.jsonl: with its
wanted and named parts, seconds and probes; runs of that file count, too, with --continue.
Virtual nodes that run are used, and stay; otherwise they are created, and removed afterwards.
Exits with 1 if a part was missed, or another one named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.impair import Bed, End  # noqa: E402
from tests.nodes import Nodes  # noqa: E402

INVENTORY = ROOT / "inventories/virtual-acceptance"
RESULTS = ROOT / "build/bench/acceptance.jsonl"
SLOW_CPUS = 0.08
"""Of a slow node. With more, it reaches the rate of the ports."""
PROBE = re.compile(r"^acceptance: search \d+: ", re.MULTILINE)
NAMING = "acceptance_part", "acceptance_cable"
HEALTHY = "healthy"
BURN = "while True: pass"
T = TypeVar("T")


class Fault(NamedTuple):
    subject: str
    """Of the check that must fail; empty for none."""
    inject: Callable[[], AbstractContextManager[None]]


def name_of(cable: tuple[End, End]) -> str:
    lower, upper = cable
    return f"{lower.host} {lower.port} - {upper.host} {upper.port}"


class Faults:
    """One of each kind. Each part has its turn, in an order of the seed."""

    def __init__(self, bed: Bed, seed: str, turn: int) -> None:
        self._bed, self._seed, self._turn = bed, seed, turn

    def choose(self, parts: Sequence[T]) -> T:
        order = random.Random(self._seed).sample(parts, len(parts))
        return order[self._turn % len(order)]

    def cable(self) -> tuple[End, End]:
        return self.choose(self._bed.cables())

    def node(self) -> str:
        return self.choose(self._bed.nodes.group("compute"))

    def slow_cable(self) -> Fault:
        cable = self.cable()
        return Fault(name_of(cable), lambda: self._bed.slow(*cable))

    def lossy_cable(self) -> Fault:
        cable = self.cable()
        return Fault(name_of(cable), lambda: self._bed.lossy(*cable))

    def removed_cable(self) -> Fault:
        cable = self.cable()
        end = cable[self._turn % 2]
        return Fault(name_of(cable), lambda: self._bed.removed(end))

    def slow_rail(self) -> Fault:
        node, rail = self.choose(
            [
                (node, rail["interface"])
                for node in self._bed.nodes.group("compute")
                for rail in self._bed.nodes.of(node)["cluster_rails"]
            ]
        )
        return Fault(f"{node} {rail}", lambda: self._bed.slow(*self._bed.rail(node, rail)))

    def slow_node(self) -> Fault:
        node = self.node()
        return Fault(node, lambda: self._bed.busy(node, cpus=SLOW_CPUS))

    def healthy(self) -> Fault:
        return Fault("", contextlib.nullcontext)


KINDS: dict[str, Callable[[Faults], Fault]] = {
    HEALTHY: Faults.healthy,
    "slow cable": Faults.slow_cable,
    "lossy cable": Faults.lossy_cable,
    "slow rail": Faults.slow_rail,
    "slow node": Faults.slow_node,
    "removed cable": Faults.removed_cable,
}
ROUND = [*KINDS, HEALTHY]


@contextlib.contextmanager
def busy(load: bool) -> Iterator[None]:
    """One process for each CPU, as nice as others."""
    count = os.cpu_count() or 1 if load else 0
    hogs = [subprocess.Popen([sys.executable, "-c", BURN]) for _each in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def result_of(wanted: str, named: set[str]) -> str:
    """A cable is named in one direction or both."""
    plain = {re.sub(r" \((?:up|down)\)$", "", subject) for subject in named}
    if plain - {wanted}:
        return "other"
    return "right" if plain == {wanted} - {""} else "missed"


def measure(bed: Bed, kind: str, fault: Fault, load: bool) -> dict[str, Any]:
    with fault.inject(), busy(load):
        done = bed.nodes.play(
            "playbooks/acceptance.yml", "--extra-vars=acceptance_resume=never", expect=None
        )
    known = "acceptance" in done.report.get("layers", {})
    failed = done.failed("acceptance") if known else []
    # Pairs that a fault leaves without a figure are no parts.
    named = {each["subject"] for each in failed if each["name"] in NAMING or kind == HEALTHY}
    result = result_of(fault.subject, named)
    if not known or done.rc != (2 if failed else 0):
        result = "stopped"
    return {
        "kind": kind,
        "load": load,
        "wanted": fault.subject,
        "named": sorted(named),
        "result": result,
        "seconds": round(done.seconds, 1),
        "load_average": round(os.getloadavg()[1], 1),
        "probes": len(PROBE.findall(done.output)),
        **({} if result == "right" else {"output": done.output[-20_000:]}),
    }


def table(results: list[dict[str, Any]]) -> Iterator[str]:
    heads = "".join(f"{result:>8}" for result in RESULT)
    yield f"{'kind':26}{'runs':>5}{heads}{'median s':>10}"
    groups: dict[str, list[dict[str, Any]]] = {}
    for each in results:
        name = f"{each['kind']}{', under load' if each['load'] else ''}"
        groups.setdefault(name, []).append(each)
    for name, own in groups.items():
        counts = (sum(each["result"] == result for each in own) for result in RESULT)
        cells = "".join(f"{count:8}" for count in counts)
        yield f"{name:26}{len(own):5}{cells}{median(each['seconds'] for each in own):10.0f}"


RESULT = "right", "missed", "other", "stopped"


def commit() -> str:
    argv = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    return subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()


def run(bed: Bed, arguments: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    kinds = [kind for kind in ROUND if not arguments.only or kind in arguments.only]
    of, done = commit(), len(results)
    turns = [(turn, place) for turn in range(arguments.rounds) for place in range(len(kinds))]
    for turn, place in turns[done:]:
        kind = kinds[place]
        load = kind != HEALTHY and turn >= arguments.rounds - arguments.under_load
        found = measure(bed, kind, KINDS[kind](Faults(bed, f"{arguments.seed} {kind}", turn)), load)
        made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        results.append({"made": made, "commit": of, "round": turn, **found})
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write(json.dumps(results[-1]) + "\n")
        named = ", ".join(found["named"]) or "none"
        under = ", under load" if load else ""
        print(
            f"{found['result']}: {kind}{under}: {found['wanted'] or 'none'}: named {named};"
            f" {found['seconds']:.0f} s, {found['probes']} probes",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--under-load", type=int, default=2, help="last rounds with busy CPUs")
    parser.add_argument("--only", nargs="+", choices=KINDS, help="kinds of a round")
    parser.add_argument("--continue", dest="go_on", action="store_true")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # a fault is undone also in the background
        signal.signal(number, lambda *_given: sys.exit(1))
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.go_on:
        RESULTS.unlink(missing_ok=True)
    RESULTS.touch()
    results = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    nodes = Nodes(INVENTORY)
    running = nodes.ssh_config.exists()
    try:
        if not running:
            nodes.state(present=True)
            nodes.play("site.yml")
        bed = Bed(nodes)
        with bed.preferred():
            run(bed, arguments, results)
    finally:
        if not running:
            nodes.state(present=False)
        print(*table(results), sep="\n")
    return int(any(each["result"] != "right" for each in results))


if __name__ == "__main__":
    sys.exit(main())
