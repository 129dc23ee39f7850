# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables of CONFIG_DB: their names, their keys, and which of their objects are ours.

Every value is a string, references are plain names, and the key of a port's queue or priority group
is `Ethernet0|3`, or `Ethernet0|3-4` for a range of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Optional

from ....module_utils.core.dataclass import dataclass
from ...qos.compiled import LOSSY_PRIORITY_GROUP, FabricIntent, PfcWatchdog, Queue
from ...qos.contract import PRIORITIES, Ecn
from ...schema.findings import Finding
from ..asics import WantedError, headroom
from ..system import OWNED, PortIntent, SwitchIntent

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
    """Fields can be edited by hand."""
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


def is_lossless(profile: str, profiles: Table) -> bool:
    """`NULL` is: the switch computes the room itself."""
    return profile == COMPUTED or profiles.get(profile, {}).get("xoff", "0") != "0"


def references(config: Mapping[str, Mapping[str, Row]]) -> Iterator[tuple[str, str, str, str, str]]:
    """Table, key and field that name an object, with the object's table and name."""
    for (table, field), target in REFERENCES.items():
        for key, row in (config.get(table) or {}).items():
            for name in filter(None, row.get(field, "").split(",")):
                if name != COMPUTED:
                    yield table, key, field, target, name


COLOURS = ("green", "yellow", "red")
DYNAMIC_TH = "0"
"""Share of the free buffer that a lossless priority group may take: 2^0 = 1, as much as is free.
From the column `threshold` of pg_profile_lookup.ini of SN5600 and IXR7220-H5 (Tomahawk 5); where a
switch has a default of its own (DEFAULT_LOSSLESS_BUFFER_PARAMETER) that one is taken."""

MOST_POLL_MS = 1000
"""PFC_WD|GLOBAL takes no more, however late detection may be."""


@dataclass(frozen=True)
class PortWanted:
    """Fields of a port's rows. None: the field goes."""

    name: str
    speed: str
    mtu: str
    cable: str
    qos: dict[str, Optional[str]]
    """Of PORT_QOS_MAP, without `pfc_to_pg_map`: not every chip has that."""
    queues: dict[int, dict[str, Optional[str]]]
    buffers: dict[int, str]
    """Priority group: its profile."""
    lossless_queues: tuple[int, ...]


@dataclass(frozen=True)
class Wanted:
    objects: Config
    """Ours, without the pool of the buffer profiles: the switch says how it is called."""
    ports: tuple[PortWanted, ...]
    watchdog: Optional[Row]
    """Of every port in PFC_WD; None: none."""
    poll_ms: int


def wanted(intent: SwitchIntent) -> Wanted:
    fabric = intent.fabric
    findings: list[Finding] = []
    profiles: dict[tuple[int, int], tuple[str, Row]] = {}
    for port in intent.ports:
        link = (port.speed_gbps, port.cable_metres)
        if link in profiles:
            continue
        try:
            profiles[link] = _profile(intent, *link)
        except WantedError as error:
            findings.extend(error.findings)
            profiles[link] = ("", {})
    if findings:
        raise WantedError([replace(each, path=(intent.name,)) for each in dict.fromkeys(findings)])
    objects = _objects(fabric)
    objects[BUFFER_PROFILE] = dict(sorted(profiles.values()))
    qos, queues = _qos(fabric), {queue.traffic_class: _queue(queue) for queue in fabric.queues}
    return Wanted(
        objects=objects,
        ports=tuple(
            _port(port, fabric, profiles[port.speed_gbps, port.cable_metres][0], qos, queues)
            for port in intent.ports
        ),
        watchdog=_watchdog(fabric.watchdog) if fabric.watchdog.enabled else None,
        poll_ms=min(fabric.watchdog.poll_ms, MOST_POLL_MS),
    )


def scheduler_name(queue: Queue) -> str:
    return f"{OWNED}_{queue.name.upper()}"


def _profile(intent: SwitchIntent, speed_gbps: int, cable_metres: int) -> tuple[str, Row]:
    room = headroom(intent.asic, speed_gbps, cable_metres, intent.fabric.mtu_frame)
    return f"{OWNED}_{speed_gbps}G_{cable_metres}M", {
        "size": str(room.size_bytes),
        "xon": str(room.xon_bytes),
        "xoff": str(room.xoff_bytes),
        "dynamic_th": DYNAMIC_TH,
    }


def _objects(fabric: FabricIntent) -> Config:
    queue_of = {queue.priority: queue.traffic_class for queue in fabric.queues}
    group_of = {queue.traffic_class: queue.priority_group for queue in fabric.queues}
    best_effort = fabric.queue("best_effort").traffic_class
    every = range(PRIORITIES)
    maps = {
        DSCP_TO_TC_MAP: enumerate(fabric.dscp_to_traffic_class),
        TC_TO_QUEUE_MAP: ((number, number) for number in every),
        TC_TO_PRIORITY_GROUP_MAP: (
            (number, group_of.get(number, LOSSY_PRIORITY_GROUP)) for number in every
        ),
        MAP_PFC_PRIORITY_TO_QUEUE: (
            (number, queue_of.get(number, best_effort)) for number in every
        ),
        PFC_PRIORITY_TO_PRIORITY_GROUP_MAP: (
            (queue.priority, queue.priority_group) for queue in fabric.queues if queue.lossless
        ),
    }
    objects: Config = {table: {OWNED: _map(pairs)} for table, pairs in maps.items()}
    marking = next((queue.ecn for queue in fabric.queues if queue.ecn), None)
    if marking:
        objects[WRED_PROFILE] = {OWNED: _marking(marking)}
    objects[SCHEDULER] = {scheduler_name(q): _scheduler(q) for q in fabric.queues}
    return objects


def _map(pairs: Iterable[tuple[int, int]]) -> Row:
    return {str(key): str(value) for key, value in pairs}


def _marking(ecn: Ecn) -> Row:
    row = {"ecn": "ecn_all"}
    for colour in COLOURS:
        row[f"wred_{colour}_enable"] = "true"
        row[f"{colour}_min_threshold"] = str(ecn.minimum_bytes)
        row[f"{colour}_max_threshold"] = str(ecn.maximum_bytes)
        row[f"{colour}_drop_probability"] = str(ecn.probability_percent)
    return row


def _scheduler(queue: Queue) -> Row:
    if queue.strict:
        return {"type": "STRICT"}
    return {"type": "DWRR", "weight": str(queue.weight_percent)}


def _qos(fabric: FabricIntent) -> dict[str, Optional[str]]:
    paused = ",".join(str(priority) for priority in fabric.pfc_priorities)
    return {
        "dscp_to_tc_map": OWNED,
        "tc_to_queue_map": OWNED,
        "tc_to_pg_map": OWNED,
        "pfc_to_queue_map": OWNED,
        "pfc_enable": paused,
        "pfcwd_sw_enable": paused if fabric.watchdog.enabled else None,
        # It writes another DSCP on the way out, and the next switch sorts by that.
        "tc_to_dscp_map": None,
    }


def _queue(queue: Queue) -> dict[str, Optional[str]]:
    return {"scheduler": scheduler_name(queue), "wred_profile": OWNED if queue.ecn else None}


def _watchdog(watchdog: PfcWatchdog) -> Row:
    return {
        "action": watchdog.action,
        "detection_time": str(watchdog.detection_ms),
        "restoration_time": str(watchdog.restoration_ms),
    }


def _port(
    port: PortIntent,
    fabric: FabricIntent,
    profile: str,
    qos: dict[str, Optional[str]],
    queues: dict[int, dict[str, Optional[str]]],
) -> PortWanted:
    return PortWanted(
        name=port.name,
        speed=str(port.speed_gbps * 1000),
        mtu=str(fabric.mtu_ip),
        cable=f"{port.cable_metres}m",
        qos=qos,
        queues=queues,
        buffers={queue.priority_group: profile for queue in fabric.queues if queue.lossless},
        lossless_queues=tuple(queue.traffic_class for queue in fabric.queues if queue.lossless),
    )
