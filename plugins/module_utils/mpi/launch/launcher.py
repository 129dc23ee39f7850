# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Launchers of ranks: Open MPI's mpirun, and Hydra of Intel MPI.

The run id is in the command line or environment of every process of a run: the sweep finds
processes by it. Ranks get the environment of their node from the program that mpirun starts there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional, Union

RUN_ID = "BAREMETAL_RUN_ID"
"""Variable that `hydra-ssh` passes on to nodes."""


class OpenMpi:
    name, key, daemon, hostfile_format = "Open MPI", "open_mpi", "orted", "openmpi"
    version = re.compile(r"\(Open MPI\)\s+(\S+)")
    library = "Open MPI v{}"
    """Start of the library's version string, up to a comma."""
    label = ("--tag-output",)
    mappings: Mapping[str, tuple[str, ...]] = {
        "gpu": ("--map-by", "slot", "--bind-to", "none"),
        "node": ("--map-by", "node", "--bind-to", "none"),
        "core": ("--map-by", "core", "--bind-to", "core"),
    }
    """`gpu`: rank k of a node runs near GPU k and uses its rail; rail-bind binds it. By default
    Open MPI alternates between NUMA nodes, and binds ranks to cores only in a job of two ranks."""
    tcp = (("pml", "ob1"), ("btl", "tcp,self,vader"))
    """Parameters for Open MPI's own TCP transport, which binds to the rail's address."""
    failed = re.compile(r"process rank (\d+)|Process name: \[\[\d+,\d+\],(\d+)\]")
    """mpirun's messages about a signal, and about an exit status."""

    def start(
        self, run_id: str, parameters: Mapping[str, str], hosts: str, ranks: int
    ) -> list[str]:
        argv = ["mpirun", "--mca", "baremetal_run_id", run_id]
        for name, value in parameters.items():
            argv += ["--mca", name, value]
        return [*argv, "--hostfile", hosts, "-np", str(ranks)]

    def ranks(self, directory: str = "", exported: Sequence[str] = ()) -> list[str]:
        """Options for the directory of ranks and their variables: `NAME` from the launcher's
        environment, or `NAME=value`."""
        argv = ["--wdir", directory] if directory else []
        return [*argv, *(word for name in exported for word in ("-x", name))]

    def hostfile(self, slots: Mapping[str, int], mapping: str = "gpu") -> str:
        return "".join(f"{host} slots={count}\n" for host, count in slots.items())

    def failed_rank(self, output: str, _slots: Mapping[str, int], _mapping: str) -> Optional[int]:
        named = self.failed.search(output)
        return int(named[1] or named[2]) if named else None


class Hydra:
    name, key, daemon, hostfile_format = "Intel MPI", "intel_mpi", "hydra_pmi_proxy", "intelmpi"
    version = re.compile(r"Intel\(R\) MPI Library .*Version (\S+)")
    library = "Intel(R) MPI Library {} for Linux* OS"
    label = ("-prepend-rank", "-print-all-exitcodes")
    mappings: Mapping[str, tuple[str, ...]] = {
        "gpu": ("-genv", "I_MPI_PIN", "0"),
        "node": ("-genv", "I_MPI_PIN", "0"),
        "core": ("-genv", "I_MPI_PIN_DOMAIN", "core"),
    }
    """Without I_MPI_PIN=0 the library binds ranks again in MPI_Init."""
    tcp = (("FI_PROVIDER", "tcp"),)
    aborted = re.compile(r"Abort\(-?\d+\) on node (\d+) \(rank")
    codes = re.compile(
        r"^(?:\[mpiexec\S* Exit codes: )?\[([^\s:\]]+):\d+\] (\d+(?:,\d+)*)$", re.MULTILINE
    )
    """Wait statuses of the ranks of a node, printed by -print-all-exitcodes."""
    ended_by_hydra = ("0", "9", "15")
    failed = re.compile(r"RANK (\d+) PID \d+ RUNNING AT")

    def start(
        self, run_id: str, parameters: Mapping[str, str], hosts: str, ranks: int
    ) -> list[str]:
        argv = ["env", f"{RUN_ID}={run_id}", "mpirun"]
        for name, value in parameters.items():
            argv += ["-genv", name, value]
        return [*argv, "-machinefile", hosts, "-n", str(ranks)]

    def ranks(self, directory: str = "", exported: Sequence[str] = ()) -> list[str]:
        argv = ["-wdir", directory] if directory else []
        names = [word for word in exported if "=" not in word]
        argv += ["-genvlist", ",".join(names)] if names else ["-genvnone"]
        given = (word.partition("=") for word in exported if "=" in word)
        return [*argv, *(word for name, _is, value in given for word in ("-genv", name, value))]

    def hostfile(self, slots: Mapping[str, int], mapping: str = "gpu") -> str:
        """Hydra assigns ranks in the order of the lines, and has no other mapping."""
        if mapping != "node":
            return "".join(f"{host}:{count}\n" for host, count in slots.items())
        return "".join(f"{host}:1\n" for host in self._placed(slots, mapping))

    def _placed(self, slots: Mapping[str, int], mapping: str) -> list[str]:
        if mapping != "node":
            return [host for host, count in slots.items() for _unused in range(count)]
        rounds = range(max(slots.values(), default=0))
        return [host for turn in rounds for host, count in slots.items() if turn < count]

    def failed_rank(self, output: str, slots: Mapping[str, int], mapping: str) -> Optional[int]:
        """The rank that failed first, by MPI_Abort, else by an exit status that Hydra did not
        cause, else by Hydra's message."""
        aborted = self.aborted.search(output)
        if aborted:
            return int(aborted[1])
        placed = self._placed(slots, mapping)
        for host, statuses in self.codes.findall(output):
            here = [rank for rank, name in enumerate(placed) if name == host]
            for rank, status in zip(here, statuses.split(",")):
                if status not in self.ended_by_hydra:
                    return rank
        named = self.failed.search(output)
        return int(named[1]) if named else None


Launcher = Union[OpenMpi, Hydra]
OPEN_MPI, HYDRA = OpenMpi(), Hydra()


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
