# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables of CONFIG_DB: keys, ownership of objects, and the contract as rows.

Every value is a string, and references are plain names. The key of a port's queue or priority group
is `Ethernet0|3`, or `Ethernet0|3-4` for a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Optional

from ....module_utils.core.text import runs
from ...qos.compiled import LOSSY_PRIORITY_GROUP, FabricIntent
from ...qos.contract import PRIORITIES
from ...schema.findings import Findings
from ..asics import WantedError
from ..system import OWNED, SwitchIntent, check_lossless_class, check_mtu

Row = dict[str, str]
Fields = dict[str, Optional[str]]
"""Desired fields of a row. None: the field is removed."""
Table = dict[str, Row]
Config = dict[str, Table]

GLOBAL = "GLOBAL"
DEFAULT_MTU = "9100"
"""MTU of a port without a setting (sonic-swss, cfgmgr/portmgr.cpp)."""

MAPS = {
    "dscp_to_tc_map": "DSCP_TO_TC_MAP",
    "tc_to_queue_map": "TC_TO_QUEUE_MAP",
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
    "pfc_to_pg_map": "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
}
"""Fields of PORT_QOS_MAP. Maps are changed in place while the lossless priorities stay the same.
Otherwise a port has the old maps with its old rows, or the new maps with its new rows."""

OBJECTS = (*MAPS.values(), "WRED_PROFILE", "SCHEDULER", "BUFFER_PROFILE")

ROWS = ("PORT", "CABLE_LENGTH", "PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "PFC_WD")
"""Tables of ports, of which the contract sets some fields."""

CHANGED = (*OBJECTS, *ROWS)

REFERENCES: Mapping[tuple[str, str], str] = {
    **{("PORT_QOS_MAP", field): table for field, table in MAPS.items()},
    ("PORT_QOS_MAP", "scheduler"): "SCHEDULER",
    ("QUEUE", "scheduler"): "SCHEDULER",
    ("QUEUE", "wred_profile"): "WRED_PROFILE",
    ("BUFFER_PG", "profile"): "BUFFER_PROFILE",
    ("BUFFER_QUEUE", "profile"): "BUFFER_PROFILE",
    ("BUFFER_PORT_INGRESS_PROFILE_LIST", "profile_list"): "BUFFER_PROFILE",
    ("BUFFER_PORT_EGRESS_PROFILE_LIST", "profile_list"): "BUFFER_PROFILE",
    ("BUFFER_PROFILE", "pool"): "BUFFER_POOL",
}
"""The table that each field refers to. `profile_list` contains several names, with commas."""

READ = tuple(
    dict.fromkeys(
        (
            *CHANGED,
            *(table for table, _field in REFERENCES),
            "BUFFER_POOL",
            "DEFAULT_LOSSLESS_BUFFER_PARAMETER",
            "PORTCHANNEL_MEMBER",
            "DEVICE_METADATA",
            "FEATURE",
        )
    )
)
"""The rest of CONFIG_DB never leaves the switch, because it contains passwords."""

COMPUTED = "NULL"
"""In place of a profile: the switch computes the headroom (dynamic buffer model)."""


def is_number(text: Optional[str]) -> bool:
    """Checked, because fields can be edited by hand."""
    return text is not None and re.fullmatch(r"[0-9]{1,18}", text) is not None


def number(text: Optional[str], otherwise: int = 0) -> int:
    return int(text) if text is not None and is_number(text) else otherwise


def owned(name: str) -> bool:
    return name == OWNED or name.startswith(OWNED + "_")


def port_of(key: str) -> str:
    """`Ethernet0` of `Ethernet0|3-4`."""
    return key.split("|", 1)[0]


def numbers_of(key: str) -> range:
    """3 and 4 of `Ethernet0|3-4`; empty if the key has another form."""
    found = re.fullmatch(r"[^|]+\|([0-9]{1,3})(?:-([0-9]{1,3}))?", key)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)


def keys_of(port: str, numbers: Iterable[int]) -> Iterator[str]:
    """`Ethernet0|0-2` and `Ethernet0|5` for 0, 1, 2 and 5."""
    for first, last in runs(numbers):
        yield f"{port}|{first}" if first == last else f"{port}|{first}-{last}"


def by_port(table: Optional[Mapping[str, Row]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key in table or {}:
        found.setdefault(port_of(key), []).append(key)
    return found


def channels(config: Mapping[str, Table]) -> dict[str, str]:
    """Port channels by member."""
    keys = (key.partition("|") for key in config.get("PORTCHANNEL_MEMBER", {}))
    return {member: channel for channel, _bar, member in keys}


def is_lossless(profile: str, profiles: Table) -> bool:
    """`NULL` counts as lossless: the switch computes the headroom."""
    return profile == COMPUTED or profiles.get(profile, {}).get("xoff", "0") != "0"


def references(config: Mapping[str, Mapping[str, Row]]) -> Iterator[tuple[str, str, str, str, str]]:
    """Table, key and field of every reference, with table and name of the object."""
    for (table, field), target in REFERENCES.items():
        for key, row in (config.get(table) or {}).items():
            for name in filter(None, row.get(field, "").split(",")):
                if name != COMPUTED:
                    yield table, key, field, target, name


MOST_POLL_MS = 1000


@dataclass(frozen=True)
class ContractTables:
    objects: Config
    """The collection's objects, except buffer profiles, which differ between switches."""
    qos: Fields
    """Fields of each port in PORT_QOS_MAP."""
    queues: dict[int, Fields]
    watchdog: Optional[Fields]
    """Fields of each port in PFC_WD; None: no row."""
    poll_ms: int


def wanted(intent: SwitchIntent) -> ContractTables:
    fabric, watchdog = intent.fabric, intent.fabric.watchdog
    found = Findings()
    check_mtu(intent, found)
    if watchdog.enabled:
        reason = "SONiC's PFC watchdog uses the number of a priority as that of its queue"
        check_lossless_class(intent, reason, found)
    if found:
        raise WantedError(found.found)
    paused = ",".join(str(priority) for priority in fabric.pfc_priorities) or None
    return ContractTables(
        objects=_objects(fabric),
        qos={
            **{field: OWNED for field in MAPS if field != "pfc_to_pg_map"},
            "pfc_enable": paused,
            "pfcwd_sw_enable": paused if watchdog.enabled else None,
            # Only some chips have this map.
            "pfc_to_pg_map": None,
            # It rewrites the DSCP on egress, by which the next switch classifies.
            "tc_to_dscp_map": None,
        },
        queues={
            queue.traffic_class: {
                "scheduler": _scheduler_name(queue.name),
                "wred_profile": OWNED if queue.ecn else None,
            }
            for queue in fabric.queues
        },
        watchdog={
            "action": watchdog.action,
            "detection_time": str(watchdog.detection_ms),
            "restoration_time": str(watchdog.restoration_ms),
        }
        if watchdog.enabled
        else None,
        poll_ms=min(watchdog.poll_ms, MOST_POLL_MS),
    )


def _scheduler_name(queue: str) -> str:
    return f"{OWNED}_{queue.upper()}"


def _objects(fabric: FabricIntent) -> Config:
    queue_of = {queue.priority: queue.traffic_class for queue in fabric.queues}
    group_of = {queue.traffic_class: queue.priority_group for queue in fabric.queues}
    best_effort = fabric.queue("best_effort").traffic_class
    every = range(PRIORITIES)
    maps: dict[str, Mapping[int, int]] = {
        "DSCP_TO_TC_MAP": dict(enumerate(fabric.dscp_to_traffic_class)),
        "TC_TO_QUEUE_MAP": {number: number for number in every},
        "TC_TO_PRIORITY_GROUP_MAP": {
            number: group_of.get(number, LOSSY_PRIORITY_GROUP) for number in every
        },
        "MAP_PFC_PRIORITY_TO_QUEUE": {
            number: queue_of.get(number, best_effort) for number in every
        },
        "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": {
            queue.priority: queue.priority_group for queue in fabric.queues if queue.lossless
        },
    }
    objects: Config = {
        table: {OWNED: {str(key): str(value) for key, value in pairs.items()}}
        for table, pairs in maps.items()
    }
    marking = {"ecn": "ecn_all"}
    ecn = fabric.queue("roce").ecn
    if ecn is not None:
        for colour in ("green", "yellow", "red"):
            marking[f"wred_{colour}_enable"] = "true"
            marking[f"{colour}_min_threshold"] = str(ecn.minimum_bytes)
            marking[f"{colour}_max_threshold"] = str(ecn.maximum_bytes)
            marking[f"{colour}_drop_probability"] = str(ecn.probability_percent)
    objects["WRED_PROFILE"] = {OWNED: marking}
    objects["SCHEDULER"] = {
        _scheduler_name(queue.name): {"type": "STRICT"}
        if queue.strict
        else {"type": "DWRR", "weight": str(queue.weight_percent)}
        for queue in fabric.queues
    }
    return objects
