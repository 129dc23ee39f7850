# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The MPI hostfile: which hosts, how many ranks each, in which order, in which syntax.

Compiled from the directory of the whole cluster, never from the hosts of a run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..core.dataclass import dataclass
from ..core.files import HEADER
from ..core.part import PlanError

FORMATS = ("openmpi", "intelmpi", "mpich", "plain")
"""`intelmpi` and `mpich` are one syntax: both launch with Hydra."""
ORDERS = ("model", "rack", "rail_group")
MANAGEMENT = "management"
"""The default names: mpirun's own traffic stays out of band."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
SHOWN = 20
"""Findings that a refusal lists."""
_LINE = re.compile(r"(?P<host>\S+) slots=(?P<slots>\d+)(?: max_slots=\d+)?")


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
    """The nodes that take part, in the order of their ranks, and those left out."""

    members: tuple[Member, ...]
    drained: tuple[str, ...]

    @property
    def slots(self) -> int:
        return sum(member.slots for member in self.members)

    def addresses(self) -> dict[str, str]:
        """The address that each name in the file must resolve to."""
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
    """Choose the nodes, name and order them. Raises PlanError with every finding at once.

    `names` is `management`, or the interface of a rail (`rail0`) whose names MPI is to use.
    """
    compute = [node for node in directory if node["role"] == "compute"]
    active = [node for node in compute if not node["drained"]]
    findings = _order_findings(active, order)
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
    refuse(findings)
    return Membership(
        tuple(_ordered(members, order)),
        tuple(str(node["name"]) for node in compute if node["drained"]),
    )


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


def render(membership: Membership, form: str, *, capped: bool = False) -> str:
    """The file's text. `plain` repeats the name, one line per rank.

    `capped` forbids oversubscription (`max_slots`, which only Open MPI 5 enforces).
    """
    members, drained = membership.members, membership.drained
    lines = [
        f"# {HEADER}",
        f"# hosts {len(members)}, slots {membership.slots}, drained {len(drained)}",
        *(f"# drained: {name}" for name in drained),
    ]
    for member in members:
        if form == "openmpi":
            cap = f" max_slots={member.slots}" if capped else ""
            lines.append(f"{member.host} slots={member.slots}{cap}")
        elif form == "plain":
            lines.extend([member.host] * member.slots)
        else:
            lines.append(f"{member.host}:{member.slots}")
    return "\n".join(lines) + "\n"


def parse(text: str) -> dict[str, int]:
    """Slots by name of a hostfile of Open MPI. Raises ValueError with the line that is none."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None or match["host"] in found:
            raise ValueError(f"line {number}: {line!r} is not of the format openmpi, or again")
        found[match["host"]] = int(match["slots"])
    return found


def refuse(findings: Sequence[str]) -> None:
    if findings:
        more = [f"... and {len(findings) - SHOWN} more"] if len(findings) > SHOWN else []
        raise PlanError("\n".join([*findings[:SHOWN], *more]))
