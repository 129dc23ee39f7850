# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""A configuration as a tree of lines, each with a key, rendered as EOS writes it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from common.switch import natural

INDENT = "   "
QUEUES = ("tx-queue", "uc-tx-queue")
"""Keywords for a unicast queue, by ASIC."""
MAPS = ("qos map cos", "qos map dscp", "qos map traffic-class")
"""Maps stored value by value and written in groups: `qos map dscp 8 9 to ...`."""


@dataclass
class Line:
    """A line, or the header of a block. Its parent stores it under a key."""

    text: str
    order: int
    block: bool = False
    below: dict[str, Line] = field(default_factory=dict)

    def kept(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "order": self.order,
            "block": self.block,
            "below": {key: line.kept() for key, line in self.below.items()},
        }


def read_line(kept: dict[str, Any]) -> Line:
    below = {key: read_line(line) for key, line in kept["below"].items()}
    return Line(kept["text"], kept["order"], kept["block"], below)


def default_of(kind: str, value: int) -> int:
    """Factory maps: DSCP by its upper three bits, with the two lowest classes swapped; each
    traffic class to the queue of the same number."""
    if kind == "qos map traffic-class":
        return value
    group = value // 8 if kind == "qos map dscp" else value
    return {0: 1, 1: 0}.get(group, group)


@dataclass
class Config:
    """The whole configuration. Default values are not stored."""

    top: dict[str, Line] = field(default_factory=dict)
    maps: dict[str, dict[int, int]] = field(default_factory=lambda: {kind: {} for kind in MAPS})
    queue: str = QUEUES[0]
    """Keyword of the last map of traffic classes that was entered."""

    def copy(self) -> Config:
        return copy.deepcopy(self)

    def kept(self) -> dict[str, Any]:
        return {
            "top": {key: line.kept() for key, line in self.top.items()},
            "maps": {
                kind: {str(number): value for number, value in values.items()}
                for kind, values in self.maps.items()
            },
            "queue": self.queue,
        }

    def map(self, kind: str, value: int, to: int) -> None:
        if to == default_of(kind, value):
            self.maps[kind].pop(value, None)
        else:
            self.maps[kind][value] = to


def read(kept: dict[str, Any]) -> Config:
    return Config(
        {key: read_line(line) for key, line in kept["top"].items()},
        {
            kind: {int(number): to for number, to in kept["maps"].get(kind, {}).items()}
            for kind in MAPS
        },
        kept.get("queue", QUEUES[0]),
    )


def written(config: Config) -> list[str]:
    """Return the lines between the header and `end`."""
    lines = [*config.top.values(), *_maps_as_lines(config)]
    result: list[str] = []
    before = None
    for line in sorted(lines, key=_place):
        group = None if line.block else line.order // LINES_OF_A_GROUP
        if group is None or group != before:
            result.append("!")
        before = group
        result += _written(line, 0)
    return [*result, "!"]


LINES_OF_A_GROUP = 10
ORDER_OF_MAPS = 50
"""Lines with an order in the same group of ten are written without a `!` between them."""


def _place(line: Line) -> tuple[int, list[Any]]:
    return line.order, natural(line.text)


def _written(line: Line, depth: int) -> Iterator[str]:
    yield INDENT * depth + line.text
    for below in sorted(line.below.values(), key=_place):
        if below.block:
            yield INDENT * (depth + 1) + "!"
        yield from _written(below, depth + 1)


def _maps_as_lines(config: Config) -> Iterator[Line]:
    for order, kind in enumerate(MAPS, ORDER_OF_MAPS):
        target = config.queue if kind == MAPS[-1] else "traffic-class"
        values = config.maps[kind]
        for to in sorted(set(values.values())):
            group = " ".join(str(number) for number in sorted(values) if values[number] == to)
            yield Line(f"{kind} {group} to {target} {to}", order)
