# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Figures of pages: the fabric and sparklines as SVG, charts of ECharts, each with its numbers as a
table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from ...module_utils.core.text import counted, natural
from ..answers import mapping, sequence
from ..report.preflight import ranges
from .html import Markup, details, table, tag

MAX_CABLES = 200_000
MAX_WIRES = 3000
"""Most lines of one drawing; above that, only faulty ones are drawn."""
MAX_NAMED = 24
"""Most boxes of a row with names; above that, only faulty ones are named."""
MAX_FAULTS = 200
WIDTH, PITCH, BOX, MARGIN = 1120, 150, 26, 14
"""In pixels: largest width of a drawing, distance of boxes with names, height of a box, margin."""
WORDS = re.compile(r"[\w./:-]+")
RATES = ("Gb/s", "Mb/s", "kb/s", "b/s"), ("GB/s", "MB/s", "kB/s", "B/s")
"""Units, each of 1,000 of the next one."""
MAX_WORDS, MAX_TILES = 400, 24


class Fault(NamedTuple):
    """What a check says of a part of the fabric."""

    host: str
    subject: str
    says: str
    part: bool = True
    """Whether it marks the host or switch, if it names none of their cables."""


class Fabric:
    """Switches, nodes and cables of `topology` in a report, and the faulty ones."""

    def __init__(self, topology: Mapping[str, Any]) -> None:
        roles = mapping(topology.get("roles"))
        self.role = {str(name): str(role) for role, own in roles.items() for name in sequence(own)}
        rows = [row for row in sequence(topology.get("cables"))[:MAX_CABLES] if _is_cable(row)]
        self.cables: list[tuple[str, str, str, str]] = [tuple(row) for row in rows]
        self._ends: dict[tuple[str, str], int] = {}
        for at, (one, port, other, far) in enumerate(self.cables):
            self._ends[one, port] = self._ends[other, far] = at
        self.faulty: dict[int, list[str]] = {}
        self.bad_hosts: dict[str, list[str]] = {}

    def blame(self, faults: Iterable[Fault]) -> None:
        """Mark the cables whose ports a fault names, or else the switch or node."""
        for host, subject, says, part in faults:
            words = WORDS.findall(subject[: 20 * MAX_WORDS])[:MAX_WORDS]
            found: set[int] = set()
            for named in (zip(words, words[1:]), ((host, word) for word in words)):
                # "leaf01 swp1 - spine01 swp2" does not name port swp2 of the host that says it.
                found = found or {self._ends[end] for end in named if end in self._ends}
            for at in found:
                _once(self.faulty.setdefault(at, []), says)
            if part and not found:
                for name in [word for word in words if word in self.role] or [host]:
                    _once(self.bad_hosts.setdefault(name, []), says)

    def tiers(self) -> list[list[str]]:
        """Switches from the top to the leaves, each in natural order."""
        near: dict[str, set[str]] = {}
        for one, _port, other, _far in self.cables:
            near.setdefault(one, set()).add(other)
            near.setdefault(other, set()).add(one)
        switches = {name for name, role in self.role.items() if role in ("leaf", "spine")}
        tiers: list[list[str]] = []
        row = {name for name in switches if self.role[name] == "leaf"}
        left = switches - row
        while row:
            tiers.insert(0, sorted(row, key=natural))
            row = {name for name in left if near.get(name, set()) & row}
            left -= row
        return [*([sorted(left, key=natural)] if left else []), *tiers]

    def groups(self) -> dict[tuple[str, ...], list[str]]:
        """Nodes by the leaves they are connected to."""
        leaves: dict[str, set[str]] = {}
        for one, _port, other, _far in self.cables:
            for node, leaf in ((one, other), (other, one)):
                if self.role.get(node) not in ("leaf", "spine") and self.role.get(leaf) == "leaf":
                    leaves.setdefault(node, set()).add(leaf)
        found: dict[tuple[str, ...], list[str]] = {}
        for node in sorted(leaves, key=natural):
            found.setdefault(tuple(sorted(leaves[node], key=natural)), []).append(node)
        return found


def _once(listed: list[str], says: str) -> None:
    if says not in listed:
        listed.append(says)


def _is_cable(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 4 and all(isinstance(each, str) for each in row)


def fabric(drawn: Fabric) -> Markup:
    """Leaves, spines and groups of nodes, with faulty cables; empty without switches."""
    tiers = drawn.tiers()
    if not tiers:
        return Markup("")
    groups = drawn.groups()
    boxes = {ranges(nodes): (leaves, nodes) for leaves, nodes in groups.items()}
    rows = [*tiers, list(boxes)]
    height = 40 + 120 * (len(rows) - 1) + BOX + 30
    width = min(WIDTH, 2 * MARGIN + PITCH * max(2, *map(len, rows)))
    place: dict[str, tuple[float, float]] = {}
    shapes: list[Markup] = []
    for level, names in enumerate(rows):
        if len(names) > MAX_NAMED:
            what = "sets of nodes" if level == len(tiers) else "switches"
            shapes.append(
                tag("text", f"{len(names)} {what}", x=MARGIN, y=22 + 120 * level, class_="soft")
            )
        pitch = (width - 2 * MARGIN) / max(1, len(names))
        for at, name in enumerate(names):
            x, y = MARGIN + pitch * (at + 0.5), 30 + 120 * level
            members = boxes[name][1] if level == len(tiers) else [name]
            place.update(dict.fromkeys(members, (x, y)))
            wrong = any(member in drawn.bad_hosts for member in members)
            shapes += _box(x, y, pitch, name, wrong, len(names) <= MAX_NAMED or wrong)
    wires = _wires(drawn, place)
    faults = [(drawn.cables[at], says) for at, says in drawn.faulty.items()]
    what = (
        f"{counted(sum(map(len, tiers)), 'switch', 'switches')}, "
        f"{counted(len(drawn.cables), 'cable')}, {len(faults):,} faulty"
    )
    image = tag(
        "svg",
        *wires,
        *shapes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_label=f"The fabric: {what}",
    )
    listed = [
        (f"{one} {port} - {other} {far}", "; ".join(says[:3]))
        for (one, port, other, far), says in faults[:MAX_FAULTS]
    ]
    listed += [
        (name, "; ".join(says[:3])) for name, says in list(drawn.bad_hosts.items())[:MAX_FAULTS]
    ]
    numbers = Counter(name for cable in drawn.cables for name in set(cable[::2]))
    switches = [(name, numbers[name]) for row in tiers for name in row]
    return tag(
        "figure",
        tag(
            "figcaption", "The fabric", tag("small", f"{what}. Faulty cables are dashed, with a ✕.")
        ),
        tag("div", image, class_="fabric", tabindex="0", role="region", aria_label="Drawing"),
        table("Faulty cables, switches and nodes", ("part", "finding"), listed) if listed else "",
        details("The drawing as a table", table("Switches", ("switch", "cables"), switches[:2000])),
    )


def _box(x: float, y: float, pitch: float, name: str, wrong: bool, named: bool) -> Iterable[Markup]:
    width = max(6.0, min(pitch - 8, 190))
    class_ = "box bad" if wrong else "box"
    yield tag(
        "rect", x=f"{x - width / 2:.1f}", y=y, width=f"{width:.1f}", height=BOX, rx=5, class_=class_
    )
    if named:
        room = max(4, int(width / 7.2)) if width > 30 else 40
        label = name if len(name) <= room else f"{name[: room - 1]}…"
        yield tag(
            "text",
            label + (" ✕" if wrong else ""),
            tag("title", name),
            x=f"{x:.1f}",
            y=y + 18,
            text_anchor="middle",
            class_="bad" if wrong else None,
        )


def _wires(drawn: Fabric, place: Mapping[str, tuple[float, float]]) -> list[Markup]:
    """A line for the cables between two boxes, thicker for several; faulty ones on top."""
    bundles: Counter[tuple[tuple[float, float], tuple[float, float]]] = Counter()
    broken: dict[tuple[tuple[float, float], tuple[float, float]], int] = {}
    for at, (one, _port, other, _far) in enumerate(drawn.cables):
        if one in place and other in place and place[one] != place[other]:
            ends = min(place[one], place[other]), max(place[one], place[other])
            bundles[ends] += 1
            if at in drawn.faulty:
                broken.setdefault(ends, at)
    lines = []
    for ends, many in bundles.items() if len(bundles) <= MAX_WIRES else ():
        if ends not in broken:
            lines.append(_line(ends, "wire", f"{min(4.0, 0.8 + many**0.5 / 2):.1f}"))
    for ends, at in list(broken.items())[:MAX_WIRES]:
        (x1, y1), (x2, y2) = ends
        lines.append(_line(ends, "wire bad", None))
        lines.append(
            tag(
                "text",
                "✕",
                tag("title", "{} {} - {} {}".format(*drawn.cables[at])),
                x=f"{(x1 + x2) / 2:.1f}",
                y=f"{(y1 + y2) / 2 + BOX / 2 + 5:.1f}",
                text_anchor="middle",
                class_="bad",
            )
        )
    return lines


def _line(
    ends: tuple[tuple[float, float], tuple[float, float]], class_: str, width: Optional[str]
) -> Markup:
    (x1, y1), (x2, y2) = sorted(ends, key=lambda end: end[1])
    below = BOX if y2 > y1 else BOX / 2
    return tag(
        "line",
        x1=f"{x1:.1f}",
        y1=y1 + below,
        x2=f"{x2:.1f}",
        y2=y2 if y2 > y1 else y2 + BOX / 2,
        class_=class_,
        stroke_width=width,
    )


def sparkline(values: Sequence[float], label: str) -> Markup:
    """The course of a figure; its numbers are next to it."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    step = 156 / max(1, len(values) - 1)
    points = [
        (2 + step * at, 34 - 30 * (each - low) / span if high > low else 19.0)
        for at, each in enumerate(values)
    ]
    return tag(
        "svg",
        tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points)),
        tag("circle", cx=f"{points[-1][0]:.1f}", cy=f"{points[-1][1]:.1f}", r=3),
        class_="spark",
        viewBox="0 0 164 38",
        width=164,
        height=38,
        role="img",
        aria_label=label,
    )


def chart(number: int, title: str, note: str, numbers: Markup, square: bool = False) -> Markup:
    """The place of a chart whose options `document` gets under this number."""
    return tag(
        "figure",
        tag("figcaption", title, tag("small", note) if note else ""),
        tag(
            "div",
            id=f"chart{number}",
            class_="chart square" if square else "chart",
            role="img",
            aria_label=f"{title}. The numbers are in the table below.",
        ),
        details("The chart as a table", numbers),
    )


def tiles(figures: Mapping[str, tuple[float, str]]) -> Markup:
    return tag(
        "ul",
        *(
            tag("li", tag("b", shown(number, unit)), tag("span", name))
            for name, (number, unit) in [*figures.items()][:MAX_TILES]
        ),
        class_="tiles",
    )


def shown(number: float, unit: str) -> str:
    """A figure with its unit; rates below 1 in a smaller unit."""
    for units in RATES:
        if unit == units[0] and number > 0:
            while number < 1 and unit != units[-1]:
                number, unit = number * 1000, units[units.index(unit) + 1]
    if unit == "us" and number >= 1000:
        return f"{number / 1000:.4g} ms"
    if unit == "s" and number >= 120:
        return f"{int(number // 60)} min {number % 60:.0f} s"
    if not unit:
        return f"{number:,.0f}" if float(number).is_integer() else f"{number:.4g}"
    return f"{number:.4g} {unit}"
