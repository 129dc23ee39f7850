# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI hostfile, and rank placement: rank k of a node uses GPU k, its rail and its cores.

Both are compiled from the table of all hosts of the cluster, not from the hosts of a run. Cores in
a rankfile are hwloc's logical numbers, which Open MPI 4 and 5 read. The inventory lists CPUs with
the numbers of the nodes' kernel; each node compares them with its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ..core.checks import FAILED, OK, Check, not_applicable
from ..core.files import HEADER
from ..core.machine import IN_CONTAINER
from ..core.part import Node, PlanError
from ..core.text import ranges
from ..names import rail_name
from .environment import rails_by_rank, rails_from_model

FORMATS = ("openmpi", "intelmpi", "mpich", "plain")
"""`intelmpi` and `mpich` have the same syntax, which Hydra reads."""
ORDERS = ("model", "rack", "rail_group")
MANAGEMENT = "management"
"""Default: names on the management network, so that mpirun's own traffic stays out of band."""

MAX_FINDINGS = 20
_LINES = {
    "openmpi": re.compile(r"(?P<host>\S+) slots=(?P<slots>\d+)(?: max_slots=\d+)?"),
    "intelmpi": re.compile(r"(?P<host>[^\s:]+):(?P<slots>\d+)"),
}


@dataclass(frozen=True)
class HostfileNode:
    """A compute node in service: its entry in the host table, and its name for MPI."""

    host: str
    address: str
    node: Mapping[str, Any]

    @property
    def slots(self) -> int:
        return int(self.node["slots"])


@dataclass(frozen=True)
class Membership:
    members: tuple[HostfileNode, ...]
    drained: tuple[str, ...]
    without_rails: tuple[str, ...] = ()
    """Nodes in service that the others do not reach by the transport of rails."""

    @property
    def slots(self) -> int:
        return sum(member.slots for member in self.members)

    def addresses(self) -> dict[str, str]:
        return {member.host: member.address for member in self.members}


def compile_membership(
    directory: Iterable[Mapping[str, Any]], *, order: str = "model", names: str = MANAGEMENT
) -> Membership:
    """Select, name and order the nodes. Raises PlanError, listing every finding.

    `names` is `management`, or the rail interface (`rail0`) whose host names MPI uses.
    """
    compute = [node for node in directory if node["role"] == "compute"]
    active = [node for node in compute if not node["drained"]]
    connected = [node for node in active if node["rails"]]
    without = [str(node["name"]) for node in active if connected and not node["rails"]]
    active = connected or [node for node in active if node["slots"]]
    findings = []
    groups: dict[Any, list[HostfileNode]] = {}
    for node in active:
        name, address = str(node["name"]), str(node["management_address"])
        if names != MANAGEMENT:
            rail = next((rail for rail in node["rails"] if rail["interface"] == names), None)
            if rail is None:
                findings.append(f"{name}: has no rail {names!r}: set names to a rail of every node")
                continue
            name, address = rail_name(name, names), str(rail["address"])
        group = _group(node, order)
        if group is None:
            findings.append(f"{node['name']}: has no {order}: choose another order")
            continue
        groups.setdefault(group, []).append(HostfileNode(name, address, node))
    if not active:
        findings.append(
            f"no compute node is left for the hostfile ({len(compute)} in the inventory, all "
            "drained or without rails): return one to service (cluster_drained: false)"
        )
    refuse(findings)
    # Ordered by first appearance: the operator defines the order in the model, and rack10 would
    # sort before rack2.
    return Membership(
        tuple(member for group in groups.values() for member in group),
        tuple(str(node["name"]) for node in compute if node["drained"]),
        tuple(without),
    )


def _group(node: Mapping[str, Any], order: str) -> Any:
    """Key by which nodes are grouped, for rail groups the leaves of the rails; None if unknown."""
    if order == "model":
        return ""
    if order == "rack":
        return node.get("rack") or None
    leaves = tuple(
        # Without a leaf's name, the network of several nodes stands for it.
        rail.get("leaf") or (rail["network"] if int(rail["prefix"]) < 31 else None)
        for rail in node["rails"]
    )
    return leaves if leaves and all(leaves) else None


def render(membership: Membership, form: str, *, capped: bool = False) -> str:
    """Text of the file. `capped` adds `max_slots`, against oversubscription with Open MPI 5."""
    members, drained = membership.members, membership.drained
    lines = [
        f"# {HEADER}",
        f"# hosts {len(members)}, slots {membership.slots}, drained {len(drained)}",
        *(f"# drained: {name}" for name in drained),
        *(f"# without rails: {name}" for name in membership.without_rails),
    ]
    for member in members:
        if form == "openmpi":
            cap = f" max_slots={member.slots}" if capped else ""
            lines.append(f"{member.host} slots={member.slots}{cap}")
        elif form == "plain":
            lines += [member.host] * member.slots
        else:
            lines.append(f"{member.host}:{member.slots}")
    return "\n".join([*lines, ""])


def parse(text: str, form: str = "openmpi") -> dict[str, int]:
    """Slots by name. Raises ValueError with the first line in another format."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINES[form].fullmatch(line.strip())
        if match is None or match["host"] in found:
            why = f"is not of the format {form}, or repeats a host"
            raise ValueError(f"line {number}: {line!r} {why}")
        found[match["host"]] = int(match["slots"])
    return found


def refuse(findings: Sequence[str]) -> None:
    if findings:
        more = len(findings) - MAX_FINDINGS
        last = [f"... and {more} more"] if more > 0 else []
        raise PlanError("\n".join([*findings[:MAX_FINDINGS], *last]))


# Rank placement.


@dataclass(frozen=True)
class Placement:
    """One rank: its local number is that of its GPU, if its node has any; its cores are for a
    rankfile."""

    rank: int
    host: str
    local_rank: int
    rails: tuple[str, ...]
    gpu: bool = True
    cores: tuple[int, ...] = ()


def place(membership: Membership) -> list[Placement]:
    """Place each rank next to its GPU and rails, in the order of the hostfile. On a node without
    GPUs, rails are assigned as by rail-bind."""
    findings: list[str] = []
    placements: list[Placement] = []
    for member in membership.members:
        name, gpus = member.node["name"], int(member.node["gpus"])
        if not gpus:
            by_rank = rails_by_rank(rails_from_model(member.node["rails"]), member.slots)
            for local, own in enumerate(by_rank):
                rails = tuple(rail.interface for rail in own)
                place = Placement(len(placements), member.host, local, rails, gpu=False)
                placements.append(place)
            if not by_rank:
                findings.append(f"{name}: no GPUs and no rails: disable rank placement")
            continue
        if member.slots > gpus:
            findings.append(
                f"{name}: {member.slots} slots and {gpus} GPUs: rank k cannot have GPU k: "
                "set cluster_slots to at most the number of GPUs, or disable rank placement"
            )
        for local in range(member.slots):
            rails = tuple(str(rail["interface"]) for rail in _rails_of(member, local))
            if not rails and local < gpus:
                findings.append(
                    f"{name}: no rail belongs to GPU {local}: set gpu on one of its cluster_rails"
                )
            placements.append(Placement(len(placements), member.host, local, rails))
    refuse(findings)
    return placements


def _rails_of(member: HostfileNode, gpu: int) -> list[Mapping[str, Any]]:
    return [rail for rail in member.node["rails"] if rail["gpu"] == gpu]


def bind(
    membership: Membership, numa_cores: Mapping[str, Any], *, divided: bool = True
) -> list[Placement]:
    """Assign cores: all cores of the NUMA node of a rank's GPU, or its share of them.

    With shares, no two ranks use the same core, which Open MPI 5 refuses by default. The NUMA node
    of a GPU is that of its rail, because both are attached to one PCIe switch.
    """
    kinds = {str(member.node.get("kind", "")) for member in membership.members}
    try:
        cores_by_kind = {kind: logical_cores(of_kind(numa_cores, kind)) for kind in kinds}
    except ValueError as error:
        raise PlanError(f"cluster_numa_cores: {error}") from None
    findings: list[str] = []
    bindings: list[Placement] = []
    placements = iter(place(membership))
    for member in membership.members:
        name = str(member.node["name"])
        cores_of = cores_by_kind[str(member.node.get("kind", ""))]
        near = {rail["interface"]: rail["numa"] for rail in member.node["rails"]}
        placed = [next(placements) for _local in range(member.slots)]
        numas = [near[placement.rails[0]] for placement in placed]
        for local, (placement, numa) in enumerate(zip(placed, numas)):
            neighbours = [other for other, node_of_gpu in enumerate(numas) if node_of_gpu == numa]
            cores = cores_of.get(numa)
            if numa is None:
                findings.append(
                    f"{name}: the NUMA node of {'GPU' if placement.gpu else 'rank'} {local} is "
                    f"unknown: set {'gpus' if placement.gpu else 'rails'}.numa in cluster.yml, or "
                    "disable the rankfile (mpi_hostfile_rankfile: false)"
                )
            elif cores is None:
                findings.append(
                    f"{name}: the cores of NUMA node {numa} are not known: set cluster_numa_cores "
                    f"to the CPUs of each NUMA node as lscpu prints them, such as {{{numa}: "
                    "'0-27,56-83'}" + _below(member.node.get("kind"))
                )
            elif divided and len(cores) < len(neighbours):
                findings.append(
                    f"{name}: NUMA node {numa} has {len(cores)} cores for {len(neighbours)} ranks: "
                    "lower cluster_slots, or let ranks share cores "
                    "(mpi_hostfile_rankfile_cores: all)"
                )
            else:
                if divided:
                    part, parts = neighbours.index(local), len(neighbours)
                    cores = cores[len(cores) * part // parts : len(cores) * (part + 1) // parts]
                bindings.append(replace(placement, cores=cores))
    refuse(list(dict.fromkeys(findings)))
    return bindings


def _below(kind: Optional[str]) -> str:
    return f", or below {kind}: if kinds of nodes differ" if kind else ""


def of_kind(numa_cores: Mapping[Any, Any], kind: str) -> Mapping[Any, Any]:
    """The table of NUMA nodes for a kind of nodes. Raises ValueError if only some tables are below
    the name of a kind."""
    by_kind = [isinstance(value, Mapping) for value in numa_cores.values()]
    if not any(by_kind):
        return numa_cores
    if not all(by_kind):
        listed = ", ".join(map(str, numa_cores))
        raise ValueError(f"{listed}: write either NUMA nodes, or kinds of nodes with these below")
    table: Mapping[Any, Any] = numa_cores.get(kind, {})
    return table


def logical_cores(numa_cores: Mapping[Any, Any]) -> dict[int, tuple[int, ...]]:
    """hwloc's logical cores of each NUMA node, from the CPUs or the cores that lscpu prints for it.

    Linux numbers the second hyperthreads of all cores after the first ones. hwloc numbers the cores
    of one NUMA node after those of another, even if the kernel numbers them alternately. Raises
    ValueError for an invalid list.
    """
    wrong = [numa for numa in numa_cores if not str(numa).isdecimal()]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is not the number of a NUMA node")
    given = {int(numa): parse_cores(str(text)) for numa, text in numa_cores.items()}
    middle = {numa: len(cpus) // 2 for numa, cpus in given.items()}
    halves = [(cpus[: middle[numa]], cpus[middle[numa] :]) for numa, cpus in given.items()]
    distances = {two - one for half in halves for one, two in zip(*half)}
    if (
        len(distances) == 1
        and all(len(first) == len(second) for first, second in halves)
        and all(second[0] > first[-1] + 1 for first, second in halves)
        and min(distances) > max(first[-1] for first, _second in halves)
    ):
        given = {numa: cpus[: middle[numa]] for numa, cpus in given.items()}
    return _after_one_another(given, only_mixed=True)


def _after_one_another(
    cores: Mapping[int, Sequence[int]], *, only_mixed: bool = False
) -> dict[int, tuple[int, ...]]:
    """Renumber cores by NUMA node, in the order of the first core of each."""
    ordered = sorted((numa for numa in cores if cores[numa]), key=lambda numa: cores[numa][0])
    mixed = any(cores[one][-1] > cores[two][0] for one, two in zip(ordered, ordered[1:]))
    found: dict[int, tuple[int, ...]] = {}
    start = 0
    for numa in ordered:
        end = start + len(cores[numa])
        found[numa] = tuple(cores[numa]) if only_mixed and not mixed else tuple(range(start, end))
        start = end
    return found


def cores_checks(node: Node, numa_cores: Mapping[Any, Any], kind: str = "") -> list[Check]:
    """Check that the rankfile's cores from `cluster_numa_cores` belong to the NUMA nodes of this
    host."""
    name = "numa_cores"
    if not numa_cores:
        return []
    if node.container:
        return [not_applicable(name, None, IN_CONTAINER)]
    try:
        wanted = logical_cores(of_kind(numa_cores, kind))
    except ValueError as error:
        return [Check(name, "a list of CPUs", "none", FAILED, "", f"cluster_numa_cores: {error}")]
    cpus, firsts = {}, {}
    for folder in node.path("sys/devices/system/node").glob("node[0-9]*"):
        text = node.read(f"{folder.relative_to(node.root)}/cpulist") or ""
        siblings = folder.glob("cpu[0-9]*/topology/thread_siblings_list")
        numa = int(folder.name[len("node") :])
        cpus[numa] = text.strip()
        firsts[numa] = sorted(
            {parse_cores(path.read_text("ascii").strip())[0] for path in siblings}
        )
    here = _after_one_another(firsts)
    known = {numa: ranges(own) for numa, own in sorted(here.items())}
    result = []
    for numa, given in sorted(wanted.items()):
        subject, found = f"NUMA node {numa}", ranges(given)
        if set(given) <= set(here.get(numa, ())):
            result.append(Check(name, found, found, OK, subject))
            continue
        reason = f"this node has CPUs {cpus.get(numa) or 'none'} there"
        hand = f"set cluster_numa_cores to {known}, then run --tags hostfile"
        hand += _below(kind) or "; nodes that differ need separate rankfiles, or rail-bind instead"
        asked = f"of the cores {known.get(numa) or 'none'}"
        result.append(Check(name, asked, found, FAILED, subject, reason, by_hand=hand))
    return result


def parse_cores(text: str) -> tuple[int, ...]:
    """Cores of a list such as `0-27,56-83`. Raises ValueError for other text."""
    cores: set[int] = set()
    for part in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"{text!r} is not a list of cores such as '0-27,56-83'")
        cores.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(cores))


def render_rankfile(bindings: Sequence[Placement]) -> str:
    """Rankfile in a syntax that Open MPI 4 and 5 both read."""
    five = "Open MPI 5: mpirun --map-by rankfile:file=FILE"
    how = f"# {len(bindings)} ranks. Open MPI 4: mpirun --rankfile FILE; {five}"
    lines = (f"rank {each.rank}={each.host} slot={ranges(each.cores)}" for each in bindings)
    return "\n".join([f"# {HEADER}", how, *lines, ""])


def render_rankmap(placements: Sequence[Placement]) -> str:
    """Table of the GPU and rails of each rank, one line per rank, for launch wrappers; `-` is no
    GPU."""
    lines = [f"# {HEADER}", "# rank host local_rank gpu rails"]
    for each in placements:
        rails = ",".join(each.rails)
        gpu = each.local_rank if each.gpu else "-"
        lines.append(f"{each.rank} {each.host} {each.local_rank} {gpu} {rails}")
    return "\n".join(lines) + "\n"
