# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables of CONFIG_DB: their names, their keys, and which of their objects are ours.

Every value is a string, references are plain names, and the key of a port's queue or priority group
is `Ethernet0|3`, or `Ethernet0|3-4` for a range of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Optional

from ..system import OWNED

Row = dict[str, str]
Table = dict[str, Row]
Config = dict[str, Table]
"""CONFIG_DB, or the part of it that is spoken of."""

PORT = "PORT"
DSCP_TO_TC_MAP = "DSCP_TO_TC_MAP"
TC_TO_QUEUE_MAP = "TC_TO_QUEUE_MAP"
TC_TO_PRIORITY_GROUP_MAP = "TC_TO_PRIORITY_GROUP_MAP"
MAP_PFC_PRIORITY_TO_QUEUE = "MAP_PFC_PRIORITY_TO_QUEUE"
PFC_PRIORITY_TO_PRIORITY_GROUP_MAP = "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"
WRED_PROFILE = "WRED_PROFILE"
SCHEDULER = "SCHEDULER"
BUFFER_POOL = "BUFFER_POOL"
BUFFER_PROFILE = "BUFFER_PROFILE"
PORT_QOS_MAP = "PORT_QOS_MAP"
QUEUE = "QUEUE"
BUFFER_PG = "BUFFER_PG"
BUFFER_QUEUE = "BUFFER_QUEUE"
CABLE_LENGTH = "CABLE_LENGTH"
PFC_WD = "PFC_WD"
PORTCHANNEL_MEMBER = "PORTCHANNEL_MEMBER"
DEVICE_METADATA = "DEVICE_METADATA"
DEFAULT_LOSSLESS_BUFFER_PARAMETER = "DEFAULT_LOSSLESS_BUFFER_PARAMETER"
FEATURE = "FEATURE"

GLOBAL = "GLOBAL"
"""Row of PFC_WD that holds for all ports."""

OBJECTS = (
    DSCP_TO_TC_MAP,
    TC_TO_QUEUE_MAP,
    TC_TO_PRIORITY_GROUP_MAP,
    MAP_PFC_PRIORITY_TO_QUEUE,
    PFC_PRIORITY_TO_PRIORITY_GROUP_MAP,
    WRED_PROFILE,
    SCHEDULER,
    BUFFER_PROFILE,
)
"""Tables of named objects, which others refer to."""

ROWS = (PORT, CABLE_LENGTH, PORT_QOS_MAP, QUEUE, BUFFER_PG, PFC_WD)
"""Tables of ports, of which we set some fields."""

REFERENCES: Mapping[tuple[str, str], str] = {
    (PORT_QOS_MAP, "dscp_to_tc_map"): DSCP_TO_TC_MAP,
    (PORT_QOS_MAP, "tc_to_queue_map"): TC_TO_QUEUE_MAP,
    (PORT_QOS_MAP, "tc_to_pg_map"): TC_TO_PRIORITY_GROUP_MAP,
    (PORT_QOS_MAP, "pfc_to_queue_map"): MAP_PFC_PRIORITY_TO_QUEUE,
    (PORT_QOS_MAP, "pfc_to_pg_map"): PFC_PRIORITY_TO_PRIORITY_GROUP_MAP,
    (PORT_QOS_MAP, "scheduler"): SCHEDULER,
    (QUEUE, "scheduler"): SCHEDULER,
    (QUEUE, "wred_profile"): WRED_PROFILE,
    (BUFFER_PG, "profile"): BUFFER_PROFILE,
    (BUFFER_QUEUE, "profile"): BUFFER_PROFILE,
    ("BUFFER_PORT_INGRESS_PROFILE_LIST", "profile_list"): BUFFER_PROFILE,
    ("BUFFER_PORT_EGRESS_PROFILE_LIST", "profile_list"): BUFFER_PROFILE,
    (BUFFER_PROFILE, "pool"): BUFFER_POOL,
}
"""Which field names an object of which table. `profile_list` names several, with commas."""

LOOKED_AT = tuple(
    dict.fromkeys(
        (
            *OBJECTS,
            *ROWS,
            *(table for table, _field in REFERENCES),
            *(BUFFER_POOL, DEFAULT_LOSSLESS_BUFFER_PARAMETER),
            *(PORTCHANNEL_MEMBER, DEVICE_METADATA, FEATURE),
        )
    )
)
"""What a switch is asked for. The rest of CONFIG_DB never leaves it: passwords stand there."""

GENERATED = "pg_lossless_"
"""Profiles that the switch makes by itself begin with this. They are never touched."""

COMPUTED = "NULL"
"""Instead of a profile: the switch computes the headroom by itself (dynamic buffer model)."""


def natural(text: str) -> list[tuple[int, str]]:
    """Sorts Ethernet8 before Ethernet16."""
    return [(int(part or 0), word) for word, part in re.findall(r"([^0-9]*)([0-9]*)", text)]


def is_number(text: Optional[str]) -> bool:
    """Anything can stand in a field that somebody edited by hand."""
    return text is not None and re.fullmatch(r"[0-9]{1,18}", text) is not None


def number(text: Optional[str], otherwise: int = 0) -> int:
    """What a field says."""
    return int(text) if text is not None and is_number(text) else otherwise


def owned(name: str) -> bool:
    return name == OWNED or name.startswith(OWNED + "_")


def port_of(key: str) -> str:
    """`Ethernet0` of `Ethernet0|3-4`."""
    return key.split("|", 1)[0]


def numbers_of(key: str) -> range:
    """3 and 4 of `Ethernet0|3-4`; none where the key is of another form."""
    found = re.fullmatch(r"[^|]+\|([0-9]{1,3})(?:-([0-9]{1,3}))?", key)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)


def key_of(port: str, numbers: range) -> str:
    last = f"-{numbers[-1]}" if len(numbers) > 1 else ""
    return f"{port}|{numbers[0]}{last}"


def ranges(numbers: Iterable[int]) -> list[range]:
    """Neighbouring numbers together: 0, 1, 2 and 5 are two ranges."""
    found: list[range] = []
    for number in sorted(numbers):
        if found and number == found[-1].stop:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def by_port(table: Optional[Mapping[str, Row]]) -> dict[str, list[str]]:
    """Keys of a table of queues or priority groups, by port."""
    found: dict[str, list[str]] = {}
    for key in table or {}:
        found.setdefault(port_of(key), []).append(key)
    return found


def references(config: Mapping[str, Mapping[str, Row]]) -> Iterator[tuple[str, str, str, str, str]]:
    """Table, key and field that name an object, with the object's table and name."""
    for (table, field), target in REFERENCES.items():
        for key, row in (config.get(table) or {}).items():
            for name in filter(None, row.get(field, "").split(",")):
                if name != COMPUTED:
                    yield table, key, field, target, name
