# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The section `asics` of the cluster model: switch chips, with data that only their vendor can
provide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..schema.findings import Findings
from ..schema.kinds import Integer, Invalid, Key, ListOf, OneOf, Section, Table, Text, shown
from .asics import ASICS
from .systems import ETHERNET_SYSTEMS, INFINIBAND_SYSTEMS, SYSTEMS

_CHIPS = {
    **{"sn2": "spectrum", "sn3": "spectrum2", "sn4": "spectrum3", "sn54": "spectrum4"},
    **{"sn5600": "spectrum4", "bcm56980": "tomahawk3", "bcm56990": "tomahawk4"},
    **{"bcm78900": "tomahawk5", "th": "tomahawk"},
}
"""Chips by the first letters of names of switches and chips: sonic-buildimage 086b03bd,
device/mellanox and device/broadcom."""


@dataclass(frozen=True)
class _ChipName(Text):
    def convert(self, value: Any) -> str:
        plain = re.sub(r"[^a-z0-9]", "", str(value).lower())
        starts = (start for start in _CHIPS if re.match(rf"{start}(?![a-z])", plain))
        start = next(starts, "")
        meant = _CHIPS[start] + (plain[2:] if start == "th" else "") if start else plain
        if value != meant and meant in ASICS:
            problem = f"{shown(value)} is not the name of a chip here"
            raise Invalid("model.chip_word", problem, f"Write {meant}")
        return super().convert(value)


CHIP_NAME = _ChipName(
    r"[a-z][a-z0-9_-]*", "a chip's name (a to z, 0 to 9, - and _)", "spectrum4", most=40
)
OUT_OF_SCOPE = "InfiniBand is out of scope: this collection configures RoCE over Ethernet"


@dataclass(frozen=True)
class _System(OneOf):
    def convert(self, value: Any) -> Any:
        word = str(value).lower()
        plain = re.sub(r"[^a-z0-9]", "", word)
        remedy = f"Write {', '.join(SYSTEMS)} for switches with that system"
        if plain.startswith(INFINIBAND_SYSTEMS):
            problem = f"{shown(value)} is a system of InfiniBand switches. {OUT_OF_SCOPE}"
            raise Invalid("model.infiniband", problem, remedy)
        for name, system in SYSTEMS.items():
            if value != name and word in (name, *system.also):
                problem = f"{shown(value)} is not a choice"
                raise Invalid("model.system_word", problem, f"Write {name}")
        other = next((title for part, title in ETHERNET_SYSTEMS.items() if part in plain), "")
        if other:
            problem = f"{shown(value)} ({other}) is an Ethernet system that this collection does "
            problem += "not configure"
            remedy = "Leave it out and write the names of the ports (port, or ports by purpose): "
            remedy += "the layers fabric and links then skip these switches, whose QoS you "
            remedy += "configure by hand as docs/qos-contract.md describes"
            raise Invalid("model.other_system", problem, remedy)
        return super().convert(value)


SYSTEM_NAME = _System(tuple(SYSTEMS))
_BUFFER = Integer(0, 1_000_000_000, "bytes")

HEADROOM = Section(
    "asics.headroom",
    "Buffer that a port needs for lossless operation, from the switch vendor, for one speed and "
    "cable length: a row of `pg_profile_lookup.ini`. It takes precedence over the switch's own row "
    "and over the formula.",
    (
        Key("speed_gbps", Integer(1, 3200, "Gb/s"), "Line rate of the port.", required=True),
        Key(
            "cable_metres",
            Integer(1, 2000, "metres"),
            "The length in `roce_qos.cable_metres`.",
            required=True,
        ),
        Key("size_bytes", _BUFFER, "Reserved for the priority group.", required=True),
        Key("xon_bytes", _BUFFER, "Fill level at which the pause ends.", required=True),
        Key(
            "xoff_bytes",
            Integer(1, 1_000_000_000, "bytes"),
            "Buffer headroom for data still in flight after a PFC pause is sent.",
            required=True,
        ),
        Key(
            "threshold",
            Integer(-8, 1_000_000_000),
            "Share of the free buffer that the group may use: a power of two, or bytes in a pool "
            "of mode static.",
            default_text="what the switch has, or 0",
        ),
        Key(
            "xon_offset_bytes",
            _BUFFER,
            "The pause also ends this far below XOFF.",
            default_text="what the switch has, or none",
        ),
    ),
)

CHIP = Section(
    "asics",
    "A switch chip, under the name that `leaves.asic` or `spines.asic` uses: values that only its "
    "vendor knows.",
    (
        Key("headroom", ListOf(HEADROOM), "Headroom of its ports.", default=[]),
        *(key for system in SYSTEMS.values() for key in system.chip_keys),
    ),
)

CHIPS = Table(CHIP, "chip")


def check_asics(asics: dict[str, Any], findings: Findings) -> None:
    for name, chip in asics.items():
        links = [(row["speed_gbps"], row["cable_metres"]) for row in chip["headroom"]]
        for index, link in enumerate(links):
            if link in links[:index]:
                problem = f"{link[0]}G over {link[1]} m is there twice"
                path = ("asics", name, "headroom", index)
                findings.add("fabric.headroom_twice", path, problem, "Keep one of them", link)
