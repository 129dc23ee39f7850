# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Readiness of nodes for a job: programs, idle GPUs, and shared file systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...core import machine
from ...core.checks import OK, Check, failures, not_applicable
from ...core.commands import Runner
from ...core.part import PlanError
from ..launch import hosts, readiness
from ..launch.node import LaunchNode
from ..launch.scripts import JOB_READY, STORAGE
from .plan import CHECKPOINTS, Job

Report = Mapping[str, Sequence[str]]
"""Lines of a node's answer by their first word."""


@dataclass(frozen=True)
class JobStorage:
    """Shared file systems, as the first node reported them."""

    directory: str = ""
    """Checkpoint directory; empty if there is none."""
    since: float = 0.0
    """Time stamp of the node's test file there, from the file system's clock."""
    checks: tuple[Check, ...] = ()
    unmounted: str = ""
    """Why there is no checkpoint directory, with the remedy."""


class NotReadyError(PlanError):
    """Nodes cannot take part; `missing` has the reason for each."""

    def __init__(self, text: str, missing: Mapping[str, str]) -> None:
        super().__init__(text)
        self.missing = dict(missing)


def ready(
    job: Job, nodes: Sequence[LaunchNode], runner: Runner, show: Callable[[str], None]
) -> tuple[tuple[LaunchNode, ...], dict[str, str], JobStorage]:
    """The nodes that can take part, the reason for each other node, and the shared file systems."""
    scarce = failures(readiness.limits(runner, job.user, job.launcher, len(nodes), job.run_id))
    if scarce:
        raise PlanError("\n".join(check.line() for check in scarce))
    show(f"asking {len(nodes)} nodes whether they are ready")
    problems, reported = readiness.preflight(runner, job.user, nodes, job.transport, job.launcher)
    storage = STORAGE if job.storage else "exit 0"
    program = "sh" if job.container else job.program[0]
    arguments = [job.work_directory, program, job.script_of_program, storage]
    arguments += [job.checkpoints, job.environment.get("PATH", "")]
    script = [hosts.remote(JOB_READY, arguments)]
    commands = {node.host: script for node in reported if node.host not in problems}
    reports = {
        host: hosts.report(result.stdout if result is not None else f"{hosts.MARK}problem {reason}")
        for host, (result, reason) in hosts.ask_all(runner, job.user, commands).items()
    }
    usual = Counter(str(report["storage"]) for report in reports.values()).most_common(1)
    for host, report in reports.items():
        reasons = [*report["problem"], *_scarce(job, report["written"])]
        if report["storage"] and str(report["storage"]) != usual[0][0]:
            reasons.append(f"{', '.join(report['storage'])}, unlike most nodes; run --tags mpi")
        if reasons:
            problems[host] = "; ".join(reasons)
    able = tuple(node for node in reported if node.host not in problems)
    if problems and (not job.allow_missing or not able):
        by_hosts = readiness.by_reason(problems).items()
        listed = "\n  ".join(f"{names}: {reason}" for names, reason in by_hosts)
        raise NotReadyError(
            f"{len(problems)} of {len(nodes)} nodes cannot take part:\n  {listed}\n"
            "repair them, drain them, or leave them out with mpi_job_allow_missing",
            {node.name: problems[node.host] for node in nodes if node.host in problems},
        )
    return able, problems, storage_of(job, reports[able[0].host])


def _scarce(job: Job, written: Sequence[str]) -> list[str]:
    wanted = f"mpi_job_checkpoint_room_gb requires {job.checkpoint_room_gb:g} GB"
    free_gb = [int(line.split()[1]) * 1024 / 1e9 for line in written]
    return [
        f"{gb:.1f} GB free for checkpoints; {wanted}"
        for gb in free_gb
        if gb < job.checkpoint_room_gb
    ]


def storage_of(job: Job, report: Report) -> JobStorage:
    values = [line.partition("=")[2] for line in report["storage"]]
    directory = job.checkpoints or next(iter(values), "")
    checks = [Check("job_storage", "mounted", "mounted", OK)] if any(values) else []
    if report["container"]:
        reason = f"{machine.IN_CONTAINER}: {machine.NO_MOUNTS}"
        checks = [not_applicable("job_storage", "mounted", reason)]
    if report["written"]:
        return JobStorage(directory, float(report["written"][0].split()[0]), tuple(checks))
    unmounted = ""
    if directory in report["container"]:
        unmounted = (
            f"{directory} ({CHECKPOINTS}) is not mounted in these containers: a program that "
            "writes checkpoints needs mpi_job_checkpoint_directory, for example "
            "/var/tmp/checkpoints"
        )
    return JobStorage(unmounted=unmounted, checks=tuple(checks))
