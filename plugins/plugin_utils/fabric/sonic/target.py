# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Headroom on a switch: which profile holds for a port's lossless priority group.

In the dynamic buffer model (DEVICE_METADATA) a profile with sizes of its own overrides what the
switch computes. In the traditional one buffermgrd binds profiles that it makes itself
(`pg_lossless_800000_40m_profile`) to every port with PFC whose speed and cable length stand in
pg_profile_lookup.ini of the platform, and does so again after each change of the port. Where these
have the room that the contract wants they are left alone; a row with less is refused, since it
would come back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Optional

from ....module_utils.core.dataclass import dataclass
from ....module_utils.core.text import some
from ..system import OWNED, SwitchError
from . import tables
from .reading import DYNAMIC, Present
from .tables import Config, PortWanted, Row, Table, Wanted, owned, port_of

POOL = "ingress_lossless_pool"


def lossless_pool(config: Config) -> str:
    """The pool of lossless traffic on the way in. It is the platform's, and never changed."""
    pools = config.get(tables.BUFFER_POOL, {})
    if POOL not in pools:
        raise SwitchError(
            f"BUFFER_POOL has no {POOL}: the switch has no buffer for lossless traffic, and how "
            "much it can have is the platform's to say. Load the buffers of the platform (its "
            "buffers.json.j2, as its vendor describes), save, then run again"
        )
    mode = pools[POOL].get("mode", DYNAMIC)
    if mode != DYNAMIC:
        raise SwitchError(
            f"BUFFER_POOL|{POOL} has mode {mode}: profiles in it have a fixed limit, and nobody "
            "has published one for this platform. Only pools of mode dynamic are supported"
        )
    return POOL


def default_threshold(config: Config) -> str:
    """The switch's own choice of `dynamic_th`; empty where it has none."""
    for row in config.get(tables.DEFAULT_LOSSLESS_BUFFER_PARAMETER, {}).values():
        if "default_dynamic_th" in row:
            return row["default_dynamic_th"]
    return ""


def check_egress(ports: tuple[PortWanted, ...], config: Config) -> None:
    """What is lossless on the way in has to be lossless on the way out."""
    rows, profiles = config.get(tables.BUFFER_QUEUE, {}), config.get(tables.BUFFER_PROFILE, {})
    keys = tables.by_port(rows)
    for port in ports:
        for queue in port.lossless_queues:
            for key in keys.get(port.name, []):
                profile = rows[key].get("profile", "")
                pool = profiles.get(profile, {}).get("pool", "")
                if queue in tables.numbers_of(key) and "lossy" in pool:
                    raise SwitchError(
                        f"BUFFER_QUEUE|{key} serves queue {queue}, that of RoCE data, from {pool} "
                        f"({profile}): full, it drops what was never paused. Bind that queue to "
                        "the platform's lossless egress profile, or give RoCE data the traffic "
                        "class of a queue that has it (roce_qos.roce.traffic_class)"
                    )


def bind(
    ports: tuple[PortWanted, ...], names: dict[str, str], config: Config, present: Present
) -> None:
    rows, profiles = config[tables.BUFFER_PG], config[tables.BUFFER_PROFILE]
    keys = tables.by_port(rows)
    for port in ports:
        for group, base in port.buffers.items():
            profile = names[base]
            covering = [k for k in keys.get(port.name, []) if group in tables.numbers_of(k)]
            if _left_to_the_switch(port, covering, int(profiles[profile]["xoff"]), present):
                continue
            for key in covering:
                _take_out(rows, key, group, profiles)
            rows[f"{port.name}|{group}"] = {"profile": profile}


def _left_to_the_switch(
    port: PortWanted, covering: list[str], wanted: int, present: Present
) -> bool:
    if present.buffer_model == DYNAMIC:
        return False
    made = present.lookup.get((port.speed, port.cable))
    if made is not None and made < wanted:
        raise SwitchError(
            f"{port.name}: in the traditional buffer model the switch itself gives {made} bytes "
            f"after XOFF to {port.cable} of cable at {port.speed} Mb/s, and {wanted} are needed. "
            "Correct this row of pg_profile_lookup.ini of the platform, or change to the dynamic "
            "model (DEVICE_METADATA|localhost buffer_model)"
        )
    bound = [present.config[tables.BUFFER_PG][key].get("profile", "") for key in covering]
    profiles = present.config.get(tables.BUFFER_PROFILE, {})
    return bool(bound) and all(
        name.startswith(tables.GENERATED)
        and tables.number(profiles.get(name, {}).get("xoff")) >= wanted
        for name in bound
    )


def _take_out(rows: Table, key: str, group: int, profiles: Table) -> None:
    """Of a range that holds this group the others keep a lossy profile, and lose a lossless one.

    PFC is on for no other priority, so lossless groups beside ours would only hold back buffer.
    """
    row = rows.pop(key)
    if tables.is_lossless(row.get("profile", ""), profiles):
        return
    for left in tables.ranges(set(tables.numbers_of(key)) - {group}):
        rows[tables.key_of(tables.port_of(key), left)] = dict(row)


IN_PLACE = {
    tables.BUFFER_PROFILE: {"dynamic_th"},
    tables.SCHEDULER: {"weight"},
}
"""Fields that a switch lets be replaced, where it does not let all. (It would let `xoff`, but not
`size`, which goes with it.)"""

HAS_PFC_TO_PG = ("mellanox", "barefoot")
"""Chip families with a map from PFC priority to priority group: the others refuse it."""

CHASSIS = ("voq", "chassis-packet", "fabric")

TOUCHED = (*tables.OBJECTS, *tables.ROWS)


@dataclass(frozen=True)
class Target:
    bound: Config
    final: Config


def target(wanted: Wanted, present: Present) -> Target:
    """SwitchError where the switch cannot carry the contract, with the way out."""
    _refuse_several_chips(present)
    _require_ports(wanted, present.config)
    _refuse_bundles(wanted, present.config)
    check_egress(wanted.ports, present.config)
    names, config = _placed(wanted, present)
    with_pg_map = _has_pfc_to_pg(present)
    for port in wanted.ports:
        row = config[tables.PORT][port.name]
        _set(row, {"mtu": port.mtu})
        if row.get("pfc_asym", "off") != "off":
            # Asymmetric PFC obeys pauses of every priority, lossy ones too.
            row["pfc_asym"] = "off"
        qos = {field: _name(names, field, value) for field, value in port.qos.items()}
        if with_pg_map:
            qos["pfc_to_pg_map"] = OWNED
        _set(config[tables.PORT_QOS_MAP].setdefault(port.name, {}), qos)
    _queues(wanted, names, config)
    bind(wanted.ports, names.get(tables.BUFFER_PROFILE, {}), config, present)
    _without_unbound(names, config, present.config)
    _cables(wanted.ports, config[tables.CABLE_LENGTH])
    _watchdog(wanted, config[tables.PFC_WD])
    _leave_ports(wanted, config)
    bound = {table: rows for table, rows in config.items() if rows}
    return Target(bound, _without_stale(names, bound, present.config))


def _refuse_several_chips(present: Present) -> None:
    """Each chip of these has a CONFIG_DB of its own, and this is the host's."""
    said = present.metadata
    signs = [f for f in ("sub_role", "asic_name") if said.get(f, "None") not in ("", "None")]
    signs += ["num_asic"] if tables.number(said.get("num_asic")) > 1 else []
    signs += ["switch_type"] if said.get("switch_type") in CHASSIS else []
    if signs:
        shown = ", ".join(f"{sign} {said[sign]}" for sign in signs)
        raise SwitchError(
            f"DEVICE_METADATA|localhost has {shown}: a switch of several chips, or a chassis, is "
            "not supported. Set its QoS by hand, and take its system out of the model "
            "(leaves.system, spines.system)"
        )


def _require_ports(wanted: Wanted, config: Config) -> None:
    ports = config.get(tables.PORT, {})
    missing = [port.name for port in wanted.ports if port.name not in ports]
    if missing:
        raise SwitchError(
            f"the switch has no port {some(missing, 8)}; it has {some(list(ports), 4)}. "
            "Correct leaves.port, port_step or ports of the model, or break the ports out on the "
            "switch (`config interface breakout`)"
        )


def _refuse_bundles(wanted: Wanted, config: Config) -> None:
    bundle_of = {}
    for key in config.get(tables.PORTCHANNEL_MEMBER, {}):
        bundle, _bar, member = key.partition("|")
        bundle_of[member] = bundle
    for port in wanted.ports:
        if port.name in bundle_of:
            raise SwitchError(
                f"{port.name} is a member of {bundle_of[port.name]}: a rail is one link, and the "
                "contract counts on its headroom and its cable. Take it out (`config portchannel "
                f"member del {bundle_of[port.name]} {port.name}`), or out of the model"
            )


def _has_pfc_to_pg(present: Present) -> bool:
    return present.asic_type in HAS_PFC_TO_PG or bool(
        present.config.get(tables.PFC_PRIORITY_TO_PRIORITY_GROUP_MAP)
    )


def _placed(wanted: Wanted, present: Present) -> tuple[dict[str, dict[str, str]], Config]:
    """Our objects in a copy of the tables that we touch, and under which name each is there."""
    config: Config = {
        table: {key: dict(row) for key, row in present.config.get(table, {}).items()}
        for table in TOUCHED
    }
    names: dict[str, dict[str, str]] = {}
    if not wanted.ports:
        return names, config
    objects = dict(wanted.objects)
    if not _has_pfc_to_pg(present):
        del objects[tables.PFC_PRIORITY_TO_PRIORITY_GROUP_MAP]
    pool = lossless_pool(present.config)
    threshold = default_threshold(present.config)
    for table, rows in objects.items():
        names[table] = {}
        for base, content in rows.items():
            if table == tables.BUFFER_PROFILE:
                content = {
                    **content,
                    "pool": pool,
                    "dynamic_th": threshold or content["dynamic_th"],
                }
            names[table][base] = _place(table, base, content, config[table])
    return names, config


def _place(table: str, base: str, content: Row, rows: tables.Table) -> str:
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


def _set(row: Row, fields: dict[str, Optional[str]]) -> None:
    for field, value in fields.items():
        if value is None:
            row.pop(field, None)
        else:
            row[field] = value


_TABLE_OF = {place[1]: table for place, table in tables.REFERENCES.items()}


def _name(names: dict[str, dict[str, str]], field: str, value: Optional[str]) -> Optional[str]:
    table = _TABLE_OF.get(field)
    return value if table is None or value is None else names[table][value]


def _queues(wanted: Wanted, names: dict[str, dict[str, str]], config: Config) -> None:
    rows = config[tables.QUEUE]
    keys = tables.by_port(rows)
    for port in wanted.ports:
        split(rows, keys.get(port.name, []), port.queues)
        for number, fields in port.queues.items():
            row = rows.setdefault(f"{port.name}|{number}", {})
            _set(row, {f: _name(names, f, value) for f, value in fields.items()})


def split(rows: tables.Table, keys: Iterable[str], numbers: Iterable[int]) -> None:
    """Take these numbers out of rows that hold ranges; what is left of a range stays as it was."""
    taken = set(numbers)
    for key in keys:
        covered = tables.numbers_of(key)
        if len(covered) > 1 and taken & set(covered):
            row = rows.pop(key)
            for left in tables.ranges(set(covered) - taken):
                rows[tables.key_of(port_of(key), left)] = dict(row)
            for number in taken & set(covered):
                rows[tables.key_of(port_of(key), range(number, number + 1))] = dict(row)


def _without_unbound(names: dict[str, dict[str, str]], config: Config, before: Config) -> None:
    """A profile is not added where the switch binds its own to every port of its kind.

    One that is there stays: buffermgrd may take a port back at any time, and let it go as well.
    """
    profiles = names.get(tables.BUFFER_PROFILE, {})
    bound = {row.get("profile") for row in config[tables.BUFFER_PG].values()}
    for base, name in list(profiles.items()):
        if name not in bound and name not in before.get(tables.BUFFER_PROFILE, {}):
            del profiles[base]
            del config[tables.BUFFER_PROFILE][name]


def _cables(ports: tuple[PortWanted, ...], lists: tables.Table) -> None:
    """In the list that has the port already, since a switch reads them all; usually AZURE."""
    for port in ports:
        holding = [name for name, lengths in lists.items() if port.name in lengths]
        for name in holding or ["AZURE"]:
            lists.setdefault(name, {})[port.name] = port.cable


def _watchdog(wanted: Wanted, rows: tables.Table) -> None:
    ours = dict.fromkeys(port.name for port in wanted.ports)
    for name in ours:
        if wanted.watchdog is None:
            rows.pop(name, None)
        else:
            _set(rows.setdefault(name, {}), dict(wanted.watchdog))
    if wanted.watchdog is not None and ours:
        # It holds for the operator's ports as well, and none may detect faster than it polls.
        times = [
            tables.number(row[field])
            for name, row in rows.items()
            for field in ("detection_time", "restoration_time")
            if name not in ours and tables.is_number(row.get(field))
        ]
        rows.setdefault(tables.GLOBAL, {})["POLL_INTERVAL"] = str(min([wanted.poll_ms, *times]))


def _leave_ports(wanted: Wanted, config: Config) -> None:
    """Ports that left the model: what refers to our objects goes, the rest is the operator's."""
    ours = {port.name for port in wanted.ports}
    was_ours = {
        key
        for key, row in config[tables.PORT_QOS_MAP].items()
        if key not in ours and any(owned(row.get(field, "")) for field in _TABLE_OF)
    }
    for name in was_ours:
        row = config[tables.PORT_QOS_MAP][name]
        for field in ("pfc_enable", "pfcwd_sw_enable"):
            row.pop(field, None)
        config[tables.PFC_WD].pop(name, None)
    needed = {
        tables.QUEUE: {(port.name, number) for port in wanted.ports for number in port.queues},
        tables.BUFFER_PG: {(port.name, number) for port in wanted.ports for number in port.buffers},
    }
    for table in (tables.PORT_QOS_MAP, tables.QUEUE, tables.BUFFER_PG):
        for key, row in list(config[table].items()):
            if key in ours if table == tables.PORT_QOS_MAP else _is_needed(key, needed[table]):
                continue
            strange = [field for field in row if field in _TABLE_OF and owned(row[field])]
            for field in strange:
                del row[field]
            if not row and (strange or key in was_ours):
                del config[table][key]


def _is_needed(key: str, needed: set[tuple[str, int]]) -> bool:
    return any((port_of(key), number) in needed for number in tables.numbers_of(key))


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
