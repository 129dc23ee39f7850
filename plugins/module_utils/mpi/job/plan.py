# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A job as requested: its options, its nodes, and the files of its directory on the launcher."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from ...core.files import make_directories
from ...core.messages import message
from ...core.part import PlanError
from ...core.text import counted, some
from ..environment import RAIL_BIND
from ..launch.container import Container
from ..launch.launcher import OPEN_MPI, Launcher, Start
from ..launch.node import LaunchNode, slots_of, with_rails

SCRIPT, HOSTS, OUTPUT, LEASE = "job.sh", "hostfile", "output.log", "lease"
JOBS = Path("/var/lib/baremetal-mpi-roce/jobs")
ALL = "all"
CHECKPOINTS = "CLUSTER_CHECKPOINT_DIR"
SEARCHED = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
"""Variables that select programs and libraries. Ranks get them from mpirun's command line, so that
mpirun itself and its ssh run with the usual values.
"""
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class Job:
    nodes: tuple[LaunchNode, ...]
    program: tuple[str, ...]
    user: str
    run_id: str
    directory: Path
    hostfile: Path
    ranks: int = 0
    """Number of ranks; 0 for every slot."""
    places: Mapping[str, int] = field(default_factory=dict)
    """Ranks by node, for a job that uses only some of the slots."""
    kind: tuple[str, ...] = ()
    """Kinds of nodes; `all` for every kind."""
    mapping: str = "gpu"
    work_directory: str = "/tmp"
    environment: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    launcher: Launcher = OPEN_MPI
    transport: str = "tcp"
    time_limit_s: float = 3600.0
    lease_s: float = 0.0
    """Seconds without contact from the controller after which the job is stopped; 0 for never."""
    allow_missing: bool = False
    storage: bool = True
    """The nodes must have the shared file systems mounted."""
    checkpoint_room_gb: float = 0.0
    container: Optional[Container] = None
    """In which each rank runs; its program and scripts are in the image."""

    def __post_init__(self) -> None:
        if not self.program:
            raise PlanError("mpi_job_program is empty: give the program and its arguments")
        if self.container and set(SEARCHED) & set(self.environment):
            raise PlanError(f"mpi_job_environment: {some(SEARCHED)} are those of the image")
        words = [name for name in self.environment if name.upper() in ("ALL", "NONE")]
        if words and self.launcher.scheduled:
            raise PlanError(
                message(
                    "job.environment_word",
                    "mpi_job_environment: {names}: srun --export reads it as a keyword, and ranks "
                    "would get another environment: choose another name",
                    names=some(words),
                )
            )
        if self.checkpoints and not self.checkpoints.startswith("/"):
            raise PlanError(f"{self.checkpoints}: give an absolute checkpoint directory")

    @property
    def checkpoints(self) -> str:
        """Checkpoint directory of this job; empty for the one that each node defines."""
        return self.environment.get(CHECKPOINTS, "")

    @property
    def unit(self) -> str:
        return f"baremetal-mpi-job-{self.run_id}"

    @property
    def script_of_program(self) -> str:
        """Absolute path of a Python script that the program runs, or empty."""
        if self.container:
            return ""
        interpreted = Path(self.program[0]).name.startswith("python") and len(self.program) > 1
        return self.program[1] if interpreted and self.program[1].startswith("/") else ""

    def start(self, nodes: Sequence[LaunchNode]) -> Start:
        ranks, hosts = self.ranks or sum(node.slots for node in nodes), self.directory / HOSTS
        gpus = min(node.slurm_gpus for node in nodes)
        given = (self.time_limit_s, gpus, self.parameters)
        return Start(self.run_id, str(hosts), ranks, len(nodes), *given)

    def command(self, nodes: Sequence[LaunchNode]) -> list[str]:
        run, launcher = self.start(nodes), self.launcher
        argv = [*launcher.start(run), *launcher.label, *launcher.mappings[self.mapping]]
        exported = [
            f"{name}={value}" if name in SEARCHED else name
            for name, value in self.environment.items()
        ]
        argv += launcher.ranks(run, self.work_directory, exported)
        inside = (
            self.container.prefix(self.work_directory, [*self.environment])
            if self.container
            else []
        )
        return [*argv, *([RAIL_BIND] if self.mapping == "gpu" else []), *inside, *self.program]

    def script(self, nodes: Sequence[LaunchNode]) -> str:
        """The job's script, which a user can also run by hand."""
        lines = ["#!/bin/sh -l", f"# MPI job {self.run_id}: run it as {self.user} on the launcher."]
        lines += [
            f"export {name}={shlex.quote(value)}"
            for name, value in self.environment.items()
            if name not in SEARCHED
        ]
        return "\n".join([*lines, f"exec {shlex.join(self.command(nodes))}", ""])


def texts(values: Mapping[str, Any], option: str) -> dict[str, str]:
    """Values of an option as text. Raises PlanError, listing the names without a value."""
    empty = [name for name, value in values.items() if value is None]
    if empty:
        raise PlanError(f"{option}: {some(empty)}: no value; give one, or omit the name")
    return {name: str(value) for name, value in values.items()}


def environment_of(given: Mapping[str, Any]) -> dict[str, str]:
    """mpi_job_environment as text. Raises PlanError for names and values that ranks cannot get."""
    invalid = [
        str(name) for name in given if not isinstance(name, str) or not _VARIABLE.fullmatch(name)
    ]
    if invalid:
        raise PlanError(
            f"mpi_job_environment: {some(invalid)}: not a name of an environment variable"
        )
    values = texts(given, "mpi_job_environment")
    for name, value in values.items():
        pattern = r"\$\{?\w+" if name in SEARCHED else rf"\$\{{?{name}\b"
        if re.search(pattern, value):
            example = "/srv/venv/bin:/usr/local/bin:/usr/bin:/bin" if name == "PATH" else "it out"
            raise PlanError(
                message(
                    "job.environment_expansion",
                    "mpi_job_environment: {name} refers to another variable with $, but values are "
                    "not expanded: write {example}",
                    name=name,
                    example=example,
                )
            )
    return values


def places_of(given: Mapping[str, Any]) -> dict[str, int]:
    """mpi_job_places as numbers."""
    for name, count in given.items():
        if not re.fullmatch(r"[0-9]{1,9}", str(count)):
            raise PlanError(f"mpi_job_places: {name}: {count!r} is not a number")
    return {name: int(count) for name, count in given.items()}


def chosen(job: Job, nodes: Sequence[LaunchNode]) -> tuple[LaunchNode, ...]:
    """Nodes of the job, with the number of ranks on each as its slots."""
    nodes = _placed(job, _of_kinds(job, nodes))
    without = [node.name for node in nodes if node not in with_rails(nodes)]
    if without:
        raise PlanError(
            f"{some(without)}: no rails in the model, so no transport connects these nodes to the "
            "others of the job; choose nodes with rails, or only nodes without (mpi_job_kind, "
            "mpi_job_places)"
        )
    return nodes


def transport_of(job: Job, nodes: Sequence[LaunchNode]) -> str:
    """Nodes without rails communicate by TCP on the management network."""
    return job.transport if any(node.rails for node in nodes) else "tcp"


def _placed(job: Job, nodes: Sequence[LaunchNode]) -> tuple[LaunchNode, ...]:
    if not job.places:
        return tuple(nodes)
    slots = {node.name: node.slots for node in nodes}
    invalid = [
        f"{count} ranks on {name}, which has {slots.get(name, 0)} slots"
        for name, count in job.places.items()
        if not 0 < count <= slots.get(name, 0)
    ]
    if invalid:
        raise PlanError(f"mpi_job_places: {some(invalid)}")
    return tuple(
        replace(node, slots=job.places[node.name]) for node in nodes if node.name in job.places
    )


def _of_kinds(job: Job, nodes: Sequence[LaunchNode]) -> Sequence[LaunchNode]:
    """Nodes of the requested kinds. In a cluster with several, a program rarely suits all."""
    kinds = Counter(node.kind for node in nodes)
    unknown = [kind for kind in job.kind if kind not in kinds and kind != ALL]
    known = some([f"{kind} ({counted(count, 'node')})" for kind, count in kinds.items()])
    if unknown:
        has = "the model has no kinds" if "" in kinds else f"nodes in service are of {known}"
        raise PlanError(f"mpi_job_kind: {some(unknown)}: no such nodes; {has}")
    if not job.kind and not job.places and len(kinds) > 1:
        raise PlanError(
            f"the nodes are of several kinds: {known}; choose with mpi_job_kind, where `{ALL}` is "
            "every node, or name nodes with mpi_job_places"
        )
    return [node for node in nodes if not job.kind or {node.kind, ALL} & {*job.kind}]


def prepare(job: Job, nodes: Sequence[LaunchNode], uid: int, gid: int) -> None:
    """Create the job's directory with script, hostfile, output and lease, which may contain
    secrets. The directory belongs to root, which opens the output: the user cannot replace that
    file."""
    make_directories(job.directory.parent, 0o755)
    job.directory.mkdir(0o700)
    job.directory.chmod(0o750)
    hosts = job.launcher.hostfile(slots_of(nodes, job.launcher), job.mapping)
    for name, text, mode in (
        (SCRIPT, job.script(nodes), 0o700),
        (HOSTS, hosts, 0o600),
        (OUTPUT, "", 0o600),
        (LEASE, "", 0o600),
    ):
        path = job.directory / name
        path.touch(mode)
        path.write_text(text, encoding="utf-8")
        os.chown(path, uid, gid)
    os.chown(job.directory, -1, gid)
