# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Slurm before and after a run by srun: nodes that it will not allocate, and the end of its job.

Programs run in a login shell of the MPI user: a site's Slurm may be on its path only, and Slurm
applies the limits of that user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from ...core.commands import CommandError, Runner
from ...core.messages import message
from ...core.text import printable, some
from ...slurm.hostlist import compress, expand
from ...slurm.state import NodeState, SlurmError, parse_nodes
from .launcher import WAIT_S, WAITED, Launcher, Srun, Start
from .node import LaunchNode
from .unit import login_shell

CLOSED = frozenset(
    [
        *("DOWN", "DRAIN", "FAIL", "FUTURE", "INVALID_REG", "NOT_RESPONDING", "UNKNOWN"),
        *("POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED", "REBOOT_REQUESTED"),
    ]
)
"""Parts of a state in which Slurm starts no job (sinfo's manual, NODE STATE CODES). Reservations
may be the user's own, and a node that completes a job is soon free."""
MAX_JOBS, MAX_REASON = 4, 300
_STARTS = re.compile(r"to start at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b")
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:(\d{1,4})(?![^,(])")
"""Numbers in `gpu:b300:8(S:0-1),nic:8`."""
_REASON = re.compile(r"^reason=(?!None$)(.+?) *$", re.MULTILINE)
_REMEDIES = (
    ("Resources", "other jobs have its nodes: wait for them, see squeue"),
    ("Priority", "others are first: wait, or request another partition or QOS"),
    ("PartitionNodeLimit", "request fewer nodes, or another partition"),
    ("PartitionTimeLimit", "lower the time limit, or request another partition"),
    ("Partition", "scontrol update partitionname=NAME state=up, or request another"),
    ("ReqNodeNotAvail", "repair and resume these nodes (sinfo -R); scontrol show reservation"),
    ("Assoc", "a limit of its account: sacctmgr show assoc"),
    ("QOS", "a limit of its QOS: sacctmgr show qos"),
    ("", "see squeue(1), JOB REASON CODES"),
)
"""By the start of a reason (squeue's manual, JOB REASON CODES), what to do."""
_PREFIX = re.compile(r"^\w+: (?:error: )?")
_JOB = re.compile(r"(\d{1,10}\S{0,40}) (\S{1,64}) (\S+)")


def cancel(launcher: Launcher, user: str, run_id: str) -> list[str]:
    """The command that ends this run's job in Slurm and no other; empty for other launchers."""
    if not isinstance(launcher, Srun):
        return []
    name = launcher.job_name(run_id)
    return login_shell(user, ["scancel", "--quiet", f"--user={user}", f"--name={name}"])


def offered(
    run: Runner, user: str, nodes: Sequence[LaunchNode]
) -> tuple[dict[str, str], dict[str, int]]:
    """By host, why Slurm would not start a job on it now, with the remedy; and the number of GPUs
    that Slurm has on it."""
    try:
        states = parse_nodes(_said(run, user, "scontrol", "--oneliner", "show", "node"))
    except SlurmError as error:
        return {node.host: f"{error}; run --tags slurm" for node in nodes}, {}
    busy = [name for name, state in states.items() if _allocated(state)]
    jobs = _jobs(run, user, [node.name for node in nodes if node.name in busy])
    found: dict[str, str] = {}
    gpus: dict[str, int] = {}
    for node in nodes:
        state = states.get(node.name)
        if state is None:
            found[node.host] = message(
                "slurm.unknown", "Slurm has no node {name}; run --tags slurm", name=node.name
            )
            continue
        gpus[node.host] = sum(map(int, _GPUS.findall(state.gres)))
        if CLOSED & {*state.state.split("+")}:
            found[node.host] = message(
                "slurm.closed",
                "Slurm has it as {state} ({reason}); repair it, then resume it in Slurm",
                state=state.state,
                reason=printable(state.reason) or "no reason",
            )
        elif _allocated(state):
            found[node.host] = message(
                "slurm.allocated",
                "Slurm has it as {state} (job {jobs}); wait for it, or end it with scancel",
                state=state.state,
                jobs=some(jobs.get(node.name, []), MAX_JOBS),
            )
    return found, gpus


def refusal(
    run: Runner, user: str, launcher: Launcher, start: Start, nodes: Sequence[LaunchNode]
) -> str:
    """Why Slurm would not start the run within the time that it waits; empty if it would."""
    if not isinstance(launcher, Srun):
        return ""
    where = f"--nodelist={compress(node.name for node in nodes)}"
    argv = ["srun", "--test-only", "--mpi=pmix", where, *launcher.allocation(start), "true"]
    try:
        text = _said(run, user, *argv)
    except SlurmError as error:
        return str(error)
    for found in _STARTS.findall(text):
        if datetime.fromisoformat(found) > datetime.now() + timedelta(seconds=WAIT_S):
            return message(
                "slurm.later",
                "Slurm would start it at {time}, and a run waits for {limit_s} s: see squeue",
                time=found,
                limit_s=WAIT_S,
            )
    return ""


def scheduler_reason(run: Runner, user: str, launcher: Launcher, run_id: str, output: str) -> str:
    """Why the scheduler started no rank, or stopped the run, by the launcher's output, and by the
    reason that slurmctld has of a job that waited in vain; empty if it did neither."""
    told = launcher.scheduler_reason(output)
    if not isinstance(launcher, Srun) or getattr(told, "code", "") != WAITED:
        return told
    argv = ["squeue", "--noheader", "--states=all", "--format=reason=%r", f"--user={user}"]
    try:
        said = _said(run, user, *argv, f"--name={launcher.job_name(run_id)}")
    except SlurmError:
        return told
    found = [*_REASON.findall(said)]
    if not found:
        return told
    return message(
        "slurm.pending",
        "Slurm did not start it within {limit_s} s: {reason}: {remedy}",
        limit_s=WAIT_S,
        reason=printable(found[-1])[:MAX_REASON],
        remedy=next(remedy for start, remedy in _REMEDIES if found[-1].startswith(start)),
    )


def _allocated(state: NodeState) -> bool:
    words = {*state.state.split("+")}
    return bool(words & {"ALLOCATED", "MIXED"}) and "COMPLETING" not in words


def _jobs(run: Runner, user: str, names: Sequence[str]) -> Mapping[str, list[str]]:
    """Running jobs by node: `12 of alice`."""
    jobs: dict[str, list[str]] = {}
    if not names:
        return jobs
    argv = ["squeue", "--noheader", "--states=RUNNING", "--format=%i %u %N"]
    try:
        text = _said(run, user, *argv, f"--nodelist={compress(names)}")
    except SlurmError:
        return jobs
    for line in text.splitlines():
        match = _JOB.fullmatch(line.strip())
        try:
            places = expand(match[3]) if match else []
        except ValueError:
            continue
        for name in places:
            jobs.setdefault(name, []).append(f"{match[1]} of {match[2]}" if match else "")
    return jobs


def _said(run: Runner, user: str, *argv: str) -> str:
    """What a program of Slurm printed. Raises SlurmError with its last lines."""
    try:
        done = run(login_shell(user, argv), check=False)
    except CommandError as error:
        raise SlurmError(f"{argv[0]}: {error}") from error
    if done.rc:
        lines = [_PREFIX.sub("", line).strip() for line in done.stderr.splitlines()]
        text = "; ".join([*filter(None, lines)][:MAX_JOBS]) or f"exit status {done.rc}"
        raise SlurmError(f"{argv[0]}: {printable(text)}"[:MAX_REASON])
    return f"{done.stdout}\n{done.stderr}"
