# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The desired tables of one switch, derived from its present ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from shlex import quote
from typing import Optional

from ....module_utils.core.text import natural
from ..port_order import PortRow, check_order
from ..system import OWNED, PortIntent, SwitchError, SwitchIntent, check_ports
from ..systems import SYSTEMS
from . import buffers, tables
from .reading import Present
from .tables import Config, ContractTables, Fields, Row, Table, owned, port_of

IN_PLACE = {"BUFFER_PROFILE": {"dynamic_th"}, "SCHEDULER": {"weight"}}
"""Fields that a switch allows to be replaced, in tables where it does not allow all."""

HAS_PFC_TO_PG = ("mellanox", "barefoot")
"""Chip families with a map from PFC priority to priority group; others refuse it."""

CHASSIS = ("voq", "chassis-packet", "fabric")

_TABLE_OF = {field: table for (_table, field), table in tables.REFERENCES.items()}


def target(intent: SwitchIntent, wanted: ContractTables, present: Present) -> tuple[Config, Config]:
    """The desired tables with the collection's unused objects, and without them. Raises SwitchError
    if the switch cannot carry the contract."""
    ports = intent.ports
    _check(intent, present)
    # Without a lossless class, the map would be empty.
    has_pfc_to_pg = bool(intent.fabric.pfc_priorities) and (
        present.asic_type in HAS_PFC_TO_PG
        or bool(present.config.get("PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"))
    )
    config: Config = {
        table: {key: dict(row) for key, row in present.config.get(table, {}).items()}
        for table in tables.CHANGED
    }
    profiles = buffers.profiles(intent, present)
    in_place = _in_place(intent, wanted, present)
    objects = {**wanted.objects, "BUFFER_PROFILE": dict(profiles.values())}
    names = _placed(objects, has_pfc_to_pg, in_place, config)
    queues = tables.by_port(config["QUEUE"])
    groups = tables.by_port(config["BUFFER_PG"])
    for port in ports:
        row = config["PORT"][port.name]
        if not port.channel:
            # A member has that of its port channel (sonic-swss 0055a149, cfgmgr/teammgr.cpp).
            row["mtu"] = str(intent.fabric.mtu_ip)
        if row.get("pfc_asym", "off") != "off":
            row["pfc_asym"] = "off"  # it obeys pauses of every priority
        qos = {**wanted.qos, "pfc_to_pg_map": OWNED} if has_pfc_to_pg else wanted.qos
        _set(config["PORT_QOS_MAP"].setdefault(port.name, {}), qos, names)
        _split(config["QUEUE"], queues.get(port.name, []), wanted.queues)
        for number, fields in wanted.queues.items():
            _set(config["QUEUE"].setdefault(f"{port.name}|{number}", {}), fields, names)
        profile = names["BUFFER_PROFILE"][profiles[port.name][0]] if profiles else ""
        _bind(intent, port, profile, groups.get(port.name, []), config, present)
        # In the list that contains the port, since a switch reads all lists; usually AZURE.
        lists = config["CABLE_LENGTH"]
        for name in [n for n, lengths in lists.items() if port.name in lengths] or ["AZURE"]:
            lists.setdefault(name, {})[port.name] = f"{port.cable_metres}m"
    _without_unbound(names, config, present.config)
    _watchdog(intent, wanted, config["PFC_WD"])
    _leave_ports(intent, wanted, config)
    _check_watchdog(wanted, config["PFC_WD"], present)
    bound = {table: rows for table, rows in config.items() if rows}
    return bound, _without_stale(names, bound, present.config)


def _check(intent: SwitchIntent, present: Present) -> None:
    config, data = present.config, present.metadata
    # On these switches each chip has a separate CONFIG_DB, and this is the host's.
    signs = [f for f in ("sub_role", "asic_name") if data.get(f, "None") not in ("", "None")]
    signs += ["num_asic"] if tables.number(data.get("num_asic")) > 1 else []
    signs += ["switch_type"] if data.get("switch_type") in CHASSIS else []
    if signs:
        shown = ", ".join(f"{sign} {data[sign]}" for sign in signs)
        raise SwitchError(
            f"DEVICE_METADATA|localhost has {shown}: a switch of several chips, or a chassis, is "
            "not supported. Configure its QoS by hand, and remove its system from the model "
            "(leaves.system, spines.system)"
        )
    check_ports(intent, config.get("PORT", {}), tables.channels(config))
    buffers.check_release(present)
    buffers.check_chip(intent, present)
    check_order(intent, _table(intent, present))
    buffers.check_egress_pool(intent, present)


def _table(intent: SwitchIntent, present: Present) -> Iterator[PortRow]:
    """Ports of the front, without those to a backplane or for recirculation. A virtual switch has
    the lanes of another one."""
    naming, virtual = SYSTEMS[intent.system].naming, present.asic_type == buffers.VIRTUAL
    for name, row in present.config.get("PORT", {}).items():
        if naming.lanes(name, 1) is not None:
            lanes, index = row.get("lanes", ""), row.get("index", "")
            count = len(lanes.split(",")) if lanes and not virtual else 0
            yield PortRow(name, tables.number(index) if index else None, count)


def _placed(
    objects: Config, has_pfc_to_pg: bool, in_place: Mapping[str, Collection[str]], config: Config
) -> dict[str, dict[str, str]]:
    return {
        table: {
            base: _place(table, base, content, config[table], in_place.get(table))
            for base, content in rows.items()
        }
        for table, rows in objects.items()
        if table != "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP" or has_pfc_to_pg
    }


def _in_place(
    intent: SwitchIntent, wanted: ContractTables, present: Present
) -> Mapping[str, Collection[str]]:
    moving = any(_moves(wanted, present.config, port.name) for port in intent.ports)
    fixed = list(tables.MAPS.values()) if moving else []
    fixed += [] if present.listed else ["BUFFER_PROFILE"]
    return {**IN_PLACE, **dict.fromkeys(fixed, ())}


def _moves(wanted: ContractTables, config: Config, port: str) -> bool:
    """Whether a port with the collection's maps gets other lossless priorities or queues."""
    row, queues = config.get("PORT_QOS_MAP", {}).get(port, {}), config.get("QUEUE", {})
    wants, has = ({*(each.get("pfc_enable") or "").split(",")} for each in (wanted.qos, row))
    marking = (number for number, fields in wanted.queues.items() if fields["wred_profile"])
    served = (queues.get(f"{port}|{number}", {}).get("scheduler", "") for number in marking)
    return any(owned(row.get(field, "")) for field in tables.MAPS) and (
        not wants <= has or not all(map(owned, served))
    )


def _place(
    table: str, base: str, content: Row, rows: Table, in_place: Optional[Collection[str]]
) -> str:
    """Add an object under its name, or under a numbered one if its differences are not `in_place`,
    the fields that can be replaced (None: all)."""
    # Names of maps have no dot (sonic-buildimage 086b03bd, sonic-dscp-tc-map.yang).
    bar = "_" if table in tables.MAPS.values() else "."
    numbered = re.compile(rf"{re.escape(base + bar)}[0-9]{{1,9}}")
    candidates = [name for name in rows if name == base or numbered.fullmatch(name)]
    candidates.sort(key=lambda name: (len(name), name))
    for name in candidates:
        if rows[name] == content:
            return name
    if in_place is None:
        base = candidates[-1] if candidates else base
    elif base in rows:
        differs = {f for f in {*rows[base], *content} if rows[base].get(f) != content.get(f)}
        # Fields can be replaced, but neither added nor removed.
        if not (differs <= {*in_place} and differs <= rows[base].keys() & content.keys()):
            number = 2
            while f"{base}{bar}{number}" in rows:
                number += 1
            base = f"{base}{bar}{number}"
    rows[base] = dict(content)
    return base


def _without_unbound(names: dict[str, dict[str, str]], config: Config, before: Config) -> None:
    """Drop new profiles that no port uses, because the switch binds its own. An existing one stays:
    buffermgrd may bind and release ports at any time."""
    profiles = names["BUFFER_PROFILE"]
    bound = {row.get("profile") for row in config["BUFFER_PG"].values()}
    for base, name in list(profiles.items()):
        if name not in bound and name not in before.get("BUFFER_PROFILE", {}):
            del profiles[base]
            del config["BUFFER_PROFILE"][name]


def _without_stale(names: dict[str, dict[str, str]], bound: Config, everything: Config) -> Config:
    """Remove the collection's unused objects, unless an operator's row refers to them."""
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


def _set(row: Row, fields: Fields, names: dict[str, dict[str, str]]) -> None:
    for field, value in fields.items():
        if value is None:
            row.pop(field, None)
        else:
            row[field] = names[_TABLE_OF[field]][value] if field in _TABLE_OF else value


def _split(rows: Table, keys: Iterable[str], numbers: Iterable[int]) -> None:
    """Split rows of ranges that contain these numbers; the rest of a range is unchanged."""
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
    """Bind the profile to the port's lossless priority groups, as ranges, which buffermgrd makes in
    the traditional buffer model. Others lose their buffer, as PFC is enabled for no other priority;
    lossy groups of a range keep theirs."""
    rows, profiles = config["BUFFER_PG"], config["BUFFER_PROFILE"]
    wanted = {queue.priority_group for queue in intent.fabric.queues if queue.lossless}
    numbers = {key: set(tables.numbers_of(key)) for key in keys}
    bound = {}
    for key in tables.keys_of(port.name, wanted):
        covering = [each for each in keys if numbers[each] & set(tables.numbers_of(key))]
        made = buffers.left_to_the_switch(covering, profiles[profile], present)
        bound[key] = dict(rows[covering[0]]) if made else {"profile": profile}
    for key in keys:
        lossless = tables.is_lossless(rows[key].get("profile", ""), profiles)
        if numbers[key] & wanted or (lossless and numbers[key]):
            row = rows.pop(key)
            if not lossless:
                for left in tables.keys_of(port.name, numbers[key] - wanted):
                    rows[left] = dict(row)
    rows.update(bound)


def _watchdog(intent: SwitchIntent, wanted: ContractTables, rows: Table) -> None:
    ours = {port.name for port in intent.ports}
    for port in intent.ports:
        if wanted.watchdog is None:
            rows.pop(port.name, None)
        else:
            _set(rows.setdefault(port.name, {}), wanted.watchdog, {})
    if wanted.watchdog is not None:
        # The interval also applies to the operator's ports, which must not detect faster.
        times = [
            tables.number(row[field])
            for name, row in rows.items()
            for field in ("detection_time", "restoration_time")
            if name not in ours and tables.is_number(row.get(field))
        ]
        rows.setdefault(tables.GLOBAL, {})["POLL_INTERVAL"] = str(min([wanted.poll_ms, *times]))


def _check_watchdog(wanted: ContractTables, rows: Table, present: Present) -> None:
    """Raise SwitchError if PFC_WD must change and `config apply-patch` refuses that."""
    before = present.config.get("PFC_WD", {})
    changed = [
        key for key in sorted({*rows, *before}, key=natural) if rows.get(key) != before.get(key)
    ]
    if present.listed is not False or not changed:
        return
    by_hand = [f"`pfcwd stop {quote(key)}`" for key in changed if key not in rows]
    ports = " ".join(quote(key) for key in changed if key in rows and key != tables.GLOBAL)
    if ports and wanted.watchdog is not None:
        start = "pfcwd start --action {action} --restoration-time {restoration_time}"
        start = f"{start} {{}} {{detection_time}}".format(ports, **wanted.watchdog)
        by_hand.append(f"`{start}`")
    if tables.GLOBAL in changed:
        new, old = (each.get(tables.GLOBAL, {}).get("POLL_INTERVAL") for each in (rows, before))
        # An interval longer than the time of any port is refused.
        longer = tables.number(new) > tables.number(old)
        by_hand.insert(len(by_hand) if longer else 0, f"`pfcwd interval {new}`")
    raise SwitchError(
        f"hardware SKU {present.metadata.get('hwsku', 'unknown')}: `config apply-patch` of this "
        "SONiC refuses every change of PFC_WD, as its gcu_field_operation_validators.conf.json "
        f"does not have the SKU. Either run {', '.join(by_hand)} on the switch, which skips ports "
        "without PFC, and then this again, or write roce_qos.pfc.watchdog.enabled: false, and "
        "stop what runs by `pfcwd stop`"
    )


def _leave_ports(intent: SwitchIntent, wanted: ContractTables, config: Config) -> None:
    """Remove references to the collection's objects from ports that left the model."""
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
        port = config["PORT"].get(name, {})
        if port.get("mtu") == str(intent.fabric.mtu_ip):
            port["mtu"] = tables.DEFAULT_MTU
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
