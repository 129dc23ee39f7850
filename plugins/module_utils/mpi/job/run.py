# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Run a job in its systemd unit, from the checks before it to its result.

A job is stopped on SIGTERM, when its lease expires, and when a node is lost. systemd stops it at
the time limit, even if this process has been killed.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from ...core import machine
from ...core.checks import FAILED, OK, Check, as_dicts, failures
from ...core.commands import CommandError, Result, Runner
from ...core.part import PlanError
from ...core.text import some
from ..causes import causes
from ..launch import container, hosts
from ..launch.node import LaunchNode, as_listed, slots_of
from ..launch.scripts import LEFTOVERS, NEWEST, TIDY
from ..launch.slurm import cancel, refusal, scheduler_reason
from ..launch.unit import GRACE_S, as_user, bounded, login_shell
from .plan import LEASE, OUTPUT, SCRIPT, Job, chosen, prepare, transport_of
from .readiness import JobStorage, ready

INTERRUPTED = "ansible-playbook was interrupted"
_POLL_S = 0.2
_QUIET_S = 60.0
"""Seconds without output after which the nodes are asked whether they still respond."""
LATE_S = 2.0
"""Seconds after which a node's login was slow; a rank is rarely faster with its first file."""
MAX_LINES = 12
MAX_BYTES, MAX_LINE = 1 << 22, 2000
"""Bytes read from the end of the output, and maximum length of a line."""


class JobError(Exception):
    """A failure after ranks were started."""


def run(
    job: Job,
    runner: Runner,
    show: Callable[[str], None],
    uid: int,
    gid: int,
    interrupted: Callable[[], object] = lambda: False,
) -> dict[str, Any]:
    """Run a job and return the module's result. Raises PlanError before anything is started, then
    JobError."""
    nodes, differences = as_listed(job.nodes, job.hostfile, job.launcher)
    if differences:
        raise PlanError(f"{job.hostfile}: {some(differences, 8)}; run --tags hostfile")
    program = job.launcher.program
    if runner(login_shell(job.user, ["sh", "-c", f"command -v {program}"]), check=False).rc != 0:
        tag = "slurm" if job.launcher.scheduled else "mpi"
        raise PlanError(f"{program} not found on the launcher: run --tags {tag}")
    nodes = chosen(job, nodes)
    job = replace(job, transport=transport_of(job, nodes))
    nodes, missing, storage = ready(job, nodes, runner, show)
    slots = sum(node.slots for node in nodes)
    if job.ranks > slots:
        raise PlanError(f"{job.ranks} ranks requested, but {len(nodes)} nodes have {slots} slots")
    job = _contained(job, nodes, storage.directory, runner, show)
    refused = refusal(runner, job.user, job.launcher, job.start(nodes), nodes)
    if refused:
        raise PlanError(f"Slurm refuses it: {refused}")
    if interrupted():
        raise PlanError(INTERRUPTED)
    prepare(job, nodes, uid, gid)
    starting = f"starting {job.ranks or slots} ranks on {len(nodes)} nodes"
    show("; ".join(filter(None, (starting, storage.unmounted))))
    process, state = start(job), "was started"
    try:
        end = watch(job, nodes, process, runner, interrupted)
        state = f"exited ({end.stopped or f'status {end.rc}'}) after {end.seconds:.0f} s"
        return {**_result(job, nodes, end, storage, runner), "missing": missing}
    except (CommandError, OSError, LookupError, ValueError, subprocess.TimeoutExpired) as error:
        raise JobError(
            f"{job.run_id} {state}, then failed: {error}\n"
            f"  output: {job.directory}/{OUTPUT}; processes may be left on "
            f"{some([node.name for node in nodes])}: check with pgrep -fa {job.run_id}"
        ) from error


def _contained(
    job: Job,
    nodes: Sequence[LaunchNode],
    checkpoints: str,
    runner: Runner,
    show: Callable[[str], None],
) -> Job:
    """The job with the engine of its container, which every node has started once."""
    if not job.container:
        return job
    mounts = filter(None, [job.work_directory, checkpoints, *job.container.mounts])
    chosen, told = container.ready(
        replace(job.container, mounts=tuple(mounts)),
        job.launcher,
        runner,
        job.user,
        nodes,
        program=job.program[0],
        work_directory=job.work_directory,
        rdma=job.transport == "rc",
    )
    show(told)
    return replace(job, container=chosen)


@dataclass
class JobExit:
    rc: int
    begin: float
    """When it was started, on this host's monotonic clock."""
    seconds: float
    stopped: str = ""
    """Why it was stopped; empty if it exited normally."""


def start(job: Job) -> subprocess.Popen[bytes]:
    argv = login_shell(job.user, [str(job.directory / SCRIPT)])
    what, output = f"MPI job {job.run_id}", job.directory / OUTPUT
    after = cancel(job.launcher, job.user, job.run_id)
    argv = bounded(argv, job.unit, job.time_limit_s, description=what, output=output, after=after)
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)


def watch(
    job: Job,
    nodes: Sequence[LaunchNode],
    process: subprocess.Popen[bytes],
    runner: Runner,
    interrupted: Callable[[], object],
) -> JobExit:
    begin = grown = time.monotonic()
    size = 0
    stopped = ""
    while process.poll() is None and not stopped:
        time.sleep(_POLL_S)
        now = time.monotonic()
        try:
            before, size = size, (job.directory / OUTPUT).stat().st_size
            idle_s = time.time() - (job.directory / LEASE).stat().st_mtime
        except OSError as error:
            stopped = f"its directory cannot be read: {error}"
            continue
        grown = grown if size == before else now
        if interrupted():
            stopped = INTERRUPTED
        elif job.lease_s and idle_s > job.lease_s:
            stopped = f"ansible-playbook exited, or lost this host for {job.lease_s:g} s"
        elif now - grown > _QUIET_S:
            lost = hosts.lost(runner, job.user, nodes)
            stopped = "; ".join(f"{host} no longer responds: {why}" for host, why in lost.items())
            grown = time.monotonic()
    if stopped:
        _stop(job, process, runner)
    rc = process.wait(timeout=job.time_limit_s + 4 * GRACE_S)
    seconds = time.monotonic() - begin
    if not stopped and seconds >= job.time_limit_s:
        stopped = f"stopped after {job.time_limit_s:g} s (mpi_job_time_limit_s)"
    return JobExit(rc, begin, seconds, stopped)


def _stop(job: Job, process: subprocess.Popen[bytes], runner: Runner) -> None:
    """Stop the unit. Slurm's scancel first sends SIGTERM to ranks, as mpirun does when it is
    stopped; srun kills them."""
    cancelled = cancel(job.launcher, job.user, job.run_id)
    if cancelled and runner(cancelled, check=False).rc == 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE_S)
    runner(["systemctl", "stop", job.unit], check=False)


def _result(
    job: Job, nodes: Sequence[LaunchNode], end: JobExit, storage: JobStorage, runner: Runner
) -> dict[str, Any]:
    orphans = hosts.sweep(runner, job.user, [node.host for node in nodes], job.run_id)
    removed = tidy(job, nodes, runner, end.begin)
    output = output_of(job.directory / OUTPUT, MAX_BYTES)
    asked = (runner, job.user, job.launcher, job.run_id, output)
    of_slurm = scheduler_reason(*asked) if end.rc else ""
    # scancel ends ranks with a status that is theirs.
    cancelled = of_slurm or (job.launcher.scheduled and end.stopped)
    rank, lines = last_lines(job, nodes, output, 0 if cancelled else end.rc)
    known = causes(output, known=True) if end.rc or end.stopped else []
    lines = [*known, *(line for line in lines if not line.strip().endswith(tuple(known)))]
    checkpoint = newest(job, nodes[0], storage, runner)
    status = OK if end.rc == 0 and not end.stopped else FAILED
    named = f"rank {rank} failed first" if rank is not None else ""
    reason = end.stopped or of_slurm or named
    checks = [*storage.checks, Check("job_ended", 0, end.rc, status, "", reason), orphans]
    return {
        "rc": end.rc,
        "seconds": round(end.seconds, 1),
        "stopped": end.stopped,
        "failed_rank": rank,
        "lines": lines,
        "removed": removed,
        "checkpoint": checkpoint,
        "command": shlex.join(job.command(nodes)),
        "directory": str(job.directory),
        "nodes": [node.name for node in nodes],
        "virtual": bool(machine.container()) or any(node.software for node in nodes),
        "checks": as_dicts(checks),
        "message": failure(job, checks, lines, checkpoint, storage.unmounted),
    }


def newest(job: Job, node: LaunchNode, storage: JobStorage, runner: Runner) -> dict[str, Any]:
    """The newest checkpoint, as a node sees it; empty without a checkpoint directory."""
    if not storage.directory:
        return {}
    script = [hosts.remote(NEWEST, [storage.directory])]
    result, reason = hosts.ask_all(runner, job.user, {node.host: script})[node.host]
    checkpoint: dict[str, Any] = {"directory": storage.directory}
    if result is None:
        return {**checkpoint, "error": f"{node.host}: {reason}"}
    report = hosts.report(result.stdout)
    for line in report["newest"]:
        written, size, path = line.split(" ", 2)
        age = float(report["now"][0]) - float(written)
        own = float(written) >= storage.since
        checkpoint.update(path=path, bytes=int(size), age_s=max(0, round(age)), own=own)
    return checkpoint


def checkpoint_line(checkpoint: Mapping[str, Any]) -> str:
    if "path" not in checkpoint:
        reason = checkpoint.get("error", "no file")
        return f"no checkpoint in {checkpoint['directory']} ({reason})"
    megabytes = checkpoint["bytes"] / 1e6
    text = f"{checkpoint['path']}, {megabytes:.1f} MB, {checkpoint['age_s']} s old"
    return f"newest checkpoint: {text}" + ("" if checkpoint["own"] else " (none by this job)")


def tidy(
    job: Job, nodes: Sequence[LaunchNode], runner: Runner, begin: float
) -> dict[str, list[str]]:
    """Remove session directories and shared memory of killed ranks; returns the paths by node.
    `begin` is when the job was started, on the monotonic clock of this host."""

    def script() -> str:
        # The clocks of hosts may differ: the age of the job now, not at its end. The sweep before
        # takes seconds. Checkpoints in /dev/shm must stay: no file is newer than a minute from now.
        age = math.ceil(time.monotonic() - begin)
        since = "-60" if job.checkpoints.rstrip("/") == "/dev/shm" else str(age)
        return hosts.remote(TIDY, [LEFTOVERS, since, "/dev/shm", "/proc", "/tmp"])

    def ask(argv: Sequence[str], **more: Any) -> Result:
        asked = time.monotonic()
        result = runner(argv, **more)
        if time.monotonic() - asked > LATE_S:
            late.update(left & {*argv})
        return result

    runner(as_user(job.user, ["/bin/sh", "-c", script()]), check=False)
    removed: dict[str, list[str]] = {}
    left = {node.host for node in nodes}
    for _attempt in range(2):
        late: set[str] = set()
        commands = {node.host: lambda: (script(),) for node in nodes if node.host in left}
        for host, (result, _reason) in hosts.ask_all(ask, job.user, commands).items():
            paths = hosts.report(result.stdout)["removed"] if result else []
            removed[host] = [*removed.get(host, []), *paths]
        # The job seemed younger by the time that a login took: it missed the job's first files.
        left = late
    return {host: paths for host, paths in removed.items() if paths}


def last_lines(
    job: Job, nodes: Sequence[LaunchNode], output: str, rc: int
) -> tuple[Optional[int], list[str]]:
    """The rank that failed first, according to mpirun, and its last lines; else the last lines."""
    lines = [line[:MAX_LINE] for line in output.splitlines()]
    slots = slots_of(nodes, job.launcher)
    rank = job.launcher.failed_rank(output, slots, job.mapping) if rc else None
    if rank is None:
        return None, lines[-MAX_LINES:]
    label = re.compile(rf"\[\d+,{rank}\]<std(out|err)>:|\[{rank}\] |\s*{rank}: ")
    own = [line for line in lines if label.match(line)]
    matches = ((job.launcher.failed.search(line), line) for line in lines)
    named = [line for match, line in matches if match and str(rank) in match.groups()]
    return rank, [*own[-MAX_LINES:], *named[:1]]


def failure(
    job: Job,
    checks: Sequence[Check],
    lines: Sequence[str],
    checkpoint: Mapping[str, Any],
    unmounted: str = "",
) -> str:
    failed = failures(checks)
    if not failed:
        return ""
    head = [f"job {job.run_id} failed:", *(f"  {check.line()}" for check in failed)]
    tail = [f"  output: {job.directory}/{OUTPUT}"]
    tail += [f"  {checkpoint_line(checkpoint)}"] if checkpoint else []
    tail += [f"  {unmounted}"] if unmounted else []
    return "\n".join([*head, *(f"    {line}" for line in lines), *tail])


def output_of(path: Path, most: int = 1 << 30) -> str:
    """The last `most` bytes of a file; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            return file.read(most).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
