# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A run of the site or of its verification over several controllers: stages, jobs, one result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol

from ...module_utils.core.text import counted
from ..layers import HOSTS
from ..report.summary import RunSummary
from . import cut
from .cut import HERE, Job
from .merge import Merged, into, parsed
from .nodes import ExecutionNode
from .workers import Outcome

FAILED_STATUS, UNREACHABLE_STATUS = 2, 4
"""Exit statuses, as of Ansible."""
MOST_NODES = 2
"""Number of execution nodes that try a job, before the controller runs it."""


class Runner(Protocol):
    """What starts a job: `Workers`, or a test's."""

    def remote(self, node: ExecutionNode, job: Job, name: str) -> Outcome: ...
    def local(self, job: Optional[Job], layers: Sequence[str], name: str) -> Outcome: ...


@dataclass
class Run:
    runner: Runner
    nodes: Sequence[ExecutionNode]
    roles: Mapping[str, str]
    """Hosts of the run with their roles, in the order of the inventory."""
    racks: Mapping[str, str]
    limited: bool
    """Whether --limit leaves hosts out."""
    verifies: bool
    show: Callable[[str], None]
    whole: Collection[str] = ()
    """Layers that are shared elsewhere, but not at this site."""

    merged: Merged = field(default_factory=Merged)
    lost: dict[str, str] = field(default_factory=dict)
    """Execution nodes that did not finish a job, and why."""
    undone: dict[str, str] = field(default_factory=dict)
    """Hosts that no controller finished, and why."""
    history: list[dict[str, Any]] = field(default_factory=list)
    status: int = 0

    def run(self, layers: Sequence[str]) -> None:
        for number, (shared, group) in enumerate(cut.stages(layers, self.whole), 1):
            if shared:
                self._share(number, group)
            else:
                self._whole(number, group)

    def remaining(self) -> dict[str, str]:
        """Hosts that take part in the next stage, as in one run of the playbook: site.yml goes on
        without failed hosts, verify.yml with them."""
        out = {*self.merged.unreachable, *self.undone}
        if not self.verifies:
            out |= self.merged.failed.keys()
        return {host: role for host, role in self.roles.items() if host not in out}

    def _whole(self, number: int, layers: Sequence[str]) -> None:
        hosts = self.remaining()
        job = cut.job_of(layers, list(hosts), HERE, hosts)
        if not job.layers:
            return
        every = len(hosts) == len(self.roles) and not self.limited
        self._show(job)
        done = self.runner.local(None if every else job, job.layers, f"{number}-controller")
        self._take(job, done)
        if done.lost:
            self._give_up(job, done.lost)

    def _share(self, number: int, layers: Sequence[str]) -> None:
        jobs = cut.jobs(layers, self.remaining(), self.racks, self.nodes)
        names = {node.name: node for node in self.nodes}
        tried: dict[tuple[str, ...], list[str]] = {job.hosts: [] for job in jobs}
        running: dict[Future[Outcome], Job] = {}
        with ThreadPoolExecutor(len(self.nodes) + 1) as pool:
            while jobs or running:
                later: list[Job] = []
                for job in jobs:
                    busy = [each.place for each in [*running.values(), *later]]
                    placed = self._placed(job, tried[job.hosts], busy)
                    if placed.place in busy:  # one job at a time
                        later.append(placed)
                        continue
                    tried[job.hosts].append(placed.place)
                    attempt = len(tried[job.hosts])
                    name = f"{number}-{placed.place or 'controller'}" + f"-{attempt}" * (
                        attempt > 1
                    )
                    self._show(placed)
                    if placed.place:
                        future = pool.submit(self.runner.remote, names[placed.place], placed, name)
                    else:
                        future = pool.submit(self.runner.local, placed, placed.layers, name)
                    running[future] = placed
                jobs = later
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    job, done = running.pop(future), future.result()
                    self._take(job, done)
                    if done.lost and job.place:
                        self.lost.setdefault(job.place, done.lost)
                        self.show(f"{job.place}: LOST: {done.lost}")
                        jobs.append(job)
                    elif done.lost:
                        self._give_up(job, done.lost)

    def _placed(self, job: Job, tried: Sequence[str], busy: Sequence[str]) -> Job:
        """The job at its node, or at the least busy one of the others if that is lost."""
        alive = [node.name for node in self.nodes if node.name not in {*self.lost, *tried}]
        if job.place in alive or job.place == HERE:
            return job
        place = min(alive, key=busy.count, default=HERE) if len(tried) < MOST_NODES else HERE
        return Job(job.layers, job.hosts, place)

    def _show(self, job: Job) -> None:
        where, hosts = job.place or "here", counted(len(job.hosts), "host")
        self.show(f"{where}: {', '.join(job.layers)} on {hosts}")

    def _give_up(self, job: Job, reason: str) -> None:
        self.undone.update(dict.fromkeys(job.hosts, f"{', '.join(job.layers)}: {reason}"))

    def _take(self, job: Job, done: Outcome) -> None:
        where = job.place or "here"
        item = {"node": job.place, "layers": [*job.layers], "hosts": len(job.hosts), "rc": done.rc}
        lost = {"lost": done.lost} if done.lost else {}
        self.history.append({**item, "seconds": round(done.seconds, 1), **lost})
        if done.report is not None:
            self.merged = self.merged + parsed(done.report, job.hosts)
        if not done.lost:
            self.show(f"{where}: finished in {done.seconds:.1f} s, exit status {done.rc}")
            # A status of a run that its report does not explain, such as a broken layer.
            self.status = max(self.status, min(done.rc, UNREACHABLE_STATUS) if done.rc > 0 else 0)

    def finish(self, summary: RunSummary, layers: Sequence[str], named: Collection[str]) -> int:
        """Put the results into the summary of a run without results; return the exit status."""
        into(summary, self.merged)
        for host, reason in self.undone.items():
            summary.failed[host] = f"not finished: {reason}"
        chosen = set(self.roles.values())
        for layer in layers if self.limited else ():
            if not chosen & set(HOSTS[layer]):
                roles = HOSTS[layer]
                summary.left_out[layer] = [h for h, role in summary.roles.items() if role in roles]
                if layer in named:
                    summary.named.add(layer)
        summary.idle = not self.history
        if summary.unreachable:
            return UNREACHABLE_STATUS
        failed = summary.failed or summary.incomplete
        return max(self.status, FAILED_STATUS if failed else 0)

    def lines(self) -> list[str]:
        """What differs from a run on one controller."""
        found = [f"execution node lost: {name}: {why}" for name, why in self.lost.items()]
        again = [item for item in self.history if item["node"] not in self.lost]
        if self.lost and again:
            found.append("the hosts of lost execution nodes were given to the others")
        return found
