# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Start a job in its systemd unit, and watch it until it exits or must be stopped.

A job is stopped on SIGTERM, when its lease expires, and when a node is lost. systemd stops it at
the time limit, even if this process has been killed.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...core.commands import Runner
from ..launch import hosts
from ..launch.node import LaunchNode
from ..launch.unit import GRACE_S, bounded, login_shell
from .plan import LEASE, OUTPUT, SCRIPT, Job

INTERRUPTED = "ansible-playbook was interrupted"
_POLL_S = 0.2
_QUIET_S = 60.0
"""Seconds without output after which the nodes are asked whether they still respond."""


@dataclass
class JobExit:
    rc: int
    seconds: float
    stopped: str = ""
    """Why it was stopped; empty if it exited normally."""


def start(job: Job) -> subprocess.Popen[bytes]:
    argv = login_shell(job.user, [str(job.directory / SCRIPT)])
    what, output = f"MPI job {job.run_id}", job.directory / OUTPUT
    argv = bounded(argv, job.unit, job.time_limit_s, description=what, output=output)
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
        runner(["systemctl", "stop", job.unit], check=False)
    rc = process.wait(timeout=job.time_limit_s + 4 * GRACE_S)
    seconds = time.monotonic() - begin
    if not stopped and seconds >= job.time_limit_s:
        stopped = f"stopped after {job.time_limit_s:g} s (mpi_job_time_limit_s)"
    return JobExit(rc, seconds, stopped)
