# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The fabric as a tree of switches for Slurm.

A node has a cable to every leaf of its set, so its leaf set is one switch for Slurm. What a spine
connects is the next level: spines of several planes or rails connect the same leaf sets, and are
one switch as well. Nodes without rails form a separate tree, as no fabric connects them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WITHOUT_RAILS = "without_rails"


@dataclass(frozen=True)
class Switch:
    name: str
    level: int
    """0 for a leaf set."""
    nodes: tuple[str, ...] = ()
    """Of a leaf set."""
    switches: tuple[str, ...] = ()
    """Of others: what they connect."""


Sets = frozenset[int]


def tree(hosts: Mapping[str, Mapping[str, Any]], nodes: Sequence[str]) -> tuple[Switch, ...]:
    """Every node once, in its leaf set; then the switches that connect these."""
    sets: dict[int, list[str]] = {}
    rest = []
    for name in nodes:
        own = hosts[name]
        if own["cluster_rails"]:
            sets.setdefault(own.get("cluster_set", 1), []).append(name)
        else:
            rest.append(name)
    width = max(2, len(str(max(sets, default=0))))
    names = {number: f"set{number:0{width}d}" for number in sets}
    found = [Switch(names[number], 0, tuple(own)) for number, own in sets.items()]
    units = _units(hosts, sets)
    found += _upper(names, [*_reached(hosts, sets), *units], units)
    return (*found, *([Switch(WITHOUT_RAILS, 0, tuple(rest))] if rest else []))


def _reached(
    hosts: Mapping[str, Mapping[str, Any]], sets: Mapping[int, Sequence[str]]
) -> list[Sets]:
    """The leaf sets below each switch above leaves."""
    of_node = {name: number for number, names in sets.items() for name in names}
    below: dict[str, Sets] = {}
    kinds = ("host", "downlink")

    def of(switch: str) -> Sets:
        if switch not in below:
            below[switch] = frozenset()
            peers = [
                peer
                for group in hosts[switch]["cluster_ports"]
                if group["kind"] in kinds
                for peer in group["peers"].values()
            ]
            found: set[int] = set()
            for peer in dict.fromkeys(peers):
                if peer in of_node:
                    found.add(of_node[peer])
                elif peer in hosts:
                    found |= of(peer)
            below[switch] = frozenset(found)
        return below[switch]

    spines = [name for name, own in hosts.items() if own["cluster_role"] == "spine"]
    return [of(name) for name in spines]


def _units(
    hosts: Mapping[str, Mapping[str, Any]], sets: Mapping[int, Sequence[str]]
) -> dict[Sets, str]:
    """The leaf sets of each unit, and its name. A unit with one set is no level."""
    found: dict[int, set[int]] = {}
    for number, names in sets.items():
        unit = hosts[names[0]].get("cluster_unit")
        if unit is not None:
            found.setdefault(unit, set()).add(number)
    width = max(2, len(str(max(found, default=0))))
    return {frozenset(own): f"unit{unit:0{width}d}" for unit, own in found.items()}


def _upper(
    names: Mapping[int, str], groups: Iterable[Sets], units: Mapping[Sets, str]
) -> list[Switch]:
    """Groups of leaf sets as switches, smallest first. Groups that overlap without one containing
    the other become one: a tree has no other form for them."""
    nested: list[Sets] = []
    for group in sorted(set(groups), key=lambda each: (len(each), sorted(each))):
        while True:
            crossing = [each for each in nested if each & group and not each <= group]
            if not crossing:
                break
            group = group.union(*crossing)
            nested = [each for each in nested if each not in crossing]
        if len(group) > 1 and group not in nested:
            nested.append(group)
    nested.sort(key=lambda each: (len(each), sorted(each)))
    known = {frozenset([number]): Switch(name, 0) for number, name in names.items()}
    found, count = [], 0
    for group in nested:
        direct: list[Sets] = []
        covered: set[int] = set()
        for each in reversed(known):  # larger ones come last
            if each < group and not each & covered:
                direct.append(each)
                covered |= each
        direct.sort(key=min)
        if group in units:
            name = units[group]
        else:
            count += 1
            name = f"fabric{count:02d}"
        level = 1 + max(known[each].level for each in direct)
        known[group] = Switch(name, level, (), tuple(known[each].name for each in direct))
        found.append(known[group])
    return found
