# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI processes of all users in /proc, which prevent a reboot.

Launchers and daemons are recognized by name, idle daemons by their arguments, ranks by a rank
number or a Slurm job in their environment. Variables that profiles set do not count.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from ..core.processes import COMM_LENGTH, pids
from ..core.text import some

NAMES = frozenset(
    [
        *("mpirun", "mpiexec", "orterun", "prterun", "prun", "srun", "salloc"),
        *("orted", "prted", "prte", "hydra_pmi_proxy", "hydra_bstrap_proxy", "pmi_proxy"),
        *("mpirun_rsh", "mpispawn"),  # MVAPICH
        *("slurmstepd",),
    ]
)
"""Also with the suffix of an implementation: mpirun.openmpi, mpiexec.hydra, ..."""
IDLE = {
    # Started by slurmd to retain the scope of steps until shutdown:
    # slurm.schedmd.com/cgroup_v2.html, SchedMD/slurm src/plugins/cgroup/v2/cgroup_v2.c.
    "slurmstepd": re.compile(r"\S+ infinity"),
    # prte offers a virtual machine (DVM) to jobs; with a program, it launches that program:
    # openpmix/prrte f70ebc5c, src/tools/prte/prte.1.md. This matches options with one value, or
    # two after --prtemca.
    "prte": re.compile(r"\S+(?: -\S*mca \S+ \S+| -(?!\S*mca )\S+(?: [^-\s]\S*)?)*"),
    # A daemon of a DVM. Its name space starts with the program that launched it, prterun or
    # mpirun for a single job: openpmix/prrte plm_base_jobid.c. With --bootstrap, every node
    # starts one at boot: docs of openpmix/prrte.
    "prted": re.compile(r".* (ess_base_nspace prte-.*|--bootstrap\b.*)"),
}
"""Command lines of daemons waiting for jobs."""
STEP = re.compile(r"\S{0,150}slurmstepd\S{0,50}: \[(\d+)\b.*")
"""The title of a step: `[77.0]`, `[77.batch]`, `[77.extern]`, `[77.interactive]`, after the program
name, which is configurable (slurmstepd-wlm on Debian). Bounded, because any user can start a
program with a title of 128 KiB."""
RANK = frozenset(
    [
        *("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "MPI_LOCALRANKID"),
        *("MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK", "MPIRUN_RANK"),
    ]
)
"""Variables that only job processes have."""
SLURM_JOB = ("SLURM_JOB_ID", "SLURM_JOBID")
"""Also set in daemons that a Slurm prolog started, which outlive the job."""
MPS = "nvidia-cuda-mps"
"""CUDA's MPS daemon and server, which do not count; their clients have the GPUs open."""
INTERPRETERS = ("python", "bash", "dash", "sh", "perl")
COMMAND_SHOWN = 80
SHOWN = 5


@dataclass(frozen=True)
class Process:
    pid: int
    user: str
    command: str
    why: str = "MPI"

    def text(self) -> str:
        return f"{self.command} (pid {self.pid}, user {self.user})"


def processes(root: Path = Path("/"), more: Sequence[str] = ()) -> list[Process]:
    """MPI processes by PID. `more`: names of other programs to include."""
    folders = [root / f"proc/{pid}" for pid in pids(root)]
    jobs = {job for folder in folders for job in _jobs(folder)}
    found = (_look(folder, frozenset(more), jobs) for folder in folders)
    return [item for item in found if item is not None]


def listed(found: Sequence[Process]) -> str:
    return some([item.text() for item in found], SHOWN)


def _jobs(folder: Path) -> list[str]:
    """The Slurm job of this step, if it is one."""
    try:
        step = STEP.fullmatch(" ".join(_words(folder / "cmdline")))
    except OSError:
        return []  # terminated in the meantime
    return [step[1]] if step else []


def _look(folder: Path, more: frozenset[str], jobs: Collection[str]) -> Optional[Process]:
    """None if it is not an MPI process, or has terminated meanwhile."""
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        if stat.rpartition(")")[2].split()[:1] == ["Z"]:
            return None  # a zombie still has its name, but does not run
        comm = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        argv = _words(folder / "cmdline")
        known = (
            _is_known(comm, argv, more)
            or STEP.fullmatch(" ".join(argv)) is not None
            or (_is_known(comm, argv, NAMES) and not _waits(argv))
        )
        if not known and (comm.startswith(MPS) or not _has_rank(folder, jobs)):
            return None
        uid = folder.stat().st_uid
    except (FileNotFoundError, ProcessLookupError, NotADirectoryError):
        return None
    command = " ".join(argv) or comm
    if len(command) > COMMAND_SHOWN:
        command = f"{command[: COMMAND_SHOWN - 3]}..."
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    return Process(int(folder.name), user, command)


def _is_known(comm: str, argv: Sequence[str], names: frozenset[str]) -> bool:
    """Compare names, with or without the suffix of an implementation."""
    called = Path(argv[0]).name if argv else ""
    # If the launcher is a script, the first word is its interpreter.
    if called.startswith(INTERPRETERS):
        called = next((Path(word).name for word in argv[1:] if not word.startswith("-")), "")
    cut = {name[:COMM_LENGTH] for name in names}
    return bool({comm, comm.partition(".")[0]} & cut or {called, called.partition(".")[0]} & names)


def _waits(argv: Sequence[str]) -> bool:
    """Whether it is an idle daemon."""
    waiting = IDLE.get(Path(argv[0]).name) if argv else None
    return waiting is not None and waiting.fullmatch(" ".join(argv)) is not None


def _has_rank(folder: Path, jobs: Collection[str]) -> bool:
    pairs = (word.partition("=") for word in _words(folder / "environ"))
    values = {name: value for name, _equals, value in pairs}
    return not RANK.isdisjoint(values) or any(values.get(name) in jobs for name in SLURM_JOB)


def _words(path: Path) -> list[str]:
    text = path.read_bytes().decode("utf-8", errors="replace")
    return [word for word in text.split("\0") if word]
