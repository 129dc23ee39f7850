# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links between tiers of switches: who connects to whom, and at which of its ports.

Every switch has a place: its unit, plane and group. A rule connects the switches of two tiers that
agree in the attributes by which it divides them. Ports are counted in the order of the peers, so a
peer that is added at the end moves no cable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import counted, some
from ..schema.findings import Findings, Path
from .switches import SwitchKind

TIERS = {"leaves": "leaf", "spines": "spine", "super_spines": "super_spine"}
"""Tiers by the key of the model that describes their switches, from below."""
DIVISIONS = ("unit", "plane", "group")
"""What divides switches, from the slowest: another unit at the end moves no other."""


@dataclass(frozen=True)
class Place:
    """Where a switch belongs, from 0; None if to all, or to none."""

    unit: Optional[int] = None
    plane: Optional[int] = None
    group: Optional[int] = None
    leaf_set: Optional[int] = None


def place_groups(tier: str, place: Place) -> list[str]:
    """Groups of the inventory that a tier and a place form, in addition to `leaf` and `spine`."""
    groups = [] if tier in ("leaf", "spine") else [tier]
    groups += [] if place.unit is None else [f"unit_{place.unit + 1}"]
    return groups if place.plane is None else [*groups, f"plane_{place.plane}"]


class SwitchPorts(NamedTuple):
    """Names of the ports of a switch, in order."""

    down: Sequence[str]
    """To nodes or to the tier below."""
    up: Sequence[str]


@dataclass
class Tier:
    """Switches of one key of the model, in order."""

    path: Path
    places: list[Place]
    uplink_ports: Optional[int] = None
    """Ports reserved for uplinks at the end, whether used or not."""
    uplinks: list[int] = field(default_factory=list)
    """Number of links of each switch to a higher tier."""
    downlinks: list[int] = field(default_factory=list)
    """Number of links of each switch to a lower tier."""

    def __post_init__(self) -> None:
        self.uplinks, self.downlinks = ([0] * len(self.places) for _ in range(2))

    @property
    def reserved(self) -> int:
        """Number of the last ports of each switch that only uplinks use."""
        return max(self.uplinks) if self.uplink_ports is None else self.uplink_ports

    def ports(self, kind: SwitchKind) -> SwitchPorts:
        """Without a list for each purpose, uplinks have the last ports."""
        first = len(kind.ports) - self.reserved
        down = kind.ports_for("nodes" if self.name == "leaves" else "downlinks")
        up = kind.ports_for("uplinks")
        return SwitchPorts(
            kind.ports[:first] if down is None else down, kind.ports[first:] if up is None else up
        )

    @property
    def name(self) -> str:
        return str(self.path[-1])


@dataclass(frozen=True)
class Pair:
    """A lower and a higher switch, and the first of their ports among uplinks and downlinks."""

    lower: int
    upper: int
    up: int
    down: int


@dataclass(frozen=True)
class Rule:
    """Every pair has the same number of links."""

    lower: Tier
    upper: Tier
    links: int
    speed_gbps: int
    divided_by: Sequence[str]
    pairs: Sequence[Pair]


def several_planes(places: Sequence[Place]) -> bool:
    """Whether the switches are of several planes, each of exactly one."""
    planes = {place.plane for place in places}
    return len(planes) > 1 and None not in planes


def connect(
    lower: Tier, path: Path, keys: dict[str, Any], links: int, speed: int, findings: Findings
) -> Optional[Rule]:
    """The links of all switches of `lower` to those of the section `path`; None if unclear."""
    divided = keys["divided_by"]
    if divided is None:
        divided = ["plane"] if several_planes(lower.places) else []
    places = lower.places
    missing = [one for one in divided if any(getattr(place, one) is None for place in places)]
    if groups := keys["groups"]:
        problem = ""
        if "group" not in divided:
            problem = f"has no effect unless group is in {path[-1]}.divided_by"
        elif "group" in missing:
            missing.remove("group")
            places = _dealt(places, groups)
            if not places:
                problem = f"{lower.name} of a set and plane do not form {groups} equal groups"
        elif groups != (there := len({place.group for place in places})):
            problem = f"{lower.name} are in {counted(there, 'group')} already"
        if problem:
            remedy = "Choose a divisor of their number, or remove it"
            findings.add("model.switch_groups", (*path, "groups"), problem, remedy, groups)
            return None
    if missing:
        problem = f"{lower.name} have no {some(missing)} in common with {path[-1]}"
        remedy = _REMEDIES.get(missing[0], "").format(path[-1]) or f"Divide {lower.name} by it too"
        findings.add("model.divided_by", (*path, "divided_by"), problem, remedy, missing[0])
        return None
    order = [one for one in DIVISIONS if one in divided]
    sizes = [max(getattr(place, one) for place in places) + 1 for one in order]
    classes, count = prod(sizes), keys["count"]
    if count % classes:
        parts = " and ".join(counted(size, one) for one, size in zip(order, sizes))
        problem = f"{count} switches cannot be divided equally among {parts}"
        remedy = f"Use a multiple of {classes}, or another {path[-1]}.divided_by ([]: connect all)"
        findings.add("model.undivided", (*path, "count"), problem, remedy, (count, classes))
        return None
    each = count // classes
    blocks = [Place(**_coordinates(number // each, order, sizes)) for number in range(count)]
    upper = Tier(path, blocks, keys.get("uplink_ports"))
    pairs = []
    for number, place in enumerate(places):
        block = 0
        for one, size in zip(order, sizes):
            block = block * size + getattr(place, one)
        for peer in range(block * each, (block + 1) * each):
            pairs.append(Pair(number, peer, lower.uplinks[number], upper.downlinks[peer]))
            lower.uplinks[number] += links
            upper.downlinks[peer] += links
    return Rule(lower, upper, links, speed, divided, pairs)


_REMEDIES = {
    "plane": "A leaf must have rails of one plane (leaves.rail_to_leaf). Otherwise remove plane",
    "group": "Write their number as {}.groups",
}


def _dealt(places: Sequence[Place], groups: int) -> list[Place]:
    """The switches of each set and plane, in order, in equal groups; empty if impossible."""
    cells: dict[Place, list[int]] = {}
    for number, place in enumerate(places):
        cells.setdefault(place, []).append(number)
    dealt = list(places)
    for place, members in cells.items():
        if len(members) % groups:
            return []
        for position, number in enumerate(members):
            dealt[number] = replace(place, group=position * groups // len(members))
    return dealt


def _coordinates(block: int, order: Sequence[str], sizes: Sequence[int]) -> dict[str, int]:
    found = {}
    for one, size in zip(reversed(order), reversed(sizes)):
        block, found[one] = divmod(block, size)
    return found
