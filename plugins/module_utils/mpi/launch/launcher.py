# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Launchers of ranks: Open MPI's mpirun, Hydra of Intel MPI, and Slurm's srun for Open MPI.

The run id is in the command line or environment of every process of a run: the sweep finds
processes by it. Ranks get the environment of their node from the program that mpirun starts there,
or from Slurm's task prolog.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Optional, Union

from ...core.messages import message
from ...core.part import PlanError
from ...core.text import printable

RUN_ID = "BAREMETAL_RUN_ID"
"""Variable that `hydra-ssh` passes on to nodes."""


@dataclass(frozen=True)
class Start:
    """What a launcher starts."""

    run_id: str
    hosts: str
    """Path of the hostfile."""
    ranks: int
    nodes: int
    limit_s: float
    slurm_gpus: int = 0
    """GPUs of each node that Slurm must allocate."""
    parameters: Mapping[str, str] = field(default_factory=dict)


class OpenMpi:
    program, scheduled = "mpirun", False
    """The program on the launcher, and whether Slurm allocates the nodes."""
    name, key, daemon, hostfile_format = "Open MPI", "open_mpi", "orted", "openmpi"
    version = re.compile(r"\(Open MPI\)\s+(\S+)")
    library = "Open MPI v{}"
    """Start of the library's version string, up to a comma."""
    label = ("--tag-output",)
    mappings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "gpu": ("--map-by", "slot", "--bind-to", "none"),
        "node": ("--map-by", "node", "--bind-to", "none"),
        "core": ("--map-by", "core", "--bind-to", "core"),
    }
    """`gpu`: rank k of a node runs near GPU k and uses its rail; rail-bind binds it. By default
    Open MPI alternates between NUMA nodes, and binds ranks to cores only in a job of two ranks."""
    files, processes = 1, 0
    """Open files and processes of the launcher for each node, while the ranks run: a connection of
    each daemon. The daemon ends its ssh (orte/mca/plm/rsh/plm_rsh_module.c of open-mpi/ompi)."""
    tcp = (("pml", "ob1"), ("btl", "tcp,self,vader"))
    """Parameters for Open MPI's own TCP transport, which binds to the rail's address."""
    failed = re.compile(r"process rank (\d+)|Process name: \[\[\d+,\d+\],(\d+)\]")
    """mpirun's messages about a signal, and about an exit status."""

    def start(self, run: Start) -> list[str]:
        argv = ["mpirun", "--mca", "baremetal_run_id", run.run_id]
        for name, value in run.parameters.items():
            argv += ["--mca", name, value]
        return [*argv, "--hostfile", run.hosts, "-np", str(run.ranks)]

    def ranks(self, run: Start, directory: str = "", exported: Sequence[str] = ()) -> list[str]:
        """The last options: the directory of ranks and their variables, `NAME` from the launcher's
        environment, or `NAME=value`."""
        argv = ["--wdir", directory] if directory else []
        return [*argv, *(word for name in exported for word in ("-x", name))]

    def hostfile(self, slots: Mapping[str, int], mapping: str = "gpu") -> str:
        return "".join(f"{host} slots={count}\n" for host, count in slots.items())

    def scheduler_reason(self, _output: str) -> str:
        """Why the scheduler started no rank, or stopped the run; empty if it did neither."""
        return ""

    def failed_rank(self, output: str, _slots: Mapping[str, int], _mapping: str) -> Optional[int]:
        named = self.failed.search(output)
        return int(named[1] or named[2]) if named else None


class Hydra:
    program, scheduled = "mpirun", False
    name, key, daemon, hostfile_format = "Intel MPI", "intel_mpi", "hydra_pmi_proxy", "intelmpi"
    version = re.compile(r"Intel\(R\) MPI Library .*Version (\S+)")
    library = "Intel(R) MPI Library {} for Linux* OS"
    label = ("-prepend-rank", "-print-all-exitcodes")
    mappings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "gpu": ("-genv", "I_MPI_PIN", "0"),
        "node": ("-genv", "I_MPI_PIN", "0"),
        "core": ("-genv", "I_MPI_PIN_DOMAIN", "core"),
    }
    """Without I_MPI_PIN=0 the library binds ranks again in MPI_Init."""
    files, processes = 4, 1
    """An ssh with three pipes, and the connection of its proxy."""
    tcp = (("FI_PROVIDER", "tcp"),)
    aborted = re.compile(r"Abort\(-?\d+\) on node (\d+) \(rank")
    codes = re.compile(
        r"^(?:\[mpiexec\S* Exit codes: )?\[([^\s:\]]+):\d+\] (\d+(?:,\d+)*)$", re.MULTILINE
    )
    """Wait statuses of the ranks of a node, printed by -print-all-exitcodes."""
    ended_by_hydra = ("0", "9", "15")
    failed = re.compile(r"RANK (\d+) PID \d+ RUNNING AT")

    def start(self, run: Start) -> list[str]:
        argv = ["env", f"{RUN_ID}={run.run_id}", "mpirun"]
        for name, value in run.parameters.items():
            argv += ["-genv", name, value]
        return [*argv, "-machinefile", run.hosts, "-n", str(run.ranks)]

    def ranks(self, _run: Start, directory: str = "", exported: Sequence[str] = ()) -> list[str]:
        argv = ["-wdir", directory] if directory else []
        names = [word for word in exported if "=" not in word]
        argv += ["-genvlist", ",".join(names)] if names else ["-genvnone"]
        given = (word.partition("=") for word in exported if "=" in word)
        return [*argv, *(word for name, _is, value in given for word in ("-genv", name, value))]

    def hostfile(self, slots: Mapping[str, int], mapping: str = "gpu") -> str:
        """Hydra assigns ranks in the order of the lines, and has no other mapping."""
        if mapping != "node":
            return "".join(f"{host}:{count}\n" for host, count in slots.items())
        return "".join(f"{host}:1\n" for host in placed(slots, mapping))

    def scheduler_reason(self, _output: str) -> str:
        return ""

    def failed_rank(self, output: str, slots: Mapping[str, int], mapping: str) -> Optional[int]:
        """The rank that failed first, by MPI_Abort, else by an exit status that Hydra did not
        cause, else by Hydra's message."""
        aborted = self.aborted.search(output)
        if aborted:
            return int(aborted[1])
        hosts = placed(slots, mapping)
        for host, statuses in self.codes.findall(output):
            here = [rank for rank, name in enumerate(hosts) if name == host]
            for rank, status in zip(here, statuses.split(",")):
                if status not in self.ended_by_hydra:
                    return rank
        named = self.failed.search(output)
        return int(named[1]) if named else None


TASK_PROLOG = "/usr/local/libexec/baremetal-mpi-roce/task-prolog"
KEPT = "MPI_ROCE_KEEP"
"""Variable with the names that the task prolog leaves as the job sets them."""
OF_USER = ("HOME", "USER", "LOGNAME", "PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
"""Variables of the login shell on the launcher that tasks get. Others would be the launcher's
devices; the task prolog sets those of the node."""
OF_RUN = ("--job-name", "--no-shell", "--nodelist", "--nodes", "--immediate")
"""Options of salloc by which a run finds and ends its job, and no other."""
WAIT_S = 60
"""Seconds for which a run waits in Slurm's queue. The nodes were idle before."""
WAITED = "srun.waited"
"""Code of the message that the run waited in vain."""


@dataclass(frozen=True)
class Srun(OpenMpi):
    """Open MPI's ranks, started by Slurm's daemons through PMIx.

    salloc holds whole nodes, and srun starts ranks there. srun with --exclusive would do both, but
    bind the step to as many CPUs as it has ranks (Slurm 22.05.8; --exact in srun's manual).
    """

    options: tuple[str, ...] = ()
    """Further options of salloc, such as --partition."""
    program, scheduled = "srun", True
    files = 0  # Slurm's daemons start the ranks
    label = ("--label",)
    mappings: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "gpu": ("--cpu-bind=none",),
        "node": ("--cpu-bind=none",),
        "core": ("--cpu-bind=cores",),
    }
    failed = re.compile(r"^srun: error: \S+: tasks? (\d+)[-,\d]*: (.*)$", re.MULTILINE)
    aborted = re.compile(r"MPI_ABORT was invoked on rank (\d+)")
    ended_by_slurm = ("Killed", "Terminated")
    denied = re.compile(
        r"^salloc: (?:error: (?!Unable to allocate resources: Connection timed out)|(?=Requ))(.+)$",
        re.MULTILINE,
    )
    """Reasons for which salloc waits, or gives up (Slurm: slurm_strerror)."""
    lost = re.compile(r"^(?:salloc|srun): error: Node failure on (\S{1,200})$", re.MULTILINE)
    relinquished = "salloc: Relinquishing job allocation"
    revoked = re.compile(r"^salloc: Job .{1,80} has been revoked\.$", re.MULTILINE)
    because = re.compile(r"slurmstepd\S*: error: \*\*\* .* DUE TO ([A-Z ]{1,40})")

    def __post_init__(self) -> None:
        for word in self.options:
            if not re.fullmatch(r"--[a-z][a-z-]*(=[!-~]*)?", word):
                raise PlanError(
                    message(
                        "srun.option",
                        "{word!r} is not an option of salloc: write it as --name=value",
                        word=word,
                    )
                )
            name = word.partition("=")[0]
            if any(own.startswith(name) for own in OF_RUN):  # salloc accepts shortened names
                raise PlanError(
                    message(
                        "srun.own_option",
                        "{word!r}: the run sets this option of salloc itself: leave it out",
                        word=word,
                    )
                )

    def job_name(self, run_id: str) -> str:
        return f"baremetal-mpi-{run_id}"

    def allocation(self, run: Start) -> list[str]:
        """Options about the nodes, which salloc and `srun --test-only` share."""
        minutes = math.ceil(run.limit_s / 60) + 1  # only if the launcher is lost
        argv = [f"--job-name={self.job_name(run.run_id)}", f"--nodes={run.nodes}", "--exclusive"]
        # A step gets no GPUs that the job did not name (srun's manual, --gres).
        argv += [f"--gres=gpu:{run.slurm_gpus}"] if run.slurm_gpus else []
        return [*argv, "--mem=0", f"--time={minutes}", *self.options]

    def start(self, run: Start) -> list[str]:
        argv = ["salloc", f"--nodelist={run.hosts}", f"--immediate={WAIT_S}"]
        argv += [*self.allocation(run), "srun", "--mpi=pmix", f"--nodelist={run.hosts}"]
        argv += ["--distribution=arbitrary", f"--ntasks={run.ranks}", "--overcommit"]
        return [*argv, "--kill-on-bad-exit=1", "--propagate=NONE", f"--task-prolog={TASK_PROLOG}"]

    def ranks(self, run: Start, directory: str = "", exported: Sequence[str] = ()) -> list[str]:
        given = [word for word in exported if "=" in word]
        given += [f"OMPI_MCA_{name}={value}" for name, value in run.parameters.items()]
        names = [word for word in exported if "=" not in word]
        kept = [f"{KEPT}={' '.join(names)}"] if names else []
        argv = [f"--export={','.join([*OF_USER, *names, *kept])}"]
        argv += [f"--chdir={directory}"] if directory else []
        # srun would search its own PATH for the program, and split values at commas.
        return [*argv, "/usr/bin/env", *given]

    def hostfile(self, slots: Mapping[str, int], mapping: str = "gpu") -> str:
        return "".join(f"{host}\n" for host in placed(slots, mapping))

    def scheduler_reason(self, output: str) -> str:
        if "salloc: " not in output:
            return ""
        if "salloc: Granted job allocation" in output:
            return self._stopped(output)
        told = "; ".join(dict.fromkeys(self.denied.findall(output)))
        if "salloc: Pending job allocation" not in output:
            return message("srun.refused", "Slurm refuses it: {told}", told=told)
        return message(
            "srun.waited",
            "Slurm did not start it within {limit_s} s: {told}",
            limit_s=WAIT_S,
            told=told or "other jobs are first",
        )

    def _stopped(self, output: str) -> str:
        """Ranks that Slurm stops exit with statuses of theirs."""
        lost = self.lost.search(output)
        if lost:
            return message(
                "srun.node_lost",
                "Slurm lost {nodes}: look at its power, then at slurmd.service",
                nodes=printable(lost[1]),
            )
        if not self.revoked.search(output.partition(self.relinquished)[0]):
            return ""
        because = self.because.search(output)
        return message(
            "srun.stopped",
            "Slurm stopped the job: {reason}",
            reason=because[1].strip().lower() if because else "cancelled, as by scancel",
        )

    def failed_rank(self, output: str, _slots: Mapping[str, int], _mapping: str) -> Optional[int]:
        """The rank that called MPI_Abort, else the first one that srun names and Slurm has not
        stopped: once a step is aborted, it stops the others."""
        aborted = self.aborted.search(output)
        if aborted:
            return int(aborted[1])
        before, _abort, later = output.partition("srun: Job step aborted")
        named = [rank for rank, _how in self.failed.findall(before)]
        named += [
            rank for rank, how in self.failed.findall(later) if how not in self.ended_by_slurm
        ]
        return int(named[0]) if named else None


def placed(slots: Mapping[str, int], mapping: str) -> list[str]:
    """The host of each rank."""
    if mapping != "node":
        return [host for host, count in slots.items() for _unused in range(count)]
    rounds = range(max(slots.values(), default=0))
    return [host for turn in rounds for host, count in slots.items() if turn < count]


Launcher = Union[OpenMpi, Hydra]
OPEN_MPI, HYDRA = OpenMpi(), Hydra()
MPIRUN, SRUN = "mpirun", "srun"


def launcher_of(provider: str, start_with: str = MPIRUN, options: Sequence[str] = ()) -> Launcher:
    if start_with != SRUN:
        return of_provider(provider)
    if provider == "impi":
        raise PlanError(
            message("srun.intel_mpi", "srun starts Open MPI only: use mpirun for Intel MPI")
        )
    return Srun(tuple(options))


def of_provider(provider: str) -> Launcher:
    return HYDRA if provider == "impi" else OPEN_MPI


_VERSION = re.compile(r"(?:\(Open MPI\) )?(?:\d+:)?((\d{1,3})\.[\w.]{1,20})")


def too_new(version: str) -> str:
    """Why Open MPI 5 or later is refused, with the remedy; empty for other versions.

    `version` is the output of mpirun (`(Open MPI) 5.0.10`) or that of a package (`5.0.10-1`).
    Open MPI 5 passes none of the system-wide parameters to PRRTE (openpmix/prrte
    src/mca/schizo/ompi/schizo_ompi.c, translate_params), so ranks would not get the environment of
    their node.
    """
    found = _VERSION.match(version)
    if found is None or int(found[2]) < 5:
        return ""
    return (
        f"Open MPI {found[1]} starts ranks by PRRTE's prted, and this collection by orted, which "
        "Open MPI 5 no longer has: set software.mpi.provider to hpcx or impi, or to source with "
        "Open MPI 4.1"
    )
