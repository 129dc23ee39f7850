# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Name, system, chip and port names of every leaf and spine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from ...module_utils.core.text import counted, nearest
from ...module_utils.qos import SPECTRUM_X
from ..fabric.asics import ASICS, INFINIBAND, Asic, asic_named
from ..fabric.chip_keys import OUT_OF_SCOPE
from ..fabric.port_names import MAX_NAMES, UNNAMED, Fault, PortNaming, expanded, faults
from ..fabric.systems import SYSTEMS
from ..schema import meant
from ..schema.findings import Findings, Path

NODES, STORAGE, UPLINKS, DOWNLINKS = "nodes", "storage", "uplinks", "downlinks"
PEERS = "peers"
"""Purposes of ports."""
_OF_LEAVES = (NODES, STORAGE, UPLINKS, PEERS)
_OF_OTHERS = (DOWNLINKS, UPLINKS, PEERS)

_USUAL_LANES = {800: 8}
"""Steps by speed, for an unknown chip with lanes of 100G. With lanes of 200G, the names would skip
ports of the switch, and the layer `fabric` refuses them.
"""


_DASHED = re.compile(r"(?<=[A-Za-z/])(\d+)-(\d+)")
_LANED = re.compile(r"(\d+)/(\d+)-(\d+)/\2$")
"""Ranges as the command lines of NVUE and EOS write them (swp1-32, Ethernet1/1-32/1)."""


@dataclass(frozen=True)
class SwitchKind:
    """What switches with one system and one chip share. Both are empty if the model has none."""

    system: str
    asic: str
    ports: Sequence[str]
    """Names of the ports, in order: uplinks are the last ones."""
    port_step: int = 0
    """Step between port numbers, if computed from the lanes of the chip."""
    purposes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names by purpose, if the model has them so."""

    port_ranges: Sequence[str] = ()
    """As in the model."""

    def ports_for(self, purpose: str) -> Optional[Sequence[str]]:
        """The ports for a purpose; None if the model has one list for all."""
        return self.purposes.get(purpose, ()) if self.purposes else None


@dataclass(frozen=True)
class Switches:
    """The switches of one section, in order; fewer if there are findings."""

    names: Sequence[str] = ()
    kinds: Sequence[SwitchKind] = ()
    racks: Sequence[str] = ()
    """Empty texts if the model has none."""


def read_ports(switch: dict[str, Any], section: str, leaf: bool, findings: Findings) -> None:
    """Replace ports by purpose by their number, and add the names as `purposes`."""
    switch["purposes"], switch["ranges"] = {}, []
    if isinstance(switch["ports"], dict):
        before = len(findings.found)
        texts = [texts for texts in switch["ports"].values() if texts]
        switch["ranges"] = [
            text for one in texts for text in ([one] if isinstance(one, str) else one)
        ]
        known = _OF_LEAVES if leaf else _OF_OTHERS
        names = switch["purposes"] = _by_purpose(switch, section, known, findings)
        if (count := sum(map(len, names.values()))) >= MAX_NAMES:
            problem, remedy = "names more ports than any switch has", "Shorten the ranges"
            findings.add("model.too_many_ports", (section, "ports"), problem, remedy, count)
        # After an error, enough for no other one to follow.
        wrong = len(findings.found) > before
        switch["ports"] = MAX_NAMES if wrong else count


def _by_purpose(
    switch: dict[str, Any], section: str, known: Sequence[str], findings: Findings
) -> dict[str, Sequence[str]]:
    written = switch["ports"]
    taken: dict[str, Path] = {}
    found: dict[str, Sequence[str]] = {}
    for purpose in known:
        texts = written[purpose] or ()
        path: Path = (section, "ports", purpose)
        found[purpose] = _names([texts] if isinstance(texts, str) else texts, path, taken, findings)
    for purpose in (key for key, value in written.items() if value is not None):
        if purpose not in known:
            problem = f"switches of {section} have no such ports"
            remedy = f"Write {', '.join(known)}"
            findings.add("model.port_purpose", (section, "ports", purpose), problem, remedy)
    if written[PEERS] and switch["count"] % 2:
        problem, remedy = f"{switch['count']} switches do not form pairs", "Have an even number"
        path = (section, "ports", PEERS)
        findings.add("model.no_pairs", path, problem, remedy, switch["count"])
    if not written[known[0]]:
        problem, remedy = "is missing", f"Write the names of the {known[0]}' ports"
        findings.add("model.no_ports", (section, "ports", known[0]), problem, remedy)
    keys = ("port", "port_start", "port_step", "uplink_ports")
    _check_unused(switch, section, keys, "ports", findings)
    return found


def _names(
    texts: Sequence[str], path: Path, taken: dict[str, Path], findings: Findings
) -> list[str]:
    """The names of these texts, which are added to `taken`."""
    found: list[str] = []
    for index, text in enumerate(texts):
        names, here = expanded(text), (*path, index)
        bracketed = _DASHED.sub(r"[\1-\2]", _LANED.sub(r"[\1-\3]/\2", text))
        twice = next((name for name in names if name in taken), None)
        if not names:
            problem = f"{text!r} is not a range of names (up to {MAX_NAMES}, each once)"
            remedy = "Write names, or ranges such as swp[1-64]s[0-1] and Ethernet[0-504/8]"
            if (ordered := meant.port_range(text)) and expanded(ordered):
                remedy = f"Write {ordered}"
            findings.add("model.port_names", here, problem, remedy, text)
        elif "[" not in text and bracketed != text:
            problem, remedy = f"{text!r} is not one name", f"Write a range: {bracketed}"
            findings.add("model.port_range", here, problem, remedy, text)
            names = []
        elif twice:
            problem = f"{text!r} names {twice}, as does {findings.place(taken[twice])}"
            findings.add("model.port_name_twice", here, problem, "Write each port once", text)
        taken.update(dict.fromkeys(names, here))
        found += names
        if len(taken) > MAX_NAMES:
            break
    return found


@dataclass(frozen=True)
class _At:
    """Switches of one section with one system and one chip, and where to report."""

    model: dict[str, Any]
    section: str
    system: str
    chip: Asic
    findings: Findings
    doubts: Findings

    @property
    def switch(self) -> dict[str, Any]:
        found: dict[str, Any] = self.model[self.section]
        return found

    @property
    def naming(self) -> PortNaming:
        return SYSTEMS[self.system].naming if self.system else UNNAMED


def read_switches(
    model: dict[str, Any], section: str, findings: Findings, doubts: Findings
) -> Switches:
    switch, asics = model[section], model["asics"]
    if not switch:
        return Switches()
    names = switch["name"]
    if isinstance(names, str):
        names = [names.format(number + 1) for number in range(switch["count"])]
    values = [switch[key] or "" for key in ("system", "asic", "rack", "asn")]
    lists = [
        value if isinstance(value, list) else [value] * switch["count"]
        for value in (names, *values)
    ]
    by_key = dict(zip(("name", "system", "asic", "rack", "asn"), lists))
    for key in ("management_first", "bmc_first"):
        if isinstance(switch[key], list):
            by_key[key] = switch[key]
    for key, value in by_key.items():
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
            problem = f"the chip {name!r} is unknown"
            remedy = f"{nearest(name, [*ASICS, *asics])}. Describe another one under asics"
            if name.startswith(INFINIBAND):
                problem, remedy = f"{name!r} is a chip for InfiniBand. {OUT_OF_SCOPE}", ""
            findings.add("model.unknown_chip", path, problem, remedy, name)
            continue
        made[system, name] = _kind(_At(model, section, system, chip, findings, doubts), path)
    kinds = [kind for kind in map(made.__getitem__, pairs) if kind is not None]
    return Switches(names, kinds, lists[3])


def _check_spectrum_x(section: str, systems: set[str], findings: Findings) -> None:
    capable = [system.name for system in SYSTEMS.values() if system.adaptive_routing]
    for system in sorted(systems.difference(capable)):
        problem = f"roce_qos.fabric_mode {SPECTRUM_X} requires {', '.join(capable)}, not {system}"
        remedy = "Leave it out, and write leaves.port and spines.port if the ports have names of "
        remedy += "that system: the layers fabric and links then skip these switches"
        findings.add("model.spectrum_x_system", (section, "system"), problem, remedy, system)


def _kind(at: _At, path: Path) -> Optional[SwitchKind]:
    if not _fits(at, path):
        return None
    if at.switch["purposes"]:
        return _named(at)
    return _listed(at) if isinstance(at.switch["port"], list) else _computed(at)


def _fits(at: _At, path: Path) -> bool:
    """Whether the system runs on the chip, which has ports of every speed."""
    chip, system = at.chip, SYSTEMS.get(at.system)
    if system and system.families and chip.family and chip.family not in system.families:
        problem = f"{system.title} does not run on {chip.name}, but on chips of the family "
        problem += " or ".join(system.families)
        remedy = f"Correct the name of the chip, or {at.section}.system"
        at.findings.add("model.chip_system", path, problem, remedy, (system.name, chip.name))
        return False
    speeds = {speed: purpose for purpose, speed in reversed(_speeds(at).items())}
    wrong = [speed for speed in speeds if chip.name and not chip.has_port(speed)]
    for speed in wrong:
        problem = f"{chip.name} has no ports of {speed}G ({at.section}, {speeds[speed]})"
        remedy = "Correct the name of the chip, or speed_gbps"
        at.findings.add("model.chip_speed", path, problem, remedy, (chip.name, speed))
    return not wrong


def _speeds(at: _At) -> dict[str, int]:
    """Speeds of the ports by purpose, except those to storage hosts, which have one each."""
    found: dict[str, int] = at.switch["speeds"]
    return found


def _named(at: _At) -> SwitchKind:
    """Ports that the model names by purpose."""
    purposes: dict[str, Sequence[str]] = at.switch["purposes"]
    speeds, chip = _speeds(at), at.chip
    links = [link for host in at.model["storage"] for link in host["links"]]
    own = {link["port"]: link["speed_gbps"] or at.model["rails"]["speed_gbps"] for link in links}
    # Parts of one port of the front are equal, also those without a cable.
    fronts = {at.naming.front(name): speed for name, speed in own.items()}
    fronts.pop(0, None)
    found = {
        name: speeds.get(purpose, own.get(name, fronts.get(at.naming.front(name), 1)))
        for purpose, names in purposes.items()
        for name in names
    }
    # Ports slower than a lane can be service ports, with lanes apart.
    needed = sum(
        chip.fewest_lanes(speed) for speed in found.values() if speed >= (chip.lane_gbps or 0)
    )
    path: Path = (at.section, "ports")
    if chip.lanes is not None and needed > chip.lanes:
        problem = f"these {len(found)} ports need {needed} lanes, and {chip.name} has {chip.lanes}"
        remedy = "Write fewer names, or correct the name of the chip or a speed"
        at.findings.add("model.lanes_of_ports", path, problem, remedy, (needed, chip.lanes))
    else:
        widths = ((name, chip.fewest_lanes(speed)) for name, speed in found.items())
        of = {name: purpose for purpose, names in purposes.items() for name in names}
        _check_names(at, widths, lambda fault: (*path, of[fault.name]))
    return SwitchKind(
        at.system, chip.name, [*found], purposes=purposes, port_ranges=at.switch["ranges"]
    )


def _listed(at: _At) -> SwitchKind:
    """Ports that the model names in one list, which may have several speeds."""
    switch, section, chip = at.switch, at.section, at.chip
    path: Path = (section, "port")
    before = len(at.findings.found)
    found = _names(switch["port"], path, {}, at.findings)
    _check_unused(switch, section, ("port_start", "port_step"), "port", at.findings)
    if len(at.findings.found) == before and len(found) != switch["ports"]:
        problem = f"names {counted(len(found), 'port')}, and {section}.ports is {switch['ports']}"
        value = (len(found), switch["ports"])
        at.findings.add("model.port_count", path, problem, "Write as many", value)
    if len(at.findings.found) == before:
        fewest = chip.fewest_lanes(min(_speeds(at).values()))
        _check_names(at, ((name, fewest) for name in found), lambda fault: path)
    return SwitchKind(at.system, chip.name, found)


def _check_unused(
    switch: dict[str, Any], section: str, keys: Iterable[str], names: str, findings: Findings
) -> None:
    for key in keys:
        if switch.get(key) is not None:
            problem = f"has no effect where {section}.{names} has the names"
            findings.add("model.port_key", (section, key), problem, "Remove it")


def _computed(at: _At) -> Optional[SwitchKind]:
    """Ports that follow from their number, and perhaps a pattern."""
    switch, section, chip, naming = at.switch, at.section, at.chip, at.naming
    count, speeds = switch["ports"], list(_speeds(at).values())
    speed, fewest = speeds[0], chip.fewest_lanes(max(speeds))
    lanes = chip.lanes_of_port(count, speed)
    if chip.lanes is not None and (lanes is None or lanes < fewest):
        speed = speed if lanes is None else max(speeds)
        each = chip.fewest_lanes(speed)
        problem = f"{count} ports of {speed}G need {count * each} lanes ({each} each), and "
        problem += f"{chip.name} has {chip.lanes}"
        remedy = f"Write {chip.lanes // each} or fewer, or correct the name of the chip. Of "
        remedy += f"ports of several speeds, write the names by purpose ({section}.ports)"
        at.findings.add("model.chip_lanes", (section, "ports"), problem, remedy, (count, speed))
        return None
    given = switch["port_step"] or naming.step
    step = given or lanes or _USUAL_LANES.get(speed)
    if step is None:
        problem = f"is missing: {SYSTEMS[at.system].title} counts lanes, which are unknown"
        remedy = "Write it (from Ethernet0 to the next port: `show interfaces status`), or name "
        remedy += f"the chip in {section}.asic"
        at.findings.add("model.port_step", (section, "port_step"), problem, remedy)
        return None
    if not given and lanes and lanes < chip.widest and count * lanes != chip.lanes:
        equal = (chip.lanes or 0) // lanes
        problem = f"{chip.name} has {chip.lanes} lanes, for {equal} ports of {lanes}, not for "
        problem += f"{count}: some may have more than others, and the names count lanes"
        remedy = f"Write {equal}, {section}.port_step, or the names by purpose ({section}.ports)"
        at.findings.add("model.lanes_unclear", (section, "ports"), problem, remedy, (count, lanes))
        return None
    if naming.step and switch["port_step"] not in (None, naming.step) and at.system:
        problem = f"{SYSTEMS[at.system].title} counts the ports of the front, and this leaves "
        problem += f"{switch['port_step'] - 1} out after each"
        remedy = "Remove it, unless they are for another purpose"
        at.doubts.add("model.port_step_counted", (section, "port_step"), problem, remedy, step)
    if naming.step and lanes and lanes < chip.widest and not switch["port"] and at.system:
        problem = f"{count} ports of {speed}G are {count} ports of the front with {lanes} lanes"
        remedy = "Of ports that are broken out, write the names by purpose, such as "
        remedy += f"{section}.ports: {{nodes: '{naming.parts}'}}"
        at.doubts.add("model.ports_in_whole", (section, "ports"), problem, remedy, (count, lanes))
    start = naming.start if switch["port_start"] is None else switch["port_start"]
    if naming.step is None and chip.lanes is None and start % step:
        problem = (
            f"{SYSTEMS[at.system].title} counts lanes: with {step} for each port, a name is a "
        )
        problem += f"multiple of {step}"
        remedy = f"Write 0, or name the chip in {section}.asic"
        at.doubts.add("model.port_start", (section, "port_start"), problem, remedy, start)
    pattern = switch["port"] or naming.pattern
    ports = [pattern.format(start + index * step) for index in range(count)]
    width = chip.fewest_lanes(speed) if given or not lanes else lanes

    def path(fault: Fault) -> Path:
        written = [key for key in _KEYS[fault.code] if switch[key] is not None]
        return (section, (*written, "ports")[0])

    _check_names(at, ((name, width) for name in ports), path)
    return SwitchKind(at.system, chip.name, ports, 0 if given else step)


_KEYS = {
    "model.port_form": ("port", "port_start"),
    "model.port_of_line_card": ("port",),
    "model.port_beyond": ("port_step", "port_start", "port"),
    "model.port_lanes": ("port_start", "port_step", "port"),
    "model.port_overlap": ("port_step", "port"),
}
"""Keys that can cause a fault of computed names, the likeliest first."""


def _check_names(at: _At, ports: Iterable[tuple[str, int]], path: Callable[[Fault], Path]) -> None:
    """Check names, with the lanes of each port, against the system and the chip."""
    for fault in faults(at.naming, at.chip, ports) if at.system else ():
        known = at.findings if fault.certain else at.doubts
        problem = f"{SYSTEMS[at.system].title}: {fault.problem}"
        known.add(fault.code, path(fault), problem, fault.remedy, fault.name)
