# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A simulated fabric that answers probes: flows are hashed to equal-cost paths, share cables, and
are as slow as the slowest part on their way. Counters are those of the flows."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ansible_collections.baremetal.mpi_roce.plugins.plugin_utils.acceptance.figures import (
    CABLE,
    NODE,
    RAIL,
    SPINE,
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


def drawn(deciles: Sequence[float]) -> Noise:
    """A distribution by its deciles, the extremes included; between them, it is uniform."""

    def factor(chance: random.Random) -> float:
        place = chance.random() * (len(deciles) - 1)
        return deciles[int(place)] + (deciles[int(place) + 1] - deciles[int(place)]) * (place % 1)

    return factor


def bursts(noise: Noise, share: float, size: float) -> Noise:
    """`share` of the measurements are up to `size` too low or too high."""
    return lambda chance: (
        noise(chance) * (chance.uniform(1 - size, 1 + size) if chance.random() < share else 1.0)
    )


QUIET = gauss(0.01)
"""A guess."""
PAIRS = drawn((0.986, 0.988, 0.990, 0.994, 0.997, 1.0, 1.002, 1.012, 1.027, 1.106, 1.116))
REPEATED = drawn(
    (0.976, 0.9969, 0.9989, 0.9995, 0.9999, 1.0, 1.0001, 1.0004, 1.0009, 1.0042, 1.029)
)
"""Measured: sendrecv_perf of nccl-tests 2.17.8, one GPU each of two nodes, for all 45 pairs of 10
nodes with 8 H100 and 400 Gb/s InfiniBand, 4 to 17 GB, six figures a pair
(https://github.com/xxrjun/nccl-tests-cluster at 455de4f, example-cluster01, run 20260128-010702).
PAIRS: median of a pair / median of all; 7 pairs were 11 % faster than others. REPEATED: a figure /
median of its pair. Others are quieter: 123 pairs of the same source's example-cluster00 differ by
-1.1 % to +1.3 %, ib_write_bw of 8 rails by 0.07 % (issue 152 of Azure/azurehpc-health-checks)."""


@dataclass
class Fabric:
    """`slow`: factors by slow part: `node07`, `(node07, rail3)`, `(node07, rail3, "sends")`, a
    Uplink, a Direction, or a spine by name. 0 hangs."""

    topology: Topology
    slow: Mapping[Any, float] = field(default_factory=dict)
    noise: Noise = QUIET
    pairs: Optional[Noise] = None
    """Factor of a healthy pair that stays the same in all its measurements. A slow part is a
    bottleneck: the rate is the least of all."""
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
        self._factors: dict[tuple[frozenset[str], frozenset[str]], float] = {}
        self._choices: dict[tuple[str, str], list[dict[str, list[Direction]]]] = {}

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
            found[0] = replace(found[0], cables=bytes_, drops=lost)
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

    def _pair(self, pair: tuple[str, str], probe: Probe) -> float:
        """Gb/s of this pair without slow parts."""
        rails = probe.rail, probe.far_rail
        key = frozenset(pair), frozenset(rails)
        if self.pairs and key not in self._factors:
            self._factors[key] = self.pairs(self.chance)
        ports = (self.topology.ports[node][rail] for node, rail in zip(pair, rails))
        return min(port.speed_gbps for port in ports) * self._factors.get(key, 1.0)

    def _way(self, pair: tuple[str, str], probe: Probe) -> list[Direction]:
        here = self.topology.leaf(pair[0], probe.rail)
        there = self.topology.leaf(pair[1], probe.far_rail)
        if (here, there) not in self._choices:
            self._choices[here, there] = [
                {
                    switch: [each for each in sorted(hop) if each.ends[0] == switch]
                    for switch in {each.ends[0] for each in hop}
                }
                for hop in self.topology.hops(here, there)
            ]
        way: list[Direction] = []
        for choices in self._choices[here, there]:
            way.append(self.chance.choice(choices[here]))
            here = way[-1].ends[1]
        return way

    def _end(self, pair: tuple[str, str], probe: Probe) -> float:
        rates = [self._pair(pair, probe)]
        for node, rail, role in (
            (pair[0], probe.rail, "sends"),
            (pair[1], probe.far_rail, "receives"),
        ):
            factor = self.slow.get(node, 1.0) * self.slow.get((node, rail), 1.0)
            factor *= self.slow.get((node, rail, role), 1.0)
            if factor < 1:
                rates.append(self.topology.ports[node][rail].speed_gbps * factor)
        return min(rates)

    def _share(self, hop: Direction, load: Mapping[Direction, int]) -> float:
        factor = self.slow.get(hop, 1.0) * self.slow.get(hop.cable, 1.0)
        factor *= self.slow.get(hop.cable.upper, 1.0)
        return self.topology.speeds[hop.cable] * factor / load[hop]


def planted(topology: Topology, seed: int) -> tuple[dict[Any, float], set[tuple[str, str]]]:
    """Twelve faults at random places, and how they are named: three nodes, four rails of nodes,
    four cables, one spine."""
    chance = random.Random(seed)
    nodes = chance.sample(topology.nodes, 7)
    cables = chance.sample(topology.cables, 4)
    spines = {cable.upper for cable in topology.cables} - {cable.upper for cable in cables}
    spine = chance.choice(sorted(spines))
    rails = [(node, chance.choice(topology.rails)) for node in nodes[3:]]
    slow: dict[Any, float] = {
        **dict(zip(nodes, (0.5, 0.8, 0.3))),
        **dict(zip(rails, (0.5, 0.85, 0))),
        (*rails[3], "receives"): 0.4,
        **dict.fromkeys(cables[:2], 0.1),
        Direction(cables[2], True): 0.1,
        Direction(cables[3], False): 0.1,
        spine: 0.2,
    }
    return slow, {
        *((NODE, node) for node in nodes[:3]),
        *((RAIL, " ".join(end)) for end in rails),
        *((CABLE, str(cable)) for cable in cables),
        (SPINE, spine),
    }
