# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What acceptance measures, and where: pairs of nodes, their figures, cables between switches.

A pair is ordered: the first node sends, the second receives, so a cable that is slow in one
direction is found. A runner that measures a pair both ways returns two figures.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import some
from ..answers import amount, form_of, sentence, whole
from ..fabric.cabling import Cable, SwitchEntry, cables_of
from ..fabric.system import UPLINK

Pair = tuple[str, str]
"""Names of the node that sends and of the node that receives."""

NODE, RAIL, CABLE, SPINE = "node", "rail", "cable", "spine"
ALIKE, NOT_REPRODUCED, UNFINISHED = "alike", "not_reproduced", "unfinished"
LOSSY = "lossy"
SAME_LEAF, ACROSS = "same leaf", "across spines"
"""Classes of path: figures are compared only with figures of the same class."""


class Uplink(NamedTuple):
    """A cable between switches; `upper` is the spine, or the super-spine above a spine."""

    lower: str
    lower_port: str
    upper: str
    upper_port: str

    def __str__(self) -> str:
        return f"{self.lower} {self.lower_port} - {self.upper} {self.upper_port}"

    def reversed(self) -> str:
        return f"{self.upper} {self.upper_port} - {self.lower} {self.lower_port}"


class Direction(NamedTuple):
    cable: Uplink
    up: bool
    """From the lower to the upper switch."""

    @property
    def ends(self) -> tuple[str, str]:
        """The switch that sends and the switch that receives."""
        lower, upper = self.cable.lower, self.cable.upper
        return (lower, upper) if self.up else (upper, lower)

    def __str__(self) -> str:
        return f"{self.cable} ({'up' if self.up else 'down'})"


@dataclass(frozen=True)
class Probe:
    """Pairs that are measured simultaneously. A node is in one pair at most."""

    rail: str
    """Interface of the sending nodes: `rail3`, or `rail3p1` with planes."""
    pairs: tuple[Pair, ...]
    second_rail: str = ""
    """Interface of the receiving nodes; empty if it is the same."""
    queue_pairs: int = 0
    """Flows of each pair; 0 for the runner's default. Each probe uses new queue pairs, so that
    switches hash them to other paths."""
    counters: bool = False
    """Whether the bytes of cables during the probe are needed (`Figure.cables`)."""

    @property
    def far_rail(self) -> str:
        return self.second_rail or self.rail


@dataclass(frozen=True)
class Figure:
    """Result of one pair of a probe."""

    rail: str
    first: str
    second: str
    gbits_s: Optional[float]
    """Gb/s of payload from first to second; None if the measurement failed."""
    latency_us: Optional[float] = None
    """Microseconds, half of a round trip; None if not measured."""
    error: str = ""
    """Why there is no figure: the pair hung, or its program failed. Counts as slow."""
    cables: Optional[Mapping[Direction, int]] = None
    """Bytes by direction of cables between switches during the probe, of all its pairs, as the
    sending port counts them: of the first figure of a probe. None if counters were not read."""
    second_rail: str = ""
    drops: Optional[Mapping[Direction, int]] = None
    """Packets by direction that were lost on it: discards and errors of the sending port, errors
    of the receiving port. None if not read."""

    @property
    def pair(self) -> Pair:
        return self.first, self.second

    @property
    def far_rail(self) -> str:
        return self.second_rail or self.rail


@dataclass(frozen=True)
class Verdict:
    """One result of the search; several faults give several."""

    kind: str
    subject: str
    """`node07`, `node07 rail3`, `leaf01 swp63 - spine01 swp0`, `spine01`; several candidates
    separated by commas; empty for a kind without a subject."""
    evidence: tuple[str, ...] = ()
    """Measured facts, a sentence each."""
    runs: int = 0
    """Number of probes of the whole search."""
    candidates: tuple[str, ...] = ()
    """If the fault is one of several and measurements cannot separate them: all of them."""

    def sentence(self) -> str:
        if self.kind == ALIKE:
            return "all pairs are alike, below the expectation: the cause is common"
        if self.kind == NOT_REPRODUCED:
            return "repeated measurements passed: the slowness is intermittent, or needs full load"
        if self.kind == LOSSY:
            return "cables that lose packets explain the slow pairs: run again after their repair"
        if self.kind == UNFINISHED:
            left = some(self.candidates, 12)
            return f"the time limit was reached; remaining suspects: {left}"
        if self.candidates:
            return f"slow {self.kind}, one of: {some(self.candidates, 12)}"
        return f"slow {self.kind}: {self.subject}"


class Port(NamedTuple):
    """Where a rail of a node is connected."""

    leaf: str
    speed_gbps: float


@dataclass(frozen=True)
class Topology:
    """Nodes and cables of the compiled model; drained nodes are left out."""

    ports: Mapping[str, Mapping[str, Port]]
    """By node and interface, in the model's order."""
    cables: tuple[Uplink, ...]
    speeds: Mapping[Uplink, float] = field(default_factory=dict)
    """Line rate of cables in Gb/s."""
    _routes: dict[tuple[str, str], tuple[frozenset[Direction], ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    _trees: dict[str, dict[str, list[Direction]]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def of(cls, hosts: Mapping[str, Mapping[str, Any]]) -> Topology:
        """From the compiled variables of all hosts: `hostvars`, or those of the inventory."""
        ports = {
            name: {
                rail["interface"]: Port(rail["leaf"] or "", float(rail["speed_gbps"] or 0))
                for rail in own.get("cluster_rails") or ()
            }
            for name, own in hosts.items()
            if own.get("cluster_role") == "compute" and not own.get("cluster_drained")
        }
        switches = [
            SwitchEntry(name, own.get("cluster_ports") or ()) for name, own in hosts.items()
        ]
        links = [_uplink(link) for link in cables_of(switches) if link.kind == UPLINK]
        return cls(
            {name: rails for name, rails in ports.items() if rails},
            tuple(cable for cable, _speed in links),
            dict(links),
        )

    def without(self, cables: Collection[Uplink]) -> Topology:
        """The paths that are left without these cables."""
        left = tuple(cable for cable in self.cables if cable not in cables)
        return Topology(self.ports, left, self.speeds)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.ports)

    def as_dict(self) -> dict[str, Any]:
        """Hosts by role and cables, as in reports of runs. Ports of leaves to nodes are unnamed."""
        leaves = {port.leaf for rails in self.ports.values() for port in rails.values()}
        switches = dict.fromkeys(name for cable in self.cables for name in (cable[0], cable[2]))
        to_nodes = [
            [port.leaf, "", node, rail]
            for node, rails in self.ports.items()
            for rail, port in rails.items()
        ]
        return {
            "roles": {
                "compute": list(self.ports),
                "leaf": sorted(leaves),
                "spine": [name for name in switches if name not in leaves],
            },
            "cables": [*map(list, self.cables), *to_nodes],
        }

    @cached_property
    def rails(self) -> tuple[str, ...]:
        """Every interface of a node, in the model's order."""
        return tuple(dict.fromkeys(rail for rails in self.ports.values() for rail in rails))

    def on(self, rail: str) -> tuple[str, ...]:
        """Nodes that have this rail."""
        return tuple(node for node, rails in self.ports.items() if rail in rails)

    def leaf(self, node: str, rail: str) -> str:
        return self.ports[node][rail].leaf

    def line_rate(self, figure: Figure) -> float:
        """Gb/s of the slower end's port; 0 if the model has none."""
        near = self.ports[figure.first][figure.rail].speed_gbps
        return min(near, self.ports[figure.second][figure.far_rail].speed_gbps)

    def path(self, figure: Figure) -> str:
        """Class of its path."""
        near = self.leaf(figure.first, figure.rail)
        return SAME_LEAF if near == self.leaf(figure.second, figure.far_rail) else ACROSS

    @cached_property
    def sets(self) -> tuple[tuple[str, ...], ...]:
        """Nodes that share all of their leaves, in the model's order."""
        found: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for node, rails in self.ports.items():
            key = tuple(sorted((rail, port.leaf) for rail, port in rails.items()))
            found.setdefault(key, []).append(node)
        return tuple(map(tuple, found.values()))

    @cached_property
    def _next(self) -> Mapping[str, tuple[Direction, ...]]:
        """Directions that leave each switch."""
        found: dict[str, list[Direction]] = {}
        for cable in self.cables:
            for direction in (Direction(cable, True), Direction(cable, False)):
                found.setdefault(direction.ends[0], []).append(direction)
        return MappingProxyType({switch: tuple(out) for switch, out in found.items()})

    def hops(self, first_leaf: str, second_leaf: str) -> tuple[frozenset[Direction], ...]:
        """Equal-cost directions from leaf to leaf, by hop; empty on one leaf and without a path."""
        key = first_leaf, second_leaf
        if key not in self._routes:
            towards = self._towards(second_leaf)
            hops: list[frozenset[Direction]] = []
            here = {first_leaf} if first_leaf in towards else set[str]()
            while here and here != {second_leaf}:
                out = frozenset(direction for switch in here for direction in towards[switch])
                hops.append(out)
                here = {direction.ends[1] for direction in out}
            self._routes[key] = tuple(hops)
        return self._routes[key]

    def _towards(self, leaf: str) -> Mapping[str, list[Direction]]:
        """By switch, directions of shortest paths to this leaf."""
        if leaf in self._trees:
            return self._trees[leaf]
        found: dict[str, list[Direction]] = {leaf: []}
        self._trees[leaf] = found
        distance = {leaf: 0}
        queue = deque([leaf])
        while queue:
            here = queue.popleft()
            for direction in self._next.get(here, ()):
                there = direction.ends[1]
                if there not in distance:
                    distance[there] = distance[here] + 1
                    found[there] = []
                    queue.append(there)
                if distance[there] == distance[here] + 1:
                    found[there].append(Direction(direction.cable, not direction.up))
        return found


def _uplink(link: Cable) -> tuple[Uplink, float]:
    lower, upper = link.first, link.second
    found = Uplink(lower.host, lower.interface, upper.host, upper.interface)
    return found, float(link.speed_gbps)


def by_rail(figures: Iterable[Figure]) -> dict[str, list[Figure]]:
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.rail, []).append(figure)
    return found


MOST = 1e12
"""Upper bound of saved rates in Gb/s and latencies in microseconds."""
MOST_BYTES = 1 << 64


def as_json(figure: Figure) -> list[Any]:
    """A figure as a JSON array."""
    counts = [_counts(figure.cables), _counts(figure.drops)]
    rates = [figure.gbits_s, figure.latency_us]
    ends = [figure.rail, figure.first, figure.second, figure.second_rail]
    return [*ends, *rates, figure.error, *counts]


def of_json(row: Any, topology: Topology) -> Figure:
    """A saved figure. Raises AnswerError if it is not one of this cluster."""
    with form_of("a saved figure"):
        rail, first, second, second_rail, gbits_s, latency_us, error, cables, drops = row
        ports = topology.ports[first], topology.ports[second]
        if rail not in ports[0] or (second_rail or rail) not in ports[1] or first == second:
            raise ValueError("no such pair")
        return Figure(
            rail,
            first,
            second,
            amount(gbits_s, MOST),
            amount(latency_us, MOST),
            sentence(error),
            _directions(cables, topology),
            str(second_rail),
            _directions(drops, topology),
        )


def _counts(found: Optional[Mapping[Direction, int]]) -> Optional[list[Any]]:
    if found is None:
        return None
    return [[*each.cable, each.up, count] for each, count in found.items()]


def _directions(rows: Any, topology: Topology) -> Optional[dict[Direction, int]]:
    if rows is None:
        return None
    found = {}
    for *ends, up, count in rows:
        cable = Uplink(*ends)
        if cable not in topology.speeds:
            raise ValueError(f"no cable {sentence(str(cable))}")
        found[Direction(cable, bool(up))] = whole(count, "bytes", MOST_BYTES)
    return found
