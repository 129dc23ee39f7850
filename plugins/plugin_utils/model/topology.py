# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Which lane of which node plugs into which port of which leaf, and how leaves reach the spines."""

from __future__ import annotations

from collections.abc import Sequence

from ...module_utils.core.dataclass import dataclass


@dataclass(frozen=True)
class Lane:
    """One plane of one rail, and its place on a leaf of the set."""

    rail: int
    plane: int
    leaf: int
    place: int
    """Among the lanes of a node that share this leaf."""


@dataclass(frozen=True)
class Ports:
    """How the ports of a switch are named."""

    count: int
    pattern: str
    start: int
    step: int

    def name(self, index: int) -> str:
        return self.pattern.format(self.start + index * self.step)

    def names(self) -> list[str]:
        return [self.name(index) for index in range(self.count)]


@dataclass(frozen=True)
class Topology:
    lanes: tuple[Lane, ...]
    leaves: int
    leaves_per_set: int
    leaf_ports: int
    """Of each leaf."""
    nodes_per_set: int
    spines: int = 0
    links_per_leaf: int = 0

    @property
    def uplinks(self) -> int:
        """Ports of a leaf that go to spines: its last ones."""
        return self.spines * self.links_per_leaf

    @property
    def sets(self) -> int:
        return self.leaves // self.leaves_per_set

    @property
    def room(self) -> int:
        """Nodes that find a port on every leaf they need."""
        return self.sets * self.nodes_per_set

    def lanes_on(self, leaf: int) -> int:
        """Lanes of one node on this leaf of the set."""
        return sum(lane.leaf == leaf for lane in self.lanes)

    def uplink_port(self, spine: int, link: int) -> int:
        """The port of every leaf that carries this link to this spine."""
        return self.leaf_ports - self.uplinks + spine * self.links_per_leaf + link

    def spine_port(self, leaf: int, link: int) -> int:
        """The port of every spine that carries this link to this leaf."""
        return leaf * self.links_per_leaf + link


def lay_lanes(rails: int, planes: int, rail_to_leaf: Sequence[int]) -> tuple[Lane, ...]:
    """The lanes of a node in order, each with its leaf and its place there."""
    taken: dict[int, int] = {}
    lanes = []
    for number, leaf in enumerate(rail_to_leaf):
        rail, plane = divmod(number, planes)
        lanes.append(Lane(rail, plane, leaf, taken.get(leaf, 0)))
        taken[leaf] = taken.get(leaf, 0) + 1
    return tuple(lanes[: rails * planes])
