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
from typing import Optional

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
    """Exit of a job."""

    rc: int
    """Exit status of mpirun."""
    seconds: float
    stopped: str = ""
    """Why it was stopped; empty if it exited normally."""
    first_output_s: Optional[float] = None


def start(job: Job) -> subprocess.Popen[bytes]:
    argv = login_shell(job.user, [str(job.directory / SCRIPT)])
    argv = bounded(
        argv,
        job.unit,
        job.time_limit_s,
        description=f"MPI job {job.run_id}",
        output=job.directory / OUTPUT,
    )
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)


def watch(
    job: Job,
    nodes: Sequence[LaunchNode],
    process: subprocess.Popen[bytes],
    runner: Runner,
    interrupted: Callable[[], object],
) -> JobExit:
    """Wait for the exit of a job, and stop it early for the reasons above."""
    begin = time.monotonic()
    output = _Output(job, begin)
    stopped = ""
    while process.poll() is None and not stopped:
        time.sleep(_POLL_S)
        if interrupted():
            stopped = INTERRUPTED
            continue
        stopped = output.look(time.monotonic())
        if not stopped and output.quiet:
            output.grown = time.monotonic()
            stopped = "; ".join(
                f"{host} no longer responds: {reason}"
                for host, reason in hosts.lost(runner, job.user, nodes).items()
            )
    if stopped:
        runner(["systemctl", "stop", job.unit], check=False)
    rc = process.wait(timeout=job.time_limit_s + 4 * GRACE_S)
    seconds = time.monotonic() - begin
    if not stopped and seconds >= job.time_limit_s:
        stopped = f"stopped after {job.time_limit_s:g} s (mpi_job_time_limit_s)"
    return JobExit(rc, seconds, stopped, output.first_s)


class _Output:
    """Tracks the growth of a job's output and the age of its lease."""

    def __init__(self, job: Job, begin: float) -> None:
        self.job, self.begin = job, begin
        self.size, self.grown = 0, begin
        self.first_s: Optional[float] = None
        self.quiet = False

    def look(self, now: float) -> str:
        """Read both. Returns a reason to stop the job, or an empty string."""
        job = self.job
        try:
            size = (job.directory / OUTPUT).stat().st_size
            renewed = (job.directory / LEASE).stat().st_mtime
        except OSError as error:
            return f"its directory cannot be read: {error}"
        if size != self.size:
            self.size, self.grown = size, now
            if self.first_s is None:
                self.first_s = round(now - self.begin, 1)
        self.quiet = now - self.grown > _QUIET_S
        if job.lease_s and time.time() - renewed > job.lease_s:
            return f"ansible-playbook exited, or lost this host for {job.lease_s:g} s"
        return ""
