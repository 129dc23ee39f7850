# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Rank placement: rank k of a node goes with GPU k, the cores of its NUMA node, and its rail.

Nothing is guessed. A GPU's rail and NUMA node are those of the model, the cores of a NUMA node are
given by the operator, and what is not known is refused with the name of what to set.

Cores are hwloc's logical indexes, which is what Open MPI reads in a rankfile (4 and 5 alike).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.dataclass import dataclass
from ..core.files import HEADER
from .hostfile import Membership, refuse

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True)
class Placement:
    """One rank: its number in the job, its host, its number there, and what it is close to."""

    rank: int
    host: str
    local_rank: int
    gpu: int
    rails: tuple[str, ...]


@dataclass(frozen=True)
class Binding:
    """One line of a rankfile."""

    rank: int
    host: str
    cores: tuple[int, ...]


def parse_cores(text: str) -> tuple[int, ...]:
    """The cores of a list such as `0-27,56-83`. Raises ValueError when it is not one."""
    cores: list[int] = []
    for part in text.replace(" ", "").split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"{text!r} is not a list of cores such as '0-27,56-83'")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{text!r}: the range {part} runs backwards")
        cores.extend(range(first, last + 1))
    if len(set(cores)) != len(cores):
        raise ValueError(f"{text!r} names a core twice")
    return tuple(sorted(cores))


def format_cores(cores: Sequence[int]) -> str:
    """The shortest list of ranges that names `cores`, which are sorted."""
    ranges: list[list[int]] = []
    for core in cores:
        if ranges and core == ranges[-1][1] + 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def place(membership: Membership) -> list[Placement]:
    """Every rank beside its GPU and that GPU's rails, in the order of the hostfile.

    Raises PlanError for nodes whose ranks cannot each have a GPU and a rail.
    """
    findings: list[str] = []
    placements: list[Placement] = []
    for member in membership.members:
        name, gpus = member.node["name"], int(member.node["gpus"])
        if member.slots > gpus:
            findings.append(
                f"{name}: {member.slots} slots and {gpus} GPUs: rank k cannot have GPU k: set "
                "cluster_slots to at most the number of GPUs, or do without rank placement"
            )
            continue
        for local in range(member.slots):
            rails = tuple(
                str(rail["interface"]) for rail in member.node["rails"] if rail["gpu"] == local
            )
            if not rails:
                findings.append(
                    f"{name}: no rail belongs to GPU {local}: set gpu on one of its cluster_rails"
                )
            placements.append(Placement(len(placements), member.host, local, local, rails))
    refuse(findings)
    return placements


def bind(
    membership: Membership, numa_cores: Mapping[str, str], *, divided: bool = True
) -> list[Binding]:
    """The cores of every rank: of its GPU's NUMA node, divided among the ranks there or all.

    Divided, no two ranks share a core, which Open MPI 5 refuses unless told otherwise.
    """
    cores_of = _numa_cores(numa_cores)
    findings: list[str] = []
    missing: dict[int, str] = {}
    bindings: list[Binding] = []
    placements = iter(place(membership))
    for member in membership.members:
        name = str(member.node["name"])
        numas = [_numa_of_gpu(member.node["rails"], local) for local in range(member.slots)]
        unknown = [str(gpu) for gpu, numa in enumerate(numas) if numa is None]
        if unknown:
            findings.append(
                f"{name}: the NUMA node of GPU {', '.join(unknown)} is not known: set gpus.numa in "
                "cluster.yml, or do without a rankfile (mpi_hostfile_rankfile: false)"
            )
        for local, numa in enumerate(numas):
            placement = next(placements)
            if numa is None:
                continue
            if numa not in cores_of:
                missing.setdefault(numa, name)
                continue
            cores = cores_of[numa]
            if divided:
                cores = _part(cores, numas, local)
            if not cores:
                findings.append(
                    f"{name}: NUMA node {numa} has {len(cores_of[numa])} cores for "
                    f"{numas.count(numa)} ranks, none for rank {local}: lower cluster_slots, or "
                    "let ranks share cores (mpi_hostfile_rankfile_cores: all)"
                )
            bindings.append(Binding(placement.rank, placement.host, cores))
    findings.extend(
        f"{name}: the cores of NUMA node {numa} are not known: set "
        f"cluster_numa_cores to the logical cores of each NUMA node, such as {{{numa}: '0-27'}} "
        f"(on the node: hwloc-calc --intersect core numa:{numa})"
        for numa, name in sorted(missing.items())
    )
    refuse(findings)
    return bindings


def _part(cores: tuple[int, ...], numas: Sequence[Any], local: int) -> tuple[int, ...]:
    """The share of rank `local` in the cores of its NUMA node; `numas` are those of all ranks."""
    neighbours = [rank for rank, numa in enumerate(numas) if numa == numas[local]]
    part, parts = neighbours.index(local), len(neighbours)
    return cores[len(cores) * part // parts : len(cores) * (part + 1) // parts]


def _numa_cores(given: Mapping[str, str]) -> dict[Any, tuple[int, ...]]:
    findings: list[str] = []
    cores: dict[Any, tuple[int, ...]] = {}
    for numa, text in given.items():
        try:
            cores[int(numa)] = parse_cores(str(text))
        except ValueError as error:
            findings.append(f"cluster_numa_cores, NUMA node {numa}: {error}")
    refuse(findings)
    return cores


def _numa_of_gpu(rails: Iterable[Mapping[str, Any]], gpu: int) -> Any:
    """The NUMA node of a GPU is that of its rail: they hang on the same PCIe switch."""
    return next((rail["numa"] for rail in rails if rail["gpu"] == gpu), None)


def render_rankfile(bindings: Sequence[Binding]) -> str:
    """Open MPI's rankfile; the same text serves Open MPI 4 and 5."""
    lines = [
        f"# {HEADER}",
        f"# {len(bindings)} ranks. Open MPI 4: mpirun --rankfile FILE;"
        " Open MPI 5: mpirun --map-by rankfile:file=FILE",
        *(f"rank {b.rank}={b.host} slot={format_cores(b.cores)}" for b in bindings),
    ]
    return "\n".join(lines) + "\n"


def render_rankmap(placements: Sequence[Placement]) -> str:
    """Which GPU and which rails each rank is to use: one line per rank, for launch wrappers."""
    lines = [
        f"# {HEADER}",
        "# rank host local_rank gpu rails",
        *(f"{p.rank} {p.host} {p.local_rank} {p.gpu} {','.join(p.rails)}" for p in placements),
    ]
    return "\n".join(lines) + "\n"
