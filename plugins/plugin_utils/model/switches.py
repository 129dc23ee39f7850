# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Name, system, chip and port names of every leaf and spine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from typing import Any, Optional

from ...module_utils.core.text import counted, nearest
from ...module_utils.qos import SPECTRUM_X
from ..fabric.asics import ASICS, Asic, asic_named
from ..fabric.base import UNNAMED
from ..fabric.systems import SYSTEMS
from ..schema.findings import Findings, Path

_USUAL_LANES = {800: 8}
"""Steps by speed, for an unknown chip with lanes of 100G. With lanes of 200G, the names would skip
ports of the switch, and the layer `fabric` refuses them.
"""


@dataclass(frozen=True)
class SwitchKind:
    """What switches with one system and one chip share. Both are empty if the model has none."""

    system: str
    asic: str
    ports: Sequence[str]
    """Names of the ports, in order."""
    port_step: int = 0
    """Step between port numbers, if computed from the lanes of the chip."""

    def ports_for(self, purpose: str) -> Optional[Sequence[str]]:
        """Ports for `nodes`, `downlinks` or `uplinks`; None if the names are in one list."""
        return None


@dataclass(frozen=True)
class Switches:
    """The switches of one section, in order; fewer if there are findings."""

    names: Sequence[str] = ()
    kinds: Sequence[SwitchKind] = ()
    racks: Sequence[str] = ()
    """Empty texts if the model has none."""


def read_switches(model: dict[str, Any], section: str, findings: Findings) -> Switches:
    switch, asics = model[section], model["asics"]
    if not switch:
        return Switches()
    speed: int = switch.get("speed_gbps") or model["rails"]["speed_gbps"]
    names = switch["name"]
    if isinstance(names, str):
        names = [names.format(number + 1) for number in range(switch["count"])]
    values = [switch[key] or "" for key in ("system", "asic", "rack")]
    lists = [
        value if isinstance(value, list) else [value] * switch["count"]
        for value in (names, *values)
    ]
    for key, value in zip(("name", "system", "asic", "rack"), lists):
        if len(value) != switch["count"]:
            problem = f"{counted(len(value), 'value')} for {switch['count']} {section}"
            remedy = "Write as many as there are switches"
            findings.add("model.values_for_switches", (section, key), problem, remedy, len(value))
    pairs = list(zip(*lists[1:3]))
    if model["roce_qos"]["fabric_mode"] == SPECTRUM_X:
        _check_spectrum_x(section, {system for system, _chip in pairs} - {""}, findings)
    made: dict[tuple[str, str], Optional[SwitchKind]] = {}
    for index, (system, name) in enumerate(pairs):
        if (system, name) in made:
            continue
        path: Path = (section, "asic", *((index,) if isinstance(switch["asic"], list) else ()))
        chip, made[system, name] = asic_named(name, asics), None
        if chip is None:
            remedy = f"{nearest(name, [*ASICS, *asics])}. Describe another one under asics"
            problem = f"the chip {name!r} is unknown"
            findings.add("model.unknown_chip", path, problem, remedy, name)
            continue
        if chip.name and not chip.has_port(speed):
            problem = f"{chip.name} has no ports of {speed}G, the speed of the cables of {section}"
            remedy = "Correct the name of the chip, or speed_gbps"
            findings.add("model.chip_speed", path, problem, remedy, (chip.name, speed))
        made[system, name] = _kind(switch, section, system, chip, speed, findings)
    kinds = [kind for kind in map(made.__getitem__, pairs) if kind is not None]
    return Switches(names, kinds, lists[3])


def _check_spectrum_x(section: str, systems: set[str], findings: Findings) -> None:
    capable = [system.name for system in SYSTEMS.values() if system.adaptive_routing]
    for system in sorted(systems.difference(capable)):
        problem = f"roce_qos.fabric_mode {SPECTRUM_X} requires {', '.join(capable)}, not {system}"
        remedy = "Leave it out, and write leaves.port and spines.port if the ports have names of "
        remedy += "that system: the layers fabric and links then skip these switches"
        findings.add("model.spectrum_x_system", (section, "system"), problem, remedy, system)


def _kind(
    switch: dict[str, Any], section: str, system: str, chip: Asic, speed: int, findings: Findings
) -> Optional[SwitchKind]:
    naming = SYSTEMS[system].naming if system else UNNAMED
    count = switch["ports"]
    if isinstance(switch["port"], list):
        return SwitchKind(system, chip.name, _listed(switch, section, findings))
    lanes = chip.lanes_of_port(count, speed)
    if chip.lanes is not None and lanes is None and chip.has_port(speed):
        fewest = chip.fewest_lanes(speed)
        problem = f"{count} ports of {speed}G need {count * fewest} lanes ({fewest} each), and "
        problem += f"{chip.name} has {chip.lanes}"
        remedy = f"Write {chip.lanes // fewest} or fewer, or correct the name of the chip. Of "
        remedy += f"ports of several speeds, list the names ({section}.port)"
        findings.add("model.chip_lanes", (section, "ports"), problem, remedy, (count, speed))
        return None
    given = switch["port_step"] or naming.step
    step = given or lanes or _USUAL_LANES.get(speed)
    if step is None:
        problem = f"is missing: {SYSTEMS[system].title} counts lanes, which are unknown"
        remedy = "Write it (from Ethernet0 to the next port: `show interfaces status`), or name "
        remedy += f"the chip in {section}.asic"
        findings.add("model.port_step", (section, "port_step"), problem, remedy)
        return None
    start = naming.start if switch["port_start"] is None else switch["port_start"]
    pattern = switch["port"] or naming.pattern
    ports = [pattern.format(start + index * step) for index in range(count)]
    return SwitchKind(system, chip.name, ports, 0 if given else step)


_MAX_NAMES = 4096
"""Ports of one switch."""
_NUMBER = r"(0|[1-9][0-9]{0,4})"
_BRACES = re.compile(rf"\{{{_NUMBER}\.\.{_NUMBER}(?:\.\.([1-9][0-9]?))?\}}|\{{(\w+(?:,\w+)+)\}}")


def expanded(text: str) -> list[str]:
    """Expand braces as a shell does: `swp{1..64}s{0..1}`, `Ethernet{0..504..8}`,
    `Ethernet{1..64}/{1,5}`. Empty for other braces and for too many names."""
    choices: list[Sequence[object]] = []
    end = 0
    for match in _BRACES.finditer(text):
        first, last, step, listed = match.groups()
        several = listed.split(",") if listed else range(int(first), int(last) + 1, int(step or 1))
        choices += [(text[end : match.start()],), several]
        end = match.end()
    choices.append((text[end:],))
    literal = "".join(map(str, chain.from_iterable(choices[::2])))
    if re.search(r"[{},]", literal) or prod(map(len, choices)) > _MAX_NAMES:
        return []
    return ["".join(map(str, parts)) for parts in product(*choices)]


def _listed(switch: dict[str, Any], section: str, findings: Findings) -> list[str]:
    found: dict[str, None] = {}
    for index, text in enumerate(switch["port"]):
        names = expanded(text)
        if not names or any(name in found for name in names):
            problem = f"{text!r} names no ports, or ports that are already listed"
            remedy = "Write names, or ranges such as swp{1..64}s{0..1} and Ethernet{0..504..8}"
            findings.add("model.port_names", (section, "port", index), problem, remedy, text)
        found.update(dict.fromkeys(names))
        if len(found) > _MAX_NAMES:
            break
    for key in ("port_start", "port_step"):
        if switch[key] is not None:
            problem = f"has no effect where {section}.port is a list of names"
            findings.add("model.port_key", (section, key), problem, "Remove it")
    if not findings and len(found) != switch["ports"]:
        problem = f"names {counted(len(found), 'port')}, and {section}.ports is {switch['ports']}"
        value = (len(found), switch["ports"])
        findings.add("model.port_count", (section, "port"), problem, "Write as many", value)
    return list(found)
