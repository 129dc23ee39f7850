# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated fabric that answers probes: flows are hashed to equal-cost paths, share cables, and
are as slow as the slowest part on their way. Counters are those of the flows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    Direction,
    Figure,
    Port,
    Probe,
    Topology,
    Uplink,
)

SECONDS = 5.0
DEFAULT_QUEUE_PAIRS = 4
ACK_SHARE = 0.02
"""Bytes of acknowledgements, as a share of the data."""


def fabric(
    sets: int, nodes_per_set: int, rails: int = 8, spines: int = 32, planes: int = 1
) -> Topology:
    """Each set has a leaf per rail and plane; each plane has its spines, all of them linked with
    all of its leaves. 800 Gb/s."""
    names = [
        f"rail{n}" if planes == 1 else f"rail{n}p{p}" for n in range(rails) for p in range(planes)
    ]
    ports = {
        f"node{number:04}": {
            name: Port(f"leaf{number // nodes_per_set:02}-{name}", 800.0) for name in names
        }
        for number in range(sets * nodes_per_set)
    }
    cables = tuple(
        Uplink(
            f"leaf{index:02}-{name}",
            f"up{spine}",
            f"spine{place % planes}-{spine:02}",
            f"p{index}-{name}",
        )
        for index in range(sets)
        for place, name in enumerate(names)
        for spine in range(spines)
    )
    return Topology(ports, cables, dict.fromkeys(cables, 800.0))


Noise = Callable[[random.Random], float]


def gauss(sigma: float) -> Noise:
    return lambda chance: max(0.01, chance.gauss(1.0, sigma))


def uniform(share: float) -> Noise:
    return lambda chance: chance.uniform(1 - share, 1 + share)


QUIET = gauss(0.01)


@dataclass
class Fabric:
    """`slow`: factors by slow part: `node07`, `(node07, rail3)`, `(node07, rail3, "sends")`, a
    Uplink, a Direction, or a spine by name. 0 hangs."""

    topology: Topology
    slow: Mapping[Any, float] = field(default_factory=dict)
    noise: Noise = QUIET
    seed: int = 0
    counters: bool = True
    both: bool = False
    """Whether pairs are also measured from the second node to the first, afterwards."""
    lossy: bool = False
    """Whether queues drop what does not fit, as without PFC, and count it."""
    added: bool = False
    """Whether queue pairs are independent; otherwise the slowest of a pair holds up the others."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.probes = 0

    def run(self, probes: Iterable[Probe]) -> list[Figure]:
        return [figure for probe in probes for figure in self.probe(probe)]

    def probe(self, probe: Probe) -> list[Figure]:
        self.probes += 1
        bytes_: dict[Direction, int] = {}
        found = self._measured(probe, bytes_)
        if self.both:
            back = tuple((second, first) for first, second in probe.pairs)
            rails = (probe.far_rail, probe.rail if probe.second_rail else "")
            found += self._measured(
                replace(probe, rail=rails[0], pairs=back, second_rail=rails[1]), bytes_
            )
        if probe.counters and self.counters:
            drops = {hop: 500 for hop in self.slow if self.lossy and bytes_.get(hop)}
            lost = {**dict.fromkeys(bytes_, 2), **drops} if self.lossy else None
            found = [replace(figure, cables=bytes_, drops=lost) for figure in found]
        return found

    def _measured(self, probe: Probe, bytes_: dict[Direction, int]) -> list[Figure]:
        queues = probe.queue_pairs or DEFAULT_QUEUE_PAIRS
        flows = [[self._way(pair, probe) for _ in range(queues)] for pair in probe.pairs]
        load: dict[Direction, int] = {}
        for ways in flows:
            for way in ways:
                for direction in way:
                    load[direction] = load.get(direction, 0) + 1
        found: list[Figure] = []
        for pair, ways in zip(probe.pairs, flows):
            end = self._end(pair, probe)
            rates = [min((self._share(hop, load) for hop in way), default=end) for way in ways]
            rates = [min(rate, end / queues) for rate in rates]
            if not self.added:
                rates = [min(rates)] * queues
            gbits_s = sum(rates) * self.noise(self.chance)
            for way, rate in zip(ways, rates):
                for hop in way:
                    sent = int(rate * SECONDS * 1e9 / 8)
                    back = Direction(hop.cable, not hop.up)
                    bytes_[hop] = bytes_.get(hop, 0) + sent
                    bytes_[back] = bytes_.get(back, 0) + int(sent * ACK_SHARE)
            error = "" if gbits_s > 0 else "no answer within 30 s"
            found.append(
                Figure(probe.rail, *pair, gbits_s or None, 5.0, error, None, probe.second_rail)
            )
        return found

    def _way(self, pair: tuple[str, str], probe: Probe) -> list[Direction]:
        here = self.topology.leaf(pair[0], probe.rail)
        there = self.topology.leaf(pair[1], probe.far_rail)
        way: list[Direction] = []
        for hop in self.topology.hops(here, there):
            out = sorted(each for each in hop if each.ends[0] == here)
            way.append(self.chance.choice(out))
            here = way[-1].ends[1]
        return way

    def _end(self, pair: tuple[str, str], probe: Probe) -> float:
        rates = []
        for node, rail, role in (
            (pair[0], probe.rail, "sends"),
            (pair[1], probe.far_rail, "receives"),
        ):
            factor = self.slow.get(node, 1.0) * self.slow.get((node, rail), 1.0)
            factor *= self.slow.get((node, rail, role), 1.0)
            rates.append(self.topology.ports[node][rail].speed_gbps * factor)
        return min(rates)

    def _share(self, hop: Direction, load: Mapping[Direction, int]) -> float:
        factor = self.slow.get(hop, 1.0) * self.slow.get(hop.cable, 1.0)
        factor *= self.slow.get(hop.cable.upper, 1.0)
        return self.topology.speeds[hop.cable] * factor / load[hop]
