# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The plan of an acceptance: measurements that fit into the time budget, and those that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...module_utils.core.messages import message
from ...module_utils.core.part import PlanError
from ...module_utils.core.text import counted, nearest, some
from ..answers import mapping, sentence, sequence
from . import rounds
from .coverage import Coverage, Fabric
from .figures import Probe, Topology
from .pairs import LAUNCH_S, Way

SEARCH_SHARE = 0.25
"""Share of the budget that is reserved for the search."""
SWEEP_S = 120.0
"""Seconds of one program's allreduce and alltoall: a guess, for the plan only."""
MAX_FIGURES = 200_000
"""Figures that are kept: 24 rounds of 1,024 nodes with 8 rails, and all rounds of 150 nodes."""
MAX_LISTED = 8
NOT_CHOSEN = "left out by acceptance_rails"
SILENT, LIMITED, DRAINED = "did not respond", "left out by --limit", "drained"
NO_TIME = "the time budget was used up"
NOT_BURNED = "acceptance_burn is false, or the load could not run"
NOT_ASKED = "only measured on request ({})"
NO_SWEEP = "acceptance_sweeps has no program for these nodes"
NO_STORAGE = "shared_storage_use is false, or the host failed before it wrote or read"
NO_PATH = "the model has no path to another rail of this run"
NO_INCAST = "no incast of rdma_verify_incast ran"
BURN, STORAGE = "GPUs under load", "shared storage"
INCASTS: Mapping[str, str] = {f"congestion ({place})": place for place in ("leaf", "spine")}
"""What later plays measure."""
"""Reasons for which something is not measured."""


LIMITS: Mapping[str, tuple[float, float]] = {
    "budget_s": (1, 604_800),
    "rounds": (0, 100_000),
    "round_s": (0.1, 60),
    "message_bytes": (64, 1 << 30),
    "queue_pairs": (1, 64),
    "min_share": (0, 1),
    "max_latency_us": (0, 1e6),
    "sweep_limit_s": (1, 86_400),
}
"""Least and largest values of options."""


def check_options(given: Mapping[str, Any]) -> None:
    """Raises PlanError for a number outside its limits, also for NaN."""
    for name, (least, most) in LIMITS.items():
        value = given.get(name)
        if value is not None and not least <= value <= most:
            raise PlanError(
                message(
                    "acceptance.option",
                    "acceptance_{name} is {value:g}: give {least:g} to {most:g}",
                    name=name,
                    value=value,
                    least=least,
                    most=most,
                )
            )


@dataclass(frozen=True)
class Missing:
    """Something that was not measured."""

    what: str
    why: str
    partial: bool = False
    """Some pairs, while every node and rail is in others, or something that is only measured on
    request: the certificate is complete."""

    def as_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"what": self.what, "why": self.why}
        return {**found, "partial": True} if self.partial else found


@dataclass
class Plan:
    topology: Topology
    """Of the nodes of this run."""
    way: Way
    budget_s: float
    probes: dict[str, list[Probe]] = field(default_factory=dict)
    """Rounds by rail."""
    sweeps: tuple[str, ...] = ()
    later: dict[str, float] = field(default_factory=dict)
    """Estimated seconds of what later plays measure (BURN, STORAGE, INCASTS)."""
    late: dict[str, float] = field(default_factory=dict)
    """The same of what does not fit into the budget."""
    missing: list[Missing] = field(default_factory=list)

    def seconds_of(self, rail: str) -> float:
        probes = self.probes[rail]
        jobs = len({probe.far_rail for probe in probes})
        return LAUNCH_S * jobs + len(probes) * self.way.round_s

    @property
    def seconds(self) -> float:
        """Estimated, without the search."""
        measured_s = sum(map(self.seconds_of, self.probes)) + SWEEP_S * len(self.sweeps)
        return measured_s + self.later_s

    @property
    def later_s(self) -> float:
        return sum(self.later.values())

    def allowed(self, left_s: float, begun: str = "") -> list[str]:
        """What later plays measure in the seconds that are left: the shortest first, and what an
        interrupted run had begun."""
        chosen = []
        needs = {**self.later, **self.late}
        for what, needed_s in sorted(needs.items(), key=lambda each: each[1]):
            if needed_s <= left_s or what == begun:
                left_s -= needed_s
                chosen.append(what)
        return chosen

    @property
    def search_s(self) -> float:
        return max(0.0, self.budget_s - self.seconds)

    @property
    def searches(self) -> int:
        """Probes of the search, if a job takes as long to start as estimated."""
        return int(self.search_s / (LAUNCH_S + self.way.round_s))

    @property
    def pairs(self) -> int:
        """Distinct pairs of nodes, over all rails, without those of different rails."""
        found = {
            (rail, frozenset(pair))
            for rail, probes in self.probes.items()
            for probe in probes
            for pair in probe.pairs
            if not probe.second_rail
        }
        return len(found)

    @property
    def possible(self) -> int:
        counts = (len(self.topology.on(rail)) for rail in self.probes)
        return sum(count * (count - 1) // 2 for count in counts)

    def cables(self) -> Coverage:
        """Expected share of the directions of cables between switches that carry a test."""
        leaves = Counter(
            (self.topology.leaf(first, probe.rail), self.topology.leaf(second, probe.far_rail))
            for probes in self.probes.values()
            for probe in probes
            for pair in probe.pairs
            for first, second in ([pair, pair[::-1]] if self.way.both else [pair])
        )
        fabric = Fabric.of((cable.lower, cable.upper) for cable in self.topology.cables)
        queue_pairs = self.way.queue_pairs if self.way.transport == "rc" else 1
        return fabric.coverage(leaves, queue_pairs)

    @property
    def cross_rail(self) -> dict[str, int]:
        """Pairs of different rails, by both."""
        return {
            f"{probe.rail} - {probe.second_rail}": len(probe.pairs)
            for probes in self.probes.values()
            for probe in probes
            if probe.second_rail
        }

    def coverage(self) -> dict[str, Any]:
        cables = self.cables()
        return {
            "nodes": list(self.topology.nodes),
            "rails": list(self.probes),
            "rounds": {rail: len(self._rounds(rail)) for rail in self.probes},
            "pairs": self.pairs,
            "possible_pairs": self.possible,
            "cross_rail_pairs": self.cross_rail,
            "cable_directions": cables.directions,
            "cable_directions_expected": round(cables.expected, 1),
        }

    def _rounds(self, rail: str) -> list[Probe]:
        return [probe for probe in self.probes[rail] if not probe.second_rail]

    def lines(self) -> list[str]:
        nodes, rounds_each = (
            len(self.topology.nodes),
            max(len(self._rounds(r)) for r in self.probes),
        )
        cables, crossed = self.cables(), list(self.cross_rail)
        share = 100 * self.pairs / self.possible
        return [
            f"acceptance: {counted(nodes, 'node')}, {counted(len(self.probes), 'rail')}:"
            f" {rounds_each} rounds per rail, {self.pairs} of {self.possible} pairs"
            f" ({share:.0f} %)",
            *([f"acceptance: {cables.sentence()}"] if cables.directions else []),
            *([f"acceptance: 1 round between rails: {some(crossed, 4)}"] if crossed else []),
            *(f"acceptance: {what}: about {duration(s)}" for what, s in self.later.items()),
            *(
                f"acceptance: not measured: {what}: about {duration(s)} more are needed: raise"
                " acceptance_budget_s, or Ansible's forks"
                for what, s in self.late.items()
            ),
            f"acceptance: about {duration(self.seconds)} of the budget of"
            f" {duration(self.budget_s)} (acceptance_budget_s)",
            f"acceptance: a search for a slow part has at most {duration(self.search_s)}, about"
            f" {counted(self.searches, 'probe')}",
            *(f"acceptance: not measured: {each.what}: {each.why}" for each in self.missing),
        ]


def made(
    topology: Topology,
    way: Way,
    *,
    budget_s: float,
    only: Sequence[str] = (),
    count: int = 0,
    sweeps: Sequence[str] = (),
    cross_rail: bool = False,
    later: Mapping[str, float] = MappingProxyType({}),
) -> Plan:
    """`later`: estimated seconds of what later plays measure, the most important first.

    Raises PlanError if there is nothing to measure, or no time for it."""
    unknown = [rail for rail in only if rail not in topology.rails]
    if unknown:
        raise PlanError(f"acceptance_rails: {unknown[0]!r}: {nearest(unknown[0], topology.rails)}")
    rails = [rail for rail in topology.rails if not only or rail in only]
    pairable = [rail for rail in rails if len(topology.on(rail)) > 1]
    if not pairable:
        raise PlanError(
            message(
                "acceptance.no_pair",
                "no rail has two nodes in this run: nodes are {nodes}. Check --limit, and nodes"
                " that are drained or did not respond",
                nodes=some(topology.nodes, MAX_LISTED),
            )
        )
    plan = Plan(topology, way, budget_s, sweeps=tuple(sweeps))
    plan.missing += [
        Missing(rail, "only one node of this run has it") for rail in rails if rail not in pairable
    ]
    plan.missing += [Missing(rail, NOT_CHOSEN) for rail in topology.rails if rail not in rails]
    if not sweeps:
        plan.missing.append(Missing("allreduce and alltoall", NO_SWEEP))
    crossing = cross_rail and len(pairable) > 1
    of_rail_s = LAUNCH_S + crossing * (LAUNCH_S + way.round_s)
    room = budget_s * (1 - SEARCH_SHARE) - SWEEP_S * len(sweeps)
    for what, needed_s in later.items():
        if needed_s <= room - (of_rail_s + way.round_s) * len(pairable):
            room, plan.later[what] = room - needed_s, needed_s
        else:
            plan.late[what] = needed_s
    fits = int((room / len(pairable) - of_rail_s) / way.round_s)
    if fits < 1:
        least = (of_rail_s + way.round_s) * len(pairable) + SWEEP_S * len(sweeps)
        raise PlanError(
            message(
                "acceptance.budget",
                "acceptance_budget_s is {budget:g}: one round on {rails} and the sweeps need about"
                " {least:.0f} s with the reserve for the search. Raise it, or choose fewer"
                " acceptance_rails or acceptance_sweeps",
                budget=budget_s,
                rails=counted(len(pairable), "rail"),
                least=least / (1 - SEARCH_SHARE) + 1,
            )
        )
    of_round = sum(len(topology.on(rail)) // 2 * (1 + way.both) for rail in pairable)
    kept = max(1, MAX_FIGURES // of_round)
    wanted = min(count or fits, fits, kept)
    limit = f"the {MAX_FIGURES} figures that are kept" if kept < fits else "the budget"
    if count > wanted:
        why = f"{wanted} of acceptance_rounds {count} fit into {limit}"
        plan.missing.append(Missing("rounds", why, partial=True))
    for probe in rounds.probes(topology, wanted, cross_rail=crossing, among=pairable):
        if probe.rail in pairable:
            plan.probes.setdefault(probe.rail, []).append(probe)
    crossed = {probe.rail for own in plan.probes.values() for probe in own if probe.second_rail}
    single = [rail for rail in pairable if crossing and rail not in crossed]
    if single:
        what = f"pairs of {some(single, MAX_LISTED)} with other rails"
        plan.missing.append(Missing(what, NO_PATH, partial=True))
    if len(pairable) > 1 and not cross_rail:
        why = NOT_ASKED.format("acceptance_cross_rail")
        plan.missing.append(Missing("pairs of different rails", why, partial=True))
    if plan.pairs < plan.possible and not count > wanted:
        why = f"{wanted} rounds per rail fit into {limit}" if not count else "acceptance_rounds"
        what = f"{plan.possible - plan.pairs} pairs of nodes"
        plan.missing.append(Missing(what, why, partial=True))
    return plan


def duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{round(whole / 60)} min"


def occupied(looked: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Why nodes are not free for a run: a line for each node with a job, or that cannot tell."""
    found = []
    for node, result in looked.items():
        given = mapping(result.get("found"))
        reasons = [
            f"{sentence(process.get('command'), 80)} (pid {sentence(str(process.get('pid')), 12)},"
            f" user {sentence(process.get('user'), 40)})"
            for process in map(mapping, sequence(given.get("processes")))
        ]
        slurm = mapping(given.get("slurm"))
        if slurm.get("busy"):
            reasons.append(f"{sentence(slurm.get('state'), 40)} in Slurm")
        reasons += [
            f"GPU process {sentence(line)}" for line in sequence(given.get("gpu_processes"))
        ]
        reasons += [sentence(line) for line in sequence(given.get("problems"))]
        if reasons:
            found.append(f"{node}: {some(reasons, MAX_LISTED)}")
    return found
