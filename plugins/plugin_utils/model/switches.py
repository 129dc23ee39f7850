# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""System, chip and port names of every leaf and spine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
class Ports:
    """Names of the ports of a switch."""

    count: int
    pattern: str
    start: int
    step: int
    computed: bool = False
    """`step` is computed from the lanes of one of the chip's ports."""
    listed: tuple[str, ...] = ()
    """Names listed in the model, in place of a pattern: breakouts, or several speeds."""

    def names(self) -> list[str]:
        by_number = (
            self.pattern.format(self.start + index * self.step) for index in range(self.count)
        )
        return [*self.listed] or [*by_number]


@dataclass(frozen=True)
class SwitchKind:
    system: str
    """Empty if the model names none."""
    asic: str
    """Empty if the model names none, as well."""
    ports: Ports


def read_switches(model: dict[str, Any], findings: Findings) -> dict[str, list[SwitchKind]]:
    """Every leaf and spine in order; fewer if there are findings."""
    found = {
        section: _kinds(model, section, findings) if model[section] else []
        for section in ("leaves", "spines")
    }
    if model["roce_qos"]["fabric_mode"] == SPECTRUM_X:
        _check_spectrum_x(found, findings)
    return found


def _check_spectrum_x(found: dict[str, list[SwitchKind]], findings: Findings) -> None:
    capable = [system.name for system in SYSTEMS.values() if system.adaptive_routing]
    for section, kinds in found.items():
        for system in sorted({kind.system for kind in kinds} - {"", *capable}):
            findings.add(
                "model.spectrum_x_system",
                (section, "system"),
                f"{system} is not supported in roce_qos.fabric_mode {SPECTRUM_X}, which requires "
                f"{', '.join(capable)}",
                "Leave it out, and write leaves.port and spines.port if the ports have names of "
                "that system: the layers fabric and links then skip these switches",
                system,
            )


def port_names(kinds: Iterable[SwitchKind]) -> list[list[str]]:
    """Port names of each switch. Equal switches share one list."""
    made: dict[Ports, list[str]] = {}
    return [made.setdefault(kind.ports, kind.ports.names()) for kind in kinds]


def _kinds(model: dict[str, Any], section: str, findings: Findings) -> list[SwitchKind]:
    switch, asics = model[section], model["asics"]
    speed: int = switch.get("speed_gbps") or model["rails"]["speed_gbps"]
    pairs = list(
        zip(
            _per_switch(section, "system", switch, findings),
            _per_switch(section, "asic", switch, findings),
        )
    )
    made: dict[tuple[str, str], Optional[SwitchKind]] = {}
    for index, (system, name) in enumerate(pairs):
        if (system, name) in made:
            continue
        path: Path = (
            (section, "asic", index) if isinstance(switch["asic"], list) else (section, "asic")
        )
        chip = asic_named(name, asics)
        if chip is None:
            findings.add(
                "model.unknown_chip",
                path,
                f"the chip {name!r} is unknown",
                f"{nearest(name, [*ASICS, *asics])}. Describe another one under asics",
                name,
            )
        elif chip.name and not chip.has_port(speed):
            findings.add(
                "model.chip_speed",
                path,
                f"{chip.name} has no ports of {speed}G, the speed of the cables of {section}",
                "Correct the name of the chip, or speed_gbps",
                (chip.name, speed),
            )
        made[system, name] = (
            None if chip is None else _kind(switch, section, system, chip, speed, findings)
        )
    return [kind for kind in map(made.get, pairs) if kind is not None]


def _per_switch(section: str, key: str, switch: dict[str, Any], findings: Findings) -> list[str]:
    """One value per switch, from a list or from a value for all."""
    value = switch[key]
    if not isinstance(value, list):
        return [value or ""] * switch["count"]
    if len(value) != switch["count"]:
        findings.add(
            "model.words_for_switches",
            (section, key),
            f"{counted(len(value), 'entry', 'entries')} for {switch['count']} {section}",
            "Write as many as there are switches, or one for all",
            len(value),
        )
        return []
    return value


def _kind(
    switch: dict[str, Any], section: str, system: str, chip: Asic, speed: int, findings: Findings
) -> Optional[SwitchKind]:
    naming = SYSTEMS[system].naming if system else UNNAMED
    count = switch["ports"]
    if isinstance(switch["port"], list):
        listed = _listed(switch, section, findings)
        return SwitchKind(system, chip.name, Ports(len(listed), "", 0, 0, listed=listed))
    lanes = chip.lanes_of_port(count, speed)
    if chip.lanes is not None and lanes is None and chip.has_port(speed):
        fewest = chip.fewest_lanes(speed)
        findings.add(
            "model.chip_lanes",
            (section, "ports"),
            f"{count} ports of {speed}G need {count * fewest} lanes ({fewest} each), and "
            f"{chip.name} has {chip.lanes}",
            f"Write {chip.lanes // fewest} or fewer, or correct the name of the chip. Of ports of "
            f"several speeds, list the names ({section}.port)",
            (count, speed),
        )
        return None
    step = switch["port_step"] or naming.step or lanes or _USUAL_LANES.get(speed)
    if step is None:
        findings.add(
            "model.port_step",
            (section, "port_step"),
            f"is missing: {SYSTEMS[system].title} counts lanes in the names of its ports, and how "
            "many a port has is not known",
            f"Write it (from Ethernet0 to the next port: `show interfaces status`), or name the "
            f"chip in {section}.asic",
        )
        return None
    start = naming.start if switch["port_start"] is None else switch["port_start"]
    computed = not (switch["port_step"] or naming.step)
    pattern = switch["port"] or naming.pattern
    ports = Ports(count, pattern, start, step, computed=computed)
    return SwitchKind(system, chip.name, ports)


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


def _listed(switch: dict[str, Any], section: str, findings: Findings) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for index, text in enumerate(switch["port"]):
        names = expanded(text)
        if not names or any(name in found for name in names):
            findings.add(
                "model.port_names",
                (section, "port", index),
                f"{text!r} names no ports, or ports that are already listed",
                "Write names, or ranges such as swp{1..64}s{0..1}, Ethernet{1..64}/{1,5} and "
                "Ethernet{0..504..8}",
                text,
            )
        found.update(dict.fromkeys(names))
        if len(found) > _MAX_NAMES:
            break
    if not findings and len(found) != switch["ports"]:
        findings.add(
            "model.port_count",
            (section, "port"),
            f"names {counted(len(found), 'port')}, and {section}.ports is {switch['ports']}",
            "Write as many",
            (len(found), switch["ports"]),
        )
    for key in ("port_start", "port_step"):
        if switch[key] is not None:
            findings.add(
                "model.port_key",
                (section, key),
                f"has no effect where {section}.port is a list of names",
                "Leave it out",
            )
    return tuple(found)
