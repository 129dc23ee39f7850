# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What an inventory says of switches: of chips (`cluster_asics`) and ports (`cluster_ports`)."""

from __future__ import annotations

from typing import Any

from ...module_utils.qos import IP_MTU_LIMITS
from ...module_utils.schema.findings import Findings, Path
from ...module_utils.schema.kinds import (
    Integer,
    Key,
    Kind,
    ListOf,
    OneOf,
    OrNull,
    Section,
    Table,
    Text,
    check,
)
from .asics import EOS_QUEUES
from .intent import HOST, KINDS

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

_RAIL = Integer(0, 1023)
_NAME = Text(r"\S+", "a name without blanks", "node01")
_PORTS_OF_ONE_KIND = Section(
    "cluster_ports",
    "Ports of one switch that differ in their peer alone.",
    (
        Key("kind", OneOf(KINDS), "What they lead to.", required=True),
        Key("peer_interface", _NAME, "The interface at the other end.", required=True),
        Key("speed_gbps", Integer(1, 3200, "Gb/s"), "Line rate.", required=True),
        Key("mtu", Integer(*IP_MTU_LIMITS, "bytes, layer 3"), "Of their peers.", required=True),
        Key("peers", Table(_NAME, "port"), "Port to peer.", required=True),
        Key("rail", OrNull(_RAIL), "Of the ports to nodes."),
        *(
            Key(name, Kind(), "Nothing that switches are told here.")
            for name in ("plane", "prefix", "address", "addresses")
        ),
    ),
)
PORTS = ListOf(_PORTS_OF_ONE_KIND)
"""Kept in the form that a model compiles to; written by hand, nobody has looked at it."""


def check_ports(value: Any, findings: Findings, path: Path) -> list[dict[str, Any]]:
    """`cluster_ports` of one switch; what is returned is of use where nothing was found."""
    groups = check(PORTS, value, findings, path) or []
    for index, group in enumerate(groups):
        place = (*path, index)
        if not findings.clean(place):
            continue
        if group["kind"] == HOST and group["rail"] is None:
            findings.add(
                "fabric.ports_without_rail",
                (*place, "rail"),
                "is missing: two leaves of one rail of a node are never changed together",
                "Write the number of the rail that these ports lead to",
            )
        if not group["peers"]:
            findings.add(
                "fabric.ports_without_peers",
                (*place, "peers"),
                "has no ports",
                "Write each, or leave the group out",
            )
    return groups


def check_asics(value: dict[str, Any], findings: Findings, path: Path) -> None:
    """Findings for what one chip cannot have. `value` went through `check`."""
    for name, chip in value.items():
        if not findings.clean((*path, name)):
            continue
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
