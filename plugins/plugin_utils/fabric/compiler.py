# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""From the inventory to one intent per switch, and the order in which switches are changed.

The cluster model was checked when it was compiled; nothing is checked again here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from ..qos import Contract, fabric_intent
from ..schema.findings import Findings, Path
from ..schema.kinds import Integer, Key, ListOf, OneOf, Section, Table, Text
from .asics import EOS_QUEUES, Asic, asic_named
from .system import TO_NODES, PortIntent, SwitchIntent

SPINE = "spine"

# Switch chips in the model (`asics`)

CHIP_NAME = Text(
    r"[a-z][a-z0-9_-]*", "a chip's name (a to z, 0 to 9, - and _)", "spectrum4", most=40
)
_BUFFER = Integer(1, 1_000_000_000, "bytes")

HEADROOM = Section(
    "asics.headroom",
    "What a port needs to lose nothing after a pause, as the vendor of the switch says it, for one "
    "speed and cable length. It comes before what would be computed.",
    (
        Key("speed_gbps", Integer(1, 3200, "Gb/s"), "Line rate of the port.", required=True),
        Key(
            "cable_metres",
            Integer(1, 2000, "metres"),
            "The length in `roce_qos.cable_metres`.",
            required=True,
        ),
        Key("size_bytes", _BUFFER, "Of the whole buffer.", required=True),
        Key("xon_bytes", _BUFFER, "Where the pause ends.", required=True),
        Key("xoff_bytes", _BUFFER, "Room for what comes after the pause.", required=True),
    ),
)

CHIP = Section(
    "asics",
    "One chip of switches, under the name that `leaves.asic` or `spines.asic` has for it: what its "
    "vendor says and nobody here can compute.",
    (
        Key("headroom", ListOf(HEADROOM), "Headroom of its ports.", default=[]),
        Key(
            "eos_queue",
            OneOf(EOS_QUEUES),
            "How EOS calls its queues.",
            default_text="what is known of the chip",
        ),
    ),
)

ASICS = Table(CHIP, "chip")


def check_asics(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Findings for what one chip cannot have. `value` went through `check`."""
    for name, chip in value.items():
        seen: dict[tuple[int, int], int] = {}
        for index, row in enumerate(chip["headroom"]):
            place = (*path, name, "headroom", index)
            key = (row["speed_gbps"], row["cable_metres"])
            if seen.setdefault(key, index) != index:
                findings.add(
                    "fabric.headroom_twice",
                    place,
                    f"{key[0]}G over {key[1]} m is there twice, first at "
                    + findings.place((*path, name, "headroom", seen[key])),
                    "Keep one of them",
                    value=key,
                )
            together = row["xon_bytes"] + row["xoff_bytes"]
            if row["size_bytes"] < together:
                findings.add(
                    "fabric.headroom_sum",
                    (*place, "size_bytes"),
                    f"{row['size_bytes']} is less than xon_bytes and xoff_bytes together "
                    f"({together})",
                    "Compare with the vendor's table",
                    value=(row["size_bytes"], together),
                )


def compile_switch(
    name: str,
    role: str,
    system: str,
    asic: str,
    asics: Mapping[str, Mapping[str, Any]],
    ports: Iterable[Mapping[str, Any]],
    contract: Contract,
) -> SwitchIntent:
    """`asic`, `asics` and `ports` are the variables `cluster_asic`, `_asics` and `_ports`."""
    fabric = fabric_intent(contract)
    cables = fabric.cable_metres
    found = [
        PortIntent(
            port,
            group["kind"],
            group["speed_gbps"],
            cables.to_nodes if group["kind"] in TO_NODES else cables.between_switches,
            peer,
            group["peer_interface"],
        )
        for group in ports
        for port, peer in group["peers"].items()
    ]
    return SwitchIntent(
        name=name,
        role=role,
        system=system,
        asic=asic_named(asic, asics) or Asic(asic),
        fabric=fabric,
        ports=tuple(sorted(found, key=lambda port: _natural(port.name))),
    )


def _natural(name: str) -> tuple[tuple[int, Union[int, str]], ...]:
    """Ethernet2 before Ethernet10."""
    return tuple(
        (0, int(part)) if part.isdigit() else (1, part) for part in re.split(r"([0-9]+)", name)
    )


def batches(
    switches: Sequence[tuple[str, str, Sequence[Mapping[str, Any]]]], at_once: int = 1
) -> list[list[str]]:
    """Names, each once; a batch is changed in parallel, and the next when it is done.

    `switches`: name, role and `cluster_ports` of each that differs. Spines come first, each alone:
    the others carry its traffic meanwhile, so a mistake shows first on the switch whose loss costs
    least. Then leaves, `at_once` of them, never two that serve the same node in the same rail
    (planes) or the same storage host.
    """
    found = [[name] for name, role, _ports in switches if role == SPINE]
    waiting = {name: _served(ports) for name, role, ports in switches if role != SPINE}
    while waiting:
        batch: list[str] = []
        served: set[tuple[str, Any]] = set()
        for name, serves in waiting.items():
            if not batch or (len(batch) < at_once and served.isdisjoint(serves)):
                batch.append(name)
                served |= serves
        for name in batch:
            del waiting[name]
        found.append(batch)
    return found


def _served(ports: Iterable[Mapping[str, Any]]) -> set[tuple[str, Any]]:
    return {
        (peer, group.get("rail"))
        for group in ports
        if group["kind"] in TO_NODES
        for peer in group["peers"].values()
    }
