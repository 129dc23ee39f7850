# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Differences between a switch and the contract, their impact, and the patches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Optional, TypeVar

from ....module_utils.core.text import counted, natural
from .. import system
from ..asics import WantedError
from . import tables
from .reading import SAVED_FILE, Present
from .steps import UNORDERED, Operation, Patch, PollInterval, PortsCheck, Save, Step, expected_s
from .tables import Config, ContractTables, Row, port_of
from .target import target

Value = TypeVar("Value")


def patch(before: Config, after: Config) -> list[Operation]:
    """Operations in order: objects before the rows that refer to them, additions before removals.

    A missing table is added as a whole, because no path leads into it; a table that loses its last
    row is removed as a whole, because an empty one is refused.
    """
    added: list[Operation] = []
    removed: list[Operation] = []
    for table in tables.CHANGED:
        old, new = before.get(table) or {}, after.get(table) or {}
        if old and not new:
            removed.insert(0, {"op": "remove", "path": f"/{table}"})
            continue
        if new and not old:
            added.append({"op": "add", "path": f"/{table}", "value": new})
            continue
        for change in _changes({table: old}, {table: new}):
            key, _blank, field = change.path.partition("|")[2].partition(" ")
            path = "/".join(("", table, _escaped(key), *([_escaped(field)] if field else [])))
            if change.wanted is None:
                removed.append({"op": "remove", "path": path})
            else:
                op = "add" if change.found is None else "replace"
                added.append({"op": op, "path": path, "value": change.wanted})
    return added + removed


def _escaped(part: str) -> str:
    return part.replace("~", "~0").replace("/", "~1")


BOUNCING = ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE")
"""A port goes down and up only for changes of its rows in these tables (patch_sorter.py)."""

LENGTHS = "CABLE_LENGTH"
_OF_PORTS = {
    "PORT mtu": "the MTU of {} changes: larger packets are dropped until both ends have it",
    "PORT pfc_asym": "{} no longer obeys pauses of every priority",
    "PFC_WD": system.UNDER_TRAFFIC[system.WATCHING],
}
_OF_SWITCH = {
    "CABLE_LENGTH": "cable lengths change, and with them headroom that the switch computes",
    "DSCP_TO_TC_MAP": system.UNDER_TRAFFIC[system.DSCP_MAP],
    "TC_TO_QUEUE_MAP": system.UNDER_TRAFFIC[system.QUEUE_MAP],
    "WRED_PROFILE": system.UNDER_TRAFFIC[system.MARKING],
    "SCHEDULER": system.UNDER_TRAFFIC[system.SHARES],
}
_LOSSLESS = "lossless buffers or pauses change under traffic: packets can be lost"


def impact(changes: tuple[system.Change, ...], before: Config) -> system.Impact:
    touched: dict[str, dict[str, None]] = {}
    for change in changes:
        table, _bar, rest = change.path.partition("|")
        key, _blank, field = rest.partition(" ")
        if table in tables.OBJECTS and not field and None in (change.found, change.wanted):
            continue  # no row refers to it
        table = f"PORT {field}" if table == "PORT" else table
        touched.setdefault(table, {})[port_of(key)] = None
    down = _down(touched, before)
    losses = []
    for table, keys in touched.items():
        if table in _OF_PORTS:
            ports = [key for key in keys if key not in down and key != tables.GLOBAL]
            if ports:
                losses.append(_OF_PORTS[table].format(counted(len(ports), "port")))
            if tables.GLOBAL in keys:
                losses.append("the PFC watchdog of every port polls at another interval")
        elif table not in BOUNCING:
            losses.append(_OF_SWITCH.get(table, _LOSSLESS))
    return system.Impact(tuple(down), tuple(dict.fromkeys(losses)))


def _down(touched: dict[str, dict[str, None]], before: Config) -> list[str]:
    """A port without `admin_status` counts as down already (patch_sorter.py, buffermgr.cpp)."""
    bounced = {key for table in BOUNCING for key in touched.get(table, {})}
    ports = before.get("PORT", {}).items()
    return [name for name, row in ports if name in bounced and row.get("admin_status") == "up"]


def difference(
    intent: system.SwitchIntent, wanted: ContractTables, present: Present
) -> system.Difference:
    try:
        bound, final = target(intent, wanted, present)
    except system.SwitchError as error:
        text = str(error).removeprefix(f"{intent.name}: ")
        raise system.SwitchError(f"{intent.name}: {text}") from None
    before = {table: present.config.get(table, {}) for table in tables.CHANGED}
    changes = tuple(_changes(before, final))
    if not changes and not present.unconfirmed:
        lost = _lost_by_a_restart(intent, wanted, present)
        if lost:
            unsaved = system.Change(SAVED_FILE, "not saved", "as it is in force")
            return system.Difference(
                (unsaved,), system.Impact(), _text(lost, "found"), _text(lost, "wanted"), Save()
            )
    linked = {name for name, row in present.ports.items() if row.get("oper_status") == "up"}
    uplinks = {port.name for port in intent.ports if port.kind == system.UPLINK}
    steps = _steps(before, bound, final, linked, uplinks)
    return system.Difference(
        changes,
        impact(changes, before),
        _text(changes, "found"),
        _text(changes, "wanted"),
        steps,
        expected_s(steps, present.version),
    )


def _lost_by_a_restart(
    intent: system.SwitchIntent, wanted: ContractTables, present: Present
) -> tuple[system.Change, ...]:
    """Differences from the contract after a restart with the saved configuration."""
    if present.saved is None or present.saved == present.config:
        return ()
    saved = {table: present.saved.get(table, {}) for table in tables.CHANGED}
    try:
        _bound, final = target(intent, wanted, replace(present, config=present.saved))
    except (system.SwitchError, WantedError) as error:
        return (system.Change(SAVED_FILE, str(error), None),)
    return tuple(_changes(saved, final))


def _steps(
    before: Config, bound: Config, final: Config, linked: set[str], uplinks: set[str]
) -> list[Step]:
    """Steps in order: objects, groups of ports, then removal of unused objects."""
    state = {**before, **{table: bound.get(table, {}) for table in tables.OBJECTS}}
    steps: list[Step] = [Patch(patch(before, state))]
    wanted, present = (each.get("PFC_WD", {}).get(tables.GLOBAL) for each in (bound, before))
    # No port may detect faster than the switch polls: a longer interval follows the ports.
    if wanted and (not present or _poll(wanted) < _poll(present)):
        polled = {**state, "PFC_WD": {**state["PFC_WD"], tables.GLOBAL: wanted}}
        steps.append(
            Patch(patch(state, polled)) if present else PollInterval(wanted["POLL_INTERVAL"])
        )
        state = polled
    touched = _ports_of_changes(state, bound)
    bounced = _bounced(state, bound)
    # jsonpatch turns the removal of a row and the addition of an equal one into a move, which is
    # refused in PFC_WD: such ports are in different groups.
    watched = bound.get("PFC_WD", {})
    leaving = [port for port in touched if port in state["PFC_WD"] and port not in watched]
    for part in (leaving, [port for port in touched if port not in leaving]):
        # Ports that do not bounce come first, in one group.
        still = [port for port in part if port not in bounced]
        groups = _groups([port for port in part if port in bounced], linked, uplinks)
        for group in ([still] if still else []) + groups:
            after = _with_ports(state, bound, group)
            steps += _of_group(state, after, tuple(group), linked & bounced)
            state = after
    steps.append(Patch(patch(state, final)))
    return [step for step in steps if isinstance(step, PollInterval) or step.operations]


FIRST, GROWTH, LARGEST = 1, 4, 16
"""Ports that go down together: one reveals faults of the contract on this switch, a few those of
kinds of cables and peers, and a later fault costs at most this many links."""


def _groups(ports: list[str], linked: set[str], uplinks: set[str]) -> list[list[str]]:
    """Ports with a link come first, since only they reveal faults. At most half of the uplinks go
    down together."""
    waiting = sorted(ports, key=lambda port: (port not in linked, natural(port)))
    spared = max(1, len(uplinks) // 2)
    size, groups = FIRST, []
    while waiting:
        group: list[str] = []
        for port in waiting:
            crowded = port in uplinks and len(uplinks & {*group}) == spared
            if len(group) < size and not crowded:
                group.append(port)
        groups.append(group)
        waiting = [port for port in waiting if port not in group]
        size = min(size * GROWTH, LARGEST)
    return groups


def _bounced(before: Config, after: Config) -> set[str]:
    touched: dict[str, dict[str, None]] = {}
    for change in _changes(before, after):
        table, _bar, rest = change.path.partition("|")
        touched.setdefault(table, {})[port_of(rest.partition(" ")[0])] = None
    return {*_down(touched, before)}


def _of_group(
    before: Config, after: Config, ports: tuple[str, ...], linked: set[str]
) -> Iterator[Patch]:
    """Patches of a group: down, ranges removed, rows set, up. No intermediate state is active.

    Sorted tables come with the first patch: buffermgrd of the traditional model binds by the cable
    length that it has when PFC changes. Within the unordered tables (`-i`) a range goes first, so
    that it cannot take the buffer of one of its numbers along.
    """
    bounced = _bounced(before, after)
    down = [port for port in ports if port in bounced]
    sorted_first = {**after, **{table: before.get(table, {}) for table in UNORDERED}}
    bare = _without_removed(sorted_first, after)
    removing, setting = patch(sorted_first, bare), patch(bare, after)
    lowering = patch(before, sorted_first) + _admin(down, "down")
    if lowering:
        yield Patch(lowering, ports)
    if removing:
        yield Patch(_for_any_row(removing, sorted_first, bare), ports)
    if setting:
        yield Patch(_for_any_row(setting, bare, after), ports)
    if down:
        links = tuple(port for port in down if port in linked)
        rows = {
            table: {key: row for key, row in after.get(table, {}).items() if port_of(key) in ports}
            for table in UNORDERED
        }
        yield Patch(_admin(down, "up"), ports, PortsCheck(rows, links))


def _admin(ports: list[str], status: str) -> list[Operation]:
    path = "/PORT/{}/admin_status"
    return [
        {"op": "replace", "path": path.format(_escaped(port)), "value": status} for port in ports
    ]


def _without_removed(before: Config, after: Config) -> Config:
    """Without the queues and priority groups that are no longer separate rows."""
    left = {}
    for table in ("QUEUE", "BUFFER_PG"):
        new = after.get(table, {})
        left[table] = {key: row for key, row in before.get(table, {}).items() if key in new}
    return {**before, **left}


def _for_any_row(operations: list[Operation], before: Config, after: Config) -> list[Operation]:
    """The operations in a form that works with and without existing rows of BUFFER_PG.

    buffermgrd of the traditional model removes its rows while a port is down, and adds them when it
    comes up (sonic-swss, buffermgr.cpp). In a patch, `add` replaces an existing value.
    """
    found: list[Operation] = []
    for operation in operations:
        table, *rest = operation["path"].split("/")[1:]
        if table == "BUFFER_PG" and operation["op"] == "remove" and len(rest) < 2:
            value = before[table][_plain(rest[0])] if rest else before[table]
            found.append({"op": "add", "path": operation["path"], "value": value})
        if table == "BUFFER_PG" and len(rest) == 2:
            path = f"/{table}/{rest[0]}"
            operation = {"op": "add", "path": path, "value": after[table][_plain(rest[0])]}
        if operation not in found:
            found.append(operation)
    return found


def _plain(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _poll(row: Row) -> int:
    return tables.number(row.get("POLL_INTERVAL"))


def _ports_of_changes(before: Config, after: Config) -> list[str]:
    found: set[str] = set()
    for table in tables.ROWS:
        old, new = before.get(table, {}), after.get(table, {})
        for key in old.keys() | new.keys():
            old_row, new_row = old.get(key, {}), new.get(key, {})
            if table == LENGTHS:
                found |= {port for port, _metres in old_row.items() ^ new_row.items()}
            elif old.get(key) != new.get(key) and key != tables.GLOBAL:
                found.add(port_of(key))
    return sorted(found, key=natural)


def _with_ports(config: Config, final: Config, ports: Iterable[str]) -> Config:
    result, own = dict(config), {*ports}
    for table in tables.ROWS:
        old, new = config.get(table, {}), final.get(table, {})
        if table == LENGTHS:  # its rows are lists of ports
            lists = {
                name: _mixed(old.get(name, {}), new.get(name, {}), own) for name in {**old, **new}
            }
            result[table] = {name: row for name, row in lists.items() if row}
        else:
            result[table] = _mixed(old, new, own)
    return result


def _mixed(others: dict[str, Value], own: dict[str, Value], ports: set[str]) -> dict[str, Value]:
    found = {key: value for key, value in others.items() if port_of(key) not in ports}
    return {**found, **{key: value for key, value in own.items() if port_of(key) in ports}}


def _changes(before: Config, after: Config) -> Iterator[system.Change]:
    for table in tables.CHANGED:
        old, new = before.get(table, {}), after.get(table, {})
        differing = [key for key in {*old, *new} if old.get(key) != new.get(key)]
        for key in sorted(differing, key=natural):
            yield from _row(f"{table}|{key}", old.get(key), new.get(key))


def _row(path: str, old: Optional[Row], new: Optional[Row]) -> Iterator[system.Change]:
    if old is None or new is None:
        yield system.Change(path, old, new)
    else:
        for field in sorted({*old, *new}, key=natural):
            if old.get(field) != new.get(field):
                yield system.Change(f"{path} {field}", old.get(field), new.get(field))


def _text(changes: tuple[system.Change, ...], side: str) -> str:
    lines: list[str] = []
    for change in changes:
        value = getattr(change, side)
        if isinstance(value, dict):
            fields = sorted(value.items(), key=lambda item: natural(item[0]))
            lines.extend(f"{change.path} {field}: {text}" for field, text in fields)
        elif value is not None:
            lines.append(f"{change.path}: {value}")
    return "".join(f"{line}\n" for line in lines)
