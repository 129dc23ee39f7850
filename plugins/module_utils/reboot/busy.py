# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""MPI processes of any user, found in /proc: as long as there is one, the host is not rebooted.

A launcher or a launcher's daemon is known by its name. A rank has any name; what it inherits from
the daemon that started it identifies it: its rank, or the job of Slurm that it belongs to. What
profiles set for every login (UCX_*, OMPI_MCA_*) does not count.
"""

from __future__ import annotations

import pwd
from collections.abc import Sequence
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
"""Also with an implementation's suffix: mpirun.openmpi, mpiexec.hydra, mpirun.mpich, ..."""
RANK = (
    *("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "MPI_LOCALRANKID"),
    *("MV2_COMM_WORLD_RANK", "MVP_COMM_WORLD_RANK", "MPIRUN_RANK"),
    *("SLURM_JOB_ID", "SLURM_JOBID"),
)
"""Variables that only a process of a job has."""
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
    """Every one of them, by pid. `more` are further names that keep a host from its reboot."""
    names = NAMES | set(more)
    found = (_look(root / f"proc/{pid}", names) for pid in pids(root))
    return [each for each in found if each is not None]


def listed(found: Sequence[Process]) -> str:
    return some([each.text() for each in found], SHOWN)


def _look(folder: Path, names: frozenset[str]) -> Optional[Process]:
    """None for one that is not an MPI process, or that has ended meanwhile."""
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        if stat.rpartition(")")[2].split()[:1] == ["Z"]:
            return None  # a zombie keeps its name until it is waited for, and runs nothing
        comm = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        argv = _words(folder / "cmdline")
        if not _is_known(comm, argv, names) and not _has_rank(folder):
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
    """By its name, with or without an implementation's suffix."""
    called = Path(argv[0]).name if argv else ""
    # A launcher may be a script: then the first word is its interpreter.
    if called.startswith(INTERPRETERS):
        called = next((Path(word).name for word in argv[1:] if not word.startswith("-")), "")
    cut = {name[:COMM_LENGTH] for name in names}
    return bool({comm, comm.partition(".")[0]} & cut or {called, called.partition(".")[0]} & names)


def _has_rank(folder: Path) -> bool:
    return not {word.partition("=")[0] for word in _words(folder / "environ")}.isdisjoint(RANK)


def _words(path: Path) -> list[str]:
    text = path.read_bytes().decode("utf-8", errors="replace")
    return [word for word in text.split("\0") if word]
