# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Names of switch ports: ranges that denote several, and the lanes of the chip that a name implies.

A name of SONiC counts the lanes of the switch, those of other systems the ports of its front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from typing import Optional

from ...module_utils.core.text import counted
from .asics import MAX_LANES, SPECTRUM, Asic

MAX_NAMES = 4096
"""Ports of one switch."""
_NUMBER = r"(?:0|[1-9][0-9]{0,4})"
_STEP = r"[1-9][0-9]?"
_ITEM = rf"{_NUMBER}(?:-{_NUMBER}(?:/{_STEP})?)?"
_SEVERAL = re.compile(
    rf"\[({_ITEM}(?:,{_ITEM})*)\]"
    rf"|\{{({_NUMBER})\.\.({_NUMBER})(?:\.\.({_STEP}))?\}}|\{{(\w+(?:,\w+)+)\}}"
)


def expanded(text: str) -> list[str]:
    """The names that a text denotes, the last range varying fastest: `swp[1-64]s[0-1]`,
    `Ethernet[0-504/8]`, `Ethernet[1-64]/[1,5]`, and braces as in a shell, `swp{1..64}s{0..1}`.
    Empty for other brackets, for a name that is there twice, and for too many names."""
    choices: list[Sequence[object]] = []
    end = 0
    for match in _SEVERAL.finditer(text):
        choices += [(text[end : match.start()],), _choices(*match.groups())]
        end = match.end()
    choices.append((text[end:],))
    literal = "".join(map(str, chain.from_iterable(choices[::2])))
    if re.search(r"[][{},]", literal) or prod(map(len, choices)) > MAX_NAMES:
        return []
    names = ["".join(map(str, parts)) for parts in product(*choices)]
    return names if len(names) == len(set(names)) else []


def _choices(
    items: Optional[str],
    first: Optional[str],
    last: Optional[str],
    step: Optional[str],
    words: Optional[str],
) -> Sequence[object]:
    if words:
        return words.split(",")
    if items is None:
        return range(int(first or 0), int(last or 0) + 1, int(step or 1))
    found: list[object] = []
    for item in items.split(","):
        begin, _dash, rest = item.partition("-")
        stop, _slash, by = rest.partition("/")
        several = range(int(begin), int(stop or begin) + 1, int(by or 1))
        if len(found) + len(several) > MAX_NAMES or not several:
            return ()
        found.extend(several)
    return found


@dataclass(frozen=True)
class PortNaming:
    """How a system names ports."""

    pattern: str
    start: int
    step: Optional[int]
    """From one port's number to the next; None if the system counts lanes."""
    form: str = ".+"
    """Of every name. Groups tell where a port is: `lane`, its first one of the switch; or `port`,
    its number on the front, with `part`, its place among equal parts, or `first`, its first lane
    from 1."""
    shown: str = ""
    """Examples for a message."""
    parts: str = ""
    """Names of ports that are broken out, as ranges, if the system counts the ports."""

    def examples(self, lanes: int) -> str:
        """Names of ports with this number of lanes."""
        if self.step is None:
            numbers = (self.start + index * lanes for index in range(3))
            return f"{', '.join(map(self.pattern.format, numbers))} and so on"
        return self.shown

    def lanes(self, name: str, lanes: int) -> Optional[tuple[int, range]]:
        """The port of the front (0 if the system counts the lanes of the switch), and the lanes on
        it that a port of this number of lanes has; None if the name does not tell."""
        match = re.fullmatch(self.form, name)
        groups = match.groupdict().items() if match else ()
        found = {key: int(value) for key, value in groups if value}
        if "lane" in found:
            return 0, range(found["lane"], found["lane"] + lanes)
        if "port" not in found:
            return None
        if "part" in found:
            return found["port"], range(found["part"] * lanes, (found["part"] + 1) * lanes)
        if "first" in found:
            return found["port"], range(found["first"] - 1, found["first"] - 1 + lanes)
        return found["port"], range(MAX_LANES)

    def front(self, name: str) -> int:
        """The port of the front; 0 if the name does not tell."""
        place = self.lanes(name, 1)
        return place[0] if place else 0


UNNAMED = PortNaming("Ethernet{}", start=0, step=1)
"""Port naming of a switch whose system is not in the model."""

SERVICE_PORTS = 32
"""Lanes beyond those of a chip's fast ports, whose ports have the next names: up to Ethernet536
with 512 lanes (sonic-buildimage 086b03bd, device/mellanox/x86_64-nvidia_sn6600_simx-r0)."""


@dataclass(frozen=True)
class Fault:
    """The first name that the chip or the system cannot have, and why."""

    code: str
    problem: str
    remedy: str
    name: str
    certain: bool = True


def faults(naming: PortNaming, chip: Asic, ports: Iterable[tuple[str, int]]) -> Iterator[Fault]:
    """Names of ports, with the number of their lanes, that a switch with this naming and chip
    cannot have. At most one fault of each code."""
    found: dict[str, Fault] = {}
    taken: dict[tuple[int, int], str] = {}
    for name, width in ports:
        for fault in _faults(naming, chip, name, width, taken):
            found.setdefault(fault.code, fault)
    yield from found.values()


def _faults(
    naming: PortNaming, chip: Asic, name: str, width: int, taken: dict[tuple[int, int], str]
) -> Iterator[Fault]:
    if not re.fullmatch(naming.form, name):
        problem, remedy = f"{name!r} is not a port's name", f"Names are such as {naming.shown}"
        yield Fault("model.port_form", problem, remedy, name)
        return
    place = naming.lanes(name, width)
    if place is None:
        if chip.fixed and "/" in name:
            problem = f"{name!r} is a port of a line card, and switches with {chip.name} have none"
            remedy = f"Write the port and its first lane, 1 to {MAX_LANES}, such as {naming.parts}"
            yield Fault("model.port_of_line_card", problem, remedy, name)
        return
    port, lanes = place
    certain = port > 0 or chip.family == SPECTRUM
    if chip.lanes is not None:
        # With a gearbox, or slower ports, a port has four numbers but fewer lanes (SN3800, SN2410).
        numbers = max(chip.lanes, 4 * chip.fronts) + SERVICE_PORTS
        if port > chip.front_ports or lanes.start > numbers:
            most = f"{chip.front_ports} ports on the front" if port else f"{chip.lanes} lanes"
            problem = f"{name!r} does not exist: switches with {chip.name} have at most {most}"
            remedy = "Count ports from the first to the last one of the switch"
            if naming.parts:
                remedy += ", and name the parts of those that are broken out, such as ports: "
                remedy += f"{{nodes: '{naming.parts}'}}"
            yield Fault("model.port_beyond", problem, remedy, name)
            return
        if not port and lanes.start >= chip.lanes and width < MAX_LANES:
            return  # a service port
        end = MAX_LANES if port else chip.lanes
        if lanes.start % width or lanes.stop > end:
            problem = f"{name!r} is no port with {width} lanes: it would have the lanes "
            problem += f"{lanes.start} to {lanes.stop - 1}"
            problem += f" of the {end} of port {port}" if port else ""
            remedy = f"Names with {width} lanes: {naming.examples(width)}"
            yield Fault("model.port_lanes", problem, remedy, name, certain)
            return
    other = next((taken[port, lane] for lane in lanes if (port, lane) in taken), None)
    if other is not None:
        problem = f"{name!r} and {other!r} have lanes in common"
        remedy = f"Names with {counted(width, 'lane')}: {naming.examples(width)}"
        yield Fault("model.port_overlap", problem, remedy, name, certain)
    taken.update(dict.fromkeys(((port, lane) for lane in lanes), name))
