# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The section `asics` of the cluster model: switch chips, with data that only their vendor can
provide.
"""

from __future__ import annotations

from typing import Any

from ..schema.findings import Findings, Path
from ..schema.kinds import Integer, Key, ListOf, Section, Table, Text
from .asics import ASICS
from .systems import SYSTEMS

CHIP_NAME = Text(
    r"[a-z][a-z0-9_-]*", "a chip's name (a to z, 0 to 9, - and _)", "spectrum4", most=40
)
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


def check_asics(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Add findings for values that a chip cannot have. `value` has passed `CHIPS.check`."""
    for name, chip in value.items():
        seen: dict[tuple[int, int], int] = {}
        for index, row in enumerate(chip["headroom"]):
            row_path = (*path, name, "headroom", index)
            key = (row["speed_gbps"], row["cable_metres"])
            if seen.setdefault(key, index) != index:
                findings.add(
                    "fabric.headroom_twice",
                    row_path,
                    f"{key[0]}G over {key[1]} m is there twice, first at "
                    + findings.place((*path, name, "headroom", seen[key])),
                    "Keep one of them",
                    value=key,
                )
            # True for NVIDIA's tables. Others reserve less, and have the headroom in the pool.
            xon_xoff_bytes = row["xon_bytes"] + row["xoff_bytes"]
            known = ASICS.get(name)
            if (
                known is not None
                and known.formula is not None
                and row["size_bytes"] < xon_xoff_bytes
                and row["size_bytes"] != row["xon_bytes"]
            ):
                findings.add(
                    "fabric.headroom_sum",
                    (*row_path, "size_bytes"),
                    f"{row['size_bytes']} is neither xon_bytes, as where ports share headroom, nor "
                    f"xon_bytes and xoff_bytes together ({xon_xoff_bytes})",
                    "Compare with the vendor's table",
                    value=(row["size_bytes"], xon_xoff_bytes),
                )
