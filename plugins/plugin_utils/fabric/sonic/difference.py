# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What differs between a switch and the contract, what that costs, and the patches for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Optional, TypeVar, Union

from ....module_utils.core.text import counted
from ..system import (
    DSCP_MAP,
    MARKING,
    QUEUE_MAP,
    SHARES,
    UNDER_TRAFFIC,
    WATCHING,
    Change,
    Difference,
    Impact,
    SwitchError,
    SwitchIntent,
)
from . import tables
from .reading import SAVED_FILE, Present
from .tables import Config, Row, Wanted, natural, port_of
from .target import target

# Patches (RFC 6902) from one state of CONFIG_DB to another, as `config apply-patch` takes them.
#
# A table that is not there is added whole, since no path leads into it; a table that loses its
# last row is removed whole, since an empty one is refused.

Operation = dict[str, Any]
Value = TypeVar("Value")


def patch(before: Config, after: Config) -> list[Operation]:
    """Objects before the rows that refer to them; what is added before what is removed."""
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


# What a change of CONFIG_DB costs the traffic on a switch.
#
# `config apply-patch` takes a port down and up again for any change of its rows in the tables
# below (see its patch sorter; it may do so for nothing else).

BOUNCING = ("PORT_QOS_MAP", "QUEUE", "BUFFER_PG", "BUFFER_QUEUE")

LENGTHS = "CABLE_LENGTH"
_ASYMMETRIC = "PORT pfc_asym"
_OF_PORTS = {
    _ASYMMETRIC: "{} no longer obeys pauses of every priority",
    "PORT": "the MTU of {} changes: larger packets are dropped until both ends have it",
    "PFC_WD": UNDER_TRAFFIC[WATCHING],
}
_OF_SWITCH = {
    "CABLE_LENGTH": "cable lengths change, and with them headroom that the switch computes",
    "DSCP_TO_TC_MAP": UNDER_TRAFFIC[DSCP_MAP],
    "TC_TO_QUEUE_MAP": UNDER_TRAFFIC[QUEUE_MAP],
    "TC_TO_PRIORITY_GROUP_MAP": "the map to priority groups changes under traffic: packets "
    "without headroom can be lost",
    "MAP_PFC_PRIORITY_TO_QUEUE": "pauses hold another queue: packets can be lost",
    "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP": "pauses are sent for another priority group: "
    "packets can be lost",
    "WRED_PROFILE": UNDER_TRAFFIC[MARKING],
    "SCHEDULER": UNDER_TRAFFIC[SHARES],
    "BUFFER_PROFILE": "thresholds of lossless buffers change: packets can be lost",
}


def impact(changes: tuple[Change, ...], before: Config) -> Impact:
    touched: dict[str, dict[str, None]] = {}
    for change in changes:
        table, _bar, rest = change.path.partition("|")
        key, _blank, field = rest.partition(" ")
        if (
            table in tables.OBJECTS
            and (change.found is None or change.wanted is None)
            and not field
        ):
            continue  # nothing refers to it yet, or any more
        table = _ASYMMETRIC if f"{table} {field}" == _ASYMMETRIC else table
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
        elif table in _OF_SWITCH:
            losses.append(_OF_SWITCH[table])
    return Impact(tuple(down), tuple(losses))


def _down(touched: dict[str, dict[str, None]], before: Config) -> dict[str, None]:
    """In the order of the switch's ports. One that is down by configuration cannot go down."""
    bounced = {key for table in BOUNCING for key in touched.get(table, {})}
    ports = before.get("PORT", {})
    return {
        name: None
        for name, row in ports.items()
        if name in bounced and row.get("admin_status") != "down"
    }


SHARED_S, PORT_S = 35, 12
"""What upstream's sorter took, run with 64 ports (sonic-utilities 691b1bbc): 35 s for objects, 9 to
12 s for one port. For several ports in one patch, or in one rollback, it takes more than the square
of their number: 126 s for 3, 737 s for 6, hours for 64. So there is one patch for each port."""


@dataclass(frozen=True)
class Patch:
    """One call of `config apply-patch`."""

    operations: list[Operation]
    port: str = ""
    """All that it changes; empty: objects that ports share."""

    @property
    def expected_s(self) -> int:
        return PORT_S if self.port else SHARED_S


@dataclass(frozen=True)
class PollInterval:
    """PFC_WD|GLOBAL where there is none: a patch may change that row, but neither add nor remove it
    (generic_config_updater), so it comes from `pfcwd interval`."""

    milliseconds: str
    port = ""
    expected_s = 1


@dataclass(frozen=True)
class Save:
    """All is in force, and config_db.json has it not: a restart of the switch would lose it."""


Step = Union[Patch, PollInterval]


def difference(intent: SwitchIntent, wanted: Wanted, present: Present) -> Difference:
    try:
        bound, final = target(intent, wanted, present)
    except SwitchError as error:
        text = str(error).removeprefix(f"{intent.name}: ")
        raise SwitchError(f"{intent.name}: {text}") from None
    before = {table: present.config.get(table, {}) for table in tables.CHANGED}
    changes = tuple(_changes(before, final))
    if not changes and not present.unconfirmed:
        lost = _lost_by_a_restart(intent, wanted, present)
        if lost:
            unsaved = Change(SAVED_FILE, "not saved", "as it is in force")
            return Difference(
                (unsaved,), Impact(), _text(lost, "found"), _text(lost, "wanted"), Save()
            )
    steps = _steps(before, bound, final)
    return Difference(
        changes=changes,
        impact=impact(changes, before),
        before=_text(changes, "found"),
        after=_text(changes, "wanted"),
        steps=steps,
        # The first patch is tried before it is applied.
        expected_s=sum(step.expected_s for step in (*steps[:1], *steps)),
    )


def _lost_by_a_restart(
    intent: SwitchIntent, wanted: Wanted, present: Present
) -> tuple[Change, ...]:
    """What would differ if the switch came up with what is saved."""
    if present.saved is None or present.saved == present.config:
        return ()
    saved = {table: present.saved.get(table, {}) for table in tables.CHANGED}
    try:
        _bound, final = target(intent, wanted, replace(present, config=present.saved))
    except SwitchError as error:
        return (Change(SAVED_FILE, str(error), None),)
    return tuple(_changes(saved, final))


def _steps(before: Config, bound: Config, final: Config) -> list[Step]:
    """Objects, then port after port, then what nothing refers to any more."""
    state = {**before, **{table: bound.get(table, {}) for table in tables.OBJECTS}}
    steps: list[Step] = [Patch(patch(before, state))]
    wanted, there = (each.get("PFC_WD", {}).get(tables.GLOBAL) for each in (bound, before))
    # No port may detect faster than it polls: a longer interval comes after the rows of ports.
    if wanted and (not there or _poll(wanted) < _poll(there)):
        polled = {**state, "PFC_WD": {**state["PFC_WD"], tables.GLOBAL: wanted}}
        steps.append(
            Patch(patch(state, polled)) if there else PollInterval(wanted["POLL_INTERVAL"])
        )
        state = polled
    for port in _ports_of_changes(before, bound):
        after = _with_port(state, bound, port)
        steps.append(Patch(patch(state, after), port))
        state = after
    steps.append(Patch(patch(state, final)))
    return [step for step in steps if isinstance(step, PollInterval) or step.operations]


def _poll(row: Row) -> int:
    return tables.number(row.get("POLL_INTERVAL"))


def _ports_of_changes(before: Config, after: Config) -> list[str]:
    found: set[str] = set()
    for table in tables.ROWS:
        old, new = before.get(table, {}), after.get(table, {})
        for key in old.keys() | new.keys():
            one, other = old.get(key, {}), new.get(key, {})
            if table == LENGTHS:
                found |= {port for port, _metres in one.items() ^ other.items()}
            elif old.get(key) != new.get(key) and key != tables.GLOBAL:
                found.add(port_of(key))
    return sorted(found, key=natural)


def _with_port(config: Config, final: Config, port: str) -> Config:
    """One port as it is at the end."""
    result = dict(config)
    for table in tables.ROWS:
        old, new = config.get(table, {}), final.get(table, {})
        if table == LENGTHS:  # its rows are lists of ports
            lists = {
                name: _mixed(old.get(name, {}), new.get(name, {}), port) for name in {**old, **new}
            }
            result[table] = {name: row for name, row in lists.items() if row}
        else:
            result[table] = _mixed(old, new, port)
    return result


def _mixed(others: dict[str, Value], own: dict[str, Value], port: str) -> dict[str, Value]:
    found = {key: value for key, value in others.items() if port_of(key) != port}
    return {**found, **{key: value for key, value in own.items() if port_of(key) == port}}


def _changes(before: Config, after: Config) -> Iterator[Change]:
    for table in tables.CHANGED:
        old, new = before.get(table, {}), after.get(table, {})
        differing = [key for key in {*old, *new} if old.get(key) != new.get(key)]
        for key in sorted(differing, key=natural):
            yield from _row(f"{table}|{key}", old.get(key), new.get(key))


def _row(path: str, old: Optional[Row], new: Optional[Row]) -> Iterator[Change]:
    if old is None or new is None:
        yield Change(path, old, new)
    else:
        for field in sorted({*old, *new}, key=natural):
            if old.get(field) != new.get(field):
                yield Change(f"{path} {field}", old.get(field), new.get(field))


def _text(changes: tuple[Change, ...], side: str) -> str:
    lines: list[str] = []
    for change in changes:
        value = getattr(change, side)
        if isinstance(value, dict):
            fields = sorted(value.items(), key=lambda item: natural(item[0]))
            lines.extend(f"{change.path} {field}: {text}" for field, text in fields)
        elif value is not None:
            lines.append(f"{change.path}: {value}")
    return "".join(f"{line}\n" for line in lines)
