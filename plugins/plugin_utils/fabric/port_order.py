# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Whether port k of the model is port k of the switch, by the switch's own table.

Before anything is set: names that exist but are those of other cables get the settings of the wrong
speed, and their cables are found swapped one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ...module_utils.core.text import counted, natural
from .asics import Asic
from .port_names import expanded
from .system import PortIntent, SwitchError, SwitchIntent
from .systems import SYSTEMS


@dataclass(frozen=True)
class PortRow:
    """A port in the switch's table."""

    name: str
    front: Optional[int] = None
    """Number on the front, from 0 or 1; None if unknown."""
    lanes: int = 0
    """Number of its lanes; 0: unknown."""
    used_by: str = ""
    """The port that uses its lanes, so that it has none."""


def check_order(intent: SwitchIntent, table: Iterable[PortRow]) -> None:
    """Raise SwitchError for the first port whose lanes, number or neighbour are not the model's.

    Ports of the intent that are not in the table have names that tell nothing.
    """
    rows = {row.name: row for row in table}
    fronts = {name: row.front for name, row in rows.items() if row.front is not None}
    if len(fronts) < len(rows):
        fronts = {}
    order = sorted(rows, key=lambda name: (fronts.get(name, 0), natural(name)))
    ports = [port for port in intent.ports if port.name in rows]
    for problem in (
        *_lanes(ports, rows, intent.asic),
        *_fronts(ports, fronts),
        *_computed(ports, order, intent.port_step),
        *_ranges(intent, order),
    ):
        raise SwitchError(f"{intent.name}: {problem}")


_REMEDY = "correct the names of the model (leaves.ports, spines.ports)"


def _lanes(ports: Sequence[PortIntent], rows: Mapping[str, PortRow], chip: Asic) -> Iterator[str]:
    for port in ports:
        row, needed = rows[port.name], chip.fewest_lanes(port.speed_gbps)
        name = f"{port.name} ({port.kind} link, {port.peer} {port.peer_interface})"
        if row.used_by:
            yield (
                f"{name} has no lanes on the switch: {row.used_by} uses them at its speed. Break "
                f"{row.used_by} out as in the model, or {_REMEDY}"
            )
        elif 0 < row.lanes < needed:
            yield (
                f"{name} has {counted(row.lanes, 'lane')} on the switch, and {port.speed_gbps}G "
                f"of the model need {needed} of {chip.name}. Break the port out as in the model, "
                f"or {_REMEDY}"
            )


def _fronts(ports: Sequence[PortIntent], fronts: Mapping[str, int]) -> Iterator[str]:
    for one, other in zip(ports, ports[1:]) if fronts else ():
        first, second = fronts[one.name], fronts[other.name]
        if first > second:
            yield (
                f"in its table, {one.name} has number {first} and {other.name} number {second}: "
                "names do not follow the order of the ports, so cables plugged by number end "
                "elsewhere. Correct the table (the index of PORT), which must count as the names"
            )


def _number(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)


def _computed(ports: Sequence[PortIntent], order: Sequence[str], step: int) -> Iterator[str]:
    """Problems of names that the model computed from a number of lanes."""
    places = {name: place for place, name in enumerate(order)}
    for port in ports if step else ():
        stem, number = _number(port.name)
        between = range(number + 1, number + step)
        skipped = next((index for index in between if f"{stem}{index}" in places), None)
        if skipped is not None:
            yield (
                f"after {port.name} the switch has {stem}{skipped}, but the model, which assumes "
                f"{step} lanes per port, has {stem}{between.stop}: later names would be those of "
                f"other cables. Write port_step: {skipped - number} (leaves.port_step, "
                f"spines.port_step), or {step} where ports between are outside the model"
            )
    for one, other in zip(ports, ports[1:]) if step else ():
        apart = (_number(other.name)[1] - _number(one.name)[1]) // step
        if places[other.name] - places[one.name] > apart:
            yield (
                f"{other.name} is port {places[other.name] + 1} of the switch, and by its number "
                f"port {places[one.name] + apart + 1}: ports differ in lanes. Write the names by "
                "purpose (leaves.ports, spines.ports)"
            )


def _ranges(intent: SwitchIntent, order: Sequence[str]) -> Iterator[str]:
    """Problems of ranges in the model, up to the last port in use.

    Where names count lanes, consecutive names are consecutive ports, except for ports of other
    ranges.
    """
    used, places = {port.name for port in intent.ports}, {name: n for n, name in enumerate(order)}
    ranges = [expanded(text) for text in intent.port_ranges]
    named = {name for names in ranges for name in names}
    where = "ports of the model (leaves.ports, spines.ports)"
    for names in ranges:
        last = max((place for place, name in enumerate(names) if name in used), default=-1)
        missing = [name for name in names[: last + 1] if name not in places]
        if missing:
            yield f"the switch has no port {missing[0]}, which is among the {where}"
        elif SYSTEMS[intent.system].naming.step is None:
            pairs = list(zip(names, names[1 : last + 1]))
            steps = [_number(other)[1] - _number(one)[1] for one, other in pairs]
            for (one, other), step in zip(pairs, steps):
                between = order[places[one] + 1 : places[other]]
                skipped = [name for name in between if name not in named]
                if step == min(steps) and skipped:
                    yield (
                        f"after {one} the switch has {skipped[0]}, and the range of {where} "
                        f"continues with {other}: later names would be those of other cables. "
                        f"Correct the step of the range, or list these names one by one if "
                        f"{skipped[0]} is outside the model"
                    )
