# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI hostfile: which hosts, how many ranks each, in which order, in whose syntax.

Compiled from the directory of the whole cluster, never from the hosts of a run. `compile_hostfile`
decides, `render` writes, `parse` reads back what was written: parse(render(x)) == x.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.dataclass import dataclass
from ..core.files import HEADER

FORMATS = ("openmpi", "intelmpi", "mpich", "plain")
"""`intelmpi` and `mpich` are one syntax: both launch with Hydra."""
ORDERS = ("model", "rack", "rail_group")
MANAGEMENT = "management"
"""The default names: mpirun's own traffic stays out of band."""

KEYWORDS = frozenset(
    [
        "boards",
        "cores",
        "count",
        "cpu",
        "max_slots",
        "port",
        "rank",
        "slot",
        "slots",
        "sockets",
        "username",
    ]
)
"""Words Open MPI's hostfile reader takes for something else than a host."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_DRAINED = "# drained: "
_LINES = {
    "openmpi": re.compile(r"(?P<host>\S+) slots=(?P<slots>\d+)(?: max_slots=(?P<cap>\d+))?"),
    "intelmpi": re.compile(r"(?P<host>[^\s:]+):(?P<slots>\d+)"),
    "mpich": re.compile(r"(?P<host>[^\s:]+):(?P<slots>\d+)"),
    "plain": re.compile(r"(?P<host>[^\s:=]+)"),
}


class HostfileError(ValueError):
    """What is wrong, one finding per line, each with the way out; of many, the first."""

    SHOWN = 20

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        more = len(self.findings) - self.SHOWN
        tail = [f"... and {more} more"] if more > 0 else []
        super().__init__("\n  ".join([*self.findings[: self.SHOWN], *tail]))


@dataclass(frozen=True)
class Entry:
    """One host of the file and its number of ranks."""

    host: str
    slots: int


@dataclass(frozen=True)
class Hostfile:
    """What a hostfile says, whatever its syntax.

    `drained` are the nodes left out, by name. `capped` forbids oversubscription (`max_slots`, which
    only Open MPI's syntax can say, and only Open MPI 5 enforces).
    """

    entries: tuple[Entry, ...]
    drained: tuple[str, ...] = ()
    capped: bool = False

    @property
    def slots(self) -> int:
        return sum(entry.slots for entry in self.entries)


@dataclass(frozen=True)
class Member:
    """A compute node that takes part: its entry in the directory, and the name MPI calls it by."""

    host: str
    address: str
    node: Mapping[str, Any]

    @property
    def slots(self) -> int:
        return int(self.node["slots"])


@dataclass(frozen=True)
class Membership:
    """Who takes part, in the order of their ranks, and who is left out."""

    members: tuple[Member, ...]
    drained: tuple[str, ...]

    def hostfile(self, capped: bool) -> Hostfile:
        entries = tuple(Entry(member.host, member.slots) for member in self.members)
        return Hostfile(entries, self.drained, capped)

    def addresses(self) -> dict[str, str]:
        """The address each name in the file has to resolve to."""
        return {member.host: member.address for member in self.members}


def rail_name(node: str, interface: str) -> str:
    """The name of one rail of one node: `node01-rail0`, `node01-rail3p1`."""
    return f"{node}-{interface}"


def is_host_name(name: str) -> bool:
    """Whether `name` is a host name (RFC 1123) that is not merely a number."""
    return len(name) <= 253 and not name.isdigit() and _NAME.fullmatch(name) is not None


def compile_membership(
    directory: Iterable[Mapping[str, Any]], *, order: str = "model", names: str = MANAGEMENT
) -> Membership:
    """Choose the nodes, name and order them. Raises HostfileError with every finding at once.

    `names` is `management`, or the interface of a rail (`rail0`) whose names MPI is to use.
    """
    compute = [node for node in directory if node["role"] == "compute"]
    active = [node for node in compute if not node["drained"]]
    findings = [*_node_findings(compute), *_order_findings(active, order)]
    members = []
    for node in active:
        host, address = _name_and_address(node, names)
        if not address:
            have = ", ".join(str(rail["interface"]) for rail in node["rails"]) or "none"
            findings.append(
                f"{node['name']}: has no rail {names!r} to be named by (its rails: {have}): "
                f"set names to {MANAGEMENT!r} or to a rail every node has"
            )
            continue
        members.append(Member(host, address, node))
    if not active:
        drained = f", {len(compute)} drained" if compute else ""
        findings.append(
            f"no compute node is left for the hostfile ({len(compute)} in the inventory{drained}): "
            "put one back in service (cluster_drained: false)"
        )
    if findings:
        raise HostfileError(findings)
    return Membership(
        tuple(_ordered(members, order)),
        tuple(str(node["name"]) for node in compute if node["drained"]),
    )


def _node_findings(compute: Iterable[Mapping[str, Any]]) -> list[str]:
    findings = []
    seen: set[str] = set()
    for node in compute:
        name, slots = str(node["name"]), node["slots"]
        if name in seen:
            findings.append(f"{name}: listed twice: give each node a name of its own")
        seen.add(name)
        if not is_host_name(name):
            findings.append(
                f"{name!r}: not a host name: use letters, digits and hyphens, not digits alone"
            )
        elif name in KEYWORDS:
            findings.append(f"{name}: a keyword of Open MPI's hostfiles: rename the node")
        whole = isinstance(slots, int) and not isinstance(slots, bool)
        if not node["drained"] and (not whole or slots < 1):
            findings.append(
                f"{name}: has {slots!r} slots: set cluster_slots to the ranks it can take (1 or "
                "more), or take it out with cluster_drained: true"
            )
    return findings


def _order_findings(active: Iterable[Mapping[str, Any]], order: str) -> list[str]:
    if order == "rack":
        return [
            f"{node['name']}: has no rack, and the order is by rack: set cluster_rack"
            for node in active
            if not node.get("rack")
        ]
    if order == "rail_group":
        return [
            f"{node['name']}: its leaves are not known, and the order is by rail group: "
            "choose the order model or rack"
            for node in active
            if not _rail_group(node)
        ]
    return []


def _name_and_address(node: Mapping[str, Any], names: str) -> tuple[str, str]:
    if names == MANAGEMENT:
        return str(node["name"]), str(node["management_address"])
    for rail in node["rails"]:
        if rail["interface"] == names:
            return rail_name(str(node["name"]), names), str(rail["address"])
    return "", ""


def _rail_group(node: Mapping[str, Any]) -> tuple[str, ...]:
    """The leaves a node hangs on, in the order of its rails; empty when that is not known.

    Without named leaves the rail's network stands for its leaf, unless it is a link of two.
    """
    group = []
    for rail in node["rails"]:
        leaf = rail.get("leaf") or (rail["network"] if int(rail["prefix"]) < 31 else None)
        if not leaf:
            return ()
        group.append(str(leaf))
    return tuple(group)


def _ordered(members: Sequence[Member], order: str) -> list[Member]:
    """Members of one rack or rail group together; groups, and nodes in one, as the model has them.

    By first appearance and not by name: the model's order is the operator's, and rack10 is not
    before rack2.
    """
    if order == "model":
        return list(members)
    groups: dict[Any, list[Member]] = {}
    for member in members:
        key = member.node["rack"] if order == "rack" else _rail_group(member.node)
        groups.setdefault(key, []).append(member)
    return [member for group in groups.values() for member in group]


def render(hostfile: Hostfile, form: str) -> str:
    """The file's text. `plain` says slots by repeating the name, one line per rank."""
    lines = [
        f"# {HEADER}",
        f"# hosts {len(hostfile.entries)}, slots {hostfile.slots}, drained {len(hostfile.drained)}",
        *(f"{_DRAINED}{name}" for name in hostfile.drained),
    ]
    for entry in hostfile.entries:
        if form == "openmpi":
            cap = f" max_slots={entry.slots}" if hostfile.capped else ""
            lines.append(f"{entry.host} slots={entry.slots}{cap}")
        elif form == "plain":
            lines.extend([entry.host] * entry.slots)
        else:
            lines.append(f"{entry.host}:{entry.slots}")
    return "\n".join(lines) + "\n"


def parse(text: str, form: str) -> Hostfile:
    """What a hostfile says. Raises HostfileError with the line that is not of this format."""
    pattern = _LINES[form]
    slots: dict[str, int] = {}
    drained: list[str] = []
    caps: list[bool] = []
    previous = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(_DRAINED):
            drained.append(line[len(_DRAINED) :].strip())
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = pattern.fullmatch(line.strip())
        if match is None:
            raise HostfileError([f"line {number}: {line!r} is not of the format {form}"])
        host = match["host"]
        if host in slots and not (form == "plain" and host == previous):
            raise HostfileError([f"line {number}: {host} is listed twice"])
        if form == "plain":
            slots[host] = slots.get(host, 0) + 1
        else:
            slots[host] = int(match["slots"])
        if form == "openmpi":
            caps.append(match["cap"] is not None)
        previous = host
    entries = tuple(Entry(host, number) for host, number in slots.items())
    return Hostfile(entries, tuple(drained), bool(caps) and all(caps))
