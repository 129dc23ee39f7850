# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The smoke test from start to finish, with a bisection after a failure."""

from __future__ import annotations

import contextlib
import itertools
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional

from ...core.checks import FAILED, OK, Check, failures, not_applicable
from ...core.commands import Runner
from ...core.text import some
from ..causes import causes, last_lines
from ..launch import hosts, readiness
from ..launch.node import as_listed
from ..launch.slurm import cancel, refusal, scheduler_reason
from ..launch.unit import GRACE_S, bounded, login_shell
from . import bisect, gpu, traffic, verdict
from .launch import RunResult, launch, of_kind
from .plan import RunPlan, command


@dataclass(frozen=True)
class SmokeTest:
    plan: RunPlan
    user: str
    hostfile: Path
    run_id: str
    program_sha256: str = ""
    time_limit_s: float = 300.0
    bisect_runs: int = 24
    bisect_limit_s: float = 30.0
    tolerances: traffic.Tolerances = field(default_factory=traffic.Tolerances)
    virtual: bool = False
    gpu: gpu.GpuOptions = field(default_factory=gpu.GpuOptions)
    without_rails: tuple[str, ...] = ()
    """Nodes that the test leaves out."""


Start = Callable[..., RunResult]
"""Runs a plan over a hostfile under a run id for at most a number of seconds. `progress` gets each
record; `lost` is called while none arrives."""


def start_as(user: str, run: Runner) -> Start:
    """Run the launcher of a plan as `user` in a systemd unit."""

    def start(
        plan: RunPlan, hostfile: Path, run_id: str, limit_s: float, **options: Any
    ) -> RunResult:
        unit = f"baremetal-mpi-smoke-{run_id}"
        with (
            _hostfile(plan) if plan.launcher.scheduled else contextlib.nullcontext(hostfile) as path
        ):
            # This process stops the run first, then the ranks, then systemd: a hang is reported as
            # such, and not as the rank whose limit expired first.
            argv = login_shell(user, command(plan, str(path), run_id, limit_s + GRACE_S))
            end = partial(run, ["systemctl", "stop", "--no-block", unit], check=False)
            after = cancel(plan.launcher, user, run_id)
            guarded = bounded(argv, unit, limit_s + 2 * GRACE_S, after=after)
            return launch(guarded, limit_s, stop=end, **options)

    return start


class Session:
    """One smoke test. `show` gets each line of progress."""

    def __init__(
        self,
        request: SmokeTest,
        run: Runner,
        start: Start,
        show: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request = request
        self.run_program = run
        self.start = start
        self.show = show
        self.clock = clock
        self.deadline = clock() + request.time_limit_s
        self.begin = clock()
        self.lines: list[str] = []
        self.printed = ""
        self.culprit: Optional[bisect.Culprit] = None
        self.outcome: Optional[RunResult] = None
        self.on_gpus: dict[str, Any] = {}

    def run(self) -> dict[str, Any]:
        """Run it and return the module's result."""
        request = self.request
        nodes, differences = as_listed(request.plan.nodes, request.hostfile, request.plan.launcher)
        plan = replace(request.plan, nodes=nodes)
        if differences:
            reason = f"{some(differences, traffic.MAX_ITEMS)}; run --tags hostfile"
            return self.result(plan, [Check("hostfile", "as the model", "not", FAILED, "", reason)])
        user, count = request.user, len(plan.nodes)
        limits = readiness.limits(self.run_program, user, plan.launcher, count, request.run_id)
        if failures(limits):
            return self.result(plan, limits)
        plan, checks = self.ready(plan)
        checks += limits
        if without := some(request.without_rails):
            reason = "no rails in the model: no transport connects them to the other nodes"
            checks.append(not_applicable("ready", "ready", reason, subject=without))
        if failures(checks):
            return self.result(plan, checks)

        number = itertools.count(1)

        def on_record(record: dict[str, Any]) -> None:
            if record["kind"] == "size":
                self.progress(f"allreduce: {next(number)} of {len(plan.sizes)} sizes")

        self.progress(f"allreduce: starting {plan.ranks} ranks on {len(plan.nodes)} nodes")
        lost: dict[str, str] = {}

        def look() -> bool:
            lost.update(hosts.lost(self.run_program, request.user, plan.nodes))
            if lost:
                self.progress(f"allreduce: {some(list(lost))} no longer answers")
            return bool(lost)

        limit, options = max(5.0, self.left()), {"progress": on_record, "lost": look}
        outcome = self.start(plan, request.hostfile, request.run_id, limit, **options)
        self.outcome = outcome
        checks.append(self.finished(plan, outcome, lost, request.run_id))
        unproved = self.prove_rails(plan, outcome) if outcome.complete else []
        ended = not failures([*checks, *unproved])
        on_gpus = self.prove_gpus(plan, "" if ended else "the allreduce of host memory failed")
        orphans = self.sweep(plan)
        if outcome.complete:
            judged = verdict.judge(plan, outcome.records, request.tolerances)
            # A reason common to all rails replaces the reports per rail.
            checks += [check for check in judged if not unproved or check.name != unproved[0].name]
            checks += unproved
        checks += [*on_gpus, orphans]
        wrong = any(check.name == "exactness" for check in failures(checks))
        # All nodes were ready before the run: one that no longer is explains the failure without a
        # search.
        if lost:
            told = {host: f"lost during the run: {reason}" for host, reason in lost.items()}
            unready = _not_ready(told)
        else:
            unready = [] if ended else failures(self.ready(plan)[1])
        checks += unready
        of_slurm = plan.launcher.scheduler_reason(outcome.complaints)
        if (not outcome.complete or wrong) and not unready and not of_slurm:
            self.search(plan)
        self.lines = self.lines or last_lines(self.printed)
        return self.result(plan, checks)

    def ready(self, plan: RunPlan) -> tuple[RunPlan, list[Check]]:
        """Check that every node can take part, and return the plan with the nodes' reports."""
        count = len(plan.nodes)
        self.progress(f"allreduce: asking {count} nodes whether they are ready")
        user, sha256 = self.request.user, self.request.program_sha256
        asked = (plan.transport, plan.launcher, sha256, self.request.gpu.nccl_tests)
        problems, nodes = readiness.preflight(self.run_program, user, plan.nodes, *asked)
        if problems:
            return plan, _not_ready(problems)
        plan = replace(plan, nodes=nodes)
        run = plan.start(self.request.run_id, "", self.request.time_limit_s)
        refused = refusal(self.run_program, user, plan.launcher, run, nodes)
        if refused:
            return plan, [Check("ready", "ready", "not", FAILED, "Slurm", refused)]
        return plan, [Check("ready", count, count, OK)]

    def finished(
        self, plan: RunPlan, outcome: RunResult, lost: Mapping[str, str], run_id: str
    ) -> Check:
        done, total = len(of_kind(outcome.records, "size")), len(plan.sizes)
        if outcome.complete and outcome.rc == 0 and done == total:
            return Check("finished", "all sizes", "all sizes", OK)
        self.printed = outcome.complaints
        self.lines = causes(self.printed)
        launcher = plan.launcher
        reason = f"{launcher.program} exited with status {outcome.rc}"
        asked = (self.run_program, self.request.user, launcher, run_id, outcome.complaints)
        of_slurm = scheduler_reason(*asked)
        reason += f": {of_slurm}" if of_slurm else ""
        if lost:
            reason = f"stopped after {outcome.seconds:.0f} s: {some(list(lost))} no longer answers"
        elif outcome.timed_out:
            reason = f"stopped after {self.request.time_limit_s:g} s (mpi_smoke_time_limit_s)"
        return Check("finished", "all sizes", f"{done} of {total} sizes", FAILED, "", reason)

    def prove_rails(self, plan: RunPlan, outcome: RunResult) -> list[Check]:
        """Run each rail separately, and add the reports; returns a failed check if a rail fails."""
        for part in plan.rail_runs:
            subject = f"rail {part.only} of each rank"
            self.progress(f"allreduce: {subject}")
            run_id = f"{self.request.run_id}-rail{part.only}"
            found = self.start(part, self.request.hostfile, run_id, max(5.0, self.left()))
            if not found.complete or found.rc != 0:
                reason = self.finished(part, found, {}, run_id).reason
                return [Check("rails_traffic", "its end", "none", FAILED, subject, reason)]
            kinds = ("rails", "wrong")
            outcome.records += [record for record in found.records if record["kind"] in kinds]
        return []

    def prove_gpus(self, plan: RunPlan, failed: str) -> list[Check]:
        request = self.request

        def start(part: RunPlan, name: str) -> RunResult:
            self.progress(f"allreduce: {name}, GPU memory")
            run_id, limit_s = f"{request.run_id}-{name}", request.gpu.gpu_limit_s
            if len(part.nodes) == len(plan.nodes):
                return self.start(part, request.hostfile, run_id, limit_s)
            with _hostfile(part) as path:
                return self.start(part, path, run_id, limit_s)

        checks, self.on_gpus = gpu.prove(plan, request.gpu, start, failed)
        return checks

    def sweep(self, plan: RunPlan) -> Check:
        names = [node.host for node in plan.nodes]
        return hosts.sweep(self.run_program, self.request.user, names, self.request.run_id)

    def search(self, plan: RunPlan) -> None:
        if len(plan.nodes) < 2 or self.request.bisect_runs < 1:
            return
        request, numbers = self.request, itertools.count(1)

        def fails(names: Sequence[str]) -> bool:
            if self.left() < 1:
                raise bisect.NoMoreRuns
            number = next(numbers)
            self.progress(f"allreduce: locating the fault, run {number}, {len(names)} nodes")
            part = plan.subset(names)
            limit = min(request.bisect_limit_s, self.left())
            with _hostfile(part) as path:
                outcome = self.start(part, path, f"{request.run_id}-{number}", limit)
            ends = of_kind(outcome.records, "end")
            failed = outcome.rc != 0 or not ends or bool(ends[0]["wrong_results"])
            if failed:
                self.sweep(part)
                # A run that hangs prints no message; a smaller one may print one.
                self.lines = self.lines or causes(outcome.complaints)
            return failed

        # The search has a separate time limit, as the run may have used up its own.
        self.deadline = self.clock() + request.bisect_runs * request.bisect_limit_s
        self.culprit = bisect.find([node.name for node in plan.nodes], fails, request.bisect_runs)

    def left(self) -> float:
        return self.deadline - self.clock()

    def progress(self, text: str) -> None:
        self.show(f"{text}, {self.clock() - self.begin:.0f} s")

    def result(self, plan: RunPlan, checks: list[Check]) -> dict[str, Any]:
        request = self.request
        records = self.outcome.records if self.outcome is not None else []
        start = next(iter(of_kind(records, "start")), {})
        failed = failures(checks)
        return {
            "checks": [asdict(check) for check in checks],
            "figures": self.figures(plan, records),
            "nodes": [node.name for node in plan.nodes],
            "lanes": [
                {"text": record["text"], "ranks": len(record["ranks"])}
                for record in of_kind(records, "lane")
            ],
            "traffic": traffic.traffic(plan, records),
            "versions": {key: start[key] for key in ("library", "mpi4py", "numpy") if key in start},
            "run_id": request.run_id,
            "seconds": round(self.clock() - self.begin, 1),
            "command": shlex.join(
                command(plan, str(request.hostfile), request.run_id, request.time_limit_s)
            ),
            "lines": self.lines,
            "culprit": asdict(self.culprit) if self.culprit is not None else None,
            "message": self.message(plan, failed) if failed else "",
        }

    def figures(self, plan: RunPlan, records: Sequence[dict[str, Any]]) -> dict[str, Any]:
        by_size = verdict.figures(records, plan.ranks)
        soft = plan.transport == "rc" and any(node.software for node in plan.nodes)
        best = verdict.best_busbw(by_size)
        return {
            "ranks": plan.ranks,
            "nodes": len(plan.nodes),
            "transport": plan.transport,
            "by_size": by_size,
            "best_busbw_gbytes_s": best["busbw_gbytes_s"] if best is not None else None,
            "line_rate_gbytes_s": min(node.line_rate_gbytes_s for node in plan.nodes),
            "threshold_gbytes_s": self.request.tolerances.min_busbw_gbytes_s,
            "virtual": self.request.virtual or soft,
            "rails": traffic.by_rail(plan, records),
            "sent_bytes_per_node": traffic.least_sent(plan, records),
            "least_bytes_per_node": traffic.least_bytes_per_node(plan, records),
            **self.on_gpus,
        }

    def message(self, plan: RunPlan, failed: Sequence[Check]) -> str:
        where = f"{plan.ranks} ranks on {len(plan.nodes)} nodes ({plan.transport})"
        shown = [f"smoke: allreduce over {where} failed:"]
        shown += [f"  {check.line()}" for check in failed[:20]]
        shown += [f"  and {len(failed) - 20} more"] if len(failed) > 20 else []
        if self.culprit is not None:
            shown.append(f"  search: {self.culprit.sentence()}")
        if self.lines:
            shown += [f"  from {plan.launcher.program}:", *(f"    {line}" for line in self.lines)]
        return "\n".join(shown)


def _not_ready(problems: Mapping[str, str]) -> list[Check]:
    listed = readiness.by_reason(problems).items()
    return [Check("ready", "ready", "not", FAILED, names, reason) for names, reason in listed]


@contextlib.contextmanager
def _hostfile(plan: RunPlan) -> Iterator[Path]:
    """Temporary hostfile for some of the nodes, readable by the MPI user."""
    with tempfile.NamedTemporaryFile("w", prefix="mpi-smoke-hosts-", suffix=".txt") as stream:
        path = Path(stream.name)
        path.chmod(0o644)
        stream.write(plan.hostfile())
        stream.flush()
        yield path
