# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""In which order switches are changed, and which of them at once.

Spines come first, each alone: while one of them is busy the others carry its traffic, so the first
switch on which a mistake could show is the one whose loss costs least, and what lies between the
leaves is ready before the leaves rely on it. Then leaves, one at a time unless told otherwise, and
never two that a node needs at the same time: those of the planes of one rail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...module_utils.core.dataclass import dataclass
from .intent import HOST, STORAGE

LEAF, SPINE = "leaf", "spine"


@dataclass(frozen=True)
class Member:
    """One switch that has to be changed."""

    name: str
    role: str
    serves: frozenset[tuple[str, Any]] = frozenset()
    """Node and rail of each of its ports to nodes: others that serve the same are its pair."""


def member(name: str, role: str, ports: Iterable[Mapping[str, Any]]) -> Member:
    """`ports` is the variable `cluster_ports`."""
    return Member(
        name,
        role,
        frozenset(
            (peer, group.get("rail"))
            for group in ports
            if group["kind"] in (HOST, STORAGE)
            for peer in group["peers"].values()
        ),
    )


def batches(members: Sequence[Member], at_once: int = 1) -> list[list[str]]:
    """Names, each exactly once; a batch is changed at once, and the next when it is done."""
    if at_once < 1:
        raise ValueError(f"switch_qos_at_once is {at_once}: it is at least 1")
    found = [[each.name] for each in members if each.role == SPINE]
    waiting = [each for each in members if each.role != SPINE]
    while waiting:
        batch: list[Member] = []
        served: set[tuple[str, Any]] = set()
        for each in waiting:
            if len(batch) < at_once and served.isdisjoint(each.serves):
                batch.append(each)
                served |= each.serves
        waiting = [each for each in waiting if each not in batch]
        found.append([each.name for each in batch])
    return found
