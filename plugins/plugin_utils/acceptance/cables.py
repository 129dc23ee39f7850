# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the counters of switches say of each cable between them during a test.

Both ends of a cable count: the sender what it sent, discarded and was paused, the receiver what
arrived, with which errors. Shares of equal-cost cables are compared with those that independent
hashing of the flows yields, so few flows raise no alarm, whatever their shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Optional

from ...module_utils.core.text import bytes_text, counted
from ..fabric.counters import Growth, PortCounters
from .figures import Direction, Figure, Topology, Uplink

SILENT, UNTESTED, UNEVEN = "silent", "untested", "uneven"
ERRORS, DISCARDS, PAUSES, WATCHDOG, UNREAD = "errors", "discards", "pauses", "watchdog", "unread"

IDLE_BYTES_S = 4096
"""A guess: LLDP, BGP, ARP and neighbour discovery of an idle link, in bytes per second."""
IDLE_DISCARDS_S = 1
"""A guess: frames per second that a switch discards although nothing is wrong, such as those of
protocols that it does not run."""
PAUSED_SHARE = 0.05
"""A guess: share of the time in which pauses are more than momentary."""
FALSE_ALARMS = 1e-3
"""Probability that hashing by chance makes any cable of the whole fabric silent or uneven."""
LEAST_DEVIATION = 0.25
"""A guess: smaller differences from the median cable are of no interest, however many flows."""
MAX_BER = 2.4e-4
"""Bit error rate before FEC up to which RS(544,514) of 50 and 100 Gb/s per lane corrects enough:
IEEE 802.3, clauses 120E and 120G."""
QUANTUM_BITS, MAX_QUANTA = 512, 65535
"""A frame of PFC pauses for at most that many quanta: IEEE 802.1Qbb."""


@dataclass(frozen=True)
class CableFinding:
    kind: str
    direction: Direction
    evidence: str

    @property
    def cable(self) -> Uplink:
        return self.direction.cable

    def sentence(self) -> str:
        return f"{self.direction}: {self.evidence}"


@dataclass(frozen=True)
class Flows:
    """Flows that switches hashed, by the leaf that they left (True) or reached (False)."""

    counts: Mapping[tuple[str, bool], float] = field(default_factory=dict)
    """Effective numbers: as many equal flows would scatter as much."""

    @classmethod
    def of(cls, topology: Topology, figures: Iterable[Figure], queue_pairs: int) -> Flows:
        """`queue_pairs`: flows of each figure, which share its throughput equally."""
        sums: dict[tuple[str, bool], tuple[float, float]] = {}
        for figure in figures:
            near = topology.leaf(figure.first, figure.rail)
            far = topology.leaf(figure.second, figure.far_rail)
            weight = figure.gbits_s or 0.0
            if near != far:
                for key in ((near, True), (far, False)):
                    one, two = sums.get(key, (0.0, 0.0))
                    sums[key] = one + weight, two + weight * weight
        return cls(
            {key: queue_pairs * one * one / two for key, (one, two) in sums.items() if two > 0}
        )


def carried(topology: Topology, ports: Mapping[str, Mapping[str, Growth]]) -> dict[Direction, int]:
    """Bytes by direction of cables, as the receiver counted them, otherwise the sender; without
    directions that neither end counts. `ports`: growth by switch and port."""
    found = {}
    for direction in _directions(topology):
        sender, receiver = ends(direction, ports)
        arrived = receiver.counters.rx_bytes if receiver else None
        sent = sender.counters.tx_bytes if sender else None
        known = [count for count in (arrived, sent) if count is not None]
        if known:
            found[direction] = known[0]
    return found


def findings(
    topology: Topology, ports: Mapping[str, Mapping[str, Growth]], flows: Flows
) -> list[CableFinding]:
    """Every direction of a cable that does not look as it should, in the order of the model."""
    byte_counts = carried(topology, ports)
    hashed = dict(_hashed(topology, ports, byte_counts, flows))
    found: list[CableFinding] = []
    for direction in _directions(topology):
        if direction not in byte_counts:
            found.append(CableFinding(UNREAD, direction, "neither end was read"))
        elif direction in hashed:
            found.append(CableFinding(*hashed[direction]))
        sender, receiver = ends(direction, ports)
        found += _received(direction, receiver)
        found += _sent(direction, sender, topology.speeds.get(direction.cable, 0.0))
    return found


def _directions(topology: Topology) -> Iterator[Direction]:
    for cable in topology.cables:
        yield Direction(cable, True)
        yield Direction(cable, False)


def ends(
    direction: Direction, ports: Mapping[str, Mapping[str, Growth]]
) -> tuple[Optional[Growth], Optional[Growth]]:
    """Growth at the port that sends in this direction, and at the one that receives."""
    cable = direction.cable
    lower = ports.get(cable.lower, {}).get(cable.lower_port)
    upper = ports.get(cable.upper, {}).get(cable.upper_port)
    return (lower, upper) if direction.up else (upper, lower)


Hashed = tuple[Direction, tuple[str, Direction, str]]


def _hashed(
    topology: Topology,
    ports: Mapping[str, Mapping[str, Growth]],
    byte_counts: Mapping[Direction, int],
    flows: Flows,
) -> Iterator[Hashed]:
    """Compare the cables of each leaf, which share its flows equally, one way and the other."""
    leaves = {port.leaf for rails in topology.ports.values() for port in rails.values()}
    groups: dict[tuple[str, bool], list[Direction]] = {}
    for direction in _directions(topology):
        groups.setdefault((direction.cable.lower, direction.up), []).append(direction)
    limit = FALSE_ALARMS / (2 * max(len(byte_counts), 1))
    for (switch, up), directions in groups.items():
        number = flows.counts.get((switch, up), 0.0) if switch in leaves else 0.0
        net: dict[Direction, float] = {}
        """Bytes of the test, without cables that hashing by chance does not leave without any."""
        for direction in directions:
            count = byte_counts.get(direction)
            if count is not None:
                times = [growth.seconds for growth in ends(direction, ports) if growth]
                net[direction] = max(count - IDLE_BYTES_S * max(times, default=0.0), 0.0)
                if not net[direction]:
                    chance = (1 - 1 / len(directions)) ** number if number else 1.0
                    silent = _silent(direction, count, number, chance, limit)
                    yield direction, silent
                    if silent[0] == SILENT:
                        del net[direction]
        if number and all(direction in byte_counts for direction in directions):
            yield from _uneven(net, number, limit)


def _uneven(net: Mapping[Direction, float], number: float, limit: float) -> Iterator[Hashed]:
    """Name cables whose share is improbable and far from the median one, which a slow cable does
    not move. The others then carry more, so cables with more are named only if none has less."""
    total, usual = sum(net.values()), median(net.values() or (0.0,))
    if len(net) < 2 or not usual:
        return
    apart = {
        direction: rest / usual
        for direction, rest in net.items()
        if rest
        and abs(rest / usual - 1) > LEAST_DEVIATION
        and _tail(rest / total, number, 1 / len(net)) < limit
    }
    low = {direction: ratio for direction, ratio in apart.items() if ratio < 1}
    for direction, ratio in (low or apart).items():
        text = f"{ratio:.0%} of the bytes of the median of {counted(len(net), 'equal-cost cable')}"
        yield direction, (UNEVEN, direction, f"{text}, by {number:.0f} flows")


def _silent(
    direction: Direction, count: int, number: float, chance: float, limit: float
) -> tuple[str, Direction, str]:
    carried_text = f"no traffic of the test ({bytes_text(count)} in all)"
    if chance < limit:
        return SILENT, direction, f"{carried_text}, although {number:.0f} flows were hashed"
    return UNTESTED, direction, f"{carried_text}: too few flows to conclude from"


def _tail(share: float, number: float, expected: float) -> float:
    """Probability that a cable gets a share at least that far from the expected one, on that side,
    if each of `number` flows is hashed independently: their binomial distribution."""
    trials = max(1, round(number))
    if share >= expected:
        return _upper(math.floor(share * trials), trials, expected)
    return _upper(trials - math.ceil(share * trials), trials, 1 - expected)


def _upper(seen: int, trials: int, probability: float) -> float:
    """P(X >= seen) of a binomial distribution, summed from its largest term on."""
    if seen <= trials * probability:
        return 1.0
    log = (
        math.lgamma(trials + 1)
        - math.lgamma(seen + 1)
        - math.lgamma(trials - seen + 1)
        + seen * math.log(probability)
        + (trials - seen) * math.log1p(-probability)
    )
    term = total = math.exp(log)
    for count in range(seen, trials):
        term *= (trials - count) / (count + 1) * probability / (1 - probability)
        total += term
        if term < total * 1e-12:
            break
    return total


def _received(direction: Direction, growth: Optional[Growth]) -> Iterator[CableFinding]:
    if growth is None:
        return
    own = growth.counters
    facts = []
    if own.rx_errors:
        facts.append(f"{counted(own.rx_errors, 'frame')} with errors{_of(own.rx_packets)}")
    if own.fec_uncorrected:
        facts.append(f"{counted(own.fec_uncorrected, 'codeword')} that FEC did not correct")
    if own.pre_fec_ber is not None and own.pre_fec_ber > MAX_BER:
        facts.append(f"bit error rate {own.pre_fec_ber:.1e} before FEC, above {MAX_BER:.1e}")
    if facts:
        where = direction.ends[1]
        yield CableFinding(ERRORS, direction, f"{', '.join(facts)} at {where}")
    if (own.rx_discards or 0) > IDLE_DISCARDS_S * growth.seconds:
        text = f"{counted(own.rx_discards or 0, 'frame')} discarded on arrival{_of(own.rx_packets)}"
        yield CableFinding(DISCARDS, direction, f"{text} at {direction.ends[1]}")


def _sent(direction: Direction, growth: Optional[Growth], speed: float) -> Iterator[CableFinding]:
    if growth is None:
        return
    own, where = growth.counters, direction.ends[0]
    if own.tx_errors:
        text = f"{counted(own.tx_errors, 'frame')} not sent for errors{_of(own.tx_packets)}"
        yield CableFinding(ERRORS, direction, f"{text} at {where}")
    if own.tx_discards:
        text = f"{counted(own.tx_discards, 'frame')} discarded before sending{_of(own.tx_packets)}"
        yield CableFinding(DISCARDS, direction, f"{text} at {where}")
    share, most = _paused(own, growth.seconds, speed)
    if share > PAUSED_SHARE:
        text = f"{where} was paused for {'at most ' if most else ''}{share:.1%} of the time"
        yield CableFinding(PAUSES, direction, text)
    if own.watchdog:
        text = (
            f"{counted(own.watchdog, 'storm')} of pauses that the PFC watchdog of {where} stopped"
        )
        yield CableFinding(WATCHDOG, direction, text)


def _of(packets: Optional[int]) -> str:
    return f" of {packets}" if packets else ""


def _paused(own: PortCounters, seconds: float, speed_gbps: float) -> tuple[float, bool]:
    """Share of the time, and whether it is only an upper limit: that of systems without a duration,
    by their number of frames."""
    if seconds <= 0:
        return 0.0, False
    if own.rx_pause_us:
        return min(max(own.rx_pause_us.values()) / 1e6 / seconds, 1.0), False
    if not own.rx_pause or speed_gbps <= 0:
        return 0.0, True
    longest_s = MAX_QUANTA * QUANTUM_BITS / (speed_gbps * 1e9)
    return min(max(own.rx_pause.values()) * longest_s / seconds, 1.0), True
