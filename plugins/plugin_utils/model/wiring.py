# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Links between tiers of switches: who connects to whom, and at which of its ports.

Every switch has a place: its unit, plane and group. A rule connects the switches of two tiers that
agree in the attributes by which it divides them. Ports are counted in the order of the peers, so a
peer that is added at the end moves no cable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from math import prod
from typing import Any, NamedTuple, Optional, Union

from ...module_utils.core.text import counted, nearest, some
from ..fabric.port_names import MAX_NAMES
from ..schema.findings import Findings, Path
from .switches import DOWNLINKS, NODES, PEERS, UPLINKS, SwitchKind

LEAF = "leaf"
DIVISIONS = ("unit", "plane", "group")
"""What divides switches, from the slowest: another unit at the end moves no other."""


@dataclass(frozen=True)
class Place:
    """Where a switch belongs, from 0; None if to all, or to none."""

    unit: Optional[int] = None
    plane: Optional[int] = None
    group: Optional[int] = None
    leaf_set: Optional[int] = None

    def common(self, other: Place) -> Place:
        """What both have in common."""
        return Place(*(a if a == b else None for a, b in zip(astuple(self), astuple(other))))


def place_groups(tier: str, place: Place) -> list[str]:
    """Groups of the inventory that a tier and a place form, in addition to `leaf` and `spine`."""
    groups = [] if tier in (LEAF, "spine") else [tier]
    groups += [] if place.unit is None else [f"unit_{place.unit + 1}"]
    return groups if place.plane is None else [*groups, f"plane_{place.plane}"]


class SwitchPorts(NamedTuple):
    """Names of the ports of a switch, in order."""

    down: Sequence[str]
    """To nodes or to the tier below."""
    up: Sequence[str]


@dataclass
class SwitchGroup:
    """Switches of one key of the model, in order."""

    name: str
    path: Path
    tier: str
    """`leaf`, `spine`, `super_spine` or a further one; also the group of the inventory."""
    keys: dict[str, Any]
    places: list[Place] = field(default_factory=list)
    """Of leaves, as soon as their sets are known; of others, from the links to the tier below."""
    uplinks: list[int] = field(default_factory=list)
    """Number of links of each switch to a higher tier."""
    downlinks: list[int] = field(default_factory=list)
    """Number of links of each switch to a lower tier."""

    def __post_init__(self) -> None:
        self.uplinks, self.downlinks = ([0] * self.keys["count"] for _ in range(2))
        self.places = [Place(**self.fixed)] * self.keys["count"]

    @property
    def fixed(self) -> dict[str, int]:
        """Attributes of all switches that the model writes."""
        written = {one: self.keys.get(one) for one in ("unit", "plane")}
        return {one: value - (one == "unit") for one, value in written.items() if value is not None}

    @property
    def names(self) -> dict[str, Sequence[str]]:
        """Names of ports by purpose; empty without, and if they have errors."""
        return self.keys["purposes"] if self.keys["ports"] < MAX_NAMES else {}

    @property
    def management(self) -> list[int]:
        """The management address of each switch."""
        return self._each("management_first")

    @property
    def bmcs(self) -> list[int]:
        """The BMC of each switch; empty without."""
        return self._each("bmc_first")

    def _each(self, key: str) -> list[int]:
        first: Union[int, list[int], None] = self.keys[key]
        if isinstance(first, list):
            return first
        return [] if first is None else [first + number for number in range(self.keys["count"])]

    @property
    def kind(self) -> str:
        """The kind of all nodes of these leaves; empty if they may differ."""
        return self.keys.get("kind") or ""

    @property
    def uplink_ports(self) -> Optional[int]:
        """Number of ports for uplinks that the model writes."""
        return len(self.names[UPLINKS]) if self.names else self.keys.get("uplink_ports")

    @property
    def reserved(self) -> int:
        """Number of the last ports of each switch that only uplinks use."""
        pinned = self.uplink_ports
        return max(self.uplinks) if pinned is None else pinned

    @property
    def lower_ports(self) -> int:
        """Number of ports for nodes, or for the tier below."""
        if self.names:
            return len(self.names[NODES if self.tier == LEAF else DOWNLINKS])
        return int(self.keys["ports"]) - self.reserved

    def ports(self, kind: SwitchKind) -> SwitchPorts:
        """Without a list for each purpose, uplinks have the last ports."""
        first = len(kind.ports) - self.reserved
        down = kind.ports_for(NODES if self.tier == LEAF else DOWNLINKS)
        up = kind.ports_for(UPLINKS)
        return SwitchPorts(
            kind.ports[:first] if down is None else down, kind.ports[first:] if up is None else up
        )


Switch = tuple[str, int]
"""The name of its group, and its number in that."""


class Pair(NamedTuple):
    """A lower and a higher switch, and the first of their ports among uplinks and downlinks."""

    lower: Switch
    upper: int
    up: int
    down: int


@dataclass
class Rule:
    """The links from switches of some groups to those of a higher one; each pair has as many."""

    path: Path
    lowers: tuple[str, ...]
    upper: str
    links: int
    speed_gbps: int
    divided_by: Optional[list[str]]
    groups: Optional[int]
    port_channel: Optional[str] = None
    """Pattern of the names of port channels, empty if any name fits; None: links are apart."""
    mlag: bool = False
    """Whether a pair of switches is one end of a port channel."""
    each: int = 0
    """Number of higher switches of each lower one."""
    ends: list[tuple[Switch, int, int]] = field(default_factory=list)
    """Every lower switch, its first higher one, and the first of its ports."""
    first_ports: list[int] = field(default_factory=list)
    """By higher switch."""

    def pairs(self) -> Iterator[Pair]:
        down = list(self.first_ports)
        for lower, first, up in self.ends:
            for index, peer in enumerate(range(first, first + self.each)):
                yield Pair(lower, peer, up + index * self.links, down[peer])
                down[peer] += self.links


@dataclass
class Fabric:
    """The switches of the model, and the links between them."""

    groups: dict[str, SwitchGroup]
    rules: list[Rule]

    def speeds(self, group: SwitchGroup, of_nodes: int) -> dict[str, int]:
        """The highest speed of ports by purpose, except those to storage hosts."""
        up = [rule.speed_gbps for rule in self.rules if group.name in rule.lowers]
        down = [rule.speed_gbps for rule in self.rules if group.name == rule.upper]
        lower = max(down, default=of_nodes)
        found = {NODES if group.tier == LEAF else DOWNLINKS: lower, PEERS: lower}
        return {**found, UPLINKS: max(up)} if up else found

    @property
    def leaves(self) -> list[SwitchGroup]:
        return [group for group in self.groups.values() if group.tier == LEAF]


def read_fabric(model: dict[str, Any], findings: Findings) -> Optional[Fabric]:
    """The switches of a model, in its short or its full form; None if there are findings."""
    before, short = len(findings.found), [key for key in _SHORT if model[key]]
    full = [key for key in ("switches", "links") if model[key]]
    if (short and full) or not {"leaves", "switches"}.intersection((*short, *full)):
        problem = f"the model has {some([*short, *full])}"
        problem = problem if short or full else "the model has neither leaves nor switches"
        remedy = "Write leaves, with spines and super_spines if there are any; or switches and "
        remedy += "links in their place"
        found = (*short, *full)
        findings.add("model.leaves_or_switches", found[-1:], problem, remedy, found)
        return None
    if "super_spines" in short and "spines" not in short:
        problem, remedy = "there are no spines to connect", "Write spines, or call these spines"
        findings.add("model.tier_missing", ("super_spines",), problem, remedy)
    fabric = _full(model, findings) if model["switches"] else _short(model)
    return fabric if len(findings.found) == before else None


_SHORT = {"leaves": LEAF, "spines": "spine", "super_spines": "super_spine"}
"""Tiers by the key of the short form, from below, each connected to the preceding one."""
_LEAF_KEYS = ("rail_to_leaf", "nodes_per_set", "sets_per_unit", "nodes", "kind", "pool")
_MAX_SWITCHES = 30_000
"""In three groups of the highest count."""
_MAX_ENTRIES = 1000
"""Of `switches`, and of `links`."""
MAX_LINKS = 400_000
"""Links between switches: 10,000 nodes with 8 rails of 2 planes below three tiers of the same
capacity have 320,000."""
_OTHER_KEYS = ("unit", "plane", "speed_gbps")
_OF_RULES = ("divided_by", "groups", "port_channel", "mlag")


def _short(model: dict[str, Any]) -> Fabric:
    written = [key for key in _SHORT if model[key]]
    groups = {key: SwitchGroup(key, (key,), _SHORT[key], model[key]) for key in written}
    rules, speed = [], model["rails"]["speed_gbps"]
    for lower, upper in zip(written, written[1:]):
        keys = model[upper]
        links = keys.get("links_per_leaf") or keys.get("links_per_spine")
        speed = keys["speed_gbps"] or speed
        of_rule = {key: keys[key] for key in _OF_RULES}
        rules.append(Rule((upper,), (lower,), upper, links, speed, **of_rule))
    return Fabric(groups, rules)


def _full(model: dict[str, Any], findings: Findings) -> Optional[Fabric]:
    total = sum(keys["count"] for keys in model["switches"].values())
    counts = [("switches", "switch", total, _MAX_SWITCHES)]
    for key in ("switches", "links"):
        counts.append((key, "entry", len(model[key]), _MAX_ENTRIES))
    above = [each for each in counts if each[2] > each[3]]
    for key, what, count, most in above:
        problem = counted(count, what, "switches" if what == "switch" else "entries")
        code, remedy = "model.too_many_switches", f"Write up to {most}"
        findings.add(code, (key,), problem, remedy, count)
    if above:
        return None
    groups = {}
    for name, written in model["switches"].items():
        if not re.fullmatch(r"[a-z][a-z0-9_-]{0,39}", name):
            problem, remedy = f"{name!r} is not a name", "Use a to z, 0 to 9, - and _"
            findings.add("model.name_of_switches", ("switches", name), problem, remedy, name)
        keys = {**written, "name": written["name"] or f"{name.replace('_', '-')}{{:02d}}"}
        groups[name] = SwitchGroup(name, ("switches", name), keys["tier"], keys)
        for key in _OTHER_KEYS if keys["tier"] == LEAF else _LEAF_KEYS:
            if keys[key] is not None:
                problem = f"has no effect on switches of tier {keys['tier']}"
                remedy = "Remove it, or correct the tier"
                path: Path = ("switches", name, key)
                findings.add("model.key_of_other_tier", path, problem, remedy, key)
    rules = []
    for index, link in enumerate(model["links"]):
        path = ("links", index)
        lowers = dict.fromkeys(link["from"] if isinstance(link["from"], list) else [link["from"]])
        for key, name in [*(("from", name) for name in lowers or ("",)), ("to", link["to"])]:
            if name not in groups:
                problem, remedy = f"{name!r} is not in switches", nearest(name, groups)
                findings.add("model.unknown_switches", (*path, key), problem, remedy, name)
        upper = groups.get(link["to"])
        speed = link["speed_gbps"] or (upper and upper.keys["speed_gbps"])
        speed = speed or model["rails"]["speed_gbps"]
        of_rule = {key: link[key] for key in _OF_RULES}
        ends = tuple(lowers), link["to"]
        rules.append(Rule(path, *ends, link["count"], speed, **of_rule))
    if not any(group.tier == LEAF for group in groups.values()):
        problem, remedy = "no group has the tier leaf", "Write tier: leaf for those with nodes"
        findings.add("model.no_leaves", ("switches",), problem, remedy)
    return Fabric(groups, _in_order(rules, groups, findings))


def _in_order(rules: list[Rule], groups: dict[str, SwitchGroup], findings: Findings) -> list[Rule]:
    """From below: the place of a switch follows from the links to lower ones."""
    ordered: list[Rule] = []
    waiting = list(rules)
    while waiting:
        above = {rule.upper for rule in waiting}
        ready = [rule for rule in waiting if above.isdisjoint(rule.lowers)]
        ready = [rule for rule in ready if rule.upper not in groups or not _is_leaf(rule, groups)]
        if not ready:
            rule = waiting[0]
            problem = f"links from {some(rule.lowers)} to {rule.upper} lead down, or in a circle"
            remedy = "Write links from the lower tier to the higher one; leaves have none below"
            if rule.upper in rule.lowers:
                remedy = "Of pairs of switches (MLAG), write ports by purpose, with peers"
            findings.add("model.links_down", rule.path, problem, remedy, rule.upper)
            return []
        ordered += ready
        done = {rule.path for rule in ready}
        waiting = [rule for rule in waiting if rule.path not in done]
    return ordered


def _is_leaf(rule: Rule, groups: dict[str, SwitchGroup]) -> bool:
    return groups[rule.upper].tier == LEAF


def several_planes(places: Sequence[Place]) -> bool:
    """Whether the switches are of several planes, each of exactly one."""
    planes = {place.plane for place in places}
    return len(planes) > 1 and None not in planes


def connect(fabric: Fabric, rule: Rule, findings: Findings) -> None:
    """Connect the lower switches to the higher ones, and give these their places."""
    upper, path = fabric.groups[rule.upper], rule.path
    key = upper.name if path[0] == "links" else str(path[0])
    switches = [
        (name, number) for name in rule.lowers for number in range(len(fabric.groups[name].places))
    ]
    places = [fabric.groups[name].places[number] for name, number in switches]
    below = some(rule.lowers)
    fixed = upper.fixed
    divided = rule.divided_by
    if divided is None:
        divided = ["plane"] if several_planes(places) or "plane" in fixed else []
    missing = [one for one in divided if any(getattr(place, one) is None for place in places)]
    if groups := rule.groups:
        problem = ""
        if "group" not in divided:
            problem = "has no effect unless group is in divided_by"
        elif "group" in missing:
            missing.remove("group")
            places = _dealt(places, groups)
            if not places:
                problem = f"{below} of a set and plane do not form {groups} equal groups"
        elif groups != (there := len({place.group for place in places})):
            problem = f"{below} are in {counted(there, 'group')} already"
        if problem:
            remedy = "Choose a divisor of their number, or remove it"
            findings.add("model.switch_groups", (*path, "groups"), problem, remedy, groups)
            return
    if missing:
        problem = f"{below} have no {some(missing)} in common with {key}"
        remedy = f"Divide {below} by it too"
        if missing[0] == "group" or fabric.groups[rule.lowers[0]].tier == LEAF:
            remedy = _REMEDIES.get(missing[0], remedy)
        findings.add("model.divided_by", (*path, "divided_by"), problem, remedy, missing[0])
        return
    chosen = [
        number
        for number, place in enumerate(places)
        if all(getattr(place, one) == fixed[one] for one in fixed if one in divided)
    ]
    order = [one for one in DIVISIONS if one in divided and one not in fixed]
    sizes = [max(getattr(places[number], one) for number in chosen) + 1 for one in order if chosen]
    classes, count = prod(sizes), upper.keys["count"]
    if not chosen or count % classes:
        parts = " and ".join(counted(size, one) for one, size in zip(order, sizes))
        problem = f"{count} switches cannot be divided equally among {parts}"
        remedy = f"Use a multiple of {classes}, or another divided_by ([]: connect all)"
        if not chosen:
            classes, problem = 0, f"no switch of {below} is in its unit and plane"
            remedy = "Correct unit (from 1) or plane (from 0)"
        findings.add("model.undivided", (*upper.path, "count"), problem, remedy, (count, classes))
        return
    each = rule.each = count // classes
    found = [
        Place(**{**fixed, **_coordinates(number // each, order, sizes)}) for number in range(count)
    ]
    if any(upper.downlinks):
        found = [one.common(other) for one, other in zip(upper.places, found)]
    upper.places = found
    rule.first_ports, members = list(upper.downlinks), [0] * classes
    for number in chosen:
        block = 0
        for one, size in zip(order, sizes):
            block = block * size + getattr(places[number], one)
        name, position = switches[number]
        uplinks = fabric.groups[name].uplinks
        rule.ends.append((switches[number], block * each, uplinks[position]))
        uplinks[position] += each * rule.links
        members[block] += rule.links
    upper.downlinks = [ports + members[peer // each] for peer, ports in enumerate(upper.downlinks)]


_REMEDIES = {
    "plane": "Have leaves with rails of one plane (rail_to_leaf), or remove plane",
    "group": "Write their number as groups",
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
