# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Counters of one port of a switch, and their growth between two readings.

None means that the system does not report a counter, which differs from zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Optional

from ..answers import PORT, amount, mapping

ALL = "all"
"""In place of a priority, if the system reports only the sum."""
MOST = float(1 << 64)
"""Counters have at most 64 bits."""
MOST_PORTS = 4096


@dataclass(frozen=True)
class PortCounters:
    """From the side of the switch: `rx` arrived, `tx` left."""

    rx_bytes: Optional[int] = None
    tx_bytes: Optional[int] = None
    rx_packets: Optional[int] = None
    tx_packets: Optional[int] = None
    rx_errors: Optional[int] = None
    tx_errors: Optional[int] = None
    rx_discards: Optional[int] = None
    tx_discards: Optional[int] = None
    rx_pause: Mapping[str, int] = field(default_factory=dict)
    """Frames of PFC by priority. Empty: not reported."""
    tx_pause: Mapping[str, int] = field(default_factory=dict)
    rx_pause_us: Mapping[str, int] = field(default_factory=dict)
    """Time that the peer kept the port paused, by priority."""
    ecn_marked: Optional[int] = None
    fec_corrected: Optional[int] = None
    fec_uncorrected: Optional[int] = None
    pre_fec_ber: Optional[float] = None
    """A rate, not a count: its growth is the newer value."""
    watchdog: Optional[int] = None
    """Storms that the PFC watchdog detected."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> PortCounters:
        """From names and values; values of another form, and unknown names, are ignored."""
        found: dict[str, Any] = {}
        for name in _NAMES:
            value = values.get(name)
            if name in _BY_PRIORITY:
                entries = {key: number_of(count) for key, count in mapping(value).items()}
                found[name] = {
                    key: int(count)
                    for key, count in entries.items()
                    if count is not None and key in _PRIORITIES
                }
            else:
                number = number_of(value)
                whole = number is None or name == _RATE
                found[name] = number if whole else int(number or 0)
        return cls(**found)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


_NAMES = tuple(each.name for each in fields(PortCounters))
_BY_PRIORITY = ("rx_pause", "tx_pause", "rx_pause_us")
_RATE = "pre_fec_ber"
_PRIORITIES = frozenset((ALL, *map(str, range(8))))


def number_of(value: Any) -> Optional[float]:
    """A number, or its text: some systems send counters as text, with 64 bits."""
    if isinstance(value, str) and len(value) <= 40:
        text = value.strip()
        if text.isdecimal() and text.isascii():
            value = int(text)
        else:
            try:
                value = float(text)
            except ValueError:
                return None
    return amount(value, MOST)


def read_ports(answer: Any) -> dict[str, PortCounters]:
    """Counters by port, from a registered result or an answer in that form."""
    found = {}
    for name, values in mapping(answer).items():
        if PORT.fits(name) and isinstance(values, Mapping):
            found[name] = PortCounters.of(values)
            if len(found) == MOST_PORTS:
                break
    return found


@dataclass(frozen=True)
class Growth:
    """Between two readings of one port."""

    counters: PortCounters
    seconds: float
    reset: bool = False
    """Some counter went back, as after a restart or when cleared: it counts from zero."""


def growth(before: PortCounters, after: PortCounters, seconds: float) -> Growth:
    """A counter of 64 bits does not wrap within a run: at 800 Gb/s its bytes last for 5 years."""
    found: dict[str, Any] = {_RATE: after.pre_fec_ber}
    reset = False
    for name in _NAMES:
        old, new = getattr(before, name), getattr(after, name)
        if name in _BY_PRIORITY:
            both = [key for key in new if key in old]
            reset = reset or any(new[key] < old[key] for key in both)
            found[name] = {
                key: new[key] - old[key] if new[key] >= old[key] else new[key] for key in both
            }
        elif name != _RATE:
            known = old is not None and new is not None
            reset = reset or (known and new < old)
            found[name] = (new - old if new >= old else new) if known else None
    return Growth(PortCounters(**found), seconds, reset)


def grown(result: Mapping[str, Any]) -> dict[str, Growth]:
    """By port, from `before` and `after` of `switch_qos_counters`, without ports read once."""
    before, after = mapping(result.get("before")), mapping(result.get("after"))
    old, new = read_ports(before.get("ports")), read_ports(after.get("ports"))
    seconds = (number_of(after.get("read_s")) or 0) - (number_of(before.get("read_s")) or 0)
    return {port: growth(old[port], new[port], max(seconds, 0.0)) for port in new if port in old}
