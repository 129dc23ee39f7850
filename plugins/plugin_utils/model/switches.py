# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What each leaf and spine is: its system, its chip, and what its ports are called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Optional

from ...module_utils.core.dataclass import dataclass
from ...module_utils.core.text import counted, nearest
from ..fabric.asics import ASICS, Asic, asic_named
from ..fabric.compiler import check_asics
from ..schema.findings import Findings, Path
from .topology import Ports

EIGHT_LANES_GBPS = 800
"""No port of this speed has fewer lanes, nor more."""


class Naming(NamedTuple):
    """How a system calls the ports of a switch."""

    pattern: str
    start: int
    step: Optional[int]
    """None: it counts lanes, so that the step is how many a port has."""


NAMINGS = {
    "": Naming("Ethernet{}", 0, 1),
    "sonic": Naming("Ethernet{}", 0, None),
    "nvue": Naming("swp{}", 1, 1),
    "eos": Naming("Ethernet{}/1", 1, 1),
}
"""By system; without one, what a model had before there were systems."""


@dataclass(frozen=True)
class SwitchKind:
    system: str
    """Empty where nobody says."""
    asic: str
    """Likewise."""
    ports: Ports


def read_switches(model: dict[str, Any], findings: Findings) -> dict[str, list[SwitchKind]]:
    """Every leaf and spine in order; empty where they are not clear."""
    asics = model["asics"] if findings.clean(("asics",)) else {}
    check_asics(asics, findings, ("asics",))
    kinds: dict[str, list[SwitchKind]] = {"leaves": [], "spines": []}
    for section in kinds:
        if model[section] and findings.clean((section,)):
            kinds[section] = _kinds(model, section, asics, findings)
    return kinds


def port_names(kinds: Iterable[SwitchKind]) -> list[list[str]]:
    """Names of all ports of each switch. Like switches share one list."""
    made: dict[Ports, list[str]] = {}
    return [made.setdefault(kind.ports, kind.ports.names()) for kind in kinds]


def _kinds(
    model: dict[str, Any], section: str, asics: dict[str, Any], findings: Findings
) -> list[SwitchKind]:
    switch = model[section]
    systems = _each(section, "system", switch, findings)
    names = _each(section, "asic", switch, findings)
    speed = _speed(model, section, findings)
    made: dict[tuple[str, str], Optional[SwitchKind]] = {}
    for index, pair in enumerate(zip(systems, names)):
        if pair not in made:
            path: Path = (section, "asic")
            path += (index,) if isinstance(switch["asic"], list) else ()
            chip = _chip(pair[1], asics, path, findings)
            if chip is not None and speed is not None:
                _check_speed(chip, speed, section, path, findings)
            made[pair] = _kind(switch, section, pair[0], chip, speed, findings)
    kinds = [made[pair] for pair in zip(systems, names)]
    return [kind for kind in kinds if kind is not None]


def _each(section: str, key: str, switch: dict[str, Any], findings: Findings) -> list[str]:
    """One word for every switch, whether the model has one for all or a list."""
    value = switch[key]
    if not isinstance(value, list):
        return [value or ""] * switch["count"]
    if len(value) != switch["count"]:
        findings.add(
            "model.words_for_switches",
            (section, key),
            f"{counted(len(value), 'entry', 'entries')} for {switch['count']} {section}",
            "Write as many as there are switches, or one word for all",
            value=len(value),
        )
        return []
    return value


def _speed(model: dict[str, Any], section: str, findings: Findings) -> Optional[int]:
    """Of the ports that most cables of these switches go to."""
    speed: Optional[int] = model[section].get("speed_gbps")
    if speed is None and findings.clean(("rails",)):
        speed = model["rails"]["speed_gbps"]
    return speed


def _chip(name: str, asics: dict[str, Any], path: Path, findings: Findings) -> Optional[Asic]:
    chip = asic_named(name, asics)
    if chip is None:
        findings.add(
            "model.unknown_chip",
            path,
            f"{name!r} is no chip that is known",
            f"{nearest(name, [*ASICS, *asics])}. Introduce another one under asics",
            value=name,
        )
    return chip


def _check_speed(chip: Asic, speed: int, section: str, path: Path, findings: Findings) -> None:
    if chip.name and not chip.has_port(speed):
        findings.add(
            "model.chip_speed",
            path,
            f"{chip.name} has no port of {speed}G, and the cables of {section} are that fast",
            "Name the chip that is there, or correct speed_gbps",
            value=(chip.name, speed),
        )


def _kind(
    switch: dict[str, Any],
    section: str,
    system: str,
    chip: Optional[Asic],
    speed: Optional[int],
    findings: Findings,
) -> Optional[SwitchKind]:
    naming = NAMINGS[system]
    step = switch["port_step"] or naming.step
    if step is None and chip is not None:
        step = chip.lanes_of_port(switch["ports"]) or (8 if speed == EIGHT_LANES_GBPS else None)
        if step is None:
            findings.add(
                "model.port_step",
                (section, "port_step"),
                "is missing: SONiC counts lanes in the names of its ports, and nobody says how "
                "many a port has",
                f"Write it (8 where a port has eight lanes), or name the chip in {section}.asic",
            )
    if step is None or chip is None:
        return None
    start = naming.start if switch["port_start"] is None else switch["port_start"]
    ports = Ports(switch["ports"], switch["port"] or naming.pattern, start, step)
    return SwitchKind(system, chip.name, ports)
