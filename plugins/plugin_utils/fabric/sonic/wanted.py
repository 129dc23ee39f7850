# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What a switch's CONFIG_DB has to hold, as far as the intent alone says it.

Names stand for objects here; `target.py` decides how each is called on a switch, since one that
cannot be changed in place gets a second name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Optional

from ....module_utils.core.dataclass import dataclass
from ....module_utils.schema.findings import Finding
from ...qos.compiled import LOSSY_PRIORITY_GROUP, FabricIntent, PfcWatchdog, Queue
from ...qos.contract import PRIORITIES, Ecn
from ..headroom import headroom
from ..intent import PortIntent, SwitchIntent
from ..system import OWNED, WantedError
from . import tables
from .tables import Config, Row

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
    objects[tables.BUFFER_PROFILE] = dict(sorted(profiles.values()))
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
        tables.DSCP_TO_TC_MAP: enumerate(fabric.dscp_to_traffic_class),
        tables.TC_TO_QUEUE_MAP: ((number, number) for number in every),
        tables.TC_TO_PRIORITY_GROUP_MAP: (
            (number, group_of.get(number, LOSSY_PRIORITY_GROUP)) for number in every
        ),
        tables.MAP_PFC_PRIORITY_TO_QUEUE: (
            (number, queue_of.get(number, best_effort)) for number in every
        ),
        tables.PFC_PRIORITY_TO_PRIORITY_GROUP_MAP: (
            (queue.priority, queue.priority_group) for queue in fabric.queues if queue.lossless
        ),
    }
    objects: Config = {table: {OWNED: _map(pairs)} for table, pairs in maps.items()}
    marking = next((queue.ecn for queue in fabric.queues if queue.ecn), None)
    if marking:
        objects[tables.WRED_PROFILE] = {OWNED: _marking(marking)}
    objects[tables.SCHEDULER] = {scheduler_name(q): _scheduler(q) for q in fabric.queues}
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
