# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Measures a cluster within a time budget, searches for its slow part, and writes the certificate.

Each measurement is a job of mpi_job, which stops with this run and refuses nodes where another job
or a GPU process runs. Results are saved after each step (plugin_utils/acceptance/state.py).
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from ansible import constants, context
from ansible.errors import AnsibleActionFail

from ..module_utils.core.checks import FAILED, Check, failures
from ..module_utils.core.part import PlanError
from ..module_utils.core.text import one_line, shortened, some
from ..module_utils.mpi.launch.launcher import of_provider
from ..modules.acceptance import ARGUMENTS
from ..modules.mpi_bench import ARGUMENTS as OF_BENCH
from ..plugin_utils import pages as of_reports
from ..plugin_utils.acceptance import (
    burn,
    certificate,
    conclusion,
    evaluation,
    pairs,
    plan,
    readings,
    state,
)
from ..plugin_utils.acceptance.figures import (
    ALIKE,
    UNFINISHED,
    Figure,
    Probe,
    Topology,
    Uplink,
    as_json,
    of_json,
)
from ..plugin_utils.acceptance.plan import Missing, duration
from ..plugin_utils.acceptance.search import Search
from ..plugin_utils.acceptance.state import (
    COUNTED,
    LAST,
    LAUNCH,
    LEFT_OUT,
    LOAD,
    LOST,
    MEASURED,
    PAIRS,
    READING,
    RUN,
    SEARCH,
    SUSPECT,
    SWEEPS,
    VERDICTS,
    VIRTUAL,
    figures_of,
)
from ..plugin_utils.answers import NAME, AnswerError, mapping, sentence, sequence
from ..plugin_utils.mpi.bench import TAG
from ..plugin_utils.rail_pairs import START_S
from ..plugin_utils.ssh.authority import passphrase_of
from ..plugin_utils.ssh.publishing import COMPUTE, LAUNCHER
from ..plugin_utils.ssh.signer import NoAuthorityError, Signer
from ..plugin_utils.ssh.signing import SigningError
from ..plugin_utils.terminal import display
from .mpi_bench import OF_JOB
from .mpi_bench import ActionModule as BenchAction

CERTIFICATES = "certificates"
"""A folder, since reports of the summary have similar names."""
LAYER = "acceptance"
MODULE = "baremetal.mpi_roce.acceptance"
OF_RUN = (
    "only",
    "rounds",
    "round_s",
    "message_bytes",
    "directions",
    "queue_pairs",
    "cross_rail",
    "transport",
    "sweeps",
)
"""Options for which a state is valid, with the model and the nodes."""
LAUNCHES = 4
"""Maximum number of jobs for the probes of one rail: nodes that end a job are left out of the
next."""
BY_MPIRUN = {"start_with": "mpirun", "slurm_options": []}
"""Under Slurm too: nodes are drained for an acceptance."""
OCCUPIED = ("another MPI job runs", "GPUs are in use")
"""Reasons of mpi_job that name somebody else's job."""
STORAGE_S, INCAST_S = 20.0, 30.0
"""Seconds of both rounds of one file system, and to start and end the programs of an incast: a
guess, for the plan only."""
MAX_REASON = 200
MAX_LISTED = 20


class ActionModule(BenchAction):
    LAYER = LAYER
    OUTPUT_BYTES = 16 << 20

    def act(self, task_vars: Any) -> dict[str, Any]:
        _spec, given = self.validate_argument_spec(argument_spec=ARGUMENTS)
        if given["step"] == "look":
            sent = {key: given[key] for key in ("step", "rails", "commands")}
            found: dict[str, Any] = self._execute_module(
                MODULE, module_args=sent, task_vars=task_vars
            )
            return found
        try:
            if given["step"] == "certify":
                return self.certified(given, task_vars)
            if given["step"] == "search":
                return self.searched(given, task_vars)
            if given["step"] == "load":
                return self.loads(given, task_vars)
            return self.measured_all(given, task_vars)
        except (AnswerError, PlanError, SigningError, state.StateError) as error:
            raise AnsibleActionFail(f"{LAYER}: {error}") from error

    def begin(self, given: dict[str, Any], task_vars: Any) -> None:
        """Plan for the nodes of this run that responded. Raises PlanError if one is in use."""
        self.given, self.task_vars = {**given, **BY_MPIRUN}, task_vars
        plan.check_options(given)
        hostvars = task_vars["hostvars"]
        nodes = [node for node in given["nodes"] if node["role"] == "compute"]
        active = [node["name"] for node in nodes if not node["drained"]]
        self.looked = {
            name: mapping(hostvars[name].get(given["looked"]))
            for name in active
            if name in task_vars["ansible_play_hosts_all"]
        }
        here = [name for name, result in self.looked.items() if result.get("found")]
        self.order = [node["name"] for node in nodes if node["name"] in here]
        taken = plan.occupied({name: self.looked[name] for name in here})
        if taken:
            listed = "\n  ".join(taken[:MAX_LISTED])
            raise PlanError(
                f"{len(taken)} nodes are not free; nothing was measured:\n  {listed}\n"
                "wait for the jobs, or leave these nodes out with --limit"
            )
        self.plan = self._planned(here)
        for name in active:
            if name not in here:
                why = plan.SILENT if name in self.looked else plan.LIMITED
                self.plan.missing.append(Missing(name, why))
        self.plan.missing += [
            Missing(node["name"], plan.DRAINED) for node in nodes if node["drained"]
        ]

    def measured_all(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Measure each part that was not measured yet."""
        self.begin(given, task_vars)
        for line in self.plan.lines():
            display.display(line)
        for check in self.routing.checks[:MAX_LISTED]:
            display.display(f"acceptance: {check.line()}")
        if not self._task.check_mode:
            with contextlib.suppress(NoAuthorityError):  # the certificate says so
                self._signer(given, task_vars).sign("")
            self._open(given["resume"] == "auto", tell=True)
            if READING not in self.state.steps:
                self.state.steps[READING] = readings.reading(self._counters(task_vars))[0]
            self._measure_pairs()
            self._sweep()
            finished = {
                "nodes": self.order,
                "missing": [each.as_dict() for each in self.plan.missing],
                "versions": certificate.versions(self.looked),
                "coverage": self.plan.coverage(),
                "model_digest": str(task_vars.get("cluster_digest")),
            }
            self.state.keep(MEASURED, finished, 0.0)
        return {"changed": False, "layer": LAYER, "checks": []}

    def _signer(self, given: Mapping[str, Any], task_vars: Any) -> Signer:
        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        names = [name for role in (COMPUTE, LAUNCHER) for name in groups.get(role, ())]
        return Signer(
            given["cluster"],
            Path(given["ssh_directory"]),
            passphrase_of(self._templar, task_vars),
            {name: hostvars.raw_get(name)["cluster_management"]["address"] for name in names},
            bool(task_vars.get("ssh_trust_signer")),
        )

    @staticmethod
    def _counters(task_vars: Any) -> dict[str, Any]:
        """What the switches of this run registered."""
        switches = [*task_vars["groups"].get("leaf", ()), *task_vars["groups"].get("spine", ())]
        hostvars = task_vars["hostvars"]
        return {switch: hostvars[switch].get(readings.VARIABLE) for switch in switches}

    def _planned(self, here: Sequence[str]) -> plan.Plan:
        given = self.given
        way = pairs.Way(
            transport=given["transport"],
            python=given["python"],
            round_s=given["round_s"],
            message_bytes=given["message_bytes"],
            both=given["directions"] == "both",
            queue_pairs=given["queue_pairs"],
        )
        return plan.made(
            self._linked(here, self.task_vars),
            way,
            budget_s=given["budget_s"],
            only=given["only"],
            count=given["rounds"],
            sweeps=self._sweeps,
            cross_rail=given["cross_rail"],
            later=self._later(here),
        )

    def _later(self, nodes: Sequence[str]) -> dict[str, float]:
        """Estimated seconds of what later plays measure."""
        given = mapping(self.given["later"])
        forks = context.CLIARGS.get("forks") or constants.DEFAULT_FORKS
        batches = math.ceil(len(nodes) / max(1, forks))
        found = {}
        for what, place in plan.INCASTS.items():
            if place in sequence(given.get("incasts")):
                found[what] = INCAST_S + batches * (float(given["incast_s"]) + START_S)
        turns = len(nodes) if given.get("storage_alone") else batches
        found[plan.STORAGE] = STORAGE_S * turns * int(given.get("filesystems") or 0)
        found[plan.BURN] = self._load_s(nodes)
        return {what: seconds for what, seconds in found.items() if seconds}

    def _loadable(self, nodes: Sequence[str]) -> list[str]:
        """Nodes with GPUs, if these are to be loaded."""
        own = [node["name"] for node in self.given["nodes"] if node["gpus"]]
        return [name for name in nodes if name in own] if self.given["burn"] else []

    def _load_s(self, nodes: Sequence[str]) -> float:
        """Estimated seconds of the load of GPUs. Nodes without a driver, such as virtual ones, say
        so immediately."""
        count = sum(
            bool(mapping(self.looked[name].get("found")).get("gpus", True))
            for name in self._loadable(nodes)
        )
        forks = context.CLIARGS.get("forks") or constants.DEFAULT_FORKS
        return burn.seconds(self.given["load"], count, forks) if count else 0.0

    def loads(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """What later plays measure: incasts, storage, and the nodes whose GPUs are loaded, those
        with a result of this run included, and until when."""
        result = {"changed": False, "layer": LAYER, "checks": [], "nodes": []}
        result.update(incasts=[], storage=False)
        if self._task.check_mode:
            return result
        self.begin(given, task_vars)
        self._open(True)
        left_s = float(given["budget_s"]) - self.state.elapsed_s
        needs = {**self.plan.later, **self.plan.late}
        begun = plan.BURN if self.state.of(LOAD).get("began") else ""
        allowed = self.plan.allowed(left_s, begun)
        late = [what for what in needs if what not in allowed]
        self.state.keep(LEFT_OUT, late, 0.0)
        for what in needs:
            told = f"not measured: {plan.NO_TIME}" if what in late else f"about {needs[what]:.0f} s"
            display.display(f"acceptance: {what}: {told}")
        incasts = [place for what, place in plan.INCASTS.items() if what in allowed]
        result.update(incasts=incasts, storage=plan.STORAGE in allowed)
        nodes = self._loadable(self.order)
        if not nodes or plan.BURN in late:
            return result
        self.state.keep(LOAD, {"began": time.time()}, 0.0)
        others_s = sum(needs[what] for what in allowed if what != plan.BURN)
        run = {
            "directory": given["report_directory"],
            "began": self.state.began,
            "until": time.time() + left_s - others_s,
            "looked": given["looked"],
        }
        return {**result, "nodes": nodes, "run": run}

    @staticmethod
    def _topology(nodes: Sequence[str], task_vars: Any) -> Topology:
        """Of these nodes, and all switches."""
        groups, hostvars = task_vars["groups"], task_vars["hostvars"]
        switches = [*groups.get("leaf", ()), *groups.get("spine", ())]
        return Topology.of({name: hostvars.raw_get(name) for name in [*nodes, *switches]})

    def _linked(self, nodes: Sequence[str], task_vars: Any) -> Topology:
        """The same without cables that are down."""
        topology = self._topology(nodes, task_vars)
        self.routing = readings.routing(task_vars["groups"], task_vars["hostvars"], topology)
        return topology.without(self.routing.down)

    def _open(self, resume: bool, tell: bool = False) -> None:
        if not self.given["report_directory"]:
            raise PlanError("acceptance_report_directory is empty: the state has no place")
        down = sorted(map(str, self.routing.down))
        options = {"nodes": self.order, "down": down}
        options.update({name: self.given[name] for name in OF_RUN})
        key = state.key_of(str(self.task_vars.get("cluster_digest")), options)
        directory, this = Path(self.given["report_directory"]), state.process(os.getppid())
        other = state.other_run(directory / state.NAME, this)
        if other:
            raise PlanError(
                f"{directory / state.NAME}: another acceptance of this cluster has not finished"
                f" (ansible-playbook, pid {other}): wait for it, or stop it"
            )
        self.state, why = state.opened(directory, key, resume=resume)
        if self.state.resumed and not self.state.readable(self.plan.topology):
            self.state, _never = state.opened(directory, key, resume=False)
            why = f"{self.state.path} is damaged"
        # Readings of counters between the steps count, too, and an interrupted load of GPUs.
        if self.state.steps.get(RUN, [[]])[0] != this:
            began = self.state.of(LOAD).get("began")
            if began:
                self.state.seconds += burn.Kept(directory).spent(began)
                self.state.steps[LOAD] = {"began": time.time()}
            self.state.steps[RUN] = [this, time.time(), self.state.seconds]
        if tell and self.state.resumed:
            done = some([step for step in self.state.steps if " " in step], MAX_LISTED)
            display.display(f"acceptance: resumed after: {done}")
        elif tell and why:
            display.display(f"acceptance: an earlier run is not resumed: {why}")
        self.state.save()

    @property
    def left_s(self) -> float:
        """Seconds left of the budget, without those for later plays."""
        return float(self.given["budget_s"]) - self.state.elapsed_s - self._reserved_s

    @property
    def _reserved_s(self) -> float:
        """Seconds of later plays; an interrupted load of GPUs began."""
        later = {**self.plan.later, **({plan.BURN: 0.0} if LOAD in self.state.steps else {})}
        return sum(later.values())

    def _measure_pairs(self) -> None:
        for rail, probes in self.plan.probes.items():
            step = f"{PAIRS}{rail}"
            if step in self.state.steps:
                continue
            if self.left_s < self.plan.seconds_of(rail):
                self.plan.missing.append(Missing(step, plan.NO_TIME))
                continue
            begin = time.monotonic()
            self._tell(f"{rail}: {len(probes)} rounds, about", self.plan.seconds_of(rail))
            figures = self.probed(probes)
            self.state.keep(step, [as_json(one) for one in figures], time.monotonic() - begin)

    def _tell(self, what: str, seconds: float) -> None:
        left = duration(max(0.0, self.left_s))
        display.display(f"acceptance: {what} {duration(seconds)}; {left} of the budget left")

    def probed(self, probes: Sequence[Probe]) -> list[Figure]:
        """Figures of every pair of the probes, in their order. Pairs that could not be measured
        have an error."""
        found: dict[pairs.Key, Figure] = {}
        for batch in pairs.batches(probes):
            found.update(self._of_batch(batch))
        return [found[key] for key in sorted(found, key=lambda key: key[0])]

    def _of_batch(self, batch: pairs.Batch) -> dict[pairs.Key, Figure]:
        way = self.plan.way
        wanted = batch.keys(way.both)
        found: dict[pairs.Key, Figure] = {}
        out: dict[str, str] = {}
        why = pairs.NO_FIGURE
        launch_s = float(self.state.steps.get(LAUNCH, pairs.LAUNCH_S))
        for launch in range(LAUNCHES):
            rest = batch.without(found, out)
            needed_s = launch_s + rest.seconds(way)
            if launch and self.left_s < needed_s:
                why = plan.NO_TIME
                break
            names = [name for name in self.order if name in rest.nodes]
            job = pairs.job_of(rest, self.order, self.given["nodes"], way)
            job["time_limit_s"] = min(job["time_limit_s"], max(needed_s, self.left_s))
            job["parameters"] = {**self._of_transport, **self.given["parameters"]}
            of_job = {name: self.given[name] for name in OF_JOB if name not in job}
            begin = time.monotonic()
            self._rounds, self._shown_round = len(rest.probes), 0
            outcome = self.job({**of_job, **job}, self.task_vars)
            if outcome.get("virtual"):
                self.state.steps[VIRTUAL] = True
            launch_s = max(1.0, time.monotonic() - begin - rest.seconds(way))
            self.state.steps[LAUNCH] = round(launch_s, 1)
            if outcome.get("directory"):
                output = self._output(str(outcome["directory"]))
                found.update(pairs.parse(output, rest, self.order, way.both))
            if not batch.without(found, out).probes:
                break
            ranks = [NAME.known(name) for name in sequence(outcome.get("nodes"))]
            problem = shortened(one_line(str(outcome.get("msg", ""))), MAX_REASON)
            if sorted(ranks) == sorted(names) and ranks != names:
                self.order = [*ranks, *(name for name in self.order if name not in ranks)]
                continue
            lost = self._lost(outcome, names)
            if not lost and not outcome.get("directory"):
                raise AnsibleActionFail(f"{LAYER}: {outcome.get('msg')}")
            if not lost:
                why = problem or why
                break
            for name, reason in lost.items():
                display.display(f"acceptance: {name} is left out of {batch.rail}: {reason}")
            out.update(lost)
            if not batch.without(found, out).probes:
                break
        for key in wanted:
            if key not in found:
                reasons = [f"{name}: {out[name]}" for name in key[1:] if name in out]
                found[key] = batch.figure(key, error="; ".join(reasons) or why)
        return found

    @property
    def _of_transport(self) -> dict[str, str]:
        """UCX over TCP does not bind to the rail's address: between leaf sets, the route of another
        rail may apply. The launcher's own TCP transport binds."""
        tcp = of_provider(self.given["provider"]).tcp
        return dict(tcp) if self.given["transport"] == "tcp" else {}

    def _lost(self, outcome: Mapping[str, Any], names: Sequence[str]) -> dict[str, str]:
        """Nodes that cannot take part, or whose process stopped the job, with the reason. Raises
        PlanError if one of them runs somebody else's job."""
        missing = {
            name: sentence(reason, MAX_REASON)
            for name, reason in mapping(outcome.get("missing")).items()
            if name in names
        }
        taken = [
            f"{name}: {why}" for name, why in missing.items() if any(x in why for x in OCCUPIED)
        ]
        if taken:
            raise PlanError(
                f"stopped: a job was started on {some(taken)}. Run the same command again later:"
                " it continues"
            )
        rank = outcome.get("failed_rank")
        if not missing and isinstance(rank, int) and 0 <= rank < len(names):
            lines = [sentence(line) for line in sequence(outcome.get("lines"))]
            own = [line for line in lines if "pairs:" in line] or lines
            return {names[rank]: f"its process failed: {own[-1] if own else 'no output'}"}
        return missing

    def searched(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Probe suspects until each is named or cleared, while the budget lasts, or until a reading
        of counters is needed. Probes that were measured before are not repeated: the search asks
        for the same ones."""
        self.begin(given, task_vars)
        self._open(True)
        result = {"changed": False, "layer": LAYER, "checks": [], "left": False}
        now, _reasons = readings.reading(self._counters(task_vars))
        if LOST not in self.state.steps and now and self._fresh(now):
            grown = readings.growths(self.state.of(READING), now)
            self.state.steps[LOST] = sorted(readings.lossy(self.plan.topology, grown))
        search = self._suspicion()
        if search is None:
            return result
        number = 0
        while probes := search.next():
            number += 1
            step, asked = f"{SEARCH}{number}", [repr(probe) for probe in probes]
            known = self.state.of(step)
            # Counters of another run also counted what happened in between.
            this = self.state.steps[RUN][0]
            if known.get("probes") == asked and known.get("run") in (None, this):
                search.take(self._of_probe(step, known, now))
                continue
            if self.left_s < self._probe_s * len(pairs.batches(probes)):
                search.expire()
                break
            counts = any(probe.counters for probe in probes) and bool(now)
            if counts and not self._fresh(now):
                return {**result, "left": True}
            begin = time.monotonic()
            rails = some([probe.rail for probe in probes], MAX_LISTED)
            self._tell(f"{step}: {rails},", self._probe_s)
            figures = self.probed(probes)
            rows = [as_json(one) for one in figures]
            found: dict[str, Any] = {"probes": asked, "figures": rows}
            if counts:
                found.update(before=now, run=this)
            self.state.keep(step, found, time.monotonic() - begin)
            if counts:
                return {**result, "left": True}
            search.take(figures)
        verdicts = search.verdicts()
        if not self.state.steps[SUSPECT]:
            # Without an outlier, pairs across spines may only have shared cables.
            verdicts = [each for each in verdicts if each.kind not in (UNFINISHED, ALIKE)]
        self.state.keep(VERDICTS, [vars(verdict) for verdict in verdicts], 0.0)
        return result

    @staticmethod
    def _least(given: Mapping[str, Any]) -> Optional[float]:
        """Expected share of the line rate, which TCP does not reach."""
        return given["min_share"] if given["transport"] == "rc" else None

    def _suspicion(self) -> Optional[Search]:
        """The search, if figures show a reason for one that has not finished."""
        if VERDICTS in self.state.steps:
            return None
        topology = self.plan.topology
        figures = figures_of(self.state, topology)
        virtual = VIRTUAL in self.state.steps
        least = None if virtual else self._least(self.given)
        evaluated = evaluation.evaluate(
            figures, topology, min_share=least, max_latency_us=None, virtual=virtual
        )
        self.state.steps[SUSPECT] = bool(failures(evaluated.checks))
        # Without a cable that is down, flows across spines share the others: no reason to search.
        lower = not self.routing.down and evaluation.lower_across(figures, topology)
        if not self.state.steps[SUSPECT] and not lower:
            return None
        most = max(1, int((self.left_s + self._searched_s) / self._probe_s))
        lossy = [Uplink(*each) for each in self.state.steps.get(LOST, ())]
        return Search(topology, most, figures, least or 0.0, self.plan.way.both, lossy)

    @property
    def _searched_s(self) -> float:
        """Estimated seconds of the probes that were measured before."""
        return self._probe_s * sum(step.startswith(SEARCH) for step in self.state.steps)

    @property
    def _probe_s(self) -> float:
        return float(self.state.steps.get(LAUNCH, pairs.LAUNCH_S)) + self.plan.way.round_s

    def _fresh(self, now: readings.Reading) -> bool:
        """Whether all readings are newer than the last job."""
        last = float(self.state.steps.get(LAST, 0.0))
        return all(float(each["read_s"]) > last for each in now.values())

    def _of_probe(
        self, step: str, known: dict[str, Any], now: readings.Reading
    ) -> Sequence[Figure]:
        """Figures that were measured before, with the counters of cables if they were also read
        afterwards."""
        topology = self.plan.topology
        figures = [of_json(row, topology) for row in known["figures"]]
        before = known.pop("before", None)
        if before:
            if self._fresh(now):
                figures = readings.counted(figures, topology, readings.growths(before, now))
            del known["run"]
            self.state.keep(step, {**known, "figures": [as_json(one) for one in figures]}, 0.0)
        return figures

    @property
    def _sweeps(self) -> list[str]:
        """Programs; NCCL's need GPUs."""
        gpus = any(node["gpus"] for node in self.given["nodes"] if node["name"] in self.order)
        return [program for program in self.given["sweeps"] if gpus or program != "nccl"]

    def job(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """A job on the nodes of this run."""
        if "places" not in given:
            nodes = self.given["nodes"]
            slots = {node["name"]: node["slots"] for node in nodes if node["name"] in self.order}
            given = {**given, "nodes": nodes, "places": slots}
        found = super().job(given, task_vars)
        self.state.steps[LAST] = time.time()
        self.state.steps.pop(COUNTED, None)
        return found

    def _sweep(self) -> None:
        """allreduce and alltoall over all ranks, by each program."""
        for program in self._sweeps:
            step = f"{SWEEPS}{program}"
            if step in self.state.steps:
                continue
            if self.left_s < plan.SWEEP_S:
                self.plan.missing.append(Missing(step, plan.NO_TIME))
                continue
            begin, self._rounds = time.monotonic(), 0
            self._tell(f"{step}: at most", min(self.left_s, self.given["sweep_limit_s"]))
            defaults = {name: mapping(of).get("default") for name, of in OF_BENCH.items()}
            asked = {
                **defaults,
                **{name: self.given[name] for name in OF_JOB if name != "time_limit_s"},
                "nodes": [node for node in self.given["nodes"] if node["name"] in self.order],
                "program": program,
                "benchmarks": ["allreduce", "alltoall"],
                "iterations": self.given["sweep_iterations"],
                "max_bytes": self.given["sweep_max_bytes"],
                "time_limit_s": min(self.left_s, self.given["sweep_limit_s"]),
                "python": self.given["python"],
            }
            try:
                found = self.measured(asked, self.task_vars)
            except (AnsibleActionFail, PlanError) as error:
                found = {"msg": str(error)}
            if "sweeps" in found:
                result = {"sweeps": found["sweeps"], "checks": found["checks"]}
            else:
                why = shortened(one_line(str(found.get("msg"))), MAX_REASON)
                display.display(f"acceptance: {step}: not measured: {why}")
                result = {"error": why}
            self.state.keep(step, result, time.monotonic() - begin)

    def certified(self, given: dict[str, Any], task_vars: Any) -> dict[str, Any]:
        """Evaluate a finished run, and write its certificate. Opens no connection."""
        result: dict[str, Any] = {"changed": False, "layer": LAYER, "checks": []}
        if self._task.check_mode:
            return result
        directory = Path(given["report_directory"])
        found = state.read(directory / state.NAME)
        if found is None or MEASURED not in found.steps:
            raise PlanError(f"{directory / state.NAME}: no finished run: run the whole playbook")
        if found.of(MEASURED).get("model_digest") != str(task_vars.get("cluster_digest")):
            raise PlanError(f"{found.path} is of another model: run the whole playbook")
        nodes = found.of(MEASURED)["nodes"]
        if COUNTED not in found.steps:
            # Kept, as a run that only repeats the signature reads them again, with other traffic.
            found.keep(COUNTED, readings.last(self._counters(task_vars)), 0.0)
        topology = self._linked(nodes, task_vars)
        concluded = conclusion.conclude(
            found,
            topology,
            variables={name: task_vars["hostvars"][name] for name in nodes},
            launchers={
                name: task_vars["hostvars"][name] for name in task_vars["groups"].get(LAUNCHER, ())
            },
            routing=self.routing,
            directory=directory,
            min_share=self._least(given),
            max_latency_us=given["max_latency_us"],
            queue_pairs=given["queue_pairs"] if given["transport"] == "rc" else 1,
        )
        checks, verdict = concluded.checks, concluded.verdict
        content = {
            "cluster": given["cluster"],
            "model_digest": str(task_vars.get("cluster_digest")),
            **concluded.content(),
        }
        for line in evaluation.lines(concluded.evaluation, verdict, concluded.missing):
            display.display(line)
        signer = self._signer(given, task_vars)
        try:
            path, unsigned = certificate.write(directory / CERTIFICATES, content, signer)
        except (OSError, SigningError) as error:
            raise AnsibleActionFail(
                f"{LAYER}: {verdict}, but the certificate was not written: {error}. Run the same"
                " command again: it measures nothing twice"
            ) from error
        found.remove()
        burn.Kept(directory).remove()
        display.display(f"acceptance: certificate in {path}")
        of_reports.write(path, display)
        if unsigned:
            display.warning(f"acceptance: the certificate is {certificate.UNSIGNED}: {unsigned}")
        else:
            display.display(f"acceptance: verify: {certificate.command(path, signer.identity)}")
        result.update(checks=checks, certificate=str(path), verdict=verdict)
        failed = [Check(**check) for check in checks if check["status"] == FAILED]
        if failed:
            lines = "\n".join(f"  {check.line()}" for check in failed[:MAX_LISTED])
            result.update(failed=True, msg=f"acceptance: {verdict}:\n{lines}")
        return result

    def show(self, line: str) -> None:
        """Count the rounds of a job, and show errors; of other jobs, show all lines."""
        text = TAG.sub("", line.strip())
        match = pairs.LINE.fullmatch(text)
        if match is None:
            # mpirun says much when processes do not finalize MPI, as after a lost message.
            if text.startswith("pairs: ") or not self._rounds:
                super().show(line)
            return
        done = int(match[1]) + 1
        if self._shown_round + max(1, self._rounds / 10) <= done <= self._rounds:
            self._shown_round = done
            left = duration(max(0.0, self.left_s))
            display.display(f"acceptance: round {done} of {self._rounds}; {left} left")

    _rounds = 0
    """Of the present job."""
    _shown_round = 0
