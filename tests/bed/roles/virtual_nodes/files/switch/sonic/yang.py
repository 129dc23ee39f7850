# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Tables, rows and values that SONiC's YANG models accept, for QoS and ports.

The models accept some settings that no switch supports: a traffic class of 15, overlapping ranges
of priority groups, PFC without a lossless group. So does this simulation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Optional

from .database import Config, Row

Problem = str
Check = Callable[[str, Config], Problem]
"""Check of a value: returns the problem, or an empty text."""


class YangError(Exception):
    """The configuration as a whole is not valid."""


def pattern(expression: str) -> Check:
    compiled = re.compile(expression)

    def check(value: str, config: Config) -> Problem:
        return "" if compiled.fullmatch(value) else f'does not match "{expression}"'

    return check


def number(low: int, high: int) -> Check:
    def check(value: str, config: Config) -> Problem:
        if not re.fullmatch(r"-?(0|[1-9][0-9]*)", value):
            return "is no number"
        return "" if low <= int(value) <= high else f"is not within {low}..{high}"

    return check


def one_of(*words: str) -> Check:
    def check(value: str, config: Config) -> Problem:
        return "" if value in words else f"is none of {', '.join(words)}"

    return check


def reference(table: str, *besides: str) -> Check:
    def check(value: str, config: Config) -> Problem:
        if value in besides or value in config.get(table, {}):
            return ""
        return f"Leafref: there is no {table} {value}"

    return check


def references(table: str) -> Check:
    single = reference(table)

    def check(value: str, config: Config) -> Problem:
        return next(filter(None, (single(name, config) for name in value.split(","))), "")

    return check


def text(value: str, config: Config) -> Problem:
    return ""


UINT64 = number(0, 2**64 - 1)
BOOLEAN = one_of("true", "false")
TC = number(0, 15)
NAME = pattern("[a-zA-Z0-9]{1}([-a-zA-Z0-9_]{0,31})")
PORT_REF = reference("PORT")
PRIORITIES = pattern("([0-7](,[0-7])*)?")
COLOURS = ("green", "yellow", "red")

NAMED = (
    "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "TC_TO_PRIORITY_GROUP_MAP", "MAP_PFC_PRIORITY_TO_QUEUE",
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "WRED_PROFILE", "CABLE_LENGTH",
)  # fmt: skip
KEYS: dict[str, tuple[Check, ...]] = {
    **dict.fromkeys(NAMED, (NAME,)),
    "PORT": (pattern(".{1,128}"),),
    "PORT_QOS_MAP": (reference("PORT", "global"),),
    "SCHEDULER": (text,),
    "QUEUE": (reference("PORT", "CPU"), text),
    "BUFFER_POOL": (text,),
    "BUFFER_PROFILE": (text,),
    "BUFFER_PG": (PORT_REF, pattern("[0-7]((-)[0-7])?")),
    "BUFFER_QUEUE": (PORT_REF, pattern("(1[0-5]|[0-9])((-)(1[0-5]|[0-9]))?")),
    "BUFFER_PORT_INGRESS_PROFILE_LIST": (PORT_REF,),
    "BUFFER_PORT_EGRESS_PROFILE_LIST": (PORT_REF,),
    "PFC_WD": (reference("PORT", "GLOBAL"),),
}
"""Parts of a row's key."""

MAPS: dict[str, tuple[Check, Check]] = {
    "DSCP_TO_TC_MAP": (pattern("6[0-3]|[1-5][0-9]?|[0-9]?"), TC),
    "TC_TO_QUEUE_MAP": (TC, pattern("[0-9]?")),
    "TC_TO_PRIORITY_GROUP_MAP": (TC, pattern("[0-7]?")),
    "MAP_PFC_PRIORITY_TO_QUEUE": (pattern("[0-7]?"), pattern("[0-7]?")),
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": (pattern("[0-7]?"), pattern("[0-7]?")),
    "CABLE_LENGTH": (PORT_REF, pattern("[0-9]+m|None")),
}
"""Tables whose fields are data: the checks of field and value."""

FIELDS: dict[str, dict[str, Check]] = {
    "PORT": {
        **dict.fromkeys(("alias", "description", "index", "lanes", "speed"), text),
        "mtu": number(68, 9216),
        "admin_status": one_of("up", "down"),
        "fec": one_of("rs", "fc", "none", "auto"),
        "pfc_asym": one_of("on", "off"),
    },
    "PORT_QOS_MAP": {
        "dscp_to_tc_map": reference("DSCP_TO_TC_MAP"),
        "tc_to_queue_map": reference("TC_TO_QUEUE_MAP"),
        "tc_to_pg_map": reference("TC_TO_PRIORITY_GROUP_MAP"),
        "pfc_to_queue_map": reference("MAP_PFC_PRIORITY_TO_QUEUE"),
        "pfc_to_pg_map": reference("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"),
        "scheduler": reference("SCHEDULER"),
        "pfc_enable": PRIORITIES,
        "pfcwd_sw_enable": PRIORITIES,
    },
    "WRED_PROFILE": {
        "ecn": one_of("ecn_none", "ecn_green", "ecn_yellow", "ecn_red", "ecn_all"),
        **{f"wred_{colour}_enable": BOOLEAN for colour in COLOURS},
        **{f"{colour}_min_threshold": UINT64 for colour in COLOURS},
        **{f"{colour}_max_threshold": UINT64 for colour in COLOURS},
        **{f"{colour}_drop_probability": number(0, 100) for colour in COLOURS},
    },
    "SCHEDULER": {
        "type": one_of("DWRR", "WRR", "STRICT"),
        "weight": number(1, 100),
        "priority": number(0, 9),
    },
    "QUEUE": {"scheduler": reference("SCHEDULER"), "wred_profile": reference("WRED_PROFILE")},
    "BUFFER_PROFILE": {
        "pool": reference("BUFFER_POOL"),
        "size": UINT64,
        "xon": UINT64,
        "xon_offset": UINT64,
        "xoff": UINT64,
        "dynamic_th": number(-8, 8),
        "static_th": UINT64,
        "headroom_type": one_of("static", "dynamic"),
        "packet_discard_action": one_of("drop", "trim"),
    },
    "BUFFER_PG": {"profile": reference("BUFFER_PROFILE", "NULL")},
    "BUFFER_QUEUE": {"profile": reference("BUFFER_PROFILE")},
    "BUFFER_PORT_INGRESS_PROFILE_LIST": {"profile_list": references("BUFFER_PROFILE")},
    "BUFFER_PORT_EGRESS_PROFILE_LIST": {"profile_list": references("BUFFER_PROFILE")},
    "PFC_WD": {
        "action": one_of("drop", "forward", "alert"),
        "detection_time": number(100, 5000),
        "restoration_time": number(100, 60000),
        "pfc_stat_history": one_of("enable", "disable"),
        "POLL_INTERVAL": number(100, 1000),
    },
}

MANDATORY = {"PORT": ("lanes", "speed"), "BUFFER_PROFILE": ("pool", "size")}


def validate(config: Config) -> None:
    problems = list(_problems(config))
    if problems:
        raise YangError(f"Data Loading Failed:{problems[0]}")


def _problems(config: Config) -> Iterator[Problem]:
    for table, rows in config.items():
        if not isinstance(rows, dict):
            yield f"{table} is no table"
            continue
        for key, row in rows.items():
            if not isinstance(row, dict):
                yield f"{table}|{key} is no row"
            elif table in KEYS:
                yield from _key_problems(table, key, config)
                yield from _row_problems(table, key, row, config)
    yield from _pfcwd_problems(config.get("PFC_WD", {}))


def _key_problems(table: str, key: str, config: Config) -> Iterator[Problem]:
    parts, checks = key.split("|"), KEYS[table]
    if len(parts) != len(checks):
        yield f"{table}|{key}: a key of this table has {len(checks)} parts"
        return
    for part, check in zip(parts, checks):
        problem = check(part, config)
        if problem:
            yield f'Invalid value "{part}" in the key of {table}|{key}: {problem}'


def _row_problems(table: str, key: str, row: Row, config: Config) -> Iterator[Problem]:
    if table in MAPS:
        field_check, value_check = MAPS[table]
        for field, value in row.items():
            problem = _checked(field, field_check, config) or _checked(value, value_check, config)
            if problem:
                yield f'Invalid value "{field}: {value}" in {table}|{key}: {problem}'
        return
    known = FIELDS.get(table, {})
    if not known:
        return
    for field, value in row.items():
        if field not in known:
            yield f'Unknown element "{field}" in {table}|{key}'
            continue
        problem = _checked(value, known[field], config)
        if problem:
            yield f'Invalid value "{value}" in "{field}" of {table}|{key}: {problem}'
    for field in MANDATORY.get(table, ()):
        if field not in row:
            yield f'Missing required element "{field}" in {table}|{key}'
    if table == "WRED_PROFILE":
        for colour in COLOURS:
            low, high = (_number(row.get(f"{colour}_{end}_threshold")) for end in ("min", "max"))
            if low is not None and high is not None and high < low:
                name = colour.capitalize()
                yield f"{name} max threshold must be greater than or equal to min threshold"


def _checked(value: Any, check: Check, config: Config) -> Problem:
    if not isinstance(value, str):
        return f"{type(value).__name__} is no string"
    return check(value, config)


def _pfcwd_problems(rows: dict[str, Row]) -> Iterator[Problem]:
    poll = _number(rows.get("GLOBAL", {}).get("POLL_INTERVAL"))
    for port, row in rows.items():
        if port == "GLOBAL":
            continue
        for field in ("detection_time", "restoration_time"):
            value = _number(row.get(field))
            if value is not None and poll is not None and value < poll:
                yield f"{field} must be greater than or equal to POLL_INTERVAL"


def _number(value: Any) -> Optional[int]:
    return int(value) if isinstance(value, str) and value.isdigit() else None
