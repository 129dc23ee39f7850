# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The tables of one switch as they are wanted, made of those that it has.

Headroom: in the dynamic buffer model (DEVICE_METADATA) a profile with sizes of its own overrides
what the switch computes. In the traditional one buffermgrd binds profiles that it makes itself
(`pg_lossless_800000_40m_profile`) to every port with PFC whose speed and cable length stand in
pg_profile_lookup.ini of the platform, and does so again after each change of the port. Where these
have the room that the contract wants they are left alone; a row with less is refused, since it
would come back.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..system import OWNED, PortIntent, SwitchError, SwitchIntent, check_ports
from . import tables
from .reading import DYNAMIC, Present
from .tables import Config, Fields, Row, Table, Wanted, owned, port_of

POOL = "ingress_lossless_pool"
GENERATED = "pg_lossless_"
"""Profiles that the switch makes by itself begin with this. They are never touched."""

IN_PLACE = {"BUFFER_PROFILE": {"dynamic_th"}, "SCHEDULER": {"weight"}}
"""Fields that a switch lets be replaced, where it does not let all. (It would let `xoff`, but not
`size`, which goes with it.)"""

DEFAULT_MTU = "9100"
"""Of a port that has none (sonic-swss, cfgmgr/portmgr.cpp)."""

HAS_PFC_TO_PG = ("mellanox", "barefoot")
"""Chip families with a map from PFC priority to priority group: the others refuse it."""

CHASSIS = ("voq", "chassis-packet", "fabric")

_TABLE_OF = {place[1]: table for place, table in tables.REFERENCES.items()}


def target(intent: SwitchIntent, wanted: Wanted, present: Present) -> tuple[Config, Config]:
    """With objects of ours that nothing refers to any more, and without.

    SwitchError where the switch cannot carry the contract, with the remedy.
    """
    ports = intent.ports
    _check(intent, present)
    has_pfc_to_pg = present.asic_type in HAS_PFC_TO_PG or bool(
        present.config.get("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP")
    )
    config: Config = {
        table: {key: dict(row) for key, row in present.config.get(table, {}).items()}
        for table in tables.CHANGED
    }
    names = _placed(wanted, present, has_pfc_to_pg, config) if ports else {}
    queues = tables.by_port(config["QUEUE"])
    groups = tables.by_port(config["BUFFER_PG"])
    for port in ports:
        row = config["PORT"][port.name]
        row["mtu"] = str(intent.fabric.mtu_ip)
        if row.get("pfc_asym", "off") != "off":
            # Asymmetric PFC obeys pauses of every priority, lossy ones too.
            row["pfc_asym"] = "off"
        qos = {**wanted.qos, "pfc_to_pg_map": OWNED} if has_pfc_to_pg else wanted.qos
        _set(config["PORT_QOS_MAP"].setdefault(port.name, {}), qos, names)
        _split(config["QUEUE"], queues.get(port.name, []), wanted.queues)
        for number, fields in wanted.queues.items():
            _set(config["QUEUE"].setdefault(f"{port.name}|{number}", {}), fields, names)
        profile = names["BUFFER_PROFILE"][wanted.profile(port)]
        _bind(intent, port, profile, groups.get(port.name, []), config, present)
        # In the list that has the port already, since a switch reads them all; usually AZURE.
        lists = config["CABLE_LENGTH"]
        for name in [n for n, lengths in lists.items() if port.name in lengths] or ["AZURE"]:
            lists.setdefault(name, {})[port.name] = f"{port.cable_metres}m"
    _without_unbound(names, config, present.config)
    _watchdog(intent, wanted, config["PFC_WD"])
    _leave_ports(intent, wanted, config)
    bound = {table: rows for table, rows in config.items() if rows}
    return bound, _without_stale(names, bound, present.config)


# What a switch cannot carry


def _check(intent: SwitchIntent, present: Present) -> None:
    config, ports = present.config, intent.ports
    # Each chip of these has a CONFIG_DB of its own, and this is the host's.
    data = present.metadata
    signs = [f for f in ("sub_role", "asic_name") if data.get(f, "None") not in ("", "None")]
    signs += ["num_asic"] if tables.number(data.get("num_asic")) > 1 else []
    signs += ["switch_type"] if data.get("switch_type") in CHASSIS else []
    if signs:
        shown = ", ".join(f"{sign} {data[sign]}" for sign in signs)
        raise SwitchError(
            f"DEVICE_METADATA|localhost has {shown}: a switch of several chips, or a chassis, is "
            "not supported. Set its QoS by hand, and take its system out of the model "
            "(leaves.system, spines.system)"
        )
    members = (key.partition("|") for key in config.get("PORTCHANNEL_MEMBER", {}))
    check_ports(
        intent, config.get("PORT", {}), {member: bundle for bundle, _bar, member in members}
    )
    # What is lossless on the way in has to be lossless on the way out.
    rows, profiles = config.get("BUFFER_QUEUE", {}), config.get("BUFFER_PROFILE", {})
    names = {port.name for port in ports}
    lossless = {queue.traffic_class for queue in intent.fabric.queues if queue.lossless}
    for key, row in rows.items():
        profile = row.get("profile", "")
        pool = profiles.get(profile, {}).get("pool", "")
        served = lossless & set(tables.numbers_of(key))
        if port_of(key) in names and served and "lossy" in pool:
            raise SwitchError(
                f"BUFFER_QUEUE|{key} serves queue {min(served)}, that of RoCE data, from {pool} "
                f"({profile}): full, it drops what was never paused. Bind that queue to "
                "the platform's lossless egress profile, or give RoCE data the traffic "
                "class of a queue that has it (roce_qos.roce.traffic_class)"
            )


def _lossless_pool(config: Config) -> str:
    """The pool of lossless traffic on the way in. It is the platform's, and never changed."""
    pools = config.get("BUFFER_POOL", {})
    if POOL not in pools:
        raise SwitchError(
            f"BUFFER_POOL has no {POOL}: the switch has no buffer for lossless traffic, and its "
            "size depends on the platform. Load the buffers of the platform (its "
            "buffers.json.j2, as its vendor describes), save, then run again"
        )
    mode = pools[POOL].get("mode", DYNAMIC)
    if mode != DYNAMIC:
        raise SwitchError(
            f"BUFFER_POOL|{POOL} has mode {mode}: profiles in it have a fixed limit, which is not "
            "published for this platform. Only pools of mode dynamic are supported"
        )
    return POOL


# Objects


def _placed(
    wanted: Wanted, present: Present, has_pfc_to_pg: bool, config: Config
) -> dict[str, dict[str, str]]:
    """Put our objects in. Returns under which name each is there."""
    own = {"pool": _lossless_pool(present.config)}
    for row in present.config.get("DEFAULT_LOSSLESS_BUFFER_PARAMETER", {}).values():
        if row.get("default_dynamic_th"):
            own["dynamic_th"] = row["default_dynamic_th"]
    names: dict[str, dict[str, str]] = {}
    for table, rows in wanted.objects.items():
        if table == "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP" and not has_pfc_to_pg:
            continue
        if table == "BUFFER_PROFILE":
            rows = {
                name: {**row, **own, "size": _size(name, row, present.config)}
                for name, row in rows.items()
            }
        names[table] = {
            base: _place(table, base, content, config[table]) for base, content in rows.items()
        }
    return names


def _size(name: str, row: Row, config: Config) -> str:
    """Of a profile. Where ports share headroom, it lies in the pool, and a profile is as large as
    XON alone (sonic-swss, buffer_headroom_mellanox.lua; pg_profile_lookup.ini of such SKUs)."""
    pool = config.get("BUFFER_POOL", {}).get(POOL, {})
    defaults = config.get("DEFAULT_LOSSLESS_BUFFER_PARAMETER", {}).values()
    shares = [pool.get("xoff"), *(each.get("over_subscribe_ratio") for each in defaults)]
    if any(share not in (None, "", "0") for share in shares):
        return row["xon"]
    if int(row["size"]) < int(row["xon"]) + int(row["xoff"]):
        raise SwitchError(
            f"{name}: a size of {row['size']} bytes has no room for its {row['xoff']} after XOFF, "
            f"and BUFFER_POOL|{POOL} has no xoff: ports of this switch do not share headroom. In "
            "the model write size_bytes of a switch that does not (asics), or load the buffers of "
            "the platform with shared headroom"
        )
    return row["size"]


def _place(table: str, base: str, content: Row, rows: Table) -> str:
    """Put an object in, under its name, or a further one if that cannot be changed in place."""
    candidates = [name for name in rows if name == base or name.startswith(f"{base}.")]
    for name in sorted(candidates, key=lambda name: (len(name), name)):
        if rows[name] == content:
            return name
    in_place = IN_PLACE.get(table)
    if base in rows and in_place is not None:
        differs = {f for f in {*rows[base], *content} if rows[base].get(f) != content.get(f)}
        # Replacing is what is allowed, neither adding nor removing.
        if not (differs <= in_place and differs <= rows[base].keys() & content.keys()):
            number = 2
            while f"{base}.{number}" in rows:
                number += 1
            base = f"{base}.{number}"
    rows[base] = dict(content)
    return base


def _without_unbound(names: dict[str, dict[str, str]], config: Config, before: Config) -> None:
    """A profile is not added where the switch binds its own to every port of its kind.

    One that is there stays: buffermgrd may take a port back at any time, and let it go as well.
    """
    profiles = names.get("BUFFER_PROFILE", {})
    bound = {row.get("profile") for row in config["BUFFER_PG"].values()}
    for base, name in list(profiles.items()):
        if name not in bound and name not in before.get("BUFFER_PROFILE", {}):
            del profiles[base]
            del config["BUFFER_PROFILE"][name]


def _without_stale(names: dict[str, dict[str, str]], bound: Config, everything: Config) -> Config:
    """Our objects that nothing needs any more go, unless a row of the operator's refers to one."""
    used = {named[3:] for named in tables.references({**everything, **bound})}
    final: Config = {}
    for table, rows in bound.items():
        if table in tables.OBJECTS:
            kept = names.get(table, {}).values()
            rows = {
                name: row
                for name, row in rows.items()
                if not owned(name) or name in kept or (table, name) in used
            }
        if rows:
            final[table] = rows
    return final


# Rows of ports


def _set(row: Row, fields: Fields, names: dict[str, dict[str, str]]) -> None:
    """References to our objects by the names under which those are there."""
    for field, value in fields.items():
        if value is None:
            row.pop(field, None)
        else:
            row[field] = names[_TABLE_OF[field]][value] if field in _TABLE_OF else value


def _split(rows: Table, keys: Iterable[str], numbers: Iterable[int]) -> None:
    """Take these numbers out of rows that hold ranges; what is left of a range stays as it was."""
    for key in keys:
        covered = set(tables.numbers_of(key))
        taken = covered & set(numbers)
        if len(covered) > 1 and taken:
            row = rows.pop(key)
            for left in tables.keys_of(port_of(key), covered - taken):
                rows[left] = dict(row)
            for number in taken:
                rows[f"{port_of(key)}|{number}"] = dict(row)


def _bind(
    intent: SwitchIntent,
    port: PortIntent,
    profile: str,
    keys: list[str],
    config: Config,
    present: Present,
) -> None:
    """The profile to the port's lossless priority groups."""
    rows, profiles = config["BUFFER_PG"], config["BUFFER_PROFILE"]
    for group in (queue.priority_group for queue in intent.fabric.queues if queue.lossless):
        covering = [key for key in keys if group in tables.numbers_of(key)]
        if _left_to_the_switch(port, covering, int(profiles[profile]["xoff"]), present):
            continue
        for key in covering:
            # Of a range the others keep a lossy profile, and lose a lossless one: PFC is on for no
            # other priority, so lossless groups beside ours would only hold back buffer.
            row = rows.pop(key)
            if not tables.is_lossless(row.get("profile", ""), profiles):
                for left in tables.keys_of(port.name, set(tables.numbers_of(key)) - {group}):
                    rows[left] = dict(row)
        rows[f"{port.name}|{group}"] = {"profile": profile}


def _left_to_the_switch(
    port: PortIntent, covering: list[str], wanted: int, present: Present
) -> bool:
    if present.buffer_model == DYNAMIC:
        return False
    speed, cable = str(port.speed_gbps * 1000), f"{port.cable_metres}m"
    made = present.lookup.get((speed, cable))
    if made is not None and made < wanted:
        raise SwitchError(
            f"{port.name}: in the traditional buffer model the switch itself gives {made} bytes "
            f"after XOFF to {cable} of cable at {speed} Mb/s, and {wanted} are needed. "
            "Correct this row of pg_profile_lookup.ini of the platform, or change to the dynamic "
            "model (DEVICE_METADATA|localhost buffer_model)"
        )
    bound = [present.config["BUFFER_PG"][key].get("profile", "") for key in covering]
    profiles = present.config.get("BUFFER_PROFILE", {})
    return bool(bound) and all(
        name.startswith(GENERATED) and tables.number(profiles.get(name, {}).get("xoff")) >= wanted
        for name in bound
    )


def _watchdog(intent: SwitchIntent, wanted: Wanted, rows: Table) -> None:
    ours = {port.name for port in intent.ports}
    for port in intent.ports:
        if wanted.watchdog is None:
            rows.pop(port.name, None)
        else:
            _set(rows.setdefault(port.name, {}), wanted.watchdog, {})
    if wanted.watchdog is not None and ours:
        # It holds for the operator's ports as well, and none may detect faster than it polls.
        times = [
            tables.number(row[field])
            for name, row in rows.items()
            for field in ("detection_time", "restoration_time")
            if name not in ours and tables.is_number(row.get(field))
        ]
        rows.setdefault(tables.GLOBAL, {})["POLL_INTERVAL"] = str(min([wanted.poll_ms, *times]))


def _leave_ports(intent: SwitchIntent, wanted: Wanted, config: Config) -> None:
    """Ports that left the model: what refers to our objects goes, the rest is the operator's."""
    ours = {port.name for port in intent.ports}
    was_ours = {
        key
        for key, row in config["PORT_QOS_MAP"].items()
        if key not in ours and any(owned(row.get(field, "")) for field in _TABLE_OF)
    }
    for name in was_ours:
        row = config["PORT_QOS_MAP"][name]
        for field in ("pfc_enable", "pfcwd_sw_enable"):
            row.pop(field, None)
        config["PFC_WD"].pop(name, None)
        there = config["PORT"].get(name, {})
        if there.get("mtu") == str(intent.fabric.mtu_ip):
            there["mtu"] = DEFAULT_MTU
    groups = {queue.priority_group for queue in intent.fabric.queues if queue.lossless}
    for table, needed in (("PORT_QOS_MAP", None), ("QUEUE", wanted.queues), ("BUFFER_PG", groups)):
        for key, row in list(config[table].items()):
            if port_of(key) in ours and (
                needed is None or not set(needed).isdisjoint(tables.numbers_of(key))
            ):
                continue
            foreign = [field for field in row if field in _TABLE_OF and owned(row[field])]
            for field in foreign:
                del row[field]
            if not row and (foreign or key in was_ours):
                del config[table][key]
